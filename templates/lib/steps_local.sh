# shellcheck shell=bash
# Steps on this host, without Slurm. With one node that is the published single-node flow; with the container engine
# `none` several nodes are several process groups.
#
# SC2034, SC2153: it shares variables with settings.sh and lib/set_loop.sh.
# shellcheck disable=SC2034,SC2153

steps_begin() {
  local rank count=$((NNODES + ${SPARES:-0}))
  JOB_ID=${ORCH_JOB_ID:-local-$$-$(process_start $$)}
  ALLOCATED=("${HOSTNAME%%.*}")
  if ((NNODES > 1)); then
    ALLOCATED=()
    for ((rank = 0; rank < count; rank++)); do ALLOCATED+=("local$rank"); done
  fi
  # A shell inside an allocation has Slurm's variables; the steps here set their own.
  unset SLURM_NODEID SLURM_NNODES SLURM_JOB_ID SLURMD_NODENAME
}

step_argv() { # keep|kill OUTPUT COMMAND...
  local joined
  printf -v joined '%s,' "${STEP_NODES[@]}"
  ARGV=(bash "$BUNDLE/lib/local_step.sh" "${joined%,}" "$1" "$2" "${@:3}")
}

lost_nodes() {
  :
}

master_address() {
  printf '127.0.0.1\n'
}

# process_start PID: its start time in clock ticks since boot (field 22 of stat), which tells a recycled pid. Status 1 when
# it is gone; an ended process that nobody has waited for is gone.
process_start() {
  local stat
  read -r stat <"/proc/$1/stat" || return 1
  stat=${stat##*) }
  read -r -a stat <<<"$stat"
  [[ ${stat[0]} != [ZX] ]] || return 1
  printf '%s\n' "${stat[19]}"
} 2>/dev/null

job_is_live() { # local-PID-START
  local pid start
  IFS=- read -r _ pid start <<<"$1"
  [[ $(process_start "$pid") == "$start" ]]
} 2>/dev/null
