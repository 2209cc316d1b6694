# shellcheck shell=bash
# What the deep step found, as one row per node and one line. Sourced by lib/deep.sh.
#
# SC2034, SC2153, SC2154: it shares variables with lib/deep.sh and lib/deep_search.sh.
# shellcheck disable=SC2034,SC2153,SC2154

deep_row() { # NODE VERDICT TEXT [REMEDY]; @ is replaced by the milliseconds
  DEEP_ROWS+=("$1"$'\t'"$2"$'\t@\t'"$3"$'\t'"${4:-}")
}

deep_skip() { # REASON
  local node
  for node in "${DEEP_NODES[@]}"; do deep_row "$node" skip "$1"; done
  DEEP_SUMMARY="bandwidth not measured: $1"
}

# deep_judge: rows, slow nodes and summary from what was measured.
deep_judge() {
  local node fail=fail verdict=pass text remedy="" size
  # A site can make this check a warning.
  [[ " ${PREFLIGHT_WARN[*]:-} " != *" deep "* ]] || fail=warn
  deep_whole_text
  if ((${#DEEP_LOST[@]} == ${#DEEP_NODES[@]})); then
    # It is not a node then, but the image or the engine.
    deep_skip "${DEEP_SKIP:-${DEEP_LOST[${DEEP_NODES[0]}]}}"
    return
  fi
  if [[ -z $DEEP_WAY ]]; then
    text=$DEEP_SKIP verdict=skip
  elif ((DEEP_FIT_NODES == 0)); then
    text="not measured: ${ENDING_REASON:-no time or no nodes left}" verdict=skip
  elif ((DEEP_FIT == 0)); then
    text="the all-reduce over $DEEP_FIT_NODES nodes failed: ${DEEP_WHOLE_WHY:-no reason given}" verdict=$fail
    remedy="look at $(deep_log_place), NCCL_SOCKET_IFNAME and NCCL_IB_HCA"
  elif ((DEEP_FIT < DEEP_FLOOR)); then
    verdict=warn
    remedy="no node is slower than the others: look at the switches between them and at network.tsv of the nodes"
  fi
  for node in "${DEEP_NODES[@]}"; do
    if [[ -n ${DEEP_LOST[$node]:-} ]]; then
      deep_row "$node" "$fail" "${DEEP_LOST[$node]}" "look at $(deep_log_place)"
    elif [[ -n ${DEEP_BAD[$node]:-} ]]; then
      deep_row "$node" "$fail" "${DEEP_BAD[$node]}" "leave $node out; look at its GPUs, network card, cable and switch port"
    else
      deep_row "$node" "$verdict" "$text" "$remedy"
      [[ $verdict != fail ]] || DEEP_SLOW+=("$node")
      continue
    fi
    DEEP_SLOW+=("$node")
  done
  DEEP_SUMMARY=$text
  if ((${#DEEP_SLOW[@]} > 0)); then
    DEEP_SUMMARY+="; slow or silent: ${DEEP_SLOW[*]}"
  fi
  deep_json
}

# deep_whole_text: set `text` of deep_judge: what the fit nodes reach together, and next to what.
deep_whole_text() {
  deep_gbps "$DEEP_FIT"
  size="$((DEEP_SIZE >> 20)) MiB"
  ((DEEP_SIZE >= 1 << 20)) || size="$((DEEP_SIZE >> 10)) KiB"
  text="bus bandwidth $GBPS GB/s over $DEEP_FIT_NODES node$( ((DEEP_FIT_NODES == 1)) || printf s) ($size, $DEEP_WAY)"
  if ((DEEP_REF > 0)); then
    text+=", $((DEEP_FIT * 100 / DEEP_REF)) % of "
    deep_gbps "$DEEP_REF"; text+="$GBPS ($DEEP_REF_FROM)"
  fi
  if ((DEEP_WHOLE > 0 && DEEP_FIT_NODES != ${DEEP_WHOLE_NODES:-0})); then
    deep_gbps "$DEEP_WHOLE"; text+="; $GBPS GB/s over all $DEEP_WHOLE_NODES"
  fi
  text+=${DEEP_HALVES:+"; $DEEP_HALVES"}
}

deep_log_place() {
  printf 'nodes/<node>/deep.log in the set'
}

deep_json() {
  local summary slow
  json_string "$DEEP_SUMMARY"; summary=$JSON
  json_list "${DEEP_SLOW[@]}"; slow=$JSON
  DEEP_JSON="{\"way\": \"$DEEP_WAY\", \"nodes\": $DEEP_FIT_NODES, \"busbw_mbps\": $DEEP_FIT, \"all_mbps\": $DEEP_WHOLE, \
\"reference_mbps\": $DEEP_REF, \"bytes\": $DEEP_SIZE, \"slow\": $slow, \"summary\": $summary}"
}
