"""See spec_info."""
