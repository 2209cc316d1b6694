"""The whole way on the one-machine cluster: eight nodes run a set in containers; it is reported and packaged."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import set_of_logs as sets
from replayed import differences

from orchestrator.cli import main

if TYPE_CHECKING:
    from conftest import Lab

pytestmark = pytest.mark.lab
FRAMEWORK = ("--framework", "PyTorch 2.10.0 + ROCm 7.2.2")


@pytest.fixture
def log_dir(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("SLURM_CONF", "DOCKER_HOST"):
        monkeypatch.setenv(name, lab.env[name])
    path = lab.shared / f"package-{uuid.uuid4().hex[:8]}"
    path.mkdir()
    yield path
    assert differences(path) == []
    subprocess.run(["rm", "-rf", str(path)], check=True)


def test_a_lab_set_is_packaged(lab: Lab, log_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if len(lab.nodes) < 8:
        pytest.skip("the lab has fewer than eight nodes")
    site = tmp_path / "site.yaml"
    site.write_text(
        f"kind: site\nscheduler: slurm\npartition: batch\nlog_dir: {log_dir}\n"
        f"data: {{flux1: {{DATADIR: {lab.shared}}}}}\n"
        "container: {engine: docker, pull: never}\nnetwork: {socket_ifname: lo}\n"
    )
    # Another test's tunables or caches must not be waited for: what the set does to the host is not this test's matter.
    site.write_text(site.read_text() + 'tunables: "off"\nclear_caches: false\n')
    assert main(["run", "MI325X_08x08x32", "flux1", "--site", str(site)]) in (0, 1)
    [root] = log_dir.iterdir()
    report = tmp_path / "report.html"
    assert main(["report", str(root), "-o", str(report)]) == 0
    text = report.read_text()
    assert all(f">{node}<" in text for node in lab.nodes[:8]) and "sha256:" in text and "stand-in" in text
    capsys.readouterr()
    # A real set's logs copied in: what a real image would have left here.
    for run, content in enumerate(sets.logs(sets.NVIDIA), 1):
        (root / f"runs/{run}/result_{run}.txt").write_bytes(content)
    out = tmp_path / "AMD"
    assert main(["package", str(root), "-o", str(out), "--submitter", "AMD", *FRAMEWORK, "--verify"]) == 0
    told = capsys.readouterr()
    assert "round 6.0.0: no errors" in told.out and "stand-in" not in told.err
    assert len(list((out / "results/MI325X_08x08x32/flux1").iterdir())) == 10
    assert json.loads((out / "systems/MI325X_08x08x32.json").read_text())["number_of_nodes"] == "8"
    (root / "runs/9/result_9.txt").unlink()
    assert main(["package", str(root), "-o", str(tmp_path / "nine"), "--submitter", "AMD", *FRAMEWORK]) == 1
    assert "9 result files" in capsys.readouterr().err
