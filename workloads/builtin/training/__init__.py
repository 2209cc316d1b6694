"""The built-in workload: a small data-parallel training in plain Python."""
