#!/usr/bin/env bash
# One run on this node: a process per GPU. SEED, MASTER_ADDR, MASTER_PORT, SLURM_NNODES and SLURM_NODEID come from the launcher.
set -euo pipefail
: "${SEED:?run_and_time.sh: SEED is not set; the launcher sets it, by hand try SEED=1}"
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
exec "${TINY_PYTHON:-python3}" -m torch.distributed.run \
  --nnodes "${SLURM_NNODES:-1}" --node_rank "${SLURM_NODEID:-0}" --nproc_per_node "$TINY_RANKS_PER_NODE" \
  --master_addr "${MASTER_ADDR:-127.0.0.1}" --master_port "${MASTER_PORT:-29500}" \
  train.py
