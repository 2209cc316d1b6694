#!/usr/bin/env bash
# A training that only waits: tests/faults/reality.py mounts it over the code of the built-in workload.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
exec python3 -B -E -s -S steady.py
