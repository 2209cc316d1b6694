"""Prepare a workload's data: the published steps in its container, resumable, and a check of the
result."""
