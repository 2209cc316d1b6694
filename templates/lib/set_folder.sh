# shellcheck shell=bash
# The folder of a set: making it, taking it for one job, and settling what a killed job left. Sourced by lib/set_loop.sh.
# What it writes is described in docs/set-folder.md.
#
# SC2034, SC2153, SC2154: it shares variables with lib/set_loop.sh, settings.sh and lib/common.sh.
# SC2015: `A && B || C` is meant as it is: C when either fails.
# shellcheck disable=SC2034,SC2153,SC2154,SC2015

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
