"""`orchestrator systems` as a user calls it."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from sites import write_site, write_system

from orchestrator.cli import COMMANDS, command_parser, main
from orchestrator.errors import ExitCode
from orchestrator.model.part import KINDS

TOP = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody's own site file may change what these tests see."""
    monkeypatch.delenv("ORCHESTRATOR_SITE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def systems(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["systems", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = systems(capsys)
    assert code == 0
    row = next(line for line in out.splitlines() if line.startswith("MI355X_1x8x1 "))
    assert row.split(maxsplit=5)[1:5] == ["MI355X", "1", "x", "8"]
    assert "llama31_8b (5.1, 6.0)" in row


def test_list_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = systems(capsys, "--json")
    result = {row["name"]: row for row in json.loads(out)["systems"]}
    assert result["MI325X_08x08x32"]["workloads"] == {"flux1": ["6.0"]}
    assert result["MI325X_08x08x32"]["nodes"] == 8


def test_show_with_origins(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = systems(
        capsys, "show", "MI325X_08x08x32", "--workload", "flux1", "--why", "--env", "MODEL=dev"
    )
    assert code == 0
    row = next(line for line in out.splitlines() if line.startswith("LEARNING_RATE "))
    number = row.split()[-1]
    assert row.split()[1] == "0.00025" and row.split()[2].startswith("MI325X_08x08x32:")
    [source] = [line for line in out.splitlines() if line.startswith(f"{number} ")]
    assert "systems/MI325X_08x08x32.yaml: training_results_v6.0: AMD" in source
    model = next(line for line in out.splitlines() if line.startswith("MODEL "))
    assert model.split()[1:] == ["dev", "command", "line"]


def test_show_json_and_json_before_the_action(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("show", "MI355X_1x8x1", "--workload", "llama31_8b", "--round", "5.1")
    _, before, _ = systems(capsys, "--json", *arguments)
    _, after, _ = systems(capsys, *arguments, "--json")
    assert before == after
    entry = json.loads(after)
    assert entry["round"] == "5.1"
    assert {"name", "value", "layer", "file", "line", "source", "rccl"} == set(entry["env"][0])


def test_show_without_workload(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = systems(capsys, "show", "MI355X_1x8x1")
    assert "llama2_70b_lora" in out and "5.1" in out and "6.0" in out


def test_show_says_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = systems(capsys, "show", "MI355X_1x8x1_Dell_XE9785")
    first, second = (
        next(line for line in out.splitlines() if line.startswith(name))
        for name in ("llama2", "llama31")
    )
    assert "8.59 min, from the logs  assumed" in first
    assert "not known" in second and "assumed" in second
    assert "llama31_8b 6.0: neither a config nor a result of it is stored" in out
    _, out, _ = systems(capsys, "show", "MI355X_1x8x1_HPE", "--json")
    entries = json.loads(out)["entries"]
    assert [(entry["env_from"], entry["minutes"], entry["basis"]) for entry in entries] == [
        ("logs", 8.61, "computed"),
        ("logs", 91.94, "computed"),
    ]
    _, out, _ = systems(capsys, "show", "MI355X_1x8x1_HPE", "--workload", "llama31_8b")
    assert "env_from           logs" in out


def test_diff(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = systems(capsys, "diff", "MI325X_08x08x32", "MI325X_08x08x32_Dell", "--json")
    changed = {
        difference["name"]: (difference["left"], difference["right"])
        for difference in json.loads(out)["differences"]
        if difference["kind"] == "env"
    }
    assert changed == {"LEARNING_RATE": ("0.00025", "0.0003")}


def test_diff_of_rounds_and_of_equals(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = systems(
        capsys, "diff", "MI355X_1x8x1:llama31_8b:5.1", "MI355X_1x8x1:llama31_8b:6.0"
    )
    assert (
        "rocm/amd-mlperf:llama31_8b_training_5.1" in out
        and "rocm/amd-mlperf:llama31_8b_training_6.0" in out
    )
    _, out, _ = systems(capsys, "diff", "local_2x2x8", "local_2x2x8")
    assert "do not differ" in out


def test_diff_of_two_files_of_one_name_shows_both_values(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    paths = []
    for rate in ("0.0011", "0.0022"):
        paths.append(str(write_system(tmp_path / rate, env={"LEARNING_RATE": rate})))
    _, out, _ = systems(capsys, "diff", *(f"{path}:builtin" for path in paths))
    header, *rows = out.splitlines()
    assert all(path in header for path in paths)
    [row] = [row for row in rows if row.startswith("LEARNING_RATE")]
    assert row.split()[-2:] == ["0.0011", "0.0022"]


def test_diff_that_needs_a_workload(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = systems(capsys, "diff", "MI355X_1x8x1", "MI350X_1x8x1")
    assert code == 2
    assert "they share llama2_70b_lora, llama31_8b" in err


def test_new_gives_a_descriptor_that_validates(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = (
        "new",
        "MI325X_02x08x16",
        "--accelerator",
        "MI325X",
        "--nodes",
        "2",
        "--workload",
        "flux1",
        "--micro-batch",
        "16",
        "--fabric",
        "broadcom_roce",
        "-o",
        str(tmp_path / "own"),
    )
    assert systems(capsys, *arguments)[0] == 0
    path = tmp_path / "own" / "MI325X_02x08x16.yaml"
    assert systems(capsys, "validate", str(path))[:2] == (0, f"{path}: system, fine\n")
    code, out, _ = systems(
        capsys,
        "show",
        "MI325X_02x08x16",
        "--workload",
        "flux1",
        "--systems-dir",
        str(tmp_path / "own"),
    )
    assert code == 0 and "256" in out
    assert systems(capsys, *arguments)[0] == 2, "an existing file is not overwritten"


def test_new_on_a_gpu_that_nobody_published(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    of = ["--accelerator", "MI355X", "--nodes", "1", "--workload", "builtin", "--micro-batch", "8"]
    code, out, _ = systems(capsys, "new", "mine", *of)
    (tmp_path / "mine.yaml").write_text(out, encoding="utf-8")
    assert code == 0 and systems(capsys, "validate", "mine.yaml")[0] == 0
    code, _, err = systems(capsys, "new", "../evil", *of)
    assert code == 2 and "is not a name" in err


@pytest.mark.parametrize(
    ("name", "given", "problem"),
    [
        ("2026", (), ""),
        ("m", ("--nodes", "200000"), "nodes: 200000 is too large"),
        ("m", ("--accumulation", "99999999"), "accumulation: 99999999 is too large"),
        ("MI355X_2x8x8", (), "nodes: 1, but the name MI355X_2x8x8 says 2"),
        ("m" * 81, (), "name: "),
        ("m", ("--json",), "it takes no --json"),
    ],
)
def test_new_writes_valid_descriptors_alone(
    capsys: pytest.CaptureFixture[str], name: str, given: tuple[str, ...], problem: str
) -> None:
    of = ["--accelerator", "MI355X", "--nodes", "1", "--workload", "builtin", "--micro-batch", "8"]
    of += ["--fabric", "pollara"]
    code, _, err = systems(capsys, "new", name, *of, "-o", "own", *given)
    assert code == (2 if problem else 0) and problem in err
    assert Path("own").exists() == (code == 0)
    assert code or systems(capsys, "validate", f"own/{name}.yaml")[0] == 0


def own_documents(folder: Path) -> tuple[Path, Path]:
    """A workload and a system that names it, as docs/howto/own-workload.md has them."""
    (folder / "workloads").mkdir(parents=True)
    workload, system = folder / "workloads/hello.yaml", folder / "two_nodes.yaml"
    workload.write_text(
        "kind: workload\nname: hello\ntitle: T\nbenchmark: hello\nmetric: loss\ncode_dir: /c\ncommand: [run]\nruns_required: 3\n"
        "rounds:\n  '1.0': {ruleset: own, minutes_per_run: 1}\n"
    )
    system.write_text(
        "kind: system\nname: two_nodes\naccelerator: MI325X\nnodes: 2\ngpus_per_node: 8\nfabric: none\n"
        "workloads: {hello: {'1.0': {micro_batch: 4, global_batch: 64}}}\n"
    )
    return workload, system


def test_validate_takes_a_folder_and_a_system_knows_the_workloads_beside_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    workload, system = own_documents(tmp_path / "mine")
    both = f"{system}: system, fine\n{workload}: workload, fine\n"
    assert systems(capsys, "validate", str(tmp_path / "mine"))[:2] == (0, both)
    assert systems(capsys, "validate", str(system))[:2] == (0, f"{system}: system, fine\n")
    assert systems(capsys, "show", str(system), "--workload", "hello")[0] == 0
    steps = tmp_path / "mine/workloads/preparations/flux1.yaml"
    steps.parent.mkdir()
    steps.write_text("kind: preparation\nname: flux1\nextends: flux1\nrounds: {}\n")
    assert f"{steps}: preparation, fine\n" in systems(capsys, "validate", str(tmp_path / "mine"))[1]
    steps.write_text("kind: preparation\nname: flux1\nextends: flux1\nrunds: {}\n")
    code, _, err = systems(capsys, "validate", str(tmp_path / "mine"))
    assert code == 2 and f"{steps.relative_to(tmp_path)}:4: runds: unknown key" in err
    steps.unlink()
    workload.write_text(workload.read_text().replace("run]", "run"))
    code, _, err = systems(capsys, "validate", str(tmp_path / "mine"))
    assert code == 2 and "hello.yaml:" in err
    (tmp_path / "empty").mkdir()
    code, _, err = systems(capsys, "validate", str(tmp_path / "empty"))
    assert code == 2 and "no document in this folder" in err


def test_new_does_not_replace_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    argv = (
        "new",
        "MI325X_04x08x32",
        "--accelerator",
        "MI325X",
        "--nodes",
        "4",
        "--workload",
        "flux1",
    )
    argv = (*argv, "--micro-batch", "32", "-o", str(tmp_path))
    assert systems(capsys, *argv)[0] == 0
    text = (tmp_path / "MI325X_04x08x32.yaml").read_text()
    code, _, err = systems(capsys, *argv)
    assert code == 2 and "is there already" in err and "hint: " in err
    assert (tmp_path / "MI325X_04x08x32.yaml").read_text() == text


def test_validate_reports_every_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: system\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("kind: site\nlog_dir: /x\n", encoding="utf-8")
    code, out, err = systems(capsys, "validate", "a.yaml", "b.yaml", "c.yaml")
    assert code == 2
    assert "b.yaml: site, fine" in out
    assert (
        "a.yaml:1: name: this key is required" in err and "c.yaml:1: there is no such file" in err
    )
    code, out, _ = systems(capsys, "validate", "--json", "a.yaml")
    assert code == 2 and json.loads(out)["problems"][0].startswith("a.yaml:1: ")


def test_validate_takes_every_kind_of_document(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shipped = [path for part in ("systems", "workloads") for path in (TOP / part).rglob("*.yaml")]
    starts = {path: re.match(r"(?:#.*\n)*kind: (\w+)", path.read_text()) for path in shipped}
    by_kind = {start[1]: path for path, start in starts.items() if start}
    site = tmp_path / "site.yaml"
    site.write_text("kind: site\nlog_dir: /x\n", encoding="utf-8")
    by_kind["site"] = site
    assert sorted(by_kind) == sorted(KINDS)
    code, out, err = systems(capsys, "validate", *(str(by_kind[kind]) for kind in KINDS))
    assert (code, err) == (0, "") and [line.split(": ")[1] for line in out.splitlines()] == [
        f"{kind}, fine" for kind in KINDS
    ]
    page = TOP / "docs/tuning.md"
    example = page.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "ours.yaml").write_text(example, encoding="utf-8")
    assert systems(capsys, "validate", "ours.yaml")[0] == 0
    wrong = example.replace("[published]", "[publishd]")
    (tmp_path / "ours.yaml").write_text(wrong, encoding="utf-8")
    code, _, err = systems(capsys, "validate", "ours.yaml")
    assert code == 2 and "ours.yaml:5: extends[0]: there is no tuning profile publishd" in err


def test_systems_of_the_site(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_system(tmp_path / "own", "ours")
    (tmp_path / "site.yaml").write_text(
        f"log_dir: /x\nsystems_dirs: [{tmp_path}/own]\n", encoding="utf-8"
    )
    assert "ours" in systems(capsys, "--site", "site.yaml")[1]
    assert systems(capsys, "show", "ours", "--workload", "builtin")[0] == 0, (
        "./site.yaml is found by itself"
    )


@pytest.mark.parametrize(
    "argv",
    [
        ("render", "ours", "builtin", "-o", "bundle"),
        ("submit", "ours", "builtin", "--dry-run"),
        ("systems", "show", "ours", "--workload", "builtin"),
    ],
    ids=lambda argv: argv[0],
)
def test_a_folder_of_ones_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, argv: tuple[str, ...]
) -> None:
    write_system(tmp_path / "own", "ours")
    write_site(tmp_path / "site.yaml", tmp_path / "sets")
    assert main([*argv, "--systems-dir", "own"]) == 0, capsys.readouterr().err
    assert main([*argv]) == 2
    assert "there is no system 'ours'" in capsys.readouterr().err
    assert main([*argv, "--systems-dir", "nowhere"]) == 2
    assert "there is no folder nowhere" in capsys.readouterr().err


def test_documents_of_other_kinds_are_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A site file often lies next to the systems."""
    write_system(tmp_path / "own", "ours")
    site = write_site(tmp_path / "own/site.yaml", tmp_path / "sets")
    assert main(["systems", "--systems-dir", "own"]) == 0
    done = capsys.readouterr()
    assert "\nours " in done.out and "\nsite " not in done.out
    assert f"{site.relative_to(tmp_path)}: not a system (kind: site), left out" in done.err
    (tmp_path / "own/nothing.yaml").write_text("nodes: 1\n")
    assert main(["systems", "--systems-dir", "own"]) == 2
    assert "own/nothing.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_takes_a_system_takes_a_folder_of_them(name: str) -> None:
    parser = argparse.ArgumentParser()
    import_module(f"orchestrator.cli.{name}").COMMAND.arguments(parser)
    takes = {action.metavar for action in parser._actions if not action.option_strings}
    options = {option for action in parser._actions for option in action.option_strings}
    assert "SYSTEM" not in takes or "--systems-dir" in options
    if name in (
        "systems",
        "render",
        "doctor",
        "validate",
        "submit",
        "run",
        "images",
        "prepare",
        "package",
    ):
        assert "--systems-dir" in options


@pytest.mark.parametrize("kind", ["system", "workload", "site"])
def test_schema(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    _, out, _ = systems(capsys, "schema", kind)
    schema = json.loads(out)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["kind"]["const"] == kind


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("system", (TOP / "systems/MI355X_1x8x1.yaml").read_text()),
        ("workload", (TOP / "workloads/flux1.yaml").read_text()),
        ("site", "kind: site\nname: here\nscheduler: local\nlog_dir: /shared/sets\n"),
    ],
    ids=["system", "workload", "site"],
)
def test_schemas_describe_every_key_and_require_what_the_validator_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, text: str
) -> None:
    schema = json.loads(systems(capsys, "schema", kind)[1])
    for part in (schema, *schema["$defs"].values()):
        assert all(about.get("description") for about in part["properties"].values()), part["title"]
    document = yaml.safe_load(text)
    # a workload may extend another instead, and then has fewer keys
    required = schema.get("anyOf", [schema])[0]["required"]
    assert {*schema["required"], *required} <= set(document) <= set(schema["properties"])
    for key in document:
        path = tmp_path / f"{document.get('name')}.yaml"
        path.write_text(
            json.dumps({name: value for name, value in document.items() if name != key})
        )
        _, _, message = systems(capsys, "validate", str(path))
        refused = f": {key}: this key is required" in message or (
            key == "kind" and "kind" in message
        )
        assert refused == (key in required), (key, message)


def parsers(parser: argparse.ArgumentParser, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a command's parser, and those of its actions, with the words before."""
    actions = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not actions:
        yield words, parser
    for name, one in (pair for action in actions for pair in action.choices.items()):
        yield from parsers(one, *words, name)


@pytest.mark.parametrize("name", COMMANDS)
def test_options_may_stand_between_the_words(name: str) -> None:
    _, parser = command_parser(name)
    for first, one in parsers(parser):
        words: list[str] = []
        needs: list[str] = []
        flags = [flag for flag in one._actions if flag.option_strings and flag.nargs == 0]
        for action in one._actions:
            many = 2 if action.nargs in ("+", "*") else 1
            word = next(iter(action.choices)) if action.choices else "1"
            if not action.option_strings:
                words += [str(word)] * many
            elif action.required:
                needs += [action.option_strings[0], str(word)]
        flags = [flag for flag in flags if flag.dest not in ("help", "version")]
        if not flags:  # completion
            continue
        flag = flags[0]
        for place in range(len(words) + 1):
            argv = [*first, *words[:place], flag.option_strings[-1], *words[place:], *needs]
            wanted = vars(parser.parse_args(argv))
            whole = vars(parser.parse_args([*first, flag.option_strings[-1], *words, *needs]))
            assert wanted == whole, argv


def test_an_interrupt_while_options_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """argparse restores at its end what it had not saved yet, and fails."""

    def interrupted(parser: argparse.ArgumentParser) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(argparse.ArgumentParser, "format_usage", interrupted)
    assert main(["score", "--json"]) == ExitCode.INTERRUPTED
