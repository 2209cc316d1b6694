# shellcheck shell=bash
# Which node makes the all-reduce slow. Sourced by lib/deep.sh, whose deep_round measures. docs/deep.md has the rules.
#
# A ring is as fast as its slowest member, so one good pair clears both of its nodes. Pairs are disjoint and measured at the same
# time: with any number of nodes it takes two rounds of pairs (up to six nodes: all pairs there are), and one in which each node
# that was in no good pair meets one that was.
#
# SC2034, SC2153, SC2154: it shares variables with lib/deep.sh.
# shellcheck disable=SC2034,SC2153,SC2154

deep_search_begin() {
  DEEP_WAY="" DEEP_SKIP="" DEEP_WHOLE=0 DEEP_WHOLE_WHY="" DEEP_FIT=0 DEEP_FIT_NODES=0 DEEP_LEVEL=0 DEEP_SIZE=0 DEEP_HALVES=""
  declare -gA DEEP_BAD=() DEEP_GOOD=() DEEP_MET=() DEEP_FAILED=()
}

# deep_choose_way: set DEEP_WAY to what all nodes can, or DEEP_SKIP to why there is nothing to measure.
deep_choose_way() {
  local node gpus="" some=0
  DEEP_WAY=tcp DEEP_MARGIN=50
  for node in "${DEEP_NODES[@]}"; do
    [[ -z ${DEEP_LOST[$node]:-} ]] || continue
    ((some += 1))
    # Ranks are counted in GPUs, so all nodes need the same number of them.
    [[ -z $gpus || $gpus == "${DEEP_GPUS[$node]}" ]] && gpus=${DEEP_GPUS[$node]} || gpus=0
  done
  if ((some == 0)); then
    node=${DEEP_NODES[0]}
    DEEP_WAY="" DEEP_SKIP="no node can measure ($node: ${DEEP_LOST[$node]})"
  elif ((gpus > 0 && (some > 1 || gpus > 1))); then
    DEEP_WAY=torch DEEP_MARGIN=85
  elif ((some == 1)); then
    DEEP_WAY="" DEEP_SKIP="one node, and torch sees no two GPUs in it: nothing to measure"
  fi
  deep_reference
}

# deep_reference: set DEEP_REF to what the whole should reach in MB/s, 0 where that is not known, and DEEP_FLOOR to the least that is
# enough. All NICs of a node together carry its share of every ring, so that is the most the bus bandwidth can be.
deep_reference() {
  local given=${PREFLIGHT_DEEP_GBPS:-} thousandths
  DEEP_REF=0 DEEP_REF_FROM=""
  if [[ $given =~ ^([0-9]+)(\.([0-9]+))?$ ]]; then
    thousandths=${BASH_REMATCH[3]}000
    DEEP_REF=$((10#${BASH_REMATCH[1]} * 1000 + 10#${thousandths:0:3}))
    DEEP_REF_FROM="deep_gbps of the site"
  elif [[ $DEEP_WAY == torch && ${NETWORK_RDMA:-} != off ]] && ((${#DEEP_NODES[@]} > 1)); then
    DEEP_REF=$((${FABRIC_GBPS:-0} * ${FABRIC_DEVICES:-0} * 1000 / 8))
    DEEP_REF_FROM="${FABRIC_DEVICES:-0} NICs of ${FABRIC_GBPS:-0} Gb/s"
  fi
  DEEP_FLOOR=$((DEEP_REF * 60 / 100))
}

# deep_search: measure the whole, name the slow ones, and measure the whole without them.
deep_search() {
  local index slow
  deep_live
  if [[ $DEEP_WAY == torch ]]; then deep_alone || return 0; fi
  ((${#DEEP_LIVE[@]} > 1)) || { deep_whole_is_one; return 0; }
  deep_round all "${DEEP_LIVE[*]}" || return 0
  DEEP_WHOLE=${DEEP_MBPS[0]} DEEP_WHOLE_WHY=${DEEP_WHY[0]} DEEP_SIZE=${DEEP_SIZES[0]} DEEP_WHOLE_NODES=${#DEEP_LIVE[@]}
  DEEP_FIT=$DEEP_WHOLE DEEP_FIT_NODES=${#DEEP_LIVE[@]}
  # Two nodes meet faster than all of them, and a node that hangs costs every round its limit.
  ((DEEP_WHOLE > 0)) || DEEP_LIMIT_S=$(((DEEP_LIMIT_S + 1) / 2))
  deep_live
  ((${#DEEP_LIVE[@]} > 2)) || return 0
  deep_pairs && deep_confirm || return 0
  slow=$((${#DEEP_BAD[@]} + ${#DEEP_LOST[@]}))
  deep_live
  # A whole that failed though no node is to blame gets another chance.
  if ((slow > 0 || DEEP_WHOLE == 0)) && ((${#DEEP_LIVE[@]} > 1)); then
    deep_round rest "${DEEP_LIVE[*]}" || return 0
    DEEP_FIT=${DEEP_MBPS[0]} DEEP_FIT_NODES=${#DEEP_LIVE[@]} DEEP_SIZE=${DEEP_SIZES[0]} DEEP_WHOLE_WHY=${DEEP_WHY[0]}
  fi
  if ((DEEP_FIT < DEEP_FLOOR || DEEP_FIT == 0)) && ((${#DEEP_LIVE[@]} > 3)); then
    # No node is slow, but together they are: is it the way from one half to the other?
    index=$((${#DEEP_LIVE[@]} / 2))
    deep_round halves "${DEEP_LIVE[*]:0:index}" "${DEEP_LIVE[*]:index}" || return 0
    deep_gbps "${DEEP_MBPS[0]}"; DEEP_HALVES="the halves alone reach $GBPS"
    deep_gbps "${DEEP_MBPS[1]}"; DEEP_HALVES+=" and $GBPS GB/s"
  fi
}

# deep_live: set DEEP_LIVE to the nodes that are neither lost nor named, in the order of the ranks.
deep_live() {
  local node
  DEEP_LIVE=()
  for node in "${DEEP_NODES[@]}"; do
    [[ -n ${DEEP_LOST[$node]:-}${DEEP_BAD[$node]:-} ]] || DEEP_LIVE+=("$node")
  done
}

# deep_alone: every node by itself, with rccl-tests where all images have it: GPUs and the links between them. Who is slow has
# another try.
deep_alone() {
  local node way=rccl-tests index suspects=("${DEEP_LIVE[@]}") again
  local -A reason=()
  ((${DEEP_GPUS[${DEEP_LIVE[0]}]} > 1)) || return 0
  for node in "${DEEP_LIVE[@]}"; do [[ ${DEEP_TESTS[$node]} == 1 ]] || way=torch; done
  DEEP_ALONE=0 DEEP_ALONE_WAY=$way
  for again in 1 2; do
    ((${#suspects[@]} > 0)) || break
    DEEP_ROUND_WAY=$way deep_round "alone$again" "${suspects[@]}" || return 1
    deep_upper "${DEEP_MBPS[@]}"
    ((UPPER <= DEEP_ALONE)) || DEEP_ALONE=$UPPER DEEP_SIZE=${DEEP_SIZES[0]}
    suspects=()
    for index in "${!DEEP_GROUPS[@]}"; do
      node=${DEEP_GROUPS[index]}
      [[ -z ${DEEP_LOST[$node]:-} ]] || continue
      if [[ -n ${DEEP_WHY[index]} ]]; then
        reason[$node]="its own GPUs: ${DEEP_WHY[index]}"
      elif ((DEEP_MBPS[index] * 100 < DEEP_ALONE * DEEP_MARGIN)); then
        deep_gbps "${DEEP_MBPS[index]}"; reason[$node]="slow by itself: $GBPS GB/s between its GPUs"
        deep_gbps "$DEEP_ALONE"; reason[$node]+=", other nodes $GBPS"
      else
        continue
      fi
      suspects+=("$node")
    done
  done
  for node in "${suspects[@]}"; do DEEP_BAD[$node]=${reason[$node]}; done
  deep_live
}

# One node: what it reached by itself is the whole.
deep_whole_is_one() {
  ((${#DEEP_LIVE[@]} == 1 && ${#DEEP_NODES[@]} == 1)) || return 0
  DEEP_WHOLE=${DEEP_ALONE:-0} DEEP_FIT=${DEEP_ALONE:-0} DEEP_WHOLE_NODES=1 DEEP_FIT_NODES=1 DEEP_WAY=${DEEP_ALONE_WAY:-$DEEP_WAY}
}

# deep_upper MBPS...: set UPPER to the upper quartile, which slow pairs do not pull down as long as a quarter of them is good.
deep_upper() {
  local i j value sorted=()
  for value in "$@"; do
    for ((i = 0; i < ${#sorted[@]} && sorted[i] < value; i++)); do :; done
    sorted=("${sorted[@]:0:i}" "$value" "${sorted[@]:i}")
  done
  UPPER=${sorted[(3 * ($# - 1) + 2) / 4]:-0}
}

# deep_matching ROUND: set PAIRS to disjoint pairs of DEEP_LIVE. Rounds differ in all their pairs.
deep_matching() {
  local n=${#DEEP_LIVE[@]} i a b half
  PAIRS=()
  if ((n <= 6)); then
    # All pairs, as a tournament plays them; with an odd number one node rests.
    ((n += n % 2))
    for ((i = 0; i < n / 2; i++)); do
      a=$(((($1 - i) % (n - 1) + n - 1) % (n - 1))) b=$((($1 + i) % (n - 1)))
      ((i > 0)) || b=$((n - 1))
      ((a >= ${#DEEP_LIVE[@]} || b >= ${#DEEP_LIVE[@]})) || PAIRS+=("${DEEP_LIVE[a]} ${DEEP_LIVE[b]}")
    done
  elif (($1 == 0)); then
    # Neighbours, which mostly share a switch.
    for ((i = 0; i + 1 < n; i += 2)); do PAIRS+=("${DEEP_LIVE[i]} ${DEEP_LIVE[i + 1]}"); done
  else
    # One half with the other. With an odd number, not the node that rested before.
    half=$((n / 2))
    for ((i = 0; i < half; i++)); do PAIRS+=("${DEEP_LIVE[n % 2 + i]} ${DEEP_LIVE[n % 2 + i + half]}"); done
  fi
}

# deep_pairs: set DEEP_LEVEL to what good pairs reach, and DEEP_GOOD for every node of one.
deep_pairs() {
  local round rounds index pair node results=()
  deep_live
  rounds=$((${#DEEP_LIVE[@]} > 6 ? 2 : ${#DEEP_LIVE[@]} - 1 + ${#DEEP_LIVE[@]} % 2))
  for ((round = 0; round < rounds; round++)); do
    deep_live
    ((${#DEEP_LIVE[@]} > 1)) || break
    deep_matching "$round"
    deep_round "pairs$((round + 1))" "${PAIRS[@]}" || return 1
    deep_upper "${DEEP_MBPS[@]}"
    ((UPPER <= DEEP_LEVEL)) || DEEP_LEVEL=$UPPER
    for index in "${!PAIRS[@]}"; do
      results+=("${DEEP_MBPS[index]} ${PAIRS[index]}")
      deep_met "$index"
    done
  done
  for pair in "${results[@]}"; do
    if ((${pair%% *} > 0 && ${pair%% *} * 100 >= DEEP_LEVEL * DEEP_MARGIN)); then
      for node in ${pair#* }; do DEEP_GOOD[$node]=1; done
    fi
  done
}

# deep_met INDEX: remember the best that each node of a pair reached, and its last failure.
deep_met() {
  local node
  for node in ${DEEP_GROUPS[$1]}; do
    [[ -z ${DEEP_WHY[$1]} ]] || DEEP_FAILED[$node]=${DEEP_WHY[$1]}
    ((DEEP_MBPS[$1] <= ${DEEP_MET[$node]:-0})) || DEEP_MET[$node]=${DEEP_MBPS[$1]}
  done
}

# deep_confirm: each node that was in no good pair meets a good one; with a pair of good ones beside them, so that a moment in
# which everything is slower names nobody.
deep_confirm() {
  local node index level good suspects=() groups
  deep_live
  for node in "${DEEP_LIVE[@]}"; do [[ -n ${DEEP_GOOD[$node]:-} ]] || suspects+=("$node"); done
  while ((${#suspects[@]} > 0)); do
    deep_live
    good=()
    for node in "${DEEP_LIVE[@]}"; do [[ -z ${DEEP_GOOD[$node]:-} ]] || good+=("$node"); done
    # Without a good pair nobody can be told from the others.
    ((${#good[@]} > 0)) || return 0
    groups=()
    for index in "${!good[@]}"; do
      ((index < ${#suspects[@]})) && groups+=("${good[index]} ${suspects[index]}")
    done
    index=${#groups[@]}
    ((${#good[@]} < index + 2)) || groups+=("${good[index]} ${good[index + 1]}")
    suspects=("${suspects[@]:index}")
    deep_round confirm "${groups[@]}" || return 1
    level=$DEEP_LEVEL
    ((${#groups[@]} == index || DEEP_MBPS[index] == 0 || DEEP_MBPS[index] > level)) || level=${DEEP_MBPS[index]}
    while ((index-- > 0)); do
      node=${groups[index]#* }
      deep_met "$index"
      ((DEEP_MBPS[index] == 0 || DEEP_MBPS[index] * 100 < level * DEEP_MARGIN)) || continue
      deep_name "$node" "$level"
    done
  done
}

deep_name() { # NODE LEVEL: it is slow, with whomever
  if [[ -z ${DEEP_MET[$1]:-} ]]; then
    DEEP_BAD[$1]="no all-reduce with it succeeds: ${DEEP_FAILED[$1]:-no reason given}"
    return
  fi
  deep_gbps "${DEEP_MET[$1]}"; DEEP_BAD[$1]="slow: pairs with it reach $GBPS GB/s at best"
  deep_gbps "$2"; DEEP_BAD[$1]+=", others $GBPS"
}

# deep_gbps MBPS: set GBPS to it in GB/s.
deep_gbps() {
  if (($1 >= 10000)); then
    printf -v GBPS '%d.%d' $((($1 + 50) / 1000)) $((($1 + 50) % 1000 / 100))
  else
    printf -v GBPS '%d.%03d' $(($1 / 1000)) $(($1 % 1000))
  fi
}
