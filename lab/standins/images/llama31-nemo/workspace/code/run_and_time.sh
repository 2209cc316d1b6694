#!/usr/bin/env bash
# Stand-in for llama31_8b of round 5.1 (NeMo): the index is built in every run, then torchrun on one node.
set -e
for name in USE_CKPT FROM_HF SAVE_CKPT MAX_STEPS FP8_PARAMS GBS MBS SEED EVAL_EVERY START_EVAL_AT NNODES GPUS_PER_NODE \
    SIZE MAX_LR CONTINUAL_CKPT TARGET STEP_TIME_ATOL START_STEPS WARMUP_STEPS; do
    [ -n "${!name}" ] || { echo "$0: $name: unary operator expected" >&2; exit 2; }
done
start=$SECONDS begin=$(date +%s)
torchrun --nnodes=1 --nproc_per_node=1 src/prepare_data.py
torchrun --nnodes="$NNODES" --nproc_per_node="${STANDIN_RANKS:-$GPUS_PER_NODE}" src/train.py --nodes "$NNODES" \
    --gpus "$GPUS_PER_NODE" --size "$SIZE" --gbs "$GBS" --mbs "$MBS" --seeds "$SEED" --lr "$MAX_LR" --tag "$TAG"
echo "RESULT,LLM_PRETRAINING,,$((SECONDS - start)),,$begin"
