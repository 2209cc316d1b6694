"""Node names, and commands on many nodes: over srun, SSH or on this host."""
