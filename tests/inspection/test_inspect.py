"""`orchestrator images inspect` as users call it."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import outputs
import pytest
from command_line import call
from sites import write_site
from standin_images import STAND_INS, make_root
from tars import tar_of

from orchestrator.model import load_entry

TOP = Path(__file__).resolve().parents[2]
ENTRY = ("MI355X_1x8x1", "llama31_8b", "--round", "5.1")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_root(STAND_INS["llama31-nemo"], tmp_path_factory.mktemp("image") / "root")


def _archive(root: Path, path: Path, name: str = "x:1", **config: Any) -> Path:
    """Make what `docker save` makes of an image with one layer."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(root, ".")
    digest = f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"
    described = {
        "config": {"WorkingDir": "/workspace/code", **config},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }
    files = {
        "config.json": json.dumps(described).encode(),
        "layer.tar": layer.getvalue(),
        "manifest.json": json.dumps(
            [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        ).encode(),
    }
    path.write_bytes(tar_of(files))
    return path


def _inspect(*words: str | Path, code: int = 0) -> str:
    done = call(("images", "inspect", *words), {})
    assert done.returncode == code, done.stderr
    return done.stdout


def _json(*words: str | Path) -> Any:
    return outputs.checked(_inspect(*words, "--json"))


def test_a_folder_is_inspected(root: Path) -> None:
    answer = _json(*ENTRY, "--from", root)
    assert answer["ranks"] == "torchrun static"
    assert answer["exit_after_failure"] == 7
    assert answer["started_by"] == "/workspace/code/run_and_time.sh:10"
    assert "/workspace/code/src/train.py" in answer["scripts"]
    text = _inspect(*ENTRY, "--from", root)
    assert "torchrun --nnodes=1 --nproc_per_node=8 src/train.py" in text
    assert "missing path" in text


def test_an_image_alone_has_a_contract_and_no_findings(root: Path, tmp_path: Path) -> None:
    tar = _archive(root, tmp_path / "x.tar")
    answer = _json("--from", tar)
    assert answer["command"] == ["bash", "./run_and_time.sh"]
    assert answer["findings"] == []
    names = {
        one["name"] for one in answer["reads"] if one["use"] == "required" and not one["given"]
    }
    assert "USE_CKPT" in names


def test_an_error_is_an_exit_code(root: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(root, tmp_path / "root")
    (broken / "workspace/code/src/train.py").unlink()
    assert "missing program" in _inspect(*ENTRY, "--from", broken, code=1)
    assert "missing program" not in _inspect(*ENTRY, "--from", broken, "--partial")


def test_a_new_image_is_compared_with_the_last_one(root: Path, tmp_path: Path) -> None:
    site = write_site(tmp_path / "site.yaml", tmp_path / "sets")
    asked = (*ENTRY, "--site", site, "--from")
    first = _archive(root, tmp_path / "first.tar")
    assert _json(*asked, first)["changes"] == []
    changed = shutil.copytree(root, tmp_path / "root")
    script = changed / "workspace/code/run_and_time.sh"
    script.write_text(script.read_text().replace("set -e\n", ""))
    second = _archive(changed, tmp_path / "second.tar")
    answer = _json(*asked, second)
    assert "-set -e" in answer["changes"]
    assert any(one["kind"] == "exit code" for one in answer["findings"])
    assert _json(*asked, second)["changes"] == answer["changes"]


def test_files_are_compared_with_the_published_ones(root: Path, tmp_path: Path) -> None:
    """The hashes are those of the catalogue; here a copy of it has that of the stand-in's script."""
    run, train = "/workspace/code/run_and_time.sh", "/workspace/code/src/train.py"
    assert _json(*ENTRY, "--from", root)["published"] == {run: "differs", train: "differs"}
    own = tmp_path / "own"
    documents = shutil.copytree(TOP / "workloads", own / "workloads", symlinks=True)
    known = load_entry(*ENTRY[:2], round="5.1").published_scripts
    digits = hashlib.sha256((root / run[1:]).read_bytes()).hexdigest()
    path = documents / "llama31_8b.yaml"
    path.write_text(path.read_text().replace(known[run], digits))
    (shutil.copytree(root, tmp_path / "root") / train[1:]).unlink()
    answer = _json(*ENTRY, "--systems-dir", own, "--from", tmp_path / "root", "--partial")
    assert answer["published"] == {run: "equal", train: "missing"}
    text = _inspect(*ENTRY, "--systems-dir", own, "--from", root)
    assert f"{run}: yes, {train}: differs" in text
    assert load_entry("MI300X_1x8x1_MangoBoost", "llama2_70b_lora").published_scripts == {}


def test_another_command_of_the_image(root: Path, tmp_path: Path) -> None:
    """A preparation that deletes the data it is given."""
    image = shutil.copytree(root, tmp_path / "root")
    script = image / "workspace/code/scripts/prepare_data.sh"
    script.parent.mkdir()
    script.write_text("rm -rf /data/gov_report\nwget -q https://example.org/data.tar\n")
    answer = _json(*ENTRY, "--from", image, "--command", "bash scripts/prepare_data.sh")
    kinds = {one["kind"]: one["what"] for one in answer["findings"] if one["file"]}
    assert kinds["deleted path"] == "/data/gov_report is deleted"
    assert "download" in kinds


@pytest.mark.parametrize(
    "words",
    [
        ("--from", "/nowhere"),
        (),
        ("--from", "/etc/passwd"),
        ("MI355X_1x8x1", "--from", "/"),
    ],
)
def test_unusable_requests(words: tuple[str, ...]) -> None:
    _inspect(*words, code=2)


def test_a_kept_error_is_shown_by_doctor_and_submit(root: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(root, tmp_path / "root")
    (broken / "workspace/code/src/train.py").unlink()
    image = load_entry(*ENTRY[:2], round="5.1").image
    tar = _archive(broken, tmp_path / "image.tar", image)
    data = {"llama31_8b": {name: str(tmp_path) for name in ("DATADIR", "MODEL")}}
    site = write_site(
        tmp_path / "site.yaml", tmp_path / "sets", data=data, container={"engine": "docker"}
    )
    asked = (*ENTRY, "--site", site)
    doctor = call(("doctor", *asked), {"PATH": "/usr/bin:/bin"})
    assert re.search(r"skip +contract", doctor.stdout)
    _inspect(*asked, "--from", tar, code=1)
    doctor = call(("doctor", *asked), {"PATH": "/usr/bin:/bin"})
    assert re.search(r"fail +contract", doctor.stdout)
    assert (
        "/workspace/code/run_and_time.sh:10: the image has no /workspace/code/src/train.py"
        in doctor.stdout
    )
    assert "; another image, or `launch.command` and" in " ".join(doctor.stdout.split())
    dry = call(("submit", *asked, "--dry-run"), {})
    assert "warning: the image does not fit: /workspace/code/run_and_time.sh:10" in dry.stderr
    # The lab's image under that name: its errors are not those of the published one.
    labels = {"orchestrator.lab.code": "1"}
    tar = _archive(broken, tmp_path / "image.tar", image, Labels=labels)
    _inspect(*asked, "--from", tar, code=1)
    doctor = call(("doctor", *asked, "--all"), {"PATH": "/usr/bin:/bin"})
    assert not re.search(r"fail +contract", doctor.stdout + doctor.stderr)
    assert "is a stand-in of the lab" in " ".join(doctor.stdout.split())
    dry = call(("submit", *asked, "--dry-run"), {})
    assert "the image does not fit" not in dry.stderr
