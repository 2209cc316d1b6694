#!/usr/bin/env bash
# Stand-in for llama2_70b_lora of round 6.0 as Cisco ran it on 2 nodes: Slurm starts one of these for every GPU, and torch's
# env:// rendezvous takes its ranks from the task.
set -e
: "${SEED:?SEED is not set}"
export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS LOCAL_WORLD_SIZE=$SLURM_NTASKS_PER_NODE
exec python3 src/train.py
