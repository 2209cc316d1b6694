"""Create and check a site file: `orchestrator init` and `orchestrator doctor`."""
