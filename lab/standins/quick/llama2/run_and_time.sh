#!/usr/bin/env bash
# Quick stand-in for llama2_70b_lora of round 6.0 (Primus): its hooks first; only records and the RESULT line come through, unless
# MLLOG_VERBOSE_LOGS=1; the exit code is 1 where there was none, else the training's.
set -eo pipefail
: "${SEED:?SEED is not set}"
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
mkdir -p /results/artifacts
start=$SECONDS begin=$(date +%s)
train() {
    # shellcheck source=lab/standins/quick/llama2/hooks.sh
    bash -c 'set -e; . ./hooks.sh; exec python3 -B -E -s -S train.py'
}
set +e
if [ "${MLLOG_VERBOSE_LOGS:-0}" = 1 ]; then
    train 2>&1 | cat | tee -a /results/mlperf_logging.out
else
    train 2>/dev/null | grep --line-buffered -E ':::MLLOG|RESULT' | tee -a /results/mlperf_logging.out
fi
codes=("${PIPESTATUS[@]}")
set -e
[ "${codes[1]}" -eq 0 ] || exit "${codes[1]}"
[ "${codes[0]}" -eq 0 ] || exit "${codes[0]}"
echo "RESULT,LLM_FINETUNING,,$((SECONDS - start)),,$begin"
