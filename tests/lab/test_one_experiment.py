"""A set is one experiment, with a real engine: a tag that moves between two jobs, and packages, code and a
tokenizer that change in the containers between two runs, on all nodes or on one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import pytest
import yaml
from replayed import differences
from run_sets import Set
from tars import make_image
from until import until

from orchestrator.mllog.score import score_dir
from orchestrator.onnode.set import ledger

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

TOP = Path(__file__).resolve().parents[2]
BASE, REPOSITORY = "orchestrator/builtin:1", "orchestrator-test/experiment"
SITE_PACKAGES = "usr/lib/python3/dist-packages"
HUB = "root/.cache/huggingface/hub/models--tiny/snapshots/1"
# The container lives on from run to run, as an image's start scripts find it.
START = f"""#!/usr/bin/env bash
case $ORCH_RUN in
2) [ "$SLURM_NODEID" = 1 ] && echo "rate = 2" >/workspace/code/model.py ;;
3) mv /{SITE_PACKAGES}/tool-1.0.dist-info /{SITE_PACKAGES}/tool-2.0.dist-info
   echo "tool/__init__.py,sha256=2,9" >/{SITE_PACKAGES}/tool-2.0.dist-info/RECORD
   echo '{{"words": 2}}' >/{HUB}/tokenizer.json ;;
esac
exec bash /workspace/code/start.sh
"""
FILES = {
    "workspace/code/model.py": "rate = 1\n",
    f"{SITE_PACKAGES}/tool-1.0.dist-info/RECORD": "tool/__init__.py,sha256=1,9\n",
    f"{HUB}/tokenizer.json": '{"words": 1}\n',
}


class Images:
    """Images of the lab's engine that are removed again."""

    def __init__(self, client: docker.DockerClient) -> None:
        self.api = client.api

    def make(self, tag: str, files: dict[str, str]) -> str:
        """Make the built-in workload's image with more files; return its id."""
        return make_image(self.api, BASE, files, REPOSITORY, tag)


@pytest.fixture
def images(lab: Lab) -> Iterator[Images]:
    with closing(
        docker.DockerClient(base_url=f"unix://{lab.docker_socket}", timeout=300)
    ) as client:
        yield Images(client)
        for image in client.images.list(REPOSITORY):
            client.api.remove_image(image.id, force=True)


class Experiment:
    """A set on two nodes, started from the command line."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder, self.log_dir = lab, folder, folder / "results"
        self.log_dir.mkdir()
        system = yaml.safe_load((TOP / "systems/local_2x2x8.yaml").read_text())
        system["name"] = "experiment"
        system["workloads"]["builtin"]["1.0"]["image"] = f"{REPOSITORY}:1"
        (folder / "systems").mkdir()
        (folder / "systems/experiment.yaml").write_text(yaml.safe_dump(system))
        site = yaml.safe_load(lab.run(TOP / "lab/site").stdout)
        site |= {"log_dir": str(self.log_dir), "systems_dirs": [str(folder / "systems")]}
        site |= {"tunables": "off", "clear_caches": False}
        (folder / "site.yaml").write_text(yaml.safe_dump(site))

    def on_one_node(self) -> None:
        path = self.folder / "systems/experiment.yaml"
        system = yaml.safe_load(path.read_text())
        system["nodes"] = 1
        system["workloads"]["builtin"]["1.0"]["global_batch"] //= 2
        path.write_text(yaml.safe_dump(system))

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.lab.orchestrator(self.folder, *arguments)

    @property
    def root(self) -> Path:
        [record] = self.log_dir.glob("*/set.json")
        return record.parent

    def changes(self) -> list[tuple[Any, str]]:
        records = ledger.read(self.root)[0]
        return [
            (record.data.get("run"), text)
            for record in records
            if record.kind == "change"
            for text in record.data["texts"]
        ]

    def found(self) -> list[str]:
        return [str(difference) for difference in score_dir(str(self.root)).differences]


@pytest.fixture
def experiment(lab: Lab) -> Iterator[Experiment]:
    folder = lab.shared / f"experiment-{os.getpid()}"
    folder.mkdir()
    yield Experiment(lab, folder)
    lab.free()
    assert differences(folder) == []
    shutil.rmtree(folder)


def test_what_changes_in_the_containers_is_named_run_by_run(
    experiment: Experiment, images: Images
) -> None:
    original = (TOP / "workloads/builtin/run_and_time.sh").read_text()
    wrapped = {"workspace/code/start.sh": original, "workspace/code/run_and_time.sh": START}
    images.make("1", {**FILES, **wrapped})
    done = experiment.call("run", "experiment", "builtin", "--nexp", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    second = Set(experiment.root).job["nodes"][1]
    texts: dict[int, str] = {}
    for run, text in experiment.changes():
        texts[run] = texts.get(run, "") + text
    assert set(texts) == {2, 3}
    assert "code of the containers" in texts[2] and f" on {second}, " in texts[2]
    assert "model.py" in texts[2]
    assert "packages of the containers" in texts[3] and "tool 1.0 " in texts[3]
    assert "-> 2.0 " in texts[3]
    assert "caches of the containers" in texts[3] and "tokenizer.json" in texts[3]
    differences = "\n".join(experiment.found())
    for part in ("code", "packages", "caches"):
        assert f"{part} of the containers" in differences
    assert experiment.call("check", experiment.root.name).returncode == 1


@pytest.mark.long
def test_a_tag_that_moves_between_two_jobs(experiment: Experiment, images: Images) -> None:
    experiment.on_one_node()
    first = images.make("1", FILES)
    arguments = (
        "experiment",
        "builtin",
        "--nexp",
        "2",
        "--env",
        "BUILTIN_FAULT=hang:run=2:attempt=1",
    )
    submitted = experiment.call("submit", *arguments)
    assert submitted.returncode == 0, submitted.stderr
    until(lambda: list(experiment.log_dir.glob("*/runs/2/attempt_1/node_0.log")))
    name = experiment.root.name
    assert experiment.call("cancel", name).returncode == 0
    until(lambda: experiment.lab.run("squeue", "--noheader").stdout == "")
    second = images.make("1", {**FILES, "workspace/code/model.py": "rate = 2\n"})
    assert first != second
    assert experiment.call("resume", name).returncode == 0
    experiment.call("watch", name)
    jobs = sorted(experiment.root.glob("jobs/*.json"), key=lambda path: int(path.stem))
    record = json.loads(jobs[-1].read_text())
    assert record["state"] == "paused" and "--allow-changes` runs all the same" in record["reason"]
    assert record["reason"].startswith("not the experiment of the runs that count: image is ")
    assert len(list(experiment.root.glob("results/result_*.txt"))) == 1

    assert experiment.call("resume", name, "--allow-changes").returncode == 0
    experiment.call("watch", name)
    assert len(list(experiment.root.glob("results/result_*.txt"))) == 2
    assert any("image is " in text and "(allowed)" in text for _, text in experiment.changes())
    differences = [text for text in experiment.found() if ": image: " in text]
    assert len(differences) == 1 and "in run 1" in differences[0] and "in run 2" in differences[0]
