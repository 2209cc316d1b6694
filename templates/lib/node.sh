#!/usr/bin/env bash
# What happens on one node. The loop on the batch host starts it on every node (srun, or lib/local_step.sh without Slurm):
#
#   node.sh hold GENERATION    tunables, then a container, for as long as this step's standard input is open
#   node.sh run ATTEMPT_DIR    one benchmark run inside that container
#   node.sh deep serve         a container that measures the bandwidth to other nodes, for as long as the input is open
#
# Environment: ORCH_SET_DIR, ORCH_JOB_ID, and SLURM_NODEID / SLURM_NNODES as Slurm sets them for the step.
#
# `hold` and `run` meet in a folder of this node, $channel, that is also mounted into the container as /orch:
#   go        a pipe; `hold` passes on the loop's word that the run may begin
#   request   a pipe; the run writes a script into it, the container's shell runs it. Nothing of it is ever on a disk.
#   out       a pipe; what the script prints
#   status    a pipe; the script's exit status
# `exec` of the engine would do the same, but it costs 0.1 s of processor per node and run, between run_stop and run_start,
# and a killed client would leave its process running in the container.
#
# SC2153: names in capitals come from settings.sh. SC2178: lib/network.sh has arrays of the same names, local to it.
# shellcheck disable=SC2153,SC2178
set -uo pipefail

here=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
bundle=${here%/*}
# shellcheck source=lib/common.sh
. "$here/common.sh"
# shellcheck source=/dev/null
. "$bundle/settings.sh"
# shellcheck source=lib/network.sh
. "$here/network.sh"
# shellcheck source=lib/node_tuning.sh
. "$here/node_tuning.sh"
# shellcheck source=lib/deep_node.sh
. "$here/deep_node.sh"

rank=${SLURM_NODEID:-0}
node=${ORCH_NODE:-${SLURMD_NODENAME:-${HOSTNAME%%.*}}}
node_dir=$ORCH_SET_DIR/nodes/$node
# Job and node are part of every name, because one host and one engine can serve several jobs and several virtual nodes.
owner=${ORCH_JOB_ID//[^A-Za-z0-9_.-]/_}-${node//[^A-Za-z0-9_.-]/_}
channel=${ORCH_CHANNELS:-/tmp}/orch-$UID-$owner
engine_pid=""

# report WORD [DETAIL]: one line to the loop, through the step's standard output.
report() {
  printf '%s\t%s\t%s\t%s\n' "$1" "$rank" "$node" "${2:-}"
}

# ---- hold ----------------------------------------------------------------------------------------------------------

image_id() {
  "${ENGINE_COMMAND[@]}" image inspect --format '{{.Id}}' "$CONT" 2>/dev/null </dev/null
}

# The image's identity is its id (the hash of its configuration): equal content has an equal id on every node,
# also where it came from a tar and has no registry digest.
find_image() {
  IMAGE_ID=$(image_id) && return 0
  if [[ $PULL == missing ]]; then
    "${ENGINE_COMMAND[@]}" pull "$CONT" </dev/null >>"$node_dir/hold.log" 2>&1
    IMAGE_ID=$(image_id) && return 0
  fi
  if "${ENGINE_COMMAND[@]}" version </dev/null >/dev/null 2>&1; then
    report failed "image $CONT is not on this node; pull or load it there"
  else
    report failed "the container engine (${ENGINE_COMMAND[*]}) does not answer on this node"
  fi
  return 1
}

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
    { read -r pid <"$old/hold_pid"; } 2>/dev/null || continue
    alive "$pid" || rm -rf "$old"
  done
}

open_channel() {
  sweep_channels
  rm -rf "$channel"
  if mkdir -m 700 "$channel" && mkfifo -m 600 "$channel"/{go,request,out,status} && exec {go_fd}<>"$channel/go" &&
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
  find_image && mount_options || return 1
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
      [[ $LINE != up ]] || return 0
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
    "${ENGINE_COMMAND[@]}" rm --force "$container" </dev/null >/dev/null 2>&1
  fi
}

# Runs on every way out of `hold`, once.
release() {
  trap '' TERM INT HUP
  trap - EXIT
  end_container
  tunables revert || log "node $node: tunables could not be reverted: $TUNABLES_FAILED"
  await_end
  rm -rf "$channel"
}

# Requests of the loop come as lines on standard input; its end is the order to let go.
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
      esac
    elif ((status == 1)); then
      return 0
    elif [[ -n $engine_pid ]] && ! alive "$engine_pid"; then
      report gone "its container ended: $(tail -n 1 "$node_dir/hold.log")"
      return 1
    fi
  done
}

hold() { # GENERATION
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
  if ! look_at_network; then
    report failed "cannot write to $node_dir"
    return 1
  fi
  summarize_network
  report network "$SUMMARY"
  tell_network 0
  IMAGE_ID=none
  [[ $ENGINE == none ]] || launch_container "$1" || return 1
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
  serve
}

# ---- run -----------------------------------------------------------------------------------------------------------

# shell_word TEXT: set WORD to TEXT in single quotes, for any POSIX shell.
shell_word() {
  WORD="'${1//\'/\'\\\'\'}'"
}

# The script of a run: the evaluated environment of the config, then what belongs to this run and node, then the command.
run_script() { # DIRECTORY
  local name words="" pairs=("SEED=$SEED" "MASTER_ADDR=$MASTER_ADDR" "MASTER_PORT=$MASTER_PORT"
    "SLURM_NNODES=${SLURM_NNODES:-1}" "SLURM_NODEID=$rank" "SLURM_JOB_ID=$ORCH_JOB_ID"
    "ORCH_RUN=$ORCH_RUN" "ORCH_ATTEMPT=$ORCH_ATTEMPT")
  # Single-node configs export NODE_RANK=0; over several nodes that would give every node rank 0.
  ((${SLURM_NNODES:-1} == 1)) || pairs+=("NODE_RANK=$rank")
  # Secrets are passed by name; this script is only ever in a pipe.
  for name in "${PASS_ENV[@]}"; do [[ -z ${!name+set} ]] || pairs+=("$name=${!name}"); done
  IFS= read -r -d '' words <"$ORCH_SET_DIR/environment.sh"
  printf '%s\n' "$words"
  network_exports
  words=""
  for name in "${pairs[@]}"; do
    shell_word "${name#*=}"
    printf 'export %s=%s\n' "${name%%=*}" "$WORD"
  done
  shell_word "$1"
  printf 'cd %s || exit 1\n' "$WORD"
  for name in "${COMMAND[@]}"; do
    shell_word "$name"
    words+=" $WORD"
  done
  printf 'exec%s\n' "$words"
}

# run_in_container: RUN_STATUS is the script's exit status, or 125 when the container ended under it.
run_in_container() {
  local status_fd printer writer engine
  read -r engine <"$channel/engine_pid" || engine=""
  if [[ -z $engine ]] || ! alive "$engine"; then
    log "node $node: there is no container of this job"
    RUN_STATUS=125
    return
  fi
  exec {status_fd}<>"$channel/status"
  cat "$channel/out" &
  printer=$!
  { printf 'exec >/orch/out 2>&1 </dev/null\n'; run_script "$CODE_DIR"; } >"$channel/request" &
  writer=$!
  until read_line "$status_fd" 1; do
    if ! alive "$engine"; then
      log "node $node: the container ended during the run"
      kill "$writer" "$printer" 2>/dev/null
      LINE=125
      break
    fi
  done
  RUN_STATUS=$LINE
  # The output ends by itself when its last writer is gone.
  local deadline=$((SECONDS + 5))
  while alive "$printer" && ((SECONDS < deadline)); do read -r -t 0.005 -u "$status_fd" _; done
  kill "$printer" 2>/dev/null
}

run_on_host() {
  local keep=() name child
  for name in PATH HOME USER LOGNAME LANG TMPDIR ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES; do
    [[ -z ${!name+set} ]] || keep+=("$name=${!name}")
  done
  env -i "${keep[@]}" bash <(run_script "${CODE_SOURCE:-$bundle/code}") </dev/null &
  child=$!
  wait "$child"
  RUN_STATUS=$?
}

record_run() { # ATTEMPT_DIR START_MS
  now_ms
  json_string "$node"
  write_atomic "$1/node_$rank.json" "{\"node\": $JSON, \"rank\": $rank, \"exit\": $RUN_STATUS, \"start_ms\": $2, \"end_ms\": $NOW_MS${DRIFT:+, \"drift\": [$DRIFT]}}"
}

# wait_for_go: the loop starts the step of a run while the nodes get ready for it, so that starting a step costs no time of
# its own; the run begins at the loop's word.
wait_for_go() {
  local hold="" fd
  { read -r hold <"$channel/hold_pid" && exec {fd}<>"$channel/go"; } 2>/dev/null
  until [[ -n $hold ]] && read_line "$fd" 1 && [[ $LINE == "$ORCH_RUN.$ORCH_ATTEMPT" ]]; do
    if [[ -z $hold ]] || ! alive "$hold"; then
      log "node $node: nothing holds this node for the job any more"
      return 1
    fi
  done
}

run() { # ATTEMPT_DIR
  local attempt_dir=$1 start
  wait_for_go || return 125
  now_ms
  start=$NOW_MS
  RUN_STATUS=143 DRIFT=""
  # A run that is ended (time-out, failure of another node) still leaves its record and its files.
  trap 'RUN_STATUS=143; record_run "$attempt_dir" "$start"; collect_files "$attempt_dir"; exit 143' TERM
  if [[ $ENGINE == none ]]; then run_on_host; else run_in_container; fi
  trap '' TERM
  collect_files "$attempt_dir"
  find_drift
  record_run "$attempt_dir" "$start"
  return "$RUN_STATUS"
}

# What the run left in /results belongs to this attempt: the next run must not overwrite it.
collect_files() { # ATTEMPT_DIR
  local found
  shopt -s dotglob nullglob
  found=("$node_dir"/scratch/*)
  shopt -u dotglob nullglob
  ((${#found[@]} > 0)) || return 0
  if ! mkdir -p "$1/files/$node" || ! mv "${found[@]}" "$1/files/$node/"; then
    log "node $node: could not keep the files of /results"
  fi
}

case ${1:-} in
  hold) hold "$2" ;;
  run) run "$2" ;;
  deep) deep_on_node "${@:2}" ;;
  *) die "node.sh: unknown action '${1:-}' (hold, run, deep)" ;;
esac
