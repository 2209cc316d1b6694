# shellcheck shell=bash
# Steps over all nodes of the set, with Slurm. lib/steps_local.sh offers the same functions without it.
#
# SC2034, SC2153: it shares variables with settings.sh and lib/set_loop.sh.
# shellcheck disable=SC2034,SC2153

# steps_begin: set JOB_ID and NODES (names in rank order), or end with what is missing.
steps_begin() {
  [[ -n ${SLURM_JOB_ID:-} ]] || die "this is not inside a Slurm allocation; use: sbatch job.sh (or run_with_docker.sh on one node)"
  JOB_ID=$SLURM_JOB_ID
  mapfile -t NODES < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  ((${#NODES[@]} == NNODES)) || die "$SYSTEM needs $NNODES nodes, the allocation has ${#NODES[@]} (--nodes of job.sh)"
  # The batch script's own limits must not shape the steps: each step says what it needs.
  unset SLURM_CPU_BIND SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE SLURM_EXPORT_ENV
  [[ -z ${SLURM_CPUS_PER_TASK:-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  STEP=(srun --overlap --export=ALL --nodes="$NNODES" --ntasks="$NNODES" --ntasks-per-node=1 --mpi=none
    --nodelist="$SLURM_JOB_NODELIST" --quiet)
}

# step_argv keep|kill OUTPUT COMMAND...: set ARGV to the command that runs COMMAND once on each node.
step_argv() {
  local kill_on_bad_exit=0 output=()
  [[ $1 == keep ]] || kill_on_bad_exit=1
  [[ $2 == - ]] || output=(--output="$2" --open-mode=append --input=none)
  ARGV=("${STEP[@]}" --kill-on-bad-exit="$kill_on_bad_exit" "${output[@]}" "${@:3}")
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
