"""A workload's data: the published steps in its container, and the expected tree."""
