#!/usr/bin/env bash
# The checks of the nodes, without a run. Inside an allocation (salloc, or a job), or on a host without Slurm:
#
#   bash preflight.sh [--deep] [--nodes A,B,C] [--tsv FILE] [--exclude-file FILE] [--json]
#   ... | bash preflight.sh --judge --nodes A,B,C [...]
#
#   --deep          measure the bandwidth between the nodes too (docs/deep.md)
#   --nodes         only these
#   --tsv           all rows: node, check, verdict, ms, text, remedy
#   --exclude-file  the nodes that failed, one a line (sbatch --exclude=FILE takes it, unless it is empty)
#   --judge         start nothing: the lines of `lib/node.sh check` come on standard input
#
# Exit status: 0 every node was tested and is fit (warnings included), 1 one is not, 2 wrong words, 3 it could not run.
# Every check has a limit of PREFLIGHT_CHECK_S seconds; rules and remedies: docs/preflight.md.
set -uo pipefail
BUNDLE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$BUNDLE/lib/common.sh"
. "$BUNDLE/settings.sh"
if [[ -n ${SLURM_JOB_ID:-} ]]; then SCHEDULER=slurm; else SCHEDULER=local; fi
# shellcheck source=lib/steps_slurm.sh
. "$BUNDLE/lib/steps_$SCHEDULER.sh"
. "$BUNDLE/lib/environment.sh"
. "$BUNDLE/lib/agreement.sh"
. "$BUNDLE/lib/before_run.sh"
. "$BUNDLE/lib/preflight.sh"
. "$BUNDLE/lib/hold.sh"
. "$BUNDLE/lib/spares.sh"
. "$BUNDLE/lib/preflight_report.sh"
preflight_main "$@"
