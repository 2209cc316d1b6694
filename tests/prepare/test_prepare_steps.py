"""The published steps in real containers, on tiny files: in order, resumable, checked."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path

import docker
import outputs
import pytest
from prepare_parts import IMAGES, TOKEN, WAITING, Data, gate
from until import make_older

from orchestrator.errors import DescriptorError
from orchestrator.model import Catalogue
from orchestrator.prepare.documents import load_preparation, names
from orchestrator.prepare.sizes import check_part, has_content

WORKLOADS = ("flux1", "gpt_oss_20b", "llama2_70b_lora", "llama31_8b")


def test_there_is_one_for_each_published_workload() -> None:
    assert tuple(names()) == WORKLOADS


@pytest.mark.parametrize(
    ("workload", "bytes_needed"),
    [("llama2_70b_lora", 270e9), ("llama31_8b", 110e9), ("flux1", 6e12)],
)
def test_the_published_sizes_are_refused_where_they_do_not_fit(
    folders: Data, workload: str, bytes_needed: float
) -> None:
    folders.env["HF_TOKEN"] = TOKEN
    spaces = outputs.checked(folders.prepare(workload, "--dry-run", "--json").stdout)["space"]
    assert sum(space["need_bytes"] for space in spaces) == bytes_needed
    if all(space["enough"] for space in spaces):
        pytest.skip("this machine has the space")
    done = folders.prepare(workload)
    assert done.returncode == 2
    for text in ("not enough space", str(folders.folder("")), "are needed"):
        assert text in done.stderr
    assert not folders.folder("").exists()


def test_the_check_looks_for_what_the_runs_need() -> None:
    """Every path in the workload's own data_tree is in the tree of the preparation."""
    catalogue = Catalogue()
    for name in ("gpt_oss_20b", "llama2_70b_lora", "llama31_8b"):
        workload = catalogue.workload(name)[1]
        for key, part in load_preparation(name)[1].rounds.items():
            needed = workload.rounds[key].data_tree or workload.data_tree
            checked = {(expected.variable, expected.path) for expected in part.tree}
            assert {(file.variable, file.path) for file in needed} <= checked


def test_gpt_oss_20b_uses_the_data_of_llama31_8b() -> None:
    """As its published guide has them, in folders of its own."""
    mine, theirs = (
        load_preparation(name)[1].rounds["6.0"] for name in ("gpt_oss_20b", "llama31_8b")
    )
    assert [step.run for step in mine.steps] == [step.run for step in theirs.steps]
    assert {part.variable for part in mine.space} == {"DATADIR", "MODELDIR"}


def test_the_dry_run_prints_the_published_commands_and_changes_nothing(folders: Data) -> None:
    text = folders.prepare("flux1", "--dry-run").stdout
    for published in (
        "https://training.mlcommons-storage.org/metadata/flux-1-cc12m-preprocessed.uri",
        "--input_path /dataset/coco_preprocessed --output_path /dataset/energon/val",
        f"--volume={folders.folder('flux1')}:/dataset",
    ):
        assert published in text
    assert "rm -rf /dataset/cc12m" not in text
    text = folders.prepare("flux1", "--dry-run", "--with", "reclaim").stdout
    assert "rm -rf /dataset/cc12m" in text
    assert not folders.folder("").exists()


def test_one_folder_of_two_variables_is_mounted_for_both(folders: Data) -> None:
    place = folders.folder("gpt")
    with folders.site.open("a") as site:
        site.write(f"  gpt_oss_20b: {{DATADIR: {place}, MODELDIR: {place}}}\n")
    text = folders.prepare("gpt_oss_20b", "--dry-run").stdout
    for inside in ("data", "model"):
        assert f"--volume={place}:/download/{inside} " in text


STEP: dict[str, object] = {"name": "a", "what": "b", "run": "c"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": [STEP | {"leaves": [{"variable": "OTHER", "path": "x"}]}]}, "is not mounted"),
        ({"steps": [STEP | {"clean": [{"variable": "D", "path": "."}]}]}, "never deleted"),
        ({"steps": [STEP | {"clean": [{"variable": "D", "path": "../x"}]}]}, "without '..'"),
        ({"steps": [STEP, STEP]}, "stands twice"),
        ({"stepps": []}, "unknown key"),
    ],
)
def test_a_wrong_document_is_refused_with_file_and_line(
    tmp_path: Path, change: dict[str, object], says: str
) -> None:
    part = {
        "source": "s",
        "mounts": [{"variable": "D", "container": "/d"}],
        "workdir": "/d",
        "steps": [STEP],
        "tree": [{"variable": "D", "path": "x"}],
        **change,
    }
    path = tmp_path / "own.yaml"
    document = {"kind": "preparation", "name": "own", "rounds": {"6.0": part}}
    path.write_text(json.dumps(document))  # JSON is YAML
    with pytest.raises(DescriptorError, match=r"own.yaml:\d+: ") as caught:
        load_preparation(str(path))
    assert says in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what others may not look into")
def test_what_only_root_may_look_into_is_not_called_missing(tmp_path: Path) -> None:
    """Containers write as root; who prepares need not be."""
    (tmp_path / "closed").mkdir(mode=0o700)
    os.seteuid(65534)
    try:
        assert has_content(tmp_path / "closed/iter_0000000")
        assert check_part(tmp_path / "closed", 0) == ("unreadable", -1)
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("round", "there"),
    [
        ("6.0", "data/notes.txt"),
        ("6.0", "data/other.parquet"),
        ("6.0", "data/train.npy"),
        ("5.1", "data/mine"),
        ("5.1", "model/mine"),
        ("5.0", "model/llama2-70b.nemo"),
        ("5.0", "gov_report/mine"),
    ],
)
def test_what_the_published_script_would_delete_is_refused_and_named(
    folders: Data, round: str, there: str
) -> None:
    """Before it asks for a token or an engine."""
    mine = folders.folder("llama2") / there
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    arguments = ("llama2_70b_lora", "--force-space", "--round", round)
    assert (
        f"# refused while this is there: {mine}" in folders.prepare(*arguments, "--dry-run").stdout
    )
    refused = folders.prepare(*arguments)
    assert refused.returncode == 2
    assert str(mine) in refused.stderr and "would delete or overwrite" in refused.stderr
    mine.unlink()
    folders.env["HF_TOKEN"] = TOKEN
    # Nothing is in the way any more, and there is no engine.
    assert folders.prepare(*arguments).returncode == 3


CHECKPOINT = "megatron_checkpoints/Llama-2-70b-hf/iter_0000000/common.pt"
CACHE = "data/huggingface/hub/models--meta-llama--Llama-2-70b-hf/snapshots/0123/config.json"
PACKED = ("data/train.npy", "data/validation.npy", "data/packed_metadata.jsonl")


@pytest.mark.parametrize(
    ("there", "due"),
    [
        ((*PACKED, f"data/{CHECKPOINT}", CACHE), []),
        ((*PACKED, f"data/{CHECKPOINT}"), ["tokenizer"]),
        ((*PACKED, f"model/{CHECKPOINT}"), ["checkpoint-in-place", "tokenizer"]),
        (PACKED[:2], ["data-and-model", "checkpoint-in-place", "tokenizer"]),
    ],
    ids=["whole", "as the guide leaves it", "as former preparations left it", "half"],
)
def test_a_tree_of_llama2_that_others_made_is_accepted(
    folders: Data, there: tuple[str, ...], due: list[str]
) -> None:
    for path in there:
        file = folders.folder("llama2") / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    shown = folders.prepare("llama2_70b_lora", "--dry-run", "--json")
    steps = outputs.checked(shown.stdout)["steps"]
    assert [step["step"] for step in steps if step["due"]] == due


# ---- with an engine ----


@pytest.mark.lab
def test_a_checkpoint_of_a_former_preparation_is_put_where_the_runs_look(data: Data) -> None:
    folder = data.folder("llama2")
    for path in (*PACKED, f"model/{CHECKPOINT}"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("mine")
    data.env["HF_TOKEN"] = TOKEN
    done = data.prepare("llama2_70b_lora", "--force-space")
    assert done.returncode == 0, done.stderr + done.stdout
    assert (folder / "data" / CHECKPOINT).read_text() == "mine"
    assert (folder / CACHE).exists() and not (folder / "model/megatron_checkpoints").exists()
    assert (folder / "data/train.npy").read_text() == "mine"


@pytest.mark.lab
def test_llama31_8b_is_prepared_checked_and_not_done_twice(data: Data) -> None:
    """The tokenizer ends in the folder of the runs, wherever the downloader puts it."""
    model, tokenizer = data.folder("8b/model"), ["config.json", "tokenizer.json"]
    done = data.prepare("llama31_8b", "--force-space", "--json")
    assert done.returncode == 0, done.stderr
    assert "warning" in done.stderr
    assert sorted(path.name for path in model.iterdir()) == tokenizer
    again = data.prepare("llama31_8b")  # nothing is due, so no space is needed
    assert again.returncode == 0 and again.stderr.count("done, skipped") == 2

    checked = data.prepare("llama31_8b", "--check", "--json")
    listed = outputs.checked(checked.stdout)["parts"]
    parts = {(part["variable"], part["path"]): part["state"] for part in listed}
    assert checked.returncode == 1
    assert parts.pop(("DATADIR", ".")) == parts.pop(("MODEL", ".")) == "too small"  # tiny files
    assert set(parts.values()) == {"ok"}
    (model / "tokenizer.json").unlink()
    (data.folder("8b/data") / "c4-train.en_6_text_document.idx").write_bytes(b"")
    lines = data.prepare("llama31_8b", "--check").stdout.splitlines()
    assert any("missing" in line.split() and "tokenizer.json" in line for line in lines)
    index = "c4-train.en_6_text_document.idx"
    assert any("empty" in line.split() and index in line for line in lines)
    # What was taken away is brought back, by the steps that bring it.
    (model / "tokenizer_way").write_text(".")
    mended = data.prepare("llama31_8b", "--force-space")
    assert mended.returncode == 0 and "its results are missing" in mended.stderr
    assert sorted(path.name for path in model.iterdir()) == [*tokenizer, "tokenizer_way"]
    (model / "tokenizer_way").write_text("../llama3_1_8b_tokenizer")
    (model / "tokenizer.json").unlink()
    assert data.prepare("llama31_8b", "--force-space", "--round", "5.1").returncode == 0
    assert sorted(path.name for path in model.iterdir()) == [*tokenizer, "tokenizer_way"]


@pytest.mark.lab
def test_flux1_stops_at_a_failing_step_and_goes_on_there(data: Data) -> None:
    folder = data.folder("flux1")
    none = data.prepare("flux1", "--force-space", "--image", "orchestrator-test/nothing:1")
    assert none.returncode == 3
    assert "orchestrator images pull --image orchestrator-test/nothing:1" in none.stderr
    assert not folder.exists()
    folder.mkdir(parents=True)
    (folder / "offline").touch()
    offline = data.prepare("flux1", "--force-space")
    assert offline.returncode == 1 and "it failed: exit code 1" in offline.stdout
    log = folder / ".orchestrator-prepare/flux1/6.0/download-cc12m.log"
    assert "cannot fetch https://raw.githubusercontent.com/" in log.read_text()
    (folder / "offline").rename(folder / "nothing")
    nothing = data.prepare("flux1", "--force-space")
    assert nothing.returncode == 1
    assert "it ended well, but left no" in nothing.stdout, (
        "a download that brings nothing is a failure"
    )
    assert data.state("flux1", "download-cc12m")["exit_code"] == 0
    (folder / "nothing").unlink()
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
    assert "6 steps done" in data.prepare("flux1").stdout


@pytest.mark.lab
def test_a_preparation_whose_process_is_killed_ends_with_it_and_runs_again(data: Data) -> None:
    folder = data.folder("llama2")
    data.env["HF_TOKEN"] = TOKEN
    process = data.start("llama2_70b_lora", "--force-space", *WAITING)
    with closing(docker.DockerClient(base_url=data.engine)) as client:
        with gate(folder, process):
            (running,) = data.containers(client)
            second = data.prepare("llama2_70b_lora", "--force-space")
            assert second.returncode == 5
            assert f"being prepared by process {process.pid} on" in second.stderr
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=300)
            assert client.api.wait(running, timeout=300)["StatusCode"] == 137
        assert data.state("llama2", "data-and-model")["state"] == "running"
        again = data.prepare("llama2_70b_lora", "--force-space")
        assert again.returncode == 0, again.stderr
        assert "it died or was interrupted" in again.stderr
        assert data.containers(client, ended=True) == []


@pytest.mark.lab
def test_a_second_preparation_on_another_machine_is_refused_while_the_first_may_live(
    data: Data,
) -> None:
    folder = data.folder("llama2")
    data.env["HF_TOKEN"] = TOKEN
    process = data.start("llama2_70b_lora", "--force-space", *WAITING, host="another-node")
    lock = folder / ".orchestrator-prepare/llama2_70b_lora/lock"
    with gate(folder, process):
        second = data.prepare("llama2_70b_lora", "--force-space")
        assert second.returncode == 5, second.stderr
        assert "on another-node" in second.stderr and "after its last sign of life" in second.stderr
        # The other round wants the same folders.
        other = data.prepare("llama2_70b_lora", "--force-space", "--round", "5.0")
        assert other.returncode in (2, 5)
        # Dead for certain is what was not heard of for two minutes: its machine may be cut off.
        [first] = map(
            int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        )
        os.kill(first, signal.SIGSTOP)  # it gives no sign of life meanwhile
        make_older(lock, 600)
        third = data.prepare("llama2_70b_lora", "--force-space")
        # This engine has its container.
        assert third.returncode == 3 and "another process prepares the same data" in third.stderr
    os.kill(first, signal.SIGCONT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 5, out + err
    assert "it took over" in err or "the lock cannot be read" in err
    assert not lock.exists()


@pytest.mark.lab
@pytest.mark.parametrize(
    "round", [*(pytest.param(round, marks=pytest.mark.long) for round in ("5.0", "5.1")), "6.0"]
)
def test_llama2_is_prepared_as_the_runs_of_its_round_want_it(data: Data, round: str) -> None:
    """After a try that broke off at a bad place, and next to folders of others."""
    folder = data.folder("llama2")
    results = folder / "results/result_1.txt"
    results.parent.mkdir(parents=True)
    results.write_text("a day of work")
    # Empty and not ours: commands that move a folder here would put theirs into it.
    (folder / "data").mkdir()
    arguments = ("--force-space", "--round", round)
    data.env["HF_TOKEN"] = TOKEN
    broken = data.prepare("llama2_70b_lora", *arguments, "--image", f"{IMAGES}:{round}-broken")
    assert broken.returncode == 1 and "exit code 7" in broken.stdout, broken.stderr
    done = data.prepare("llama2_70b_lora", *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "it failed: exit code 7" in done.stderr
    checked = data.prepare("llama2_70b_lora", "--check", "--round", round, "--json")
    listed = outputs.checked(checked.stdout)["parts"]
    states = {part["path"]: part["state"] for part in listed}
    sized = {path: states.pop(path) for path in list(states) if path.endswith(".distcp")}
    assert set(states.values()) == {"ok"} and set(sized.values()) <= {"too small"}  # tiny files
    names = {path.name for path in (folder / "data").iterdir() if path.suffix != ".parquet"}
    more = {"packed_metadata.jsonl", "megatron_checkpoints", "huggingface"}
    assert names == {"train.npy", "validation.npy"} | (more if round == "6.0" else set())
    assert not (folder / "gov_report").exists() and not (folder / "model/ckpt").exists()
    assert results.read_text() == "a day of work"
    assert data.state("llama2", "data-and-model", round)["state"] == "done"
    again = data.prepare("llama2_70b_lora", *arguments)
    assert again.returncode == 0 and "done, skipped" in again.stderr
    # Afterwards too, files of others and of another round are not deleted.
    (folder / "data/train.npy").unlink()
    (folder / "data/notes.txt").write_text("mine")
    newer = data.prepare("llama2_70b_lora", "--force-space")
    named = "data/notes.txt" if round == "6.0" else "data/validation.npy"
    assert newer.returncode == 2 and str(folder / named) in newer.stderr, newer.stderr
