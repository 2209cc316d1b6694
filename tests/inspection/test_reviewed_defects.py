"""Defects of this project that reviews of the real scripts found: `images inspect` names each.

The documents are put back to what they said then, and the command runs on the stand-ins of the images.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import call
from sites import write_site
from standin_images import STAND_INS, TOP, make_root

LLAMA2 = {
    "kind": "workload",
    "name": "llama2_70b_lora",
    "extends": "llama2_70b_lora",
}
TREE = ("train.npy", "validation.npy", "packed_metadata.jsonl")
FORMER_MOUNTS = {
    "mounts": [
        {"variable": "DATADIR", "subpath": "data", "container": "/data"},
        {"variable": "DATADIR", "subpath": "model", "container": "/ckpt"},
    ],
    "data_tree": [
        *({"variable": "DATADIR", "path": f"data/{name}", "what": "data"} for name in TREE),
        {"variable": "DATADIR", "path": "model/megatron_checkpoints", "what": "checkpoint"},
    ],
}


def _round(name: str, **keys: Any) -> dict[str, Any]:
    return {"workloads/llama2_70b_lora.yaml": {**LLAMA2, "rounds": {name: keys}}}


def _system(name: str, round_name: str, **keys: Any) -> dict[str, Any]:
    """Return a shipped system with other values in a round of llama2_70b_lora."""
    system = yaml.safe_load((TOP / f"systems/{name}.yaml").read_text())
    system["workloads"]["llama2_70b_lora"][round_name] |= keys
    return {f"{name}.yaml": system}


@dataclass(frozen=True)
class Defect:
    """An entry as it was, and the finding that names the defect: severity, kind, place, words."""

    image: str
    finding: tuple[str, str, str, str]
    documents: Callable[[], dict[str, Any]] = dict
    command: str = ""


HOOK = "/opt/standin/hooks.sh"
RUN = "/workspace/code/run_and_time.sh"
CHECKPOINT = "/data/megatron_checkpoints/Llama-2-70b-hf"
DEFECTS = {
    "B1: rank 0 is not on Slurm's first node": Defect(
        "flux1-amd", ("note", "ranks", RUN, "the node with the smallest full name")
    ),
    "B2: the exit code is always 0": Defect(
        "flux1-amd", ("warning", "exit code", RUN, "0 although the training failed")
    ),
    "B3: the preparation deletes what lies in /data": Defect(
        "llama2-primus",
        ("warning", "deleted path", "/workspace/code/scripts/download_dataset.py", "/data"),
        lambda: _round("6.0", **FORMER_MOUNTS),
        command="bash ./scripts/prepare_data_and_model.sh",
    ),
    "B5: MangoBoost's image has no run_and_time.sh": Defect(
        "llmboost-5.0",
        ("error", "missing program", "", "the image has no /workspace/code/run_and_time.sh"),
        lambda: _system("MI300X_2x8x1", "5.0", launch={}),
    ),
    "B5: Cisco's program is started once per node": Defect(
        "llama2-cisco",
        ("error", "ranks", RUN, "starts one process: `python3 src/train.py`"),
        lambda: _system("MI350X_2x8x1", "6.0", launch={}),
    ),
    "N1a: the checkpoint is not where the hook looks": Defect(
        "llama2-primus",
        ("warning", "expected path", HOOK, CHECKPOINT),
        lambda: _round("6.0", **FORMER_MOUNTS),
    ),
    "N1b: a gated repository without a token": Defect(
        "llama2-primus",
        ("error", "unset variable", HOOK, "HF_TOKEN"),
        lambda: _round("6.0", offline=None, needs_env=None),
    ),
    "N1c: packages are upgraded at every start": Defect(
        "llama2-primus", ("warning", "download", HOOK, "pip install -U nvidia-modelopt")
    ),
    "N1d: the script throws its errors away": Defect(
        "llama2-primus",
        ("warning", "hidden errors", "primus-cli", "goes through `tee"),
        lambda: _round("6.0", launch={"verbose": {"MLLOG_VERBOSE_LOGS": None}}),
    ),
    "N1e: the hook writes to /data, and root may be nobody there": Defect(
        "llama2-primus",
        ("warning", "written path", HOOK, "writes below /data"),
        lambda: _round("6.0", **FORMER_MOUNTS),
    ),
}
"""B4 (a private /tmp) is a defect of a host: the container's start names it."""

PREPARATION = {
    "scripts/prepare_data_and_model.sh": "set -e\npython3 scripts/download_dataset.py --data_dir /data\n",
    "scripts/download_dataset.py": (
        "import argparse\nimport subprocess\n\nparser = argparse.ArgumentParser()\n"
        'parser.add_argument("--data_dir", default="/tmp")\nargs = parser.parse_args()\n'
        "subprocess.run(f\"find {args.data_dir} -mindepth 1 ! -name '*.parquet' -exec rm -rf {{}} +\", shell=True)\n"
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_that_a_review_found_is_named(name: str, tmp_path: Path) -> None:
    defect = DEFECTS[name]
    stand_in = STAND_INS[defect.image]
    root = make_root(stand_in, tmp_path / "root")
    for path, text in PREPARATION.items() if defect.command else ():
        file = root / "workspace/code" / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    own = tmp_path / "former"
    for path, document in defect.documents().items():
        (own / path).parent.mkdir(parents=True, exist_ok=True)
        (own / path).write_text(yaml.safe_dump(document))
    own.mkdir(exist_ok=True)
    if not any(own.glob("*.yaml")):
        shutil.copy(TOP / f"systems/{stand_in.system}.yaml", own)
    site = write_site(tmp_path / "site.yaml", tmp_path / "sets", systems_dirs=[str(own)])
    words = ["images", "inspect", stand_in.system, stand_in.workload, "--round", stand_in.round]
    words += ["--from", str(root), "--site", str(site), "--json"]
    words += ["--command", defect.command] if defect.command else []
    done = call(words, {})
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)["findings"]
    severity, kind, place, what = defect.finding
    assert [
        one
        for one in found
        if (one["severity"], one["kind"]) == (severity, kind)
        and place in one["file"]
        and what in one["what"]
    ], found
    assert (done.returncode == 1) is any(one["severity"] == "error" for one in found)


@pytest.mark.parametrize(
    "name", [name for name, one in DEFECTS.items() if one.documents is not dict]
)
def test_the_documents_of_today_have_it_no_more(name: str, tmp_path: Path) -> None:
    defect = DEFECTS[name]
    stand_in = STAND_INS[defect.image]
    root = make_root(stand_in, tmp_path / "root")
    words = ["images", "inspect", stand_in.system, stand_in.workload, "--round", stand_in.round]
    found = json.loads(call([*words, "--from", str(root), "--json"], {}).stdout)["findings"]
    kind, what = defect.finding[1], defect.finding[3]
    severity = defect.finding[0]
    assert not [
        one
        for one in found
        if (one["severity"], one["kind"]) == (severity, kind) and what in one["what"]
    ]
