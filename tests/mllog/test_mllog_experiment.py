"""The start tables of a set's runs, compared."""

from __future__ import annotations

import json
from pathlib import Path

from own_logs import own_log, own_set

from orchestrator.mllog.experiment import difference_of
from orchestrator.mllog.score import score_dir
from orchestrator.mllog.source import find_source

NODES = [f"node-{number:03}" for number in range(400)]


def test_the_tables_of_400_nodes_are_read_whole(tmp_path: Path) -> None:
    root = own_set(tmp_path / "set", [own_log(index) for index in range(2)])
    for run in (1, 2):
        path = root / f"runs/{run}/state.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "nodes": NODES}))
        # The tables differ in length: a cut would fall into another place of a value.
        facts = [f"{node}\timage\tsha256:{7:03000}\n" for node in NODES]
        table = root / f"runs/{run}/attempt_1/start.tsv"
        table.parent.mkdir()
        table.write_text(f"node\tfield\tvalue\n*\tcpu\t{'x' * run}\n{''.join(facts)}")
        assert table.stat().st_size > 1 << 20
    score = score_dir(str(root))
    assert not score.differences and not [note for note in score.notes if "start.tsv" in note]


def test_the_lists_of_two_values(tmp_path: Path) -> None:
    root = own_set(tmp_path / "set", [own_log()])
    (root / "inside").mkdir()
    (root / "inside/python-1a.tsv").write_text("")
    (root / "inside/python-2b.tsv").write_text("numpy\t2.0.0\n")
    walk = find_source(str(root)).walk
    assert difference_of(walk, "inside.python", "1a", "2b") == "numpy none -> 2.0.0"
    assert difference_of(walk, "inside.python", "1a", "3c") == ""
