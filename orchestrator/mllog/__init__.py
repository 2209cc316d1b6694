"""MLLOG, compliance, reference convergence points and scores. Standard library.

from orchestrator.mllog.reader import read_log  # one log: times, evaluations, seeds, damage
from orchestrator.mllog.score import score_dir  # folder of logs or set folder -> score and reasons
from orchestrator.mllog.compliance import check_log  # the referee's findings about a log

Layers: `reader`, `compliance`, `convergence`, `rcp` (one log, one table); `result` (a run, a set);
`referee` (the decisions); `window`, `forecast`, `slowness` (for some sets only); `score` on top.

`TYPE_CHECKING = False` in these modules saves the import of `typing`, a tenth of a cold
`orchestrator score`.
"""
