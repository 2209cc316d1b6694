#!/usr/bin/env bash
# Entry point of the built-in workload: one process per node, all of its ranks inside. Needs SEED, MASTER_ADDR,
# MASTER_PORT, SLURM_NNODES, SLURM_NODEID and the variables of README.md. Keeps the training's exit code.
set -euo pipefail
: "${SEED:?run_and_time.sh: SEED is not set; the launcher sets it, by hand try SEED=1}"
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
# -E -s -S: no PYTHON* variables, no user or site packages: a faster start, and only the standard library.
# -B: the code may be a bundle on shared storage, which a run must not change.
exec python3 -B -E -s -S train.py
