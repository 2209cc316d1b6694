# shellcheck shell=bash
# The node's part of the deep step: a container with lib/all_reduce.py in it. Sourced by lib/node.sh. docs/deep.md has the rules.
#
# The container's input and output are those of this step: requests of the loop reach lib/all_reduce.py without a detour, and
# when the loop is gone, however it ended, the input ends, and with it the container.
#
# SC2034, SC2153, SC2154: it shares variables with lib/node.sh and settings.sh.
# shellcheck disable=SC2034,SC2153,SC2154

# shellcheck source=lib/network.sh
. "$here/network.sh"
# shellcheck source=lib/image.sh
. "$here/image.sh"
# shellcheck source=lib/exports.sh
. "$here/exports.sh"

# Runs in the container, or on the host without one; $0 is the folder with lib/all_reduce.py.
# shellcheck disable=SC2016
DEEP_START='
. "$0/environment.sh"
for python in python3 python; do
  ! "$python" -c "import sys; sys.exit(sys.version_info < (3, 7))" 2>/dev/null || exec "$python" "$0/all_reduce.py"
done
echo "no Python 3.7 or newer in it" >&2
exit 127'

# deep_on_node REQUEST: measure what the loop asks for on standard input, until that ends. REQUEST is `serve`.
deep_on_node() {
  local folder=$channel-deep status
  deep_folder=$folder deep_pid="" deep_container=""
  [[ $1 == serve ]] || die "node.sh deep: unknown request '$1' (serve)"
  trap deep_release EXIT
  trap 'exit 143' TERM INT HUP
  if ! mkdir -p "$node_dir" || ! : >"$node_dir/deep.log"; then
    report failed "cannot write to $node_dir"
    return 1
  fi
  # A folder of this host: the engine may not be allowed to read shared storage. sweep_channels removes what was left behind.
  rm -rf "$folder"
  if ! mkdir -m 700 "$folder" || ! cp "$here"/*.py "$folder/" || ! printf '%s\n' "$$" >"$folder/hold_pid" ||
    ! deep_environment >"$folder/environment.sh"; then
    report failed "cannot write to $folder"
    return 1
  fi
  if [[ $ENGINE == none ]]; then
    deep_on_host "$folder" <&0 2>>"$node_dir/deep.log" &
  else
    look_for_image ""
    if [[ -n $IMAGE_PROBLEM ]]; then
      report failed "$IMAGE_PROBLEM"
      return 1
    fi
    deep_container=orch-$owner-deep-$$
    "${ENGINE_COMMAND[@]}" run --rm --interactive --init --name "$deep_container" \
      --label "orchestrator.set=${ORCH_SET_DIR##*/}" --label "orchestrator.job=$ORCH_JOB_ID" \
      --label "orchestrator.node=$node" "${CONTAINER_OPTIONS[@]}" --volume "$folder:/deep:ro" \
      --entrypoint bash "$CONT" -c "$DEEP_START" /deep <&0 2>>"$node_dir/deep.log" &
  fi
  deep_pid=$!
  wait "$deep_pid"
  status=$?
  deep_pid=""
  ((status == 0)) || report failed "the measurement ended (status $status): $(tail -n 2 "$node_dir/deep.log" | tr '\n\t' '  ')"
  return "$status"
}

# The variables of a run, as far as they are not secret, so that what is measured is what the runs will have.
deep_environment() {
  local pair peer=""
  for pair in ${ORCH_DEEP_PEERS:-}; do [[ -n $peer || $pair == "$node" ]] || peer=$pair; done
  [[ ! -r $ORCH_SET_DIR/environment.sh ]] || cat "$ORCH_SET_DIR/environment.sh" || return 1
  # The nodes may not have looked at their network yet.
  [[ -r $node_dir/network.tsv ]] || look_at_network
  network_exports
  for pair in "ORCH_DEEP_NODE=$node" "ORCH_DEEP_RANK=$rank" "ORCH_DEEP_GPUS=$GPUS_PER_NODE" "ORCH_DEEP_PEER=$peer" \
    "ORCH_DEEP_START_S=${ORCH_DEEP_START_S:-120}" "ORCH_DEEP_RCCL_TESTS=${ORCH_DEEP_RCCL_TESTS:-}" PYTHONDONTWRITEBYTECODE=1; do
    shell_word "${pair#*=}"
    printf 'export %s=%s\n' "${pair%%=*}" "$WORD"
  done
}

deep_on_host() { # FOLDER
  local keep=() name
  for name in PATH HOME USER LOGNAME LANG TMPDIR ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES; do
    [[ -z ${!name+set} ]] || keep+=("$name=${!name}")
  done
  exec env -i "${keep[@]}" bash -c "$DEEP_START" "$1"
}

# Runs on every way out. The engine's client passes TERM on to the container.
deep_release() {
  trap '' TERM INT HUP
  trap - EXIT
  if [[ -n $deep_pid ]] && alive "$deep_pid"; then
    kill -TERM "$deep_pid" 2>/dev/null
    local deadline=$((SECONDS + 4))
    while alive "$deep_pid" && ((SECONDS < deadline)); do pause 0.05; done
    if alive "$deep_pid"; then
      kill -KILL "$deep_pid" 2>/dev/null
      [[ -z $deep_container ]] || timeout 10 "${ENGINE_COMMAND[@]}" rm --force "$deep_container" </dev/null >/dev/null 2>&1
    fi
  fi
  rm -rf "$deep_folder"
}
