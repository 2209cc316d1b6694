"""Several runs of a set at once with real processes; who runs what is in tests/simulation/test_sets_side_by_side.py."""

from __future__ import annotations

from bundle_parts import Bundles

# Which node this is, and a way for it to die so that nothing starts on it any more.
NODE = r"""
agent=$(cut -d' ' -f4 /proc/$PPID/stat)
node=$(tr '\0' '\n' </proc/$agent/environ | sed -n 's/^ORCH_NODE=//p')
die() { touch "%(folder)s/dead-$node"; kill -KILL "$agent"; exit 1; }
[[ $node != local1 ]] || die
# The first run waits for another one beside it.
touch "%(folder)s/run-$ORCH_RUN"
count() { set -- "%(folder)s"/run-*; echo $#; }
until (($(count) > 1)); do read -r -t 0.05 <> <(:); done
"""
PYTHON = """#!/bin/bash
[[ ! -e %(folder)s/dead-$ORCH_NODE ]] || exit 1
exec python3 "$@"
"""


def test_four_runs_on_two_nodes_and_a_spare_one(bundles: Bundles) -> None:
    python, names = bundles.folder / "python", {"folder": bundles.folder}
    python.write_text(PYTHON % names)
    python.chmod(0o755)
    bundles.make(NODE % names, nexp=4, side_by_side=2, spares=1)
    code, out = bundles.run(ALLOW_MANY_ON_ONE_HOST="1", PYTHON=str(python))
    one = bundles.set
    assert code == 0, out
    assert one.results() == [1, 2, 3, 4]
    [lost] = [run for run in range(1, 5) if one.attempts(run) != [1]]
    assert one.outcomes(lost) == ["infrastructure", "success"]
    assert one.excluded() == [("local1", lost)]
    assert [event.node for event in one.events("joined", group=2)] == ["local2"]
    assert one.left_behind() == []


def test_one_host_is_many_nodes_only_where_that_is_meant(bundles: Bundles) -> None:
    code, out = bundles.make(side_by_side=2).run()
    assert (
        code == 1 and "one_node has 1 node, and 2 runs are side by side; use sbatch job.sh" in out
    )
