"""The contracts of the stand-ins: their true findings, and 40 changes that must be named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from image_mutations import MUTATIONS, Mutation
from standin_images import STAND_INS, make_root
from written_images import WRITTEN, write_root

from orchestrator.inspection.contract import Contract, contract_of
from orchestrator.inspection.findings import ContractFinding, findings
from orchestrator.inspection.given import Given, given_by
from orchestrator.inspection.run_container import Mounted
from orchestrator.inspection.sources import read_folder
from orchestrator.model import load_entry

TRUE_FINDINGS = {
    "flux1-amd": {
        "warning exit code /workspace/code/run_and_time.sh:12",
        "note ranks /workspace/code/run_and_time.sh:12",
    },
    "flux1-oracle": {"note ranks /workspace/code/run_and_time.sh:15"},
    "llama2-nemo-5.0": set(),
    "llama2-nemo-5.1": set(),
    "llama2-cisco": set(),
    "llama2-primus": {
        "warning download /opt/standin/hooks.sh:5",
        "note hidden output /workspace/Primus/runner/primus-cli:28",
        "note hidden errors /workspace/Primus/runner/primus-cli:28",
    },
    "llama31-nemo": {"warning missing path /workspace/code/src/prepare_data.py:7"},
    "llama31-primus": {"warning hidden errors /workspace/code/run_and_time.sh:12"},
    "llama31-primus-early": {"warning hidden errors /workspace/code/run_and_time.sh:6"},
    "llmboost-5.0": {
        "warning overwritten variable /workspace/mlperf_training/config_MI300X_2x8x1.sh:5"
    },
    "llmboost-5.1": {
        "warning overwritten variable /workspace/conf/config_MI300X_2x8x1.sh:3",
        "warning overwritten variable /workspace/conf/config_MI300X_2x8x1.sh:5",
    },
}
"""But for variables that the stand-ins do not read: their programs are smaller than the real ones."""

RANKS = {
    "flux1-amd": "torchrun c10d",
    "flux1-oracle": "torchrun c10d",
    "llama2-nemo-5.0": "torchrun one node",
    "llama2-nemo-5.1": "torchrun one node",
    "llama2-cisco": "task per GPU",
    "llama2-primus": "torchrun static",
    "llama31-nemo": "torchrun static",
    "llama31-primus": "torchrun c10d",
    "llama31-primus-early": "torchrun static",
    "llmboost-5.0": "torchrun static",
    "llmboost-5.1": "torchrun static",
}


def _given(name: str) -> Given:
    stand_in = STAND_INS[name]
    return given_by(load_entry(stand_in.system, stand_in.workload, round=stand_in.round))


def _contract(root: Path, given: Given) -> Contract:
    return contract_of(
        read_folder(root, given.configured), given.command, given.around, given.second
    )


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("images")
    return {name: make_root(one, top / name) for name, one in STAND_INS.items()}


def _lines(found: list[ContractFinding]) -> set[str]:
    return {
        f"{one.severity} {one.kind} {one.where}" for one in found if one.kind != "unread variable"
    }


@pytest.mark.parametrize("name", STAND_INS)
def test_the_true_findings_of_an_image(name: str, roots: dict[str, Path]) -> None:
    given = _given(name)
    contract = _contract(roots[name], given)
    assert _lines(findings(contract, given)) == TRUE_FINDINGS[name]
    assert contract.ranks == RANKS[name]
    assert contract.exit.after_success == 0
    assert contract.exit.after_failure == (0 if name == "flux1-amd" else 7)


@pytest.mark.parametrize("name", WRITTEN)
def test_the_contract_of_an_image_without_a_stand_in(name: str, tmp_path: Path) -> None:
    image = WRITTEN[name]
    system, workload, round_ = image.entry
    given = given_by(load_entry(system, workload, round=round_))
    contract = _contract(write_root(image, tmp_path), given)
    assert (contract.ranks, contract.exit.after_failure) == (image.ranks, image.after_failure)
    assert _lines(findings(contract, given)) == image.findings
    assert not contract.trace.undecided


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: f"{one.image}: {one.new[:40]!r}")
def test_a_change_of_an_image_is_named(mutation: Mutation, roots: dict[str, Path]) -> None:
    given = _given(mutation.image)
    root = roots[mutation.image]
    before = {(one.kind, one.what) for one in findings(_contract(root, given), given)}
    path = root / mutation.file
    text = path.read_text()
    assert mutation.old in text
    try:
        path.write_text(text.replace(mutation.old, mutation.new))
        after = findings(_contract(root, given), given)
    finally:
        path.write_text(text)
    new = [one for one in after if (one.kind, one.what) not in before]
    assert any(one.kind == mutation.kind and mutation.word in one.what for one in new), new


def test_a_checkpoint_that_no_preparation_makes_is_named(roots: dict[str, Path]) -> None:
    """The former mounts of llama2_70b_lora 6.0: the hook looked where nothing was."""
    given = _given("llama2-primus")
    mounts = tuple(
        replace(one, holds=("/data/train.npy", "/data/validation.npy"))
        if one.place == "/data"
        else one
        for one in given.around.mounts
    )
    former = replace(given, around=replace(given.around, mounts=mounts))
    found = findings(_contract(roots["llama2-primus"], former), former)
    expected = {
        one.what.partition(" ")[0]: one.file for one in found if one.kind == "expected path"
    }
    assert expected["/data/megatron_checkpoints/Llama-2-70b-hf"] == "/opt/standin/hooks.sh"


def test_a_folder_that_root_may_not_write_is_named(roots: dict[str, Path]) -> None:
    given = _given("llama2-primus")
    unprepared = replace(given, writable=frozenset({"/results", "/orch"}))
    found = findings(_contract(roots["llama2-primus"], unprepared), unprepared)
    assert "the container's root writes below /data" in {one.what for one in found}

    mounts = tuple(
        Mounted(one.place, True, one.holds) if one.place == "/data" else one
        for one in given.around.mounts
    )
    read_only = replace(given, around=replace(given.around, mounts=mounts))
    found = findings(_contract(roots["llama2-primus"], read_only), read_only)
    assert "read-only path" in {one.kind for one in found if one.severity == "error"}


def test_a_command_that_the_image_lacks_is_named(roots: dict[str, Path]) -> None:
    """Entries whose command was that of another image: the vendor's was expected."""
    given = _given("llmboost-5.0")
    found = findings(_contract(roots["llama2-nemo-5.0"], given), given)
    assert [one.kind for one in found if one.severity == "error"] == ["missing program"]
    assert found[0].what.startswith("the image has no llmboost")


def test_a_token_that_nobody_sets_is_named(roots: dict[str, Path]) -> None:
    given = _given("llama2-primus")
    environment = {k: v for k, v in given.around.environment.items() if k != "HF_HUB_OFFLINE"}
    online = replace(given, around=replace(given.around, environment=environment))
    names = {
        one.what.partition(" ")[0]
        for one in findings(_contract(roots["llama2-primus"], online), online)
    }
    assert "HF_TOKEN" in names
