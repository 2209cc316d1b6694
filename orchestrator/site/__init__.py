"""Making a site file from what a cluster tells, and checking one: `orchestrator init` and `orchestrator doctor`."""
