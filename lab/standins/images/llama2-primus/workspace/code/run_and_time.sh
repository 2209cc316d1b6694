#!/usr/bin/env bash
# Stand-in for llama2_70b_lora of round 6.0 (Primus): its command line starts torchrun; of all that is printed only MLLOG
# records and the RESULT line come through.
set -eo pipefail
: "${SEED:?SEED is not set}"
cd /workspace/Primus
start=$SECONDS begin=$(date +%s)
command=(./runner/primus-cli direct train posttrain --config "$EXP" "pretrained_checkpoint=$PRETRAINED_CHECKPOINT")
if [ "${MLLOG_VERBOSE_LOGS:-0}" = 1 ]; then
    "${command[@]}"
else
    set +e
    "${command[@]}" 2>/dev/null | grep --line-buffered -E ':::MLLOG|RESULT|primus-cli failed'
    codes=("${PIPESTATUS[@]}")
    set -e
    # Nothing to show at all is a failure before that of the command.
    [ "${codes[1]}" -eq 0 ] || exit "${codes[1]}"
    [ "${codes[0]}" -eq 0 ] || exit "${codes[0]}"
fi
echo "RESULT,LLM_FINETUNING,,$((SECONDS - start)),,$begin"
