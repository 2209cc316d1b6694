# shellcheck shell=bash
# The environment of the runs. Sourced by lib/set_loop.sh and preflight.sh.
#
# SC2153, SC2154: it shares variables with settings.sh and those files. SC2015: `A && B || C` is meant as it is.
# shellcheck disable=SC2153,SC2154,SC2015

# evaluate_config: the config is evaluated once, in an empty environment, and passed on by value.
evaluate_config() {
  local temp=$SET_DIR/.environment.sh.tmp.$$
  # shellcheck disable=SC2016
  env -i "$BASH" --noprofile --norc -eu -c 'NEXP=$2; . "$1"; export -n PWD SHLVL OLDPWD _; declare -px' _ \
    "$BUNDLE/$CONFIG_FILE" "$NEXP" >"$temp" && mv -f "$temp" "$SET_DIR/environment.sh" && return 0
  rm -f "$temp"
  die "$CONFIG_FILE cannot be evaluated (its message is above)"
}
