#!/usr/bin/env bash
# Stand-in for llama31_8b of round 6.0 (Primus) as the early configurations ran it: a static rendezvous, so NODE_RANK counts.
set -e
: "${SEED:?SEED is not set}"
[ "${MLPERF_VERBOSE_LOGS:-0}" = 1 ] || exec 2>/dev/null
start=$SECONDS begin=$(date +%s)
torchrun --nnodes="${NNODES:-1}" --nproc_per_node="${STANDIN_RANKS:-${GPUS_PER_NODE:-8}}" --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-localhost}" --master_port="${MASTER_PORT:-29502}" src/train.py
echo "RESULT,LLM_PRETRAINING,,$((SECONDS - start)),,$begin"
