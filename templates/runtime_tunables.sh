#!/usr/bin/env bash
# Host settings for the time of a job, put back afterwards:
#
#   runtime_tunables.sh apply OWNER     remember every value, then set
#   runtime_tunables.sh verify          compare with what is wanted; status 1 when one does not hold
#   runtime_tunables.sh revert OWNER    put back what was there before the first owner came
#
# One line per setting: knob, wanted, before, after, ok | failed | unsupported. Needs root (or the site's sudo prefix).
# OWNER is any name. Several jobs on one host share the settings: the last owner to leave puts them back. The values from
# before are in STATE/journal, written and synced before the first change, and lost with a reboot, as the settings are.
set -uo pipefail

STATE=${ORCH_TUNABLES_STATE:-/run/orchestrator-tunables}
# For tests: a folder that stands for / of the host.
ROOT=${ORCH_TUNABLES_ROOT:-}

# knob, file or pattern, wanted value. The settings of the published scripts of rounds 5.0 to 6.0; idle states and
# governor are set through sysfs, which is what cpupower does, so that the tool need not be on the node.
KNOBS=(
  "cpu_idle_state2|/sys/devices/system/cpu/cpu*/cpuidle/state2/disable|1"
  "cpu_governor|/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor|performance"
  "nmi_watchdog|/proc/sys/kernel/nmi_watchdog|0"
  "numa_balancing|/proc/sys/kernel/numa_balancing|0"
  "randomize_va_space|/proc/sys/kernel/randomize_va_space|0"
  "thp_enabled|/sys/kernel/mm/transparent_hugepage/enabled|always"
  "thp_defrag|/sys/kernel/mm/transparent_hugepage/defrag|always"
)

# read_value FILE: set VALUE; of `always [madvise] never` the word in brackets.
read_value() {
  # `read` instead of $(<...): no process per file, and there is a file per processor.
  VALUE=""
  IFS= read -r VALUE <"$1" || [[ -n $VALUE ]] || return 1
  [[ $VALUE =~ \[([^]]+)\] ]] && VALUE=${BASH_REMATCH[1]}
  return 0
}

# each_knob FUNCTION: call FUNCTION knob wanted file... for every knob; no file when this kernel lacks it.
each_knob() {
  local line knob pattern wanted file files status=0
  for line in "${KNOBS[@]}"; do
    IFS='|' read -r knob pattern wanted <<<"$line"
    files=()
    for file in "$ROOT"$pattern; do [[ -e $file ]] && files+=("$file"); done
    "$1" "$knob" "$wanted" "${files[@]}" || status=1
  done
  return "$status"
}

remember() { # knob wanted file...
  local file
  for file in "${@:3}"; do
    read_value "$file" && printf '%s\t%s\n' "$file" "$VALUE"
  done
}

# One line for all files of a knob: the values that occur, each once.
values_of() {
  local file joined=""
  for file in "$@"; do
    read_value "$file" || VALUE="?"
    [[ ",$joined," == *",$VALUE,"* ]] || joined+="${joined:+,}$VALUE"
  done
  VALUE=$joined
}

set_knob() { # knob wanted file...
  local knob=$1 wanted=$2 before after
  shift 2
  if (($# == 0)); then
    printf '%s\t%s\t-\t-\tunsupported\n' "$knob" "$wanted"
    return 0
  fi
  values_of "$@"; before=$VALUE
  local file
  for file in "$@"; do printf '%s' "$wanted" 2>/dev/null >"$file"; done 2>/dev/null
  values_of "$@"; after=$VALUE
  if [[ $after == "$wanted" ]]; then
    printf '%s\t%s\t%s\t%s\tok\n' "$knob" "$wanted" "$before" "$after"
  else
    printf '%s\t%s\t%s\t%s\tfailed\n' "$knob" "$wanted" "$before" "$after"
    return 1
  fi
}

check_knob() { # knob wanted file...
  local knob=$1 wanted=$2 word=ok
  shift 2
  if (($# == 0)); then VALUE=- word=unsupported; else values_of "$@"; fi
  [[ $word == unsupported || $VALUE == "$wanted" ]] || word=failed
  printf '%s\t%s\t-\t%s\t%s\n' "$knob" "$wanted" "$VALUE" "$word"
  [[ $word != failed ]]
}

# An owner is a file with the process that the settings belong to; one whose process is gone does not count any more.
prune_owners() {
  local file pid start
  for file in "$STATE"/owners/*; do
    [[ -e $file ]] || continue
    read -r pid start <"$file"
    [[ $(start_of "$pid") == "$start" ]] || rm -f "$file"
  done
}

start_of() { # PID: its start time in ticks, so that a recycled pid is not taken for the owner
  local stat
  read -r stat <"/proc/$1/stat" || return 1
  stat=${stat##*) }
  read -r -a stat <<<"$stat"
  printf '%s\n' "${stat[19]}"
} 2>/dev/null

apply() { # OWNER
  mkdir -p "$STATE/owners" || return 1
  exec {lock}>"$STATE/lock"
  flock "$lock"
  prune_owners
  if [[ ! -e $STATE/journal ]]; then
    each_knob remember >"$STATE/.journal.tmp" && sync "$STATE/.journal.tmp" && mv "$STATE/.journal.tmp" "$STATE/journal" || return 1
  fi
  # The owner is the process that asked (its parent when sudo stands between).
  printf '%s %s\n' "$OWNER_PID" "$(start_of "$OWNER_PID")" >"$STATE/owners/$1"
  each_knob set_knob
}

revert() { # OWNER
  [[ -d $STATE ]] || return 0
  exec {lock}>"$STATE/lock"
  flock "$lock"
  rm -f "$STATE/owners/$1"
  prune_owners
  local others=("$STATE"/owners/*) lines i file value status=0
  if [[ -e ${others[0]} ]]; then
    echo "kept for ${#others[@]} other owner(s): ${others[*]##*/}"
    return 0
  fi
  [[ -e $STATE/journal ]] || return 0
  mapfile -t lines <"$STATE/journal"
  for ((i = ${#lines[@]} - 1; i >= 0; i--)); do
    IFS=$'\t' read -r file value <<<"${lines[i]}"
    printf '%s' "$value" 2>/dev/null >"$file"
    read_value "$file"
    if [[ $VALUE == "$value" ]]; then
      printf 'reverted\t%s\t%s\n' "$file" "$value"
    else
      printf 'failed\t%s\twanted %s, is %s\n' "$file" "$value" "$VALUE"
      status=1
    fi
  done
  # A value that could not be put back stays in the journal for the next try.
  ((status != 0)) || rm -f "$STATE/journal"
  return "$status"
}

OWNER_PID=${ORCH_OWNER_PID:-$PPID}
case ${1:-} in
  apply | revert)
    [[ ${2:-} =~ ^[A-Za-z0-9_.-]+$ ]] || { echo "usage: runtime_tunables.sh $1 OWNER (letters, digits, _ . -)" >&2; exit 2; }
    "$1" "$2"
    ;;
  verify) each_knob check_knob ;;
  *)
    echo "usage: runtime_tunables.sh apply OWNER | verify | revert OWNER" >&2
    exit 2
    ;;
esac
