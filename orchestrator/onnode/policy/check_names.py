"""The names of the checks, as in reports of nodes, in tables and in a site file."""

from __future__ import annotations

SYSTEM_CHECKS = (
    "image",
    "gpu_count",
    "gpu_model",
    "gpu_memory",
    "gpu_processes",
    "gpu_errors",
    "gpu_links",
    "rdma",
    "data",
)
CHECKS = (
    "engine",
    *SYSTEM_CHECKS,
    "log_dir",
    "free_space",
    "clock",
    "root",
    "limits",
    "leftovers",
    "versions",
    "reach",
    "deep",
)
"""In display order: a node's first failure is its reason."""
OUTCOMES = ("container", "tunables", "verdict")
"""Rows after a node's checks."""
