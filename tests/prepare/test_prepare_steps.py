"""The published steps, run in real containers on tiny files: in order, resumable, with the checks before and after."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path

import docker
import pytest
from prepare_parts import TOKEN, Data, gate

from orchestrator.errors import DescriptorError
from orchestrator.model import Catalogue
from orchestrator.prepare.documents import load_preparation, names

WORKLOADS = ("flux1", "llama2_70b_lora", "llama31_8b")


def test_there_is_one_for_each_published_workload() -> None:
    assert tuple(names()) == WORKLOADS


@pytest.mark.parametrize(
    ("workload", "bytes_needed"), [("llama2_70b_lora", 270e9), ("llama31_8b", 110e9), ("flux1", 6e12)]
)
def test_the_published_sizes_are_refused_where_they_do_not_fit(
    folders: Data, workload: str, bytes_needed: float
) -> None:
    folders.env["HF_TOKEN"] = TOKEN
    shown = json.loads(folders.prepare(workload, "--dry-run", "--json").stdout)["space"]
    assert sum(one["need_bytes"] for one in shown) == bytes_needed
    if all(one["enough"] for one in shown):
        pytest.skip("this machine has the space")
    done = folders.prepare(workload)
    assert done.returncode == 2
    assert "not enough space" in done.stderr and str(folders.folder("")) in done.stderr and "are needed" in done.stderr
    assert not folders.folder("").exists()


def test_the_check_looks_for_what_the_runs_need() -> None:
    """Every path in the workload's own data_tree is in the tree of the preparation."""
    catalogue = Catalogue()
    for name in ("llama2_70b_lora", "llama31_8b"):
        workload = catalogue.workload(name)[1]
        for key, part in load_preparation(name)[1].rounds.items():
            needed = workload.rounds[key].data_tree or workload.data_tree
            assert {(one.variable, one.path) for one in needed} <= {(one.variable, one.path) for one in part.tree}


def test_the_dry_run_prints_the_published_commands_and_changes_nothing(folders: Data) -> None:
    text = folders.prepare("flux1", "--dry-run").stdout
    for published in (
        "https://training.mlcommons-storage.org/metadata/flux-1-cc12m-preprocessed.uri",
        "to_webdataset.py --input_path /dataset/coco_preprocessed --output_path /dataset/energon/val",
        f"--volume={folders.folder('flux1')}:/dataset",
    ):
        assert published in text
    assert "rm -rf /dataset/cc12m" not in text
    assert "rm -rf /dataset/cc12m" in folders.prepare("flux1", "--dry-run", "--with", "reclaim").stdout
    assert not folders.folder("").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"steps": [{"name": "a", "what": "b", "run": "c", "leaves": [{"variable": "OTHER", "path": "x"}]}]},
            "is not mounted",
        ),
        (
            {"steps": [{"name": "a", "what": "b", "run": "c", "clean": [{"variable": "D", "path": "."}]}]},
            "never deleted",
        ),
        ({"steps": [{"name": "a", "what": "b", "run": "c"}] * 2}, "stands twice"),
        ({"stepps": []}, "unknown key"),
        (
            {"steps": [{"name": "a", "what": "b", "run": "c", "clean": [{"variable": "D", "path": "../x"}]}]},
            "without '..'",
        ),
    ],
)
def test_a_wrong_document_is_refused_with_file_and_line(tmp_path: Path, change: dict[str, object], says: str) -> None:
    part = {
        "source": "s",
        "mounts": [{"variable": "D", "container": "/d"}],
        "workdir": "/d",
        "steps": [{"name": "a", "what": "b", "run": "c"}],
        "tree": [{"variable": "D", "path": "x"}],
        **change,
    }
    path = tmp_path / "own.yaml"
    path.write_text(json.dumps({"kind": "preparation", "name": "own", "rounds": {"6.0": part}}))  # JSON is YAML
    with pytest.raises(DescriptorError, match=r"own.yaml:\d+: ") as caught:
        load_preparation(str(path))
    assert says in str(caught.value)


# ---- with an engine ----


@pytest.mark.lab
def test_llama31_8b_is_prepared_checked_and_not_done_twice(data: Data) -> None:
    done = data.prepare("llama31_8b", "--force-space", "--json")
    assert done.returncode == 0, done.stderr
    assert "warning" in done.stderr
    assert (data.folder("8b/model") / "tokenizer.json").is_file()
    assert not (data.folder("8b/model") / "llama3_1_8b_tokenizer").exists()
    again = data.prepare("llama31_8b")  # nothing is due, so no space is needed
    assert again.returncode == 0 and again.stderr.count("done, skipped") == 2

    checked = data.prepare("llama31_8b", "--check", "--json")
    parts = {(one["variable"], one["path"]): one["state"] for one in json.loads(checked.stdout)["parts"]}
    assert checked.returncode == 1
    assert parts.pop(("DATADIR", ".")) == parts.pop(("MODEL", ".")) == "too small"  # tiny files
    assert set(parts.values()) == {"ok"}
    (data.folder("8b/model") / "tokenizer.json").unlink()
    (data.folder("8b/data") / "c4-train.en_6_text_document.idx").write_bytes(b"")
    text = data.prepare("llama31_8b", "--check").stdout
    assert any(line.startswith("missing") and "tokenizer.json" in line for line in text.splitlines())
    assert any(line.startswith("empty") and "c4-train.en_6_text_document.idx" in line for line in text.splitlines())
    # What was taken away is brought back, by the steps that bring it.
    mended = data.prepare("llama31_8b", "--force-space")
    assert mended.returncode == 0 and "what it leaves is gone" in mended.stderr


@pytest.mark.lab
def test_flux1_stops_at_a_failing_step_and_goes_on_there(data: Data) -> None:
    folder = data.folder("flux1")
    folder.mkdir(parents=True)
    (folder / "break").touch()
    failed = data.prepare("flux1", "--force-space")
    assert failed.returncode == 1
    assert "convert-training is not done: it failed: exit code 1" in failed.stdout
    assert data.state("flux1", "convert-training")["state"] == "failed"
    assert (folder / "energon/train").is_dir()  # half done: the next try deletes it
    (folder / "break").unlink()
    done = data.prepare("flux1", "--force-space", "--with", "reclaim")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("done, skipped") == 3
    assert not (folder / "cc12m_preprocessed").exists()
    assert data.prepare("flux1", "--check").returncode == 0
    # The deleted downloads are not missed.
    assert "all 6 steps are done" in data.prepare("flux1").stdout


@pytest.mark.lab
def test_a_download_that_brings_nothing_is_a_failure_although_it_ends_well(data: Data) -> None:
    data.folder("flux1").mkdir(parents=True)
    (data.folder("flux1") / "offline").touch()
    done = data.prepare("flux1", "--force-space")
    assert done.returncode == 1
    assert "it ended well, but left no" in done.stdout
    assert data.state("flux1", "download-cc12m")["exit_code"] == 0


@pytest.mark.lab
def test_a_preparation_whose_process_is_killed_ends_with_it_and_runs_again(data: Data) -> None:
    folder = data.folder("llama2")
    folder.mkdir(parents=True)
    for pipe in ("at_work", "gate"):
        os.mkfifo(folder / pipe)
    data.env["HF_TOKEN"] = TOKEN
    process = data.start("llama2_70b_lora", "--force-space")
    with closing(docker.DockerClient(base_url=data.engine)) as client:
        with gate(folder, process):
            (running,) = client.api.containers(filters={"label": "orchestrator.workload=llama2_70b_lora"})
            second = data.prepare("llama2_70b_lora", "--force-space")
            assert second.returncode == 3 and "another process prepares the same data" in second.stderr
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=300)
            assert client.api.wait(running["Id"], timeout=300)["StatusCode"] == 137
        assert data.state("llama2", "data-and-model")["state"] == "running"
        for pipe in ("at_work", "gate"):
            (folder / pipe).unlink()
        again = data.prepare("llama2_70b_lora", "--force-space")
        assert again.returncode == 0, again.stderr
        assert "it died or was interrupted" in again.stderr
        assert client.api.containers(all=True, filters={"label": "orchestrator=prepare"}) == []


@pytest.mark.lab
def test_an_image_that_is_not_there_is_named_with_the_command_that_brings_it(data: Data) -> None:
    done = data.prepare("flux1", "--force-space", "--image", "orchestrator-test/nothing:1")
    assert done.returncode == 3
    assert "orchestrator images pull --image orchestrator-test/nothing:1" in done.stderr
    assert not data.folder("flux1").exists()
