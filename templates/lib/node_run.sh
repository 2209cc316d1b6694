# shellcheck shell=bash
# One run on one node. Sourced by lib/node.sh; lib/node_hold.sh is what holds the node meanwhile.
#
# SC2153, SC2154: it shares variables with lib/node.sh and settings.sh.
# shellcheck disable=SC2153,SC2154

# shellcheck source=lib/exports.sh
. "$here/exports.sh"

# The script of a run: the evaluated environment of the config, then what belongs to this run and node, then the command.
run_script() { # DIRECTORY [LINES BEFORE THE COMMAND]
  local name words="" pairs=("SEED=$SEED" "MASTER_ADDR=$MASTER_ADDR" "MASTER_PORT=$MASTER_PORT"
    "SLURM_NNODES=${SLURM_NNODES:-1}" "SLURM_NODEID=$rank" "SLURM_JOB_ID=$ORCH_JOB_ID"
    "ORCH_RUN=$ORCH_RUN" "ORCH_ATTEMPT=$ORCH_ATTEMPT")
  # Single-node configs export NODE_RANK=0; over several nodes that would give every node rank 0.
  ((${SLURM_NNODES:-1} == 1)) || pairs+=("NODE_RANK=$rank")
  # Secrets are passed by name; this script is only ever in a pipe.
  for name in "${PASS_ENV[@]}"; do [[ -z ${!name+set} ]] || pairs+=("$name=${!name}"); done
  IFS= read -r -d '' words <"$ORCH_SET_DIR/environment.sh"
  printf '%s\n' "$words"
  network_exports
  words=""
  for name in "${pairs[@]}"; do
    shell_word "${name#*=}"
    printf 'export %s=%s\n' "${name%%=*}" "$WORD"
  done
  shell_word "$1"
  printf 'cd %s || exit 1\n' "$WORD"
  for name in "${COMMAND[@]}"; do
    shell_word "$name"
    words+=" $WORD"
  done
  printf '%sexec%s\n' "${2:-}" "$words"
}

# offer_script: have the container's shell read the script, up to the point where it waits for the word. Its start, and the
# parsing of the environment, then cost no time between two runs. Status 1: there is no container.
offer_script() {
  read -r engine <"$channel/engine_pid" || engine=""
  if [[ -z $engine ]] || ! alive "$engine"; then
    log "node $node: there is no container of this job"
    return 1
  fi
  exec {status_fd}<>"$channel/status" {start_fd}<>"$channel/start"
  cat "$channel/out" &
  printer=$!
  { printf 'exec >/orch/out 2>&1 </dev/null\n'; run_script "$CODE_DIR" $'read -r go </orch/start\n[ "$go" = go ] || exit 125\n'; } >"$channel/request" &
  writer=$!
}

# run_in_container: let the script go. RUN_STATUS is its exit status, or 125 when the container ended under it.
run_in_container() {
  printf 'go\n' >&"$start_fd"
  look_ahead
  until read_line "$status_fd" 1; do
    if ! alive "$engine"; then
      log "node $node: the container ended during the run"
      kill "$writer" "$printer" 2>/dev/null
      LINE=125
      break
    fi
  done
  RUN_STATUS=$LINE
  # The output ends by itself when its last writer is gone.
  local deadline=$((SECONDS + 5))
  while alive "$printer" && ((SECONDS < deadline)); do read -r -t 0.005 -u "$status_fd" _; done
  kill "$printer" 2>/dev/null
}

# look_ahead: take in what the end of a run needs, while it runs.
look_ahead() {
  # shellcheck source=lib/node_tuning.sh
  . "$here/node_tuning.sh"
  [[ $RUNTIME_TUNABLES != 1 ]] || tuning_begin
}

run_on_host() {
  local keep=() name child
  for name in PATH HOME USER LOGNAME LANG TMPDIR ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES; do
    [[ -z ${!name+set} ]] || keep+=("$name=${!name}")
  done
  env -i "${keep[@]}" bash <(run_script "${CODE_SOURCE:-$bundle/code}") </dev/null &
  child=$!
  look_ahead
  wait "$child"
  RUN_STATUS=$?
}

record_run() { # ATTEMPT_DIR START_MS
  now_ms
  json_string "$node"
  write_atomic "$1/node_$rank.json" "{\"node\": $JSON, \"rank\": $rank, \"exit\": $RUN_STATUS, \"start_ms\": $2, \"end_ms\": $NOW_MS${DRIFT:+, \"drift\": [$DRIFT]}}"
}

# wait_for_go: the loop starts the step of a run while the nodes get ready for it, so that starting a step costs no time of
# its own; the run begins at the loop's word.
wait_for_go() {
  local hold="" fd
  { read -r hold <"$channel/hold_pid" && exec {fd}<>"$channel/go"; } 2>/dev/null
  until [[ -n $hold ]] && read_line "$fd" 1 && [[ $LINE == "$ORCH_RUN.$ORCH_ATTEMPT" ]]; do
    if [[ -z $hold ]] || ! alive "$hold"; then
      log "node $node: nothing holds this node for the job any more"
      return 1
    fi
  done
}

run() { # ATTEMPT_DIR
  local attempt_dir=$1 start
  # The node writes its log itself: its rank is not Slurm's number of it when a spare node has taken a rank.
  exec >>"$attempt_dir/node_$rank.log" 2>&1 || return 1
  now_ms
  start=$NOW_MS
  RUN_STATUS=143 DRIFT=""
  # A run that is ended (time-out, failure of another node) still leaves its record and its files.
  trap 'RUN_STATUS=143; record_run "$attempt_dir" "$start"; collect_files "$attempt_dir"; exit 143' TERM
  if [[ $ENGINE != none ]] && ! offer_script; then
    RUN_STATUS=125
    record_run "$attempt_dir" "$start"
    return 125
  fi
  wait_for_go || return 125
  now_ms
  start=$NOW_MS
  if [[ $ENGINE == none ]]; then run_on_host; else run_in_container; fi
  trap '' TERM
  collect_files "$attempt_dir"
  find_drift
  record_run "$attempt_dir" "$start"
  return "$RUN_STATUS"
}
