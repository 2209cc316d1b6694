# shellcheck shell=bash
# preflight.sh: the words of its command line, one step over the nodes, and what it prints. Sourced by preflight.sh.
#
# SC2034, SC2153, SC2154: it shares variables with settings.sh and the other files of lib/. SC2015: `A && B || C` is meant.
# shellcheck disable=SC2034,SC2153,SC2154,SC2015

preflight_die() { # STATUS TEXT
  log "preflight.sh: $2"
  exit "$1"
}

preflight_main() {
  local table="" exclude="" json=0 judge_only=0 given=() one
  RUN=0 ATTEMPT=0 GENERATION=1 ENDING="" HOLD_PROBLEM="" HOLD_PID="" WARNINGS=() WAITING=() NODES=() UNTESTED_WORDS=()
  IMAGE_DIGEST="" SET_MADE=0 JUDGE_RDMA=1 PREFLIGHT_RUN=1 PREFLIGHT_DEEP=0
  while (($# > 0)); do
    case $1 in
      --deep) PREFLIGHT_DEEP=1 ;;
      --json) json=1 ;;
      --judge) judge_only=1 ;;
      --nodes | --tsv | --exclude-file)
        (($# > 1)) && [[ -n $2 ]] || preflight_die 2 "$1 needs a value"
        [[ $1 == --nodes || $2 == */* ]] || set -- "$1" "./$2" "${@:3}"
        case $1 in
          --nodes) IFS=, read -r -a given <<<"$2" ;;
          --tsv) table=$2 ;;
          *) exclude=$2 ;;
        esac
        shift ;;
      -h | --help) sed -n '2,/^set /{/^# \{0,1\}/!d;s/^# \{0,1\}//p}' "$BUNDLE/preflight.sh"; exit 0 ;;
      *) preflight_die 2 "unknown word '$1' (--deep, --nodes A,B, --tsv FILE, --exclude-file FILE, --judge, --json)" ;;
    esac
    shift
  done
  ((judge_only == 0 || ${#given[@]} > 0)) || preflight_die 2 "--judge needs --nodes"
  ((judge_only == 0 || PREFLIGHT_DEEP == 0)) || preflight_die 2 "--deep starts steps of its own and cannot go with --judge"
  [[ $PREFLIGHT_CHECK_S =~ ^[1-9][0-9]{0,2}$ ]] || preflight_die 2 "PREFLIGHT_CHECK_S=$PREFLIGHT_CHECK_S must be a number from 1 to 999"
  trap 'ENDING=cancelled' TERM INT HUP
  trap : PIPE
  trap preflight_end EXIT
  if ((judge_only == 1)); then
    preflight_folder
    hear_lines "${given[@]}"
  else
    ask_nodes "${given[@]}"
  fi
  [[ -z $ENDING ]] || preflight_die 3 "ended by a signal"
  finish_judgement
  [[ -z $ENDING ]] || preflight_die 3 "ended by a signal"
  [[ -z $table ]] || write_table "$table" || preflight_die 3 "cannot write $table"
  summarize
  [[ -z $exclude ]] || write_atomic "$exclude" "$(printf '%s\n' "${EXCLUDED[@]}")" || exit 3
  if ((json == 1)); then print_json; else print_table; fi
  ((FIT == 1))
}

# A folder on shared storage for the nodes' words; a set's own when there is one.
preflight_folder() {
  SET_DIR=${ORCH_SET_DIR:-}
  if [[ -z $SET_DIR ]]; then
    SET_DIR=$LOGDIR/.preflight-${HOSTNAME%%.*}-$$-$RANDOM
    SET_MADE=1
  fi
  mkdir -p "$SET_DIR/nodes" "$SET_DIR/preflight" 2>/dev/null ||
    preflight_die 3 "cannot write to $SET_DIR; is the log directory there, and on shared storage?"
  export ORCH_SET_DIR=$SET_DIR
}

preflight_end() {
  trap '' TERM INT HUP
  [[ -z $HOLD_PID ]] || release_nodes
  ((SET_MADE == 0)) || rm -rf "$SET_DIR"
  trap - EXIT
}

ask_nodes() { # NODE...
  local one found=()
  steps_begin
  # One host is one node, whatever the system has.
  [[ $SCHEDULER != local || $ENGINE == none ]] || ALLOCATED=("${HOSTNAME%%.*}")
  if (($# > 0)); then
    for one in "$@"; do
      [[ " ${ALLOCATED[*]} " == *" $one "* ]] && found+=("$one") || UNTESTED_WORDS+=("$one"$'\t'"not in this allocation")
    done
    ALLOCATED=("${found[@]}") GIVEN=("$@")
  else
    GIVEN=("${ALLOCATED[@]}")
  fi
  preflight_folder
  export ORCH_JOB_ID=$JOB_ID ORCH_CHOOSE=0 ORCH_NODES="" ORCH_GENERATION=1
  find_lost
  for one in "${ALLOCATED[@]}"; do
    if [[ -n ${LOST[$one]:-} ]]; then UNTESTED_WORDS+=("$one"$'\t'"${LOST[$one]}"); else NODES+=("$one"); fi
  done
  ((${#NODES[@]} > 0)) || return 0
  name_master
  # The nodes compare their networks with what the runs will be told, and the deep step has the variables of a run.
  NEXP=${NEXP:-$RUNS_REQUIRED}
  [[ -e $SET_DIR/environment.sh ]] || (evaluate_config) || preflight_die 3 "$CONFIG_FILE cannot be evaluated"
  HOLD_NODES=("${NODES[@]}") CANDIDATES=("${NODES[@]}")
  # No container is started here: the checks' own limit is enough, and some time for the step.
  CONTAINER_START_S=$((2 * PREFLIGHT_CHECK_S))
  begin_checks
  start_nodes check || preflight_die 3 "cannot start a step"
  hear waits "${NODES[@]}"
}

# hear_lines NODE...: what the nodes said comes from somebody else.
hear_lines() {
  local status
  GIVEN=("$@") NODES=("$@") CANDIDATES=("$@") HOLD_NODES=("$@")
  now_ms
  STEP_STARTED_MS=$NOW_MS JOB_ID=${ORCH_JOB_ID:-preflight}
  while [[ -z $ENDING ]]; do
    read_line 0 1
    status=$?
    ((status != 1)) || break
    ((status != 0)) || take_word
  done
}

# finish_judgement: rows that are about a node among the others.
finish_judgement() {
  local one answered=()
  for one in "${NODES[@]}"; do
    if [[ ${HEARD[$one]:-} == *" checked "* ]]; then
      answered+=("$one")
    else
      UNTESTED_WORDS+=("$one"$'\t'"${FAILED[$one]:-no answer}")
      [[ -z ${FAILED[$one]:-} ]] || unset "FAILED[$one]"
    fi
  done
  CANDIDATES=("${answered[@]}") NODES=("${answered[@]}")
  ((${#answered[@]} > 0)) || return 0
  judge_checks "${answered[@]}"
  local -A before=()
  for one in "${!FAILED[@]}"; do before[$one]=1; done
  NNODES=${#answered[@]}
  judge_candidates
  for one in "${!FAILED[@]}"; do [[ -n ${before[$one]:-} ]] || fails "$one" versions "${FAILED[$one]}" "make it like the others, or leave it out"; done
  DEEP_TSV=${table:+$table.deep}
  # No rank is given here: whoever is slow has failed, and the row says so.
  NNODES=0
  deep_check
}

# Warnings of all nodes are in the table; a second time on standard error they would only be in the way.
tell_warnings() {
  :
}

warn_once() {
  WARNINGS+=("$1")
}

blame_for() {
  :
}

write_table() { # FILE
  local one row text="node"$'\t'"check"$'\t'"verdict"$'\t'"ms"$'\t'"text"$'\t'"remedy"
  for one in "${GIVEN[@]}"; do
    while IFS= read -r row; do [[ -z $row ]] || text+=$'\n'"$one"$'\t'$row; done <<<"${CHECKS[$one]:-}"
  done
  for row in "${UNTESTED_WORDS[@]}"; do
    text+=$'\n'"${row%%$'\t'*}"$'\t'"answer"$'\t'"untested"$'\t'0$'\t'"${row#*$'\t'}"$'\t'
  done
  [[ -z $HOLD_PROBLEM ]] || text+=$'\n'"*"$'\t'"agreement"$'\t'"fail"$'\t'0$'\t'"${HOLD_PROBLEM//[[:cntrl:]]/ }"$'\t'
  for row in "${WARNINGS[@]}"; do text+=$'\n'"*"$'\t'"agreement"$'\t'"warn"$'\t'0$'\t'"${row//[[:cntrl:]]/ }"$'\t'; done
  write_atomic "$1" "$text"
}

# add_reason, join_reasons: what several checks say alike is said once, failures first.
add_reason() { # VERDICT CHECK TEXT REMEDY
  local key=$1.$3
  [[ -n ${REASONS[$key]:-} ]] || REASON_ORDER+=("$key")
  REASONS[$key]+="${REASONS[$key]:+, }$2"
  REMEDIES[$key]=$4
}

join_reasons() { # NODE
  local verdict key
  WHY_OF[$1]=""
  for verdict in fail warn; do
    for key in "${REASON_ORDER[@]}"; do
      [[ $key == "$verdict".* ]] || continue
      WHY_OF[$1]+="${WHY_OF[$1]:+; }${REASONS[$key]}: ${key#*.}${REMEDIES[$key]:+ (${REMEDIES[$key]})}"
    done
  done
  REASONS=() REASON_ORDER=() REMEDIES=()
}

# summarize: VERDICT_OF and WHY_OF by node, EXCLUDED, TESTED, FIT.
summarize() {
  local one row name verdict text remedy untested
  declare -gA VERDICT_OF=() WHY_OF=() REASONS=() REMEDIES=()
  REASON_ORDER=()
  EXCLUDED=() TESTED=0 FIT=1
  for one in "${GIVEN[@]}"; do
    VERDICT_OF[$one]=untested WHY_OF[$one]="no answer"
    for untested in "${UNTESTED_WORDS[@]}"; do [[ ${untested%%$'\t'*} != "$one" ]] || WHY_OF[$one]=${untested#*$'\t'}; done
    if [[ ${HEARD[$one]:-} == *" checked "* ]]; then
      VERDICT_OF[$one]=pass WHY_OF[$one]=""
      ((TESTED += 1))
      while IFS=$'\t' read -r name verdict _ text remedy; do
        [[ $verdict == @(warn|fail) ]] || continue
        [[ ${VERDICT_OF[$one]} == fail ]] || VERDICT_OF[$one]=$verdict
        add_reason "$verdict" "$name" "$text" "$remedy"
      done <<<"${CHECKS[$one]:-}"
      join_reasons "$one"
    fi
    [[ ${VERDICT_OF[$one]} == @(pass|warn) ]] || { FIT=0; EXCLUDED+=("$one"); }
  done
  [[ -z $HOLD_PROBLEM ]] || FIT=0
  ((${#GIVEN[@]} > 0)) || FIT=0
}

print_table() {
  local one width=4 joined
  for one in "${GIVEN[@]}"; do ((${#one} <= width)) || width=${#one}; done
  printf "%-${width}s  %-8s  %s\n" NODE VERDICT REASON
  for one in "${GIVEN[@]}"; do printf "%-${width}s  %-8s  %s\n" "$one" "${VERDICT_OF[$one]}" "${WHY_OF[$one]}"; done
  for one in "${WARNINGS[@]}"; do printf 'warning: %s\n' "$one"; done
  [[ -z $HOLD_PROBLEM ]] || printf 'all nodes: %s\n' "$HOLD_PROBLEM"
  [[ -z ${DEEP_SUMMARY:-} ]] || printf '%s\n' "$DEEP_SUMMARY"
  printf 'tested %s of %s nodes\n' "$TESTED" "${#GIVEN[@]}"
  printf -v joined '%s,' "${EXCLUDED[@]}"
  ((${#EXCLUDED[@]} == 0)) || printf 'exclude: %s\n' "${joined%,}"
}

print_json() {
  local one name verdict ms text remedy rows nodes="" overall=pass
  for one in "${GIVEN[@]}"; do
    rows=""
    while IFS=$'\t' read -r name verdict ms text remedy; do
      [[ -n $name ]] || continue
      json_string "$text"; text=$JSON
      json_string "$remedy"
      rows+="${rows:+, }{\"check\": \"$name\", \"verdict\": \"$verdict\", \"ms\": ${ms:-0}, \"text\": $text, \"remedy\": $JSON}"
    done <<<"${CHECKS[$one]:-}"
    json_string "${WHY_OF[$one]}"; text=$JSON
    json_string "$one"
    nodes+="${nodes:+, }{\"node\": $JSON, \"verdict\": \"${VERDICT_OF[$one]}\", \"reason\": $text, \"checks\": [$rows]}"
    [[ ${VERDICT_OF[$one]} != warn ]] || overall=warn
  done
  ((FIT == 1)) || overall=fail
  json_list "${EXCLUDED[@]}"
  printf '{"schema": 1, "given": %s, "tested": %s, "verdict": "%s", "exclude": %s, "nodes": [%s]}\n' \
    "${#GIVEN[@]}" "$TESTED" "$overall" "$JSON" "$nodes"
}
