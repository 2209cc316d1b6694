"""The config of every configuration of the catalogue, as a bundle has it, imported again."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.importing.config import import_config
from orchestrator.importing.split import ImportOptions
from orchestrator.importing.writing import as_published, composed, write
from orchestrator.mllog.rounds import ruleset_problem
from orchestrator.model import Catalogue, load_entry
from orchestrator.render import render_bundle

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import import_published

CONFIGURATIONS = [
    (system.name, workload, name)
    for system in Catalogue().systems()
    for workload, rounds in system.workloads.items()
    for name in rounds
    if workload not in ("builtin", "bert")  # bert of round 5.0 has no variable and no config
]


def test_the_catalogue_has_as_many_as_ever() -> None:
    assert len(CONFIGURATIONS) >= 79


def test_a_configuration_without_a_text_says_why() -> None:
    """As `tools/import_published.py FOLDER` prints it; here for an empty folder."""
    why = Counter(row["state"] for row in import_published.table(lambda *_: None, False))
    assert sum(why.values()) == len(CONFIGURATIONS) + 1
    assert why["no text: no config is published; its program takes no variables"] == 1  # bert
    assert why["no text: FOLDER lacks the file that its source names"] >= 66
    assert {text for text in why if "logs" in text or "shares code" in text} == {
        f"no text: {import_published.WITHOUT[origin]}" for origin in ("logs", "assumed")
    }


FIRST = {key[1:]: key for key in reversed(CONFIGURATIONS)}
"""(workload, round) -> its first configuration."""


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(key, marks=[] if FIRST[key[1:]] == key else pytest.mark.long)
        for key in CONFIGURATIONS
    ],
    ids="-".join,
)
def test_a_rendered_config_gives_its_environment_again(
    key: tuple[str, str, str], tmp_path: Path
) -> None:
    system, workload, name = key
    entry = load_entry(system, workload, round=name, site=as_published())
    folders = {mount.variable: "/data" for mount in entry.mounts}
    given = {"log_dir": "/results", "data": {workload: folders} if folders else {}}
    entry = load_entry(system, workload, round=name, site=as_published().model_copy(update=given))
    bundle = render_bundle(entry, nexp=1)
    for file in (entry.config_file, "rccl_env.sh"):
        (tmp_path / file).write_bytes(bundle[file])
    checked = import_config(
        tmp_path / entry.config_file, ImportOptions(name), [], ruleset_problem=ruleset_problem
    )
    result = checked.imported
    assert (result.workload, result.evaluation.run) == (workload, False)
    write(tmp_path / "mine", checked.documents)
    ours = composed(result, checked.documents, tmp_path / "mine", [])
    assert ours == {name: str(value) for name, value in entry.whole_env.items()}
