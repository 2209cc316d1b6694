# shellcheck shell=bash
# What the nodes say about their networks, compared before the first run. Sourced by lib/set_loop.sh; lib/network.sh is
# the side of the nodes. Rules: docs/network.md.
#
# SC2034, SC2153, SC2154: it shares variables with lib/set_loop.sh and settings.sh. SC2004: DIFFERING is associative.
# shellcheck disable=SC2004,SC2034,SC2153,SC2154

# network_trouble NODE RANK TEXT: a node found something wrong with its own network.
network_trouble() {
  log "network of node $1: $3"
  NODE_TROUBLES[$1]+="${NODE_TROUBLES[$1]:+$'\x1f'}$3"
}

# agree_on_network: status 1, and HOLD_PROBLEM, when the set must not start. RDMA_EXPECTED says whether runs use RDMA.
agree_on_network() {
  local rank have=() lack=() words one word
  RDMA_EXPECTED=0 NETWORK_TROUBLES=()
  [[ $FABRIC != none ]] && ((NNODES > 1)) || return 0
  for rank in "${!NODES[@]}"; do
    one=${NODES[rank]}
    IFS=$'\x1f' read -r -a words <<<"${NODE_TROUBLES[$one]:-}"
    for word in "${words[@]}"; do network_differs "$one" "node $one (rank $rank): $word"; done
    case ${NODE_NETWORK[$one]:-off} in
      off) ;;
      none) lack+=("${NODES[rank]}") ;;
      *) have+=("$rank") ;;
    esac
  done
  if ((${#have[@]} == 0 && ${#lack[@]} > 0)); then
    no_rdma_anywhere || return 1
  elif ((${#lack[@]} > 0)); then
    read -r -a words <<<"${NODE_NETWORK[${NODES[have[0]]}]}"
    for one in "${lack[@]}"; do DIFFERING[$one]="no RDMA device (/sys/class/infiniband), unlike ${NODES[have[0]]}"; done
    NETWORK_TROUBLES+=("no RDMA device (/sys/class/infiniband) on ${lack[*]}; ${NODES[have[0]]} has ${#words[@]}")
  elif ((${#have[@]} > 0)); then
    RDMA_EXPECTED=1
    compare_networks
  fi
  judge_network
}

network_differs() { # NODE TEXT
  NETWORK_TROUBLES+=("$2")
  DIFFERING[$1]+="${DIFFERING[$1]:+; }network: ${2#*: }"
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
  local rank value best=0 reference=0
  local -A alike=()
  for rank in "${!NODES[@]}"; do value=${NODE_NETWORK[${NODES[rank]}]:-off}; alike[$value]=$((${alike[$value]:-0} + 1)); done
  ((${#alike[@]} > 1)) || return 0
  for rank in "${!NODES[@]}"; do
    value=${NODE_NETWORK[${NODES[rank]}]:-off}
    if ((${alike[$value]} > best)); then best=${alike[$value]} reference=$rank; fi
  done
  for rank in "${!NODES[@]}"; do
    [[ ${NODE_NETWORK[${NODES[rank]}]:-off} == "${NODE_NETWORK[${NODES[reference]}]:-off}" ]] || differences "$rank" "$reference"
  done
}

differences() { # RANK REFERENCE
  local words others word port rest mine theirs text="" only=() missing=() what values=("" "Gb/s" "link layer" "GID index")
  local -A of_mine=() of_theirs=() ports=()
  read -r -a words <<<"${NODE_NETWORK[${NODES[$1]}]:-}"
  for word in "${words[@]}"; do of_mine[${word%%,*}]=${word#*,}; done
  read -r -a others <<<"${NODE_NETWORK[${NODES[$2]}]:-}"
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
  [[ -z $text ]] || network_differs "${NODES[$1]}" "node ${NODES[$1]} (rank $1) is not like ${NODES[$2]}: ${text#; }"
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
    DIFFERING=()
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
