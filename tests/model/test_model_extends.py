"""`extends`: a round, a workload or a preparation of one's own that starts from another."""

from __future__ import annotations

import shutil
from pathlib import Path
from textwrap import dedent

import pytest

from orchestrator.errors import DescriptorError, UsageError
from orchestrator.model import Catalogue, Site, load_entry
from orchestrator.model.schema import json_schema
from orchestrator.prepare.documents import load_preparation
from orchestrator.prepare.plan import make_plan
from orchestrator.resources import data_dir

SYSTEM = """
    kind: system
    name: mine
    accelerator: MI355X
    nodes: 1
    gpus_per_node: 8
    workloads:
      llama31_8b:
        "7.0":
          micro_batch: 2
          global_batch: 64
"""
ROUND = """
    kind: workload
    name: llama31_8b
    extends: llama31_8b
    rounds:
      "7.0":
        extends: "6.0"
        image: own/image:7.0
        source: a config of ours
        env:
          PRIMUS_LR: "9e-4"
          NCCL_BUFFSIZE: null
          NEW_ONE: "1"
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text).lstrip(), encoding="utf-8")
    return path


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    write(tmp_path, "mine.yaml", SYSTEM)
    write(tmp_path, "workloads/llama31_8b.yaml", ROUND)
    return tmp_path


def problems(folder: Path, name: str = "llama31_8b") -> list[str]:
    with pytest.raises(DescriptorError) as caught:
        Catalogue([folder]).workload(name)
    return [str(problem) for problem in caught.value.problems]


def test_a_round_of_a_folder_starts_from_a_shipped_one(mine: Path) -> None:
    entry = load_entry("mine", "llama31_8b", systems_dirs=[mine])
    shipped = Catalogue().workload("llama31_8b")[1].rounds["6.0"]
    env = {name: str(value) for name, value in entry.env.items()}
    assert (env["PRIMUS_LR"], env["NEW_ONE"]) == ("9e-4", "1")
    assert set(env) == {*shipped.env, "NEW_ONE"} - {"NCCL_BUFFSIZE"}
    assert (entry.image, entry.ruleset, entry.minutes_per_run) == (
        "own/image:7.0",
        "6.0.0",
        shipped.minutes_per_run,
    )
    # the older rounds are there as well, and so is what the whole workload says
    assert {"5.1", "6.0", "7.0"} == set(Catalogue([mine]).workload("llama31_8b")[1].rounds)
    assert entry.metric == "validation loss"


def test_every_variable_names_the_file_line_and_source_it_was_written_in(mine: Path) -> None:
    entry = load_entry("mine", "llama31_8b", systems_dirs=[mine])
    own, inherited = entry.origins["PRIMUS_LR"], entry.origins["PRIMUS_MIN_LR"]
    text = (data_dir("workloads") / "llama31_8b.yaml").read_text().splitlines()
    assert Path(own.file).samefile(mine / "workloads/llama31_8b.yaml")
    assert (own.line, own.source) == (10, "a config of ours")
    assert Path(inherited.file).samefile(data_dir("workloads") / "llama31_8b.yaml")
    assert text[inherited.line - 1].strip() == 'PRIMUS_MIN_LR: "8e-5"'
    assert "config_MI355X_1x8x1.sh" in inherited.source
    files = [Path(file).resolve() for file in entry.files]
    assert (data_dir("workloads") / "llama31_8b.yaml").resolve() in files


def test_a_later_fix_of_the_shipped_round_is_inherited(tmp_path: Path, mine: Path) -> None:
    lower = tmp_path / "lower"
    (lower / "workloads").mkdir(parents=True)
    shutil.copy(data_dir("workloads") / "llama31_8b.yaml", lower / "workloads")
    path = lower / "workloads/llama31_8b.yaml"
    path.write_text(path.read_text().replace('TARGET_EVAL_LOSS: "3.3"', 'TARGET_EVAL_LOSS: "3.2"'))
    entry = load_entry("mine", "llama31_8b", systems_dirs=[mine, lower])
    assert str(entry.env["TARGET_EVAL_LOSS"]) == "3.2"


def test_a_system_given_as_a_file_brings_the_round_beside_it(mine: Path) -> None:
    entry = load_entry(str(mine / "mine.yaml"), "llama31_8b")
    assert (entry.round, entry.image) == ("7.0", "own/image:7.0")


def test_a_folder_named_twice_is_no_circle(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mine.parent)
    catalogue = Catalogue([Path(mine.name)])
    catalogue.system(str(mine / "mine.yaml"))  # brings the folder again, as an absolute path
    assert "7.0" in catalogue.workload("llama31_8b")[1].rounds
    assert "7.0" in catalogue.workload(str(mine / "workloads/llama31_8b.yaml"))[1].rounds


def test_lists_replace_and_null_removes(tmp_path: Path) -> None:
    text = """
        kind: workload
        name: other
        extends: llama31_8b
        data_tree: null
        mounts:
          - {variable: DATADIR, container: /elsewhere}
        logged:
          seed: null
        rounds:
          "6.0":
            requires: null
            logged:
              max_steps: null
    """
    write(tmp_path, "workloads/other.yaml", text)
    workload = Catalogue([tmp_path]).workload("other")[1]
    assert [mount.container for mount in workload.mounts] == ["/elsewhere"]
    assert workload.data_tree == [] and "seed" not in workload.logged
    part = workload.rounds["6.0"]
    assert part.requires.driver is None
    assert part.logged["max_steps"] is None and part.logged["submission_org"] is not None


def test_null_removes_a_variable_of_launch(tmp_path: Path) -> None:
    text = """
        kind: workload
        name: llama31_8b
        extends: llama31_8b
        rounds:
          "7.0":
            extends: "6.0"
            launch: {env: {X: "1", Y: "2"}}
          "8.0":
            extends: "7.0"
            launch: {env: {X: null}}
    """
    write(tmp_path, "workloads/llama31_8b.yaml", text)
    rounds = Catalogue([tmp_path]).workload("llama31_8b")[1].rounds
    assert (rounds["7.0"].launch.env, rounds["8.0"].launch.env) == (
        {"X": "1", "Y": "2"},
        {"Y": "2"},
    )


def test_a_problem_names_file_and_line_through_the_chain(tmp_path: Path) -> None:
    base = write(tmp_path, "workloads/base.yaml", ROUND.replace("name: llama31_8b", "name: base"))
    base.write_text(base.read_text().replace('NEW_ONE: "1"', "NEW_ONE: 1"))
    write(tmp_path, "workloads/top.yaml", "kind: workload\nname: top\nextends: base\n")
    found = problems(tmp_path, "top")
    assert any("base.yaml:12: rounds.7.0.env.NEW_ONE: a number" in line for line in found), found
    assert any("top.yaml:3: extends: base cannot be extended" in line for line in found), found


def test_a_problem_that_only_the_extension_makes_is_shown_where_the_value_is(
    tmp_path: Path,
) -> None:
    text = 'kind: workload\nname: top\nextends: builtin\nrounds:\n  "2.0":\n    extends: "1.0"\n'
    write(tmp_path, "workloads/top.yaml", f"{text}runs_required: 2\n")
    found = problems(tmp_path, "top")
    assert ["top.yaml:7: runs_required: 2, but round 1.0" in line for line in found] == [True]


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ('"7.0": {extends: "7.0"}', "rounds.7.0.extends: 7.0 extends itself"),
        (
            '"7.0": {extends: "7.1"}\n  "7.1": {extends: "7.0"}',
            "a circle: 7.0 extends 7.1 extends 7.0",
        ),
        ('"7.0": {extends: "6.1"}', "there is no round 6.1 to extend; there are: 5.1, 6.0"),
    ],
)
def test_rounds_that_cannot_be_extended(tmp_path: Path, rounds: str, expected: str) -> None:
    text = f"kind: workload\nname: llama31_8b\nextends: llama31_8b\nrounds:\n  {rounds}\n"
    write(tmp_path, "workloads/llama31_8b.yaml", text)
    assert any(expected in line for line in problems(tmp_path))


def test_documents_in_a_circle_are_refused_with_all_their_lines(tmp_path: Path) -> None:
    for name, base in (("a", "b"), ("b", "c"), ("c", "a")):
        write(tmp_path, f"workloads/{name}.yaml", f"kind: workload\nname: {name}\nextends: {base}")
    found = [line for line in problems(tmp_path, "a") if "a circle: " in line]
    assert len(found) == 1
    for name in "abc":
        assert f"{name}.yaml:3" in found[0]


def test_an_unknown_workload_to_extend_is_named_with_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, "workloads/x.yaml", "kind: workload\nname: x\nextends: llama31_8\n")
    assert any("there is no workload llama31_8" in line and "llama31_8b" in line
               for line in problems(tmp_path, "x"))  # fmt: skip


def test_the_schema_for_editors_accepts_a_workload_that_extends_another() -> None:
    schema = json_schema("workload")
    assert schema["required"] == ["kind", "name"]
    whole, extending = schema["anyOf"]
    assert extending == {"required": ["kind", "name", "extends"]}
    assert {"benchmark", "rounds", "command"} <= set(whole["required"])
    assert "required" not in schema["$defs"]["WorkloadRound"]


def test_accumulation_is_computed_and_must_be_whole(mine: Path) -> None:
    entry = load_entry("mine", "llama31_8b", systems_dirs=[mine])
    assert entry.accumulation == 4  # 64 / (2 x 8)
    path = mine / "mine.yaml"
    path.write_text(path.read_text().replace("global_batch: 64", "global_batch: 40"))
    with pytest.raises(DescriptorError) as caught:
        load_entry("mine", "llama31_8b", systems_dirs=[mine])
    (problem,) = caught.value.problems
    assert problem.line == 10
    assert problem.text.startswith("40 is no multiple of micro batch 2 x 8 ranks / parallel 1 = 16")
    assert problem.text.endswith("the nearest are 32 and 48")


def test_accumulation_that_is_given_still_has_to_agree(mine: Path) -> None:
    path = mine / "mine.yaml"
    path.write_text(f"{path.read_text()}      accumulation: 2\n")
    with pytest.raises(DescriptorError, match="x accumulation 2 / parallel 1 = 32"):
        load_entry("mine", "llama31_8b", systems_dirs=[mine])


def test_a_new_round_is_prepared_as_the_round_it_extends(mine: Path, tmp_path: Path) -> None:
    site = Site(data={"llama31_8b": {"DATADIR": "/data", "MODEL": "/model"}})
    plan = make_plan("llama31_8b", site, round="7.0", systems_dirs=[mine])
    shipped = load_preparation("llama31_8b")[1].rounds["6.0"]
    assert (plan.round, plan.image) == ("7.0", "own/image:7.0")
    assert [step.name for step in plan.steps] == [step.name for step in shipped.steps]
    with pytest.raises(UsageError, match="published for round 8.0"):
        make_plan("llama31_8b", site, round="8.0", systems_dirs=[mine])


def test_preparations_of_a_folder_win_and_can_extend_the_shipped_one(tmp_path: Path) -> None:
    text = """
        kind: preparation
        name: llama31_8b
        extends: llama31_8b
        rounds:
          "7.0":
            extends: "6.0"
            workdir: /elsewhere
    """
    write(tmp_path, "workloads/preparations/llama31_8b.yaml", text)
    own = load_preparation("llama31_8b", [tmp_path])[1].rounds
    shipped = load_preparation("llama31_8b")[1].rounds
    assert own["7.0"].workdir == "/elsewhere"
    assert own["7.0"].steps == shipped["6.0"].steps and own["6.0"] == shipped["6.0"]
    write(tmp_path, "workloads/preparations/hello.yaml", text.replace("llama31_8b", "hello"))
    with pytest.raises(DescriptorError, match="there is no other preparation of hello"):
        load_preparation("hello", [tmp_path])
