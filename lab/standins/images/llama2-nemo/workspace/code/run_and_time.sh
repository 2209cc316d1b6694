#!/usr/bin/env bash
# Stand-in for llama2_70b_lora of rounds 5.0 and 5.1 (NeMo): torchrun on one node only, the training's exit code before
# any RESULT line.
: "${SEED:?SEED is not set}"
start=$SECONDS begin=$(date +%s)
torchrun --nproc_per_node="${STANDIN_RANKS:-8}" src/train.py
code=$?
if [ "$code" -ne 0 ]; then
    exit "$code"
fi
echo "RESULT,LLM_FINETUNING,,$((SECONDS - start)),,$begin"
