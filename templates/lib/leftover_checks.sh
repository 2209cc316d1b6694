# shellcheck shell=bash
# What earlier jobs of ours left on this node: folders, files in shared memory, containers. Sourced by lib/preflight_node.sh.
#
# Only what carries our name and whose job and holder are both gone is removed. Everything else is told and left alone: it
# can be another job of ours on the same host, or somebody else's work.
#
# SC2154: it shares variables with lib/preflight_node.sh and settings.sh. SC2153: names in capitals, likewise.
# shellcheck disable=SC2153,SC2154

leftovers_check() {
  CLEANED=() IN_USE=() FOREIGN=() STUCK=() UNTOLD=0
  left_folders
  left_memory
  [[ $ENGINE == none || ${ENGINE_STATE:-} != up ]] || left_containers
  if ((${#STUCK[@]} > 0)); then
    listed "${STUCK[@]}"
    tell leftovers fail "of an earlier job, and could not be removed: $LISTED" "remove them by hand on this node"
  elif ((${#FOREIGN[@]} > 0)); then
    listed "${FOREIGN[@]}"
    tell leftovers warn "not ours, left alone: $LISTED" "ask whose they are; two jobs on one node disturb each other"
  elif ((${#IN_USE[@]} > 0)); then
    listed "${IN_USE[@]}"
    tell leftovers warn "in use by another job of ours: $LISTED" "two jobs on one node disturb each other: ask for whole nodes (exclusive)"
  elif ((UNTOLD == 1)); then
    tell leftovers warn "the container engine does not list its containers" "look at it on this node: ${ENGINE_COMMAND[*]} ps"
  elif ((${#CLEANED[@]} > 0)); then
    listed "${CLEANED[@]}"
    tell leftovers pass "removed what an ended job left: $LISTED"
  else
    tell leftovers pass "nothing left of earlier jobs"
  fi
}

# left_folders: those of holders that a kill left no time to remove.
left_folders() {
  local folder pid
  for folder in "${channel%/*}/orch-$UID-"*; do
    # In /tmp anybody can make something of that name.
    [[ -d $folder && ! -L $folder && -O $folder && -f $folder/hold_pid && $folder != "$channel" ]] || continue
    { read -r pid <"$folder/hold_pid"; } 2>/dev/null || continue
    ! alive "$pid" || continue
    rm -rf "$folder" 2>/dev/null
    if [[ -e $folder ]]; then STUCK+=("$folder"); else CLEANED+=("${folder##*/}"); fi
  done
}

# left_memory: files of ours in shared memory are named orch-UID-JOB-NODE, or so with a dot and more behind it, like the folders of
# their holders. Node names can have dots, too.
left_memory() {
  local file holder lives
  for file in "$check_dev/shm/orch-$UID-"*; do
    [[ -e $file && -O $file ]] || continue
    [[ $file != "$channel" ]] || continue
    lives=0
    for holder in "$channel" "${channel%/*}/orch-$UID-"*; do
      [[ ${file##*/} == "${holder##*/}" || ${file##*/} == "${holder##*/}".* ]] || continue
      if [[ $holder == "$channel" ]] || holder_lives "$holder"; then lives=1; fi
    done
    ((lives == 0)) || continue
    rm -rf "$file" 2>/dev/null
    if [[ -e $file ]]; then STUCK+=("$file"); else CLEANED+=("${file##*/}"); fi
  done
}

holder_lives() { # FOLDER
  local pid
  [[ -d $1 && ! -L $1 && -O $1 && -f $1/hold_pid ]] && { read -r pid <"$1/hold_pid"; } 2>/dev/null && alive "$pid"
}

# ---- containers ----------------------------------------------------------------------------------------------------

# ask_engine ARGUMENT...: within a part of the check's time, so that there is some left to say so.
ask_engine() {
  timeout --foreground -s KILL "$(((CHECK_S + 1) / 2))" "${ENGINE_COMMAND[@]}" "$@" </dev/null 2>/dev/null
}

# left_containers: one question for all containers; a second one only where some of others run beside GPUs.
left_containers() {
  local id job at name state devices rows format others=()
  format='{{.ID}}|{{.Label "orchestrator.job"}}|{{.Label "orchestrator.node"}}|{{.Names}}|{{.State}}'
  [[ $ENGINE != podman ]] || format='{{.ID}}|{{index .Labels "orchestrator.job"}}|{{index .Labels "orchestrator.node"}}|{{.Names}}|{{.State}}'
  if ! rows=$(ask_engine ps --all --format "$format"); then
    UNTOLD=1
    return
  fi
  while IFS='|' read -r id job at name state; do
    [[ -n $id ]] || continue
    if [[ -z $job || $job == "<no value>" ]]; then
      # One that does not run has no GPU.
      [[ ${state:-running} != running ]] || others+=("$id")
    elif [[ $at == "$node" && $job != "$ORCH_JOB_ID" ]]; then
      left_container "$id" "$job" "$name"
    fi
  done <<<"$rows"
  ((${#others[@]} > 0)) || return 0
  rows=$(ask_engine inspect --format '{{.Name}} {{.HostConfig.Privileged}} {{range .HostConfig.Devices}}{{.PathOnHost}} {{end}}' "${others[@]}")
  while read -r name job devices; do
    # A privileged one has every device.
    [[ " $devices " != *" /dev/kfd "* && ($job != true || ! -e $check_dev/kfd) ]] || FOREIGN+=("container ${name#/}")
  done <<<"$rows"
}

# left_container: its folder /orch (/deep of a measurement) on the host says whose it is: engines list the containers of all users.
left_container() { # ID JOB NAME
  local source
  source=$(ask_engine inspect --format '{{range .Mounts}}{{if or (eq .Destination "/orch") (eq .Destination "/deep")}}{{.Source}}{{end}}{{end}}' "$1")
  source=${source%-deep}
  if [[ ${source##*/} != "orch-$UID-${2//[^A-Za-z0-9_.-]/_}-${node//[^A-Za-z0-9_.-]/_}" ]]; then
    FOREIGN+=("container $3 of another user's job $2")
  elif holder_lives "$source" || job_lives "$2"; then
    IN_USE+=("container $3")
  elif ask_engine rm --force "$1" >/dev/null; then
    CLEANED+=("container $3")
  else
    STUCK+=("container $3")
  fi
}

# job_lives JOB: whether its scheduler still knows it. Who cannot be asked is taken for alive.
job_lives() {
  local state ended pid start stat fields=()
  if [[ $1 =~ ^local-([0-9]+)-([0-9]+)$ ]]; then
    pid=${BASH_REMATCH[1]} start=${BASH_REMATCH[2]}
    alive "$pid" || return 1
    # Another process can have the number by now; it started at another time.
    { IFS= read -r stat <"/proc/$pid/stat"; } 2>/dev/null || return 1
    read -r -a fields <<<"${stat##*) }"
    [[ ${fields[19]:-} == "$start" ]]
    return
  fi
  type -P squeue >/dev/null || return 0
  state=$(timeout --foreground -s KILL "$(((CHECK_S + 1) / 2))" squeue -h -j "${1%%[!0-9]*}" -o %T </dev/null 2>&1)
  ended=$?
  # Slurm forgets a job some minutes after its end, and calls its id invalid then.
  [[ $state != *"Invalid job id"* ]] || return 1
  ((ended == 0)) || return 0
  [[ -n $state && $state != @(COMPLETED|CANCELLED|FAILED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY|BOOT_FAIL|DEADLINE)* ]]
}
