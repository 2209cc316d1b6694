#!/usr/bin/env bash
# Quick stand-in for llama2_70b_lora of round 6.0 (Primus): only records and the RESULT line come through; the exit code is 1 where
# there was none, else the training's.
set -eo pipefail
: "${SEED:?SEED is not set}"
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
mkdir -p /results/artifacts
start=$SECONDS begin=$(date +%s)
set +e
python3 -B -E -s -S train.py 2>/dev/null | grep --line-buffered -E ':::MLLOG|RESULT' | tee -a /results/mlperf_logging.out
codes=("${PIPESTATUS[@]}")
set -e
[ "${codes[1]}" -eq 0 ] || exit "${codes[1]}"
[ "${codes[0]}" -eq 0 ] || exit "${codes[0]}"
echo "RESULT,LLM_FINETUNING,,$((SECONDS - start)),,$begin"
