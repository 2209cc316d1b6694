"""Several runs of a set at once, each on nodes of its own: who runs what, what a dead node costs, and when the set has to stop."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bundle_parts import Bundles, Set
from test_bundle_spares import with_a_setting
from until import until

from orchestrator.evidence.events import read_events

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
while [[ -e %(folder)s/late-$ORCH_NODE ]]; do sleep 0.1; done
exec python3 "$@"
"""


def make(bundles: Bundles, plan: str, *, system: str = "one_node", **more: Any) -> dict[str, str]:
    """A bundle whose program knows its node; returns the environment for its job."""
    python = bundles.folder / "python"
    python.write_text(PYTHON % {"folder": bundles.folder})
    python.chmod(0o755)
    bundles.make(NODE % {"folder": bundles.folder} + plan, system=system, **more)
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


def words_of(one: Set, group: int = 1) -> list[tuple[str, str]]:
    name = one.job["job_id"] + ("" if group == 1 else f".{group}")
    return [(event.word, event.node) for event in read_events(one.root / f"events-{name}.tsv")]


def test_ten_runs_on_three_nodes_and_a_spare_one(bundles: Bundles) -> None:
    env = make(bundles, "[[ $node != local1 ]] || die; sleep 3", nexp=10, side_by_side=3, spares=1)
    code, out = bundles.run(**env)
    one = bundles.set
    assert code == 0, out
    assert one.results() == list(range(1, 11))
    states = [one.run(run) for run in range(1, 11)]
    assert {state["state"] for state in states} == {"success"}
    assert len({state["seed"] for state in states}) == len({state["master_port"] for state in states}) == 10
    assert {node for state in states for node in state["nodes"]} == {"local0", "local2", "local3"}
    [lost] = [run for run in range(1, 11) if one.attempts(run) != [1]]
    assert one.outcomes(lost) == ["infrastructure", "success"]
    assert [(entry["node"], entry["run"]) for entry in one.job["set_aside"]] == [("local1", lost)]
    most = most_at_once(bundles.folder, without="local1")
    assert most.pop("all") == 3 and set(most.values()) == {1}, most
    assert max(Counter(state["nodes"][0] for state in states).values()) <= 4, "as even as 10 runs on 3 nodes can be"
    assert ("joined", "local3") in words_of(one, 2)
    assert one.job["spares"] == [] and "groups" not in one.job
    [told] = {line for line in out.splitlines() if "runs on 1 node(s)" in line}
    assert told.endswith("10 runs on 1 node(s), 3 side by side, 1 to spare")
    assert one.left_behind() == []


@pytest.mark.parametrize("spares", [0, 1])
def test_a_node_unlike_those_of_the_other_groups_runs_nothing(bundles: Bundles, spares: int) -> None:
    env = with_a_setting(bundles, nodes=3 + spares, refusing=[])
    for rank in range(3 + spares):
        release = bundles.folder / f"root/local{rank}/proc/sys/kernel/osrelease"
        release.parent.mkdir(parents=True)
        release.write_text("6.0\n" if rank else "5.9\n")
    knob = str(bundles.folder / "ours.yaml")
    more = {"nexp": 4, "side_by_side": 3, "spares": spares, "tunables": "apply", "tuning": {"profile": knob}}
    code, out = bundles.run(**make(bundles, "", **more), **env)
    one = bundles.set
    assert code == 0, out
    assert one.results() == [1, 2, 3, 4] and all(one.attempts(run) == [1] for run in range(1, 5))
    used = {node for run in range(1, 5) for node in one.run(run)["nodes"]}
    assert used <= {f"local{rank}" for rank in range(1, 3 + spares)}
    if spares:
        assert [(entry["node"], entry["kind"]) for entry in one.job["set_aside"]] == [("local0", "versions")]
        assert one.job["warnings"] == [text for text in one.job["warnings"] if "no more runs" not in text]
    else:
        assert any("no more runs on local0: node local0: kernel is 5.9" in text for text in one.job["warnings"])
    assert {(bundles.folder / f"root/local{rank}/proc/k").read_text() for rank in range(3 + spares)} == {"0\n"}
    assert one.left_behind() == []


def test_groups_wait_a_while_for_one_another_and_who_comes_later_has_to_be_like_them(bundles: Bundles) -> None:
    env = with_a_setting(bundles, nodes=3, refusing=[])
    for rank, version in enumerate(("6.0", "5.9", "5.9")):
        release = bundles.folder / f"root/local{rank}/proc/sys/kernel/osrelease"
        release.parent.mkdir(parents=True)
        release.write_text(f"{version}\n")
    for node in ("local1", "local2"):
        (bundles.folder / f"late-{node}").touch()
    plan = f"rm -f {bundles.folder}/late-*; until [[ -e {bundles.folder}/go ]]; do sleep 0.1; done"
    knob = str(bundles.folder / "ours.yaml")
    more = {"tunables": "apply", "tuning": {"profile": knob}, "limits": {"container_start_seconds": 10}}
    loop = bundles.start(**make(bundles, plan, nexp=3, side_by_side=3, **more), **env)
    until(lambda: (bundles.folder / "ran").exists())  # although two groups are not there
    until(lambda: len([text for text in bundles.set.job["warnings"] if "no more runs on local" in text]) == 2)
    (bundles.folder / "go").touch()
    assert loop.end() == 0, loop.out
    one = bundles.set
    assert {node for run in range(1, 4) for node in one.run(run)["nodes"]} == {"local0"}, "not most, but the first"
    assert all("kernel is" in text for text in one.job["warnings"] if "no more runs" in text), one.job["warnings"]
    assert one.left_behind() == []


def test_every_run_that_goes_on_is_on_record(bundles: Bundles) -> None:
    env = make(
        bundles,
        f"until [[ -e {bundles.folder}/go && ($ORCH_RUN != 3 || -e '{bundles.folder}/go on') ]]; do sleep 0.1; done",
        nexp=3,
        side_by_side=2,
    )
    loop = bundles.start(**env)
    until(lambda: (bundles.folder / "ran").exists() and (bundles.folder / "ran").read_text().count("begin") == 2)
    job = bundles.set.job
    assert sorted((one["run"], one["attempt"]) for one in job["groups"]) == [(1, 1), (2, 1)]
    assert [one["nodes"] for one in job["groups"]] == [["local0"], ["local1"]] and job["nodes"] == ["local0", "local1"]
    assert job["run"] in (1, 2)
    (bundles.folder / "go").touch()
    until(lambda: {one["run"] for one in bundles.set.job["groups"]} == {0, 3})
    (bundles.folder / "go on").touch()
    assert loop.end() == 0, loop.out
    assert bundles.set.results() == [1, 2, 3] and bundles.set.job["state"] == "complete"


def test_a_group_without_a_spare_ends_alone_and_another_number_goes_on(bundles: Bundles) -> None:
    plan = """[[ $node != local1 ]] || die
    [[ $node != local3 || $ORCH_RUN -lt 3 ]] || die
    [[ $node != local2 || $ORCH_RUN -lt 5 ]] || die
    sleep 0.3"""
    env = make(bundles, plan, system="two_nodes", nexp=6, side_by_side=2)
    code, out = bundles.run(**env)
    one = bundles.set
    assert (code, one.job["state"]) == (1, "paused"), out
    assert [entry["node"] for entry in one.job["set_aside"] if entry["kind"] != "silent"] == []
    assert {entry["node"] for entry in one.job["set_aside"]} == {"local1", "local2", "local3"}
    [told] = [text for text in one.job["warnings"] if text.startswith("no more runs on local0 local1: ")]
    assert "1 of 2 nodes are fit, 2 are needed; node local1: " in told
    assert "1 of 3 nodes are fit, 2 are needed; node local2: " in one.job["reason"]
    assert ("joined", "local0") in words_of(one, 2), "what is good of a group that ended is for the others"
    done = one.results()
    assert {1, 2} <= set(done) and not {5, 6} & set(done), out
    for path in bundles.folder.glob("dead-*"):
        path.unlink()
    bundles.program(NODE % {"folder": bundles.folder})
    code, out = bundles.again(one, **env, SIDE_BY_SIDE="3")
    assert code == 0, out
    assert one.results() == [1, 2, 3, 4, 5, 6]
    assert len({one.attempt(run, attempt)["seed"] for run in range(1, 7) for attempt in one.attempts(run)}) == sum(
        len(one.attempts(run)) for run in range(1, 7)
    )
    used = {node for run in range(1, 7) if run not in done for node in one.run(run)["nodes"]}
    assert used <= {f"local{rank}" for rank in range(6)} and len(used) > 2
    assert one.left_behind() == []


def test_a_node_on_which_every_run_dies_takes_few_of_them(bundles: Bundles) -> None:
    code, out = bundles.run(
        **make(bundles, "[[ $node != local0 ]] || exit 3; sleep 0.3", nexp=8, side_by_side=3, limits={"attempts": 2})
    )
    one = bundles.set
    assert code == 0, out
    assert one.results() == list(range(1, 9))
    dead = [run for run in range(1, 9) if one.attempts(run) != [1]]
    assert 1 <= len(dead) <= 3, "its runs go to the others, and after three it gets no more"
    assert {node for run in range(1, 9) for node in one.run(run)["nodes"]} == {"local1", "local2"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_all_of_them(bundles: Bundles, number: int) -> None:
    env = make(bundles, "hang", nexp=5, side_by_side=3, spares=1)
    loop = bundles.start(**env)
    until(lambda: (bundles.folder / "ran").exists() and (bundles.folder / "ran").read_text().count("begin") == 3)
    loop.signal(number)
    assert loop.end() == 1, loop.out
    one = bundles.set
    assert one.job["state"] == ("cancelled" if number == signal.SIGTERM else "time_limit")
    assert [one.outcomes(run) for run in range(1, 6)] == [["interrupted"]] * 3 + [[]] * 2
    assert one.left_behind() == []


def test_a_job_that_was_killed_with_several_runs_goes_on(bundles: Bundles) -> None:
    env = make(bundles, f"[[ -e {bundles.folder}/go ]] || hang", nexp=4, side_by_side=3)
    loop = bundles.start(**env)
    until(lambda: (bundles.folder / "ran").exists() and (bundles.folder / "ran").read_text().count("begin") == 3)
    loop.kill_all()
    (bundles.folder / "go").touch()
    one = bundles.set
    code, out = bundles.again(one, **env, SIDE_BY_SIDE="2")
    assert code == 0, out
    assert one.results() == [1, 2, 3, 4]
    assert [one.outcomes(run) for run in range(1, 5)] == [["interrupted", "success"]] * 3 + [["success"]]
    assert one.left_behind() == []


@pytest.mark.long
def test_a_set_that_cannot_be_written_any_more_closes_all_runs(bundles: Bundles) -> None:
    plan = "if ((ORCH_RUN == 2)); then sleep 1; rm -f %s/sets/*/loop.lock; else sleep 1000; fi"
    loop = bundles.start(**make(bundles, plan % bundles.folder, nexp=3, side_by_side=3))
    assert loop.end() == 1
    assert "is not this job's any more" in loop.out
    assert bundles.set.left_behind() == []


def test_one_host_is_many_nodes_only_where_that_is_meant(bundles: Bundles) -> None:
    make(bundles, "", side_by_side=2)
    code, out = bundles.run()
    assert code == 1 and "one_node has 1 nodes, and 2 runs go on side by side; use sbatch job.sh" in out
