"""Naming nodes, running one command on many of them, and verdicts on them."""
