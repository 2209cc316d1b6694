#!/usr/bin/env bash
# Stand-in for llama31_8b of round 6.0 (Primus) as most ran it: c10d also on one node, standard error thrown away.
set -e
: "${SEED:?SEED is not set}"
if [ "${SLURM_NNODES:-1}" -gt 1 ]; then
    NNODES=$SLURM_NNODES NODE_RANK=$SLURM_NODEID
fi
MASTER_ADDR=${MASTER_ADDR:-localhost} MASTER_PORT=${MASTER_PORT:-29502}
[ "${MLPERF_VERBOSE_LOGS:-0}" = 1 ] || exec 2>/dev/null
start=$SECONDS begin=$(date +%s)
echo "Rank ${NODE_RANK:-0} of ${NNODES:-1}, master $MASTER_ADDR:$MASTER_PORT"
torchrun --nnodes="${NNODES:-1}" --nproc_per_node="${STANDIN_RANKS:-${GPUS_PER_NODE:-8}}" --node_rank="${NODE_RANK:-0}" \
    --rdzv_backend=c10d --rdzv_endpoint="$MASTER_ADDR:$MASTER_PORT" src/train.py
echo "RESULT,LLM_PRETRAINING,,$((SECONDS - start)),,$begin"
