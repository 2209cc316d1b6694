# shellcheck shell=bash
# The step that holds the nodes: it checks them, keeps a container on each, and tells the loop what happens there. Sourced
# by lib/set_loop.sh and preflight.sh; lib/node_hold.sh is the side of the nodes.
#
# SC2034, SC2153, SC2154: it shares variables with those files. SC2004: its arrays are associative. SC2015: `A && B || C` is
# meant as it is.
# shellcheck disable=SC2004,SC2015,SC2034,SC2153,SC2154

# shellcheck source=lib/deep.sh
. "$BUNDLE/lib/deep.sh"

# What the nodes have told, by the node's name.
declare -A HEARD=() FAILED=() NODE_IMAGES=() NODE_NETWORK=() NODE_FACTS=() NODE_TROUBLES=() DIFFERING=()

# pipe_pair READ_FD WRITE_FD: open both ends of a pipe that has no name.
pipe_pair() {
  open_pipe || return 1
  eval "exec $1</dev/fd/$pipe_fd $2>/dev/fd/$pipe_fd"
  exec {pipe_fd}>&-
}

# start_nodes ACTION...: start `node.sh ACTION` on the nodes of HOLD_NODES and listen to them. Word through the step's
# output needs no polling and no shared storage.
#
# Descriptor 7 is the step's input and the reason why containers end: by release_nodes, which closes it, or because this
# process died. No other child may inherit it. Descriptor 8 is the step's output.
start_nodes() {
  HOLD_PROBLEM="" STEP_ENDED=0 HEARD=() FAILED=() NODE_IMAGES=() NODE_NETWORK=() NODE_FACTS=() DIFFERING=() NODE_TROUBLES=()
  FACT_ROWS="" FACT_DIFFERENCES=()
  pipe_pair 6 7 && pipe_pair 8 9 || return 1
  READ_SO_FAR[8]=""
  now_ms
  STEP_STARTED_MS=$NOW_MS STEP_NODES=("${HOLD_NODES[@]}")
  step_argv keep - bash "$BUNDLE/lib/node.sh" "$@"
  "${ARGV[@]}" <&6 >&9 2>>"$SET_DIR/nodes/hold.log" 6<&- 7>&- 8<&- 9>&- &
  HOLD_PID=$!
  exec 6<&- 9>&-
}

# hold_nodes: have NODES ready, each with its container. Status 1: HOLD_PROBLEM says what is wrong, and FAILED, by node, what
# is wrong with which. Where there are more candidates than ranks, all are checked first, and the loop chooses.
hold_nodes() {
  GENERATION=$((GENERATION + 1))
  HOLD_NODES=("${CANDIDATES[@]}")
  export ORCH_GENERATION=$GENERATION ORCH_CHOOSE=0 ORCH_NODES="${NODES[*]}"
  if ((${#CANDIDATES[@]} > NNODES || (PREFLIGHT_DEEP == 1 && GENERATION == 1))); then
    ORCH_CHOOSE=1 ORCH_NODES=""
  fi
  begin_checks
  start_nodes hold "$GENERATION" || return 1
  if ((ORCH_CHOOSE == 1)); then
    hear waits "${CANDIDATES[@]}" || return 1
    judge_checks "${CANDIDATES[@]}"
    judge_candidates
    [[ -z $HOLD_PROBLEM ]] || return 1
    deep_check || return 1
    choose_first && use_nodes || { tell_failed; return 1; }
  fi
  get_nodes_ready
}

# choose_first: choose_nodes; at the start of a job nobody has a rank yet that a better node could not take.
choose_first() {
  local ranks=("${NODES[@]}")
  ((GENERATION > 1)) || NODES=()
  choose_nodes && return 0
  NODES=("${ranks[@]}")
  return 1
}

# get_nodes_ready: wait for the nodes in use. One that fails now gives its rank to a node that waits, if there is one.
get_nodes_ready() {
  while :; do
    hear ready "${NODES[@]}" || return 1
    if ((ORCH_CHOOSE == 0)); then
      [[ $PREFLIGHT_RUN != 1 ]] || hear checked "${NODES[@]}" || return 1
      judge_checks "${NODES[@]}"
    fi
    if ((${#FAILED[@]} == 0)) && ! agree; then
      ((${#DIFFERING[@]} > 0 && ORCH_CHOOSE == 1)) || return 1
      HOLD_PROBLEM=""
      fail_differing
    fi
    ((${#FAILED[@]} > 0)) || break
    tell_failed
    ((ORCH_CHOOSE == 1)) || return 1
    set_failed_aside
    choose_nodes && use_nodes || return 1
  done
  HOLD_PROBLEM=""
  record_checks
}

# judge_candidates: before anybody is chosen, who is not like the others is no candidate.
judge_candidates() {
  local one ranks=("${NODES[@]}")
  ((NNODES > 1)) || return 0
  NODES=()
  for one in "${CANDIDATES[@]}"; do [[ -n ${FAILED[$one]:-} ]] || NODES+=("$one"); done
  DIFFERING=()
  if ((${#NODES[@]} > 1)) && ! { agree_on_network && agree_on_facts; } && ((${#DIFFERING[@]} > 0)); then
    HOLD_PROBLEM=""
    fail_differing
  fi
  NODES=("${ranks[@]}")
}

# deep_check: the optional bandwidth test of all nodes that may work. Slow ones get a rank last; where others can take all
# ranks they are set aside. A slow run is still a run: with too few others it is a warning.
deep_check() {
  local one row fast=0 fit=()
  ((PREFLIGHT_DEEP == 1 && GENERATION == 1)) && [[ " ${PREFLIGHT_SKIP[*]} " != *" deep "* ]] || return 0
  for one in "${CANDIDATES[@]}"; do [[ -n ${FAILED[$one]:-} ]] || fit+=("$one"); done
  ((${#fit[@]} > 0)) || return 0
  deep_step "${fit[@]}"
  [[ -z $ENDING ]] || return 1
  for row in "${DEEP_ROWS[@]}"; do take_deep_row "$row"; done
  log "deep: $DEEP_SUMMARY"
  for one in "${DEEP_SLOW[@]}"; do SLOW[$one]=1; done
  for one in "${fit[@]}"; do [[ -n ${SLOW[$one]:-} ]] || ((fast += 1)); done
  ((${#SLOW[@]} > 0)) || return 0
  for one in "${!SLOW[@]}"; do
    if ((fast >= NNODES)) && [[ " ${PREFLIGHT_WARN[*]} " != *" deep "* ]]; then
      blame_for "$one" "check deep: ${TEXTS[$one.deep]}"
    else
      warn_once "check deep: ${TEXTS[$one.deep]} ($one)"
    fi
  done
}

take_deep_row() { # ROW
  local node verdict ms text remedy
  IFS=$'\t' read -r node verdict ms text remedy <<<"$1"
  again "$node" deep "$verdict" "$text" "$remedy" "$ms"
}

agree() {
  DIFFERING=()
  agree_on_image && agree_on_network && agree_on_facts
}

# fail_differing: where nodes can be replaced, one that is not like the others is.
fail_differing() {
  local name
  for name in "${!DIFFERING[@]}"; do FAILED[$name]=${FAILED[$name]:-${DIFFERING[$name]}}; done
}

# hear WORD NODE...: listen until each of the nodes has said WORD or has failed. Whoever is silent for too long has failed. Status
# 1: the set is ending, or the step has ended (HOLD_PROBLEM; FAILED has those that its last words name).
hear() {
  local want=$1 one status silent given=0 deadline=$((SECONDS + CONTAINER_START_S + 30))
  shift
  while :; do
    [[ -z $ENDING ]] || return 1
    silent=""
    for one in "$@"; do
      [[ ${HEARD[$one]:-} == *" $want "* || -n ${FAILED[$one]:-} ]] || silent+=" $one"
    done
    [[ -n $silent ]] || return 0
    read_line 8 0.5
    status=$?
    if ((status == 0)); then
      take_word
      # What is there already is taken before anybody is counted again.
      while read -r -t 0 -u 8; do
        # The end counts as something to read, too.
        read_line 8 0.5 || break
        take_word
      done
      given=0
    elif ((SECONDS >= deadline)); then
      for one in $silent; do FAILED[$one]="no word within $((CONTAINER_START_S + 30)) s"; done
    elif ! alive "$HOLD_PID"; then
      # One more look: the last words may have come between the read and the check.
      ((given += 1))
      ((given < 2)) || { step_has_ended "$silent"; return 1; }
    elif ((status == 1)); then
      # The output is closed, and its step has not ended yet.
      pause 0.05
    fi
  done
}

# step_has_ended NODES: nobody is blamed for the end of the step itself but those whose names are in its last words.
step_has_ended() {
  local one words pattern
  words=$(tail -n 5 "$SET_DIR/nodes/hold.log" 2>/dev/null | tr '\n\t' '  ')
  STEP_ENDED=1
  for one in $1; do
    pattern="on node $one([^A-Za-z0-9_-]|\$)|(^|[^A-Za-z0-9_.-])$one: task "
    [[ ! $words =~ $pattern ]] || FAILED[$one]="its step ended: $words"
  done
  tell_failed
  HOLD_PROBLEM=${HOLD_PROBLEM:-"the step ended without a word from$1: $words"}
}

# take_word: one line of a node.
take_word() {
  local word rank node detail
  IFS=$'\t' read -r word rank node detail <<<"$LINE"
  case $word in
    ready) NODE_IMAGES[$node]=$detail ;;
    failed | gone) FAILED[$node]=${FAILED[$node]:-$detail} ;;
    left) [[ -n ${ASIDE[$node]:-} ]] || FAILED[$node]=${FAILED[$node]:-"it let go before it was ready"} ;;
    network) NODE_NETWORK[$node]=$detail ;;
    facts | facts+) facts_heard "$node" "$word" "$detail" ;;
    trouble) network_trouble "$node" "$rank" "$detail" ;;
    note) log "node $node: $detail" ;;
    check) check_heard "$node" "$detail" ;;
    same) SAME[$node.${detail%%=*}]=${detail#*=} ;;
    checked) clock_heard "$node" "$detail" ;;
  esac
  [[ $word == "" || -z $node ]] || HEARD[$node]+=" $word "
}

# tell_failed: HOLD_PROBLEM from FAILED, in rank order; what several nodes say alike is said once.
tell_failed() {
  local one reason
  local -A nodes=() count=()
  [[ -z $HOLD_PROBLEM ]] || return 0
  for one in "${HOLD_NODES[@]}"; do
    reason=${FAILED[$one]:-}
    [[ -n $reason ]] || continue
    nodes[$reason]+="${nodes[$reason]:+, }node $one"
    ! place_of "$one" || nodes[$reason]+=" (rank $PLACE)"
    count[$reason]=$((${count[$reason]:-0} + 1))
  done
  for one in "${HOLD_NODES[@]}"; do
    reason=${FAILED[$one]:-}
    [[ -n $reason && ${count[$reason]} != 0 ]] || continue
    HOLD_PROBLEM+="${HOLD_PROBLEM:+; }${nodes[$reason]}: $reason"
    count[$reason]=0
  done
}

# place_of NODE: set PLACE to its rank. Status 1: it has none.
place_of() {
  for PLACE in "${!NODES[@]}"; do [[ ${NODES[PLACE]} != "$1" ]] || return 0; done
  return 1
}

# One tag can name different images on different nodes; a set with two images is no set. Those unlike the set's image, or unlike most,
# are in DIFFERING.
agree_on_image() {
  local one image best=$IMAGE_DIGEST most=0
  local -A times=()
  for one in "${NODES[@]}"; do
    image=${NODE_IMAGES[$one]:-none}
    times[$image]=$((${times[$image]:-0} + 1))
    [[ -n $IMAGE_DIGEST ]] || ((times[$image] <= most)) || { most=${times[$image]} best=$image; }
  done
  for one in "${NODES[@]}"; do
    image=${NODE_IMAGES[$one]:-none}
    [[ $image != "$best" ]] || continue
    DIFFERING[$one]="$CONT is $image there and $best elsewhere"
    HOLD_PROBLEM=${HOLD_PROBLEM:-"$CONT is $image on $one and $best elsewhere"}
  done
  ((${#DIFFERING[@]} == 0)) || return 1
  IMAGE_DIGEST=$best
}

# release_nodes: end the containers and put the tunables back; by force when that takes too long. Each node says `left`; a
# dead one does not, and is not waited for.
release_nodes() {
  [[ -n $HOLD_PID ]] || return 0
  exec 7>&-
  local one word node left=0 expected=0 deadline=$((SECONDS + 20))
  for one in "${HOLD_NODES[@]}"; do
    [[ -n ${DEAD[$one]:-} ]] || ((expected += 1))
    [[ ${HEARD[$one]:-} != *" left "* ]] || ((left += 1))
  done
  # The nodes' last words must be read, or they could block on a full pipe.
  while alive "$HOLD_PID" && ((SECONDS < deadline)); do
    read_line 8 0.1
    case $? in
      1) pause 0.02; continue ;;
      2) continue ;;
    esac
    IFS=$'\t' read -r word _ node _ <<<"$LINE"
    [[ $word != left ]] || ((left += 1))
    ((left < expected)) || ((deadline <= SECONDS + 2)) || deadline=$((SECONDS + 2))
  done
  if alive "$HOLD_PID"; then
    ((left >= expected)) || log "the nodes did not let go within 20 s; ending their step by force"
    kill -TERM "$HOLD_PID" 2>/dev/null
    pause 2
    kill -KILL "$HOLD_PID" 2>/dev/null
  fi
  wait "$HOLD_PID" 2>/dev/null
  exec 8<&-
  HOLD_PID=""
}
