"""Node names, and commands on many nodes: in an allocation, over SSH or on this host."""
