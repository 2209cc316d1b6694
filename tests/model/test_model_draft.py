"""`systems new`: hyper-parameters by global batch, the fabric of systems like it, and names that do not exist."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.model import Catalogue, Entry, load_entry
from orchestrator.model.draft import Draft, Outline, draft_system
from orchestrator.model.validation import validate_file

CATALOGUE = Catalogue()


def draft(
    name: str,
    accelerator: str,
    nodes: int,
    workload: str,
    micro_batch: int,
    *,
    accumulation: int = 1,
    fabric: str | None = None,
    round_name: str | None = None,
) -> Draft:
    outline = Outline(
        name,
        accelerator,
        nodes,
        8,
        workload,
        micro_batch,
        accumulation,
        fabric=fabric,
        round=round_name or "",
    )
    return draft_system(CATALOGUE, outline)


def entry_of(text: str, name: str, workload: str, folder: Path) -> Entry:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    assert validate_file(CATALOGUE, path) == ("system", [])
    return load_entry(str(path), workload)


def values(entry: Entry, *names: str) -> list[str]:
    return [str(entry.env[name]) for name in names]


@pytest.mark.parametrize(
    ("name", "accelerator", "nodes", "micro_batch", "rate", "warm_up"),
    [
        # The nearest system by nodes, MI350X_01x08x64, runs batch 512 and says 2e-4 and 1600.
        ("MI350X_04x08x32", "MI350X", 4, 32, "0.00025", "800"),
        ("MI350X_08x08x32", "MI350X", 8, 32, "0.00025", "0"),
        # Published on this GPU with this batch, where the reference says 0.00025.
        ("MI355X_02x08x128", "MI355X", 2, 128, "0.00027", "0"),
        # AMD's file without results and Oracle's entry with them differ: what has results counts.
        ("MI300X_32x08x16", "MI300X", 32, 16, "0.0004", "400"),
    ],
)
def test_flux1_by_batch(
    tmp_path: Path,
    name: str,
    accelerator: str,
    nodes: int,
    micro_batch: int,
    rate: str,
    warm_up: str,
) -> None:
    entry = entry_of(
        draft(name, accelerator, nodes, "flux1", micro_batch).text, name, "flux1", tmp_path
    )
    assert entry.global_batch == nodes * 8 * micro_batch
    assert values(entry, "LEARNING_RATE", "WARMUP_STEPS") == [rate, warm_up]


def test_llama31_8b_has_its_interval_by_batch_too(tmp_path: Path) -> None:
    """The workload itself is written for batch 32."""
    made = draft("MI355X_02x8x2", "MI355X", 2, "llama31_8b", 2, accumulation=2)
    entry = entry_of(made.text, "MI355X_02x8x2", "llama31_8b", tmp_path)
    names = ("PRIMUS_LR", "PRIMUS_MIN_LR", "PRIMUS_LR_WARMUP_ITERS", "PRIMUS_EVAL_INTERVAL")
    assert values(entry, *names) == ["8e-4", "8e-5", "96", "192"]
    assert not made.warnings


def test_a_published_batch_is_taken_as_it_ran(tmp_path: Path) -> None:
    made = draft("MI350X_1x8x4", "MI350X", 1, "llama31_8b", 4)
    entry = entry_of(made.text, "MI350X_1x8x4", "llama31_8b", tmp_path)
    assert values(entry, "PRIMUS_LR", "PRIMUS_LR_WARMUP_ITERS") == ["1e-3", "64"]
    assert "as MI350X_1x8x1 has them for global batch 32" in made.text
    assert "SUBMISSION" not in made.text


def test_a_batch_without_a_reference_point_warns(tmp_path: Path) -> None:
    made = draft("MI355X_3x8x2", "MI355X", 3, "llama31_8b", 2)
    (warning,) = made.warnings
    assert (
        "no reference convergence point for global batch 48 (there are: 16, 32, 64, 96, 128)"
        in warning
    )
    assert warning in json.loads(
        next(line for line in made.text.splitlines() if " note: " in line).split("note: ")[1]
    )
    assert validate_text(made.text, "MI355X_3x8x2", tmp_path)


def validate_text(text: str, name: str, folder: Path) -> bool:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return validate_file(CATALOGUE, path)[0] == "system"


@pytest.mark.parametrize(
    ("accelerator", "nodes", "given", "fabric"),
    [
        ("MI355X", 1, None, "none"),
        ("MI355X", 4, None, "pollara"),
        ("MI325X", 4, None, "broadcom_roce"),
        ("MI325X", 4, "mellanox_roce", "mellanox_roce"),
        ("MI300X", 64, None, "mellanox_roce"),
    ],
)
def test_the_fabric_is_that_of_systems_like_it(
    accelerator: str, nodes: int, given: str | None, fabric: str
) -> None:
    text = draft("mine", accelerator, nodes, "flux1", 64, fabric=given).text
    assert f"\nfabric: {fabric} " in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"accelerator": "MI335X"},
            r"there is no accelerator MI335X; did you mean \"MI3[05]5X\"\?; there are: MI300X",
        ),
        (
            {"fabric": "polara"},
            r"there is no fabric polara; did you mean \"pollara\"\?; there are: broadcom_roce",
        ),
        ({"round_name": "9.0"}, "flux1 has no round 9.0; it has: 6.0"),
        ({"workload": "flux"}, "there is no workload 'flux'"),
    ],
)
def test_what_does_not_exist_is_refused(change: dict[str, str], says: str) -> None:
    asked = {"accelerator": "MI355X", "workload": "flux1"} | {
        key: value for key, value in change.items() if key in ("accelerator", "workload")
    }
    with pytest.raises(UsageError, match=says):
        draft(
            "mine",
            asked["accelerator"],
            2,
            asked["workload"],
            8,
            fabric=change.get("fabric"),
            round_name=change.get("round_name"),
        )


RATES = {"LEARNING_RATE", "LR", "MAX_LR", "PRIMUS_LR"}
WARM_UP = {"WARMUP_STEPS", "PRIMUS_LR_WARMUP_ITERS"}


def test_the_reference_is_the_referees() -> None:
    """Learning rate and warm-up of every reference convergence point, against the package of the referee."""
    package = find_spec("mlperf_logging")
    assert package and package.submodule_search_locations
    home = Path(package.submodule_search_locations[0]) / "rcp_checker"
    checked = 0
    for workload in CATALOGUE.workloads():
        for name, rules in workload.rounds.items():
            if not rules.reference:
                continue
            points = json.loads(
                (
                    home / f"training_{rules.ruleset}" / f"rcps_{workload.benchmark}.json"
                ).read_bytes()
            )
            theirs = {str(point["BS"]): point["Hyperparams"] for point in points.values()}
            assert set(rules.reference) == set(theirs), (workload.name, name)
            for batch, env in rules.reference.items():
                ours = {key: float(str(value)) for key, value in env.items()}
                (rate,) = (ours[key] for key in RATES & set(ours))
                assert rate == theirs[batch]["opt_base_learning_rate"]
                for key in WARM_UP & set(ours):
                    samples = theirs[batch].get("opt_learning_rate_warmup_samples", 0) // int(batch)
                    assert ours[key] == theirs[batch].get("opt_learning_rate_warmup_steps", samples)
                checked += 1
    assert checked == 4 + 3 * 4 + 2 * 5 + 3
