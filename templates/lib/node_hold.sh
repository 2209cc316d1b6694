# shellcheck shell=bash
# One node for the time of a job: checks, tunables, a container, and the loop's requests. Sourced by lib/node.sh.
#
# SC2034, SC2153, SC2154: it shares variables with lib/node.sh and settings.sh. SC2178: lib/network.sh has arrays of the
# same names, local to it.
# shellcheck disable=SC2034,SC2153,SC2154,SC2178

# shellcheck source=lib/network.sh
. "$here/network.sh"
# shellcheck source=lib/node_tuning.sh
. "$here/node_tuning.sh"
# shellcheck source=lib/image.sh
. "$here/image.sh"
# shellcheck source=lib/preflight_node.sh
. "$here/preflight_node.sh"
# shellcheck source=lib/hardware.sh
. "$here/hardware.sh"

mount_options() {
  MOUNT_OPTIONS=(--volume "$node_dir/scratch:/results" --volume "$channel:/orch")
  local mount variable below target mode source
  for mount in "${MOUNTS[@]}"; do
    IFS=$'\t' read -r variable below target mode <<<"$mount"
    source=${!variable:-}
    if [[ -z $source ]]; then
      report failed "$variable is not set: give the site file data.$WORKLOAD.$variable, or export $variable"
      return 1
    fi
    [[ $below == . ]] || source+=/$below
    if [[ ! -e $source ]]; then
      # Without this check the engine would make an empty folder there, as root.
      report failed "$variable: $source does not exist on this node"
      return 1
    fi
    MOUNT_OPTIONS+=(--volume "$source:$target:$mode")
  done
  [[ -z $CODE_SOURCE ]] || MOUNT_OPTIONS+=(--volume "$CODE_SOURCE:$CODE_DIR")
}

# sweep_channels: a holder that was killed could not remove its folder; the next one on this host does.
sweep_channels() {
  local old pid
  for old in "${channel%/*}/orch-$UID-"*; do
    [[ -d $old && ! -L $old && -O $old && -f $old/hold_pid ]] || continue
    { read -r pid <"$old/hold_pid"; } 2>/dev/null || continue
    alive "$pid" || rm -rf "$old"
  done
}

open_channel() {
  sweep_channels
  rm -rf "$channel"
  if mkdir -m 700 "$channel" && mkfifo -m 600 "$channel"/{go,request,start,out,status} && exec {go_fd}<>"$channel/go" &&
    printf '%s\n' "$$" >"$channel/hold_pid"; then
    return 0
  fi
  report failed "cannot make $channel"
  return 1
}

# Runs in the container. Its first process ends when the input closes, and everything in the container with it: that
# input is a pipe of `hold`, which ends with its step, however that ends. Each request runs in a process group of its
# own, so that whatever it leaves behind ends before the next one starts.
# shellcheck disable=SC2016
CONTAINER_SHELL='
serve() {
  set -m
  while :; do
    bash /orch/request &
    wait "$!"
    code=$?
    kill -KILL -- "-$!"
    echo "$code" >/orch/status
  done
}
serve </dev/null >/dev/null 2>&1 &
'"$CONTAINER_NETWORK"'
echo up
exec cat >/dev/null'

# launch_container starts it, await_container waits for its first word: what else a node has to do goes between them.
launch_container() { # GENERATION
  if [[ -n $IMAGE_PROBLEM ]]; then
    report failed "$IMAGE_PROBLEM"
    return 1
  fi
  mount_options || return 1
  container="orch-$owner-$1"
  open_pipe && container_input=$pipe_fd && open_pipe || return 1
  # The client gets a descriptor that only reads: it must not hold its own input open.
  "${ENGINE_COMMAND[@]}" run --rm --interactive --init --name "$container" \
    --label "orchestrator.set=${ORCH_SET_DIR##*/}" --label "orchestrator.job=$ORCH_JOB_ID" \
    --label "orchestrator.node=$node" "${CONTAINER_OPTIONS[@]}" "${MOUNT_OPTIONS[@]}" \
    --entrypoint bash "$CONT" -c "$CONTAINER_SHELL" container "${USED[*]}" "$inside_root" \
    </dev/fd/"$container_input" >&"$pipe_fd" 2>>"$node_dir/hold.log" {container_input}>&- &
  engine_pid=$!
  container_output=$pipe_fd
  printf '%s\n' "$engine_pid" >"$channel/engine_pid"
}

await_container() {
  local deadline=$((SECONDS + CONTAINER_START_S))
  while :; do
    if read_line "$container_output" 0.2; then
      [[ $LINE != up ]] || { container_up=1; return 0; }
      [[ $LINE != "rdma "* ]] || INSIDE+=("${LINE#rdma }")
    elif ! alive "$engine_pid"; then
      report failed "the container ended at once: $(tail -n 3 "$node_dir/hold.log" | tr '\n\t' '  ')"
      return 1
    elif ((SECONDS >= deadline)); then
      report failed "the container does not answer after $CONTAINER_START_S s"
      return 1
    fi
  done
}

# end_container closes the input, await_end waits until it is gone, by force after five seconds.
end_container() {
  [[ -z $engine_pid ]] || exec {container_input}>&-
}

await_end() {
  [[ -n $engine_pid ]] || return 0
  local deadline=$((SECONDS + 5))
  while alive "$engine_pid" && ((SECONDS < deadline)); do pause 0.02; done
  if alive "$engine_pid"; then
    kill -KILL "$engine_pid" 2>/dev/null
  elif wait "$engine_pid"; then
    return 0
  fi
  # A client that was ended between `create` and `start` (scancel reaches it, too) leaves a container that never runs, and the
  # engine may still be making it.
  local try
  for try in 1 2 3; do
    "${ENGINE_COMMAND[@]}" rm --force "$container" </dev/null >/dev/null 2>&1
    [[ -z ${container_up:-} ]] || return 0
    ((try == 3)) || pause 0.3
  done
}

# Runs on every way out of `hold`, once. `left` is the last word: the loop need not wait for a node that is dead.
release() {
  trap '' TERM INT HUP
  trap - EXIT
  [[ -z $checks_pid ]] || kill "$checks_pid" 2>/dev/null
  end_container
  tunables revert || log "node $node: tunables could not be reverted: $TUNABLES_FAILED"
  await_end
  rm -rf "$channel"
  report left
}

# Requests of the loop come as lines on standard input; its end is the order to let go, and so is a list without this node.
serve() {
  local word detail drop status
  while :; do
    read_line 0 1
    status=$?
    if ((status == 0)); then
      read -r word detail drop <<<"$LINE"
      case $word in
        prepare) prepare "$detail" "$drop" ;;
        go) printf '%s\n' "$detail" >&"$go_fd" ;;
        use) is_used || return 0 ;;
      esac
    elif ((status == 1)); then
      return 0
    elif [[ -n $engine_pid ]] && ! alive "$engine_pid"; then
      report gone "its container ended: $(tail -n 1 "$node_dir/hold.log")"
      return 1
    fi
  done
}

# await_checks: status 1 when the loop lets go meanwhile.
await_checks() {
  while [[ -n $checks_pid ]] && alive "$checks_pid"; do
    read_line 0 0.05
    (($? != 1)) || return 1
  done
}

# is_used: whether the line `use NODE...` (rank order) names this node; sets `rank`.
is_used() {
  # shellcheck disable=SC2086
  find_rank ${LINE#use}
}

# await_use: a node that may be a spare waits until the loop wants it. Status 1: the loop let go.
await_use() {
  local status
  while :; do
    read_line 0 5
    status=$?
    ((status != 1)) || return 1
    ((status == 2)) || [[ $LINE != "use "* ]] || ! is_used || return 0
  done
}

# start_checks: in the background, beside the start of the container.
start_checks() {
  [[ $PREFLIGHT_RUN == 1 ]] || return 0
  { run_checks; now_ms; report checked "$NOW_MS"; } </dev/null &
  checks_pid=$!
}

tell_about_network() {
  look_at_network || return 1
  summarize_network
  report network "$SUMMARY"
  tell_network 0
}

hold() { # GENERATION
  checks_pid=""
  if ! mkdir -p "$node_dir/scratch"; then
    report failed "cannot write to $node_dir"
    return 1
  fi
  # What a killed attempt could not keep itself must not fall to the next one.
  collect_files "$node_dir/unclaimed-$owner-$1"
  tuning_begin
  trap release EXIT
  trap 'exit 143' TERM INT HUP
  open_channel || return 1
  look_for_image
  start_checks
  if ! tell_about_network; then
    report failed "cannot write to $node_dir"
    return 1
  fi
  if [[ ${ORCH_CHOOSE:-0} == 1 ]]; then
    [[ $RUNTIME_TUNABLES != 1 ]] || look_at_boot
    tell_facts
    await_checks || return 0
    report waits
    await_use || return 0
  fi
  get_ready "$1" && serve
}

# get_ready: the container and the tunables of a node that is used.
get_ready() { # GENERATION
  [[ $ENGINE == none ]] || launch_container "$1" || return 1
  write_hardware
  if ! tunables apply; then
    report failed "tunables: $TUNABLES_FAILED"
    return 1
  fi
  [[ -z $TUNABLES_NOTE ]] || report note "tunables: ${TUNABLES_NOTE:0:800}"
  if [[ $ENGINE != none ]]; then
    await_container || return 1
    check_inside
  fi
  [[ $RUNTIME_TUNABLES != 1 ]] || { look_at_boot; check_knobs; }
  tell_facts
  report ready "$IMAGE_ID"
}

# check_only: what preflight.sh asks of a node; nothing is changed, and nothing stays.
check_only() {
  mkdir -p "$node_dir" || log "node $node: cannot write to $node_dir"
  tuning_begin
  look_for_image no-pull
  PREFLIGHT_RUN=1
  start_checks
  tell_about_network
  [[ $RUNTIME_TUNABLES != 1 ]] || look_at_boot
  tell_facts
  wait "$checks_pid"
  report waits
}
