# shellcheck shell=bash
# The logic of runtime_tunables.sh; the profile (KNOBS) stands before it. Bash builtins as far as possible: there
# is a file per processor, and `watch` looks at all of them before and after each benchmark run.
#
# Environment: ORCH_OWNER_PID   the process that the settings belong to; 0: nobody's, they stay until `revert`
#              ORCH_OWNER_S     seconds until nobody's settings count as left behind; 0: no such limit
#              ORCH_LEASE_S     how long after its owner's end the watchdog may take to revert
# For tests: ORCH_TUNABLES_ROOT, a folder that stands for / of the host, and ORCH_TUNABLES_STATE; %a in them is the
# address that an SSH login came in on.
#
# SC2034, SC2154: shared with the part above. SC2015: A && B || C is meant as it is. SC2317: functions are called by name.
# shellcheck disable=SC2034,SC2154,SC2015,SC2317
set -uo pipefail

read -r _ _ tune_address _ <<<"${SSH_CONNECTION:-}"
TUNE_ROOT=${ORCH_TUNABLES_ROOT:-}
TUNE_ROOT=${TUNE_ROOT//%a/$tune_address}
TUNE_STATE=${ORCH_TUNABLES_STATE:-/run/orchestrator-tunables}
TUNE_STATE=${TUNE_STATE//%a/$tune_address}
LEASE_S=${ORCH_LEASE_S:-15}
SEPARATOR=$'\x1f' # unlike tabs, two of them have an empty cell between them

# ---- looking -------------------------------------------------------------------------------------------------------

# read_value FILE: set KNOB_VALUE; of `always [madvise] never` the word in brackets.
read_value() {
  KNOB_VALUE=""
  # `read` instead of $(<...): no process per file.
  { IFS= read -r KNOB_VALUE <"$1" || [[ -n $KNOB_VALUE ]]; } 2>/dev/null || return 1
  # Tabs separate the journal's cells; the kernel takes either.
  KNOB_VALUE=${KNOB_VALUE//$'\t'/ }
  if [[ $KNOB_VALUE == *\[*\]* ]]; then
    KNOB_VALUE=${KNOB_VALUE#*\[}
    KNOB_VALUE=${KNOB_VALUE%%\]*}
  fi
}

# load_knobs: take the profile apart and find the files, once per process.
load_knobs() {
  local line i=0 file
  ((${#KNOB_NAME[@]} == 0)) || return 0
  for line in "${KNOBS[@]}"; do
    IFS=$'\t' read -r "KNOB_NAME[i]" "KNOB_KIND[i]" "KNOB_MODE[i]" "KNOB_TARGET[i]" "KNOB_WANTED[i]" "KNOB_NEED[i]" <<<"$line"
    KNOB_FIRST[i]=${#KNOB_FILES[@]}
    if [[ ${KNOB_KIND[i]} == @(file|gpu) ]]; then
      # shellcheck disable=SC2231
      for file in "$TUNE_ROOT"${KNOB_TARGET[i]}; do [[ ! -e $file ]] || KNOB_FILES+=("$file"); done
    fi
    KNOB_COUNT[i]=$((${#KNOB_FILES[@]} - KNOB_FIRST[i]))
    ((i += 1))
  done
}
KNOB_NAME=() KNOB_KIND=() KNOB_MODE=() KNOB_TARGET=() KNOB_WANTED=() KNOB_NEED=() KNOB_FILES=() KNOB_FIRST=() KNOB_COUNT=()

# look INDEX: set KNOB_FOUND to the values found, each once. Status 0: it holds; 1: it does not; 2: this host lacks it.
look() {
  local wanted="|${KNOB_WANTED[$1]}|"
  KNOB_FOUND=""
  case ${KNOB_KIND[$1]} in
    file | gpu) look_at_files "$1" "$wanted"; return ;;
    module) look_at_module "${KNOB_TARGET[$1]%!}" ;;
    service) look_at_service "${KNOB_TARGET[$1]}" ;;
    cmdline) look_at_command_line "${KNOB_WANTED[$1]}" ;;
    acs) look_at_acs ;;
    numa_per_socket) look_at_numa ;;
  esac || return 2
  [[ $wanted == *"|$KNOB_FOUND|"* ]]
}

look_at_files() { # INDEX |WANTED|
  local file value last=$'\n' status=0
  ((KNOB_COUNT[$1] > 0)) || return 2
  # The hot loop: two files per processor. read_value's work is done here, without a call and a redirection per file.
  for file in "${KNOB_FILES[@]:KNOB_FIRST[$1]:KNOB_COUNT[$1]}"; do
    value=""
    IFS= read -r value <"$file" || [[ -n $value ]] || value="?"
    # Hundreds of equal values are the rule.
    [[ $value != "$last" ]] || continue
    last=$value
    value=${value//$'\t'/ }
    if [[ $value == *\[*\]* ]]; then
      value=${value#*\[}
      value=${value%%\]*}
    fi
    [[ $2 == *"|$value|"* ]] || status=1
    [[ ",$KNOB_FOUND," == *",$value,"* ]] || KNOB_FOUND+="${KNOB_FOUND:+,}$value"
  done 2>/dev/null
  return "$status"
}

look_at_module() { # NAME
  KNOB_FOUND=loaded
  [[ ! -d $TUNE_ROOT/sys/module/${1//-/_} ]] || return 0
  KNOB_FOUND=absent
  modprobe --dry-run --quiet "$1" 2>/dev/null
}

# systemd keeps a control group for every unit that is active, and only for those: no process needed to see it.
look_at_service() { # UNIT
  local file unit=$1.service
  [[ -d $TUNE_ROOT/run/systemd/system ]] || return 2
  KNOB_FOUND=active
  for file in "$TUNE_ROOT"/sys/fs/cgroup/{,systemd/}system.slice/"$unit"; do [[ ! -d $file ]] || return 0; done
  KNOB_FOUND=inactive
  for file in "$TUNE_ROOT"/{etc,run,usr/lib,lib}/systemd/system/"$unit"; do [[ ! -e $file ]] || return 0; done
  return 2
}

# look_at_command_line WORD|WORD: the first of the words that the kernel was started with, else what it has instead.
look_at_command_line() {
  local words=() accepted=() word one
  read -r -a words <"$TUNE_ROOT/proc/cmdline" || return 2
  IFS='|' read -r -a accepted <<<"$1"
  KNOB_FOUND=absent
  for one in "${accepted[@]}"; do
    for word in "${words[@]}"; do
      if [[ $word == "$one" ]]; then KNOB_FOUND=$word; return 0; fi
      [[ ${word%%=*} != "${one%%=*}" ]] || KNOB_FOUND=$word
    done
  done
} 2>/dev/null

# Access control services of PCIe bridges; with redirection on, traffic between a GPU and a NIC goes by way of the root
# complex. Control register at +6 of extended capability 0x000d, its bits 0x1d redirect. One process per bridge.
look_at_acs() {
  local device class hex at header id control on="" seen=0
  for device in "$TUNE_ROOT"/sys/bus/pci/devices/*; do
    { read -r class <"$device/class"; } 2>/dev/null && [[ $class == 0x0604* ]] || continue
    hex=$(od -An -v -tx1 -w4096 -N4096 "$device/config" 2>/dev/null) || continue
    hex=${hex// /}
    # Without root only the first 64 bytes can be read.
    ((${#hex} >= 8192)) || continue
    at=256 seen=1
    while ((at >= 256 && at < 4096)); do
      header=${hex:at * 2:8}
      header=$((16#${header:6:2}${header:4:2}${header:2:2}${header:0:2}))
      id=$((header & 0xffff))
      ((header != 0)) || break
      if ((id == 0x0d)); then
        control=$((16#${hex:(at + 7) * 2:2}${hex:(at + 6) * 2:2}))
        (((control & 0x1d) == 0)) || on+="${on:+,}${device##*/}"
      fi
      # The list only runs forward; anything else is damage.
      ((header >> 20 > at)) || break
      at=$((header >> 20))
    done
  done
  ((seen == 1)) || return 2
  KNOB_FOUND=${on:+on: $on}
  KNOB_FOUND=${KNOB_FOUND:-off}
}

look_at_numa() {
  local file nodes=0
  local -A sockets=()
  for file in "$TUNE_ROOT"/sys/devices/system/node/node[0-9]*/cpulist; do
    { read -r KNOB_VALUE <"$file"; } 2>/dev/null && [[ -n $KNOB_VALUE ]] && ((nodes += 1))
  done
  for file in "$TUNE_ROOT"/sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id; do
    read_value "$file" && [[ -n $KNOB_VALUE ]] && sockets[$KNOB_VALUE]=1
  done
  ((nodes > 0 && ${#sockets[@]} > 0)) || return 2
  KNOB_FOUND=$((nodes / ${#sockets[@]}))
}

# tune_watch: stay, and say for every line of the input whether the knobs hold that can change without a reboot and cost no
# process to see; first, once, what only a boot changes. An empty line ends an answer, the end of the input the process.
tune_watch() {
  # A signal to the whole job must not end it before the node has looked for the last time.
  trap '' TERM INT HUP
  load_knobs
  tell_knobs cmdline numa_per_socket
  while IFS= read -r _; do tell_knobs file gpu service; done
}

# tell_knobs KIND...: lines of name, found, wanted, need, mode and `holds`, `fails` or `unsupported`; all in one write.
tell_knobs() {
  local i word text=""
  for i in "${!KNOB_NAME[@]}"; do
    [[ " $* " == *" ${KNOB_KIND[i]} "* ]] || continue
    look "$i"
    case $? in
      0) word=holds ;;
      2) word=unsupported KNOB_FOUND=unsupported ;;
      *) word=fails ;;
    esac
    text+="${KNOB_NAME[i]}"$'\t'"${KNOB_FOUND//[[:cntrl:]]/ }"$'\t'"${KNOB_WANTED[i]}"$'\t'"${KNOB_NEED[i]}"$'\t'"${KNOB_MODE[i]}"$'\t'"$word"$'\n'
  done
  printf '%s\n' "$text"
}

# ---- rows ----------------------------------------------------------------------------------------------------------

# row INDEX BEFORE AFTER WORD
row() {
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "${KNOB_NAME[$1]}" "${KNOB_WANTED[$1]}" "${2:--}" "${3:--}" "$4" "${KNOB_NEED[$1]}" \
    "$ACTION" "$TUNE_TIME"
}

# complete_row: the last row of an apply, and of a revert after which nothing is left to put back.
# Exit status 0 does not prove that: a shell that got only a part of the script exits with it, too.
complete_row() {
  printf '*\t-\t-\t-\tcomplete\t-\t%s\t%s\n' "$ACTION" "$TUNE_TIME"
}

# judge INDEX BEFORE: look again, print the row, and count a required knob that does not hold.
judge() {
  local word=ok
  look "$1"
  case $? in
    1) word=failed ;;
    2) word=unsupported ;;
  esac
  [[ $word != failed || ${KNOB_NEED[$1]} != required ]] || TUNE_STATUS=1
  row "$1" "$2" "${KNOB_FOUND:--}" "$word"
}

tune_verify() {
  local i
  load_knobs
  for i in "${!KNOB_NAME[@]}"; do judge "$i" -; done
}

tune_plan() {
  local i word
  load_knobs
  for i in "${!KNOB_NAME[@]}"; do
    look "$i"
    case $? in
      0) word=ok ;;
      2) word=unsupported ;;
      *) word=failed; [[ ${KNOB_MODE[i]} != set ]] || word=change ;;
    esac
    row "$i" "${KNOB_FOUND:--}" - "$word"
  done
}

# ---- the host's lock, owners and journal ---------------------------------------------------------------------------

tune_fail() {
  printf 'runtime_tunables.sh: %s\n' "$*" >&2
  TUNE_STATUS=3
  return 1
}

# lock_state: the lock is a file in a folder that goes away with the last owner, so it may have been replaced meanwhile.
lock_state() { # [EXISTING]: with a word, fail when there is no folder instead of making it
  command -v flock >/dev/null || { tune_fail "the program flock is not on this host's PATH; it comes with util-linux"; return; }
  while :; do
    if [[ ! -d $TUNE_STATE/owners ]]; then # asked once: a revert may move it away at any moment
      [[ -z ${1:-} ]] || return 1
      mkdir -p "$TUNE_STATE/owners" 2>/dev/null || { tune_fail "cannot make $TUNE_STATE; root is needed"; return; }
    fi
    { exec {tune_lock}>"$TUNE_STATE/lock"; } 2>/dev/null || { [[ -d $TUNE_STATE ]] || continue; tune_fail "cannot write to $TUNE_STATE; root is needed"; return; }
    await_lock || { exec {tune_lock}>&-; return 1; }
    [[ ! /dev/fd/$tune_lock -ef $TUNE_STATE/lock ]] || return 0
    exec {tune_lock}>&-
  done
}

# await_lock: if flock is ended by a signal, that does not mean that another process holds the lock.
await_lock() {
  local try status=0
  for try in {1..3}; do
    flock -w 60 "$tune_lock" && return
    status=$?
    ((status > 128)) && continue
    tune_fail "another process has held the lock $TUNE_STATE/lock for a minute"
    return
  done
  tune_fail "flock was ended by signal $((status - 128))"
}

# tune_now: set TUNE_NOW_S and TUNE_TIME (milliseconds).
tune_now() {
  printf -v TUNE_NOW_S '%(%s)T' -1
  TUNE_TIME=${EPOCHREALTIME:-${TUNE_NOW_S}.000000} # bash before 5.0 has no EPOCHREALTIME
  TUNE_TIME=${TUNE_TIME//[^0-9]/}
  TUNE_TIME=${TUNE_TIME:0:${#TUNE_TIME}-3}
}

# start_of PID: set START to its start time in ticks, so that a recycled pid is not taken for the owner. Status 1: gone.
start_of() {
  local stat
  START=""
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  stat=${stat##*) }
  read -r -a stat <<<"$stat"
  [[ ${stat[0]} != [ZX] ]] || return 1
  START=${stat[19]}
}

# read_owner FILE: set pid, start, until and state: alive, gone (its process) or over (its time). A process counts as long as
# it lives: the end of a job may move. Status 1 for a file with anything but three numbers: arithmetic would evaluate it.
read_owner() {
  local number="[0-9]{1,15}"
  { read -r pid start until <"$1"; } 2>/dev/null && [[ "$pid $start $until" =~ ^$number\ $number\ $number$ ]] || return 1
  state=alive
  if ((pid != 0)); then
    start_of "$pid" && [[ $START == "$start" ]] || state=gone
  elif ((until != 0 && TUNE_NOW_S >= until)); then
    state=over
  fi
}

# living_owners [EXCEPT]: forget owners that are gone; set OWNERS to the others. An owner is a file: pid, start, end of its time.
living_owners() {
  local file pid start until state
  OWNERS=()
  tune_now
  for file in "$TUNE_STATE"/owners/*; do
    read_owner "$file" && [[ ${file##*/} != "${1:-}" ]] || continue
    if [[ $state == alive ]]; then
      OWNERS+=("${file##*/}")
    else
      rm -f "$file"
    fi
  done
}

# read_journal: set JOURNAL to its complete lines (kind, knob, target, before, wanted). What stands after the last `end` was
# cut off while it was written, before any setting was touched.
read_journal() {
  local line boot="" begun="" batch=() now=""
  JOURNAL=()
  [[ -e $TUNE_STATE/journal ]] || return 0
  { read -r now </proc/sys/kernel/random/boot_id; } 2>/dev/null
  while IFS= read -r line; do
    case $line in
      end) JOURNAL+=("${batch[@]}") batch=() boot=$begun ;;
      boot$'\t'*) begun=${line#*$'\t'} ;;
      *) batch+=("$line") ;;
    esac
  done <"$TUNE_STATE/journal"
  # A reboot has put everything back already.
  if [[ -n $boot && $boot != "$now" ]]; then JOURNAL=(); rm -f "$TUNE_STATE/journal"; fi
}

# drop_stale_journal: if there is no owner and every value of the journal holds, a revert was cut off
# at its end. Values that change from now on belong to the host.
drop_stale_journal() {
  local line kind target before
  ((${#OWNERS[@]} == 0 && ${#JOURNAL[@]} > 0)) || return 0
  for line in "${JOURNAL[@]}"; do
    IFS=$SEPARATOR read -r kind _ target before _ <<<"${line//$'\t'/$SEPARATOR}"
    found_at "$kind" "$target"
    [[ $KNOB_VALUE == "$before" ]] || return 0
  done
  JOURNAL=()
  rm -f "$TUNE_STATE/journal"
}

# remember: write what is not in the journal yet, and have it on the disk before anything is changed.
remember() {
  local i file line new="" boot="" target
  local -A known=()
  for line in "${JOURNAL[@]}"; do
    IFS=$SEPARATOR read -r _ _ target _ <<<"${line//$'\t'/$SEPARATOR}"
    known[$target]=$line
  done
  for i in "${!KNOB_NAME[@]}"; do
    [[ ${KNOB_MODE[i]} == set ]] || continue
    if ((KNOB_COUNT[i] > 0)); then
      for file in "${KNOB_FILES[@]:KNOB_FIRST[i]:KNOB_COUNT[i]}"; do
        [[ -z ${known[$file]+set} ]] || continue
        read_value "$file" || continue
        new+="${KNOB_KIND[i]}"$'\t'"${KNOB_NAME[i]}"$'\t'"$file"$'\t'"$KNOB_VALUE"$'\t'"${KNOB_WANTED[i]}"$'\n'
      done
    elif [[ ${KNOB_KIND[i]} == @(module|service) && ${KNOB_TARGET[i]} != *! && -z ${known[${KNOB_TARGET[i]}]+set} ]]; then
      look "$i"
      (($? < 2)) || continue
      new+="${KNOB_KIND[i]}"$'\t'"${KNOB_NAME[i]}"$'\t'"${KNOB_TARGET[i]}"$'\t'"$KNOB_FOUND"$'\t'"${KNOB_WANTED[i]}"$'\n'
    fi
  done
  [[ -n $new ]] || return 0
  { read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
  { printf 'boot\t%s\n%send\n' "$boot" "$new" >>"$TUNE_STATE/journal" && sync "$TUNE_STATE/journal"; } 2>/dev/null ||
    tune_fail "cannot write $TUNE_STATE/journal; nothing was changed"
}

# ---- setting and putting back --------------------------------------------------------------------------------------

# write_target KIND TARGET VALUE
write_target() {
  case $1 in
    file | gpu)
      read_value "$2" && [[ $KNOB_VALUE == "$3" ]] && return 0
      printf '%s\n' "$3" >"$2"
      [[ $1 == file ]] || { read_value "$2" && [[ $KNOB_VALUE == "$3" ]]; } || set_gpu "$2" "$3"
      ;;
    # A module with a `!` is not in the journal and stays: unloading a GPU's driver is never right.
    module) if [[ $3 == loaded ]]; then modprobe --quiet "${2%!}"; else modprobe --quiet --remove "$2"; fi ;;
    service) if [[ $3 == active ]]; then systemctl start "$2"; else systemctl stop "$2"; fi ;;
  esac
} 2>/dev/null >/dev/null </dev/null

# set_gpu FILE VALUE: where the driver does not take the value from its file, its tool may know how.
set_gpu() {
  local device=${1%/*} option
  device=${device##*/}
  case ${1##*/} in
    power_dpm_force_performance_level) option=perf-level ;;
    current_compute_partition) option=compute-partition ;;
    current_memory_partition) option=memory-partition ;;
    *) return 1 ;;
  esac
  amd-smi set --gpu "$device" "--$option" "${2^^}" || rocm_smi "$option" "$device" "$2"
}

# rocm-smi numbers the devices in the order of their addresses.
rocm_smi() { # OPTION DEVICE VALUE
  local path i=0
  for path in "$TUNE_ROOT"/sys/bus/pci/drivers/amdgpu/*:*:*.*; do
    [[ ${path##*/} != "$2" ]] || break
    ((i += 1))
  done
  case $1 in
    perf-level) rocm-smi -d "$i" --setperflevel "$3" ;;
    compute-partition) rocm-smi -d "$i" --setcomputepartition "$3" ;;
    memory-partition) rocm-smi -d "$i" --setmemorypartition "$3" ;;
  esac
}

# foreign_claim INDEX: whether another living owner holds the knob at another value, which must not be changed under it.
foreign_claim() {
  local line name wanted
  ((${#OWNERS[@]} > 0)) || return 1
  for line in "${JOURNAL[@]}"; do
    IFS=$SEPARATOR read -r _ name _ _ wanted <<<"${line//$'\t'/$SEPARATOR}"
    [[ $name != "${KNOB_NAME[$1]}" || $wanted == "${KNOB_WANTED[$1]}" ]] || return 0
  done
  return 1
}

set_knob() { # INDEX
  local before file
  look "$1" && { row "$1" "$KNOB_FOUND" "$KNOB_FOUND" ok; return; }
  before=${KNOB_FOUND:--}
  if [[ ${KNOB_MODE[$1]} == set ]] && ! foreign_claim "$1"; then
    if ((KNOB_COUNT[$1] > 0)); then
      for file in "${KNOB_FILES[@]:KNOB_FIRST[$1]:KNOB_COUNT[$1]}"; do
        read_value "$file" && write_target "${KNOB_KIND[$1]}" "$file" "${KNOB_WANTED[$1]}"
      done
    elif [[ ${KNOB_KIND[$1]} == @(module|service) && $before != - ]]; then
      write_target "${KNOB_KIND[$1]}" "${KNOB_TARGET[$1]}" "${KNOB_WANTED[$1]}"
    fi
  fi
  judge "$1" "$before"
}

tune_apply() { # OWNER
  local i pid=${ORCH_OWNER_PID:-$PPID} until=0
  [[ $pid${ORCH_OWNER_S:-0} != *[!0-9]* ]] || { tune_fail "ORCH_OWNER_PID and ORCH_OWNER_S are numbers"; return; }
  load_knobs
  lock_state || return
  rm_owner "$1"
  living_owners
  read_journal
  drop_stale_journal
  # Without another owner, the journal was left behind: the values in it are the host's own.
  remember || return
  START=0
  ((pid == 0)) || start_of "$pid" || { tune_fail "the owner's process $pid is gone"; return; }
  ((${ORCH_OWNER_S:-0} == 0)) || until=$((TUNE_NOW_S + ORCH_OWNER_S))
  printf '%s %s %s\n' "$pid" "$START" "$until" >"$TUNE_STATE/owners/$1" || { tune_fail "cannot write to $TUNE_STATE"; return; }
  ((pid == 0 && until == 0)) || start_watchdog
  for i in "${!KNOB_NAME[@]}"; do set_knob "$i"; done
  complete_row
}

rm_owner() {
  [[ -z $1 || ! -e $TUNE_STATE/owners/$1 ]] || rm -f "$TUNE_STATE/owners/$1"
}

tune_revert() { # OWNER, or "" for all
  [[ ! -d $TUNE_STATE ]] || leave_state "$1"
  ((TUNE_STATUS > 0)) || complete_row
}

leave_state() { # OWNER, or "" for all
  lock_state || return
  if [[ -z $1 ]]; then rm -f "$TUNE_STATE"/owners/*; fi
  living_owners "$1"
  if ((${#OWNERS[@]} > 0)); then
    rm_owner "$1"
    printf 'runtime_tunables.sh: kept for %s\n' "${OWNERS[*]}" >&2
    return 0
  fi
  put_back || rm_owner "$1"
}

# put_back: restore the journal in reverse order. A value that cannot be put back stays in it for the next try.
put_back() {
  local i kind knob target before wanted word failed="" boot=""
  read_journal
  for ((i = ${#JOURNAL[@]} - 1; i >= 0; i--)); do
    IFS=$SEPARATOR read -r kind knob target before wanted <<<"${JOURNAL[i]//$'\t'/$SEPARATOR}"
    found_at "$kind" "$target"
    local found=$KNOB_VALUE
    write_target "$kind" "$target" "$before"
    found_at "$kind" "$target"
    word=ok
    if [[ $KNOB_VALUE != "$before" ]]; then
      word=failed TUNE_STATUS=1
      failed="${JOURNAL[i]}"$'\n'"$failed"
    fi
    # One row per file: what is restored is what was there, file by file.
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$knob" "$before" "${found:--}" "${KNOB_VALUE:--}" "$word" required "$ACTION" "$TUNE_TIME" "$target"
  done
  if [[ -n $failed ]]; then
    { read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
    printf 'boot\t%s\n%send\n' "$boot" "$failed" >"$TUNE_STATE/journal.new" && sync "$TUNE_STATE/journal.new" && mv -f "$TUNE_STATE/journal.new" "$TUNE_STATE/journal"
    return 1
  fi
  forget
}

# forget: remove the state when every value is back, in one step. After a kill half-way, a journal that
# is still there would be put back once more, over the values that an operator has set since. The
# watchdog ends last, to complete a revert that is cut off here.
forget() {
  local pid="" start="" folder
  { read -r pid start <"$TUNE_STATE/watchdog"; } 2>/dev/null
  ! holds_only_state || mv -T "$TUNE_STATE" "$TUNE_STATE.reverted-$$" 2>/dev/null
  # A mount point cannot be moved.
  [[ ! /dev/fd/$tune_lock -ef $TUNE_STATE/lock ]] || remove_state "$TUNE_STATE"
  if [[ -e $TUNE_STATE/journal && /dev/fd/$tune_lock -ef $TUNE_STATE/lock ]]; then
    tune_fail "cannot remove $TUNE_STATE/journal"
    return
  fi
  for folder in "$TUNE_STATE".reverted-*; do
    [[ ! -d $folder || -L $folder ]] || remove_state "$folder"
  done
  end_watchdog "$pid" "$start"
}

# holds_only_state: succeed if no other program has a file in the state folder; such a file stays.
holds_only_state() {
  local path
  [[ ! -L $TUNE_STATE ]] || return
  for path in "$TUNE_STATE"/{*,.[!.]*}; do
    [[ ${path##*/} == @(journal|journal.new|watchdog|lock|owners) || ! -e $path ]] || return
  done
}

remove_state() { # FOLDER: the journal first, the lock last
  rm -f "$1"/{journal,journal.new,watchdog} "$1"/owners/* "$1/lock"
  rmdir "$1/owners" "$1" 2>/dev/null
}

found_at() { # KIND TARGET: set KNOB_VALUE
  case $1 in
    module) look_at_module "$2"; KNOB_VALUE=$KNOB_FOUND ;;
    service) look_at_service "$2"; KNOB_VALUE=$KNOB_FOUND ;;
    *) read_value "$2" || KNOB_VALUE="?" ;;
  esac
}

# ---- the watchdog --------------------------------------------------------------------------------------------------

# It reverts when every owner is gone without a word: the job's step was killed, or its time is over. It is a process of its
# own session with no descriptor of the job, under systemd where there is one: a Slurm that tracks processes by control
# group ends everything that the step started.
start_watchdog() {
  local pid start text
  { read -r pid start <"$TUNE_STATE/watchdog"; } 2>/dev/null && start_of "$pid" && [[ $START == "$start" ]] && return 0
  text=$(declare -p TUNE_STATE TUNE_ROOT LEASE_S SEPARATOR; declare -f; printf 'orchestrator_tunables_watchdog\n')
  # systemd replaces variables in the words of a command, and `$$` by `$`.
  if [[ -d $TUNE_ROOT/run/systemd/system ]] && systemd-run --quiet --collect --unit="orchestrator-tunables-$$" \
    bash -c "${text//\$/\$\$}" </dev/null >/dev/null 2>&1; then
    return 0
  fi
  # Closed one by one: a pipe of the step that stays open here would keep the step from ending.
  (
    cd /
    for pid in /proc/"$BASHPID"/fd/*; do
      pid=${pid##*/}
      ((pid <= 2)) || eval "exec $pid>&-"
    done
    exec setsid bash -c "$text" </dev/null >/dev/null 2>&1
  ) </dev/null >/dev/null 2>&1 &
  disown "$!"
}

end_watchdog() { # PID START
  [[ -n $1 && $1 != "$$" ]] && start_of "$1" && [[ $START == "$2" ]] || return 0
  # It ignores the other signals, like the script that started it.
  kill -KILL "$1" 2>/dev/null
  return 0
}

orchestrator_tunables_watchdog() {
  local clock registered=""
  trap '' HUP
  ACTION=watchdog TUNE_STATUS=0
  # Its own pipe, to wait on without a process.
  exec {clock}<> <(:)
  while :; do
    if lock_state existing; then
      keep_watch || return 0
      exec {tune_lock}>&-
    elif [[ ! -d $TUNE_STATE/owners ]]; then
      return 0 # reverted already: the folder must not come back
    fi
    read -r -t "$LEASE_S" -u "$clock" _
  done
}

# keep_watch: with the lock held, revert if every owner is gone. Status 1: nothing is left to watch.
keep_watch() {
  local pid="" start=""
  { read -r pid start <"$TUNE_STATE/watchdog"; } 2>/dev/null
  if [[ $pid != "$$" ]]; then
    # Another watchdog is registered, or has been since.
    [[ -z $registered ]] || return
    [[ -z $pid ]] || ! start_of "$pid" || [[ $START != "$start" ]] || return
    start_of $$
    printf '%s %s\n' $$ "$START" >"$TUNE_STATE/watchdog"
    registered=1
  fi
  living_owners
  ((${#OWNERS[@]} > 0)) || ! put_back >/dev/null
}

# ---- status --------------------------------------------------------------------------------------------------------

tune_status() {
  local file pid start until state line kind knob target before wanted
  [[ -d $TUNE_STATE ]] || return 0
  for file in "$TUNE_STATE"/owners/*; do
    read_owner "$file" || continue
    printf 'owner\t%s\t%s\t%s\t%s\n' "${file##*/}" "$state" "$pid" "$until"
  done
  { read -r pid start <"$TUNE_STATE/watchdog"; } 2>/dev/null && start_of "$pid" && [[ $START == "$start" ]] &&
    printf 'watchdog\t%s\n' "$pid"
  read_journal
  for line in "${JOURNAL[@]}"; do
    IFS=$SEPARATOR read -r kind knob target before wanted <<<"${line//$'\t'/$SEPARATOR}"
    found_at "$kind" "$target"
    printf 'remembered\t%s\t%s\t%s\t%s\n' "$knob" "$before" "$KNOB_VALUE" "$target"
  done
  return 0
}

tune_main() {
  TUNE_STATUS=0 ACTION=${1:-}
  # Slurm signals every process of a job, and more than once. The signals are ignored and not caught,
  # so that flock, mv and rm ignore them, too: if those die, the revert stays incomplete.
  [[ $ACTION != @(apply|revert|revert-all) ]] || trap '' TERM INT HUP
  tune_now
  case $ACTION in
    apply | revert)
      if [[ ! ${2:-} =~ ^[A-Za-z0-9_.-]{1,120}$ || $2 == .* ]]; then
        echo "usage: runtime_tunables.sh $1 OWNER (letters, digits, _ . -)" >&2
        exit 2
      fi
      "tune_$1" "$2"
      ;;
    revert-all) tune_revert "" ;;
    plan | verify | status | watch) "tune_$ACTION" ;;
    *)
      echo "usage: runtime_tunables.sh plan | apply OWNER | verify | watch | revert OWNER | revert-all | status" >&2
      exit 2
      ;;
  esac
  exit "$TUNE_STATUS"
}

tune_main "$@"
