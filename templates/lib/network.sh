# shellcheck shell=bash
# The network of one node: what is there, which values the run gets, and what is wrong. Sourced by lib/node.sh.
# Rules and files: docs/network.md. Bash builtins only (`ip` and `getent` where present): a process per file of /sys would
# cost more than the whole look.
#
# ORCH_SYS_ROOT, ORCH_PROC_ROOT   stand for /sys and /proc in rehearsals; %n in them is the node's name
# ORCH_CONTAINER_ROOT             prefix of /sys and /dev inside the container, likewise
#
# SC2034, SC2153, SC2154: it shares variables with lib/node.sh and settings.sh.
# shellcheck disable=SC2034,SC2153,SC2154

# What the library needs a node's own answer for. All other variables are the same on every node.
NODE_VARIABLES=(NCCL_IB_HCA NCCL_IB_GID_INDEX NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME)
NO_GID=0000:0000:0000:0000:0000:0000:0000:0000

# Devices by name, and their ports. A port's name is its device's where the device has one port, else DEVICE:PORT, as
# NCCL_IB_HCA takes it. GIDS: the indexes of its RoCE v2 entries over IPv4, between blanks.
network_begin() {
  sys=${ORCH_SYS_ROOT:-/sys} proc=${ORCH_PROC_ROOT:-/proc} inside_root=${ORCH_CONTAINER_ROOT:-}
  sys=${sys//%n/$node} proc=${proc//%n/$node} inside_root=${inside_root//%n/$node}
  DEVICES=() PORTS=() USED=() TROUBLES=() NOTES=() INSIDE=()
  ROUTE_TO="" ROUTE_IFNAME="" NODE_GID=""
  declare -gA DRIVER=() PORT_DEVICE=() PORT_DIR=() STATE=() PHYSICAL=() LAYER=() GBPS=() NETDEV=() GIDS=() USE=()
  declare -gA VALUE_OF=() ORIGIN_OF=()
}

# first_line FILE: set VALUE to it, "" where the file is missing or the kernel has no value (an empty GID gives EINVAL). Bash
# complains about these; callers send that away once for all files, not once per file.
first_line() {
  VALUE=""
  IFS= read -r VALUE <"$1"
  [[ -n $VALUE ]]
}

trouble() {
  TROUBLES+=("$*")
}

joined() { # SEPARATOR WORD...: set JOINED
  local separator=$1
  shift
  printf -v JOINED "%s$separator" "$@"
  JOINED=${JOINED%"$separator"}
}

# ---- what is there -------------------------------------------------------------------------------------------------

find_devices() {
  local paths=("$sys"/class/infiniband/*) path length longest=0 back=$PWD
  [[ -e ${paths[0]} ]] || return 0
  for path in "${paths[@]}"; do ((${#path} <= longest)) || longest=${#path}; done
  # Shorter names first puts mlx5_10 behind mlx5_9.
  for ((length = ${#sys}; length <= longest; length++)); do
    for path in "${paths[@]}"; do
      ((${#path} != length)) || find_ports "$path"
    done
  done
  cd "$back" || cd /
} 2>/dev/null

find_ports() { # DEVICE_DIR
  local device=${1##*/} ports=("$1"/ports/*) dir name
  DEVICES+=("$device")
  # Where the link leads to is its driver's name; `cd -P` reads a link without a process.
  DRIVER[$device]=""
  ! cd -P "$1/device/driver" || DRIVER[$device]=${PWD##*/}
  for dir in "${ports[@]}"; do
    [[ -e $dir/state ]] || continue
    name=$device
    ((${#ports[@]} == 1)) || name+=:${dir##*/}
    PORTS+=("$name")
    PORT_DEVICE[$name]=$device PORT_DIR[$name]=$dir USE[$name]=""
    first_line "$dir/state"; STATE[$name]=${VALUE#*: }
    first_line "$dir/phys_state"; PHYSICAL[$name]=${VALUE#*: }
    first_line "$dir/link_layer"; LAYER[$name]=$VALUE
    first_line "$dir/rate"; VALUE=${VALUE%%[!0-9]*}; GBPS[$name]=${VALUE:-0}
    NETDEV[$name]="" GIDS[$name]=" "
    if [[ ${LAYER[$name]} == InfiniBand ]]; then find_ipoib "$name" "$1"; else find_gids "$name" "$dir"; fi
  done
}

find_ipoib() { # PORT DEVICE_DIR
  local found=("$2"/device/net/*)
  [[ ! -e ${found[0]} ]] || NETDEV[$1]=${found[0]##*/}
}

# The table fills from its start; sixteen empty rows in a row are taken for its end (it has up to 256).
find_gids() { # PORT PORT_DIR
  local row empty=0 gid
  for ((row = 0; empty < 16; row++)); do
    first_line "$2/gids/$row" || break
    gid=$VALUE
    if [[ $gid == "$NO_GID" ]]; then
      ((empty += 1))
      continue
    fi
    empty=0
    if [[ -z ${NETDEV[$1]} ]] && first_line "$2/gid_attrs/ndevs/$row"; then NETDEV[$1]=$VALUE; fi
    [[ $gid == 0000:0000:0000:0000:0000:ffff:* ]] || continue
    first_line "$2/gid_attrs/types/$row" || continue
    [[ $VALUE != "RoCE v2" ]] || GIDS[$1]+="$row "
  done
}

# find_route: the interface by which this node reaches the others. The first node looks towards the second one: the way
# to its own name may be `lo`.
find_route() {
  local name=${MASTER_ADDR:-}
  local -a answer=()
  [[ $name != "$node" ]] || name=${ORCH_PEER:-$name}
  [[ -n $name ]] || return 0
  ROUTE_TO=$name
  if [[ ! $name =~ ^[0-9]+(\.[0-9]+){3}$ && $name != *:* ]]; then
    read -r ROUTE_TO _ < <(timeout 5 getent ahostsv4 "$name" || timeout 5 getent ahosts "$name") || ROUTE_TO=""
  fi 2>/dev/null
  if [[ -n $ROUTE_TO && -z ${ORCH_PROC_ROOT:-} ]] && type -P ip >/dev/null; then
    read -r -a answer < <(ip -o route get "$ROUTE_TO" 2>/dev/null </dev/null)
    word_after dev "${answer[@]}" && ROUTE_IFNAME=$VALUE
  fi
  [[ -n $ROUTE_IFNAME ]] || route_of_table "$ROUTE_TO"
}

word_after() { # WORD WORDS...: set VALUE to the word behind WORD
  local word=$1
  shift
  while (($# > 1)); do
    VALUE=$2
    [[ $1 != "$word" ]] || return 0
    shift
  done
  return 1
}

# route_of_table ADDRESS: the longest prefix of /proc/net/route that holds it, the lowest metric among equals. Its numbers
# are hexadecimal, lowest byte first. Without an IPv4 address that is the default route.
route_of_table() {
  local address=0 name destination mask metric best_mask=-1 best_metric=0 number bits
  if [[ $1 == 127.* ]]; then
    ROUTE_IFNAME=lo
    return 0
  fi
  if [[ $1 =~ ^([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)$ ]]; then
    address=$(((BASH_REMATCH[4] << 24) | (BASH_REMATCH[3] << 16) | (BASH_REMATCH[2] << 8) | BASH_REMATCH[1]))
  fi
  [[ -r $proc/net/route ]] || return 0
  while read -r name destination _ _ _ _ metric mask _; do
    [[ $mask =~ ^[0-9A-F]{8}$ && $metric =~ ^[0-9]+$ ]] || continue
    number=$((16#$mask)) bits=0
    (((address & number) == 16#$destination)) || continue
    while ((number > 0)); do ((bits += number & 1, number >>= 1)); done
    if ((bits > best_mask || (bits == best_mask && metric < best_metric))); then
      best_mask=$bits best_metric=$metric ROUTE_IFNAME=$name
    fi
  done <"$proc/net/route"
}

# ---- what the user, the site and the descriptor say ----------------------------------------------------------------

# read_origins: VALUE_OF and ORIGIN_OF for everything that the configuration sets. A value that is not the rendered one was
# edited in the bundle by its user, and one that is passed on by name is the user's too.
read_origins() {
  local line name origin rendered
  read_environment
  for line in "${NETWORK_ORIGINS[@]}"; do
    IFS=$'\t' read -r name origin rendered <<<"$line"
    [[ -n ${VALUE_OF[$name]+set} ]] || continue
    ORIGIN_OF[$name]=$origin
    [[ ${VALUE_OF[$name]} == "$rendered" ]] || ORIGIN_OF[$name]=user
  done
  for name in "${NODE_VARIABLES[@]}" NCCL_IB_DISABLE; do
    [[ -z ${VALUE_OF[$name]+set} || -n ${ORIGIN_OF[$name]:-} ]] || ORIGIN_OF[$name]=user
  done
  for name in "${PASS_ENV[@]}"; do
    [[ -n ${!name:-} ]] || continue
    is_network_name "$name" || continue
    VALUE_OF[$name]=${!name} ORIGIN_OF[$name]=user
  done
}

is_network_name() {
  [[ " ${NODE_VARIABLES[*]} NCCL_IB_DISABLE " == *" $1 "* ]]
}

# `declare -x` inside of a function makes variables that end with it: nothing of the run's environment stays in this shell.
# `local` hides what the shell itself may have under these names.
read_environment() {
  local network_names=("${NODE_VARIABLES[@]}" NCCL_IB_DISABLE) network_name
  for network_name in "${NETWORK_ORIGINS[@]}"; do network_names+=("${network_name%%$'\t'*}"); done
  for network_name in "${network_names[@]}"; do local "$network_name"; done
  # shellcheck source=/dev/null
  . "$ORCH_SET_DIR/environment.sh" || return
  for network_name in "${network_names[@]}"; do
    [[ -z ${!network_name+set} ]] || VALUE_OF[$network_name]=${!network_name}
  done
}

# explicit NAME: a value of the user or the site, which nothing that is detected replaces.
explicit() {
  [[ -n ${VALUE_OF[$1]:-} && ${ORIGIN_OF[$1]:-} == @(user|site) ]]
}

# detected NAME VALUE: the value of this node, where nobody with more to say has given or removed one.
detected() {
  [[ -n $2 ]] && ! explicit "$1" && [[ " ${NETWORK_REMOVED[*]} " != *" $1 "* ]] || return 0
  VALUE_OF[$1]=$2 ORIGIN_OF[$1]=detected
}

# in_list NAME LIST: whether the library would take NAME for LIST: names between commas are prefixes, `=` in front makes
# them whole names, `^` in front excludes them; a device may be followed by :PORT.
in_list() {
  local list=$2 exclude=0 exact=0 one whole hit=0
  local -a wanted
  if [[ $list == ^* ]]; then exclude=1 list=${list#^}; fi
  if [[ $list == =* ]]; then exact=1 list=${list#=}; fi
  IFS=, read -r -a wanted <<<"$list"
  for one in "${wanted[@]}"; do
    whole=$1
    [[ $one == *:* ]] || whole=${whole%%:*}
    # A device with a single port goes without the number here.
    if [[ $one == *:1 && $whole != *:* ]]; then one=${one%:1}; fi
    if [[ $whole == "$one" ]] || { ((exact == 0)) && [[ $one != *:* && $whole == "$one"* ]]; }; then hit=1; fi
  done
  ((hit != exclude))
}

# ---- which devices the run uses ------------------------------------------------------------------------------------

rdma_is_off() {
  [[ $NETWORK_RDMA == off || ${VALUE_OF[NCCL_IB_DISABLE]:-0} == 1 || $FABRIC == @(none|ethernet) ]] || ((NNODES == 1))
}

choose_devices() {
  local port
  if explicit NCCL_IB_HCA; then
    for port in "${PORTS[@]}"; do
      if in_list "$port" "${VALUE_OF[NCCL_IB_HCA]}"; then USED+=("$port") USE[$port]=used; else USE[$port]="not named"; fi
    done
    ((${#PORTS[@]} == 0)) || missing_names
    return
  fi
  for port in "${PORTS[@]}"; do
    if is_of_the_kind "${PORT_DEVICE[$port]}"; then USED+=("$port"); else USE[$port]="other kind"; fi
  done
  if ((${#USED[@]} == 0 && ${#PORTS[@]} > 0)); then
    joined ", " "${DEVICES[@]}"
    trouble "$JOINED: the driver is ${DRIVER[${DEVICES[0]}]:-unknown}, the fabric of $SYSTEM is $FABRIC; name the devices in the site's network.ib_hca to use them"
    USED=("${PORTS[@]}")
  fi
  drop_surplus
  for port in "${USED[@]}"; do USE[$port]=used; done
}

# Devices get renamed, so the driver decides; the name only where the driver is not told.
is_of_the_kind() { # DEVICE
  local pattern
  ((${#FABRIC_DRIVERS[@]} > 0)) || return 0
  for pattern in "${FABRIC_DRIVERS[@]}"; do
    # shellcheck disable=SC2053
    [[ ${DRIVER[$1]} != $pattern ]] || return 0
  done
  [[ -z ${DRIVER[$1]} ]] || return 1
  for pattern in "${FABRIC_NAMES[@]}"; do
    # shellcheck disable=SC2053
    [[ $1 != $pattern ]] || return 0
  done
  return 1
}

missing_names() {
  local list=${VALUE_OF[NCCL_IB_HCA]} exact="" one port found
  local -a wanted missing=()
  [[ $list != ^* ]] || return 0
  if [[ $list == =* ]]; then exact="=" list=${list#=}; fi
  IFS=, read -r -a wanted <<<"$list"
  for one in "${wanted[@]}"; do
    found=0
    for port in "${PORTS[@]}"; do ! in_list "$port" "$exact$one" || found=1; done
    ((found == 1)) || missing+=("$one")
  done
  ((${#missing[@]} > 0)) || return 0
  joined , "${missing[@]}"; one=$JOINED
  joined , "${DEVICES[@]}"
  trouble "$one: in NCCL_IB_HCA (${ORIGIN_OF[NCCL_IB_HCA]}), but not on this node, which has $JOINED"
}

# drop_surplus: with more devices than the GPUs need, those of the front-end network are left out: first what carries the
# way to the other nodes, then what is slower than the rest, then what is not up. A node whose NICs serve both keeps them all.
# Where it is not known how many the GPUs need, the fastest that are up are taken, and the comparison of nodes has the last word.
drop_surplus() {
  local port fastest=0 reason needed=$FABRIC_DEVICES reasons=("front end" slower down)
  for port in "${USED[@]}"; do
    [[ ${STATE[$port]} != ACTIVE ]] || ((${GBPS[$port]} <= fastest)) || fastest=${GBPS[$port]}
  done
  if ((needed == 0)); then reasons=(slower down); fi
  # Nothing is up: that is for check_devices to tell.
  ((fastest > 0)) || return 0
  for reason in "${reasons[@]}"; do
    for port in "${USED[@]}"; do
      ((${#USED[@]} > needed)) || return 0
      is_surplus "$reason" "$port" "$fastest" || continue
      USE[$port]="$reason"
      without "$port"
    done
  done
}

is_surplus() { # REASON PORT FASTEST
  case $1 in
    "front end") carries "${NETDEV[$2]}" "$ROUTE_IFNAME" ;;
    slower) [[ ${STATE[$2]} == ACTIVE ]] && ((${GBPS[$2]} < $3)) ;;
    down) [[ ${STATE[$2]} != ACTIVE ]] ;;
  esac
}

# carries NETDEV INTERFACE: the same, or NETDEV is a part of the bond or bridge INTERFACE, or INTERFACE a VLAN on NETDEV.
carries() {
  [[ -n $1 && -n $2 ]] || return 1
  [[ $1 == "$2" || -e $sys/class/net/$1/upper_$2 || -e $sys/class/net/$2/lower_$1 ]]
}

without() { # PORT
  local one kept=()
  for one in "${USED[@]}"; do [[ $one == "$1" ]] || kept+=("$one"); done
  USED=("${kept[@]}")
}

# ---- what is wrong with them ---------------------------------------------------------------------------------------

check_devices() {
  local port fastest=0
  if ((${#USED[@]} < FABRIC_DEVICES && ${#PORTS[@]} > 0)) && ! explicit NCCL_IB_HCA; then
    trouble "${#USED[@]} RDMA devices for $GPUS_PER_NODE GPUs, the fabric of $SYSTEM has $FABRIC_DEVICES; if that is right here, name them in the site's network.ib_hca"
  fi
  for port in "${USED[@]}"; do
    [[ ${STATE[$port]} != ACTIVE ]] || ((${GBPS[$port]} <= fastest)) || fastest=${GBPS[$port]}
  done
  for port in "${USED[@]}"; do check_port "$port" "$fastest"; done
  if ((FABRIC_GBPS > fastest && fastest > 0)); then
    NOTES+=("RDMA devices run at $fastest Gb/s, the fabric of $SYSTEM has $FABRIC_GBPS")
  fi
} 2>/dev/null

check_port() { # PORT FASTEST
  if [[ ${STATE[$1]} != ACTIVE ]]; then
    trouble "$1: the port is ${STATE[$1]:-in no known state} (physical state ${PHYSICAL[$1]:-unknown})"
    return
  fi
  ((${GBPS[$1]} == $2)) || trouble "$1: ${GBPS[$1]} Gb/s, others $2"
  if [[ -n $FABRIC_LINK_LAYER && ${LAYER[$1]} != "$FABRIC_LINK_LAYER" ]] && ! explicit NCCL_IB_HCA; then
    trouble "$1: the link layer is ${LAYER[$1]:-unknown}, the fabric of $SYSTEM has $FABRIC_LINK_LAYER"
  fi
  [[ ${LAYER[$1]} != InfiniBand ]] || return 0
  if [[ -z ${NETDEV[$1]} ]]; then
    trouble "$1: no network interface belongs to it"
  elif explicit NCCL_IB_GID_INDEX; then
    first_line "${PORT_DIR[$1]}/gids/${VALUE_OF[NCCL_IB_GID_INDEX]}" || VALUE=$NO_GID
    [[ $VALUE != "$NO_GID" ]] ||
      trouble "$1: the GID at index ${VALUE_OF[NCCL_IB_GID_INDEX]} (${ORIGIN_OF[NCCL_IB_GID_INDEX]}) is empty"
  elif [[ ${GIDS[$1]} == " " ]]; then
    trouble "$1 (${NETDEV[$1]}): it has no RoCE v2 GID over IPv4; give the interface an address, or set the site's network.gid_index"
  fi
}

# choose_gid: the library takes one index for all devices of a node: the one that most of them have, the lowest of equals.
choose_gid() {
  local port row count best=0 total=0 layer=""
  local -A having=()
  for port in "${USED[@]}"; do
    layer+=${LAYER[$port]}
    [[ ${GIDS[$port]} == " " ]] || ((total += 1))
    for row in ${GIDS[$port]}; do having[$row]=$((${having[$row]:-0} + 1)); done
  done
  for row in "${!having[@]}"; do
    count=${having[$row]}
    if ((count > best || (count == best && row < NODE_GID))); then best=$count NODE_GID=$row; fi
  done
  # InfiniBand has its address in row 0; a value for RoCE would point at nothing.
  if [[ -n $layer && -z ${layer//InfiniBand/} && -n ${VALUE_OF[NCCL_IB_GID_INDEX]:-} ]]; then NODE_GID=0; fi
  ((best < total)) && ! explicit NCCL_IB_GID_INDEX || return 0
  for port in "${USED[@]}"; do
    [[ ${GIDS[$port]} == " " || ${GIDS[$port]} == *" $NODE_GID "* ]] ||
      trouble "$port: its RoCE v2 GID over IPv4 is at index${GIDS[$port]% }, that of other devices at $NODE_GID"
  done
}

check_interfaces() {
  local name list interfaces=() path spec
  for path in "$sys"/class/net/*; do interfaces+=("${path##*/}"); done
  for name in NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME; do
    explicit "$name" || continue
    spec=${VALUE_OF[$name]}
    first_interface "$spec" "${interfaces[@]}" && continue
    joined , "${interfaces[@]}"; list=$JOINED
    trouble "$name=$spec (${ORIGIN_OF[$name]}): this node has no such interface; it has $list"
  done
  detected NCCL_SOCKET_IFNAME "$ROUTE_IFNAME"
  # Gloo opens a connection for every name it is given, so it gets exactly one.
  first_interface "${VALUE_OF[NCCL_SOCKET_IFNAME]:-}" "${interfaces[@]}" || VALUE=$ROUTE_IFNAME
  detected GLOO_SOCKET_IFNAME "$VALUE"
}

# first_interface LIST NAME...: set VALUE to the first NAME that LIST takes, in the order of LIST where that names some.
first_interface() {
  local list=$1 one name
  local -a wanted=()
  VALUE=""
  [[ -n $list ]] || return 1
  shift
  IFS=, read -r -a wanted <<<"${list#=}"
  [[ $list != ^* ]] || wanted=("$list")
  for one in "${wanted[@]}"; do
    for name in "$@"; do
      if [[ $list == ^* && $name == lo ]]; then continue; fi
      if in_list "$name" "${list%%[!=]*}$one"; then VALUE=$name; return 0; fi
    done
  done
  return 1
}

# ---- the whole -----------------------------------------------------------------------------------------------------

# look_at_network: detect, decide, record. What it finds wrong is in TROUBLES; status 1 when it cannot be recorded.
look_at_network() {
  network_begin
  read_origins
  find_devices
  if [[ $FABRIC != none ]] && ((NNODES > 1)); then
    find_route
    check_interfaces
  fi
  if ! rdma_is_off; then
    choose_devices
    check_devices
    choose_gid
    used_list
    detected NCCL_IB_HCA "$JOINED"
    detected NCCL_IB_GID_INDEX "$NODE_GID"
  fi
  record_network
}

# used_list: set JOINED to the value of NCCL_IB_HCA; names are prefixes there, so mlx5_1 alone would take mlx5_10 too.
used_list() {
  local port
  joined , "${USED[@]}"
  for port in "${PORTS[@]}"; do
    if [[ -n $JOINED && ${USE[$port]} != used ]] && in_list "$port" "$JOINED"; then
      JOINED="=$JOINED"
      return
    fi
  done
}

record_network() {
  network_table
  write_atomic "$node_dir/network.tsv" "$TABLE" && network_json && write_atomic "$node_dir/network.json" "$JSON"
}

# TABLE: variable, value, origin. A variable that somebody set to nothing is taken away for the run.
network_table() {
  local name line written=" " names=("${NODE_VARIABLES[@]}" NCCL_IB_DISABLE)
  for line in "${NETWORK_ORIGINS[@]}"; do names+=("${line%%$'\t'*}"); done
  TABLE=$'variable\tvalue\torigin'
  for name in "${names[@]}"; do
    [[ $written != *" $name "* && -n ${VALUE_OF[$name]+set} ]] || continue
    written+="$name "
    if [[ -n ${VALUE_OF[$name]} ]]; then
      TABLE+=$'\n'"$name"$'\t'"${VALUE_OF[$name]//[$'\t\n']/ }"$'\t'"${ORIGIN_OF[$name]}"
    elif is_network_name "$name"; then
      TABLE+=$'\n'"$name"$'\t-\tunset'
    fi
  done
}

network_json() {
  local port name devices="" variables="" text
  for port in "${PORTS[@]}"; do
    JOINED=${GIDS[$port]# } JOINED=${JOINED% } JOINED=${JOINED// /, }
    text="\"port\": \"$port\", \"driver\": \"${DRIVER[${PORT_DEVICE[$port]}]}\", \"state\": \"${STATE[$port]}\", "
    text+="\"phys_state\": \"${PHYSICAL[$port]}\", \"link_layer\": \"${LAYER[$port]}\", \"gbps\": ${GBPS[$port]}, "
    devices+="${devices:+, }{$text\"netdev\": \"${NETDEV[$port]}\", \"gid_indexes\": [$JOINED], \"use\": \"${USE[$port]}\"}"
  done
  for name in "${!VALUE_OF[@]}"; do
    [[ -n ${VALUE_OF[$name]} ]] || continue
    json_string "${VALUE_OF[$name]}"
    variables+="${variables:+, }\"$name\": {\"value\": $JSON, \"origin\": \"${ORIGIN_OF[$name]}\"}"
  done
  json_list "${TROUBLES[@]}"; text="\"troubles\": $JSON"
  json_list "${NOTES[@]}"; text+=", \"notes\": $JSON"
  json_list "${INSIDE[@]}"; text+=", \"container\": $JSON"
  json_string "$ROUTE_TO"; text+=", \"route\": {\"to\": $JSON, \"interface\": \"$ROUTE_IFNAME\"}"
  now_ms
  JSON="{\"schema\": 1, \"node\": \"$node\", \"rank\": $rank, \"time_ms\": $NOW_MS, \"fabric\": \"$FABRIC\", "
  JSON+="\"rdma\": \"$NETWORK_RDMA\", \"devices\": [$devices], \"variables\": {$variables}, $text}"
}

# summarize_network: set SUMMARY to what the loop compares between nodes: `off`, `none`, or PORT,GB/S,LINK,GID for each
# device in use. A GID index that the user or the site gave is not compared: the node's own table does not matter then.
summarize_network() {
  local port gid
  SUMMARY=none
  if rdma_is_off; then SUMMARY=off; return; fi
  ((${#PORTS[@]} == 0)) || SUMMARY=""
  for port in "${USED[@]}"; do
    gid=${GIDS[$port]# } gid=${gid%% *}
    [[ ${GIDS[$port]} != *" $NODE_GID "* ]] || gid=$NODE_GID
    if explicit NCCL_IB_GID_INDEX; then gid=""; fi
    SUMMARY+="${SUMMARY:+ }$port,${GBPS[$port]},${LAYER[$port]:--},${gid:--}"
  done
  SUMMARY=${SUMMARY:-unused}
}

# tell_network FIRST: report the troubles from the FIRST on, and what is only worth a note.
tell_network() {
  local text
  for text in "${TROUBLES[@]:$1}"; do report trouble "$text"; done
  (($1 > 0)) || for text in "${NOTES[@]}"; do report note "$text"; done
}

# ---- inside the container ------------------------------------------------------------------------------------------

# Printed by the container's shell before it says that it is up. A device can be missing there because it was not passed
# (/dev/infiniband), or because the image's user library does not fit the host's driver; RCCL then uses TCP sockets and says so
# only in its log.
# shellcheck disable=SC2016,SC2034
CONTAINER_NETWORK='
tell_rdma() {
  local one
  for one in "$1"/sys/class/infiniband/*; do [ ! -e "$one" ] || echo "rdma device ${one##*/}"; done
  for one in "$1"/dev/infiniband/uverbs*; do [ ! -e "$one" ] || echo "rdma verbs ${one##*/}"; done
  echo "rdma memlock $(ulimit -l)"
  ! command -v ibv_devices >/dev/null || {
    timeout 20 ibv_devices 2>&1 | while read -r one; do echo "rdma ibv $one"; done
    echo "rdma ibv end"
  }
}
[ -z "$1" ] || tell_rdma "$2" </dev/null
'

# check_inside: compare what the container told with the node. Adds to TROUBLES and to network.json.
check_inside() {
  local line device there=" " opened=" " listed=" " ibv=0 refusal="" before=${#TROUBLES[@]}
  ((${#USED[@]} > 0)) || return 0
  for line in "${INSIDE[@]}"; do
    case $line in
      "device "*) there+="${line#device } " ;;
      "verbs "*) opened+="${line#verbs } " ;;
      "ibv end") ibv=1 ;;
      "ibv "*"does not support the kernel ABI"* | "ibv "*"no userspace device-specific driver"* | "ibv "*"No IB devices found"*)
        refusal=${refusal:-${line#ibv }} ;;
      "ibv "*) read -r _ device _ <<<"$line"; listed+="$device " ;;
      "memlock "*) check_memlock "${line#memlock }" ;;
    esac
  done
  compare_inside "$there" "$opened"
  ((ibv == 0)) || compare_listed "$listed" "${refusal%% for device*}"
  for line in $there; do
    [[ " ${DEVICES[*]} " == *" $line "* ]] || trouble "$line: in the container, but not on the node"
  done
  record_network
  tell_network "$before"
}

check_memlock() { # KIB|unlimited
  # A queue pair and its buffers take some megabytes for each GPU; 64 KiB is the kernel's default.
  [[ $1 == unlimited ]] || (($1 >= 1048576)) ||
    report note "locked memory in the container is limited to $1 KiB; RDMA may fail to register memory"
}

used_devices() { # set WORDS to the devices of the ports in use
  local port
  WORDS=()
  for port in "${USED[@]}"; do
    [[ " ${WORDS[*]} " == *" ${PORT_DEVICE[$port]} "* ]] || WORDS+=("${PORT_DEVICE[$port]}")
  done
}

compare_inside() { # NAMES VERBS
  local device path missing=() closed=()
  for device in "${DEVICES[@]}"; do
    [[ $1 == *" $device "* ]] || missing+=("$device")
  done
  used_devices
  for device in "${WORDS[@]}"; do
    for path in "$sys/class/infiniband/$device"/device/infiniband_verbs/*; do
      [[ ! -e $path || $2 == *" ${path##*/} "* ]] || closed+=("$device")
    done
  done
  joined , "${missing[@]}"
  ((${#missing[@]} == 0)) || trouble "$JOINED: on the node, but not in the container (/sys/class/infiniband)"
  joined , "${closed[@]}"
  ((${#closed[@]} == 0)) || trouble "$JOINED: cannot be opened in the container, /dev/infiniband has no uverbs device for it"
}

compare_listed() { # LISTED REFUSAL
  local device missing=()
  used_devices
  for device in "${WORDS[@]}"; do
    [[ $1 == *" $device "* ]] || missing+=("$device")
  done
  joined , "${missing[@]}"
  ((${#missing[@]} == 0)) || trouble "$JOINED: ibv_devices in the container does not list it${2:+ ($2)}; the image's RDMA library does not fit the node's driver"
}
