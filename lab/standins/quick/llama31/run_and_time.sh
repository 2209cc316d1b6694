#!/usr/bin/env bash
# Quick stand-in for llama31_8b of round 6.0 (Primus) as most ran it: the ranks by the nodes' names, standard error thrown away,
# init_start from every rank, one file for the records of all runs, and the training's exit code.
set -eo pipefail
: "${SEED:?SEED is not set}"
export BUILTIN_RANKS_BY_NAME=1 BUILTIN_ALL_RANKS_START=1
[ "${MLPERF_VERBOSE_LOGS:-0}" = 1 ] || exec 2>/dev/null
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
start=$SECONDS begin=$(date +%s)
python3 -B -E -s -S train.py | tee -a "${MLLOG_OUTPUT_FILE:-/results/mlperf_logging.out}"
echo "RESULT,LLM_PRETRAINING,,$((SECONDS - start)),,$begin"
