# shellcheck shell=bash
# Small pieces that every script of the bundle uses: messages, time, atomic state files.
#
# SC2034: functions leave results in variables (NOW_MS, JSON, LINE), which their callers read.
# SC2015: `A && B || C` is meant as it is: C when either fails.
# shellcheck disable=SC2034,SC2015

# log TEXT...: one line with a time stamp on standard error.
log() {
  printf '%(%Y-%m-%dT%H:%M:%S%z)T orchestrator: %s\n' -1 "$*" >&2
}

# die TEXT...: say what is wrong and end with status 1.
die() {
  LAST_ERROR=$*
  log "error: $*"
  exit 1
}

# now_ms: set NOW_MS to Unix milliseconds. A variable instead of output saves a fork per call.
now_ms() {
  if [[ -n ${EPOCHREALTIME:-} ]]; then
    # The decimal mark follows the locale; the last three digits are below a millisecond.
    local digits=${EPOCHREALTIME//[^0-9]/}
    NOW_MS=${digits:0:${#digits}-3}
  else
    NOW_MS=$(date +%s%3N) # bash before 5.0
  fi
}

# json_string TEXT: set JSON to TEXT as a JSON string. Control characters become spaces, except line ends and tabs.
json_string() {
  local text=$1
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\n'/\\n}
  text=${text//$'\t'/\\t}
  text=${text//[[:cntrl:]]/ }
  JSON="\"$text\""
}

# json_list ITEM...: set JSON to a JSON array of strings.
json_list() {
  local item joined=""
  for item in "$@"; do
    json_string "$item"
    joined+="${joined:+, }$JSON"
  done
  JSON="[$joined]"
}

# write_atomic FILE TEXT: a reader sees the old content or the new one, never half of it.
write_atomic() {
  local temp="${1%/*}/.${1##*/}.tmp.$$" tries
  for tries in 1 2 3; do
    printf '%s\n' "$2" >"$temp" && mv -f "$temp" "$1" && return 0
    # Above 128: a signal to the whole job ended `mv` too.
    (($? > 128)) || break
  done
  rm -f "$temp"
  log "error: cannot write $1 (disk full, quota, or the folder is gone)"
  return 1
}

# json_member FILE NAME: set MEMBER to the value of a string or number member of one of our own JSON files.
json_member() {
  local text="" pattern="\"$2\": *(\"([^\"]*)\"|-?[0-9]+)"
  MEMBER=""
  [[ -r $1 ]] || return 1
  IFS= read -r -d '' text <"$1"
  [[ $text =~ $pattern ]] || return 1
  MEMBER=${BASH_REMATCH[2]:-${BASH_REMATCH[1]//\"/}}
}

# open_pipe: set pipe_fd to a pipe without a name in the file system, open for reading and writing.
open_pipe() {
  local name
  name=$(mktemp -u "${TMPDIR:-/tmp}/orch-pipe.XXXXXXXX") && mkfifo -m 600 "$name" || {
    log "error: cannot make a pipe in ${TMPDIR:-/tmp}"
    return 1
  }
  exec {pipe_fd}<>"$name"
  rm -f "$name"
}

# pause SECONDS: sleep without starting a process, by reading from a pipe that nobody writes to.
pause() {
  if [[ -z ${pause_fd:-} ]]; then
    open_pipe || return 1
    pause_fd=$pipe_fd
  fi
  read -r -t "$1" -u "$pause_fd" || true
}

# read_line FD SECONDS: set LINE to the next line of FD. Status 0: a line; 1: the end; 2: none yet. `read -t` alone loses
# what it had read of a line when its time is up; here that waits for its rest.
declare -A READ_SO_FAR=()
read_line() {
  local piece="" status
  IFS= read -r -t "$2" -u "$1" piece
  status=$?
  LINE=${READ_SO_FAR[$1]:-}$piece
  if ((status > 128)); then
    READ_SO_FAR[$1]=$LINE
    return 2
  fi
  READ_SO_FAR[$1]=""
  return "$status"
}

# alive PID: whether the process runs. `kill -0` would say so of an ended child too, as long as the shell has not reaped it,
# which it does not while it handles a trap.
alive() {
  local stat
  read -r stat <"/proc/$1/stat" || return 1
  stat=${stat##*) }
  [[ ${stat:0:1} != [ZX] ]]
} 2>/dev/null
