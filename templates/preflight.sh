#!/usr/bin/env bash
# The checks of the nodes, without a run. Inside an allocation (salloc, or a job), or on a host without Slurm:
#
#   bash preflight.sh [--deep] [--nodes A,B,C] [--tsv FILE] [--exclude-file FILE] [--json]
#   ... | bash preflight.sh --judge --nodes A,B,C [...]
#
#   --deep          measure the bandwidth between the nodes too, where the site has preflight.deep (docs/deep.md)
#   --nodes         only these
#   --tsv           all rows: node, check, verdict, ms, text, remedy
#   --exclude-file  the nodes that failed, one a line (sbatch --exclude=FILE takes it, unless it is empty)
#   --judge         start nothing: the lines of `lib node check` come on standard input
#
# Exit status: 0 every node was tested and is fit (warnings included), 1 one is not, 2 wrong words, 3 it could not run.
# Every check has a limit of PREFLIGHT_CHECK_S seconds; rules and remedies: docs/preflight.md.
set -uo pipefail
BUNDLE=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case ${1:-} in
  -h | --help) sed -n '2,/^set /{/^# \{0,1\}/!d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
. "$BUNDLE/settings.sh"
need_python 3
exec "$PYTHON" -I -S -B "$BUNDLE/lib" preflight "$@"
