# shellcheck shell=bash
# Verdicts on the engine, the image, the clock, the limits, the versions and the RDMA ports of one node. Sourced by
# lib/preflight_node.sh; lib/network.sh has the rules of the ports.
#
# SC2154: it shares variables with lib/preflight_node.sh and settings.sh. SC2153: names in capitals, likewise.
# shellcheck disable=SC2153,SC2154

engine_check() {
  if [[ $ENGINE == none ]]; then
    tell engine skip "runs start on the host, without a container"
  elif [[ ${ENGINE_STATE:-} == up ]]; then
    tell engine pass "$ENGINE answers"
  else
    tell engine fail "the container engine (${ENGINE_COMMAND[*]}) does not answer" \
      "start it (systemctl start $ENGINE), or let this user talk to it (its group, the site's sudo)"
  fi
}

image_check() {
  if [[ $ENGINE == none ]]; then
    tell image skip "runs start on the host, without a container"
  elif [[ -n ${IMAGE_ID:-} ]]; then
    tell image pass "$CONT ${IMAGE_ID:0:19}"
  elif [[ ${ENGINE_STATE:-} != up ]]; then
    tell image skip "cannot be checked: the engine does not answer"
  elif [[ $PULL == missing ]]; then
    tell image warn "image $CONT is not on this node yet" "it is pulled when the job starts; that can take long"
  else
    tell image fail "image $CONT is not on this node" "pull or load it there"
  fi
}

# The time between nodes is for the judge; a node can only say where it has its time from.
clock_check() {
  local text="time source unknown" fields=() answer
  if type -P chronyc >/dev/null && [[ -z ${ORCH_RUN_ROOT:-} ]]; then
    answer=$(timeout --foreground -s KILL 3 chronyc -c tracking </dev/null)
    IFS=, read -r -a fields <<<"$answer"
    if ((${#fields[@]} > 12)); then
      text="synchronised (chrony, stratum ${fields[2]})"
      [[ ${fields[-1]} != "Not sync"* ]] || text="not synchronised (chrony)"
    fi
  fi
  if [[ $text == "time source"* && -e $check_run/systemd/timesync ]]; then
    text="not synchronised yet (systemd-timesyncd)"
    [[ ! -e $check_run/systemd/timesync/synchronized ]] || text="synchronised (systemd-timesyncd)"
  fi
  tell clock pass "$text"
}

# ---- limits --------------------------------------------------------------------------------------------------------

# limits_check: with a container its limits come from the engine and from --ulimit, so this shell's are worth a warning; a run
# on the host gets just these.
limits_check() {
  local line memlock="" nofile="" options=" ${CONTAINER_OPTIONS[*]:-} " verdict=pass troubles=() remedies=()
  { while read -r line; do
    case $line in
      "Max locked memory"*) read -r _ _ _ memlock _ <<<"$line" ;;
      "Max open files"*) read -r _ _ _ nofile _ <<<"$line" ;;
    esac
  done <"$check_proc/self/limits"; } 2>/dev/null
  if [[ $ENGINE != none && $options == *" memlock="* ]]; then memlock=${options#* memlock=} memlock=${memlock%%[ :]*}; fi
  if [[ $ENGINE != none && $options == *" --ulimit=memlock="* ]]; then memlock=${options#* --ulimit=memlock=} memlock=${memlock%%[ :]*}; fi
  if [[ $ENGINE != none && $options == *" nofile="* ]]; then nofile=${options#* nofile=} nofile=${nofile%%[ :]*}; fi
  if [[ $ENGINE != none && $options == *" --ulimit=nofile="* ]]; then nofile=${options#* --ulimit=nofile=} nofile=${nofile%%[ :]*}; fi
  [[ $memlock != -1 ]] || memlock=unlimited
  if [[ $memlock =~ ^[0-9]+$ ]] && rdma_is_used && ! { [[ $ENGINE == none ]] && ((EUID == 0)); }; then
    verdict=warn
    [[ $ENGINE != none ]] || verdict=fail
    troubles+=("locked memory is limited to $((memlock / 1024)) KiB, RDMA needs unlimited")
    remedies+=("memlock unlimited (limits.conf, slurmd's LimitMEMLOCK, --ulimit memlock=-1)")
  fi
  if [[ $nofile =~ ^[0-9]+$ ]] && ((nofile < 65536)); then
    [[ $verdict == fail ]] || verdict=warn
    troubles+=("open files are limited to $nofile")
    remedies+=("nofile 65536 or more (limits.conf, slurmd's LimitNOFILE, --ulimit nofile=1048576)")
  fi
  if [[ $verdict == pass ]]; then
    tell limits pass "memlock ${memlock:-unknown}, nofile ${nofile:-unknown}"
  else
    listed "${troubles[@]}"
    memlock=$LISTED
    listed "${remedies[@]}"
    tell limits "$verdict" "$memlock" "$LISTED"
  fi
}

rdma_is_used() {
  [[ ${NETWORK_RDMA:-} != off && ${FABRIC:-none} != @(none|ethernet) ]] && ((NNODES > 1))
}

# ---- versions ------------------------------------------------------------------------------------------------------

# versions_check only says what is there; the facts of all nodes are compared by the loop.
versions_check() {
  local text="" device
  ! value_of "$check_host/proc/sys/kernel/osrelease" || text="kernel $VALUE"
  ! value_of "$check_host/sys/module/amdgpu/version" || text+=", amdgpu $VALUE"
  ! value_of "$check_host/opt/rocm/.info/version" || text+=", ROCm $VALUE"
  for device in "$check_host"/sys/bus/pci/drivers/amdgpu/*:*:*.*; do
    ! value_of "$device/vbios_version" || { text+=", VBIOS $VALUE"; break; }
  done
  for device in "$check_host"/sys/class/infiniband/*; do
    ! value_of "$device/fw_ver" || { text+=", NIC firmware $VALUE"; break; }
  done
  tell versions pass "${text#, }"
}

# ---- RDMA ----------------------------------------------------------------------------------------------------------

# rdma_check: the same look and the same words as before the container starts (lib/network.sh).
rdma_check() {
  local fastest=0 port
  if ((NNODES == 1)); then
    tell rdma skip "one node: nothing between nodes"
    return
  fi
  network_begin
  read_origins
  if rdma_is_off; then
    tell rdma skip "RDMA is off, or the fabric of $SYSTEM has none"
    return
  fi
  find_devices
  if ((${#PORTS[@]} == 0)); then
    tell rdma warn "no RDMA device, the fabric of $SYSTEM is $FABRIC" "load the NIC's RDMA driver, or set the site's network.rdma to off"
    return
  fi
  # Only more devices than the GPUs need make a difference who carries the way to the other nodes.
  ((${#PORTS[@]} <= FABRIC_DEVICES)) || find_route
  choose_devices
  check_devices
  choose_gid
  for port in "${USED[@]}"; do ((${GBPS[$port]} <= fastest)) || fastest=${GBPS[$port]}; done
  if ((${#TROUBLES[@]} == 0 && fastest > 0 && fastest < FABRIC_GBPS)); then
    TROUBLES+=("RDMA devices run at $fastest Gb/s, the fabric of $SYSTEM has $FABRIC_GBPS")
  fi
  if ((${#TROUBLES[@]} > 0)); then
    joined "; " "${TROUBLES[@]}"
    tell rdma fail "${JOINED%; }" "look at the cable, the switch port and rdma link; docs/network.md"
  else
    joined ", " "${USED[@]}"
    tell rdma pass "${#USED[@]} ports up at $fastest Gb/s"
  fi
}
