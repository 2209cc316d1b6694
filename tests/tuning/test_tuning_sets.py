"""A set that tunes its hosts, and its records. Outcomes are tested in tests/simulation."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tuning_parts import fill, snapshot
from until import LIMIT_S

from orchestrator.evidence.attempts import drifts
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.starts import Cache, attempt_starts, differences
from orchestrator.model import load_entry
from orchestrator.render import render_bundle, write_bundle

STOP = ':::MLLOG {"key": "run_stop", "time_ms": 2, "metadata": {"status": "success"}}'
SITE = """
kind: site
scheduler: local
log_dir: {folder}/sets
container: {{engine: none}}
code: {{builtin: {folder}/code}}
tuning: {{profile: published, lease_seconds: 1}}
"""


def test_a_set_leaves_its_hosts_as_they_were(tmp_path: Path) -> None:
    roots = [fill(tmp_path / f"host/local{rank}", cpus=2) for rank in (0, 1)]
    before = [snapshot(root) for root in roots]
    site = tmp_path / "site.yaml"
    site.write_text(SITE.format(folder=tmp_path))
    (tmp_path / "code").mkdir()
    (tmp_path / "code/run_and_time.sh").write_text(f"echo '{STOP}'\n")
    write_bundle(
        render_bundle(load_entry("local_2x2x8", "builtin", site=site), nexp=1), tmp_path / "bundle"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    env |= {
        "ORCH_TUNABLES_ROOT": f"{tmp_path}/host/%n",
        "ORCH_TUNABLES_STATE": f"{tmp_path}/state/%n",
    }
    argv = ["bash", tmp_path / "bundle/run_with_docker.sh"]
    done = subprocess.run(argv, env=env, text=True, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    [set_dir] = (tmp_path / "sets").iterdir()
    [start] = attempt_starts(SetEvidence(set_dir))
    assert set(start.caches) == {"local0", "local1"}
    # A folder's meminfo does not change: 10 + 500 + 40 - 100.
    sizes = {(cache.before_kib, cache.after_kib) for cache in start.caches.values()}
    assert sizes == {(450, 450)}
    assert start.value("gpu.count", "local1") == "2"
    assert start.value("gpu.max_sclk", "local0") == "2100Mhz"
    assert start.value("knob.cpu_governor", "local0") == "performance"
    assert len(start.value("environment", "local0")) == 64
    assert not differences([start]) and not drifts(SetEvidence(set_dir))
    for root, then in zip(roots, before, strict=True):
        assert (root / "proc/sys/vm/drop_caches").read_text() == "3\n"
        (root / "proc/sys/vm/drop_caches").write_text("0\n")
        assert snapshot(root) == then
    assert not list((tmp_path / "state").iterdir())


def write_start(set_dir: Path, run: int, rows: str, attempt: int = 1) -> Path:
    folder = set_dir / f"runs/{run}/attempt_{attempt}"
    folder.mkdir(parents=True)
    (folder / "start.tsv").write_text("node\tfield\tvalue\n" + rows)
    return folder


def test_differences_across_runs(tmp_path: Path) -> None:
    rows = dict.fromkeys(range(1, 12), "*\tdriver\t6.12\n")
    rows[3] += "n2\tdriver\t6.11\n"
    rows[10] = "*\tdriver\t6.10\n"
    for run, text in rows.items():
        write_start(tmp_path, run, text)
    first, second = differences(attempt_starts(SetEvidence(tmp_path)))
    assert (first.field, first.node, first.run) == ("driver", "n2", 3)
    assert (first.value, first.usual) == ("6.11", "6.12")
    assert (second.node, second.run, second.value) == ("*", 10, "6.10")


def test_a_fact_that_a_run_lacks(tmp_path: Path) -> None:
    for run, text in enumerate(("*\trocm\t7.0\n", "*\trocm\t7.0\n", "*\tkernel\t6\n"), 1):
        write_start(tmp_path, run, text)
    facts = differences(attempt_starts(SetEvidence(tmp_path)))
    assert [(fact.field, fact.run, fact.value) for fact in facts] == [
        ("kernel", 3, "6"),
        ("rocm", 3, "-"),
    ]


def test_damaged_records(tmp_path: Path) -> None:
    folder = write_start(tmp_path, 1, "n1\tready_ms\t12\nn1\tcache_before_kib\tx\nhalf a li")
    drift = {"knob": "a", "wanted": "0", "found": "1", "need": "required"}
    record = {"node": "n1", "exit": 0, "drift": [drift, 7]}
    (folder / "node_0.json").write_text(json.dumps(record))
    (folder / "node_1.json").write_text('{"node": "n2", "dri')
    [start] = attempt_starts(SetEvidence(tmp_path))
    assert start.caches == {"n1": Cache(12, 0, None)}
    [reading] = drifts(SetEvidence(tmp_path))
    assert (reading.node, reading.knob, reading.found) == ("n1", "a", "1")
