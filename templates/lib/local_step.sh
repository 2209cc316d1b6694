#!/usr/bin/env bash
# Start one process per node on this host, as srun would on a cluster:
#
#   local_step.sh NODES keep|kill OUTPUT COMMAND [ARG...]
#
# NODES  names separated by commas; the n-th gets SLURM_NODEID n-1.
# kill   the first failure ends all the others (srun --kill-on-bad-exit); `keep` leaves them.
# OUTPUT file for each node's output with %t for the rank, or - for this step's own standard output.
#
# Each node is a session of its own, so that everything it started can be ended with it.
set -uo pipefail
# shellcheck source=lib/common.sh
. "${BASH_SOURCE[0]%/*}/common.sh"

IFS=, read -r -a nodes <<<"$1"
on_failure=$2
output=$3
shift 3

pids=()
status=0
feeder=""
# A node that ended no longer reads its input; that must not end the others.
trap : PIPE

end_all() { # SIGNAL
  local pid
  for pid in "${pids[@]}"; do kill "-$1" -- "-$pid" 2>/dev/null; done
}

# TERM, ten seconds to tidy up, KILL.
end_gently() {
  local tries pid left
  end_all TERM
  for ((tries = 0; tries < 100; tries++)); do
    left=0
    for pid in "${pids[@]}"; do alive "$pid" && left=1; done
    ((left == 1)) || return 0
    pause 0.1
  done
  end_all KILL
}

trap 'status=143; end_gently' TERM INT HUP
# Whatever a node's process left behind in its session ends with the step.
trap 'end_all KILL; [[ -z $feeder ]] || kill "$feeder" 2>/dev/null' EXIT

# start COMMAND...: one node's process, in a session of its own. No process may hold the input of another node open.
start() {
  local fd
  for fd in "${inputs[@]}"; do exec {fd}>&-; done
  exec setsid "$@"
}

inputs=()
for rank in "${!nodes[@]}"; do
  export SLURM_NODEID=$rank SLURM_NNODES=${#nodes[@]} ORCH_NODE=${nodes[rank]}
  if [[ $output == - ]]; then
    open_pipe
    exec {read_end}</dev/fd/"$pipe_fd" {write_end}>/dev/fd/"$pipe_fd" {pipe_fd}>&-
    inputs+=("$write_end")
    start "$@" <&"$read_end" {read_end}<&- &
    exec {read_end}<&-
  else
    start "$@" </dev/null >>"${output//%t/$rank}" 2>&1 &
  fi
  pids+=($!)
done

# Like srun, give every node each line of the input, and its end.
if ((${#inputs[@]} > 0)); then
  {
    # A subshell forgets traps, but not what is ignored.
    trap '' PIPE
    while IFS= read -r line; do
      for fd in "${inputs[@]}"; do printf '%s\n' "$line" >&"$fd"; done 2>/dev/null
    done
  } <&0 &
  feeder=$!
  for fd in "${inputs[@]}"; do exec {fd}>&-; done
fi

running=${#pids[@]}
while ((running > 0)); do
  wait -n
  code=$?
  # A trapped signal interrupts `wait` without any process having ended.
  alive=0
  for pid in "${pids[@]}"; do alive "$pid" && ((alive += 1)); done
  if ((code != 0 && status == 0 && alive < running)); then
    status=$code
    [[ $on_failure == keep ]] || end_gently
  fi
  running=$alive
done
exit "$status"
