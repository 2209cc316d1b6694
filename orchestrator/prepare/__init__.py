"""Getting a workload's data: the published steps in its container, resumable, and the check of what is there."""
