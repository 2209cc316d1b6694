"""A job whose nodes lack its image: a busy and slow registry, a real engine and a real Slurm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import pytest
import yaml
from images_parts import Registry, contents_of, serving
from replayed import differences
from until import LIMIT_S, until

from orchestrator.evidence.events import read_events
from orchestrator.model import load_entry, load_site
from orchestrator.render import render_bundle, write_bundle

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

TOP = Path(__file__).resolve().parents[2]


class Job:
    """A job on nodes that lack the image, from its bundle to its end."""

    def __init__(
        self, lab: Lab, folder: Path, system: str, workload: str, **container: Any
    ) -> None:
        self.lab = lab
        self.folder = folder
        self.bundle = folder / "bundle"
        self.log_dir = folder / "results"
        self.log_dir.mkdir()
        site = yaml.safe_load(lab.run(TOP / "lab/site").stdout)
        site |= {"log_dir": str(self.log_dir), "tunables": "off", "clear_caches": False}
        # Beyond it a node has 30 seconds to say that it is ready.
        site |= {"limits": {"container_start_seconds": 15}}
        site["container"] |= {"pull": "missing", **container}
        (folder / "site.yaml").write_text(yaml.safe_dump(site))
        entry = load_entry(system, workload, site=load_site(folder / "site.yaml"))
        write_bundle(render_bundle(entry, nexp=2), self.bundle)

    def start(self, image: str) -> Future[int]:
        """Submit it; the exit status, once it has ended."""
        environment = self.lab.env | {"CONT": image}
        return ThreadPoolExecutor(1).submit(
            self.lab.batch, "job.sh", cwd=self.bundle, env=environment
        )

    @property
    def root(self) -> Path:
        [root] = [path for path in self.log_dir.iterdir() if (path / "set.json").exists()]
        return root

    def status(self) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "status", self.root, "--json"],
            env=self.lab.env | {"PYTHONPATH": str(TOP)}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return dict(json.loads(done.stdout))

    def details(self, word: str) -> list[tuple[str, str]]:
        [file] = self.root.glob("events-*.tsv")
        assert differences(self.root) == []
        return [(event.node, event.detail) for event in read_events(file) if event.word == word]


@pytest.fixture
def folder(lab: Lab) -> Iterator[Path]:
    made = lab.shared / f"pulls-{os.getpid()}"
    made.mkdir()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def engine(lab: Lab) -> Iterator[docker.DockerClient]:
    with closing(
        docker.DockerClient(base_url=f"unix://{lab.docker_socket}", timeout=300)
    ) as client:
        before = {tag for image in client.images.list() for tag in image.tags}
        yield client
        for tag in {tag for image in client.images.list() for tag in image.tags} - before:
            with suppress(docker.errors.ImageNotFound):
                client.images.remove(tag)


@pytest.mark.long
def test_a_registry_that_is_busy_and_slow_costs_time_and_no_run(
    lab: Lab, folder: Path, engine: docker.DockerClient
) -> None:
    blobs, manifest = contents_of(engine, "orchestrator/builtin:1")
    job, seen = Job(lab, folder, "MI325X_08x08x32", "flux1"), set[str]()
    with serving(Registry(blobs, manifest, busy=2, slow_s=35)) as registry:
        running = job.start(f"{registry.address}/team/training:1")

        def ended() -> bool:
            with suppress(ValueError):  # there is no set yet
                seen.add(job.status()["pulling"])
            return running.done()

        until(ended, job.status)
    assert running.result() == 0, next(job.bundle.glob("job_*.out")).read_text()
    assert len(list(job.root.glob("results/result_*.txt"))) == 2
    assert registry.requests == 3, "the engine is one for all nodes: who comes later has it already"
    assert any(text.startswith("pulling: the image is on 0 of 8 nodes (") for text in seen), seen
    assert any("toomanyrequests" in text and "again in 10 s" in text for text in seen), seen
    assert any(" layers)" in text for text in seen), seen
    pulls, pulled = job.details("pull"), job.details("pulled")
    assert sorted(pulls) == sorted((node, "1") for node in lab.nodes) and len(pulled) == 8
    [file] = job.root.glob("events-*.tsv")
    times = {event.word: event.ms for event in read_events(file)}
    begin = min(event.ms for event in read_events(file) if event.word == "pull")
    assert times["pulled"] - begin > 45_000, "longer than the limit of the hold"


def test_what_the_registry_does_not_have_is_said_at_once(lab: Lab, folder: Path) -> None:
    job = Job(lab, folder, "local_2x2x8", "builtin", pull_at_once=2)
    with serving(Registry({}, b"")) as registry:
        assert job.start(f"{registry.address}/team/training:1").result(LIMIT_S) != 0
    record = json.loads(next(iter((job.root / "jobs").glob("*.json"))).read_text())
    assert record["state"] == "failed"
    reason = record["reason"]
    assert "cannot pull 127.0.0.1" in reason and "manifest unknown" in reason
    assert "tries" not in reason and "again in" not in str(job.details("pulling"))
