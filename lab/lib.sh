# shellcheck shell=bash
# shellcheck disable=SC2034  # most names are for the scripts that source this
# Sourced by every script of this folder: where the lab lives, and how its processes are known again.
#
# The lab's whole state is one folder. A process of the lab is one whose pid *and* start time stand in
# $LAB_STATE/pids/<name>: a pid alone may have been given to somebody else's process meanwhile.

LAB_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LAB_TOP=$(dirname "$LAB_DIR")
LAB_STATE=${ORCHESTRATOR_LAB:-/var/tmp/orchestrator-lab}
LAB_CACHE=${ORCHESTRATOR_LAB_CACHE:-$LAB_TOP/.lab}
LAB_SLURM_CONF=$LAB_STATE/slurm/slurm.conf
LAB_DOCKER_SOCKET=$LAB_STATE/docker.sock
LAB_DOCKER_HOST=unix://$LAB_DOCKER_SOCKET
LAB_SHARED=$LAB_STATE/shared
LAB_PODMAN=$LAB_STATE/podman/podman
LAB_PASSING=$LAB_STATE/passing  # is there in a lab that lab/with started and will take away
LAB_CGROUP=/orchestrator-lab${LAB_STATE//\//-}
LAB_PROGRAM=lab/$(basename "$0")

# Slurm's programs live in sbin, which is not on every root's PATH.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { printf '%s: %s\n' "$LAB_PROGRAM" "$*" >&2; }

die() {  # die MESSAGE [HINT]
    say "$1"
    [ $# -lt 2 ] || printf '  hint: %s\n' "$2" >&2
    exit 1
}

# --- settings that `up` chose, read back by the others ----------------------------------------------

lab_load() {  # sets LAB_NODES, LAB_PREFIX, LAB_FIRST and LAB_PORT as the lab was started with; fails when there is none
    [ -r "$LAB_STATE/settings" ] || return 1
    # shellcheck source=/dev/null
    . "$LAB_STATE/settings"
}

node_names() {
    local k
    for ((k = LAB_FIRST; k < LAB_FIRST + LAB_NODES; k++)); do printf '%s%d\n' "$LAB_PREFIX" "$k"; done
}

# --- what the lab made outside its state folder, for `down` -------------------------------------------

remember() { grep -qxF -- "$1" "$LAB_STATE/made" 2>/dev/null || printf '%s\n' "$1" >>"$LAB_STATE/made"; }

remember_absent() {  # what is not there yet will be the lab's own
    local path
    for path in "$@"; do [ -e "$path" ] || remember "$path"; done
}

# --- processes --------------------------------------------------------------------------------------

start_time() {  # start_time PID: the 22nd field of stat, in clock ticks since boot; fails when there is no such process
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    stat=${stat##*) }  # the program's name may hold blanks, so count from behind it
    # shellcheck disable=SC2086
    set -- $stat
    [ "$1" != Z ] || return 1
    printf '%s\n' "${20}"
}

record_pid() {  # record_pid NAME PID
    local started
    started=$(start_time "$2") || return 1
    printf '%s %s\n' "$2" "$started" >"$LAB_STATE/pids/$1"
}

live_pid() {  # live_pid NAME: prints the pid while that very process lives, else fails
    local pid started
    { read -r pid started <"$LAB_STATE/pids/$1"; } 2>/dev/null || return 1
    [ "$(start_time "$pid")" = "$started" ] || return 1
    printf '%s\n' "$pid"
}

spawn() {  # spawn NAME COMMAND...: a daemon of the lab, in its own session, with a small clean environment
    local name=$1
    shift
    # fd 8 and 9 are locks; a daemon that inherits one would hold it for ever
    setsid env -i --chdir=/ PATH="$PATH" HOME=/root LANG=C.UTF-8 DOCKER_HOST="$LAB_DOCKER_HOST" SLURM_CONF="$LAB_SLURM_CONF" \
        ${MYSQL_UNIX_PORT:+MYSQL_UNIX_PORT="$MYSQL_UNIX_PORT"} "$@" </dev/null >>"$LAB_STATE/log/$name.out" 2>&1 8>&- 9>&- &
    record_pid "$name" $! || die "$name ended at once" "tail $LAB_STATE/log/$name.out"
}

wait_until() {  # wait_until SECONDS COMMAND...: polls ten times a second
    local end=$((${EPOCHREALTIME/./} + $1 * 1000000))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "${EPOCHREALTIME/./}" -lt "$end" ] || return 1
        sleep 0.1
    done
}

gone() { ! start_time "$1"; }

end_pid() {  # end_pid PID SECONDS: TERM, then KILL when it has not ended in time
    kill -TERM "$1" 2>/dev/null || return 0
    wait_until "$2" gone "$1" || kill -KILL "$1" 2>/dev/null || return 0
    wait_until 5 gone "$1"
}

# What the lab's jobs left running: a step's daemon, or a process whose environment carries a Slurm job id and the
# lab's slurm.conf. A user's shell that did `eval "$(lab/env)"` has only the second one.
job_pids() {
    local dir vars
    for dir in /proc/[0-9]*; do
        { mapfile -d '' -t vars <"$dir/environ"; } 2>/dev/null || continue
        [[ " ${vars[*]} " = *" SLURM_CONF=$LAB_SLURM_CONF "* ]] || continue
        if [[ " ${vars[*]}" = *" SLURM_JOB_ID="* ]] || [ "$(cat "$dir/comm" 2>/dev/null)" = slurmstepd ]; then
            printf '%s\n' "${dir#/proc/}"
        fi
    done
}

slurm_ready() { SLURM_CONF=$LAB_SLURM_CONF timeout 5 scontrol ping 2>/dev/null | grep -q 'is UP'; }

docker_ready() { DOCKER_HOST=$LAB_DOCKER_HOST timeout 5 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

nodes_idle() {  # every node can take a job
    local states
    states=$(SLURM_CONF=$LAB_SLURM_CONF timeout 5 sinfo --noheader --partition=batch --Node --format=%T) || return 1
    [ "$(grep -cxE 'idle|mixed|allocated|completing' <<<"$states")" -eq "$LAB_NODES" ]
}

lab_exports() {  # prints the variables by which a shell reaches the lab
    printf 'export ORCHESTRATOR_LAB=%q\nexport SLURM_CONF=%q\nexport DOCKER_HOST=%q\n' \
        "$LAB_STATE" "$LAB_SLURM_CONF" "$LAB_DOCKER_HOST"
}

lab_is_up() { lab_load && live_pid slurmctld >/dev/null && live_pid dockerd >/dev/null && slurm_ready && docker_ready; }

# --- one command on the lab at a time ---------------------------------------------------------------

lab_lock() {  # the folder that holds the state folder is locked: no lock file is left behind
    mkdir -p "$(dirname "$LAB_STATE")"
    exec 9<"$(dirname "$LAB_STATE")"
    flock --nonblock 9 && return
    say "another lab command is at work below $(dirname "$LAB_STATE"); waiting up to 5 minutes for it"
    flock --timeout 300 9 || die "the other lab command is still at work" "fuser -v $(dirname "$LAB_STATE")"
}

# Its packages come with apt.
is_debian_root() { [ "$(id -u)" -eq 0 ] && [ -e /etc/debian_version ] && command -v apt-get >/dev/null; }

apt_install() {  # apt_install PACKAGE...: only what is missing, and without starting any service
    local missing=() package policy=/usr/sbin/policy-rc.d made_policy=
    for package in "$@"; do
        dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing ${missing[*]}"
    # Debian's own way to say "do not start daemons": an engine of this machine must not come up by our doing.
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        made_policy=yes
    fi
    local log status=0
    log=$(mktemp)
    { apt-get -o DPkg::Lock::Timeout=300 update --quiet &&
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install --quiet --yes \
            --no-install-recommends "${missing[@]}"; } </dev/null >"$log" 2>&1 || status=$?
    [ -z "$made_policy" ] || rm -f "$policy"
    [ "$status" -eq 0 ] || tail -n 20 "$log" >&2
    rm -f "$log"
    [ "$status" -eq 0 ] || die "apt-get could not install ${missing[*]}"
}

# --- what images are made of -------------------------------------------------------------------------

suite() {
    # shellcheck source=/dev/null
    (. /etc/os-release && printf '%s\n' "$VERSION_CODENAME")
}

mirror() {  # the archive that apt on this machine already uses
    # shellcheck disable=SC2016  # apt-get's own placeholders
    apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(ORIGIN) $(REPO_URI)' 'Created-By: Packages' |
        awk -v suite="$1" '$1 == suite && $2 == "main" && $3 == "Debian" { print $4; exit }'
}

apt_proxy() { apt-config shell proxy Acquire::http::Proxy | sed -n "s/^proxy='\(.*\)'\$/\1/p"; }

short_hash() { sha256sum | cut -c 1-12; }
