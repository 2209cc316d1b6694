"""What the bundle's README shows is what is executed."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from orchestrator.model import Site, load_entry
from orchestrator.onnode.agent.container import _volumes, run_argv
from orchestrator.onnode.agent.node import make_hidden, this_node
from orchestrator.onnode.kernel.program import read
from orchestrator.onnode.kernel.settings_file import load
from orchestrator.render import render_bundle, write_bundle


def test_the_container_of_a_run_is_shown_as_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data it's"
    data.mkdir()
    site = Site(
        log_dir=str(tmp_path),
        data={"flux1": {"DATADIR": str(data)}},
        container={"command": ["sudo", "-n", "docker"]},
    )
    write_bundle(
        render_bundle(load_entry("MI325X_08x08x32", "flux1", site=site), nexp=10),
        tmp_path / "bundle",
    )
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    monkeypatch.setenv("ORCH_DEV_ROOT", str(tmp_path / "dev"))
    names = {"ORCH_SET_DIR": str(tmp_path / "SET"), "ORCH_JOB_ID": "JOB", "ORCH_NODE": "NODE"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    program = read(tmp_path / "bundle")
    node = this_node(program, load(program.files))
    node.folder.mkdir(parents=True)
    random = Path(make_hidden(node.shared_results)).name
    argv = run_argv(node, f"orch-{node.owner}-1", node.settings.cont, _volumes(node), [])
    executed = (
        shlex.join(argv)
        .replace(random, "RANDOM")
        .replace(f"{tmp_path}/SET/", "SET/")
        .replace(f"orch-{os.getuid()}-", "orch-UID-")
    )
    readme = (tmp_path / "bundle/README").read_text()
    assert f"    {executed}\n" in readme
    assert "    cd /workspace/code && bash ./run_and_time.sh\n" in readme
    assert 20 <= readme.count("\n") <= 45


def test_a_folder_that_is_not_known_yet_is_shown_by_its_name(tmp_path: Path) -> None:
    readme = render_bundle(
        load_entry("MI325X_08x08x32", "flux1", site=Site(log_dir=str(tmp_path))), nexp=10
    )["README"].decode()
    assert "--mount type=bind,source=$DATADIR,target=/dataset " in readme


@pytest.mark.parametrize(
    ("system", "workload", "size"),
    [
        ("MI325X_08x08x32", "flux1", "8 nodes x 8 GPUs"),
        ("MI355X_1x8x1", "llama31_8b", "1 node x 8 GPUs"),
    ],
)
def test_its_head_has_the_size(system: str, workload: str, size: str, tmp_path: Path) -> None:
    entry = load_entry(system, workload, site=Site(log_dir=str(tmp_path)))
    head, line, _ = render_bundle(entry, nexp=1)["README"].decode().split("\n", 2)
    assert head.endswith(f" on {system}: {size}") and set(line) == {"="}
