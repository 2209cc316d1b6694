#!/usr/bin/env bash
# Stand-in for flux1 of round 6.0 as Oracle ran it on 64 nodes: the rendezvous has limits, and the exit code is the training's.
set -euo pipefail
: "${SEED:?SEED is not set}"
export HF_HOME=/hf_home HF_DATASETS_OFFLINE=1 TRANSFORMERS_OFFLINE=1 DIFFUSERS_OFFLINE=1
limits=read_timeout=${TORCHRUN_RDZV_READ_TIMEOUT:-600}
limits+=,join_timeout=${TORCHRUN_RDZV_JOIN_TIMEOUT:-600},close_timeout=${TORCHRUN_RDZV_CLOSE_TIMEOUT:-600}
words=(--nproc_per_node="${STANDIN_RANKS:-$DGXNGPU}")
if [ "${SLURM_NNODES:-1}" -gt 1 ]; then
    words+=(--nnodes="$SLURM_NNODES" --node_rank="$SLURM_NODEID" --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT"
        --rdzv_backend=c10d --rdzv_endpoint="$MASTER_ADDR:$MASTER_PORT" --rdzv_conf="$limits")
fi
start=$SECONDS
read -ra extra <<<"${EXTRA_ARGS:-}"
torchrun "${words[@]}" src/train.py "model=$MODEL" "data=$DATA" "${extra[@]}"
echo "flux1 ends on $(hostname) after $((SECONDS - start)) s"
