# shellcheck shell=bash
# Steps over all nodes of the set, with Slurm. lib/steps_local.sh offers the same functions without it.
#
# SC2034, SC2153: it shares variables with settings.sh and lib/set_loop.sh.
# shellcheck disable=SC2034,SC2153

# steps_begin: set JOB_ID and ALLOCATED (names of the nodes), or end with what is missing.
steps_begin() {
  [[ -n ${SLURM_JOB_ID:-} ]] || die "this is not inside a Slurm allocation; use: sbatch job.sh (or run_with_docker.sh on one node)"
  JOB_ID=$SLURM_JOB_ID
  mapfile -t ALLOCATED < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  # The batch script's own limits must not shape the steps: each step says what it needs.
  unset SLURM_CPU_BIND SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE SLURM_EXPORT_ENV
  [[ -z ${SLURM_CPUS_PER_TASK:-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
}

# step_argv keep|kill OUTPUT COMMAND...: set ARGV to the command that runs COMMAND once on each node of STEP_NODES. `keep`: a
# node that fails, or is lost, does not end the others.
step_argv() {
  local nodes count=${#STEP_NODES[@]} more=()
  printf -v nodes '%s,' "${STEP_NODES[@]}"
  if [[ $1 == keep ]]; then more=(--kill-on-bad-exit=0 --no-kill); else more=(--kill-on-bad-exit=1); fi
  [[ $2 == - ]] || more+=(--output="$2" --open-mode=append --input=none)
  ARGV=(srun --overlap --export=ALL --nodes="$count" --ntasks="$count" --ntasks-per-node=1 --mpi=none
    --nodelist="${nodes%,}" --quiet "${more[@]}" "${@:3}")
}

# lost_nodes NODE...: print those that Slurm has lost, with their state. No answer: none.
lost_nodes() {
  local nodes name state
  printf -v nodes '%s,' "$@"
  timeout 20 sinfo --noheader --Node --nodes="${nodes%,}" --format='%N %T' 2>/dev/null </dev/null | while read -r name state; do
    case $state in
      down* | *'*' | fail* | unknown* | power*) printf '%s %s\n' "$name" "$state" ;;
    esac
  done
}

master_address() {
  printf '%s\n' "${NODES[0]}"
}

# job_is_live JOB: whether Slurm still has it. No answer counts as live: a set must never be worked on twice.
job_is_live() {
  local state
  state=$(squeue --noheader --jobs="$1" --format=%T 2>&1) || [[ $state != *"Invalid job id"* ]] || return 1
  [[ -n $state ]]
}
