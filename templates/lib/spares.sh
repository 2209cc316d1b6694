# shellcheck shell=bash
# Which nodes of the allocation work on the set: N of N + K. Sourced by lib/set_loop.sh. Rules: docs/preflight.md.
#
#   ASIDE    failed a check, or could not be made ready: out for this job
#   LOST     Slurm has lost it: out as long as Slurm says so
#   BLAMED   a run died there: out as long as another node can take its rank
#
# Ranks stay with their nodes; a spare takes the rank of the node that it replaces.
#
# SC2034, SC2153, SC2154: it shares variables with lib/set_loop.sh. SC2015: `A && B || C` is meant as it is.
# shellcheck disable=SC2034,SC2153,SC2154,SC2015

# BLAMED_AT: the order in which nodes were blamed; who was blamed longest ago is asked again first.
declare -A ASIDE=() LOST=() BLAMED=() BLAMED_AT=() DEAD=() FREE_ATTEMPT=()
ASIDE_RECORDS=() BLAMES=0

# set_aside NODE REASON: on record, with the run that was going on (0 before the first).
set_aside() {
  local text
  log "node $1 is set aside: $2"
  json_string "$1"; text=$JSON
  json_string "$2"
  now_ms
  ASIDE_RECORDS+=("{\"node\": $text, \"reason\": $JSON, \"run\": $RUN, \"attempt\": $ATTEMPT, \"time_ms\": $NOW_MS}")
}

set_failed_aside() {
  local one
  for one in "${HOLD_NODES[@]}"; do
    [[ -n ${FAILED[$one]:-} && -z ${ASIDE[$one]:-} ]] || continue
    ASIDE[$one]=${FAILED[$one]}
    set_aside "$one" "${FAILED[$one]}"
    check_heard "$one" "$(failed_row "${FAILED[$one]}")"
  done
  FAILED=()
  write_job "$JOB_STATE"
}

# failed_row REASON: what became of a node after its checks, as one more row of them.
failed_row() {
  local name=container
  [[ $1 != tunables:* ]] || name=tunables
  [[ $1 != check\ * ]] || name=verdict
  printf '%s\x1ffail\x1f0\x1f%s\x1f' "$name" "$1"
}

# find_lost: what Slurm has lost by now.
find_lost() {
  local name state
  LOST=()
  while read -r name state; do
    [[ -z $name ]] || LOST[$name]="Slurm has lost it ($state)"
  done < <(lost_nodes "${ALLOCATED[@]}")
}

# find_candidates: set CANDIDATES to the nodes that may work: those with a rank first. Status 1: HOLD_PROBLEM says why there
# are too few.
find_candidates() {
  local one all=("${NODES[@]}")
  for one in "${ALLOCATED[@]}"; do place_of "$one" || all+=("$one"); done
  find_lost
  CANDIDATES=()
  for one in "${all[@]}"; do [[ -n ${ASIDE[$one]:-}${LOST[$one]:-}${BLAMED[$one]:-} ]] || CANDIDATES+=("$one"); done
  if ((${#CANDIDATES[@]} < NNODES)); then
    # Before the set has to stop, those are asked again on which a run died.
    for one in "${all[@]}"; do
      [[ -n ${BLAMED[$one]:-} && -z ${ASIDE[$one]:-}${LOST[$one]:-} ]] && CANDIDATES+=("$one")
    done
  fi
  DEAD=()
  ((${#CANDIDATES[@]} >= NNODES)) || { tell_too_few; return 1; }
  # With just enough nodes there is nothing to choose: who has no rank takes the next free one.
  ((${#CANDIDATES[@]} > NNODES)) || { FAILED=(); choose_nodes; }
}

tell_too_few() {
  local one
  HOLD_PROBLEM="${#CANDIDATES[@]} of ${#ALLOCATED[@]} nodes are fit, $NNODES are needed"
  for one in "${ALLOCATED[@]}"; do
    [[ -z ${ASIDE[$one]:-}${LOST[$one]:-} ]] || HOLD_PROBLEM+="; node $one: ${LOST[$one]:-${ASIDE[$one]}}"
  done
}

# choose_nodes: give every rank a candidate that has not failed. Who has one keeps it, but for blamed nodes when others can do. The
# queue for free ranks: nodes of good repute, then those that are slow in the deep step, then the blamed ones. Status 1: too few.
choose_nodes() {
  local one rank queue=() slow=() late=() vacant=() old=("${NODES[@]}")
  for ((rank = 0; rank < NNODES; rank++)); do
    one=${NODES[rank]:-}
    if [[ -z $one ]] || ! is_candidate "$one" || [[ -n ${BLAMED[$one]:-} ]]; then vacant+=("$rank"); fi
  done
  for one in "${CANDIDATES[@]}"; do
    is_candidate "$one" || continue
    if [[ -n ${BLAMED[$one]:-} ]]; then
      late+=("${BLAMED_AT[$one]} $one")
    elif ! place_of "$one"; then
      if [[ -n ${SLOW[$one]:-} ]]; then slow+=("$one"); else queue+=("$one"); fi
    fi
  done
  queue+=("${slow[@]}")
  if ((${#late[@]} > 0)); then
    while read -r _ one; do queue+=("$one"); done < <(printf '%s\n' "${late[@]}" | sort -n)
  fi
  ((${#queue[@]} >= ${#vacant[@]})) || return 1
  take_ranks
  WAITING=("${queue[@]:${#vacant[@]}}")
  name_master
}

# take_ranks: the first of `queue` get the ranks in `vacant`; a node that had one of these keeps it.
take_ranks() {
  local one rank taken=("${queue[@]:0:${#vacant[@]}}") free=() open=()
  for rank in "${vacant[@]}"; do
    one=${old[rank]:-}
    if [[ -n $one && " ${taken[*]} " == *" $one "* ]]; then NODES[rank]=$one; else open+=("$rank"); NODES[rank]=""; fi
  done
  for one in "${taken[@]}"; do place_of "$one" || free+=("$one"); done
  for rank in "${open[@]}"; do
    NODES[rank]=${free[0]}
    [[ -z ${old[rank]:-} ]] || log "node ${free[0]} takes rank $rank of node ${old[rank]}"
    free=("${free[@]:1}")
  done
}

# waiting_nodes: set WAITING_NOW to the nodes that wait, without those that only do so as a last resort.
waiting_nodes() {
  local one
  WAITING_NOW=()
  for one in "${WAITING[@]}"; do [[ -n ${BLAMED[$one]:-} ]] || WAITING_NOW+=("$one"); done
}

name_master() {
  MASTER_ADDR=$(master_address)
  # The first node has no way to itself; it looks at the way to the second.
  ORCH_PEER=$MASTER_ADDR
  [[ $SCHEDULER == local || ${#NODES[@]} == 1 ]] || ORCH_PEER=${NODES[1]}
  export MASTER_ADDR ORCH_PEER
}

is_candidate() { # NODE
  local one
  [[ -z ${FAILED[$1]:-}${ASIDE[$1]:-} ]] || return 1
  for one in "${CANDIDATES[@]}"; do [[ $one != "$1" ]] || return 0; done
  return 1
}

# use_nodes: tell all nodes of the step who works. Whoever holds a container and is not named lets go.
use_nodes() {
  printf 'use %s\n' "${NODES[*]}" >&7
  ((${#WAITING[@]} == 0)) || log "nodes ${NODES[*]}; waiting: ${WAITING[*]}"
  write_job "$JOB_STATE"
}

# place_nodes: have NNODES nodes ready, and set aside who is not fit as long as others can take their ranks. Status 1:
# HOLD_PROBLEM.
place_nodes() {
  local before again=1
  while :; do
    find_candidates || { NO_SPARE=1; return 1; }
    before=${#ASIDE_RECORDS[@]}
    hold_nodes && return 0
    record_checks
    # Without any node too many, the set says what is wrong and ends.
    [[ -z $ENDING ]] && ((${#ALLOCATED[@]} > NNODES)) || return 1
    set_failed_aside
    if ((${#ASIDE_RECORDS[@]} == before)); then
      # The step ended, and nothing tells whose fault it was: once more before the set has to stop.
      ((STEP_ENDED == 1 && again == 1)) || return 1
      again=0
      log "$HOLD_PROBLEM; once more"
    fi
    release_nodes
  done
}

# blame: after an attempt that died, whose fault it was, if that can be told: BLAMED, and DEAD for those that no longer answer.
# In this order: the gate named a node; a container ended under its run; a node went silent; a few exited by themselves
# while the others were ended (143). When most of them failed by themselves it is the program, and nobody is blamed.
blame() { # PROBLEM OF THE GATE, or ""
  local rank one code broken=() silent=() own=() few=$((NNODES / 2))
  for rank in "${!NODES[@]}"; do
    code=${EXIT_CODES[rank]:--1}
    case $code in
      0 | 143) ;;
      -1) silent+=("${NODES[rank]}") ;;
      125) broken+=("${NODES[rank]}") own+=("${NODES[rank]}") ;;
      *) own+=("${NODES[rank]}") ;;
    esac
  done
  FREED=0
  ((few > 0)) || few=1
  if [[ -n $1 ]]; then
    for one in "${!GATE_FAILED[@]}"; do blame_node "$one" "${GATE_FAILED[$one]}"; done
    return 0
  fi
  ((TIMED_OUT == 0)) || return 0
  if ((${#broken[@]} > 0 && ${#broken[@]} <= few)); then
    for one in "${broken[@]}"; do blame_node "$one" "its container ended in run $RUN"; done
  elif ((${#silent[@]} > 0 && ${#silent[@]} <= few && ${#silent[@]} < NNODES)); then
    for one in "${silent[@]}"; do
      DEAD[$one]=1
      blame_node "$one" "it went silent in run $RUN"
    done
  elif ((${#own[@]} > 0 && ${#own[@]} <= few && ${#own[@]} < NNODES)); then
    for one in "${own[@]}"; do blame_node "$one" "run $RUN died there (its exit code was not 0)"; done
  fi
}

blame_node() { # NODE REASON
  local one fresh=0
  ((${#ALLOCATED[@]} > NNODES)) || return 0
  blame_for "$1" "$2"
  # Each spare node can save a run one attempt; a program that fails everywhere must come to an end.
  for one in "${ALLOCATED[@]}"; do
    [[ -n ${ASIDE[$one]:-}${LOST[$one]:-}${BLAMED[$one]:-} ]] || place_of "$one" || fresh=1
  done
  if ((fresh == 1 && ${#FREE_ATTEMPT[@]} < ${#ALLOCATED[@]} - NNODES)) && [[ -z ${FREE_ATTEMPT[$1]:-} ]]; then
    FREE_ATTEMPT[$1]=1
    FREED=1
  fi
}

blame_for() { # NODE REASON
  BLAMES=$((BLAMES + 1))
  [[ -n ${BLAMED[$1]:-} ]] || set_aside "$1" "$2"
  BLAMED[$1]=$2 BLAMED_AT[$1]=$BLAMES
}
