# shellcheck shell=bash
# What the GPUs of this node say about themselves: amd-smi, else rocm-smi, else the driver's files under /sys. Sourced by
# lib/preflight_node.sh. The JSON of these tools is read here, with bash alone; its forms differ between versions (a list, or a
# member `gpu_data`; numbers with units or without; keys that changed their case), so values are looked up by the end of
# their path.
#
# SC2034, SC2154: it shares variables with lib/preflight_node.sh.
# shellcheck disable=SC2034,SC2154

# find_smi: set SMI_AMD and SMI_ROCM to the tools, "" where there is none.
find_smi() {
  local PATH=${smi_path:+$smi_path:}${PATH:-/usr/bin:/bin}:/opt/rocm/bin
  SMI_AMD=$(type -P amd-smi) SMI_ROCM=$(type -P rocm-smi)
}

# ask_smi TOOL ARGUMENT...: run it and take in its JSON. Status 1: it printed none; SMI_ERROR is its last line.
ask_smi() {
  local text
  # The limit of the check ends this process group; `timeout` is for the case that nobody is left to do that.
  text=$(timeout --foreground -s KILL "$CHECK_S" "$@" </dev/null 2>&1)
  read_json "$text" && return 0
  SMI_ERROR=${text##*$'\n'}
  return 1
}

# ---- JSON ----------------------------------------------------------------------------------------------------------

# json_begin NAME: cut what a tool says before its JSON, such as a line `[WARNING] ...`, off the text in NAME.
json_begin() {
  local -n whole=$1
  local begin='^[[:space:]]*([[{][[:space:]]*([]}[{"]|$))'
  until [[ $whole =~ $begin || $whole != *$'\n'* ]]; do whole=${whole#*$'\n'}; done
}

# read_json TEXT: set JSON_PATHS to the path of each value (/gpu_data/0/mem_usage/used_vram/value; keys in small letters, blanks
# as _) and JSON_VALUES to the values. Lines in front of it (warnings), what follows it and further documents do no harm.
# Quotation marks are what the text is cut at: between them is a string, outside of them only the structure.
read_json() {
  local text=$1 pieces=() i piece string
  JSON_PATHS=() JSON_VALUES=()
  json_begin text
  [[ $text == *([[:space:]])[\[\{]* ]] || return 1
  mapfile -d '"' -t pieces <<<"$text"
  json_kind=() json_at=() json_depth=0 json_key=0
  for ((i = 0; i < ${#pieces[@]}; i += 2)); do
    json_structure "${pieces[i]//[[:space:]]/}" || break
    ((i + 1 < ${#pieces[@]})) || break
    string=${pieces[i + 1]}
    # An odd number of backslashes in front of a quotation mark makes it a part of the string.
    while piece=${string##*[!\\]} && (((${#piece} & 1) == 1 && i + 2 < ${#pieces[@]})); do
      ((i += 1))
      string+="\"${pieces[i + 1]}"
    done
    if ((json_key == 1)); then
      string=${string,,}
      json_at[json_depth]=${string//[ \/]/_} json_key=0
    else
      json_value "$string"
    fi
  done
  ((${#JSON_PATHS[@]} > 0))
}

# json_structure PIECE: what stands between two strings, without white space.
json_structure() {
  local rest=$1 word
  while [[ -n $rest ]]; do
    case $rest in
      \{*) ((json_depth += 1)); json_kind[json_depth]=o json_at[json_depth]="" json_key=1 ;;
      \[*) ((json_depth += 1)); json_kind[json_depth]=a json_at[json_depth]=0 json_key=0 ;;
      [\]\}]*) ((json_depth > 0)) || return 1; ((json_depth -= 1)); json_key=0 ;;
      ,*) if [[ ${json_kind[json_depth]:-} == o ]]; then json_key=1; else ((json_at[json_depth] += 1)); fi ;;
      :*) ;;
      *)
        # Text behind the last document.
        ((json_depth > 0)) || return 1
        word=${rest%%[,\]\}:]*}
        json_value "$word"
        rest=${rest:${#word}}
        continue
        ;;
    esac
    rest=${rest:1}
  done
}

json_value() { # VALUE
  local IFS=/
  JSON_PATHS+=("/${json_at[*]:0:json_depth}")
  JSON_VALUES+=("$1")
}

# path_gpu INDEX: set GPU to the number of the GPU that the value belongs to: `gpu` is the first member of an entry of amd-smi,
# and rocm-smi has its number in the key (card0).
path_gpu() {
  local path=${JSON_PATHS[$1]} value=${JSON_VALUES[$1]}
  if [[ $path =~ ^/card([0-9]+)/ ]]; then
    GPU=${BASH_REMATCH[1]}
  elif [[ $path =~ ^(/[a-z_]+)?(/[0-9]+)+/gpu$ && $value =~ ^[0-9]+$ ]]; then
    GPU=$value
  else
    return 0
  fi
  GPU_SEEN[GPU]=1
}

# mib VALUE UNIT: set MIB; amd-smi has numbers with a unit beside them or behind them, rocm-smi bytes.
mib() {
  local number=${1%% *} unit=${2:-} whole tenths
  [[ $1 != *" "* ]] || unit=${1##* }
  [[ $number =~ ^([0-9]+)(\.([0-9]))?[0-9]*$ ]] || return 1
  whole=${BASH_REMATCH[1]} tenths=${BASH_REMATCH[3]:-0}
  case ${unit^^} in
    B) MIB=$((whole >> 20)) ;;
    K*) MIB=$((whole >> 10)) ;;
    G*) MIB=$((whole * 1024 + tenths * 102)) ;;
    T*) MIB=$((whole * 1048576 + tenths * 104857)) ;;
    *) MIB=$whole ;;
  esac
}

# ---- who they are --------------------------------------------------------------------------------------------------

# read_identity: set GPU_SEEN (their numbers), GPU_NAME, GPU_ID (0x74a1) and GPU_TARGET (gfx942); IDENTITY_FROM names the source.
read_identity() {
  GPU_SEEN=() GPU_NAME=() GPU_ID=() GPU_TARGET=() IDENTITY_FROM="" SMI_ERROR=""
  if [[ -n $SMI_AMD ]] && { ask_smi "$SMI_AMD" static --asic --json || ask_smi "$SMI_AMD" static --json; }; then
    IDENTITY_FROM=amd-smi
  elif [[ -n $SMI_ROCM ]] && { ask_smi "$SMI_ROCM" --showproductname --showid --json || ask_smi "$SMI_ROCM" --showproductname --json; }; then
    IDENTITY_FROM=rocm-smi
  fi
  [[ -z $IDENTITY_FROM ]] || take_identity
  ((${#GPU_SEEN[@]} > 0)) || { IDENTITY_FROM="" ; identity_of_driver; }
}

take_identity() {
  local i GPU="" value
  for i in "${!JSON_PATHS[@]}"; do
    path_gpu "$i"
    [[ -n $GPU ]] || continue
    value=${JSON_VALUES[i]}
    [[ $value != @(N/A|"") ]] || continue
    case ${JSON_PATHS[i]} in
      */market_name | */card_series | */device_name) [[ -n ${GPU_NAME[GPU]:-} ]] || GPU_NAME[GPU]=$value ;;
      */asic/device_id | /card*/device_id | /card*/gpu_id | /card*/card_model)
        [[ $value != 0x* || -n ${GPU_ID[GPU]:-} ]] || GPU_ID[GPU]=${value,,} ;;
      */target_graphics_version | */gfx_version) GPU_TARGET[GPU]=${value,,} ;;
    esac
  done
}

# shellcheck disable=SC2153
is_gpu_node() { # FOLDER: a node of the topology; those of processors have the id 0
  value_of "$1/gpu_id" && [[ $VALUE != 0 ]]
}

# identity_of_driver: the nodes of the topology that are GPUs; without it the devices that the driver has.
identity_of_driver() {
  local dir name value number target i=0
  for dir in "$check_sys"/class/kfd/kfd/topology/nodes/*; do
    is_gpu_node "$dir" || continue
    IDENTITY_FROM=/sys/class/kfd GPU_SEEN[i]=1
    while read -r name value; do
      case $name in
        device_id) printf -v "GPU_ID[$i]" '0x%x' "$value" ;;
        gfx_target_version)
          number=$value
          printf -v target 'gfx%d%x%x' $((number / 10000)) $((number / 100 % 100)) $((number % 100))
          GPU_TARGET[i]=$target ;;
      esac
    done <"$dir/properties"
    ((i += 1))
  done 2>/dev/null
  ((i == 0)) || return 0
  for dir in "$check_sys"/bus/pci/drivers/amdgpu/*:*:*.*; do
    [[ -e $dir ]] || continue
    IDENTITY_FROM=/sys/bus/pci/drivers/amdgpu GPU_SEEN[i]=1
    ! value_of "$dir/device" || GPU_ID[i]=$VALUE
    ! value_of "$dir/product_name" || GPU_NAME[i]=$VALUE
    ((i += 1))
  done
}

# ---- memory and errors ---------------------------------------------------------------------------------------------

# read_metrics: set MEMORY_TOTAL and MEMORY_USED (MiB), ERRORS_CE, ERRORS_UE and ERRORS_DE (counts; deferred ones are bad memory
# that nobody has read yet). What a tool does not tell is taken from the driver.
read_metrics() {
  GPU_SEEN=() MEMORY_TOTAL=() MEMORY_USED=() ERRORS_CE=() ERRORS_UE=() ERRORS_DE=()
  if [[ -n $SMI_AMD ]] && { ask_smi "$SMI_AMD" metric --mem-usage --ecc --json || ask_smi "$SMI_AMD" metric --json; }; then
    take_metrics
  elif [[ -n $SMI_ROCM ]] && ask_smi "$SMI_ROCM" --showmeminfo vram --json; then
    take_metrics
  fi
  ((${#MEMORY_USED[@]} > 0)) || memory_of_driver
  ((${#ERRORS_UE[@]} > 0)) || errors_of_driver
}

take_metrics() {
  local i GPU="" value unit path
  for i in "${!JSON_PATHS[@]}"; do
    path_gpu "$i"
    [[ -n $GPU ]] || continue
    path=${JSON_PATHS[i]} value=${JSON_VALUES[i]} unit=MB
    if [[ $path == */value ]]; then
      path=${path%/value}
      [[ ${JSON_PATHS[i + 1]:-} != "$path/unit" ]] || unit=${JSON_VALUES[i + 1]}
    fi
    case $path in
      */total_vram | */vram_total) ! mib "$value" "$unit" || MEMORY_TOTAL[GPU]=$MIB ;;
      */used_vram | */vram_used) ! mib "$value" "$unit" || MEMORY_USED[GPU]=$MIB ;;
      /card*/vram_total_memory_\(b\)) ! mib "$value" B || MEMORY_TOTAL[GPU]=$MIB ;;
      /card*/vram_total_used_memory_\(b\)) ! mib "$value" B || MEMORY_USED[GPU]=$MIB ;;
      */ecc/total_correctable | */ecc/total_correctable_count) [[ ! $value =~ ^[0-9]+$ ]] || ERRORS_CE[GPU]=$value ;;
      */ecc/total_uncorrectable | */ecc/total_uncorrectable_count) [[ ! $value =~ ^[0-9]+$ ]] || ERRORS_UE[GPU]=$value ;;
      */ecc/total_deferred | */ecc/total_deferred_count) [[ ! $value =~ ^[0-9]+$ ]] || ERRORS_DE[GPU]=$value ;;
    esac
  done
}

driver_devices() { # set DRIVER_DEVICES to the folders of the GPUs
  local dir
  DRIVER_DEVICES=()
  for dir in "$check_sys"/bus/pci/drivers/amdgpu/*:*:*.*; do [[ ! -e $dir ]] || DRIVER_DEVICES+=("$dir"); done
}

memory_of_driver() {
  local i
  driver_devices
  for i in "${!DRIVER_DEVICES[@]}"; do
    ! value_of "${DRIVER_DEVICES[i]}/mem_info_vram_total" || MEMORY_TOTAL[i]=$((VALUE >> 20))
    ! value_of "${DRIVER_DEVICES[i]}/mem_info_vram_used" || MEMORY_USED[i]=$((VALUE >> 20))
  done
}

# Each block of the GPU has a file of counts: ue: 0, ce: 0, newer drivers also de: 0.
errors_of_driver() {
  local i file word count
  driver_devices
  for i in "${!DRIVER_DEVICES[@]}"; do
    for file in "${DRIVER_DEVICES[i]}"/ras/*_err_count; do
      while read -r word count; do
        [[ $count =~ ^[0-9]+$ ]] || continue
        case $word in
          ue:) ((ERRORS_UE[i] += count, 1)) ;;
          ce:) ((ERRORS_CE[i] += count, 1)) ;;
          de:) ((ERRORS_DE[i] += count, 1)) ;;
        esac
      done <"$file"
    done 2>/dev/null
  done
}
