# shellcheck shell=bash
# Verdicts on the GPUs of one node. Sourced by lib/preflight_node.sh; lib/gpu_tools.sh reads what they say.
#
# SC2034, SC2154: it shares variables with lib/preflight_node.sh and settings.sh. SC2153: names in capitals, likewise.
# shellcheck disable=SC2034,SC2153,SC2154

NO_GPU_SOURCE="cannot be checked: no amd-smi, rocm-smi or amdgpu driver"

# no_gpus CHECK...: whether there is nothing to check; the rows are told then.
no_gpus() {
  local name
  if [[ -z ${GPU_MODEL:-} ]] || ((${GPUS_PER_NODE:-0} == 0)); then
    for name in "$@"; do tell "$name" skip "the system has no GPUs"; done
    return 0
  fi
  driver_tells && return 1
  [[ -z $SMI_AMD$SMI_ROCM ]] || return 1
  for name in "$@"; do tell "$name" warn "$NO_GPU_SOURCE" "install the amdgpu driver and amd-smi, or take another partition"; done
}

driver_tells() {
  local one
  for one in "$check_sys"/class/kfd/kfd/topology/nodes/* "$check_sys"/bus/pci/drivers/amdgpu; do
    [[ ! -e $one ]] || return 0
  done
  return 1
}

# ---- count and model -----------------------------------------------------------------------------------------------

gpu_identity() {
  local found
  ! no_gpus gpu_count gpu_model || return 0
  read_identity
  found=${#GPU_SEEN[@]}
  if ((found == GPUS_PER_NODE)); then
    tell gpu_count pass "$found GPUs ($IDENTITY_FROM)"
  elif ((found == 0)); then
    tell gpu_count fail "no GPU, the system has $GPUS_PER_NODE${SMI_ERROR:+ (${SMI_ERROR:0:160})}" \
      "load the amdgpu driver (dmesg says why it does not), or reboot the node"
  elif ((found > GPUS_PER_NODE)); then
    tell gpu_count fail "$found GPUs ($IDENTITY_FROM), the system has $GPUS_PER_NODE: the GPUs are split into partitions" \
      "amd-smi set --compute-partition SPX"
  else
    tell gpu_count fail "$found GPUs ($IDENTITY_FROM), the system has $GPUS_PER_NODE" \
      "look at dmesg for GPUs that fell off the bus; reboot or drain the node"
  fi
  if ((found == 0)); then
    tell gpu_model warn "cannot be checked: no GPU was found"
  else
    check_model
  fi
}

# model_of_id ID: set MODEL to what the PCI device id stands for; virtual functions have ids of their own.
model_of_id() {
  case $1 in
    0x738c | 0x738e) MODEL=MI100 ;;
    0x740f | 0x7410) MODEL=MI210 ;;
    0x7408) MODEL=MI250X ;;
    0x740c) MODEL=MI250 ;;
    0x74a0) MODEL=MI300A ;;
    0x74a1 | 0x74b5 | 0x74a9 | 0x74bd) MODEL=MI300X ;;
    0x74a2 | 0x74b6 | 0x74a8 | 0x74bc) MODEL=MI308X ;;
    0x74a5 | 0x74b9) MODEL=MI325X ;;
    0x75a0 | 0x75b0) MODEL=MI350X ;;
    0x75a3 | 0x75b3) MODEL=MI355X ;;
    *) MODEL="" ;;
  esac
}

# model_of GPU: set MODEL: the device id is the hardware's own word, names come from tables that can be older than the GPU.
model_of() {
  model_of_id "${GPU_ID[$1]:-}"
  [[ -z $MODEL ]] || return 0
  [[ ! ${GPU_NAME[$1]:-} =~ MI[0-9]{3}[AX]? ]] || MODEL=${BASH_REMATCH[0]}
}

check_model() {
  local gpu wrong=() unknown=() shown=""
  for gpu in "${!GPU_SEEN[@]}"; do
    model_of "$gpu"
    if [[ -n $MODEL && ${MODEL,,} != "${GPU_MODEL,,}" ]]; then
      wrong+=("GPU $gpu: $MODEL")
    elif [[ -z $MODEL && -n ${GPU_TARGET[gpu]:-} && -n ${GPU_GFX:-} && ${GPU_TARGET[gpu]} != "$GPU_GFX" ]]; then
      wrong+=("GPU $gpu: ${GPU_TARGET[gpu]}")
    elif [[ -z $MODEL && -z ${GPU_TARGET[gpu]:-} ]]; then
      unknown+=("$gpu")
    fi
    shown=${GPU_NAME[gpu]:-${MODEL:-${GPU_TARGET[gpu]:-}}}
  done
  if ((${#wrong[@]} > 0)); then
    listed "${wrong[@]}"
    tell gpu_model fail "$LISTED; the system has $GPU_MODEL" "take nodes of the declared kind (partition, constraint), or another SYSTEM"
  elif ((${#unknown[@]} > 0 && ${#unknown[@]} < ${#GPU_SEEN[@]})); then
    listed "${unknown[@]}"
    tell gpu_model fail "GPU $LISTED does not tell what it is, the others do" "look at dmesg; reset the GPU (amd-smi reset --gpureset) or reboot"
  elif ((${#unknown[@]} > 0)); then
    listed "${unknown[@]}"
    tell gpu_model warn "cannot be told for GPU $LISTED (${GPU_NAME[unknown[0]]:-no name})" "install a newer amd-smi"
  else
    tell gpu_model pass "$shown"
  fi
}

# ---- memory and errors ---------------------------------------------------------------------------------------------

gpu_metrics() {
  ! no_gpus gpu_memory gpu_errors || return 0
  read_metrics
  check_memory
  check_errors
}

# gib MIB: set GIB to it with one decimal.
gib() {
  printf -v GIB '%d.%d' $(($1 / 1024)) $(($1 % 1024 * 10 / 1024))
}

# An idle MI300X has 0.3 GiB of its 192 in use; 2 % where that is less than a GiB.
# silent_ones GPU...: set LISTED to the GPUs of the system that are not among those given. Status 1: there is none.
silent_ones() {
  local gpu silent=()
  (($# < GPUS_PER_NODE)) || return 1
  for ((gpu = 0; gpu < GPUS_PER_NODE; gpu++)); do [[ " $* " == *" $gpu "* ]] || silent+=("$gpu"); done
  listed "${silent[@]}"
}

check_memory() {
  local gpu used total limit busy=() most=0 who=""
  if ((${#MEMORY_USED[@]} == 0)); then
    tell gpu_memory warn "cannot be checked: neither a tool nor the driver tells the memory in use" "look at amd-smi metric --mem-usage"
    return
  fi
  for gpu in "${!MEMORY_USED[@]}"; do
    used=${MEMORY_USED[gpu]} total=${MEMORY_TOTAL[gpu]:-0} limit=1024
    ((total == 0 || total / 50 >= 1024)) || limit=$((total / 50))
    ((used <= most)) || most=$used
    ((used > limit)) || continue
    gib "$used"
    used=$GIB
    gib "$total"
    busy+=("GPU $gpu: $used GiB of $GIB")
  done
  # A GPU that has fallen silent beside others that answer is no idle one.
  if silent_ones "${!MEMORY_USED[@]}" && ((${#busy[@]} == 0)); then
    tell gpu_memory fail "GPU $LISTED does not tell its memory in use, the others do" "look at dmesg; reset the GPU (amd-smi reset --gpureset) or reboot"
    return
  fi
  if ((${#busy[@]} == 0)); then
    gib "$most"
    tell gpu_memory pass "idle, at most $GIB GiB in use"
    return
  fi
  find_kfd_processes
  ((${#KFD_PROCESSES[@]} == 0)) || who=" by ${KFD_PROCESSES[0]}"
  listed "${busy[@]}"
  tell gpu_memory fail "$LISTED in use$who" "${who:+end that process; }without one: reset the GPU (amd-smi reset --gpureset) or reboot"
}

check_errors() {
  local gpu uncorrectable=() correctable=()
  if ((${#ERRORS_UE[@]} + ${#ERRORS_CE[@]} == 0)); then
    tell gpu_errors skip "neither a tool nor the driver tells error counts"
    return
  fi
  for gpu in "${!ERRORS_UE[@]}"; do
    ((ERRORS_UE[gpu] == 0)) || uncorrectable+=("GPU $gpu: ${ERRORS_UE[gpu]}")
  done
  for gpu in "${!ERRORS_CE[@]}" "${!ERRORS_DE[@]}"; do
    ((${ERRORS_CE[gpu]:-0} + ${ERRORS_DE[gpu]:-0} > 0)) || continue
    [[ " ${correctable[*]}" == *" $gpu:"* ]] || correctable+=("GPU $gpu: $((${ERRORS_CE[gpu]:-0} + ${ERRORS_DE[gpu]:-0}))")
  done
  if ((${#uncorrectable[@]} > 0)); then
    listed "${uncorrectable[@]}"
    tell gpu_errors fail "uncorrectable errors since the driver was loaded: $LISTED" "drain the node; reset or replace the GPU (amd-smi bad-pages)"
  elif ((${#correctable[@]} > 0)); then
    listed "${correctable[@]}"
    tell gpu_errors warn "corrected or deferred errors: $LISTED" "watch these GPUs (amd-smi metric --ecc-blocks)"
  elif silent_ones "${!ERRORS_UE[@]}" && ((${#ERRORS_UE[@]} > 0)); then
    tell gpu_errors warn "GPU $LISTED does not tell its error counts, the others do" "look at dmesg; amd-smi metric --ecc"
  else
    tell gpu_errors pass "no errors counted"
  fi
}

# ---- processes -----------------------------------------------------------------------------------------------------

# process_name PID: set NAME; in a rehearsal, from its own /proc.
process_name() {
  value_of "$check_proc/$1/comm" || VALUE="?"
  NAME=$VALUE
}

# find_kfd_processes: set KFD_PROCESSES to those that hold GPU memory, and KFD_OPEN to those that only have the device open, as
# monitors do. The driver lists them whatever container they are in.
find_kfd_processes() {
  local dir file pid bytes
  KFD_PROCESSES=() KFD_OPEN=()
  for dir in "$check_sys"/class/kfd/kfd/proc/*; do
    pid=${dir##*/} bytes=0
    [[ $pid =~ ^[0-9]+$ ]] || continue
    for file in "$dir"/vram_*; do ! value_of "$file" || ((bytes += VALUE, 1)); done
    add_process "$pid" "" "$((bytes >> 20))"
  done
}

add_process() { # PID NAME MIB|""
  local name=$2
  if [[ $name == @(|N/A|UNKNOWN) ]]; then process_name "$1"; name=$NAME; fi
  if [[ -n $3 ]] && (($3 < 16)); then
    KFD_OPEN+=("${name##*/} (pid $1)")
    return
  fi
  gib "${3:-0}"
  KFD_PROCESSES+=("${name##*/} (pid $1${3:+, $GIB GiB})")
}

gpu_processes() {
  ! no_gpus gpu_processes || return 0
  find_kfd_processes
  # The tools read the same files; they are asked where the driver keeps them from us.
  if [[ ! -d $check_sys/class/kfd/kfd/proc ]]; then
    if [[ -n $SMI_AMD ]] && ask_smi "$SMI_AMD" process --json; then
      take_amd_processes
    elif [[ -n $SMI_ROCM ]] && ask_smi "$SMI_ROCM" --showpids --json; then
      take_rocm_processes
    elif [[ -z $SMI_AMD$SMI_ROCM ]]; then
      tell gpu_processes warn "cannot be checked: the driver lists no processes" "load the amdgpu driver with kfd, or install amd-smi"
      return
    elif [[ -z $SMI_ROCM || $SMI_ERROR != *"No JSON data"* ]]; then
      tell gpu_processes warn "cannot be checked: ${SMI_ERROR:-the tool printed nothing}" "run amd-smi process on the node"
      return
    fi
  fi
  if ((${#KFD_PROCESSES[@]} > 0)); then
    listed "${KFD_PROCESSES[@]}"
    tell gpu_processes fail "in use by $LISTED" "end the process, or leave the node out while its job runs"
  elif ((${#KFD_OPEN[@]} > 0)); then
    listed "${KFD_OPEN[@]}"
    tell gpu_processes warn "opened without memory by $LISTED" "fine for a monitor; end anything else"
  else
    tell gpu_processes pass "no process on the GPUs"
  fi
}

# take_amd_processes: entries of process_list, each with its members or with one member process_info that has them. A process
# is listed once for each GPU, by some versions with its memory on all of them each time: the largest number counts.
take_amd_processes() {
  local i path value entry="" pid
  local -A pids=() names=() amounts=() most=() seen=()
  for i in "${!JSON_PATHS[@]}"; do
    path=${JSON_PATHS[i]} value=${JSON_VALUES[i]}
    [[ $path =~ ^(.*/process_list/[0-9]+)/(process_info/)?(.*)$ ]] || continue
    entry=${BASH_REMATCH[1]}
    case ${BASH_REMATCH[3]} in
      pid) pids[$entry]=$value ;;
      name) names[$entry]=$value ;;
      memory_usage/vram_mem/value | vram_mem/value) ! mib "$value" "${JSON_VALUES[i + 1]:-B}" || amounts[$entry]=$MIB ;;
      memory_usage/vram_mem | vram_mem) ! mib "$value" B || amounts[$entry]=$MIB ;;
      mem_usage/value | mem/value) [[ -n ${amounts[$entry]:-} ]] || ! mib "$value" "${JSON_VALUES[i + 1]:-B}" || amounts[$entry]=$MIB ;;
      mem_usage | mem) [[ -n ${amounts[$entry]:-} ]] || ! mib "$value" B || amounts[$entry]=$MIB ;;
    esac
  done
  for entry in "${!pids[@]}"; do
    pid=${pids[$entry]}
    [[ $pid =~ ^[0-9]+$ ]] || continue
    names[$pid]=${names[$entry]:-}
    [[ -z ${amounts[$entry]:-} ]] || ((amounts[$entry] < ${most[$pid]:-0})) || most[$pid]=${amounts[$entry]}
    seen[$pid]=1
  done
  for pid in "${!seen[@]}"; do add_process "$pid" "${names[$pid]:-}" "${most[$pid]:-}"; done
}

# take_rocm_processes: "PID28389": "llama-server, 1, 2353860608, 11011, 0": name, GPUs, bytes.
take_rocm_processes() {
  local i pid name bytes
  for i in "${!JSON_PATHS[@]}"; do
    [[ ${JSON_PATHS[i]} =~ /pid([0-9]+)$ ]] || continue
    pid=${BASH_REMATCH[1]}
    IFS=, read -r name _ bytes _ <<<"${JSON_VALUES[i]// /}"
    MIB=""
    [[ ! $bytes =~ ^[0-9]+$ ]] || MIB=$((bytes >> 20))
    add_process "$pid" "$name" "$MIB"
  done
}
