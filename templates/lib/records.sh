# shellcheck shell=bash
# The records of a set: its job, its runs and their attempts, the published results. Sourced by lib/set_loop.sh.
# What it writes is described in docs/set-folder.md.
#
# SC2034, SC2153, SC2154: it shares variables with lib/set_loop.sh, settings.sh and lib/common.sh.
# SC2015: `A && B || C` is meant as it is: C when either fails.
# shellcheck disable=SC2034,SC2153,SC2154,SC2015

write_job() { # STATE [REASON]
  local nodes reason warnings spares aside="" one ended=0
  JOB_STATE=$1
  now_ms
  [[ $1 == starting || $1 == running ]] || ended=$NOW_MS
  json_list "${NODES[@]}"; nodes=$JSON
  json_list "${WARNINGS[@]}"; warnings=$JSON
  waiting_nodes
  json_list "${WAITING_NOW[@]}"; spares=$JSON
  for one in "${ASIDE_RECORDS[@]}"; do aside+="${aside:+, }$one"; done
  json_string "${2:-}"; reason=$JSON
  json_string "${HOSTNAME:-unknown}"
  write_atomic "$SET_DIR/jobs/$JOB_ID.json" "{\"schema\": 1, \"job_id\": \"$JOB_ID\", \"state\": \"$1\", \"reason\": $reason, \
\"host\": $JSON, \"pid\": $$, \"started_ms\": $JOB_STARTED_MS, \"updated_ms\": $NOW_MS, \"ended_ms\": $ended, \
\"nodes\": $nodes, \"run\": $RUN, \"attempt\": $ATTEMPT, \"image_digest\": \"$IMAGE_DIGEST\", \"engine\": \"$ENGINE\", \"spares\": $spares, \"set_aside\": [$aside], \"warnings\": $warnings}"
}

# exit_codes ATTEMPT_DIR: set JSON to {"node": code, ...}; -1 where a node reported none. Sets BAD_NODES to words about them.
exit_codes() {
  local rank code joined=""
  BAD_NODES="" EXIT_CODES=()
  for rank in "${!NODES[@]}"; do
    json_member "$1/node_$rank.json" exit && code=$MEMBER || code=-1
    if ((code == -1)); then
      BAD_NODES+="${BAD_NODES:+, }node ${NODES[rank]} (rank $rank) had not ended"
    elif ((code != 0)); then
      BAD_NODES+="${BAD_NODES:+, }node ${NODES[rank]} (rank $rank) exited $code"
    fi
    EXIT_CODES[rank]=$code
    json_string "${NODES[rank]}"
    joined+="${joined:+, }$JSON: $code"
  done
  JSON="{$joined}"
}

# run_record STATE OUTCOME REASON EXIT_CODES: set RECORD to the state of the current attempt, which is also that of its run.
run_record() {
  local nodes reason ended=0
  now_ms
  [[ $1 == running ]] || ended=$NOW_MS
  json_list "${NODES[@]}"; nodes=$JSON
  json_string "$3"; reason=$JSON
  RECORD="{\"schema\": 1, \"run\": $RUN, \"attempt\": $ATTEMPT, \"state\": \"$1\", \"outcome\": \"$2\", \"reason\": $reason, \
\"seed\": $SEED, \"job_id\": \"$JOB_ID\", \"master_port\": $MASTER_PORT, \"nodes\": $nodes, \"exit_codes\": ${4:-{\}}, \
\"image_digest\": \"$IMAGE_DIGEST\", \"start_ms\": $RUN_STARTED_MS, \"end_ms\": $ended}"
}

# write_run STATE OUTCOME REASON EXIT_CODES [RESULT]: write the attempt's state and its run's, and with RESULT publish rank
# 0's log under that name, after the event that the caches were cleared. What is final is on the disk before anybody can see it, with one sync for all files.
write_run() {
  local run_dir=$SET_DIR/runs/$RUN temps=("$ATTEMPT_DIR/.state.json.tmp.$$" "$SET_DIR/runs/$RUN/.state.json.tmp.$$") tries
  run_record "${@:1:4}"
  [[ -z ${5:-} ]] || temps+=("$run_dir/.result.tmp.$$")
  for tries in 1 2 3; do
    printf '%s\n' "$RECORD" >"${temps[0]}" && printf '%s\n' "$RECORD" >"${temps[1]}" &&
      { [[ -z ${5:-} ]] || cat "$ATTEMPT_DIR/cache_clear.log" "$ATTEMPT_DIR/node_0.log" >"${temps[2]}"; } &&
      { [[ $1 == running ]] || sync "${temps[@]}"; } &&
      # The result first: a state never speaks of a result that is not there.
      { [[ -z ${5:-} ]] || mv -f "${temps[2]}" "$run_dir/$5"; } &&
      mv -f "${temps[0]}" "$ATTEMPT_DIR/state.json" && mv -f "${temps[1]}" "$run_dir/state.json" && return 0
    # Above 128: a signal to the whole job ended `mv` or `sync` too. What has happened must be told all the same.
    (($? > 128)) || break
  done
  rm -f "${temps[@]}"
  STOP_REASON="cannot write to $run_dir (disk full, quota, or the folder is gone)"
  log "error: $STOP_REASON"
  return 1
}

run_is_done() { # RUN
  json_member "$SET_DIR/runs/$1/state.json" state || return 1
  [[ $MEMBER != success ]] || return 0
  [[ $MEMBER == failed ]] && json_member "$SET_DIR/runs/$1/state.json" outcome && [[ $MEMBER == not_converged ]]
}
