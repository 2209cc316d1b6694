# shellcheck shell=bash
# One node before and after a run: its tunables, the facts that can move time or convergence, its caches. Sourced by
# lib/node.sh; lib/before_run.sh is the side of the loop. Rules and files: docs/tuning.md. Nothing here starts a process per
# file or per run, except `sync` and the site's sudo prefix for dropping the caches.
#
# SC2034, SC2154: it shares variables with lib/node.sh and with runtime_tunables.sh.
# shellcheck disable=SC2034,SC2154

# tuning_begin: take in the bundle's runtime_tunables.sh. %n in the folders of rehearsals is the node's name.
tuning_begin() {
  export ORCH_TUNABLES_ROOT=${ORCH_TUNABLES_ROOT:-} ORCH_TUNABLES_STATE=${ORCH_TUNABLES_STATE:-}
  ORCH_TUNABLES_ROOT=${ORCH_TUNABLES_ROOT//%n/$node}
  ORCH_TUNABLES_STATE=${ORCH_TUNABLES_STATE//%n/$node}
  # shellcheck source=/dev/null
  . "$bundle/runtime_tunables.sh"
  FACTS_TOLD="" BOOT_KNOBS=()
}

# tunables apply|revert: TUNABLES_FAILED is set to the required knobs that do not hold, TUNABLES_NOTE to the rest.
tunables() {
  local rows row status seconds=0 name wanted before after word need
  TUNABLES_FAILED="" TUNABLES_NOTE=""
  [[ $RUNTIME_TUNABLES == 1 ]] || return 0
  # The job's own end bounds the time that the settings can stay, whatever becomes of this process.
  if [[ ${SLURM_JOB_END_TIME:-} =~ ^[0-9]+$ ]]; then
    now_ms
    seconds=$((SLURM_JOB_END_TIME - NOW_MS / 1000 + 120))
    ((seconds > 0)) || seconds=120
  fi
  # The watchdog outlives this process; it must not hold the container's input open.
  rows=$([[ -z ${container_input:-} ]] || exec {container_input}>&- {container_output}>&-
    "${SUDO[@]}" env ORCH_OWNER_PID=$$ ORCH_OWNER_S="$seconds" ORCH_LEASE_S="$ORCH_LEASE_S" \
    ORCH_TUNABLES_ROOT="$ORCH_TUNABLES_ROOT" ORCH_TUNABLES_STATE="$ORCH_TUNABLES_STATE" \
    bash "$bundle/runtime_tunables.sh" "$1" "$owner" </dev/null 2>>"$node_dir/hold.log")
  status=$?
  [[ -e $node_dir/tunables.tsv ]] || printf 'knob\twanted\tbefore\tafter\tresult\tneed\taction\ttime_ms\ttarget\n' >"$node_dir/tunables.tsv"
  [[ -z $rows ]] || printf '%s\n' "$rows" >>"$node_dir/tunables.tsv"
  ((status < 2)) || TUNABLES_FAILED="$(tail -n 1 "$node_dir/hold.log")"
  while IFS=$'\t' read -r name wanted before after word need _; do
    case $1.$word.$need in
      apply.failed.required | revert.failed.*) TUNABLES_FAILED+="${TUNABLES_FAILED:+; }$name wanted $wanted, found $after" ;;
      apply.failed.*) TUNABLES_NOTE+="${TUNABLES_NOTE:+; }$name wanted $wanted, found $after" ;;
      apply.unsupported.required) TUNABLES_NOTE+="${TUNABLES_NOTE:+; }$name unsupported on this host" ;;
    esac
  done <<<"$rows"
  return "$status"
}

# ---- facts ---------------------------------------------------------------------------------------------------------

fact() { # FIELD VALUE
  [[ -z $2 ]] || FACTS+=("$1=${2//[[:cntrl:]]/ }")
}

# fact_of FIELD FILE...: the values of the files, each once; nothing when no file can be read.
fact_of() {
  local field=$1 file joined=""
  shift
  for file in "$@"; do
    read_value "$file" || continue
    [[ ",$joined," == *",$KNOB_VALUE,"* ]] || joined+="${joined:+,}$KNOB_VALUE"
  done
  fact "$field" "$joined"
}

# collect_facts: set FACTS to field=value words. What differs between equal nodes (addresses, serial numbers, the momentary
# clock) is no fact here.
collect_facts() {
  local root=$ORCH_TUNABLES_ROOT
  FACTS=()
  fact image "${IMAGE_ID:-}"
  fact_of kernel "$root/proc/sys/kernel/osrelease"
  kernel_words "$root/proc/cmdline"
  processor "$root/proc/cpuinfo"
  fact_of bios "$root/sys/class/dmi/id/bios_version"
  fact_of host.model "$root/sys/class/dmi/id/product_name"
  fact_of rocm "$root/opt/rocm/.info/version"
  fact_of driver "$root/sys/module/amdgpu/version"
  fact_of driver.source "$root/sys/module/amdgpu/srcversion"
  gpu_facts "$root/sys/bus/pci/drivers/amdgpu"
  nic_facts "$root/sys/class/infiniband"
  ((${#FOUND_KNOBS[@]} == 0)) || FACTS+=("${FOUND_KNOBS[@]/#/knob.}")
  ((${#BOOT_KNOBS[@]} == 0)) || FACTS+=("${BOOT_KNOBS[@]/#/knob.}")
}

# look_at_boot: set BOOT_KNOBS to name=found for what only a boot changes. Once is enough.
look_at_boot() {
  local i
  BOOT_KNOBS=()
  load_knobs
  for i in "${!KNOB_NAME[@]}"; do
    [[ ${KNOB_KIND[i]} == @(cmdline|numa_per_socket) ]] || continue
    look "$i"
    (($? != 2)) || KNOB_FOUND=unsupported
    BOOT_KNOBS+=("${KNOB_NAME[i]}=$KNOB_FOUND")
  done
}

# kernel_words FILE: the words of the command line that change how the machine computes; others name disks and consoles.
kernel_words() {
  local words=() word joined=""
  { read -r -a words <"$1"; } 2>/dev/null || return 0
  for word in "${words[@]}"; do
    case $word in
      iommu=* | amd_iommu=* | intel_iommu=* | pci=* | amdgpu.* | mitigations=* | isolcpus=* | nohz_full=* | numa_balancing=* | \
        transparent_hugepage=* | processor.* | intel_idle.* | idle=* | amd_pstate=* | intel_pstate=* | nosmt* | hugepages=* | default_hugepagesz=*)
        joined+="${joined:+ }$word" ;;
    esac
  done
  fact kernel.words "${joined:-none}"
}

processor() { # FILE
  local lines=() line model="" microcode="" seen=0
  { mapfile -t -n 12 lines <"$1"; } 2>/dev/null || return 0
  for line in "${lines[@]}"; do
    case $line in
      "model name"*) model=${line#*: } ;;
      microcode*) microcode=${line#*: } ;;
    esac
  done
  fact cpu "$model"
  fact cpu.microcode "$microcode"
}

gpu_facts() { # FOLDER OF THE DRIVER
  local devices=() device file firmware=() line lines=()
  for device in "$1"/*:*:*.*; do [[ ! -e $device ]] || devices+=("$device"); done
  fact gpu.count "${#devices[@]}"
  ((${#devices[@]} > 0)) || return 0
  fact_of gpu.model "${devices[@]/%//device}"
  fact_of gpu.board "${devices[@]/%//subsystem_device}"
  fact_of gpu.product "${devices[@]/%//product_name}"
  fact_of gpu.vbios "${devices[@]/%//vbios_version}"
  fact_of gpu.link_speed "${devices[@]/%//current_link_speed}"
  fact_of gpu.link_width "${devices[@]/%//current_link_width}"
  fact_of gpu.compute_partition "${devices[@]/%//current_compute_partition}"
  fact_of gpu.memory_partition "${devices[@]/%//current_memory_partition}"
  fact_of gpu.performance_level "${devices[@]/%//power_dpm_force_performance_level}"
  fact_of gpu.power_cap "$1"/*:*:*.*/hwmon/hwmon*/power1_cap
  for file in "${devices[0]}"/fw_version/*_fw_version; do
    [[ ! -e $file ]] || { firmware=("${devices[@]/%//fw_version/${file##*/}}"); file=${file##*/}; fact_of "gpu.firmware.${file%_fw_version}" "${firmware[@]}"; }
  done
  # The last line is the highest clock; a star marks the momentary one.
  for file in sclk mclk; do
    firmware=()
    for device in "${devices[@]}"; do
      { mapfile -t lines <"$device/pp_dpm_$file"; } 2>/dev/null || continue
      ((${#lines[@]} > 0)) || continue
      line=${lines[-1]#*: }
      line=${line%%[ *]*}
      [[ " ${firmware[*]} " == *" $line "* ]] || firmware+=("$line")
    done
    fact "gpu.max_$file" "${firmware[*]}"
  done
}

nic_facts() { # FOLDER OF THE DEVICES
  local devices=() device
  for device in "$1"/*; do [[ ! -e $device ]] || devices+=("$device"); done
  fact nic.count "${#devices[@]}"
  ((${#devices[@]} > 0)) || return 0
  fact_of nic.type "${devices[@]/%//hca_type}"
  fact_of nic.board "${devices[@]/%//board_id}"
  fact_of nic.firmware "${devices[@]/%//fw_ver}"
  fact_of nic.rate "$1"/*/ports/*/rate
  fact_of nic.link_layer "$1"/*/ports/*/link_layer
}

# tell_facts: to the loop, in pieces: srun keeps a line whole only up to about a kilobyte.
tell_facts() {
  local one piece="" word=facts
  collect_facts
  FACTS_NOW="${FACTS[*]}"
  [[ $FACTS_NOW != "$FACTS_TOLD" ]] || return 0
  FACTS_TOLD=$FACTS_NOW
  for one in "${FACTS[@]}"; do
    one=${one:0:600}
    if ((${#piece} + ${#one} > 700)); then
      report "$word" "$piece"
      word=facts+ piece=""
    fi
    piece+="${piece:+$'\x1f'}$one"
  done
  report "$word" "$piece"
}

# ---- before a run --------------------------------------------------------------------------------------------------

# droppable: set DROPPABLE_KIB to what dropping the caches can free: page cache without shared memory, and kernel caches.
droppable() {
  local lines=() line name kib total=0
  { mapfile -t -n 40 lines <"$ORCH_TUNABLES_ROOT/proc/meminfo"; } 2>/dev/null
  for line in "${lines[@]}"; do
    name=${line%%:*} kib=${line//[^0-9]/}
    case $name in
      Buffers | Cached | SReclaimable) total=$((total + kib)) ;;
      Shmem) total=$((total - kib)) ;;
    esac
  done
  DROPPABLE_KIB=$total
}

# What the published scripts do: flush dirty pages, then drop page cache, dentries and inodes.
drop_caches() {
  local file=$ORCH_TUNABLES_ROOT/proc/sys/vm/drop_caches
  if ((${#SUDO[@]} == 0)); then
    { sync && printf '3\n' >"$file"; } 2>>"$node_dir/hold.log"
  else
    # shellcheck disable=SC2016
    "${SUDO[@]}" bash -c 'sync && echo 3 >"$1"' _ "$file" </dev/null 2>>"$node_dir/hold.log"
  fi
}

# prepare RUN.ATTEMPT 0|1: the gate of a run. The caches come last, so that nothing fills them again before the run.
prepare() {
  local before=- after=-
  if [[ $RUNTIME_TUNABLES == 1 ]] && ! check_knobs; then
    report refused "$1 $FAILED_REQUIRED"
    return
  fi
  tell_facts
  if [[ $2 == 1 ]]; then
    droppable; before=$DROPPABLE_KIB
    if ! drop_caches; then
      report kept "$1 cannot drop its caches: $(tail -n 1 "$node_dir/hold.log")"
      return
    fi
    droppable; after=$DROPPABLE_KIB
  fi
  now_ms
  report prepared "$1 $NOW_MS $before $after"
}

# find_drift: set DRIFT to the knobs that do not hold (any more) at the end of a run, as members of a JSON list.
find_drift() {
  DRIFT=""
  [[ $RUNTIME_TUNABLES == 1 ]] || return 0
  check_knobs
  DRIFT=$FAILED_JSON
}
