# shellcheck shell=bash
# The XGMI links between the GPUs of one node. Sourced by lib/preflight_node.sh.
#
# `xgmi_error` of the driver cannot be read on MI300 and later, and amd-smi has no word on it there; the state of the links is
# told by `amd-smi xgmi`, their errors by the RAS counters (gpu_errors).
#
# SC2034, SC2154: it shares variables with lib/preflight_node.sh and settings.sh. SC2153: names in capitals, likewise.
# shellcheck disable=SC2034,SC2153,SC2154

gpu_links() {
  ! no_gpus gpu_links || return 0
  if ((GPUS_PER_NODE == 1)); then
    tell gpu_links skip "one GPU: no links"
    return
  fi
  LINKS_DOWN=() LINKS_UP=()
  if [[ -n $SMI_AMD ]] && { ask_smi "$SMI_AMD" xgmi --link-status --json || ask_smi "$SMI_AMD" xgmi --json; }; then
    take_links
  fi
  ((${#LINKS_UP[@]} > 0)) || links_of_driver
  if ((${#LINKS_DOWN[@]} > 0)); then
    listed "${LINKS_DOWN[@]}"
    tell gpu_links fail "$LISTED" "reset the GPUs together or power-cycle the node; then have the board looked at"
  elif ((${#LINKS_UP[@]} > 0)); then
    tell gpu_links pass "${LINKS_UP[*]:0:1} links up on each of ${#LINKS_UP[@]} GPUs"
  else
    tell gpu_links skip "neither a tool nor the driver tells about links"
  fi
}

# take_links: set LINKS_UP (number of links that are up, for each GPU that tells) and LINKS_DOWN (what to say of the others).
# U, D and X are up, down and disabled; several links between the same two GPUs are joined (U/U). A list by GPU has SELF in it.
# A list by port can have a port that leads nowhere; there it counts whether enough others are up.
take_links() {
  local i GPU="" path value section gpu up down
  local -A states=()
  for i in "${!JSON_PATHS[@]}"; do
    path_gpu "$i"
    path=${JSON_PATHS[i]} value=${JSON_VALUES[i]^^}
    [[ -n $GPU && $path =~ ^(.*)/link_status/([0-9]+)$ ]] || continue
    section=${path%%/[0-9]*}
    states[$section $GPU]+=" ${value//\// }"
  done
  section=""
  for path in "${!states[@]}"; do
    [[ ${states[$path]} == *[UD]* ]] || continue
    if [[ -z $section || ${states[$path]} == *SELF* ]]; then section=${path% *}.; fi
  done
  [[ -n $section ]] || return 0
  for gpu in "${!GPU_SEEN[@]}"; do
    value=${states[${section%.} $gpu]:-}
    [[ -n $value ]] || continue
    up=${value//[!U]/} down=${value//[!D]/}
    # No link at all that is up: a virtual function or a tool that cannot tell.
    ((${#up} > 0)) || continue
    LINKS_UP[gpu]=${#up}
    if [[ $value == *SELF* ]] || ((${#up} < ${#GPU_SEEN[@]} - 1)); then
      ((${#down} == 0)) || LINKS_DOWN+=("GPU $gpu: ${#down} of $((${#up} + ${#down})) links down")
    fi
  done
  missing_links
}

# missing_links: with some links up, a GPU that has none is cut off.
missing_links() {
  local gpu
  ((${#LINKS_UP[@]} > 0)) || return 0
  for gpu in "${!GPU_SEEN[@]}"; do
    [[ -n ${LINKS_UP[gpu]:-} ]] || LINKS_DOWN+=("GPU $gpu: no link is up, other GPUs have theirs")
  done
}

# links_of_driver: the topology has an entry of type 11 (XGMI) for each GPU that a GPU reaches; equal GPUs have equally many.
links_of_driver() {
  local dir file name value count gpu=0 most=0
  for dir in "$check_sys"/class/kfd/kfd/topology/nodes/*; do
    is_gpu_node "$dir" || continue
    count=0
    for file in "$dir"/io_links/*/properties; do
      while read -r name value; do
        [[ $name != type || $value != 11 ]] || ((count += 1))
      done <"$file"
    done 2>/dev/null
    LINKS_UP[gpu]=$count
    ((count <= most)) || most=$count
    ((gpu += 1))
  done
  if ((most == 0)); then
    LINKS_UP=()
    return
  fi
  for gpu in "${!LINKS_UP[@]}"; do
    ((LINKS_UP[gpu] == most)) || LINKS_DOWN+=("GPU $gpu: ${LINKS_UP[gpu]} of $most links in the driver's topology")
  done
}
