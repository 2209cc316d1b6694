# shellcheck shell=bash
# The container image on a node. Sourced by lib/node_hold.sh and lib/deep_node.sh.
#
# SC2034, SC2153, SC2154: it shares variables with lib/node.sh and settings.sh.
# shellcheck disable=SC2034,SC2153,SC2154

image_id() {
  timeout --kill-after=2 "$PREFLIGHT_CHECK_S" "${ENGINE_COMMAND[@]}" image inspect --format '{{.Id}}' "$CONT" 2>/dev/null </dev/null
}

# look_for_image [no-pull]: set ENGINE_STATE (up, silent, none), IMAGE_ID, and IMAGE_PROBLEM where there is none. The image's identity
# is its id (the hash of its configuration): equal content has an equal id on every node, also where it came from a tar and
# has no registry digest.
look_for_image() {
  ENGINE_STATE=none IMAGE_ID=none IMAGE_PROBLEM=""
  [[ $ENGINE != none ]] || return 0
  ENGINE_STATE=up
  IMAGE_ID=$(image_id) && return 0
  if [[ $PULL == missing && ${1:-} != no-pull ]]; then
    "${ENGINE_COMMAND[@]}" pull "$CONT" </dev/null >>"$node_dir/hold.log" 2>&1
    IMAGE_ID=$(image_id) && return 0
  fi
  IMAGE_ID=""
  if timeout --kill-after=2 "$PREFLIGHT_CHECK_S" "${ENGINE_COMMAND[@]}" version </dev/null >/dev/null 2>&1; then
    IMAGE_PROBLEM="image $CONT is not on this node; pull or load it there"
  else
    ENGINE_STATE=silent
    IMAGE_PROBLEM="the container engine (${ENGINE_COMMAND[*]}) does not answer on this node"
  fi
}
