"""What commands share: former names, --quiet, --verbose, --debug-log; and config, audit, validate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from controller_parts import Commands, write_set

from orchestrator.cli.debug import without_values
from orchestrator.cli.index import COMMANDS, GROUPS, HIDDEN, OLD_NAMES, present
from orchestrator.errors import ExitCode
from orchestrator.onnode.kernel.records import JobRecord

LOGS = (
    Path(__file__).resolve().parents[1]
    / "data/mllog/v5.1/AMD/MI325X_EPYC_9575F_pytorch_llama2_70b/llama2_70b_lora"
)


# ---- names ----


def test_about_twenty_commands_are_visible(cli: Commands) -> None:
    assert len(COMMANDS) - len(GROUPS[HIDDEN]) <= 22
    cli("--help")
    shown = cli.out
    cli("help", "--all")
    for name in COMMANDS:
        assert f"\n  {name} " in cli.out
        assert (f"\n  {name} " in shown) == (name not in GROUPS[HIDDEN])
    for old in OLD_NAMES:
        assert len(old) > 1 or f"\n  {old[0]} " not in cli.out


@pytest.mark.parametrize("old", OLD_NAMES, ids=" ".join)
def test_a_former_name_is_its_present_words(cli: Commands, old: tuple[str, ...]) -> None:
    assert cli(*old, "--help").code == cli("help", *old).code == ExitCode.OK
    assert cli.out.startswith(f"usage: orchestrator {OLD_NAMES[old][0]} ")
    assert present([*old, "x"])[-1] == "x"
    assert present([OLD_NAMES[old][0]]) == [OLD_NAMES[old][0]], "a present name is no former one"


def test_former_names_print_the_same(cli: Commands, site: Path) -> None:
    assert json.loads(cli("check", LOGS, "--json").out) == json.loads(
        cli("score", "--compliance", LOGS, "--json").out
    )
    assert cli.json("systems", "validate", site) == cli.json("validate", site)
    assert cli("score", "--compliance", LOGS, "--window").code == ExitCode.BAD_INPUT


# ---- remarks ----


def test_quiet_leaves_the_results(cli: Commands, tmp_path: Path) -> None:
    cli("systems", "new", "X", "--accelerator", "MI325X", "--nodes", 1, "--workload", "flux1",
        "--micro-batch", 1, "-o", tmp_path)  # fmt: skip
    assert "next: orchestrator validate" in cli.err
    cli("systems", "new", "Y", "--accelerator", "MI325X", "--nodes", 1, "--workload", "flux1",
        "--micro-batch", 1, "-o", tmp_path, "--quiet")  # fmt: skip
    assert (cli.code, cli.out, cli.err) == (0, f"{tmp_path / 'Y.yaml'}\n", "")
    cli("validate", "/nowhere.yaml", "--quiet")
    assert cli.code == ExitCode.BAD_INPUT and "/nowhere.yaml" in cli.err, "errors are no remarks"


def test_the_debug_log_has_programs_and_files_and_no_values(
    cli: Commands, site: Path, tmp_path: Path
) -> None:
    log = tmp_path / "debug.log"
    what = ("submit", "local_2x2x8", "builtin", "--nexp", 1, "--site", site, "--env", "X=hush-42")
    assert cli(*what, "--verbose", "--debug-log", log).code == ExitCode.OK, cli.err
    text = log.read_text()
    assert f"read {site}" in text and "start " in text and "ended\n" in text
    assert f"read {site}" not in cli.err and "start " in cli.err
    assert "hush-42" not in text + cli.err and "X=..." in text
    assert log.stat().st_mode & 0o077 == 0
    size = log.stat().st_size
    cli("ls", "--site", site)
    assert log.stat().st_size == size, "nothing is recorded without the option"
    assert cli("ls", "--site", site, "--debug-log").code == ExitCode.BAD_INPUT
    assert "expected a FILE" in cli.err
    assert cli("ls", "--debug-log", tmp_path / "no/folder").code == ExitCode.BAD_INPUT
    cli("watch", "--site", site)


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("HF_TOKEN=abc", "HF_TOKEN=..."),
        ("-eHF_TOKEN=abc", "-eHF_TOKEN=..."),
        ("--export=ALL,X=abc", "--export=..."),
        ("--password=abc", "--password=..."),
        ("https://me:abc@host/x", "https://...@host/x"),
        ("--nodes=8", "--nodes=8"),
        ("squeue", "squeue"),
    ],
)
def test_words_are_shown_without_secrets(word: str, shown: str) -> None:
    assert without_values(word) == shown


# ---- config ----


def test_config_names_the_file_and_every_line(
    cli: Commands, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write_text(f"{site.read_text()}sbatch: ['--export=ALL,X=hush-42']\n")
    answer = cli.json("config", "--site", site)
    assert (answer["site"], answer["source"]) == (str(site), "--site")
    lines = site.read_text().splitlines()
    for value in answer["values"]:
        assert value["key"].rpartition(".")[2] in lines[value["line"] - 1]
        assert value["origin"] == "site file"
    assert "hush-42" not in cli.out and "--export=..." in cli.out
    every = cli.json("config", "--all", "--site", site)["values"]
    assert {"origin": "default", "line": 0, "key": "exclusive", "value": True} in every
    monkeypatch.setenv("ORCHESTRATOR_SITE", str(site))
    assert cli.json("config")["source"] == "ORCHESTRATOR_SITE"
    monkeypatch.delenv("ORCHESTRATOR_SITE")
    Path("site.yaml").write_text(site.read_text())
    assert cli.json("config")["source"] == "the current folder"
    Path("site.yaml").unlink()
    assert cli("config").code == ExitCode.BAD_INPUT and "orchestrator init" in cli.err


# ---- audit ----


def test_an_audit_is_one_answer(cli: Commands, tmp_path: Path, site: Path) -> None:
    cli("demo", "--dir", tmp_path / "demo", "--nexp", 1)
    [root] = (one.parent for one in (tmp_path / "demo").glob("*/set.json"))
    answer = cli.json("audit", root)
    assert answer["valid"] and list(answer)[4:] == ["ledger", "replay", "compliance"]
    assert answer["ledger"]["valid"] and answer["compliance"]["compliant"]
    assert cli("audit", root, "--only", "replay", "--only", "ledger").code == ExitCode.OK
    assert cli.out.endswith("valid: ledger, replay\n") and "all identical" in cli.out
    (root / "runs/1/result_1.txt").chmod(0o644)
    with open(root / "runs/1/result_1.txt", "a") as file:
        file.write("more\n")
    assert cli("audit", root).code == ExitCode.NO_SCORE
    assert "problems: ledger" in cli.out and "runs/1/result_1.txt" in cli.out
    assert cli("audit", root, "--only", "replay").code == ExitCode.OK
    assert cli("audit", LOGS).code == ExitCode.BAD_INPUT and "score --compliance" in cli.err
    assert cli("audit", root, "--only", "replay", "--head", "1 x").code == ExitCode.BAD_INPUT


def test_the_records_of_a_set_without_results_are_verified(cli: Commands, tmp_path: Path) -> None:
    job = JobRecord(job_id="7", state="failed", started_ms=1_000, ended_ms=9_000)
    root = write_set(tmp_path, "S-w-20261121-101500-aaaa", scheduler="local", job=job)
    assert cli("audit", root).code == ExitCode.NO_SCORE
    assert "ledger" in cli.out and "compliance: " in cli.out


# ---- doctor ----


def test_doctor_counts_passes_and_shows_problems(cli: Commands, site: Path) -> None:
    assert cli("doctor", "--site", site).code == ExitCode.OK
    lines = cli.out.splitlines()
    assert " checks passed" in lines[0] and lines[-1].startswith("ready")
    assert len(lines) <= 10 and "clock" not in cli.out
    for words in (("--all",), ("--verbose",)):
        cli("doctor", "--site", site, *words)
        assert cli.out.startswith("CHECK ") and "\nclock " in cli.out
    site.write_text(f"{site.read_text()}code: {{builtin: /no/code}}\n")
    assert cli("doctor", "local_2x2x8", "builtin", "--site", site).code == ExitCode.NO_SCORE
    assert "fail  code: /no/code is not here\n        fix: orchestrator images code" in cli.out
    assert cli.out.splitlines()[-1].startswith("not ready: 1 problem (code)")
    assert cli("doctor", "--all", "--all-nodes", "--site", site).code == ExitCode.BAD_INPUT
