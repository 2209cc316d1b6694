"""Naming nodes, and running one command on many of them."""
