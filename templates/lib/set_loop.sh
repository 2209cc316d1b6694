# shellcheck shell=bash
# The loop over the runs of a set. It runs once, on the batch host (or the single node), so that nodes cannot drift apart.
# `run_with_docker.sh` and `run_with_docker_slurm.sh` source this file after settings.sh and one of lib/steps_*.sh.
# What it writes is described in docs/set-folder.md.
#
# SC2034, SC2153, SC2154: it shares variables with those files, and with lib/common.sh.
# SC2015: `A && B || C` is meant as it is: C when either fails.
# shellcheck disable=SC2034,SC2153,SC2154,SC2015

# shellcheck source=lib/records.sh
. "$BUNDLE/lib/records.sh"
# shellcheck source=lib/set_folder.sh
. "$BUNDLE/lib/set_folder.sh"
# shellcheck source=lib/environment.sh
. "$BUNDLE/lib/environment.sh"
# shellcheck source=lib/agreement.sh
. "$BUNDLE/lib/agreement.sh"
# shellcheck source=lib/before_run.sh
. "$BUNDLE/lib/before_run.sh"
# shellcheck source=lib/preflight.sh
. "$BUNDLE/lib/preflight.sh"
# shellcheck source=lib/hold.sh
. "$BUNDLE/lib/hold.sh"
# shellcheck source=lib/spares.sh
. "$BUNDLE/lib/spares.sh"

# ---- steps ---------------------------------------------------------------------------------------------------------

# await PID: wait until it ends, also across trapped signals; the exit status is its own. Cut short when the set is ending.
await() {
  local status
  while :; do
    wait "$1"
    status=$?
    ((status > 128)) && alive "$1" && [[ -z $ENDING ]] && continue
    return "$status"
  done
}

# start_step OUTPUT LIMIT_S ACTION...: start `node.sh ACTION` on every node; the first failure ends it everywhere.
start_step() {
  STEP_NODES=("${NODES[@]}")
  export ORCH_NODES="${NODES[*]}"
  step_argv kill "$1" bash "$BUNDLE/lib/node.sh" "${@:3}"
  # `timeout` forwards TERM and KILLs what does not listen. Its words go to the attempt; those of a trap of this shell,
  # which runs while it waits, to the job's output.
  timeout --kill-after=20 "$2" "${ARGV[@]}" </dev/null 2>>"$ATTEMPT_DIR/step.log" 7>&- 8<&- &
  STEP_PID=$!
  # A signal before there was a pid.
  [[ -z $ENDING ]] || kill -TERM "$STEP_PID" 2>/dev/null
}

# await_step: wait for it; its exit status. A set that is ending does not wait for the run.
await_step() {
  local status
  await "$STEP_PID"
  status=$?
  [[ -z $ENDING ]] || end_step
  STEP_PID=""
  return "$status"
}

end_step() {
  [[ -n $STEP_PID ]] || return 0
  kill -TERM "$STEP_PID" 2>/dev/null
  wait "$STEP_PID" 2>/dev/null
  STEP_PID=""
}

# ---- one run -------------------------------------------------------------------------------------------------------

# run_stop_status: set RUN_STOP to the status of the last run_stop record of rank 0's log, "" when there is none.
run_stop_status() {
  local line pattern='"status": *"([a-z_]+)"'
  RUN_STOP=""
  # Above 128: a signal to the whole job ended `grep` too.
  until line=$(grep -a ':::MLLOG .*"key": *"run_stop"' "$ATTEMPT_DIR/node_0.log" 2>/dev/null); do
    (($? > 128)) || break
  done
  line=${line##*$'\n'}
  [[ $line =~ $pattern ]] && RUN_STOP=${BASH_REMATCH[1]}
}

# try_run: one attempt. Status 0: the run is done (a success, or a result that missed the target); 1: it died and may be
# tried again; 2: the allocation cannot go on (STOP_REASON says why).
try_run() {
  local status codes reason
  ATTEMPT=$((ATTEMPT + 1))
  ATTEMPT_DIR=$SET_DIR/runs/$RUN/attempt_$ATTEMPT
  # Distinct for every run and attempt by construction, the same on all nodes; two sets differ by their root.
  SEED=$((ROOT_SEED + 1000 * (RUN - 1) + ATTEMPT))
  # Differs between the jobs of a node, between runs and between attempts; below the range the kernel gives out itself.
  MASTER_PORT=$((10000 + (PORT_BASE + 37 * RUN + 7 * ATTEMPT) % 22000))
  now_ms
  RUN_STARTED_MS=$NOW_MS
  STOP_REASON="cannot write to $SET_DIR (disk full, quota, or the folder is gone)"
  mkdir "$ATTEMPT_DIR" && write_run running "" "" && write_job running || return 2
  STOP_REASON=""
  NEED_RENEWAL=0
  export SEED MASTER_PORT ORCH_RUN=$RUN ORCH_ATTEMPT=$ATTEMPT
  # The step starts while the nodes get ready, and waits for the word.
  start_step "$ATTEMPT_DIR/step.log" "$RUN_TIMEOUT_S" run "$ATTEMPT_DIR"
  FREED=0 TIMED_OUT=0
  prepare_nodes
  status=$?
  if ((status != 0)) && [[ -z $ENDING ]]; then
    end_step
    write_run failed infrastructure "$NODE_PROBLEM"
    STOP_REASON=$NODE_PROBLEM
    EXIT_CODES=()
    blame "$NODE_PROBLEM"
    # What one node cannot do, another one may.
    ((status != 2 || FREED == 0)) || status=1
    return "$status"
  fi
  [[ -n $ENDING ]] || printf 'go %s.%s\n' "$RUN" "$ATTEMPT" >&7
  await_step
  status=$?
  exit_codes "$ATTEMPT_DIR"; codes=$JSON
  run_stop_status
  find_sockets
  if [[ $RUN_STOP == success ]]; then
    # The only proof of a good run. What went wrong after it is told, and the containers are not trusted any more.
    reason=${BAD_NODES:+"after run_stop: $BAD_NODES"}
    reason+=${SOCKETS:+"${reason:+; }$SOCKETS"}
    ((status == 0)) || NEED_RENEWAL=1
    close_run success success "$reason" "$codes" || return 2
  elif [[ -n $ENDING ]]; then
    write_run failed interrupted "$ENDING_REASON" "$codes"
    return 1
  elif [[ -n $RUN_STOP ]]; then
    ((status == 0)) || NEED_RENEWAL=1
    close_run failed not_converged "run_stop says $RUN_STOP${BAD_NODES:+; $BAD_NODES}${SOCKETS:+; $SOCKETS}" "$codes" || return 2
  else
    NEED_RENEWAL=1
    reason="no run_stop"
    now_ms
    ((NOW_MS - RUN_STARTED_MS < RUN_TIMEOUT_S * 1000)) || { TIMED_OUT=1; reason="no run_stop within $RUN_TIMEOUT_S s (run time-out)"; }
    write_run failed infrastructure "$reason${BAD_NODES:+; $BAD_NODES}" "$codes" || return 2
    log "run $RUN attempt $ATTEMPT failed: $reason${BAD_NODES:+; $BAD_NODES}"
    blame ""
    return 1
  fi
}

# close_run STATE OUTCOME REASON EXIT_CODES: the run is done; publish its result.
close_run() {
  write_run "$@" "result_$RUN.txt" || return 1
  # Twice: the first one may be ended by a signal to the whole job.
  ln -sfn "../runs/$RUN/result_$RUN.txt" "$SET_DIR/results/result_$RUN.txt" ||
    ln -sfn "../runs/$RUN/result_$RUN.txt" "$SET_DIR/results/result_$RUN.txt"
}

# ---- the set -------------------------------------------------------------------------------------------------------

# renew_nodes: new containers on all nodes; what a dead run left behind in the old ones is gone with them. A node on which
# the run died gives its rank to one that waits.
renew_nodes() {
  release_nodes
  [[ -z $ENDING ]] || return 1
  place_nodes && return 0
  [[ -n $ENDING ]] || STOP_REASON="the containers could not be renewed: $HOLD_PROBLEM"
  return 1
}

run_set() {
  local tried
  for ((RUN = 1; RUN <= NEXP; RUN++)); do
    run_is_done "$RUN" && continue
    last_attempt "$RUN"
    # The limit counts this job's own attempts: a resumed set tries again, and the earlier attempts stay on record.
    for ((tried = 0; tried < MAX_ATTEMPTS; tried++)); do
      # Not before there is something to run: a set that is done needs no nodes any more.
      if ((NEED_RENEWAL == 1)); then
        renew_nodes || return 1
        NEED_RENEWAL=0
      fi
      try_run
      case $? in
        0) break ;;
        2) return 1 ;;
      esac
      [[ -z $ENDING ]] || return 1
      NEED_RENEWAL=1
      # An attempt that a bad node cost is not the run's, where a fresh one takes its rank.
      ((FREED == 0)) || ((tried -= 1))
    done
    [[ -z $ENDING ]] || return 1
  done
}

# last_attempt RUN: set ATTEMPT to the highest attempt on record.
last_attempt() {
  local dir
  ATTEMPT=0
  for dir in "$SET_DIR/runs/$1"/attempt_*; do
    [[ ${dir##*_} =~ ^[0-9]+$ ]] && ((${dir##*_} > ATTEMPT)) && ATTEMPT=${dir##*_}
  done
}

on_signal() { # STATE REASON
  [[ -z $ENDING ]] || return 0
  ENDING=$1
  ENDING_REASON=$2
  log "$2: closing the set; \`orchestrator resume ${SET_DIR##*/}\` goes on"
  # States first: what follows may not get the time it needs.
  [[ -z ${JOB_STATE:-} ]] || write_job "$1" "$2"
  # Not only where the step is waited for: this may have come just before `wait`, which would last as long as the run.
  [[ -z $STEP_PID ]] || kill -TERM "$STEP_PID" 2>/dev/null
}

finish() {
  local state=$1 reason=$2
  trap '' TERM INT HUP USR1
  release_nodes
  clear_markers
  write_job "$state" "$reason"
  ((HAVE_LOCK == 0)) || rm -f "$SET_DIR/loop.lock"
  trap - EXIT
  log "set ${SET_DIR##*/}: $state${reason:+ ($reason)}"
}

# need_number NAME LIMIT: NAME can come from the caller's environment. LIMIT is all nines.
need_number() {
  local value=${!1}
  [[ $value =~ ^[1-9][0-9]*$ ]] && ((${#value} <= ${#2})) || die "$1=$value must be a number from 1 to $2"
}

main() {
  local i missing
  RUN=0 ATTEMPT=0 GENERATION=0 IMAGE_DIGEST="" JOB_STATE="" ENDING="" ENDING_REASON="" STOP_REASON="" HOLD_PROBLEM=""
  HOLD_PID="" STEP_PID="" HAVE_LOCK=0 NEED_RENEWAL=0 NETWORK_TROUBLES=() FACT_ROWS="" WARNINGS=() RDMA_EXPECTED=0
  WAITING=() NO_SPARE=0 FREED=0 TIMED_OUT=0 EXIT_CODES=()
  NEXP=${NEXP:-$RUNS_REQUIRED}
  need_number NEXP 9999
  need_number MAX_ATTEMPTS 999
  need_number RUN_TIMEOUT_S 9999999
  need_number CONTAINER_START_S 99999
  need_number PREFLIGHT_CHECK_S 999
  steps_begin
  ((${#ALLOCATED[@]} >= NNODES)) || die "$SYSTEM needs $NNODES nodes, the allocation has ${#ALLOCATED[@]} (--nodes of job.sh)"
  NODES=("${ALLOCATED[@]:0:NNODES}")
  PORT_BASE=${JOB_ID//[^0-9]/}
  ((${#PORT_BASE} <= 6)) || PORT_BASE=${PORT_BASE: -6}
  PORT_BASE=$((10#$PORT_BASE * 101))
  now_ms
  JOB_STARTED_MS=$NOW_MS
  open_set
  take_set
  # The nodes' step can end before the loop knows; writing to it must fail, not kill the loop.
  trap : PIPE
  trap 'on_signal cancelled "ended by a signal (scancel or cancel)"' TERM INT HUP
  trap 'on_signal time_limit "the time limit of the job is near"' USR1
  trap 'finish failed "${LAST_ERROR:-the loop ended unexpectedly, see the job output}"' EXIT
  settle_left_overs
  queue_runs && evaluate_config && write_job starting || exit 1
  name_master
  export ORCH_JOB_ID=$JOB_ID
  log "set $SET_DIR: $NEXP runs on $NNODES node(s)$( ((${#ALLOCATED[@]} == NNODES)) || printf ', %s to spare' $((${#ALLOCATED[@]} - NNODES)))"
  local state=complete
  if ! place_nodes; then
    state=${ENDING:-failed} STOP_REASON=${ENDING_REASON:-$HOLD_PROBLEM}
    # A set that has results already, or whose spare nodes are used up, is only paused: another allocation may do better.
    [[ -n $ENDING ]] || { ((NO_SPARE == 0 || ${#ALLOCATED[@]} == NNODES)) && ! ls "$SET_DIR"/runs/*/result_*.txt >/dev/null 2>&1; } || state=paused
  elif ! run_set; then
    state=${ENDING:-paused} STOP_REASON=${ENDING_REASON:-$STOP_REASON}
  fi
  ((RUN <= NEXP)) || RUN=$NEXP
  finish "$state" "$STOP_REASON"
  [[ $state == complete ]] || exit 1
  missing=0
  for ((i = 1; i <= NEXP; i++)); do run_is_done "$i" || ((missing += 1)); done
  ((missing == 0)) || log "$missing of $NEXP runs have no result; \`orchestrator resume ${SET_DIR##*/}\` tries them again"
  ((missing == 0))
}
