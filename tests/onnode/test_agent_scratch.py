"""The scratch folder of a node without a container: who names it, what is on record of it, and when it goes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from agent_parts import Bench, bench
from until import make_older

PLAN = """echo "$TRITON_CACHE_DIR|$TMPDIR|$HF_HOME|$XDG_CACHE_HOME"; head -c 7 /dev/zero >"$TRITON_CACHE_DIR/a"
"""


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest):
    nvme = tmp_path / "a disk's"
    nvme.mkdir()
    container = {"engine": "none", "scratch": str(nvme), **getattr(request, "param", {})}
    with bench(tmp_path / "bench", container=container) as one:
        one.layout.environment.write_text('declare -x XDG_CACHE_HOME="/of/the/config"\n')
        one.plan(PLAN)
        one.change(
            "agent/scratch.py",
            "_LOOK_S, _REMOVE_S = 20_000, 1.0,",
            "_LOOK_S, _REMOVE_S = 20_000, 1e6,",
        )
        yield one, nvme


def cache_of(one: Bench, run: int, last: str) -> tuple[dict[str, object], int]:
    """Run on an agent of its own and end it: by the word of the loop (end), a signal (term), or for a new container (renew)."""
    agent = one.agent()
    agent.hear("ready")
    agent.begin(run)
    assert agent.hear("exit")[1] == "0", agent.log(run)
    if last == "end":
        agent.say("job_ends")
    if last == "term":
        agent.process.send_signal(signal.SIGTERM)
    else:
        agent.input.close()
    agent.end()
    assert agent.words[-1][0] == "left"
    return agent.record(run)["cache"], agent.record(run)["container_run"]


@pytest.mark.parametrize("last", ["end", "term"])
def test_it_is_warm_for_the_next_of_the_job_and_goes_with_it(
    made: tuple[Bench, Path], last: str
) -> None:
    one, nvme = made
    assert cache_of(one, 1, "renew") == (
        {"state": "cold", "files": 0, "bytes": 0, "whole": True},
        1,
    )
    [folder] = nvme.iterdir()
    assert (
        folder.name == f"orch-scratch-{os.getuid()}-7-n1" and folder.stat().st_mode & 0o777 == 0o700
    )
    triton, tmp, hf, xdg = one.layout.node_log(1, 1, 0).read_text().strip().split("|")
    assert (triton, tmp) == (f"{folder}/none-cpu/triton", f"{folder}/tmp")
    assert xdg == "/of/the/config" and hf.endswith("/huggingface")
    assert cache_of(one, 2, last) == ({"state": "warm", "files": 1, "bytes": 7, "whole": True}, 1)
    assert list(nvme.iterdir()) == []


@pytest.mark.parametrize("made", [{"keep_caches": True}], indirect=True)
def test_kept_caches_stay(made: tuple[Bench, Path]) -> None:
    one, nvme = made
    assert cache_of(one, 1, "end")[0]["state"] == "cold"
    assert [path.name for path in nvme.iterdir()] == [f"orch-cache-{os.getuid()}"]
    assert cache_of(one, 2, "end")[0]["state"] == "warm"


def test_a_folder_that_is_not_there_is_told(made: tuple[Bench, Path]) -> None:
    one, nvme = made
    nvme.rmdir()
    kind, text = one.agent().hear("failed")
    assert (
        kind == "storage"
        and text == f"{nvme} does not exist on this node (container.scratch of the site)"
    )


def test_a_folder_whose_maker_was_killed_goes_after_a_day(made: tuple[Bench, Path]) -> None:
    """A younger one may be about to get the name of its job."""
    bench, nvme = made
    for job, age_s in {"5": 2 * 86400, "6": 0}.items():
        folder = nvme / f"orch-scratch-{os.getuid()}-{job}-n1"
        folder.mkdir()
        make_older(folder, age_s)
    bench.agent().hear("ready")
    assert sorted(path.name[-4:] for path in nvme.iterdir()) == ["6-n1", "7-n1"]


def test_what_is_somebody_elses_is_not_used(made: tuple[Bench, Path], tmp_path: Path) -> None:
    one, nvme = made
    (tmp_path / "other").mkdir()
    (nvme / f"orch-scratch-{os.getuid()}-7-n1").symlink_to(tmp_path / "other")
    kind, text = one.agent().hear("failed")
    assert kind == "storage" and text.endswith("is not this user's")
    assert list((tmp_path / "other").iterdir()) == []
