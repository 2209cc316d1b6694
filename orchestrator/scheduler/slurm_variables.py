"""Slurm's environment variables: the current allocation, and a node's place in a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from orchestrator.onnode.kernel.jobs import JOB_ID, JOB_NODELIST, NNODES, NODEID


class CurrentAllocation(NamedTuple):
    """The allocation in whose shell a command runs; empty outside."""

    job: str = ""
    nodelist: str = ""
    """In Slurm's short form: node[1-8]."""


def current_allocation(env: Mapping[str, str] | None = None) -> CurrentAllocation:
    """Return the allocation of `env` (default: this process's)."""
    variables = os.environ if env is None else env
    job = variables.get(JOB_ID, "")
    nodelist = variables.get(JOB_NODELIST, "")
    return CurrentAllocation(job if job.isdecimal() else "", nodelist)


def of_allocation(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith("SLURM")}


def run_variables(nodes: int) -> dict[str, str]:
    return {NNODES: str(nodes)}


def node_variables(rank: int) -> dict[str, str]:
    return {NODEID: str(rank)}
