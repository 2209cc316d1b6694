"""Sets with random faults in the simulated world: no invariant is broken, and the same seed gives the same set."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import seeded_sets
import set_invariants as invariants
from processes import kill_all, see_them_go
from until import LIMIT_S, until

from orchestrator.simulation.desk import User
from orchestrator.simulation.engine import NEVER
from orchestrator.simulation.play import Simulation

SEEDS, LONG = 50, 500
"""So many in one test. `make test` plays FEW in all, and `make long` 20,000."""
FEW = 1000


@pytest.mark.parametrize("first", range(1, FEW + 1, SEEDS))
def test_no_invariant_is_broken(first: int) -> None:
    play(range(first, first + SEEDS))


@pytest.mark.long
@pytest.mark.parametrize("to_all", [False, True], ids=["to the first", "to all"])
def test_an_end_by_a_signal_leaves_nothing(tmp_path: Path, to_all: bool) -> None:
    """Neither workers nor their sets."""
    options = ["--seeds", "100000", "--jobs", "2", "--record", str(tmp_path / "record")]
    argv = [sys.executable, seeded_sets.__file__, *options]
    process = subprocess.Popen(argv, start_new_session=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    places: list[Path] = []

    def are_busy() -> bool:
        places[:] = [seeded_sets.place_of(int(pid)) for pid in children.read_text().split()]
        return len(places) == 2 and all(place.exists() for place in places)

    try:
        until(are_busy)
        if to_all:
            os.killpg(process.pid, signal.SIGTERM)
        else:
            process.terminate()
        assert process.wait(LIMIT_S) == 128 + signal.SIGTERM
        see_them_go(tmp_path)
        assert not any(place.exists() for place in places)
    finally:
        kill_all(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("first", range(FEW + 1, 20_001, LONG))
def test_no_invariant_is_broken_in_many_more(first: int) -> None:
    play(range(first, first + LONG))


def play(seeds: range) -> None:
    place = seeded_sets.own_place()
    try:
        for seed in seeds:
            trial = seeded_sets.play(seed, place=place)
            assert trial.found == [], f"python tests/simulation/seeded_sets.py --seed {seed}"
    finally:
        seeded_sets.remove(place)


def tree(place: Path) -> dict[str, tuple[str, int]]:
    """Return the hash of every file in a set's folder, "" for a folder, and its time."""
    return {
        str(path.relative_to(place)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.lstat().st_mtime_ns,
        )
        for path in sorted(place.rglob("*"))
    }


@pytest.mark.parametrize("seed", [1, 8, 17, 58, 204])
def test_the_same_seed_gives_the_same_files_and_times(seed: int, tmp_path: Path) -> None:
    """In 8 and 58 a batch host dies, and a job's last events are lost with it."""
    first = seeded_sets.play(seed, place=tmp_path)
    before = tree(tmp_path / "sets")
    assert first.found == [] and before
    again = seeded_sets.play(seed, place=tmp_path)
    assert (again.turns, again.virtual_s) == (first.turns, first.virtual_s)
    assert tree(tmp_path / "sets") == before


def test_a_broken_invariant_is_found_and_shrunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that publishes nothing: the campaign says so, with no fault at all."""
    from orchestrator.onnode.set.folder import Folder

    monkeypatch.setattr(Folder, "link", lambda *_: None)
    trial = seeded_sets.play(3, place=tmp_path)
    assert any("result" in text for text in trial.found)
    assert seeded_sets.shrink(trial, tmp_path).faults == []


def interrupted(folder: Path, *, resume: float = NEVER, cancel: float = NEVER) -> list[str]:
    """Return the violations of a set that is cancelled and resumed by commands that are killed at these steps."""
    shape = seeded_sets.Shape(limit=seeded_sets.SHORT_LIMIT)
    nodes = [f"n{k + 1}" for k in range(shape.hosts)]
    world = Simulation(
        seeded_sets.bundle(folder, shape),
        folder,
        5,
        nodes,
        user=User(dies_at=resume),
        run_seconds=seeded_sets.RUN_S,
    )
    if cancel < NEVER:
        world.engine.after(700.0, lambda: world.cancel(dies_at=cancel))
    with seeded_sets.cheaply(), closing(world):
        world.play()
        world.settle()
        world.engine.run(world.idle)
        seeded_sets.resume_complete_set(world)
        assert world.run_set is not None
        open_ones = invariants.open_records(world.run_set.layout.root)
        return [*seeded_sets.violations(world), *open_ones]


@pytest.mark.parametrize("step", range(28, 80, 4))
def test_a_resume_that_is_killed_leaves_nothing(step: int, tmp_path: Path) -> None:
    assert interrupted(tmp_path, resume=step) == []


@pytest.mark.parametrize("step", range(36, 56, 2))
def test_a_cancel_that_is_killed_leaves_a_good_ledger(step: int, tmp_path: Path) -> None:
    assert interrupted(tmp_path, cancel=step) == []


def test_an_exit_that_arrives_while_slurm_is_asked_counts(tmp_path: Path) -> None:
    """Slurm gives no answer for longer than a stopped node has time to end: the node is not blamed."""
    assert seeded_sets.play(1607098, (1, 3, 4, 5, 6, 7), tmp_path).found == []


def test_a_line_that_is_cut_by_the_death_of_its_host_stays_the_last(tmp_path: Path) -> None:
    """The host dies while its loop writes the next line: no part of that follows the cut."""
    assert seeded_sets.play(4060429, (0, 1, 3, 4, 6), tmp_path).found == []
