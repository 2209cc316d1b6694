"""Images whose start is unlike that of the published ones: each is named, or said to be undecided."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rule_changes import inspected
from written_images import PROGRAMS

from orchestrator.inspection.contract import Contract
from orchestrator.inspection.findings import ContractFinding
from orchestrator.inspection.given import given_by
from orchestrator.model import load_entry
from orchestrator.resources import data_dir

RUN = "workspace/code/run_and_time.sh"
TRAIN = "workspace/code/src/train.py"
START = "torchrun --nproc_per_node=8 src/train.py"


def _inspect(
    folder: Path, files: dict[str, str | bytes], **modes: int
) -> tuple[Contract, list[ContractFinding]]:
    files = {TRAIN: "import os\nos.environ['SEED']\n", **files}
    for name in PROGRAMS:
        files[f"usr/bin/{name}"] = b"\x7fELF"
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(modes.get(path.stem, 0o755))
    return inspected(folder, given_by(load_entry("MI355X_1x8x1", "llama31_8b", round="6.0")))


def _kinds(found: list[ContractFinding]) -> dict[str, str]:
    return {one.kind: one.what for one in found if one.severity != "note"}


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("./launch.sh\n", "missing program", "launch.sh is not executable"),
        (f"set -e\r\n{START}\r\n", "missing program", "lines that end with CR LF"),
        (f"trap 'exit 0' EXIT\n{START}\n", "exit code", "ends with 0"),
        (f"{START} &\nwait\n", "exit code", "ends with 0"),
        (f"{START} >/results/log 2>&1\n", "hidden output", "goes to /results/log"),
        (f"{START} | tee x >/dev/null\n", "hidden output", "ends in /dev/null"),
        (f"{START} | grep -v MLLOG\n", "hidden output", "goes through `grep -v MLLOG`"),
        (f"{START} 2>&1 | grep MLLOG\n", "hidden errors", "goes through `grep MLLOG`"),
        (f"unset PRIMUS_LR\n{START}\n", "overwritten variable", "PRIMUS_LR is '8e-4'"),
        (f"env -i PATH=$PATH {START}\n", "overwritten variable", "the image sets nothing"),
        (f"bash <(curl -s https://example.org/x) a\n{START}\n", "download", "curl -s https"),
        (f"curl -s https://example.org/x | bash\n{START}\n", "download", "curl -s https"),
        (f"python3 -c 'import os; os.system(\"wget x.org/y\")'\n{START}\n", "download", "wget"),
        (f"for h in hooks/*/*.sh; do . $h; done\n{START}\n", "download", "pip install tools"),
        (START.replace("8", "4") + "\n", "ranks", "torchrun makes 4 ranks per node"),
        ("torchrun --nnodes=2 --nproc_per_node=8 src/train.py\n", "ranks", "waits for 2 nodes"),
    ],
)
def test_what_goes_wrong_is_named(script: str, kind: str, words: str, tmp_path: Path) -> None:
    files = {
        RUN: script,
        "workspace/code/launch.sh": f"#!/bin/bash\n{START}\n",
        "workspace/code/hooks/first/1.sh": "pip install tools\n",
    }
    _, found = _inspect(tmp_path, files, launch=0o644)
    assert words in _kinds(found)[kind]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            f"source ./conf_$(uname -m).sh\n{START}\n",
            "which script is sourced: /workspace/code/conf_….sh",
        ),
        (f"curl -s https://example.org/x | bash\n{START}\n", "given to `bash`"),
        (f"coproc X {{ cat; }}\n{START}\n", "a coprocess is started"),
        (f"sed -i s/a/b/ src/train.py\n{START}\n", "train.py is changed by `sed`"),
        ("# " + "x" * 2_000_000 + f"\n{START}\n", "run_and_time.sh was not read"),
        ("bash ./run_and_time.sh\n", "they start each other without an end"),
        (b"echo \xff\xfe\x00\n" + START.encode() + b"\n((((\n", "a line that cannot be parsed"),
    ],
)
def test_what_the_files_do_not_decide_is_said(
    script: str | bytes, why: str, tmp_path: Path
) -> None:
    contract, found = _inspect(tmp_path, {RUN: script})
    assert any(why in one.why for one in contract.trace.undecided)
    assert not [one for one in found if one.severity == "error"]


@pytest.mark.parametrize("options", ["", "set -e\n", "set -eu\n"])
def test_programs_after_an_unread_file_may_be_its_functions(options: str, tmp_path: Path) -> None:
    script = f"{options}. /opt/conda/etc/profile.d/conda.sh\nconda activate x\n: $CONDA_PREFIX\n"
    files = {RUN: f"{script}{START}\n", "opt/conda/etc/profile.d/conda.sh": "conda() { :; }\n"}
    contract, found = _inspect(tmp_path, files)
    assert contract.tree.text("/opt/conda/etc/profile.d/conda.sh") is None  # of a library
    assert contract.training is not None and not contract.training.place.maybe
    assert [one.severity for one in found if one.kind == "missing program"] == ["warning"]
    assert not [one for one in found if one.severity == "error"]


@pytest.mark.parametrize(
    "script", ["bash -e part.sh\n", "./part.sh\n", f"bash -euc '{START}; echo done'\n"]
)
def test_a_shell_that_ends_at_a_failure_has_its_status(script: str, tmp_path: Path) -> None:
    part = f"#!/bin/bash -e\n{START}\necho done\n"
    contract, found = _inspect(tmp_path, {RUN: script, "workspace/code/part.sh": part})
    assert contract.exit.after_failure == 7
    assert "exit code" not in _kinds(found)


def test_every_file_that_may_be_sourced_is_read(tmp_path: Path) -> None:
    files = {
        RUN: f"source ./gpu_config_$(rocm-smi | head -n1).sh\n{START}\n",
        "workspace/code/gpu_config_MI300X.sh": "export SEED=1\n",
        "workspace/code/gpu_config_MI355X.sh": "pip install tools\n",
    }
    contract, found = _inspect(tmp_path, files)
    assert "perhaps, at a start: pip install tools" in {one.what for one in found}
    (undecided,) = contract.trace.undecided
    assert undecided.why.endswith("perhaps gpu_config_MI300X.sh, gpu_config_MI355X.sh")


def test_a_semicolon_in_a_default_is_no_end_of_a_command(tmp_path: Path) -> None:
    script = f'export ARCHS="${{ARCHS:-gfx942;gfx950}}"\n[ "$ARCHS" = "gfx942;gfx950" ] || exit 1\n{START}\n'
    contract, _ = _inspect(tmp_path, {RUN: script})
    assert contract.ranks == "torchrun one node" and not contract.trace.undecided
    assert contract.exit.after_success == 0


@pytest.mark.parametrize(
    ("command", "others"),
    [
        ('for h in $(find "hooks/train/$F" -maxdepth 1 -name "*.sh" | sort); do bash $h; done', 1),
        ("bash hooks/train/$F/0.sh", 30),
    ],
    ids=["a folder", "among many scripts"],
)
def test_a_document_decides(tmp_path: Path, command: str, others: int) -> None:
    """Hooks of the framework in the run's document, as of Primus."""
    files = {
        RUN: f"export EXP=$PWD/exp.yaml\nF=$(python3 -c 'print(1)')\n{command}\n{START}\n",
        "workspace/code/exp.yaml": "framework: bridge\n",
        "workspace/code/hooks/train/bridge/0.sh": "pip install tools\n",
    }
    files |= {f"workspace/code/hooks/train/other{at}/0.sh": "exit 1\n" for at in range(others)}
    contract, found = _inspect(tmp_path, files)
    assert "at every start: pip install tools" in {one.what for one in found}
    assert not [one for one in contract.trace.undecided if "which script" in one.why]


def test_a_started_script_has_no_caller(tmp_path: Path) -> None:
    files = {
        RUN: 'source ./more.sh\n[ "${#BASH_SOURCE[@]}" = 1 ] || exit 1\n' + START + "\n",
        "workspace/code/more.sh": '[ "${#BASH_SOURCE[@]}" = 2 ] || exit 1\n',
    }
    contract, _ = _inspect(tmp_path, files)
    assert contract.exit.after_success == 0


def test_a_recipe_that_a_document_names_is_read(tmp_path: Path) -> None:
    recipe = "from transformers import AutoConfig\nfrom recipes import more\n\n\ndef config():\n"
    files = {
        RUN: f"{START} --config /workspace/code/exp.yaml\n",
        "workspace/code/exp.yaml": "model: preset.yaml  # below configs\n",
        "workspace/code/configs/models/preset.yaml": "recipe: recipes.llama2\nhf_path: a/b\n",
        "workspace/code/recipes/llama2.py": recipe + "    AutoConfig.from_pretrained('a/b')\n",
        "workspace/code/recipes/more.py": "import os\nos.environ['OF_THE_RECIPE']\n",
    }
    contract, found = _inspect(tmp_path, files)
    (download,) = (one for one in contract.trace.downloads if "from_pretrained" in one.what)
    assert str(download.place) == "/workspace/code/recipes/llama2.py:6"
    assert "OF_THE_RECIPE" in {one.name for one in contract.trace.reads}
    assert any("from_pretrained('a/b')" in one.what for one in found)


@pytest.mark.parametrize(
    ("program", "ranks"),
    [
        ("import torch.multiprocessing as mp\nmp.spawn(f, nprocs=8)\n", "Python"),
        ("import subprocess\nsubprocess.run(['torchrun', '--nproc_per_node=8', 'src/train.py'])\n",
         "torchrun one node"),
        ("import os\nos.system('cd /workspace/code && torchrun --nproc_per_node=8 src/train.py')\n",
         "torchrun one node"),
        ("print(1)\n", "task per GPU"),
    ],
)  # fmt: skip
def test_a_python_program_that_makes_its_ranks(program: str, ranks: str, tmp_path: Path) -> None:
    files = {RUN: "python3 src/launch.py\n", "workspace/code/src/launch.py": program}
    contract, found = _inspect(tmp_path, files)
    assert contract.ranks == ranks
    assert ("ranks" in _kinds(found)) is (ranks == "task per GPU")


def test_the_built_in_program_has_all_ranks_of_its_node(tmp_path: Path) -> None:
    """Its round names `launch.ranks: node`; unnamed, one process on two GPUs is an error."""
    shutil.copytree(data_dir("workloads") / "builtin", tmp_path / "workspace/code")
    for name in PROGRAMS:
        (tmp_path / "usr/bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / "usr/bin" / name).write_bytes(b"\x7fELF")
    given = given_by(load_entry("local_2x2x8", "builtin"))
    assert (given.gpus, given.ranks) == (2, "node")
    contract, found = inspected(tmp_path, given)
    assert contract.ranks == "task per GPU" and "ranks" not in _kinds(found)
    _, found = inspected(tmp_path, replace(given, ranks=""))
    assert "ranks" in _kinds(found)


def test_a_program_named_as_a_module_is_read(tmp_path: Path) -> None:
    files = {
        RUN: "torchrun --nproc_per_node=8 -m src.train\n",
        TRAIN: "import os\nos.environ['NEEDED']\n",
    }
    _, found = _inspect(tmp_path, files)
    assert "NEEDED is required" in _kinds(found)["unset variable"]


def test_torchrun_as_a_module_of_python(tmp_path: Path) -> None:
    words = "python3 -m torch.distributed.run --nproc_per_node 8 src/train.py"
    contract, found = _inspect(tmp_path, {RUN: f"{words}\n"})
    assert (contract.ranks, contract.exit.after_failure) == ("torchrun one node", 7)
    assert "missing program" not in _kinds(found)


def test_an_image_without_a_shell_script(tmp_path: Path) -> None:
    _, found = _inspect(tmp_path, {})
    assert _kinds(found)["missing program"].startswith("the image has no /workspace/code/run_and")


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (f"import os\nos.remove(0x{'f' * 6000})\n", ""),
        ("import os\nos.system('wget \\ud800')\nos.remove('/data/\\ud800')\n", ""),
        (f"import os\nos.system({'(' * 2000 + 'wget x' + ')' * 2000!r})\n", "nested too deeply"),
        (f"import os\nos.system({'+'.join(['b'] * 3000)})\n", "cannot be parsed"),
    ],
    ids=["a number", "half a surrogate", "brackets", "a sum"],
)
def test_odd_python_is_read_as_far_as_possible(program: str, why: str, tmp_path: Path) -> None:
    files = {RUN: START + "\n", TRAIN: program}
    contract, found = _inspect(tmp_path, files)
    assert contract.ranks == "torchrun one node"
    assert not why or any(why in one.why for one in contract.trace.undecided)
    "".join(f"{one.what}{one.why}" for one in found).encode()
