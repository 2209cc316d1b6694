"""What commands share: former names, --quiet, --verbose, --debug-log; and config, audit, validate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from controller_parts import Commands, one_node, write_set
from until import until

from orchestrator.cli.debug import without_values
from orchestrator.cli.doctor import summary
from orchestrator.cli.index import COMMANDS, GROUPS, HIDDEN, OLD_NAMES, present
from orchestrator.errors import ExitCode
from orchestrator.onnode.kernel.records import JobRecord
from orchestrator.onnode.policy.verdict import Row
from orchestrator.views.sets import startup_text
from orchestrator.words import MISSING, PIPE

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
    assert cli("config", "--site", site).code == ExitCode.OK
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


def test_event_files_that_a_full_folder_hides_are_no_valid_replay(
    cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_set(tmp_path, "S-w-20261121-101500-aaaa", scheduler="local")
    (root / "job_7.out").write_text("printed\n")
    assert cli("audit", root, "--only", "replay").code == ExitCode.OK
    monkeypatch.setattr("orchestrator.onnode.kernel.walk.MOST_NAMES", 0)
    assert cli("audit", root, "--only", "replay").code == ExitCode.NO_SCORE
    assert "has more than 0 files" in cli.out
    document = json.loads(cli("audit", root, "--only", "replay", "--json").out)
    assert len(document["problems"]) == 1
    assert cli("logs", root, "--job").code == ExitCode.BAD_INPUT
    assert "has more than 0 files; the rest is left out" in cli.err
    for name in list(root.iterdir()):
        (root / f"job_{name.name}.out").touch()
    monkeypatch.setattr("orchestrator.onnode.kernel.walk.MOST_NAMES", len(list(root.iterdir())) - 1)
    assert cli("logs", root, "--job").code == ExitCode.OK
    assert "warning: " in cli.err and "the rest is left out" in cli.err


def test_the_records_of_a_set_without_results_are_verified(cli: Commands, tmp_path: Path) -> None:
    job = JobRecord(job_id="7", state="failed", started_ms=1_000, ended_ms=9_000)
    root = write_set(tmp_path, "S-w-20261121-101500-aaaa", scheduler="local", job=job)
    assert cli("audit", root).code == ExitCode.NO_SCORE
    assert "ledger" in cli.out and "compliance: " in cli.out


def test_config_shows_every_key_of_a_site(cli: Commands, site: Path) -> None:
    """The examples of the model are a value for each key that has no default."""
    from orchestrator.model import Site
    from orchestrator.model.part import DocumentPart

    def document(part: type[DocumentPart]) -> dict[str, object]:
        values = {}
        for name, field in part.model_fields.items():
            default = field.get_default(call_default_factory=True)
            if isinstance(default, DocumentPart):
                values[name] = document(type(default))
            else:
                values[name] = field.examples[0] if field.examples else default
            if name == "env":
                values[name] = {"NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "8"}
        return values

    given = {**document(Site), "log_dir": str(site.parent)}
    given["container"]["proxy"]["no_proxy"] = [".cluster"]
    site.write_text(json.dumps(given))
    assert cli("config", "--all", "--site", site).code == ExitCode.OK, cli.err
    shown = dict(line.split(maxsplit=1) for line in cli.out.splitlines() if line)
    assert shown["env.NCCL_DEBUG"].split() == ["WARN", "local.yaml:1"]
    assert shown["network.env.OMP_NUM_THREADS"].split()[0] == "8"
    as_json = {
        value["key"]: value["value"] for value in cli.json("config", "--site", site)["values"]
    }
    assert as_json["env.NCCL_DEBUG"] == "WARN" and set(as_json) <= set(shown)


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
    assert (
        "fail  code: /no/code (`code` of the site file) is not here\n        fix: orchestrator images code"
        in cli.out
    )
    assert cli.out.splitlines()[-1].startswith("not ready: 1 problem (code)")
    assert cli("doctor", "--all", "--all-nodes", "--site", site).code == ExitCode.BAD_INPUT


def test_checks_with_the_same_problem_are_named_together() -> None:
    same = ("cannot be checked: no amd-smi", "sudo modprobe amdgpu")
    rows = [Row(node, f"gpu_{what}", "warn", 0, *same) for what in "ab" for node in ("n1", "n2")]
    rows += [Row("n1", "clock", "pass", 0), Row("here", "code", "skip", 0, "the image's own")]
    assert list(summary(rows, PIPE)) == [
        "pass  1 check passed",
        "warn  gpu_a, gpu_b (n[1-2]): cannot be checked: no amd-smi",
        "        fix: sudo modprobe amdgpu",
        "no problem found, with 1 warning; not checked: gpu_a, gpu_b",
    ]


# ---- status ----


def test_a_first_run_in_a_container_is_new_and_only_caches_are_cold() -> None:
    assert startup_text(435.0, True) == "7m15s new"
    assert startup_text(435.0, False) == "7m15s" and startup_text(None, None) == MISSING


# ---- submit ----


def test_a_name_for_a_set_and_waiting_for_its_end(cli: Commands, site: Path) -> None:
    what = ("local_2x2x8", "builtin", "--nexp", 1, "--site", site)
    assert cli("submit", *what, "--name", "new bios", "--wait").code == ExitCode.OK, cli.err
    assert cli("resume", "--site", site, "--nexp", 3, "--wait").code == ExitCode.OK, cli.err
    assert cli.err.splitlines()[-2] == "complete: all 3 runs are done"
    assert cli.err.splitlines()[-1].startswith("  orchestrator score ")
    picture = cli.json("status", "--site", site)["sets"][0]
    assert picture["done"] == 3
    assert (picture["name"], picture["state"]) == ("new bios", "complete")
    assert cli("ls", "--site", site).out.split("\n")[0].split()[:2] == ["SET", "NAME"]
    assert cli("status", picture["set"]).out.split("\n")[0].split() == ["name", "new", "bios"]
    assert cli("report", picture["set"], "-o", "-").code == ExitCode.OK
    assert "new bios" in cli.out
    assert cli.json("audit", picture["set"], "--only", "ledger")["valid"]
    fault = ("--env", "BUILTIN_FAULT=hang:run=1", "--override", "limits.hang_minutes=1")
    for words in (("--name", " "), ("--name", "a\nb"), ("--name", "x" * 61)):
        assert cli("submit", *what, *words, *fault[:2]).code == ExitCode.BAD_INPUT
        assert "is not one line" in cli.err
    died = ("--env", "BUILTIN_FAULT=die:run=1", "--override", "limits.attempts=1")
    assert cli("submit", *what, "--wait", *died).code in (ExitCode.OK, ExitCode.SET_STATE)
    assert (cli.code == ExitCode.SET_STATE) == ("the set ended as" in cli.err)


def test_waiting_for_a_set_that_gives_a_run_up_ends_like_status(
    cli: Commands, site: Path, tmp_path: Path
) -> None:
    """It is complete, but has no score: silence and exit code 0 would pass for success."""
    what = one_node(tmp_path, site)
    (tmp_path / "code/run_and_time.sh").write_text("echo 'Killed by the test' >&2; exit 9\n")
    assert cli("submit", *what, "--wait", "--override", "limits.attempts=1").code == ExitCode.OK
    closing = cli.err.splitlines()[-3:]
    assert [line.split()[0] for line in closing] == ["why:", "fix:", "orchestrator"]
    assert cli("status", "--site", site).err.splitlines()[-3:] == closing


def test_a_dry_run_begins_with_what_the_job_would_take(cli: Commands, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    site = tmp_path / "slurm.yaml"
    site.write_text(
        f"kind: site\npartition: gpu\nlog_dir: {tmp_path}\nspares: 1\ntime_limit: '1-02:00:00'\n"
        f"data: {{flux1: {{DATADIR: {tmp_path}/data}}}}\n"
    )
    what = ("submit", "MI325X_08x08x32", "flux1", "--site", site, "--nexp", 4, "--dry-run")
    assert cli(*what, "--force").code == ExitCode.OK, cli.err
    assert cli.out.startswith("cd ") and cli.out.count("\n") == 2, "the command alone"
    assert "--export=ALL" in cli.out
    before, passed = cli.err.splitlines()[-2:]
    assert "would write the folder of the set, which does not exist yet" in before
    assert passed.startswith("with these variables of this shell only: ") and "PATH" in passed
    summary = dict(line.split(maxsplit=1) for line in cli.err.splitlines() if line)
    assert summary["nodes"] == "9 with 8 GPUs each, 1 spare included"
    assert (summary["time"], summary["partition"]) == ("1d02h", "gpu")
    assert summary["data"] == f"{tmp_path}/data (DATADIR)" and "flux1_training" in summary["image"]
    plan = cli.json(*what, "--force")
    assert (plan["nexp"], plan["nodes"], plan["minutes"], plan["partition"]) == (4, 9, 1560, "gpu")
    assert plan["data"] == {"DATADIR": f"{tmp_path}/data"}


def test_usage_errors_suggest(cli: Commands, site: Path) -> None:
    assert cli("report", "--format", "htlm").code == ExitCode.BAD_INPUT
    assert "did you mean html?\n  hint: orchestrator help report\n" in cli.err
    what = ("submit", "local_2x2x8", "builtin", "--site", site)
    for words, meant in (
        ((*what, "--nexps", "3"), "--nexp"),
        ((*what, "--time", "3"), ""),
        (("report", "--json"), ""),
    ):
        assert cli(*words).code == ExitCode.BAD_INPUT
        assert cli.err.partition("did you mean ")[2].partition("?")[0] == meant
    cli("submit", "flux1", "MI325X_08x08x32", "--site", site)
    assert cli.err == (
        "orchestrator submit: flux1 is a workload, and SYSTEM comes first\n"
        f"  hint: orchestrator submit MI325X_08x08x32 flux1 --site {site}\n"
    )


# ---- init, report ----


def test_a_short_site_file_with_data(cli: Commands, tmp_path: Path) -> None:
    what = ("init", "--yes", "--scheduler", "local", "--log-dir", tmp_path / "sets")
    for words in (
        (),
        ("--short", "--data", f"flux1={tmp_path}", "--data", "gpt_oss_20b.MODELDIR=/m"),
    ):
        path = tmp_path / f"site{len(words)}.yaml"
        assert cli(*what, *words, "-o", path).code == ExitCode.OK, cli.err
    long, short = (path.read_text().splitlines() for path in sorted(tmp_path.glob("site?.yaml")))
    assert len(short) < 45 < 150 < len(long)
    values = {one["key"]: one["value"] for one in cli.json("config", "--site", path)["values"]}
    assert values["data.flux1.DATADIR"] == str(tmp_path)
    assert values["data.gpt_oss_20b.MODELDIR"] == "/m"
    for wrong, why in (
        ("flux=/x", 'there is no workload flux; did you mean "flux1"'),
        ("gpt_oss_20b=/x", "has several folders: DATADIR, MODELDIR"),
        ("flux1.DATA=/x", "has no folder DATA"),
        ("flux1=x", "is not an absolute path"),
        ("flux1", "is not WORKLOAD=DIR"),
        ("builtin=/x", "mounts no data"),
    ):
        assert cli(*what, "--force", "--data", wrong, "-o", path).code == ExitCode.BAD_INPUT
        assert why in cli.err


def test_a_page_is_opened(cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >{tmp_path}/opened\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    assert cli("report", LOGS, "-o", tmp_path / "page.html", "--open").code == ExitCode.OK
    until((tmp_path / "opened").is_file)
    until(lambda: (tmp_path / "opened").read_text() == f"{(tmp_path / 'page.html').as_uri()}\n")
    assert cli("report", LOGS, "--format", "md", "--open").code == ExitCode.BAD_INPUT


def test_the_summary_of_doctor_shows_no_hidden_character_of_a_node() -> None:
    evil = "\x1b]0;owned\x07"
    rows = [
        Row("n1", f"check{evil}", verdict, 1, f"text{evil}", evil) for verdict in ("fail", "warn")
    ]
    assert [line for line in summary(rows, PIPE) if not line.isprintable()] == []
