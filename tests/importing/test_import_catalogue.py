"""Every published configuration, written as a config of its round and imported again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from config_texts import ENTRIES, environment, write_config

from orchestrator.importing.config import Checked, import_config
from orchestrator.importing.split import ImportOptions
from orchestrator.importing.writing import as_published, composed, write
from orchestrator.mllog.rounds import ruleset_problem
from orchestrator.model import Entry, load_entry

EXECUTED = {"MI350X_akash_4x8x1", "MI325X_1node", "MI350X_akash_1x8x1"}
"""Systems of whose round 6.0 a config computes with awk, or demands a variable of its caller."""

DIFFERENT = {
    (
        "MI300X_64x08x16",
        "EXTRA_ARGS",
    ): "the catalogue leaves out an argument that AMD's code refuses",
    (
        "MI350X_2x8x1_tp1pp1ep1_gbs64",
        "DGXSYSTEM",
    ): "the published file for MI350X names MI355X; the catalogue corrects it",
    ("MI350X_akash_4x8x1", "PRIMUS_MIN_LR"): "computed as 0.0002, the same number as 2e-4",
    ("MI325X_1node", "PRIMUS_MIN_LR"): "computed as 8e-05, the same number as 8e-5",
    ("MI350X_akash_1x8x1", "PRIMUS_MIN_LR"): "computed as 8e-05, the same number as 8e-5",
}
"""Variables of the imported entry that differ from the catalogue's, with the reason."""


def entry_of(fact: dict[str, Any]) -> Entry:
    return load_entry(fact["system"], fact["workload"], round=fact["round"], site=as_published())


def imported(fact: dict[str, Any], entry: Entry, folder: Path) -> Checked:
    path = write_config(folder / "texts", entry.config_file, environment(fact))
    return import_config(
        path, ImportOptions(fact["round"]), [], ruleset_problem=ruleset_problem, execute=True
    )


FIRST = {(fact["workload"], fact["round"]): fact["id"] for fact in reversed(ENTRIES)}
"""(workload, round) -> its first entry."""


def is_special(fact: dict[str, Any]) -> bool:
    """Return whether it is the first of its workload and round, or its system is an exception here."""
    is_first = FIRST[fact["workload"], fact["round"]] == fact["id"]
    return is_first or fact["system"] in EXECUTED | {system for system, _ in DIFFERENT}


@pytest.mark.parametrize(
    "fact",
    [
        pytest.param(fact, id=fact["id"], marks=[] if is_special(fact) else pytest.mark.long)
        for fact in ENTRIES
    ],
)
def test_the_imported_config_gives_the_environment_of_the_catalogue(
    fact: dict[str, Any], tmp_path: Path
) -> None:
    entry = entry_of(fact)
    checked = imported(fact, entry, tmp_path)
    result = checked.imported
    assert (result.workload, result.new_round) == (fact["workload"], False)
    assert result.accelerator == entry.accelerator
    facts = ("nodes", "gpus_per_node", "micro_batch", "global_batch", "accumulation",
             "tensor_parallel", "pipeline_parallel", "context_parallel")  # fmt: skip
    assert {name: result.facts[name] for name in facts} == {
        name: str(getattr(entry, name)) for name in facts
    }
    awk = any("LR x 0.1" in value or "0.1 x" in value for value in environment(fact).values())
    assert result.evaluation.run == awk and (not awk or fact["system"] in EXECUTED)
    write(tmp_path / "mine", checked.documents)
    ours = composed(result, checked.documents, tmp_path / "mine", [])
    theirs = {name: str(value) for name, value in entry.whole_env.items()}
    different = {name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)}
    assert different == {
        name
        for system, name in DIFFERENT
        if system == fact["system"]
        and name in environment(fact)
        and (name != "PRIMUS_MIN_LR" or awk)
    }
