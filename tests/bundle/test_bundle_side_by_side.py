"""Several runs of a set at once with real processes; who runs what is in tests/simulation/test_sets_side_by_side.py."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from bundle_parts import Bundles

HERE = {"ALLOW_MANY_ON_ONE_HOST": "1"}
# Which node this is, and a way for it to die so that nothing starts on it any more. What ran when stands in `ran`.
NODE = r"""
agent=$(cut -d' ' -f4 /proc/$PPID/stat)
node=$(tr '\0' '\n' </proc/$agent/environ | sed -n 's/^ORCH_NODE=//p')
die() { touch "%(folder)s/dead-$node"; kill -KILL "$agent"; exit 1; }
ran() { echo "$ORCH_RUN $node $1 ${EPOCHREALTIME/[.,]/}" >>"%(folder)s/ran"; }
ran begin
trap 'ran end' EXIT
"""
PYTHON = """#!/bin/bash
[[ ! -e %(folder)s/dead-$ORCH_NODE ]] || exit 1
exec python3 "$@"
"""


def make(bundles: Bundles, plan: str, **more: Any) -> dict[str, str]:
    """A bundle whose program knows its node; returns the environment for its job."""
    python = bundles.folder / "python"
    python.write_text(PYTHON % {"folder": bundles.folder})
    python.chmod(0o755)
    bundles.make(NODE % {"folder": bundles.folder} + plan, **more)
    return {**HERE, "PYTHON": str(python)}


def ran(folder: Path, without: str) -> list[tuple[int, int, str]]:
    """(microseconds, +1 or -1, `run N` and the node) of all that begins and ends, in order."""
    found = []
    for line in (folder / "ran").read_text().splitlines():
        run, node, word, at = line.split()
        if node == without:
            continue
        found += [(int(at), 1 if word == "begin" else -1, name) for name in (f"run {run}", node, "all")]
    return sorted(found)


def most_at_once(folder: Path, without: str = "") -> dict[str, int]:
    now, most = Counter[str](), Counter[str]()
    for _, change, name in ran(folder, without):
        now[name] += change
        most[name] = max(most[name], now[name])
    return dict(most)


def test_five_runs_on_two_nodes_and_a_spare_one(bundles: Bundles) -> None:
    env = make(bundles, "[[ $node != local1 ]] || die; sleep 1", nexp=5, side_by_side=2, spares=1)
    code, out = bundles.run(**env)
    one = bundles.set
    assert code == 0, out
    assert one.results() == [1, 2, 3, 4, 5]
    [lost] = [run for run in range(1, 6) if one.attempts(run) != [1]]
    assert one.outcomes(lost) == ["infrastructure", "success"]
    assert one.excluded() == [("local1", lost)]
    most = most_at_once(bundles.folder, without="local1")
    assert most.pop("all") == 2 and set(most.values()) == {1}, most
    assert [event.node for event in one.events("joined", group=2)] == ["local2"]
    assert one.left_behind() == []


def test_one_host_is_many_nodes_only_where_that_is_meant(bundles: Bundles) -> None:
    make(bundles, "", side_by_side=2)
    code, out = bundles.run()
    assert code == 1 and "one_node has 1 nodes, and 2 runs go on side by side; use sbatch job.sh" in out
