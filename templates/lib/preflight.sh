# shellcheck shell=bash
# What the nodes say about themselves, compared and judged. Sourced by lib/set_loop.sh and preflight.sh; lib/preflight_node.sh
# is the side of the nodes. Rules: docs/preflight.md.
#
# SC2034, SC2153, SC2154: it shares variables with those files. SC2004: its arrays are associative. SC2015: `A && B || C` is
# meant as it is.
# shellcheck disable=SC2004,SC2015,SC2034,SC2153,SC2154

# CHECKS: rows `check verdict ms text remedy` of each node, a line each. VERDICTS and TEXTS: by node.check. SAME: by node.name.
declare -A CHECKS=() VERDICTS=() TEXTS=() SAME=() CLOCK_OFF=() SLOW=()
CHECK_NODES=() CHECK_NAMES=()

# begin_checks: forget what the nodes of HOLD_NODES said before, and leave a file on shared storage for them to find.
begin_checks() {
  local one key row kept
  for one in "${HOLD_NODES[@]}"; do
    # The bandwidth is measured once.
    kept=""
    while IFS= read -r row; do [[ $row != deep$'\t'* ]] || kept=$row$'\n'; done <<<"${CHECKS[$one]:-}"
    CHECKS[$one]=$kept
    for key in "${!VERDICTS[@]}"; do [[ $key != "$one".* ]] || unset "VERDICTS[$key]"; done
  done
  SAME=() CLOCK_OFF=()
  [[ $PREFLIGHT_RUN == 1 ]] || return 0
  export ORCH_MARKER=$SET_DIR/preflight/.seen-$JOB_ID-${GENERATION:-0} ORCH_MARKER_TEXT=$RANDOM$RANDOM.$JOB_ID.${GENERATION:-0}
  mkdir -p "$SET_DIR/preflight" && printf '%s\n' "$ORCH_MARKER_TEXT" >"$ORCH_MARKER" ||
    log "WARNING: cannot write $ORCH_MARKER; the nodes' view of shared storage is not checked"
}

# check_heard NODE DETAIL: one row of a node.
check_heard() {
  local name verdict ms text remedy
  IFS=$'\x1f' read -r name verdict ms text remedy <<<"$2"
  [[ $name =~ ^[a-z_]{1,40}$ && $verdict == @(pass|warn|fail|skip) ]] || return 0
  [[ $ms =~ ^[0-9]{1,9}$ ]] || ms=0
  [[ " ${CHECK_NODES[*]} " == *" $1 "* ]] || CHECK_NODES+=("$1")
  [[ " ${CHECK_NAMES[*]} " == *" $name "* ]] || CHECK_NAMES+=("$name")
  CHECKS[$1]+="$name"$'\t'"$verdict"$'\t'"$ms"$'\t'"${text//[[:cntrl:]]/ }"$'\t'"${remedy//[[:cntrl:]]/ }"$'\n'
  VERDICTS[$1.$name]=$verdict
  TEXTS[$1.$name]=$text${remedy:+"; $remedy"}
}

# clock_heard NODE MS: the node's clock said MS after its step had started and before now; no delay of a message is taken
# for a difference of the clocks.
clock_heard() {
  # Whatever a node says is no arithmetic of this shell.
  [[ $2 =~ ^[0-9]{1,15}$ ]] || return 0
  now_ms
  CLOCK_OFF[$1]=0
  if (($2 > NOW_MS)); then CLOCK_OFF[$1]=$(($2 - NOW_MS)); elif (($2 < STEP_STARTED_MS)); then CLOCK_OFF[$1]=$(($2 - STEP_STARTED_MS)); fi
}

# again NODE CHECK VERDICT TEXT REMEDY [MS]: the judge's verdict replaces the node's own.
again() {
  local row rows=""
  while IFS= read -r row; do
    [[ -z $row || $row == "$2"$'\t'* ]] || rows+=$row$'\n'
  done <<<"${CHECKS[$1]:-}"
  CHECKS[$1]=$rows
  check_heard "$1" "$2"$'\x1f'"$3"$'\x1f'"${6:-0}"$'\x1f'"$4"$'\x1f'"$5"
}

# fails NODE CHECK TEXT REMEDY: a failure, unless the site says otherwise.
fails() {
  [[ " ${PREFLIGHT_SKIP[*]} " != *" $2 "* ]] || return 0
  if [[ " ${PREFLIGHT_WARN[*]} " == *" $2 "* ]]; then again "$1" "$2" warn "$3" "$4"; else again "$1" "$2" fail "$3" "$4"; fi
}

# judge_checks NODE...: compare the nodes, and put those that are not fit into FAILED. A set leaves the network to
# lib/agreement.sh, which knows what the site allows; what only the check finds (all nodes alike are slower than the fabric) is
# a warning there. preflight.sh sets JUDGE_RDMA.
judge_checks() {
  local one name
  [[ $PREFLIGHT_RUN == 1 ]] || return 0
  judge_markers "$@"
  judge_alone gpu_count "$@"
  judge_alone rdma "$@"
  judge_same data "the data folders differ in names, sizes or times" "$@"
  for one in "$@"; do
    name=${CLOCK_OFF[$one]:-0}
    ((${name#-} <= PREFLIGHT_CLOCK_S * 1000)) ||
      fails "$one" clock "its clock differs by $name ms from the batch host's" "synchronise it (chronyc makestep, or systemctl restart systemd-timesyncd)"
  done
  for one in "$@"; do
    for name in "${CHECK_NAMES[@]}"; do
      [[ $name != rdma || ${JUDGE_RDMA:-0} == 1 ]] || continue
      [[ ${VERDICTS[$one.$name]:-} != fail || $name == @(container|tunables|verdict) ]] ||
        FAILED[$one]=${FAILED[$one]:-"check $name: ${TEXTS[$one.$name]}"}
    done
  done
  tell_warnings "$@"
}

# judge_markers NODE...: what each node wrote on shared storage can be seen here too, within the limit of a check.
judge_markers() {
  local one deadline=$((SECONDS + PREFLIGHT_CHECK_S)) missing text
  [[ -e ${ORCH_MARKER:-} ]] || return 0
  while :; do
    missing=()
    for one in "$@"; do
      [[ ${VERDICTS[$one.log_dir]:-} == pass ]] || continue
      text=""
      { read -r text <"$ORCH_MARKER.$one"; } 2>/dev/null
      [[ $text == "$ORCH_MARKER_TEXT" ]] || missing+=("$one")
    done
    [[ -z $ENDING ]] && ((${#missing[@]} > 0 && SECONDS < deadline)) || break
    # A listing makes NFS look again.
    : "${ORCH_MARKER%/*}"/.seen-*
    pause 0.1
  done
  for one in "${missing[@]}"; do
    fails "$one" log_dir "what it writes to ${LOGDIR:-the log directory} is not seen on the batch host" "mount the same shared storage on both"
  done
  clear_markers
}

clear_markers() {
  [[ -z ${ORCH_MARKER:-} ]] || rm -f "$ORCH_MARKER" "$ORCH_MARKER".*
}

# judge_alone CHECK NODE...: what no node can tell is a warning; where others can, it is the node's failure.
judge_alone() {
  local name=$1 one told=""
  shift
  for one in "$@"; do [[ ${VERDICTS[$one.$name]:-} != @(pass|fail) ]] || told=$one; done
  [[ -n $told ]] || return 0
  for one in "$@"; do
    [[ ${VERDICTS[$one.$name]:-} != warn ]] || fails "$one" "$name" "${TEXTS[$one.$name]} (unlike node $told)" ""
  done
}

# judge_same NAME WORDS NODE...: a node with another value than most has a warning.
judge_same() {
  local name=$1 words=$2 one value best="" most=0
  local -A times=()
  shift 2
  for one in "$@"; do
    value=${SAME[$one.$name]:-}
    [[ -n $value ]] || continue
    times[$value]=$((${times[$value]:-0} + 1))
    ((times[$value] <= most)) || { most=${times[$value]} best=$value; }
  done
  for one in "$@"; do
    value=${SAME[$one.$name]:-}
    [[ -z $value || $value == "$best" || ${VERDICTS[$one.$name]:-} != pass ]] ||
      again "$one" "$name" warn "$words from those of most nodes" "compare the folders, or prepare the data anew"
  done
}

# tell_warnings NODE...: into the job's record, each once with the checks and the nodes that it is about.
tell_warnings() {
  local name one key words=() order=()
  local -A nodes=() names=()
  for name in "${CHECK_NAMES[@]}"; do
    for one in "$@"; do
      # What all networks lack, lib/agreement.sh says once.
      case $name.${VERDICTS[$one.$name]:-} in
        rdma.warn) continue ;;
        *.warn | rdma.fail) ;;
        *) continue ;;
      esac
      key=${TEXTS[$one.$name]}
      [[ -n ${nodes[$key]:-} ]] || order+=("$key")
      [[ " ${names[$key]:-} " == *" $name "* ]] || names[$key]+=" $name"
      [[ " ${nodes[$key]:-} " == *" $one "* ]] || nodes[$key]+=" $one"
    done
  done
  for key in "${order[@]}"; do
    read -r -a words <<<"${nodes[$key]}"
    if ((${#words[@]} == $# && $# > 1)); then words=(all nodes); fi
    warn_once "check${names[$key]}: $key (${words[*]})"
  done
}

# record_checks: the rows of all nodes, for the report and for people.
record_checks() {
  local one row text="node"$'\t'"check"$'\t'"verdict"$'\t'"ms"$'\t'"text"$'\t'"remedy"
  ((${#CHECK_NODES[@]} > 0)) || return 0
  for one in "${CHECK_NODES[@]}"; do
    while IFS= read -r row; do
      [[ -z $row ]] || text+=$'\n'"$one"$'\t'$row
    done <<<"${CHECKS[$one]:-}"
  done
  mkdir -p "$SET_DIR/preflight" && write_atomic "$SET_DIR/preflight/$JOB_ID.tsv" "$text"
}
