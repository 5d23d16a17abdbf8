"""The parts of the simulated engine."""
