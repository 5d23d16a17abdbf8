"""The toolkit's logic: plain Python that runs, and is tested, without Ansible."""
