# shellcheck shell=bash
# Verdicts on data, log folder and free space of one node. Sourced by lib/preflight_node.sh.
#
# SC2154: it shares variables with lib/preflight_node.sh and settings.sh. SC2153: names in capitals, likewise.
# shellcheck disable=SC2153,SC2154

# ---- log folder ----------------------------------------------------------------------------------------------------

# log_dir_check: the batch host wrote a marker just before; the node has to see it, and to write one that the judge sees. An NFS
# client may answer from its cache for some seconds: listing the folder makes it ask again.
log_dir_check() {
  local marker=${ORCH_MARKER:-} folder seen="" shown start
  now_ms
  start=$NOW_MS
  if [[ -z $marker ]]; then
    folder=$LOGDIR
    write_probe "$folder/.orch-probe-$node-$BASHPID" "" || return 0
    rm -f "$folder/.orch-probe-$node-$BASHPID"
    tell log_dir pass "$folder is writable"
    return
  fi
  folder=${marker%/*}
  until value_of "$marker" && seen=$VALUE && [[ $seen == "${ORCH_MARKER_TEXT:-}" ]]; do
    if ! time_left; then
      shown="the marker that the batch host wrote is not there"
      [[ -z $seen ]] || shown="an older marker is there"
      [[ -d $folder ]] || shown="the folder is not on this node"
      tell log_dir fail "$folder: $shown after $(((NOW_MS - start) / 1000)) s" \
        "mount the shared file system here; with NFS, a shorter acdirmax or lookupcache=none"
      return
    fi
    nap 0.1
    for shown in "$folder"/*; do :; done
  done
  write_probe "$marker.$node" "$ORCH_MARKER_TEXT" || return 0
  now_ms
  tell log_dir pass "$folder: marker seen after $((NOW_MS - start)) ms, own one written"
}

# write_probe FILE TEXT: status 1 when that cannot be done; the row is told then.
write_probe() {
  local why read_back=""
  if why=$({ printf '%s\n' "$2" >"$1"; } 2>&1); then
    { IFS= read -r read_back <"$1"; } 2>/dev/null
    [[ $read_back != "$2" ]] || return 0
    why="what was written cannot be read again"
  fi
  tell log_dir fail "cannot write to ${1%/*}: ${why##*: }" "look at rights, quota and mount options (ro, root_squash) of this folder here"
  return 1
}

# ---- data ----------------------------------------------------------------------------------------------------------

# data_check: every folder of data is there and can be read. What it holds becomes one value that must be equal on all nodes:
# names of two levels, sizes and times of the files among the first 2000.
data_check() {
  local mount variable below target mode source found=0 all=()
  for mount in "${MOUNTS[@]}"; do
    IFS=$'\t' read -r variable below target mode <<<"$mount"
    [[ $variable != LOGDIR && $target != /results ]] || continue
    source=${!variable:-}
    if [[ -z $source ]]; then
      tell data fail "$variable is not set" "give the site file data.$WORKLOAD.$variable, or export $variable"
      return
    fi
    [[ $below == . ]] || source+=/$below
    check_source || return 0
    all+=("$source")
    ((found += 1))
  done
  if ((found == 0)); then
    tell data skip "the workload mounts no data"
    return
  fi
  DATA_NAMES=() DATA_FILES=() DATA_EMPTY=()
  for source in "${all[@]}"; do list_data "$source"; done
  tell_same data "$(data_hash)"
  if ((${#DATA_EMPTY[@]} > 0)); then
    listed "${DATA_EMPTY[@]}"
    tell data warn "$LISTED: empty" "fetch the data, or mount the file system that has it"
  else
    tell data pass "${#all[@]} folders, $((${#DATA_NAMES[@]} + ${#DATA_FILES[@]})) entries looked at"
  fi
}

check_source() {
  local what=""
  if [[ ! -e $source ]]; then
    what="does not exist on this node"
  elif [[ ! -r $source ]] || [[ -d $source && ! -x $source ]]; then
    what="cannot be read by $(id -un)"
  elif [[ $mode == rw* && ! -w $source ]]; then
    what="cannot be written by $(id -un)"
  fi
  [[ -n $what ]] || return 0
  tell data fail "$variable: $source $what" "mount or copy it here and give the rights, or correct data.$WORKLOAD.$variable of the site"
  return 1
}

# list_data PATH: folders into DATA_NAMES (their size and time are the file system's own affair), files into DATA_FILES.
list_data() {
  local entry folder before=$((${#DATA_NAMES[@]} + ${#DATA_FILES[@]}))
  if [[ ! -d $1 ]]; then
    DATA_FILES+=("$1")
    return
  fi
  shopt -s nullglob
  for entry in "$1"/*; do add_data "$entry" || break; done
  for folder in "$1"/*/; do
    for entry in "$folder"*; do add_data "$entry" || break 2; done
  done
  shopt -u nullglob
  ((${#DATA_NAMES[@]} + ${#DATA_FILES[@]} > before)) || DATA_EMPTY+=("$1")
}

add_data() { # PATH
  ((${#DATA_NAMES[@]} + ${#DATA_FILES[@]} < 2000)) || return 1
  if [[ -d $1 ]]; then DATA_NAMES+=("$1"); else DATA_FILES+=("$1"); fi
}

data_hash() {
  local hash
  read -r hash _ < <({
    printf '%s\n' "${DATA_NAMES[@]}"
    # One process for all of them; what vanished meanwhile is missing in the hash too.
    ((${#DATA_FILES[@]} == 0)) || stat -L --printf '%n %s %Y\n' -- "${DATA_FILES[@]}"
  } 2>/dev/null | md5sum)
  printf '%s' "$hash"
}

# ---- free space ----------------------------------------------------------------------------------------------------

# space_check: the log folder, the folder of the channels and the engine's storage.
space_check() {
  local folder folders=() free blocks size inodes all_inodes name gib least="" short=()
  for folder in "$LOGDIR" "${channel%/*}" "$(engine_storage)"; do
    [[ -z $folder || ! -d $folder || " ${folders[*]} " == *" $folder "* ]] || folders+=("$folder")
  done
  while read -r blocks size all_inodes inodes name; do
    [[ $blocks =~ ^[0-9]+$ && $size =~ ^[0-9]+$ ]] || continue
    free=$((blocks * (size / 512) / 2048))
    gib=$((free / 1024)).$((free % 1024 * 10 / 1024))
    least+="${least:+, }$name $gib GB"
    if ((free < ${PREFLIGHT_FREE_GB:-1} * 1024)); then
      short+=("$name: $gib GB free, at least ${PREFLIGHT_FREE_GB:-1} needed")
    elif [[ $all_inodes != 0 && $inodes == 0 ]]; then
      short+=("$name: no inodes free")
    fi
  done < <(stat -f --printf '%a %S %c %d %n\n' -- "${folders[@]}" 2>/dev/null)
  if ((${#short[@]} > 0)); then
    listed "${short[@]}"
    tell free_space fail "$LISTED" "remove old results, containers or images there, or lower preflight.free_gb"
  elif [[ -z $least ]]; then
    tell free_space warn "cannot be checked: the file systems do not tell their size"
  else
    tell free_space pass "free: $least"
  fi
}

engine_storage() {
  case $ENGINE in
    docker) printf '%s' "${ORCH_ENGINE_STORAGE:-/var/lib/docker}" ;;
    podman)
      if ((EUID == 0)); then printf /var/lib/containers; else printf '%s' "${HOME:-}/.local/share/containers"; fi ;;
  esac
}
