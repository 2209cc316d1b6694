# shellcheck shell=bash
# What the nodes say about their networks, compared before the first run. Sourced by lib/set_loop.sh; lib/network.sh is
# the side of the nodes. Rules: docs/network.md.
#
# SC2034, SC2153, SC2154: it shares variables with lib/set_loop.sh and settings.sh.
# shellcheck disable=SC2034,SC2153,SC2154

# network_trouble NODE RANK TEXT: a node found something wrong with its own network.
network_trouble() {
  log "network of node $1: $3"
  NETWORK_TROUBLES+=("node $1 (rank $2): $3")
}

# agree_on_network: status 1, and HOLD_PROBLEM, when the set must not start. RDMA_EXPECTED says whether runs use RDMA.
agree_on_network() {
  local rank have=() lack=() words
  RDMA_EXPECTED=0
  [[ $FABRIC != none ]] && ((NNODES > 1)) || return 0
  for rank in "${!NODES[@]}"; do
    case ${NODE_NETWORK[rank]:-off} in
      off) ;;
      none) lack+=("${NODES[rank]}") ;;
      *) have+=("$rank") ;;
    esac
  done
  if ((${#have[@]} == 0 && ${#lack[@]} > 0)); then
    no_rdma_anywhere || return 1
  elif ((${#lack[@]} > 0)); then
    read -r -a words <<<"${NODE_NETWORK[have[0]]}"
    NETWORK_TROUBLES+=("no RDMA device (/sys/class/infiniband) on ${lack[*]}; ${NODES[have[0]]} has ${#words[@]}")
  elif ((${#have[@]} > 0)); then
    RDMA_EXPECTED=1
    compare_networks
  fi
  judge_network
}

no_rdma_anywhere() {
  local text="no node has an RDMA device (/sys/class/infiniband)"
  if [[ $NETWORK_RDMA == required ]]; then
    HOLD_PROBLEM="$text, and the site says network.rdma: required"
    return 1
  fi
  warn_once "$text although the fabric of $SYSTEM is $FABRIC: RCCL will use TCP sockets, many times slower (network.rdma: off in the site file says that this is meant)"
}

# compare_networks: every node that is not like the most frequent kind of node, and in what.
compare_networks() {
  local rank best=0 reference=0
  local -A alike=()
  for rank in "${!NODES[@]}"; do alike[${NODE_NETWORK[rank]}]=$((${alike[${NODE_NETWORK[rank]}]:-0} + 1)); done
  ((${#alike[@]} > 1)) || return 0
  for rank in "${!NODES[@]}"; do
    if ((${alike[${NODE_NETWORK[rank]}]} > best)); then best=${alike[${NODE_NETWORK[rank]}]} reference=$rank; fi
  done
  for rank in "${!NODES[@]}"; do
    [[ ${NODE_NETWORK[rank]} == "${NODE_NETWORK[reference]}" ]] || differences "$rank" "$reference"
  done
}

differences() { # RANK REFERENCE
  local words others word port rest mine theirs text="" only=() missing=() what values=("" "Gb/s" "link layer" "GID index")
  local -A of_mine=() of_theirs=() ports=()
  read -r -a words <<<"${NODE_NETWORK[$1]}"
  for word in "${words[@]}"; do of_mine[${word%%,*}]=${word#*,}; done
  read -r -a others <<<"${NODE_NETWORK[$2]}"
  for word in "${others[@]}"; do
    port=${word%%,*} rest=${word#*,}
    of_theirs[$port]=$rest
    if [[ -z ${of_mine[$port]:-} ]]; then missing+=("$port"); continue; fi
    IFS=, read -r -a mine <<<"${of_mine[$port]}"
    IFS=, read -r -a theirs <<<"$rest"
    for what in 0 1 2; do
      # A node tells itself when a port has no GID at all.
      [[ ${mine[what]} == "${theirs[what]}" || ${mine[what]} == - || ${theirs[what]} == - ]] && continue
      ports["${values[what + 1]} ${mine[what]} instead of ${theirs[what]}"]+=",$port"
    done
  done
  for word in "${words[@]}"; do [[ -n ${of_theirs[${word%%,*}]:-} ]] || only+=("${word%%,*}"); done
  ((${#missing[@]} == 0)) || text+="; no ${missing[*]}"
  ((${#only[@]} == 0)) || text+="; but ${only[*]}"
  for what in "${!ports[@]}"; do text+="; ${ports[$what]#,}: $what"; done
  [[ -z $text ]] || NETWORK_TROUBLES+=("node ${NODES[$1]} (rank $1) is not like ${NODES[$2]}: ${text#; }")
}

# judge_network: what was found stops the set, or is a warning where the site says so.
judge_network() {
  local shown
  ((${#NETWORK_TROUBLES[@]} > 0)) || return 0
  printf -v shown '%s; ' "${NETWORK_TROUBLES[@]:0:8}"
  shown=${shown%; }
  ((${#NETWORK_TROUBLES[@]} <= 8)) || shown+="; and $((${#NETWORK_TROUBLES[@]} - 8)) more, see nodes/*/network.json"
  if [[ $NETWORK_DIFFERENCES == allow ]]; then
    warn_once "network: $shown (allowed by the site)"
    return 0
  fi
  HOLD_PROBLEM="network: $shown (network.allow_differences: true in the site file starts the set all the same)"
  return 1
}

# warn_once TEXT: into the job's output and its record; containers are renewed now and then, the warning is not.
warn_once() {
  local one
  for one in "${WARNINGS[@]}"; do [[ $one != "$1" ]] || return 0; done
  WARNINGS+=("$1")
  log "WARNING: $1"
}

# find_sockets: set SOCKETS to the line of rank 0's log that shows RCCL on TCP sockets where RDMA was expected, else "".
find_sockets() {
  local file=$ATTEMPT_DIR/node_0.log
  SOCKETS=""
  ((RDMA_EXPECTED == 1)) && [[ -r $file ]] || return 0
  SOCKETS=$(grep -a -m 1 -E 'NET/IB ?: No device found|Using network Socket|via NET/Socket|NET/Socket ?: Using' "$file") || return 0
  # Lines about RDMA in use outweigh the library's list of what it could use.
  if grep -a -q -m 1 -E 'Using network (IB|AINIC|RCCL-ANP)|via NET/IB' "$file"; then
    SOCKETS=""
  else
    SOCKETS="RCCL used TCP sockets although the nodes have RDMA (node_0.log: ${SOCKETS:0:160})"
  fi
}
