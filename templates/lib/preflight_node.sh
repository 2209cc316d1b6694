# shellcheck shell=bash
# The checks of one node before it is used. Sourced by lib/node.sh; lib/preflight.sh on the batch host compares the nodes and
# judges. Rules, messages and remedies: docs/preflight.md.
#
# Checks run side by side, each job a process group of its own, and every one has the same hard limit: what hangs (a driver, a
# file server, a tool) costs the node its verdict and nobody any time. A process that the kernel does not let go of is not
# waited for.
#
# SC2034, SC2154: it shares variables with lib/node.sh and settings.sh. SC2153: names in capitals come from settings.sh.
# shellcheck disable=SC2034,SC2153,SC2154

preflight_lib=${BASH_SOURCE[0]%/*}
# shellcheck source=lib/gpu_tools.sh
. "$preflight_lib/gpu_tools.sh"
# shellcheck source=lib/gpu_checks.sh
. "$preflight_lib/gpu_checks.sh"
# shellcheck source=lib/gpu_links.sh
. "$preflight_lib/gpu_links.sh"
# shellcheck source=lib/host_checks.sh
. "$preflight_lib/host_checks.sh"
# shellcheck source=lib/storage_checks.sh
. "$preflight_lib/storage_checks.sh"
# shellcheck source=lib/leftover_checks.sh
. "$preflight_lib/leftover_checks.sh"

CHECK_NAMES=(engine image gpu_count gpu_model gpu_memory gpu_processes gpu_errors gpu_links rdma data log_dir free_space clock
  limits leftovers versions)

# check_roots: where the checks look. %n in the folders of rehearsals is the node's name.
check_roots() {
  check_sys=${ORCH_SYS_ROOT:-/sys} check_proc=${ORCH_PROC_ROOT:-/proc} check_dev=${ORCH_DEV_ROOT:-/dev}
  check_sys=${check_sys//%n/$node} check_proc=${check_proc//%n/$node} check_dev=${check_dev//%n/$node}
  check_host=${ORCH_TUNABLES_ROOT:-} check_run=${ORCH_RUN_ROOT:-/run}
  check_host=${check_host//%n/$node} check_run=${check_run//%n/$node}
  smi_path=${ORCH_SMI_PATH:-}
  smi_path=${smi_path//%n/$node}
  CHECK_S=${PREFLIGHT_CHECK_S:-10}
}

# run_checks: run all checks of this node and report a row for each. Call it in a subshell where it may be ended: it takes
# its checks with it when that subshell gets TERM, INT or HUP.
run_checks() {
  local row fd job name limit_ms left kind pid names text seconds ended=0
  local -A told=() running=()
  check_roots
  for name in "${CHECK_NAMES[@]}"; do
    is_wanted "$name" || { told[$name]=1; report_check "$name" skip 0 "switched off (preflight.skip)"; }
  done
  plan_jobs
  exec {fd}< <(start_jobs)
  if ((BASHPID != $$)); then
    trap 'end_jobs' EXIT
    trap 'exit 143' TERM INT HUP
  fi
  now_ms
  limit_ms=$((NOW_MS + CHECK_S * 1000))
  while :; do
    now_ms
    left=$((limit_ms - NOW_MS))
    ((left > 0)) || break
    printf -v seconds '%d.%03d' $((left / 1000)) $((left % 1000))
    read_line "$fd" "$seconds"
    case $? in
      1) ended=1; break ;;
      2) continue ;;
    esac
    IFS=$'\x1f' read -r kind name text _ <<<"$LINE"
    case $kind in
      job) running[$name]=1 ;;
      end) unset "running[$name]" ;;
      same) report same "$name" ;;
      check) told[$name]=1; IFS=$'\x1f' read -r _ name kind left text row <<<"$LINE"; report_check "$name" "$kind" "$left" "$text" "$row" ;;
    esac
  done
  end_jobs
  exec {fd}<&-
  for name in "${CHECK_NAMES[@]}"; do
    [[ -z ${told[$name]:-} ]] || continue
    if ((ended == 1)); then
      report_check "$name" fail 0 "the check ended without an answer" "look into hold.log of this node, or leave it out: preflight.skip"
    else
      no_answer "$name"
      report_check "$name" fail "$((CHECK_S * 1000))" "no answer within $CHECK_S s" "$REMEDY"
    fi
  done
  if ((BASHPID != $$)); then trap - EXIT TERM INT HUP; fi
}

is_wanted() { # CHECK
  [[ " ${PREFLIGHT_SKIP[*]:-} " != *" $1 "* ]]
}

no_answer() { # CHECK: set REMEDY
  case $1 in
    gpu_*) REMEDY="the GPU driver or its tool hangs: look at dmesg, reboot the node" ;;
    data | log_dir | free_space) REMEDY="a file system does not answer: look at the mounts and their server" ;;
    rdma) REMEDY="the network driver hangs: look at dmesg, reboot the node" ;;
    leftovers) REMEDY="the container engine or Slurm does not answer: restart ${ENGINE:-it}" ;;
    *) REMEDY="look at the node's load and dmesg" ;;
  esac
}

# report_check NAME VERDICT MS TEXT [REMEDY]: a row to the loop. srun keeps a line whole only up to about a kilobyte.
report_check() {
  local verdict=$2 text remedy
  if [[ $verdict == fail && " ${PREFLIGHT_WARN[*]:-} " == *" $1 "* ]]; then verdict=warn; fi
  shortened 480 "$4"; text=$SHORT
  shortened 240 "${5:-}"; remedy=$SHORT
  report check "$1"$'\x1f'"$verdict"$'\x1f'"$3"$'\x1f'"$text"$'\x1f'"$remedy"
}

# shortened BYTES TEXT: set SHORT to the text in one line of at most so many bytes, no character cut in half.
shortened() {
  local LC_ALL=C
  SHORT=${2//[[:cntrl:]]/ }
  ((${#SHORT} > $1)) || return 0
  SHORT=${SHORT:0:$1-3}
  while [[ $SHORT == *[$'\x80'-$'\xff'] ]]; do SHORT=${SHORT%?}; done
  SHORT+=...
}

# ---- jobs ----------------------------------------------------------------------------------------------------------

# plan_jobs: set JOBS to "FUNCTIONS:CHECKS". What only reads small files of the kernel shares a process. GPU tools run side by
# side: each takes a second or two to start.
plan_jobs() {
  local gpu=(gpu_identity gpu_metrics gpu_processes gpu_links) job kept=()
  find_smi
  JOBS=("engine_check image_check clock_check limits_check versions_check:engine image clock limits versions"
    "log_dir_check:log_dir" "data_check:data" "space_check:free_space" "rdma_check:rdma" "leftovers_check:leftovers")
  if [[ -z $SMI_AMD$SMI_ROCM ]]; then
    JOBS+=("${gpu[*]}:gpu_count gpu_model gpu_memory gpu_processes gpu_errors gpu_links")
  else
    JOBS+=("gpu_identity:gpu_count gpu_model" "gpu_metrics:gpu_memory gpu_errors" "gpu_processes:gpu_processes" "gpu_links:gpu_links")
  fi
  for job in "${JOBS[@]}"; do ! any_wanted "${job#*:}" || kept+=("$job"); done
  JOBS=("${kept[@]}")
}

any_wanted() { # CHECKS
  local name
  for name in $1; do ! is_wanted "$name" || return 0; done
  return 1
}

# start_jobs: the jobs write rows to one pipe, which ends when the last of them does. `set -m` gives each a process group of
# its own, so that a tool can be ended with its children.
start_jobs() {
  local job
  # What hangs for ever must not hold the container's input or the step's output open.
  [[ -z ${container_input:-} ]] || exec {container_input}>&- {container_output}>&-
  exec </dev/null 2>/dev/null
  set -m
  for job in "${JOBS[@]}"; do
    run_job "$job" &
  done
}

run_job() { # FUNCTIONS:CHECKS
  local function
  # By itself, so that it comes before its end.
  printf 'job\x1f%s\n' "$BASHPID"
  now_ms
  JOB_MS=$NOW_MS
  JOB_DEADLINE_MS=$((NOW_MS + CHECK_S * 1000 - 700))
  for function in ${1%%:*}; do "$function"; done
  printf 'end\x1f%s\n' "$BASHPID"
}

# end_jobs: whatever still runs is ended with all its children, and not waited for.
end_jobs() {
  local pid
  for pid in "${!running[@]}"; do kill -KILL -- "-$pid"; done
  running=()
} 2>/dev/null

# tell CHECK VERDICT TEXT [REMEDY]: what a check found. One write, short enough for the pipe to keep it whole.
tell() {
  local row
  is_wanted "$1" || return 0
  now_ms
  shortened 900 "$3"; row=$SHORT
  shortened 400 "${4:-}"
  printf '%s\n' "check"$'\x1f'"$1"$'\x1f'"$2"$'\x1f'"$((NOW_MS - JOB_MS))"$'\x1f'"$row"$'\x1f'"$SHORT"
  JOB_MS=$NOW_MS
}

tell_same() { # NAME VALUE
  printf 'same\x1f%s=%s\n' "$1" "$2"
}

# time_left: whether a check that looks again still has time to say what it sees.
time_left() {
  now_ms
  ((NOW_MS < JOB_DEADLINE_MS))
}

# nap SECONDS: wait without starting a process each time.
nap() {
  [[ -n ${nap_fd:-} ]] || exec {nap_fd}<> <(:)
  read -r -t "$1" -u "$nap_fd" _
}

# listed WORD...: set LISTED to the first six of them with commas, and how many more there are.
listed() {
  printf -v LISTED '%s, ' "${@:1:6}"
  LISTED=${LISTED%, }
  (($# <= 6)) || LISTED+=" and $(($# - 6)) more"
}

# value_of FILE: set VALUE to the first line of a small file, "" when there is none.
value_of() {
  VALUE=""
  { IFS= read -r VALUE <"$1"; } 2>/dev/null
  [[ -n $VALUE ]]
}
