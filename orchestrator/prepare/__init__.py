"""A workload's data: its published steps in a container, and the expected tree."""
