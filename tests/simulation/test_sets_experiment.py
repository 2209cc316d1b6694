"""A set is one experiment: what its jobs do when the image or the machines change in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from replayed import differences
from worlds import Sets, World

from orchestrator.cli import main
from orchestrator.evidence.ledger import verify
from orchestrator.mllog.score import score_dir
from orchestrator.onnode.set import ledger
from orchestrator.simulation.machine import CONTENTS

FIRST, SECOND = "sha256:" + "5" * 64, "sha256:" + "6" * 64
ENGINE = {"container": {"engine": "docker"}}


def cancelled(sets: Sets, **site: object) -> World:
    """Return a set of three runs whose job was cancelled in its second."""
    world = sets.make(nexp=3, **{**ENGINE, **site}).start().running(2)
    world.fault("the job is cancelled")
    world.end()
    return world


def changed(world: World) -> list[dict[str, object]]:
    return [one.data for one in ledger.read(world.set.root)[0] if one.kind == "change"]


def found(world: World) -> list[str]:
    return [str(one) for one in score_dir(str(world.set.root)).differences]


def test_a_tag_that_moved_between_two_jobs_stops_the_second(sets: Sets) -> None:
    world = cancelled(sets)
    world.fault("the tag of the image moves for 1 day")
    assert world.play() == 1
    job = world.set.job
    assert (job["state"], world.set.results()) == ("paused", [1])
    assert job["reason"] == (
        f"not the experiment of the runs that count: image is {SECOND} on all nodes, {FIRST} in "
        f"run 1 (`orchestrator resume {world.set.root.name} --allow-changes` runs all the same)"
    )
    assert world.set.attempts(3) == [] and changed(world) == []
    assert differences(world.set.root) == []
    # The tag is put back.
    world.wait(2 * 86400)
    assert world.play() == 0 and found(world) == []


@pytest.mark.parametrize(
    ("first", "every"), [(122, 16), pytest.param(120, 1, marks=pytest.mark.long)]
)
def test_a_tag_that_moved_is_seen_though_the_storage_fails(
    sets: Sets, first: int, every: int
) -> None:
    """Any call of the second job may be the one that fails."""
    for step in range(first, 240, every):
        world = sets.make(nexp=2, **ENGINE).start().running(2)
        world.fault("the job is cancelled")
        world.end()
        world.fault("the tag of the image moves for 1 day")
        world.fault(f"the storage fails for the next loop at its step {step}")
        world.play()
        assert (world.set.results(), world.set.attempts(2)[1:]) == ([1], []), step


def test_a_moved_tag_that_the_owner_allows_is_named_everywhere(
    sets: Sets, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    world = cancelled(sets)
    world.fault("the tag of the image moves for 30 days")
    world.user.allows_changes = True
    assert world.play() == 0
    root = world.set.root
    texts = [f"not the experiment of the runs that count: image is {SECOND} on all nodes, "]
    [record] = changed(world)
    assert record["texts"] == [f"{texts[0]}{FIRST} in run 1 (allowed)"]
    assert record["texts"][0] in world.set.job["warnings"]  # type: ignore[index]
    assert verify(root).problems == () and differences(root) == []
    [difference] = found(world)
    assert difference == (
        "result_1.txt: differs: image: image is sha256:555555555555 in run 1, "
        "sha256:666666666666 in runs 2 to 3"
    )
    for command in (["score"], ["check"], ["report", "-o", str(tmp_path / "report.html")]):
        main([command[0], str(root), *command[1:]])
    text = capsys.readouterr().out + (tmp_path / "report.html").read_text()
    assert text.count("sha256:555555555555 in run 1") >= 3
    assert main(["check", str(root)]) == 1
    capsys.readouterr()


def test_a_site_that_only_flags(sets: Sets) -> None:
    world = cancelled(sets, changes="flag")
    world.fault("the tag of the image moves for 30 days")
    assert world.play() == 0
    assert len(changed(world)) == len(found(world)) == 1


def test_another_driver_is_a_warning(sets: Sets) -> None:
    world = cancelled(sets)
    for machine in world.machines.values():
        machine.change(facts={**machine.condition.facts, "driver": "6.14.0"})
    assert world.play() == 0
    [warning] = world.set.job["warnings"]
    assert warning == ("not what earlier runs had: driver is 6.14.0 on all nodes, 6.12.12 in run 1")
    assert [one["texts"] for one in changed(world)] == [[warning]]
    assert found(world) == []


@pytest.mark.parametrize(
    ("sentence", "part"),
    [
        ("a package changes on node 2", "packages"),
        ("the code changes on node 2", "code"),
        ("a tokenizer changes on node 2", "caches"),
    ],
)
def test_what_changes_inside_on_one_node_flags_the_set(
    sets: Sets, sentence: str, part: str
) -> None:
    world = sets.make(nexp=4, **ENGINE)
    world.fault(f"{sentence} for 30 days in run 3")
    assert world.play() == 0
    [change] = changed(world)
    [text] = change["texts"]  # type: ignore[misc]
    assert change["run"] == 3 and text in world.set.job["warnings"]
    assert text.startswith(f"run 3 is not the experiment of the other runs: {part} of the")
    assert " dddddddddddddddd on n2, " in text and text.endswith(" in runs 1 to 2")
    [finding] = found(world)
    assert (
        f"{part} of the containers: dddddddddddddddd at the end of runs 3 to 4 on n2, " in finding
    )
    assert verify(world.set.root).problems == () and differences(world.set.root) == []


def test_nodes_of_the_first_run_are_compared_with_each_other(sets: Sets) -> None:
    world = sets.make(nodes=3, nexp=1, **ENGINE)
    world.fault("the code changes on node 3 for 30 days in run 1")
    assert world.play() == 0
    [change] = changed(world)
    assert " dddddddddddddddd on n3, bbbbbbbbbbbbbbbb in run 1" in str(change["texts"])
    assert len(found(world)) == 1


def test_a_site_that_stops_after_a_changed_run(sets: Sets) -> None:
    world = sets.make(nexp=4, changes="stop", **ENGINE)
    world.fault("a package changes on node 1 for 30 days in run 2")
    assert world.play() == 1
    assert (world.set.job["state"], world.set.results()) == ("paused", [1, 2])
    assert world.set.job["reason"].startswith("run 2 is not the experiment of the other runs")


def test_other_code_on_one_node_before_the_first_run_starts_no_set(sets: Sets) -> None:
    world = sets.make(nodes=3, nexp=1, **ENGINE)
    world.machine(2).change(contents={**CONTENTS, "code": "e" * 16})
    assert world.play() == 1
    reason = world.set.job["reason"]
    assert "node n2 (rank 1): inside.code is eeeeeeeeeeeeeeee, elsewhere bbbbbbbbbbbbbbbb" in reason
    world.machine(2).change(contents=CONTENTS)


def test_a_set_without_such_facts_is_as_it_was(sets: Sets) -> None:
    """As one of a version before, or of an image without Python."""
    world = sets.make(nexp=2, **ENGINE)
    for machine in world.machines.values():
        machine.change(contents={})
    assert world.play() == 0
    assert changed(world) == found(world) == []
    assert "inside" not in world.set.run(1)
