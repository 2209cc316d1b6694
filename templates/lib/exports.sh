# shellcheck shell=bash
# Values as lines for a shell: what puts a node's own network into the environment of a run. Sourced by lib/node_run.sh and
# lib/deep_node.sh, which need nothing else of lib/network.sh.
#
# SC2154: it shares variables with lib/node.sh.
# shellcheck disable=SC2154

# shell_word TEXT: set WORD to TEXT in single quotes, for any POSIX shell.
shell_word() {
  WORD="'${1//\'/\'\\\'\'}'"
}

# network_exports: the lines that put this node's own values into a run's environment.
network_exports() {
  local name value origin
  [[ -r $node_dir/network.tsv ]] || return 0
  while IFS=$'\t' read -r name value origin; do
    case $origin in
      detected) shell_word "$value" && printf 'export %s=%s\n' "$name" "$WORD" ;;
      unset) printf 'unset %s\n' "$name" ;;
    esac
  done <"$node_dir/network.tsv"
}
