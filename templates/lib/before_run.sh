# shellcheck shell=bash
# The loop's side of what happens before a run: the nodes are the same experiment, their tunables hold, their caches are
# dropped, and the proof of it stays with the attempt. Sourced by lib/set_loop.sh; lib/node_tuning.sh is the side of the
# nodes. Rules and files: docs/tuning.md.
#
# SC2034, SC2154: it shares variables with lib/set_loop.sh. SC2004: DIFFERING is associative.
# shellcheck disable=SC2004,SC2034,SC2154

declare -A DIFFERENT_NODES=() GATE_FAILED=()
FACTS_OF=""

# facts_heard NODE facts|facts+ TEXT: field=value words of a node, in one or more pieces.
facts_heard() {
  FACT_ROWS=""
  if [[ $2 == facts ]]; then NODE_FACTS[$1]=$3; else NODE_FACTS[$1]+=$'\x1f'$3; fi
}

# compare_facts: set FACT_ROWS to lines of `node, field, value`, where node * is all of them, and FACT_DIFFERENCES to words.
compare_facts() {
  local rank field value text words one same=1 order=()
  local -A values=() known=()
  [[ -z $FACT_ROWS || $FACTS_OF != "${NODES[*]}" ]] || return 0
  FACTS_OF=${NODES[*]} FACT_ROWS="" FACT_DIFFERENCES=() DIFFERENT_NODES=()
  for rank in "${!NODES[@]}"; do [[ ${NODE_FACTS[${NODES[rank]}]:-} == "${NODE_FACTS[${NODES[0]}]:-}" ]] || same=0; done
  if ((same == 1)); then
    IFS=$'\x1f' read -r -a words <<<"${NODE_FACTS[${NODES[0]}]:-}"
    for one in "${words[@]}"; do FACT_ROWS+="*"$'\t'"${one%%=*}"$'\t'"${one#*=}"$'\n'; done
    return 0
  fi
  for rank in "${!NODES[@]}"; do
    IFS=$'\x1f' read -r -a words <<<"${NODE_FACTS[${NODES[rank]}]:-}"
    for one in "${words[@]}"; do
      field=${one%%=*}
      [[ -n ${known[$field]:-} ]] || { known[$field]=1; order+=("$field"); }
      values[$rank.$field]=${one#*=}
    done
  done
  for field in "${order[@]}"; do compare_field "$field"; done
}

# compare_field FIELD: the most frequent value is the set's; a node with another one is named. `values` is the caller's.
compare_field() {
  local rank value best="" most=0
  local -A times=()
  for rank in "${!NODES[@]}"; do
    value=${values[$rank.$1]:--}
    # A node without the image is a matter of the check of images.
    [[ $1.$value != image.- ]] || continue
    times[$value]=$((${times[$value]:-0} + 1))
    ((times[$value] <= most)) || { most=${times[$value]} best=$value; }
  done
  FACT_ROWS+="*"$'\t'"$1"$'\t'"$best"$'\n'
  for rank in "${!NODES[@]}"; do
    value=${values[$rank.$1]:--}
    [[ $value != "$best" && $1.$value != image.- ]] || continue
    FACT_ROWS+="${NODES[rank]}"$'\t'"$1"$'\t'"$value"$'\n'
    FACT_DIFFERENCES+=("node ${NODES[rank]} (rank $rank): $1 is $value, elsewhere $best")
    DIFFERENT_NODES[${NODES[rank]}]+="${DIFFERENT_NODES[${NODES[rank]}]:+; }$1 is $value, elsewhere $best"
  done
}

# agree_on_facts: one set is one experiment. Status 1, and HOLD_PROBLEM, when the nodes differ and the site does not allow it.
agree_on_facts() {
  local shown one
  compare_facts
  ((${#FACT_DIFFERENCES[@]} > 0)) || return 0
  printf -v shown '%s; ' "${FACT_DIFFERENCES[@]:0:8}"
  shown=${shown%; }
  ((${#FACT_DIFFERENCES[@]} <= 8)) || shown+="; and $((${#FACT_DIFFERENCES[@]} - 8)) more"
  if [[ $TUNING_DIFFERENCES == allow ]]; then
    warn_once "the nodes differ: $shown (allowed by the site)"
    return 0
  fi
  for one in "${!DIFFERENT_NODES[@]}"; do DIFFERING[$one]+="${DIFFERING[$one]:+; }${DIFFERENT_NODES[$one]}"; done
  HOLD_PROBLEM="the nodes differ: $shown (tuning.allow_differences: true in the site file starts the set all the same)"
  return 1
}

# prepare_nodes: the gate before a run. Every node verifies its tunables, tells what changed, and drops its caches; only
# when all have done so is the event logged, once. Status 1: a node is not fit, a new hold may help; 2: a
# node cannot do it at all. NODE_PROBLEM says which.
prepare_nodes() {
  local id=$RUN.$ATTEMPT seen=0 status=0 deadline=$((SECONDS + 300)) word rank node detail rest
  NODE_PROBLEM="" NODE_PROOF=() GATE_FAILED=()
  printf 'prepare %s %s\n' "$id" "$CLEAR_CACHES" >&7
  while ((seen < NNODES)); do
    [[ -z $ENDING ]] || return 1
    if ! read_line 8 1; then
      if ! alive "$HOLD_PID" || ((SECONDS >= deadline)); then
        NODE_PROBLEM="${NODE_PROBLEM:+$NODE_PROBLEM; }not every node answered the request to get ready for the run"
        for rank in "${!NODES[@]}"; do
          [[ -n ${NODE_PROOF[rank]:-}${GATE_FAILED[${NODES[rank]}]:-} ]] || GATE_FAILED[${NODES[rank]}]="it did not answer before run $RUN"
        done
        return 1
      fi
      continue
    fi
    IFS=$'\t' read -r word rank node detail <<<"$LINE"
    rest=${detail#* }
    case $word in
      facts | facts+) facts_heard "$node" "$word" "$detail"; continue ;;
      gone) NODE_PROBLEM="node $node (rank $rank): $detail" GATE_FAILED[$node]=$detail; return 1 ;;
    esac
    [[ ${detail%% *} == "$id" ]] || continue
    case $word in
      prepared) NODE_PROOF[rank]=$rest seen=$((seen + 1)) ;;
      refused)
        NODE_PROBLEM+="${NODE_PROBLEM:+; }node $node (rank $rank): $rest"
        GATE_FAILED[$node]="before run $RUN: $rest"
        ((status != 0)) || status=1
        seen=$((seen + 1)) ;;
      kept)
        NODE_PROBLEM+="${NODE_PROBLEM:+; }node $node (rank $rank) $rest; run as root, give the site a sudo prefix, or set clear_caches: false"
        GATE_FAILED[$node]="before run $RUN it $rest"
        status=2 seen=$((seen + 1)) ;;
    esac
  done
  ((status == 0)) || return "$status"
  record_start || return 2
  if [[ $CLEAR_CACHES != 1 ]]; then
    : >"$ATTEMPT_DIR/cache_clear.log"
    return 0
  fi
  now_ms
  # A file of its own: the step already has rank 0's log open, and on NFS two hosts must not append to one file.
  printf ':::MLLOG {"namespace": "", "time_ms": %s, "event_type": "POINT_IN_TIME", "key": "cache_clear", "value": true, "metadata": {"file": "lib/before_run.sh", "lineno": %s}}\n' \
    "$NOW_MS" "$LINENO" >"$ATTEMPT_DIR/cache_clear.log"
}

# record_start: what every node was when the attempt began, in one file.
record_start() {
  local rank time before after text
  compare_facts
  [[ -n ${ENVIRONMENT_SHA:-} ]] || ENVIRONMENT_SHA=$(sha256sum <"$SET_DIR/environment.sh")
  text="node"$'\t'"field"$'\t'"value"$'\n'"*"$'\t'"environment"$'\t'"${ENVIRONMENT_SHA%% *}"$'\n'$FACT_ROWS
  for rank in "${!NODES[@]}"; do
    read -r time before after <<<"${NODE_PROOF[rank]}"
    text+="${NODES[rank]}"$'\t'"ready_ms"$'\t'"$time"$'\n'
    [[ $before == - ]] || text+="${NODES[rank]}"$'\t'"cache_before_kib"$'\t'"$before"$'\n'"${NODES[rank]}"$'\t'"cache_after_kib"$'\t'"$after"$'\n'
  done
  write_atomic "$ATTEMPT_DIR/start.tsv" "${text%$'\n'}" && return 0
  NODE_PROBLEM="cannot write to $ATTEMPT_DIR (disk full, quota, or the folder is gone)"
  return 1
}
