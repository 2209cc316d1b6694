"""Reading MLLOG bytes, compliance, reference convergence points and scores. Standard library only.

from orchestrator.mllog.reader import read_log # one log: times, evaluations, seeds, damage from
orchestrator.mllog.score import score_dir # a folder of logs or a set folder: the score with its
reasons from orchestrator.mllog.compliance import check_log # what the referee would say about one
log

In layers: `reader`, `compliance`, `convergence`, `rcp` (one log, one table); `result` (what a run
and a set come to); `referee` (what decides); `window`, `forecast`, `slowness` (what only some sets
need); `score` (a folder) on top.
"""
