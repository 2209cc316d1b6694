# shellcheck shell=bash
# The deep step: bandwidth of an all-reduce over the nodes, and which of them makes it slow. It runs on the batch host and is
# sourced by the loop and by preflight.sh, after common.sh, settings.sh and one of lib/steps_*.sh. docs/deep.md has the rules.
#
# Needs SET_DIR, JOB_ID and SCHEDULER; ORCH_SET_DIR and ORCH_JOB_ID exported; <set>/environment.sh (evaluate_config), so that the
# measurement has the variables of a run. A set's ENDING stops it.
#
# SC2004: a file descriptor's number is the key. SC2034, SC2153, SC2154: it shares variables with those files.
# shellcheck disable=SC2004,SC2034,SC2153,SC2154

# shellcheck source=lib/deep_search.sh
. "${BASH_SOURCE[0]%/*}/deep_search.sh"
# shellcheck source=lib/deep_verdict.sh
. "${BASH_SOURCE[0]%/*}/deep_verdict.sh"

# Seconds for all measurements together; one has ORCH_DEEP_LIMIT_S, because RCCL's first meeting over many nodes takes tens of them.
DEEP_BUDGET_S=${ORCH_DEEP_BUDGET_S:-900}
DEEP_BYTES=${ORCH_DEEP_BYTES:-536870912}

# deep_step NODE...: measure, and say which nodes are slow. NODE... is the order of the ranks. It sets
#   DEEP_ROWS     one line per node: node, verdict (pass warn fail skip), ms, text, remedy; separated by tabs
#   DEEP_SLOW     nodes that fail: slow, wrong sums, no answer
#   DEEP_SUMMARY  one line for people;  DEEP_JSON  the same as a JSON object
# and writes <set>/preflight/deep-<job>.tsv. Status 0: no node fails; 1: some do; 2: nothing could be measured (rows: skip).
deep_step() {
  local started index
  DEEP_ROWS=() DEEP_SLOW=() DEEP_SUMMARY="" DEEP_JSON=null DEEP_NODES=("$@") DEEP_ID=0 DEEP_PID=""
  declare -gA DEEP_LOST=() DEEP_GPUS=() DEEP_TESTS=() DEEP_ADDRESS=() DEEP_TCP_PORT=() DEEP_TORCH_PORT=() DEEP_NOTE=()
  deep_search_begin
  DEEP_LIMIT_S=${ORCH_DEEP_LIMIT_S:-120}
  now_ms; started=$NOW_MS
  DEEP_DEADLINE=$((SECONDS + DEEP_BUDGET_S))
  DEEP_TSV=${DEEP_TSV:-$SET_DIR/preflight/deep-$JOB_ID.tsv}
  if ! mkdir -p "${DEEP_TSV%/*}" || ! printf 'round\tnodes\tway\tbytes\tseconds\tbusbw_gbps\twrong\tnote\n' >"$DEEP_TSV"; then
    deep_skip "cannot write to ${DEEP_TSV%/*}"
  elif ! deep_open; then
    deep_skip "its step did not start"
  else
    deep_hear_ready
    deep_choose_way
    [[ -z $DEEP_WAY ]] || deep_search
    deep_close
    deep_judge
  fi
  now_ms
  for index in "${!DEEP_ROWS[@]}"; do DEEP_ROWS[index]=${DEEP_ROWS[index]/$'\t@\t'/$'\t'$((NOW_MS - started))$'\t'}; done
  [[ " ${DEEP_ROWS[*]} " != *$'\tfail\t'* ]] || return 1
  [[ " ${DEEP_ROWS[*]} " != *$'\tskip\t'* ]] || return 2
}

# ---- the step ------------------------------------------------------------------------------------------------------

deep_open() {
  local in_end out_end
  open_pipe && exec {in_end}</dev/fd/"$pipe_fd" {DEEP_IN}>/dev/fd/"$pipe_fd" {pipe_fd}>&- || return 1
  open_pipe && exec {DEEP_OUT}</dev/fd/"$pipe_fd" {out_end}>/dev/fd/"$pipe_fd" {pipe_fd}>&- || return 1
  READ_SO_FAR[$DEEP_OUT]=""
  # The step can end before this one knows; writing to it must fail, not end the loop.
  [[ -n $(trap -p PIPE) ]] || trap : PIPE
  STEP_NODES=("${DEEP_NODES[@]}")
  step_argv keep - bash "$BUNDLE/lib/node.sh" deep serve
  # Its nodes let go when their input ends: no other process may have that open. 7 and 8 belong to the step that holds nodes.
  ORCH_DEEP_PEERS=$(deep_peers) "${ARGV[@]}" <&"$in_end" >&"$out_end" 2>>"${DEEP_TSV%.tsv}.log" \
    {in_end}<&- {out_end}>&- {DEEP_IN}>&- {DEEP_OUT}<&- 7>&- 8<&- &
  DEEP_PID=$!
  exec {in_end}<&- {out_end}>&-
}

# Two nodes whose direction tells a node which of its addresses to use; none where all nodes are this host.
deep_peers() {
  [[ $SCHEDULER != slurm ]] || printf '%s\n' "${DEEP_NODES[*]:0:2}"
}

deep_close() {
  [[ -n $DEEP_PID ]] || return 0
  exec {DEEP_IN}>&-
  local deadline=$((SECONDS + 10))
  while alive "$DEEP_PID" && ((SECONDS < deadline)); do read_line "$DEEP_OUT" 0.1 || pause 0.02; done
  if alive "$DEEP_PID"; then
    log "deep: the nodes did not let go within 10 s; ending their step by force"
    kill -TERM "$DEEP_PID" 2>/dev/null
    deadline=$((SECONDS + 20))
    while alive "$DEEP_PID" && ((SECONDS < deadline)); do pause 0.1; done
    kill -KILL "$DEEP_PID" 2>/dev/null
  fi
  wait "$DEEP_PID" 2>/dev/null
  exec {DEEP_OUT}<&-
  DEEP_PID=""
}

# deep_line SECONDS: the next line of the nodes: sets DEEP_WORD, DEEP_FROM and DEEP_FIELDS. Status 1: none; 2: there will be none.
deep_line() {
  local drop detail status
  read_line "$DEEP_OUT" "$1"
  status=$?
  if ((status != 0)); then
    if ((status == 1)) || ! alive "$DEEP_PID"; then return 2; fi
    return 1
  fi
  IFS=$'\t' read -r DEEP_WORD drop DEEP_FROM detail <<<"$LINE"
  IFS=$'\x1f' read -r -a DEEP_FIELDS <<<"$detail"
  # An image may print what it likes when it starts.
  [[ " ${DEEP_NODES[*]} " == *" $DEEP_FROM "* ]] || DEEP_WORD=""
  case $DEEP_WORD in
    deep-ready | deep) deep_makes_sense || DEEP_WORD="" ;;
    failed) deep_lose "$DEEP_FROM" "$detail" ;;
  esac
}

# deep_makes_sense: whether a line is whole, and what must be numbers are: nothing that an image prints may be evaluated.
deep_makes_sense() {
  local number='^[0-9]{1,15}$'
  if [[ $DEEP_WORD == deep-ready ]]; then
    ((${#DEEP_FIELDS[@]} >= 5)) && [[ ${DEEP_FIELDS[0]} =~ $number && ${DEEP_FIELDS[1]} =~ $number ]]
  else
    ((${#DEEP_FIELDS[@]} >= 8)) || return 1
    [[ ${DEEP_FIELDS[1]} != ok || (${DEEP_FIELDS[3]} =~ $number && ${DEEP_FIELDS[4]} =~ $number &&
      ${DEEP_FIELDS[5]} =~ $number && ${DEEP_FIELDS[6]} =~ $number) ]]
  fi
}

deep_lose() { # NODE REASON
  [[ -n ${DEEP_LOST[$1]:-} ]] || DEEP_LOST[$1]=${2//[$'\t\n\x1f']/ }
}

# deep_hear_ready: wait until every node has said what it can measure with.
deep_hear_ready() {
  local node reason limit=$((${CONTAINER_START_S:-120} + ${ORCH_DEEP_START_S:-120})) deadline
  deadline=$((SECONDS + limit))
  while ((${#DEEP_GPUS[@]} + ${#DEEP_LOST[@]} < ${#DEEP_NODES[@]} && SECONDS < deadline)) && [[ -z ${ENDING:-} ]]; do
    deep_line 0.5
    case $? in
      1) continue ;;
      2) break ;;
    esac
    [[ $DEEP_WORD == deep-ready ]] || continue
    node=$DEEP_FROM
    DEEP_GPUS[$node]=${DEEP_FIELDS[0]} DEEP_TESTS[$node]=${DEEP_FIELDS[1]} DEEP_ADDRESS[$node]=${DEEP_FIELDS[2]}
    DEEP_TCP_PORT[$node]=${DEEP_FIELDS[3]} DEEP_TORCH_PORT[$node]=${DEEP_FIELDS[4]} DEEP_NOTE[$node]=${DEEP_FIELDS[5]:-}
  done
  reason="no word from its measuring container within $limit s"
  alive "$DEEP_PID" || reason="the step ended before a word of it: $(tail -n 2 "${DEEP_TSV%.tsv}.log")"
  for node in "${DEEP_NODES[@]}"; do [[ -n ${DEEP_GPUS[$node]:-} ]] || deep_lose "$node" "$reason"; done
}

# ---- one round -----------------------------------------------------------------------------------------------------

# deep_round NAME GROUP...: measure all groups at the same time; GROUP is nodes separated by blanks, and no node is in two. For the
# n-th group DEEP_MBPS[n] is its bus bandwidth in MB/s, 0 where it failed, and DEEP_WHY[n] says why. DEEP_ROUND_WAY overrides DEEP_WAY.
# Status 1: no round any more (time is up, the set ends, the step is gone).
deep_round() {
  local name=$1 node index request="" way=${DEEP_ROUND_WAY:-$DEEP_WAY} places waiting=0 deadline reason
  shift
  [[ -z ${ENDING:-} ]] && alive "$DEEP_PID" && ((SECONDS < DEEP_DEADLINE)) || return 1
  DEEP_ID=$((DEEP_ID + 1)) DEEP_MBPS=() DEEP_WHY=() DEEP_GROUPS=("$@") DEEP_SIZES=() DEEP_TIMES=() DEEP_WRONG=()
  declare -gA DEEP_GROUP_OF=()
  for index in "${!DEEP_GROUPS[@]}"; do
    DEEP_MBPS[index]=0 DEEP_WHY[index]="" DEEP_SIZES[index]=0 DEEP_TIMES[index]=0 DEEP_WRONG[index]=0
    places=""
    for node in ${DEEP_GROUPS[index]}; do
      DEEP_GROUP_OF[$node]=$index
      waiting=$((waiting + 1))
      if [[ $way == tcp ]]; then places+=,$node=${DEEP_ADDRESS[$node]}:${DEEP_TCP_PORT[$node]}
      else places+=,$node=${DEEP_ADDRESS[$node]}:${DEEP_TORCH_PORT[$node]}; fi
    done
    request+=" ${places#,}"
  done
  printf 'measure %s %s %s %s%s\n' "$DEEP_ID" "$way" "$DEEP_LIMIT_S" "$DEEP_BYTES" "$request" >&"$DEEP_IN"
  # The nodes keep the limit themselves; this one is for nodes that are gone.
  deadline=$((SECONDS + DEEP_LIMIT_S + 15))
  while ((waiting > 0 && SECONDS < deadline)) && [[ -z ${ENDING:-} ]]; do
    deep_line 0.5
    case $? in
      1) continue ;;
      2) break ;;
    esac
    if [[ $DEEP_WORD == failed || ( $DEEP_WORD == deep && ${DEEP_FIELDS[0]} == "$DEEP_ID" ) ]]; then
      [[ -n ${DEEP_GROUP_OF[$DEEP_FROM]:-} ]] || continue
      deep_answer "${DEEP_GROUP_OF[$DEEP_FROM]}"
      unset "DEEP_GROUP_OF[$DEEP_FROM]"
      waiting=$((waiting - 1))
    fi
  done
  reason="no answer to a measurement within $((DEEP_LIMIT_S + 15)) s"
  alive "$DEEP_PID" || reason="the step ended in the middle of a measurement: $(tail -n 2 "${DEEP_TSV%.tsv}.log")"
  [[ -z ${ENDING:-} ]] || return 1
  for node in "${!DEEP_GROUP_OF[@]}"; do
    index=${DEEP_GROUP_OF[$node]}
    deep_lose "$node" "$reason"
    deep_broken "$index" "$node: ${DEEP_LOST[$node]}"
  done
  for index in "${!DEEP_GROUPS[@]}"; do deep_record "$name" "$way" "$index"; done
}

# deep_answer INDEX: take the answer in DEEP_FIELDS. The first node of a group tells its bandwidth.
deep_answer() {
  local first=${DEEP_GROUPS[$1]%% *}
  if [[ $DEEP_WORD == failed ]]; then
    deep_broken "$1" "$DEEP_FROM: ${DEEP_LOST[$DEEP_FROM]}"
    return
  fi
  DEEP_TORCH_PORT[$DEEP_FROM]=${DEEP_FIELDS[7]}
  if [[ ${DEEP_FIELDS[1]} != ok ]]; then
    deep_broken "$1" "$DEEP_FROM: ${DEEP_FIELDS[8]:-no reason given}"
  elif [[ $DEEP_FROM == "$first" ]]; then
    DEEP_SIZES[$1]=${DEEP_FIELDS[3]} DEEP_TIMES[$1]=${DEEP_FIELDS[4]} DEEP_MBPS[$1]=${DEEP_FIELDS[5]} DEEP_WRONG[$1]=${DEEP_FIELDS[6]}
    ((DEEP_WRONG[$1] == 0)) || DEEP_WHY[$1]="${DEEP_FIELDS[6]} wrong values in the sum"
  fi
}

# deep_broken INDEX REASON: the first reason counts; the rest of the group need not wait for its limit.
deep_broken() {
  local node
  [[ -z ${DEEP_WHY[$1]} ]] || return 0
  DEEP_WHY[$1]=${2//[$'\t\n\x1f']/ }
  ! alive "$DEEP_PID" || printf 'cancel %s %s\n' "$DEEP_ID" "${DEEP_GROUPS[$1]}" >&"$DEEP_IN"
}

deep_record() { # ROUND WAY INDEX
  local index=$3 seconds
  printf -v seconds '%d.%06d' $((DEEP_TIMES[index] / 1000000)) $((DEEP_TIMES[index] % 1000000))
  printf '%s\t%s\t%s\t%s\t%s\t%d.%03d\t%s\t%s\n' "$1" "${DEEP_GROUPS[index]// /,}" "$2" "${DEEP_SIZES[index]}" "$seconds" \
    $((DEEP_MBPS[index] / 1000)) $((DEEP_MBPS[index] % 1000)) "${DEEP_WRONG[index]}" "${DEEP_WHY[index]}" >>"$DEEP_TSV"
  # What gives wrong sums is not fast.
  [[ -z ${DEEP_WHY[index]} ]] || DEEP_MBPS[index]=0
}
