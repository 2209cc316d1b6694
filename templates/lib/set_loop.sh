# shellcheck shell=bash
# The loop over the runs of a set. It runs once, on the batch host (or the single node), so that nodes cannot drift apart.
# `run_with_docker.sh` and `run_with_docker_slurm.sh` source this file after settings.sh and one of lib/steps_*.sh.
# What it writes is described in docs/set-folder.md.
#
# SC2034, SC2153, SC2154: it shares variables with those files, and with lib/common.sh.
# SC2015: `A && B || C` is meant as it is: C when either fails.
# shellcheck disable=SC2034,SC2153,SC2154,SC2015

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

# ---- records -------------------------------------------------------------------------------------------------------

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

# ---- the set folder ------------------------------------------------------------------------------------------------

# open_set: find or make the set folder. The controller names it in ORCH_SET_DIR; `sbatch job.sh` by hand makes a new one.
open_set() {
  if [[ -n ${ORCH_SET_DIR:-} ]]; then
    SET_DIR=$ORCH_SET_DIR
    [[ -d $SET_DIR ]] || die "ORCH_SET_DIR=$SET_DIR does not exist on $HOSTNAME; is the log directory on shared storage?"
  else
    local random
    printf -v random '%04x' $((RANDOM & 0xffff))
    SET_DIR="$LOGDIR/$SYSTEM-$WORKLOAD-$(date -u +%Y%m%d-%H%M%S)-$random"
  fi
  mkdir -p "$SET_DIR"/{jobs,runs,results,nodes} || die "cannot write to $SET_DIR (LOGDIR=$LOGDIR)"
  SET_DIR=$(cd "$SET_DIR" && pwd -P) || exit 1
  if [[ ! -e $SET_DIR/set.json ]]; then describe_set; fi
  json_member "$SET_DIR/set.json" root_seed || die "$SET_DIR/set.json has no root_seed; it is damaged"
  ROOT_SEED=$MEMBER
  json_member "$SET_DIR/set.json" nexp || die "$SET_DIR/set.json has no nexp; it is damaged"
  NEXP=$MEMBER
  if [[ ! -d $SET_DIR/bundle ]]; then
    # Nodes run from this copy: what ran stays on record, and an edit of the original cannot reach a running set.
    cp -R "$BUNDLE" "$SET_DIR/.bundle.tmp.$$" && mv "$SET_DIR/.bundle.tmp.$$" "$SET_DIR/bundle" || die "cannot copy the bundle to $SET_DIR"
  fi
  BUNDLE=$SET_DIR/bundle
  export ORCH_SET_DIR=$SET_DIR
}

describe_set() {
  local id=${SET_DIR##*/} sha seed=${ROOT_SEED:-}
  if [[ -z $seed ]]; then
    seed=$(od -An -N4 -tu4 /dev/urandom) || die "cannot read /dev/urandom"
    seed=$((seed % 2145483646 + 1))
  fi
  [[ $seed =~ ^[0-9]+$ ]] && ((seed >= 1 && seed <= 2145483646)) || die "ROOT_SEED=$seed must be a number from 1 to 2145483646"
  sha=$(sha256sum <"$BUNDLE/manifest.json" 2>/dev/null) || sha=""
  now_ms
  json_string "$CONT"
  write_atomic "$SET_DIR/set.json" "{\"schema\": 1, \"set_id\": \"$id\", \"system\": \"$SYSTEM\", \"workload\": \"$WORKLOAD\", \
\"benchmark\": \"$BENCHMARK\", \"round\": \"$ROUND\", \"ruleset\": \"$RULESET\", \"nexp\": $NEXP, \"root_seed\": $seed, \
\"created_ms\": $NOW_MS, \"created_by\": \"job\", \"job_name\": \"orch-$id\", \"scheduler\": \"$SCHEDULER\", \"nodes\": $NNODES, \
\"gpus_per_node\": $GPUS_PER_NODE, \"engine\": \"$ENGINE\", \"image\": $JSON, \"max_attempts\": $MAX_ATTEMPTS, \
\"run_timeout_s\": $RUN_TIMEOUT_S, \"target\": ${TARGET:-null}, \"metric\": \"$METRIC\", \
\"target_is_upper_bound\": $TARGET_IS_UPPER_BOUND, \"bundle_sha256\": \"${sha%% *}\"}" || exit 1
}

# take_set: only one job works on a set at a time. The lock holds its job's id; an empty one was never written to its end.
take_set() {
  local lock=$SET_DIR/loop.lock holder tries
  for ((tries = 1; tries <= 20; tries++)); do
    if (set -o noclobber && printf '%s\n' "$JOB_ID" >"$lock") 2>/dev/null; then
      HAVE_LOCK=1
      return 0
    fi
    holder=""
    { read -r holder <"$lock"; } 2>/dev/null
    if [[ -n $holder && $holder != "$JOB_ID" ]] && job_is_live "$holder"; then
      die "job $holder is already working on $SET_DIR"
    elif [[ -n $holder ]]; then
      log "taking over from job $holder, which is gone"
    elif ((tries < 10)); then
      # Its job may be writing it right now.
      pause 0.1
      continue
    fi
    drop_lock "$holder"
  done
  die "cannot write $lock (disk full, quota, or a read-only file system)"
}

# drop_lock HOLDER: remove the lock of a job that is gone, but not one that another job has made since it was read: whoever
# removes the lock of HOLDER holds a second file of that name meanwhile.
drop_lock() {
  local guard=$SET_DIR/.loop.lock.of-${1//[^A-Za-z0-9_.-]/_} taker="" found=""
  if ! (set -o noclobber && printf '%s\n' "$JOB_ID" >"$guard") 2>/dev/null; then
    { read -r taker <"$guard"; } 2>/dev/null
    [[ -z $taker ]] || job_is_live "$taker" || rm -f "$guard"
    pause 0.1
    return 0
  fi
  { read -r found <"$SET_DIR/loop.lock"; } 2>/dev/null
  [[ $found != "$1" ]] || rm -f "$SET_DIR/loop.lock"
  rm -f "$guard"
}

# settle_left_overs: say how attempts that a killed job left as `running` ended, before going on.
settle_left_overs() {
  local file dir
  for dir in "$SET_DIR"/runs/*/; do settle_run "${dir%/}"; done
  for file in "$SET_DIR"/jobs/*.json; do
    [[ -e $file && $file != */"$JOB_ID.json" ]] || continue
    json_member "$file" ended_ms && [[ $MEMBER == 0 ]] || continue
    now_ms
    write_atomic "$file" "$(sed -e 's/"state": "[a-z]*"/"state": "failed"/; s/"reason": ""/"reason": "the job ended without a word"/' \
      -e "s/\"ended_ms\": 0/\"ended_ms\": $NOW_MS/" "$file")"
  done
}

# settle_run RUN_DIR: its attempts and its own state are final, and that state is its last attempt's. A job can be killed
# between any two steps of write_run.
settle_run() {
  local file left=0 RUN=${1##*/} ATTEMPT ATTEMPT_DIR
  for file in "$1"/attempt_*/; do
    [[ ! -d $file || -e ${file}state.json ]] && continue
    # Made, and killed before its first state: nothing of it had begun.
    rm -f "$file".state.json.tmp.*
    rmdir "$file" 2>/dev/null
    left=1
  done
  for file in "$1"/attempt_*/state.json; do
    json_member "$file" state && [[ $MEMBER == running ]] || continue
    left=1
    settle_attempt "$file"
  done
  [[ ! -e $1/result_$RUN.txt || -e $SET_DIR/results/result_$RUN.txt ]] ||
    ln -sfn "../runs/$RUN/result_$RUN.txt" "$SET_DIR/results/result_$RUN.txt"
  json_member "$1/state.json" state && [[ $MEMBER == running ]] && left=1
  ((left == 1)) || return 0
  last_attempt "$RUN"
  file=$1/attempt_$ATTEMPT/state.json
  if [[ -e $file ]]; then
    write_atomic "$1/state.json" "$(<"$file")" || exit 1
  elif json_member "$1/state.json" state && [[ $MEMBER == running ]]; then
    settle_attempt "$1/state.json"
  fi
  rm -f "$1"/.state.json.tmp.* "$1"/.result.tmp.* "$1"/attempt_*/.state.json.tmp.*
}

# settle_attempt FILE: make its state final. An attempt whose log says success, or whose result is out, was a finished run:
# it is published, not repeated.
settle_attempt() {
  local job state=failed outcome=interrupted reason result=$SET_DIR/runs/$RUN/result_$RUN.txt temp=$SET_DIR/runs/$RUN/.result.tmp.$$
  ATTEMPT_DIR=${1%/*}
  json_member "$1" job_id && job=$MEMBER || job=unknown
  reason="job $job ended without closing this attempt"
  run_stop_status
  if [[ $RUN_STOP == success ]]; then
    state=success outcome=success
    [[ -e $result ]] || { { cat "$ATTEMPT_DIR/cache_clear.log" 2>/dev/null; cat "$ATTEMPT_DIR/node_0.log"; } >"$temp" && sync "$temp" && mv -f "$temp" "$result"; } ||
      die "cannot write $result (disk full, quota, or the folder is gone)"
  elif [[ -e $result ]]; then
    outcome=not_converged
  fi
  now_ms
  write_atomic "$1" "$(sed -e "s/\"state\": \"running\"/\"state\": \"$state\"/; s/\"outcome\": \"\"/\"outcome\": \"$outcome\"/" \
    -e "s/\"reason\": \"\"/\"reason\": \"$reason\"/; s/\"end_ms\": 0/\"end_ms\": $NOW_MS/" "$1")" || exit 1
}

# queue_runs: every run has a state from the start, so that a reader can tell "not yet" from "lost".
queue_runs() {
  local i missing=()
  for ((i = 1; i <= NEXP; i++)); do
    [[ -e $SET_DIR/runs/$i/state.json ]] || missing+=("$i")
  done
  ((${#missing[@]} > 0)) || return 0
  mkdir -p "${missing[@]/#/$SET_DIR/runs/}" || return 1
  for i in "${missing[@]}"; do
    write_atomic "$SET_DIR/runs/$i/state.json" \
      "{\"schema\": 1, \"run\": $i, \"attempt\": 0, \"state\": \"queued\", \"outcome\": \"\", \"reason\": \"\", \"start_ms\": 0, \"end_ms\": 0}" || return 1
  done
}

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
