#!/usr/bin/env bash
# What happens on one node. The loop on the batch host starts it on every node (srun, or lib/local_step.sh without Slurm):
#
#   node.sh hold GENERATION    checks, tunables, then a container, for as long as this step's standard input is open
#   node.sh run ATTEMPT_DIR    one benchmark run inside that container
#   node.sh check              only the checks (preflight.sh)
#   node.sh deep serve         a container that measures the bandwidth to other nodes, for as long as the input is open
#
# Environment: ORCH_SET_DIR, ORCH_JOB_ID, ORCH_NODES (names in rank order, when the loop knows them already), and
# SLURM_NODEID / SLURM_NNODES as Slurm sets them for the step. Slurm sorts the nodes of a step, so its number of a node is
# the rank only where nobody has chosen other ranks.
#
# `hold` and `run` meet in a folder of this node, $channel, that is also mounted into the container as /orch:
#   go        a pipe; `hold` passes on the loop's word that the run may begin
#   request   a pipe; the run writes a script into it, the container's shell runs it. Nothing of it is ever on a disk.
#   start     a pipe; the script waits there, ready to go, until the run may begin
#   out       a pipe; what the script prints
#   status    a pipe; the script's exit status
# `exec` of the engine would do the same, but it costs 0.1 s of processor per node and run, between run_stop and run_start,
# and a killed client would leave its process running in the container.
#
# SC2153: names in capitals come from settings.sh.
# shellcheck disable=SC2153
set -uo pipefail

here=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
bundle=${here%/*}
# shellcheck source=lib/common.sh
. "$here/common.sh"
# shellcheck source=/dev/null
. "$bundle/settings.sh"

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

# find_rank NAME...: set `rank` to the place of this node in the list. Status 1: it is not there.
find_rank() {
  local name place=0
  for name in "$@"; do
    if [[ $name == "$node" ]]; then
      rank=$place
      return 0
    fi
    ((place += 1))
  done
  return 1
}

# The names have no blanks.
# shellcheck disable=SC2086
[[ -z ${ORCH_NODES:-} ]] || find_rank $ORCH_NODES

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
  hold)
    # shellcheck source=lib/node_hold.sh
    . "$here/node_hold.sh"
    hold "$2" ;;
  run)
    # shellcheck source=lib/node_run.sh
    . "$here/node_run.sh"
    run "$2" ;;
  check)
    # shellcheck source=lib/node_hold.sh
    . "$here/node_hold.sh"
    check_only ;;
  deep)
    # shellcheck source=lib/deep_node.sh
    . "$here/deep_node.sh"
    deep_on_node "${@:2}" ;;
  *) die "node.sh: unknown action '${1:-}' (hold, run, check, deep)" ;;
esac
