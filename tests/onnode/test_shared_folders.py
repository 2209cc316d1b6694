"""What containers of several nodes have in common: Cisco's index of the data, which rank 0 makes and all ranks read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model import Site, load_entry
from orchestrator.onnode.agent.container import _shared, _volumes
from orchestrator.onnode.agent.node import Node
from orchestrator.onnode.agent.run import RunFiles, keep_unclaimed
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.program import Program, read
from orchestrator.onnode.kernel.settings_file import load
from orchestrator.onnode.kernel.waiting import Waiting
from orchestrator.render import render_bundle, write_bundle

PLACE = "/results/data_index"
Nodes = Callable[..., tuple[Node, Node]]


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """Makes two nodes of a set of Cisco's llama2 entry, with what the site says of its container."""
    for name in ("data", "model"):
        (tmp_path / "data" / name).mkdir(parents=True)
    monkeypatch.setenv("ORCH_GROUP", "7.2")
    monkeypatch.setenv("ORCH_GENERATION", "1")

    def make(**container: Any) -> tuple[Node, Node]:
        data = {"llama2_70b_lora": {"DATADIR": str(tmp_path / "data")}}
        site = Site(log_dir=str(tmp_path), data=data, container={"engine": "docker", **container})
        entry = load_entry("MI350X_2x8x1", "llama2_70b_lora", round="6.0", site=site)
        write_bundle(render_bundle(entry, nexp=1), tmp_path / "bundle")
        settings, layout = load(read(tmp_path / "bundle").files, {}), Layout(tmp_path / "set")
        made = [
            Node(one, settings, Program({}), layout, "7", *("",) * 5, str(tmp_path)) for one in "ab"
        ]
        for one in made:
            os.makedirs(one.results)
        return made[0], made[1]

    return make


def sources(node: Node) -> list[str]:
    return [one.split(",")[1] for one in _volumes(node) if one.endswith(f"target={PLACE}")]


def test_all_nodes_see_the_same_folder_and_new_containers_a_new_one(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = nodes()
    [found] = sources(first)
    assert sources(second) == [found]
    folder = Path(found.removeprefix("source="))
    assert folder.parent.parent == first.layout.shared("7.2-1")
    assert folder.name == "results_data_index"
    assert folder.stat().st_mode & 0o7777 == 0o1777, (
        "root of a container is nobody on many file servers"
    )
    monkeypatch.setenv("ORCH_GENERATION", "2")
    assert sources(first) != [found]


def test_a_mount_of_the_site_wins(nodes: Nodes, tmp_path: Path) -> None:
    first, _ = nodes(
        mounts=[{"host": str(tmp_path / "data"), "container": PLACE, "read_only": False}]
    )
    assert sources(first) == [f"source={tmp_path}/data"] and _shared(first) == {}


@pytest.mark.parametrize("of_the_site", [False, True])
def test_what_a_run_left_is_moved_and_where_something_is_mounted_stays(
    nodes: Nodes, tmp_path: Path, of_the_site: bool
) -> None:
    mount = {"host": str(tmp_path / "data"), "container": PLACE, "read_only": False}
    first, _ = nodes(mounts=[mount] if of_the_site else [])
    _volumes(first)
    for name in ("data_index", "nemo"):
        (Path(first.results) / name).mkdir(exist_ok=True)
    RunFiles(first, Waiting(), tmp_path / "kept").keep(list)
    assert os.listdir(first.results) == ["data_index"] and os.listdir(tmp_path / "kept") == ["nemo"]
    RunFiles(first, Waiting(), tmp_path / "again").keep(list)
    assert not (tmp_path / "again").exists()


def test_what_cannot_be_moved_stays_and_is_said(
    nodes: Nodes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, _ = nodes()
    for name in ("a", "b", "c"):
        (Path(first.results) / name).mkdir()
    for name in ("a", "b"):
        (tmp_path / "kept" / name / "there").mkdir(parents=True)
    RunFiles(first, Waiting(), tmp_path / "kept").keep(list)
    assert sorted(os.listdir(first.results)) == ["a", "b"]
    assert (tmp_path / "kept/c").is_dir()
    said = f"could not keep {first.results}/a: Directory not empty, and 1 other\n"
    assert capfd.readouterr().err.endswith(said)


def test_unclaimed_files_never_meet(nodes: Nodes) -> None:
    first, _ = nodes()
    waiting = Waiting()
    for number in "123":
        (Path(first.results) / "checkpoint").mkdir()
        (Path(first.results) / "checkpoint/model").write_text(number)
        (Path(first.results) / "metrics").write_text(number)
        keep_unclaimed(first, waiting, "unclaimed-7")
        assert os.listdir(first.results) == []
    kept = [
        first.folder / f"unclaimed-7{copy}/files/a/{name}"
        for copy in ("", "-2", "-3")
        for name in ("metrics", "checkpoint/model")
    ]
    assert [path.read_text() for path in kept] == [*"112233"]
