"""A complete set folder (docs/set-folder.md) around the published logs of tests/data/mllog."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data/mllog"
MI355X = DATA / "v5.1/AMD/MI355X_EPYC_9575F_pytorch/llama2_70b_lora"
MI350X = DATA / "v5.1/AMD/MI350X_EPYC_9575F_pytorch/llama31_8b"
MI325X = DATA / "v5.1/AMD/MI325X_EPYC_9575F_pytorch_llama2_70b/llama2_70b_lora"
NVIDIA = DATA / "v5.1/NVIDIA/theia_ngpu72_ngc25.09_nemo/flux1"
DELL = DATA / "v5.0/Dell/9xXE9712x4GB200/llama2_70b_lora"
DIGEST = f"sha256:{'ab' * 32}"


def logs(folder: Path) -> list[bytes]:
    """The ten logs of a published set, uncompressed, in file order."""
    paths = sorted(
        folder.glob("result_*.txt*"), key=lambda path: int(path.name.split(".")[0].split("_")[1])
    )
    return [
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for path in paths
    ]


def plain_folder(place: Path, contents: list[bytes]) -> Path:
    """A folder with result_0.txt and so on."""
    place.mkdir(parents=True)
    for index, content in enumerate(contents):
        (place / f"result_{index}.txt").write_bytes(content)
    return place


def make_set(
    log_dir: Path,
    contents: list[bytes],
    *,
    nodes: tuple[str, ...] = ("node-a", "node-b"),
    system: str = "MI355X_1x8x1",
    workload: str = "llama2_70b_lora",
    ruleset: str = "5.1.0",
    nexp: int = 10,
) -> Path:
    """A set folder whose run i has `contents[i - 1]` as its result; the second node begins 30 s late in run 3."""
    root = log_dir / f"{system}-{workload}-20260501-120000-0001"
    for name in ("jobs", "submissions", "results", "bundle/lib"):
        (root / name).mkdir(parents=True)
    _write(
        root / "set.json",
        {
            "schema": 1,
            "set_id": root.name,
            "system": system,
            "workload": workload,
            "benchmark": workload,
            "round": ruleset[:3],
            "ruleset": ruleset,
            "nexp": nexp,
            "root_seed": 1,
            "created_ms": 1_777_000_000_000,
            "created_by": "controller",
            "job_name": f"orch-{root.name}",
            "scheduler": "slurm",
            "nodes": 1,
            "gpus_per_node": 8,
            "engine": "docker",
            "image": "rocm/amd-mlperf:test",
            "max_attempts": 3,
            "run_timeout_s": 3000,
            "target": 0.925,
            "metric": "validation loss",
            "target_is_upper_bound": True,
            "bundle_sha256": "0" * 64,
        },
    )
    _write(
        root / "jobs/7.json",
        {
            "schema": 1,
            "job_id": "7",
            "state": "complete",
            "reason": "",
            "host": nodes[0],
            "pid": 1,
            "started_ms": 1_777_000_001_000,
            "updated_ms": 1_777_009_000_000,
            "ended_ms": 1_777_009_000_000,
            "nodes": list(nodes),
            "run": nexp,
            "attempt": 1,
            "image_digest": DIGEST,
            "engine": "docker",
        },
    )
    (root / "environment.sh").write_text(
        'declare -x LR="0.0004"\ndeclare -x NCCL_DEBUG="VERSION"\ndeclare -x TEXT=$\'a\\tb\'\n'
    )
    (root / f"bundle/config_{system}.sh").write_text(
        "# environment\nexport LR=0.0004\nexport TEXT='a\tb'\n"
    )
    (root / "bundle/job.sh").write_text("#!/usr/bin/env bash\necho job\n")
    (root / "bundle/manifest.json").write_text("{}\n")
    (root / "bundle/lib/common.sh").write_text("# lib\n")
    for node in nodes:
        _tunables(root / "nodes" / node, before="madvise" if node == nodes[0] else "always")
    for run, content in enumerate(contents, 1):
        _run(root, run, content, nodes)
    return root


def _tunables(folder: Path, before: str) -> None:
    folder.mkdir(parents=True)
    """As the node's process writes it: a header, what `apply` did, and what `revert` put back."""
    (folder / "tunables.tsv").write_text(
        "knob\twanted\tbefore\tafter\tresult\tneed\taction\ttime_ms\ttarget\n"
        f"thp_enabled\talways\t{before}\talways\tok\trequired\tapply\t1777000000000\n"
        "nmi_watchdog\t0\t1\t1\tfailed\toptional\tapply\t1777000000000\n"
        f"thp_enabled\t{before}\talways\t{before}\tok\trequired\trevert\t1777000900000\t/sys/kernel/mm/x\n"
        "kept for 1 owner\n"
    )


def _run(root: Path, run: int, content: bytes, nodes: tuple[str, ...]) -> None:
    times = [int(text) for text in re.findall(rb'"time_ms": (\d+)', content)] or [1_777_000_000_000]
    begin, end = times[0] - 5_000, times[-1] + 2_000
    attempt = 2 if run == 2 else 1
    if run == 2:
        _attempt(
            root,
            run,
            1,
            nodes,
            begin - 90_000,
            begin - 30_000,
            "infrastructure",
            "node-b: the container was killed",
            137,
        )
    _attempt(root, run, attempt, nodes, begin, end, "success", "", 0)
    folder = root / "runs" / str(run)
    (folder / f"result_{run}.txt").write_bytes(content)
    (folder / "state.json").write_bytes((folder / f"attempt_{attempt}/state.json").read_bytes())


def _attempt(
    root: Path,
    run: int,
    attempt: int,
    nodes: tuple[str, ...],
    begin: int,
    end: int,
    outcome: str,
    reason: str,
    code: int,
) -> None:
    folder = root / f"runs/{run}/attempt_{attempt}"
    folder.mkdir(parents=True)
    _write(
        folder / "state.json",
        {
            "schema": 1,
            "run": run,
            "attempt": attempt,
            "state": "success" if outcome == "success" else "failed",
            "outcome": outcome,
            "reason": reason,
            "seed": run,
            "job_id": "7",
            "master_port": 29500,
            "nodes": list(nodes),
            "exit_codes": dict.fromkeys(nodes, code),
            "image_digest": DIGEST,
            "start_ms": begin,
            "end_ms": end,
        },
    )
    for rank, node in enumerate(nodes):
        late = 30_000 if run == 3 and rank == 1 else 0
        _write(
            folder / f"node_{rank}.json",
            {
                "node": node,
                "rank": rank,
                "exit": code if rank else 0,
                "start_ms": begin + late,
                "end_ms": end,
            },
        )


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))
