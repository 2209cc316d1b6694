"""Packages: what is made, what is refused, and what MLCommons' own checker says about both."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import outputs
import pytest
import set_of_logs as sets
from own_logs import own_log, own_set
from recorded_set import recorded_set

from orchestrator.cli import main
from orchestrator.errors import ExitCode, InputError
from orchestrator.onnode.set import ledger
from orchestrator.submission.description import MEMBERS, read_given
from orchestrator.submission.package import Options, make_package
from orchestrator.submission.refusal import LARGEST, Refused
from orchestrator.submission.verify import verify

FRAMEWORK = ("--framework", "PyTorch 2.9 + ROCm 7.0")
RESULTS = "results/MI355X_1x8x1/llama2_70b_lora"
CODE = "benchmarks/llama2_70b_lora/implementations/MI355X_1x8x1"


@pytest.fixture
def whole_set(tmp_path: Path) -> Path:
    return sets.make_set(tmp_path / "sets", sets.logs(sets.MI355X))


def package(source: Path, out: Path, *more: str) -> int:
    return main(["package", str(source), "-o", str(out), "--submitter", "AMD", *FRAMEWORK, *more])


def refused(source: Path, **more: Any) -> str:
    with pytest.raises(Refused) as caught:
        make_package([str(source)], Options(**{"submitter": "AMD", "framework": "PyTorch", **more}))
    return str(caught.value)


def shifted(content: bytes, days: int) -> bytes:
    """A log some days later, with another seed."""
    later = re.sub(
        rb'"time_ms": (\d+)',
        lambda match: b'"time_ms": %d' % (int(match[1]) + days * 86_400_000),
        content,
    )
    return re.sub(
        rb'("key": "seed", "value": )(\d+)',
        lambda match: match[1] + b"%d" % (int(match[2]) + 100_000 * days),
        later,
    )


def test_a_complete_set_passes_the_official_checker(
    whole_set: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, here = tmp_path / "AMD", tmp_path / "where the user is"
    here.mkdir()
    monkeypatch.chdir(here)
    assert package(whole_set, out, "--verify") == 0
    assert not list(
        here.iterdir()
    )  # the checker writes package_checker.log into its current folder
    assert "package checker, round 5.1.0: no errors" in capsys.readouterr().out
    assert sorted(path.name for path in (out / RESULTS).iterdir()) == sorted(
        f"result_{index}.txt" for index in range(10)
    )
    # The copies are the logs, byte for byte, in launch order, and the checker wrote into a copy of the tree only.
    assert [
        (out / RESULTS / f"result_{index}.txt").read_bytes() for index in range(10)
    ] == sets.logs(sets.MI355X)
    assert (
        not list(out.rglob("scaling.json"))
        and not list(out.rglob("*.log"))
        and not list(tmp_path.glob(".*"))
    )
    description = json.loads((out / "systems/MI355X_1x8x1.json").read_text())
    assert set(description) == set(MEMBERS) and all(
        isinstance(value, str) for value in description.values()
    )
    assert (
        description["accelerators_per_node"] == "8"
        and description["accelerator_model_name"] == "AMD Instinct MI355X"
    )
    assert (out / CODE / "job.sh").stat().st_mode & 0o111 and not (
        out / CODE / "lib/common.sh"
    ).stat().st_mode & 0o111
    record = json.loads((out / CODE / "runs.json").read_text())
    assert [run["result"] for run in record["runs"]] == [
        f"result_{index}.txt" for index in range(10)
    ]
    assert record["attempts_not_scored"][0]["reason"] == "node-b: the container was killed"
    assert "the container was killed" in (out / CODE / "README.md").read_text()


@pytest.mark.long
def test_the_median_window_of_a_longer_set(tmp_path: Path) -> None:
    """13 runs: not the first ten, not the fastest ten, but the median window; the others are on record."""
    contents = sets.logs(sets.MI355X)
    more = [shifted(content, 30) for content in contents[:3]]
    root = sets.make_set(tmp_path, contents + more, nexp=13)
    made = make_package([str(root)], Options(submitter="AMD", framework="PyTorch"))
    record = json.loads(made.files[f"{CODE}/runs.json"])
    scores = [window["score_minutes"] for window in record["window"]["windows"]]
    assert len(scores) == 4 and record["score_minutes"] == sorted(scores)[2]
    used = [run for run in record["runs"] if run["result"]]
    assert [run["result"] for run in used] == [f"result_{index}.txt" for index in range(10)]
    first = record["runs"].index(used[0])
    assert record["runs"][first : first + 10] == used, "the runs are not consecutive"
    assert sum(run["why"] == "outside the median window" for run in record["runs"]) == 3
    other = sets.make_set(
        tmp_path / "other", sets.logs(sets.MI350X), system="MI350X_1x8x1", workload="llama31_8b"
    )
    both = make_package([str(root), str(other)], Options(submitter="AMD", framework="PyTorch"))
    assert (
        sum(name.startswith("results/") for name in both.files) == 20
        and sum("systems/" in name for name in both.files) == 2
    )
    assert verify(both.files, both.ruleset, both.benchmarks).passed


def test_nine_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = sets.make_set(tmp_path / "sets", sets.logs(sets.MI355X)[:9])
    assert package(root, tmp_path / "out") == 1
    text = capsys.readouterr().err
    assert "9 of 10 runs finished" in text
    assert f"hint: orchestrator resume {root}\n" in text
    assert not (tmp_path / "out").exists()
    # Before the system is described, too; and with more runs if it was declared with fewer.
    contents = sets.logs(sets.MI355X)[:9]
    for nexp, more in ((10, ""), (9, " --nexp 10")):
        made = sets.make_set(tmp_path / str(nexp), contents, system="OurOwn_1x8x1", nexp=nexp)
        told = refused(made)
        assert "--system-json" in told and told.endswith(f"hint: orchestrator resume {made}{more}")


def test_a_set_that_ended_before_its_declared_runs_is_refused(tmp_path: Path) -> None:
    root = sets.make_set(tmp_path, sets.logs(sets.MI355X), nexp=11)
    told = refused(root)
    assert "1 more run of this set still to come" in told
    assert told.endswith(f"hint: orchestrator resume {root}")
    for attempt in (1, 2, 3):
        assert "still to come" in refused(root)
        sets._attempt(root, 11, attempt, ("node-a",), 1, 2, "infrastructure", "the node died", 1)
    # The node's fault is not the submitter's choice.
    made = make_package([str(root)], Options(submitter="AMD", framework="PyTorch"))
    record = json.loads(made.files[f"{CODE}/runs.json"])
    assert (record["nexp"], record["pending"], record["runs_used"]) == (11, [11], 10)
    text = made.files[f"{CODE}/README.md"].decode()
    assert "10 required runs have a result" in text and "1 more run declared, without a" in text


def test_a_repeated_seed_is_refused(tmp_path: Path) -> None:
    contents = sets.logs(sets.MI355X)
    seed = re.search(rb'"key": "seed", "value": \d+', contents[0])[0]  # type: ignore[index]
    contents[4] = re.sub(rb'"key": "seed", "value": \d+', seed, contents[4])
    assert "the seed check fails" in refused(sets.make_set(tmp_path, contents))


def test_a_missing_system_description_is_refused(tmp_path: Path) -> None:
    root = sets.make_set(tmp_path, sets.logs(sets.MI355X), system="OurOwn_1x8x1")
    text = refused(root)
    assert "systems/OurOwn_1x8x1.json: host_processors_per_node" in text and "--system-json" in text
    hint = "hint: orchestrator docs package"
    assert hint in text
    without = refused(sets.make_set(tmp_path / "b", sets.logs(sets.MI355X)), framework="")
    assert "framework is required" in without and hint in without
    given = tmp_path / "system.json"
    given.write_text('{"number_of_nodes": "two"}')
    wrong = refused(sets.make_set(tmp_path / "c", sets.logs(sets.MI355X)), given=read_given(given))
    assert "number_of_nodes is 'two'" in wrong and hint in wrong


@pytest.mark.long
def test_the_checker_agrees_about_what_is_refused(whole_set: Path) -> None:
    """What is refused, built by force, is what the official checker does not take either."""
    made = make_package([str(whole_set)], Options(submitter="AMD", framework="PyTorch"))

    def system(name: str) -> dict[str, bytes]:
        return {path.replace("MI355X_1x8x1", name): data for path, data in made.files.items()}

    nine = {
        path: data for path, data in system("nine").items() if not path.endswith("result_9.txt")
    }
    twice = system("twice")
    twice["results/twice/llama2_70b_lora/result_4.txt"] = twice[
        "results/twice/llama2_70b_lora/result_3.txt"
    ]
    unknown = {
        path.replace("/llama2_70b_lora/", "/llama2/"): data
        for path, data in system("unknown").items()
    }
    word = verify({**nine, **twice, **unknown}, made.ruleset, ["llama2_70b_lora", "llama2"])
    text = "\n".join(word.errors)
    assert (
        not word.passed
        and "found 9, expected 10" in text
        and "eed checker failed" in text
        and "skipped llama2" in text
    )
    bare = {path: data for path, data in made.files.items() if not path.startswith("systems/")}
    assert "without a verdict" in " ".join(verify(bare, made.ruleset, made.benchmarks).errors)


def test_sets_that_are_not_compliant_are_refused(tmp_path: Path) -> None:
    contents = [
        content.replace(b'"lora_rank", "value": 16', b'"lora_rank", "value": 8')
        for content in sets.logs(sets.MI355X)
    ]
    assert "10 bad runs" in refused(sets.make_set(tmp_path, contents))
    open_ = [content.replace(b'"closed"', b'"open"') for content in sets.logs(sets.MI355X)]
    assert "the logs are of the open division" in refused(sets.make_set(tmp_path / "open", open_))


@pytest.mark.parametrize(
    ("name", "problem"),
    [("My System", "contains a space"), (".hidden", "starts with a dot"), ("a/b", "no name")],
)
def test_bad_names_are_refused(whole_set: Path, name: str, problem: str) -> None:
    assert problem in refused(whole_set, system=name)
    assert problem in refused(whole_set, implementation=name)


def test_bad_names_inside_the_bundle_and_large_files_are_refused(
    whole_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (whole_set / "bundle/lib/my notes.txt").write_text("x")
    (whole_set / "bundle/.git").write_text("x")
    text = refused(whole_set)
    assert "`my notes.txt` contains a space" in text and "`.git` starts with a dot" in text
    (whole_set / "bundle/lib/my notes.txt").unlink()
    (whole_set / "bundle/.git").unlink()
    large = whole_set / "runs/1/result_1.txt"
    with open(large, "ab") as file:
        file.truncate(LARGEST + 1)
    assert "result_1.txt: more than 50 MB uncompressed" in refused(whole_set)


def test_what_is_no_mlperf_benchmark_is_refused_for_that_alone(tmp_path: Path) -> None:
    root = own_set(tmp_path / "own", [own_log(index) for index in range(4)])
    for ruleset in ("", "6.0.0"):
        assert re.fullmatch(
            r"no package was written:\n  - \S+: tiny_gpt is no MLPerf benchmark: it is scored by its workload's own "
            r"rules, and a submission holds results of MLPerf benchmarks only",
            refused(root, ruleset=ruleset).split("\n  hint")[0],
        )
    assert refused(root).endswith("hint: orchestrator docs scoring"), "a command alone"
    # Nor does calling a benchmark's set one's own make it one that can be handed in.
    assert "no MLPerf benchmark" in refused(
        sets.make_set(tmp_path, sets.logs(sets.MI355X)), ruleset="own"
    )


def test_logs_that_are_not_what_was_described_are_refused_unless_allowed(
    whole_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (whole_set / "environment.sh").write_text('declare -x LR="0.00055"\n')
    entry = {"key": "opt_base_learning_rate", "env": "LR", "fact": "", "value": "", "form": "{}"}
    (whole_set / "bundle/workload.json").write_text(json.dumps({"logged": [entry]}))
    said = "opt_base_learning_rate: logged is 0.0004, and the environment says LR=0.00055 (in 10 of 10 runs)"
    assert package(whole_set, tmp_path / "no") == 1
    told = capsys.readouterr().err
    hint = "hint: check each; --allow-differences packages the logs as they are"
    assert said in told and hint in told and not (tmp_path / "no").exists()
    assert package(whole_set, tmp_path / "out", "--allow-differences") == 0
    assert f"{said} (allowed)" in capsys.readouterr().err
    record = json.loads((tmp_path / "out" / CODE / "runs.json").read_text())
    assert [one["key"] for one in record["differences"]] == ["opt_base_learning_rate"]


def test_the_organisation_in_the_logs_is_the_submitter(whole_set: Path) -> None:
    said = refused(whole_set, submitter="Dell")
    assert "the logs have submission_org 'AMD', and --submitter is 'Dell'" in said
    entry = {
        "key": "submission_org",
        "env": "MLLOG_SUBMISSION_ORG",
        "fact": "",
        "value": "",
        "form": "{}",
    }
    (whole_set / "bundle/workload.json").write_text(json.dumps({"logged": [entry]}))
    assert "set MLLOG_SUBMISSION_ORG in the site's `env`" in refused(whole_set, submitter="Dell")
    assert make_package([str(whole_set)], Options(submitter="amd", framework="f")).files
    allowed = make_package(
        [str(whole_set)], Options(submitter="Dell", framework="f", allow_differences=True)
    )
    assert any(
        "--submitter is 'Dell'" in one and one.endswith(" (allowed)") for one in allowed.warnings
    )


def test_runs_of_a_stand_in_image_are_refused_with_its_name(tmp_path: Path) -> None:
    mark = rb'\1"metadata": {"stand_in": true, '
    contents = [
        re.sub(rb'("key": "submission_benchmark", .*?)"metadata": \{', mark, log)
        for log in sets.logs(sets.MI355X)
    ]
    assert all(b'"stand_in": true' in log for log in contents)
    text = refused(sets.make_set(tmp_path, contents))
    assert "a small stand-in workload ran (image rocm/amd-mlperf:test)" in text
    entry = "MI355X_1x8x1 llama2_70b_lora --round 5.1"
    assert "replace it by the published image" in text
    assert text.endswith(f"images distribute {entry} && orchestrator run {entry}")


def _about_the_system(warnings: list[str]) -> list[str]:
    return [warning for warning in warnings if warning.startswith("systems/")]


def test_folders_of_logs_need_a_system(tmp_path: Path) -> None:
    assert "give --system NAME" in refused(sets.MI355X)
    given = dict.fromkeys(MEMBERS, "1")
    members = {**given, "status": "Preview", "division": "closed"}
    made = make_package(
        [str(sets.MI355X)],
        Options(submitter="AMD", status="", system="X", framework="f", given=members),
    )
    assert made.files["results/X/llama2_70b_lora/result_0.txt"] == sets.logs(sets.MI355X)[0]
    assert json.loads(made.files["systems/X.json"])["status"] == "Preview"
    options = Options(submitter="AMD", system="MI355X_1x8x1", framework="f")
    made = make_package([str(sets.MI355X)], options)
    description = json.loads(made.files["systems/MI355X_1x8x1.json"])
    assert description["accelerator_model_name"].startswith("AMD Instinct MI355X")
    assert (description["number_of_nodes"], description["accelerators_per_node"]) == ("1", "8")
    [empty, catalogued] = _about_the_system(made.warnings)
    assert "accepted, but empty: " in empty and "hw_notes" not in empty
    named = catalogued.partition("from the catalogue, not from your nodes: ")[2].partition(";")[0]
    assert {"hw_notes", "host_networking"} < {*named.split(", ")} < {*description}
    own = make_package([str(sets.MI355X)], replace(options, given={"hw_notes": "ours"}))
    _, catalogued = _about_the_system(own.warnings)
    assert "host_networking" in catalogued and "hw_notes" not in catalogued
    assert "systems/MI355X_9.json" in refused(sets.MI355X, system="MI355X_9"), "not catalogued"


def test_what_is_known_about_a_system(
    whole_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nodes add what they all say; the user's file wins; wrong shapes are errors."""
    for node, cooling in (("node-a", "Air"), ("node-b", "Liquid")):
        (whole_set / f"nodes/{node}/hardware.json").write_text(
            json.dumps({"host_processor_vcpu_count": 256, "cooling": cooling, "x": 1})
        )
    mine = tmp_path / "mine.json"
    mine.write_text(
        json.dumps(
            {
                "host_storage_type": "NVMe",
                "host_processor_model_name": "Other",
                "other_software_stack": {"rccl": 2.27},
            }
        )
    )
    assert package(whole_set, tmp_path / "out", "--system-json", str(mine), "--json") == 0
    told = outputs.checked(capsys.readouterr().out)
    found = json.loads((tmp_path / "out/systems/MI355X_1x8x1.json").read_text())
    assert (
        found["host_processor_vcpu_count"] == "256"
        and found["cooling"] == ""
        and found["host_processor_model_name"] == "Other"
    )
    assert found["other_software_stack"] == {"rccl": "2.27"} and "cooling" in told["warnings"][0]
    for text in ("[]", "{", '{"cooling": ["air"]}'):
        mine.write_text(text)
        assert package(whole_set, tmp_path / "out2", "--system-json", str(mine)) == 2
    mine.write_text('{"number_of_nodes": "two", "status": "Ready"}')
    assert package(whole_set, tmp_path / "out2", "--system-json", str(mine)) == 1
    assert (
        "number_of_nodes is 'two'" in capsys.readouterr().err and not (tmp_path / "out2").exists()
    )


def test_two_benchmarks_of_one_system_share_its_description(
    whole_set: Path, tmp_path: Path
) -> None:
    """Each workload has an image of its own; the other members are those of the system."""
    other = sets.make_set(tmp_path / "sets", sets.logs(sets.MI350X), workload="llama31_8b")
    document = json.loads((other / "set.json").read_text())
    (other / "set.json").write_text(json.dumps({**document, "image": "rocm/amd-mlperf:other"}))
    options = Options(submitter="AMD", framework="PyTorch")
    made = make_package([str(whole_set), str(other)], options)
    description = json.loads(made.files["systems/MI355X_1x8x1.json"])
    assert (
        description["other_software_stack"]
        == "container image rocm/amd-mlperf:test; container image rocm/amd-mlperf:other"
    )
    assert sum(name.startswith("results/MI355X_1x8x1/") for name in made.files) == 20
    assert verify(made.files, made.ruleset, made.benchmarks).passed
    stack = {"other_software_stack": {"rccl": "2.27"}}
    made = make_package([str(whole_set), str(other)], replace(options, given=stack))
    assert json.loads(made.files["systems/MI355X_1x8x1.json"])["other_software_stack"] == {
        "rccl": "2.27"
    }
    for root, cooling in ((whole_set, "Air"), (other, "Liquid")):
        (root / "nodes/node-a/hardware.json").write_text(json.dumps({"cooling": cooling}))
    with pytest.raises(Refused) as caught:
        make_package([str(whole_set), str(other)], options)
    differing = f"systems/MI355X_1x8x1.json: cooling is 'Air', and 'Liquid' in {other}: "
    assert caught.value.problems == [f"{differing}pass it with --system-json FILE"]
    given = {"cooling": "Air and liquid"}
    assert make_package([str(whole_set), str(other)], replace(options, given=given)).files


def test_nothing_is_overwritten_or_left(
    whole_set: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert package(whole_set, out) == 0 and (out / "systems").is_dir()
    assert package(whole_set, out) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    monkeypatch.setattr(Path, "rename", _full)
    assert package(whole_set, tmp_path / "second") == ExitCode.SET_STATE
    assert "nothing was left" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "sets"]


def _full(self: Path, target: Path) -> None:
    raise OSError(28, "No space left on device")


def test_the_checker_is_missing_or_hangs(
    whole_set: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = make_package([str(whole_set)], Options(submitter="AMD", framework="PyTorch"))
    with pytest.raises(InputError, match=r"did not end within 0 s"):
        verify(made.files, made.ruleset, made.benchmarks, limit_s=0.01)
    from importlib import metadata

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert package(whole_set, tmp_path / "out", "--verify") == 2
    text = capsys.readouterr().err
    assert "pip install mlperf-logging==" in text and not (tmp_path / "out").exists()
    assert package(sets.MI355X, tmp_path / "out", "--verify") == ExitCode.NO_SCORE
    text = capsys.readouterr().err
    assert "give --system NAME" in text and "pip install" not in text, "refusals come first"


def test_the_checker_is_the_package_that_was_found(
    whole_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a folder of PYTHONPATH, and relative to the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("found")
    about = tmp_path / "found/mlperf_logging-9.9.dist-info/METADATA"
    main_file = tmp_path / "found/mlperf_logging/package_checker/__main__.py"
    for path in (about, main_file):
        path.parent.mkdir(parents=True)
    about.write_text("Metadata-Version: 2.1\nName: mlperf-logging\nVersion: 9.9\n")
    (main_file.parent.parent / "__init__.py").touch()
    (main_file.parent / "__init__.py").touch()
    main_file.write_text("print('PACKAGE CHECKER FOUND NO ERRORS, says this one')\n")
    made = make_package([str(whole_set)], Options(submitter="AMD", framework="PyTorch"))
    word = verify(made.files, made.ruleset, made.benchmarks)
    assert (word.version, word.passed) == ("9.9", True) and "says this one" in word.output


def test_a_written_package_is_checked_again_with_the_printed_command(
    whole_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, copies = tmp_path / "our name", tmp_path / "copies"
    copies.mkdir()
    assert package(whole_set, out) == 0
    command = capsys.readouterr().out.splitlines()[-1]

    def checked() -> str:
        return subprocess.run(
            ["bash", "-c", f"{command} 2>&1"],
            env={**os.environ, "TMPDIR": str(copies)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    (out / RESULTS / "result_9.txt").unlink()
    before = sorted(out.rglob("*"))
    report = checked()
    assert "PACKAGE CHECKER FOUND ERRORS" in report and report.count("ERROR - ") == 1, report
    assert "found 9, expected 10" in report
    assert sorted(out.rglob("*")) == before and not list(copies.iterdir())


def test_the_head_of_the_ledger_goes_with_the_package(whole_set: Path) -> None:
    """It stands for everything that was declared and done before the package was made."""
    whole_set = recorded_set(whole_set.parents[1] / "recorded", sets.logs(sets.MI355X))
    head = ledger.append(whole_set, ("note", {"text": "before"}))
    made = make_package([str(whole_set)], Options(submitter="AMD", framework="PyTorch"))
    told = json.loads(made.files[f"{CODE}/runs.json"])
    assert head in json.dumps(told)
    later = ledger.append(whole_set, ("note", {"text": "after"}))
    made = make_package([str(whole_set)], Options(submitter="AMD", framework="PyTorch"))
    assert later in json.dumps(json.loads(made.files[f"{CODE}/runs.json"])) and later != head
