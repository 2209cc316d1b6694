# shellcheck shell=bash
# What a node is made of, for the system description of a submission (docs/package.md): nodes/<node>/hardware.json with the
# members of MLCommons' checker as text. What equal nodes say differently (serial numbers, the momentary clock) is left out: a
# member counts only when all nodes of a set give it alike. Sourced by lib/node.sh; builtins only, no process.
#
# ORCH_SYS_ROOT, ORCH_PROC_ROOT, ORCH_TUNABLES_ROOT   stand for /sys, /proc and / in rehearsals; %n in them is the node's name
#
# SC2154: it shares variables with lib/node.sh and lib/common.sh. SC2015: `A && B || C` is meant as it is. SC2017: a product of
# the other order would overflow.
# shellcheck disable=SC2154,SC2015,SC2017

# hw_read FILE: set HW to its first line; status 1 and HW="" when there is none.
hw_read() {
  HW=""
  [[ -r $1 ]] || return 1
  IFS= read -r HW <"$1" || [[ -n $HW ]]
} 2>/dev/null

# hw_count WORD: count it in HW_COUNTS, whose order is kept in HW_ORDER.
hw_count() {
  [[ -n ${HW_COUNTS[$1]:-} ]] || HW_ORDER+=("$1")
  HW_COUNTS[$1]=$((${HW_COUNTS[$1]:-0} + 1))
}

# hw_counted: set HW to "2 x WORD, 8 x OTHER".
hw_counted() {
  local word
  HW=""
  for word in "${HW_ORDER[@]}"; do HW+="${HW:+, }${HW_COUNTS[$word]} x $word"; done
}

# hw_size BYTES UNIT_BASE: set HW to GB or TB of that base (1000, or 1024 as memory is sold), TB with up to two decimals.
hw_size() {
  local giga=$(($2 * $2 * $2)) hundredths
  if (($1 / giga < 1000)); then
    HW="$((($1 + giga / 2) / giga)) GB"
    return
  fi
  hundredths=$((($1 / giga * 100 + $2 / 2) / $2))
  printf -v HW '%d.%02d' $((hundredths / 100)) $((hundredths % 100))
  HW="${HW%0}"
  HW="${HW%.0} TB"
}

hw_member() { # NAME VALUE
  [[ -n $2 ]] || return 0
  json_string "$2"
  HW_MEMBERS+=", \"$1\": $JSON"
}

# hw_range LIST: set HW to how many numbers a list such as 0-95,192-287 names.
hw_range() {
  local part sum=0 parts=()
  IFS=, read -r -a parts <<<"$1"
  for part in "${parts[@]}"; do
    [[ $part =~ ^([0-9]+)(-([0-9]+))?$ ]] || continue
    sum=$((sum + ${BASH_REMATCH[3]:-${BASH_REMATCH[1]}} - BASH_REMATCH[1] + 1))
  done
  HW=$sum
}

hw_processors() {
  local lines=() line model="" cores="" siblings="" threads=0
  # One processor's paragraph is enough, and a large machine has hundreds of them.
  { mapfile -t -n 30 lines <"$hw_proc/cpuinfo"; } 2>/dev/null || return 0
  for line in "${lines[@]}"; do
    case $line in
      "model name"*) model=${line#*: } ;;
      "cpu cores"*) cores=${line##*[!0-9]} ;;
      siblings*) siblings=${line##*[!0-9]} ;;
      "") break ;;
    esac
  done
  hw_member host_processor_model_name "$model"
  hw_member host_processor_core_count "$cores"
  hw_read "$hw_sys/devices/system/cpu/present" && hw_range "$HW" && threads=$HW
  if ((threads > 0)); then
    hw_member host_processor_vcpu_count "$threads"
    [[ ! $siblings =~ ^[1-9][0-9]*$ ]] || hw_member host_processors_per_node "$(((threads + siblings - 1) / siblings))"
  fi
  hw_read "$hw_sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq" && [[ $HW =~ ^[0-9]+$ ]] &&
    hw_member host_processor_frequency "$((HW / 1000)) MHz"
  hw_caches
}

hw_caches() {
  local index text="" level size
  for index in "$hw_sys"/devices/system/cpu/cpu0/cache/index*; do
    hw_read "$index/level" || continue
    level=L$HW
    hw_read "$index/size" || continue
    size=$HW
    hw_read "$index/type"
    case $HW in Data) level+=d ;; Instruction) level+=i ;; esac
    text+="${text:+, }$level: ${size/%K/ kB}"
  done
  hw_member host_processor_caches "$text"
}

# Blocks of memory, where the kernel tells them, are what is installed; MemTotal is less, and differs between equal nodes.
hw_memory() {
  local line blocks=() bytes=0
  if hw_read "$hw_sys/devices/system/memory/block_size_bytes" && [[ $HW =~ ^[0-9a-fA-F]+$ ]]; then
    blocks=("$hw_sys"/devices/system/memory/memory[0-9]*)
    [[ ! -e ${blocks[0]} ]] || bytes=$((16#$HW * ${#blocks[@]}))
  fi
  if ((bytes == 0)); then
    { read -r line <"$hw_proc/meminfo"; } 2>/dev/null || return 0
    line=${line//[^0-9]/}
    # To whole 8 GB: what firmware and kernel keep for themselves differs.
    bytes=$(((${line:-0} / 1024 / 8192 + 1) * 8 * 1024 * 1024 * 1024))
  fi
  hw_size "$bytes" 1024
  hw_member host_memory_capacity "$HW"
}

hw_storage() {
  local device name kind
  local -A HW_COUNTS=() kinds=()
  local HW_ORDER=() types=""
  for device in "$hw_sys"/block/*; do
    name=${device##*/}
    case $name in loop* | ram* | zram* | dm-* | md* | sr* | fd* | nbd* | drbd* | rbd*) continue ;; esac
    hw_read "$device/removable" && [[ $HW == 1 ]] && continue
    hw_read "$device/queue/rotational"
    case $name.$HW in nvme*) kind="NVMe SSD" ;; vd*.* | xvd*.*) kind="virtual disk" ;; *.0) kind=SSD ;; *) kind="hard disk" ;; esac
    hw_read "$device/size" && [[ $HW =~ ^[1-9][0-9]*$ ]] || continue
    hw_size $((HW * 512)) 1000
    hw_count "$HW"
    [[ -n ${kinds[$kind]:-} ]] || types+="${types:+, }$kind"
    kinds[$kind]=1
  done
  ((${#HW_ORDER[@]} > 0)) || return 0
  hw_member host_storage_type "$types"
  hw_counted
  hw_member host_storage_capacity "$HW"
}

hw_network() {
  local device port rate word
  local -A HW_COUNTS=()
  local HW_ORDER=()
  for device in "$hw_sys"/class/infiniband/*; do
    for port in "$device"/ports/*; do
      hw_read "$port/rate" || continue
      rate=${HW%% *}
      hw_read "$port/link_layer"
      word="$rate Gb/s ${HW:-RDMA}"
      hw_read "$device/hca_type" && word+=" ($HW)"
      hw_count "$word"
    done
  done
  if ((${#HW_ORDER[@]} == 0)); then
    for device in "$hw_sys"/class/net/*; do
      [[ -e $device/device ]] && hw_read "$device/speed" && [[ $HW =~ ^[1-9][0-9]*$ ]] || continue
      if ((HW % 1000 == 0)); then hw_count "$((HW / 1000)) Gb/s Ethernet"; else hw_count "$HW Mb/s Ethernet"; fi
    done
  fi 2>/dev/null
  hw_counted
  hw_member host_networking "$HW"
}

hw_accelerators() {
  local devices=("$hw_sys"/bus/pci/drivers/amdgpu/*:*:*.*) speed lines=()
  [[ -e ${devices[0]} ]] || return 0
  hw_member accelerators_per_node "${#devices[@]}"
  if hw_read "${devices[0]}/mem_info_vram_total" && [[ $HW =~ ^[1-9][0-9]*$ ]]; then
    # Never TB, as accelerators are sold.
    hw_member accelerator_memory_capacity "$(((HW + 536870912) / 1073741824)) GB"
  fi
  if hw_read "${devices[0]}/max_link_speed"; then
    speed=$HW
    hw_read "${devices[0]}/max_link_width"
    case $speed in 16*) speed="PCIe 4.0" ;; 32*) speed="PCIe 5.0" ;; 64*) speed="PCIe 6.0" ;; esac
    hw_member accelerator_host_interconnect "$speed${HW:+ x$HW}"
  fi
  # The last line is the highest clock.
  { mapfile -t lines <"${devices[0]}/pp_dpm_sclk"; } 2>/dev/null
  if ((${#lines[@]} > 0)) && [[ ${lines[-1]} =~ ([0-9]+)[Mm][Hh]z ]]; then
    hw_member accelerator_frequency "${BASH_REMATCH[1]} MHz"
  fi
}

hw_software() {
  local line system="" kernel="" stack=""
  { while IFS= read -r line; do [[ $line != PRETTY_NAME=* ]] || system=${line#*=}; done <"$hw_root/etc/os-release"; } 2>/dev/null
  system=${system//[\"\']/}
  hw_read "$hw_proc/sys/kernel/osrelease" && kernel=$HW
  hw_member operating_system "${system:-Linux}${kernel:+, kernel $kernel}"
  [[ ${ENGINE:-none} == none ]] || stack="container image ${CONT:-}, $ENGINE${ENGINE_VERSION:+ $ENGINE_VERSION}"
  hw_read "$hw_root/opt/rocm/.info/version" && stack+="${stack:+, }ROCm $HW on the host"
  hw_read "$hw_sys/module/amdgpu/version" && stack+="${stack:+, }amdgpu driver $HW"
  hw_member other_software_stack "$stack"
}

hw_machine() {
  local vendor="" product="" notes=""
  hw_read "$hw_sys/class/dmi/id/sys_vendor" && vendor=$HW
  hw_read "$hw_sys/class/dmi/id/product_name" && product=$HW
  notes=${product:-$vendor}
  [[ -z $vendor || -z $product || $product == "$vendor"* ]] || notes="$vendor $product"
  hw_read "$hw_sys/class/dmi/id/bios_version" && notes+="${notes:+, }BIOS $HW"
  hw_member hw_notes "$notes"
}

# write_hardware: write $node_dir/hardware.json. Status 1 when that is not possible; the set does not depend on it.
write_hardware() {
  local HW="" HW_MEMBERS="" hw_root=${ORCH_TUNABLES_ROOT:-} hw_sys hw_proc
  hw_sys=${ORCH_SYS_ROOT:-$hw_root/sys} hw_proc=${ORCH_PROC_ROOT:-$hw_root/proc}
  hw_root=${hw_root//%n/$node} hw_sys=${hw_sys//%n/$node} hw_proc=${hw_proc//%n/$node}
  hw_processors
  hw_memory
  hw_storage
  hw_network
  hw_accelerators
  hw_software
  hw_machine
  json_string "$node"
  write_atomic "$node_dir/hardware.json" "{\"schema\": 1, \"node\": $JSON$HW_MEMBERS}"
}
