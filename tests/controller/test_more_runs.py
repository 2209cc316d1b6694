"""`resume --nexp`: more runs for a set, declared in its ledger, run by its bundle, taken by its score."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import outputs
import pytest
from controller_parts import Commands, put_back
from processes import see_them_go
from sites import write_site

from orchestrator.cli import main
from orchestrator.errors import ExitCode
from orchestrator.evidence.ledger import verify
from orchestrator.evidence.sets import open_set
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.records import SetRecord, write
from orchestrator.onnode.set import ledger
from orchestrator.onnode.set.new import largest_root
from orchestrator.runset.allocation import Allocation
from orchestrator.runset.extend import extension
from orchestrator.scheduler.slurm_script import options_in

WHAT = ("local_2x2x8", "builtin", "--nexp")


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A site with a complete set of one run, and a copy of its folder."""
    place = tmp_path_factory.mktemp("complete") / "place"
    site = write_site(place / "local.yaml", place / "sets")
    assert main(["submit", *WHAT, "1", "--site", str(site)]) == ExitCode.OK
    [made] = (place / "sets").glob("local_2x2x8-*")
    assert main(["watch", str(made)]) == ExitCode.OK
    see_them_go(place)
    return site, Path(shutil.copytree(place, place.with_name("copy"), symlinks=True))


@pytest.fixture
def site(complete: tuple[Path, Path]) -> Iterator[Path]:
    made, copy = complete
    with put_back(copy, made.parent):
        yield made


def started(cli: Commands, site: Path, nexp: int = 1) -> Path:
    """A complete set of one run, or several."""
    if nexp == 1:
        [made] = (site.parent / "sets").glob("local_2x2x8-*")
        return made
    cli("submit", *WHAT, nexp, "--site", site, "--json")
    root = Path(outputs.checked(cli.out)["set"])
    assert cli("watch", root).code == ExitCode.OK
    see_them_go(root)  # a set is complete before its job has ended
    return root


def seeds(root: Path) -> list[int]:
    states = sorted(root.glob("runs/*/state.json"))
    return [json.loads(path.read_text())["seed"] for path in states]


def test_a_set_gets_more_runs(cli: Commands, site: Path) -> None:
    root = started(cli, site)
    first = seeds(root)
    answer = cli.json("resume", root, "--nexp", 3)
    assert answer["missing_runs"] == [2, 3]
    assert cli("watch", root).code == ExitCode.OK
    picture = cli.json("status", root)
    assert (picture["state"], picture["nexp"], picture["done"]) == ("complete", 3, 3)
    assert seeds(root)[:1] == first and len(set(seeds(root))) == 3, "each run has its own seed"
    entries = ledger.read(root)[0]
    assert [one.data for one in entries if one.kind == "extend"] == [{"nexp": 3}]
    audit = cli.json("audit", root)
    assert audit["valid"] and audit["compliance"]["files"] == 3
    score = json.loads(cli("score", root, "--json").out)
    assert len(score["runs"]) == 3 and not [one for one in score["notes"] if "chosen" in one]
    # Nothing is left, and a set does not shrink.
    assert cli("resume", root, "--nexp", 3).code == ExitCode.SET_STATE
    assert cli("resume", root, "--nexp", 2).code == ExitCode.BAD_INPUT
    assert "does not shrink" in cli.err
    assert cli("resume", root, "--nexp", 999_999_999).code == ExitCode.BAD_INPUT
    assert "a set has at most 9999 runs" in cli.err
    assert open_set(root).record.nexp == 3


@pytest.mark.parametrize("nexp", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_set_of_too_few_runs_for_a_score_ends_in_the_command_for_more(
    cli: Commands, site: Path, nexp: int
) -> None:
    root = started(cli, site, nexp)
    command = f"  orchestrator resume {root} --nexp 3"
    assert cli("status", root, "--site", site).out.splitlines()[-1] == command
    assert "; a score needs 3 runs\n" in cli.out
    assert cli("explain", root, "--site", site).out.splitlines()[-1] == command
    assert cli("score", root, "--site", site).out.splitlines()[-1] == command
    assert f"no valid score yet by the workload's own rules: {nexp} of 3 runs finished" in cli.out
    if nexp == 1:  # the long test runs the command
        return
    assert cli(*command.split()[1:]).code == ExitCode.OK, cli.err
    assert cli("watch", root).code == ExitCode.OK
    for words in (("status", root), ("score", root)):
        assert cli(*words, "--site", site).code == ExitCode.OK
        assert "resume" not in cli.out and "a score needs" not in cli.out


@pytest.mark.long
def test_an_interrupted_extension_is_completed(cli: Commands, site: Path) -> None:
    """The ledger declares first: whoever resumes next writes what is missing in set.json."""
    root = started(cli, site)
    ledger.append(root, extension(2))
    assert [str(one) for one in verify(root).problems] == [
        "set.json: `nexp` is 1, and was declared as 2"
    ]
    assert cli("resume", root).code == ExitCode.OK, cli.err
    assert cli("watch", root).code == ExitCode.OK
    assert open_set(root).record.nexp == 2 and verify(root).problems == ()


def test_declared_runs_that_are_missing_are_shown(cli: Commands, site: Path) -> None:
    root = started(cli, site)
    ledger.append(root, extension(4))
    write(replace(open_set(root).record, nexp=4), root / "set.json")
    picture = cli.json("status", root)
    assert (picture["state"], picture["reason"]) == ("paused", "3 runs added; resume runs them")
    assert cli("export", "--site", site).code == ExitCode.SET_STATE
    assert f"left out: {root.name}: 3 added runs not started" in cli.err


def test_what_cannot_be_extended(cli: Commands, site: Path) -> None:
    root = started(cli, site)
    record = open_set(root).record
    write(replace(record, root_seed=largest_root(2)), root / "set.json")
    assert cli("resume", root, "--nexp", 3).code == ExitCode.SET_STATE
    assert "seeds would pass 2^31" in cli.err
    write(record, root / "set.json")
    path = root / "bundle/lib/set/ledger.py"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("def extensions(", "def none("))
    assert cli("resume", root, "--nexp", 3, "--edited").code == ExitCode.SET_STATE
    assert "of an earlier version" in cli.err
    assert open_set(root).record == record
    assert "extend" not in [one.kind for one in ledger.read(root)[0]]


def test_a_bundle_that_was_deleted_is_named(cli: Commands, site: Path) -> None:
    """By what shows the set, by what verifies it, and by what cannot continue it."""
    root = started(cli, site)
    assert cli.json("status", root)["findings"] == []
    assert "bundle/" not in cli("score", root).out
    shutil.rmtree(root / "bundle")
    why = "is missing; the set cannot continue, and nothing shows how its runs were started"
    assert cli.json("status", root)["findings"] == [f"{root}/bundle: {why}"]
    assert f"damaged  {root}/bundle: {why}" in cli("status", root).out
    assert f"note: bundle/ {why}" in cli("score", root).out
    assert [str(one) for one in verify(root).problems] == ["bundle: is missing"]
    entry = "local_2x2x8 builtin --round 1.0"
    hint = f"put it back from a copy, or make a new set: orchestrator submit {entry}"
    for words, runs in ((("--nexp", 3), 3), ((), 2)):
        if not words:
            ledger.append(root, extension(2))
        assert cli("resume", root, *words).code == ExitCode.SET_STATE
        assert f"the bundle of {root.name} is missing" in cli.err
        assert cli.err.endswith(f"hint: {hint} --nexp {runs}\n")
    assert len(list(root.glob("submissions/*.json"))) == 1


def test_a_deleted_file_of_the_bundle_is_missing(cli: Commands, site: Path) -> None:
    root = started(cli, site)
    (root / "bundle/rccl_env.sh").unlink()
    [problem] = verify(root).problems
    assert str(problem) == "bundle/rccl_env.sh: is missing"
    (root / "bundle/manifest.json").unlink()
    assert "bundle/manifest.json: is missing" in map(str, verify(root).problems)


def test_a_missing_file_of_several_records_is_one_problem(cli: Commands, site: Path) -> None:
    root = started(cli, site)
    (root / "runs/1/attempt_1/state.json").unlink()
    [problem] = verify(root).problems
    assert (
        str(problem)
        == "runs/1/attempt_1/state.json: cannot be used; `orchestrator resume` restores it from the ledger"
    )
    shutil.rmtree(root / "runs/1/attempt_1")
    [problem] = verify(root).problems
    assert str(problem) == "runs/1/attempt_1/state.json: missing, but listed in the ledger"


def test_extensions_that_were_changed_are_found(cli: Commands, site: Path) -> None:
    root = started(cli, site)
    ledger.append(root, extension(1))
    assert "it was inserted, or changed" in str(verify(root).problems)
    ledger.append(root, ("attempt", {"run": 2, "attempt": 1, "seed": 1, "nodes": []}))
    assert "run 2 started when 1 run was declared" in str(verify(root).problems)


@pytest.mark.parametrize(
    ("nexp", "missing", "minutes"),
    [(4, 4, 0), (10, 6, 7 * 210), (10, 3, 0), (5, 5, 6 * 210)],
)
def test_the_time_limit_follows_the_added_runs(
    tmp_path: Path, nexp: int, missing: int, minutes: int
) -> None:
    """The bundle's job asks for (4 + 1) x 210 minutes."""
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle/job.sh").write_text("#!/bin/bash\n#SBATCH --time=1050\n")
    (tmp_path / "bundle/settings.sh").write_text("use NEXP 4\nRUN_MINUTES=210\n")
    record = SetRecord(set_id="x", nexp=nexp, scheduler="slurm", nodes=8)
    given = Allocation().options(record, Layout(tmp_path), missing)
    script = "\n".join(f"#SBATCH {option}" for option in given)
    assert options_in(f"#!/bin/bash\n{script}\n").minutes == minutes
    assert not [option for option in given if "nodes" in option]
