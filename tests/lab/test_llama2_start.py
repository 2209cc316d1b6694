"""llama2_70b_lora of round 6.0: its image's hooks find a checkpoint or download 130 GB, and its script hides why a start failed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from orchestrator.model import load_entry, load_site
from orchestrator.render import render_bundle, write_bundle

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

TOP = Path(__file__).resolve().parents[2]
SYSTEM, WORKLOAD = "MI355X_1x8x1", "llama2_70b_lora"
CHECKPOINT = "megatron_checkpoints/Llama-2-70b-hf/iter_0000000"
CACHE = "huggingface/hub/models--meta-llama--Llama-2-70b-hf/snapshots"


class Tree:
    """A data folder, and the set that runs on it."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.data, self.log_dir = folder / "data", folder / "results"

    def make(self, *paths: str) -> None:
        for path in paths:
            (self.data / path).mkdir(parents=True)

    def run(self, *, mount: str = "", **keys: Any) -> subprocess.CompletedProcess[str]:
        site = yaml.safe_load(self.lab.run(TOP / "lab/site").stdout)
        site |= {"log_dir": str(self.log_dir), "scheduler": "local", "clear_caches": False}
        site |= {"data": {WORKLOAD: {"DATADIR": str(self.data)}}, "tunables": "off", **keys}
        site["container"] |= {"command": ["docker", "-H", self.lab.env["DOCKER_HOST"]]}
        (self.folder / "site.yaml").write_text(yaml.safe_dump(site))
        entry = load_entry(SYSTEM, WORKLOAD, site=load_site(self.folder / "site.yaml"))
        files = render_bundle(entry, nexp=1)
        write_bundle(files, self.folder / "bundle", replace_edited=True)
        self.log_dir.mkdir()
        return subprocess.run(
            [
                "bash",
                "-c",
                f'{mount or ":"} && exec bash "$0"',
                self.folder / "bundle/run_with_docker.sh",
            ],
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
            cwd="/",
            text=True,
            capture_output=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )

    def state(self) -> dict[str, Any]:
        [path] = self.log_dir.glob("*/runs/1/state.json")
        return dict(json.loads(path.read_text()))

    def log(self, attempt: int) -> str:
        [path] = self.log_dir.glob(f"*/runs/1/attempt_{attempt}/node_0.log")
        return path.read_text()


@pytest.fixture
def tree(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Tree]:
    folder = lab.shared / f"llama2-{os.getpid()}"
    folder.mkdir()
    yield Tree(lab, folder)
    shutil.rmtree(folder)


def test_a_tree_of_ours_and_of_the_guide_starts_without_a_download(tree: Tree) -> None:
    tree.make(f"data/{CHECKPOINT}", f"data/{CACHE}")
    done = tree.run()
    assert tree.state()["state"] == "success", done.stdout + done.stderr
    assert tree.state()["attempt"] == 1


def test_a_tree_without_checkpoint_is_explained_by_the_second_attempt(tree: Tree) -> None:
    """As former preparations left it: the checkpoint lies below model/. The first log is empty."""
    tree.make(f"data/{CACHE}", f"model/{CHECKPOINT}")
    done = tree.run(limits={"attempts": 2, "end_grace_seconds": 3})
    assert done.returncode == 1
    assert tree.log(1) == ""
    assert "HF checkpoint will be downloaded to /data/huggingface. Converting" in tree.log(2)
    assert "LocalEntryNotFoundError: the hub cannot be reached" in tree.state()["reason"]


def test_a_folder_that_the_container_cannot_write_is_refused_before_a_run(tree: Tree) -> None:
    tree.make(f"data/{CHECKPOINT}", f"data/{CACHE}")
    read_only = f"mount --bind {tree.data} {tree.data} && mount -o remount,ro,bind {tree.data}"
    try:
        done = tree.run(mount=read_only)
    finally:
        subprocess.run(["umount", tree.data], check=True)
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "the program writes to /data, and root of the container cannot" in said, said
