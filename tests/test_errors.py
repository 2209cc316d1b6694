"""The error tree, its exit codes, and what a wrong command line gets to see."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import outputs
import pytest

import orchestrator
from orchestrator import errors
from orchestrator.cli import main
from orchestrator.cli.index import COMMANDS, GROUPS, HIDDEN
from orchestrator.errors import ExitCode, OrchestratorError

TOP = Path(orchestrator.__file__).resolve().parent.parent


def subclasses(of: type[OrchestratorError]) -> set[type[OrchestratorError]]:
    return {of} | {below for class_ in of.__subclasses__() for below in subclasses(class_)}


def test_every_error_has_a_documented_exit_code() -> None:
    for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    documented = {
        int(code)
        for code in re.findall(
            r"^\| (\d+) \|", (TOP / "docs/exit-codes.md").read_text(), re.MULTILINE
        )
    }
    assert len(subclasses(OrchestratorError)) >= 8
    for error in subclasses(OrchestratorError):
        assert isinstance(error.exit_code, ExitCode)
        assert error.exit_code in documented
        assert error.exit_code not in (ExitCode.OK, ExitCode.INTERNAL, ExitCode.INTERRUPTED), error


def test_the_tree_is_drawn_at_the_top_of_its_module() -> None:
    drawn = set(re.findall(r"^ +[│├└─ ]*(\w+) ", errors.__doc__ or "", re.MULTILINE))
    assert drawn == {
        class_.__name__
        for class_ in subclasses(OrchestratorError)
        if class_.__module__ == errors.__name__
    }


def test_the_hint_is_part_of_what_is_said() -> None:
    assert str(OrchestratorError("what", hint="do this")) == "what\n  hint: do this"
    assert str(OrchestratorError("what")) == "what"
    assert str(errors.DescriptorError(["a:1: k: x", "a:2: k: y"])) == "a:1: k: x\na:2: k: y"


def test_advice_follows_the_hint_and_replaces_the_command() -> None:
    error = OrchestratorError("what")
    error.advise("do this")
    error.advise("then that", fix=errors.Fix("ls"))
    error.advise()
    assert (error.hint, error.fix and error.fix.line([])) == ("do this; then that", "ls")


def test_a_failed_command_keeps_what_was_run() -> None:
    error = errors.SchedulerError(
        "refused", argv=["sbatch", "x"], returncode=1, stdout="o", stderr="e"
    )
    assert (error.argv, error.returncode, error.stdout, error.stderr) == (
        ["sbatch", "x"],
        1,
        "o",
        "e",
    )
    assert errors.SchedulerUnknown("?").argv == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("sytems", "systems"),
        ("rendr", "render"),
        ("sumbit", "submit"),
        ("resme", "resume"),
        ("Status", "status"),
        ("wach", "watch"),
        ("log", "logs"),
        ("scores", "score"),
    ],
)
def test_an_unknown_command_suggests_the_near_one(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([typed]) == ExitCode.BAD_INPUT
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        said.err == f"orchestrator: there is no command `{typed}`. Did you mean `{meant}`?\n"
        "  hint: orchestrator --help lists the commands\n"
    )


def test_systems_lists_without_an_action(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["systems", "list"]) == ExitCode.OK
    assert "MI325X_08x08x32" in capsys.readouterr().out


def test_what_is_like_no_command_gets_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["qqqqqq"]) == ExitCode.BAD_INPUT
    assert "Did you mean" not in capsys.readouterr().err


def test_help_lists_the_commands_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert main(["help", "--all"]) == main(["--help", "--all"]) == 0
    every = capsys.readouterr().out
    for title, group in GROUPS.items():
        for name, line in group.items():
            shown = re.compile(rf"^  {name} +{re.escape(line)}$", re.MULTILINE)
            assert shown.search(every)
            assert bool(shown.search(text)) == (title != HIDDEN)
            assert re.search(rf"\b{name}\b", text)
    assert all(len(line) <= 100 for line in every.splitlines())
    assert main(["-h"]) == main(["help"]) == 0
    capsys.readouterr()
    assert main([]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["submit", "A", "B", "--nepx", "10"], "--nepx 10; did you mean --nexp?"),
        (["submit", "A", "B", "--nepx=10"], "--nepx=10; did you mean --nexp?"),
        (["systems", "show", "A", "--jsno"], "--jsno; did you mean --json?"),
        (["systems", "new", "A", "--acelerator", "x"], "are required"),
        (["status", "--qqqqqq"], "unrecognized arguments: --qqqqqq"),
        (["status", "a", "--", "--jsno"], "unrecognized arguments: --jsno"),
    ],
)
def test_a_mistyped_option(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == ExitCode.BAD_INPUT
    first, hint = capsys.readouterr().err.splitlines()
    assert first.startswith(f"orchestrator {argv[0]}") and said in first
    assert hint.startswith(f"  hint: orchestrator help {argv[0]}")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"orchestrator {orchestrator.__version__}\n"


RENDER = ["render", "MI325X_08x08x32", "flux1"]
# command line (SITE is a good site file), words of what is said
BAD_LINES: list[tuple[list[str], str]] = [
    (["render"], "the following arguments are required: SYSTEM"),
    (["render", "MI325X_08x08x32", "--site", "SITE", "-o", "x"], "it has: flux1"),
    ([*RENDER, "--site", "SITE"], "name a folder for the bundle (-o DIR)"),
    (
        [*RENDER, "--site", "SITE", "-o", "a", "--diff", "b"],
        "name a folder for the bundle (-o DIR)",
    ),
    ([*RENDER, "-o", "x"], "there is no site file"),
    ([*RENDER, "--site", "/nowhere.yaml", "-o", "x"], "there is no file /nowhere.yaml"),
    ([*RENDER, "--site", "/", "-o", "x"], "--site: / is a folder"),
    ([*RENDER, "--site", "SITE", "-o", "x", "--nexp", "0"], "'0' is not a whole number above 0"),
    ([*RENDER, "--site", "SITE", "-o", "x", "--nexp", "-3"], "--nexp"),
    (
        [*RENDER, "--site", "SITE", "-o", "x", "--nexp", "1e1"],
        "'1e1' is not a whole number above 0",
    ),
    ([*RENDER, "--site", "SITE", "-o", "x", "--nexp", "\u0663"], "is not a whole number above 0"),
    ([*RENDER, "--site", "SITE", "-o", "x", "--nexp", "\u00b2"], "is not a whole number above 0"),
    ([*RENDER, "--site", "SITE", "-o", "x", "--nexp", "10000"], "1 to 9999"),
    ([*RENDER, "--site", "SITE", "-o", "x", "--nexp", "9" * 5000], "--nexp"),
    ([*RENDER, "--site", "SITE", "-o", "x", "--env", "A"], "'A' is not NAME=VALUE"),
    ([*RENDER, "--site", "SITE", "-o", "x", "--env", "=1"], "'=1' is not NAME=VALUE"),
    ([*RENDER, "--site", "SITE", "-o", "x", "--env", "1A=2"], "'1A=2' is not NAME=VALUE"),
    ([*RENDER, "--site", "SITE", "-o", "x", "--env", "SEED=2"], "SEED belongs to the loop"),
    (
        [*RENDER, "--site", "SITE", "-o", "x", "--env", "HF_TOKEN=hf_abc"],
        "HF_TOKEN looks like a secret",
    ),
    ([*RENDER, "--site", "SITE", "-o", "x", "--round", "9.9"], "has no round 9.9"),
    ([*RENDER, "--site", "SITE", "-o", "x", "--rond", "6.0"], "unrecognized arguments: --rond"),
    ([*RENDER, "--site", "SITE", "-o", "/proc/nowhere/x"], "cannot write the bundle"),
    ([*RENDER, "--site", "SITE", "-o", "SITE"], "is a file"),
    ([*RENDER, "--site", "BROKEN", "-o", "x"], "broken.yaml:"),
    ([*RENDER, "--site", "BINARY", "-o", "x"], "binary.yaml"),
    (["render", "MI325X_08x08x23", "flux1", "--site", "SITE", "-o", "x"], "MI325X_08x08x32"),
    (["render", "", "flux1", "--site", "SITE", "-o", "x"], "system"),
    (["render", "a\nb", "flux1", "--site", "SITE", "-o", "x"], "system"),
    (["render", "../../etc/passwd", "flux1", "--site", "SITE", "-o", "x"], "passwd"),
    (["render", "MI325X_08x08x32", "flux", "--site", "SITE", "-o", "x"], "flux1"),
    (
        ["render", "MI325X_08x08x32", "llama31_8b", "--site", "SITE", "-o", "x"],
        "has no workload llama31_8b",
    ),
    (["submit", "local_2x2x8", "builtin"], "there is no site file"),
    (["run", "local_2x2x8", "builtin", "--site", "SITE", "--interval", "nan"], "seconds"),
    (["watch", "--interval", "0"], "seconds"),
    (["status", "/nowhere"], "/nowhere"),
    (["watch", "/nowhere"], "/nowhere"),
    (["logs", "/nowhere"], "/nowhere"),
    (["logs", "--run", "x"], "--run"),
    (["cancel", "/nowhere"], "/nowhere"),
    (["cancel", "--grace", "-1"], "--grace"),
    (["resume", "/nowhere"], "/nowhere"),
    (["score", "/nowhere"], "/nowhere"),
    (["check", "/nowhere"], "/nowhere"),
    (["systems", "show", "nothing"], "nothing"),
    (["demo", "--nexp", "none"], "'none' is not a whole number above 0"),
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the words in capitals stand for, in an empty working directory."""
    monkeypatch.delenv("ORCHESTRATOR_SITE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    content = {
        "SITE": b"log_dir: /shared/results\n",
        "BROKEN": b"log_dir: [\n  - {\n",
        "BINARY": b"\x00\xff\xfe\x7fELF",
    }
    for name, text in content.items():
        (tmp_path / f"{name.lower()}.yaml").write_bytes(text)
    return {name: str(tmp_path / f"{name.lower()}.yaml") for name in content}


@pytest.mark.parametrize(
    ("argv", "said"),
    BAD_LINES,
    ids=[" ".join(argv)[:60].encode("unicode_escape").decode() for argv, _ in BAD_LINES],
)
def test_a_bad_command_line(
    argv: list[str], said: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main([files.get(word, word) for word in argv])
    except SystemExit as ended:  # argparse
        code = int(ended.code or 0)
    printed = capsys.readouterr()
    assert code in (ExitCode.BAD_INPUT, ExitCode.SET_STATE), printed
    assert printed.out == ""
    assert said in printed.err
    assert "Traceback" not in printed.err
    assert os.listdir(".") == [], "half a result"


def test_as_a_program() -> None:
    """The exit code reaches the shell, and standard output stays for results."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "orchestrator",
            "render",
            "nothing",
            "flux1",
            "--site",
            "/nowhere",
            "-o",
            "x",
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TOP)},
    )
    assert (done.returncode, done.stdout) == (ExitCode.BAD_INPUT, "")
    assert done.stderr.startswith("orchestrator render: ")


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["nonsense", "--json"], ExitCode.BAD_INPUT, "there is no command `nonsense`"),
        (
            ["systems", "show", "nothing", "--json"],
            ExitCode.BAD_INPUT,
            "there is no system 'nothing'",
        ),
        (
            ["systems", "--json", "show"],
            ExitCode.BAD_INPUT,
            "the following arguments are required: NAME",
        ),
        (["score", "/nowhere", "--json"], ExitCode.BAD_INPUT, "/nowhere is no set"),
        (
            ["status", "--json", "--site", "SITE"],
            ExitCode.SET_STATE,
            "the log directory /nowhere/sets does not exist",
        ),
        (
            ["systems", "validate", "SITE\udcff", "--json", "--nonsense"],
            ExitCode.BAD_INPUT,
            "unrecognized arguments",
        ),
    ],
    ids=lambda value: " ".join(map(ascii, value)) if isinstance(value, list) else None,
)
def test_errors_are_json_for_programs(
    tmp_path: Path, argv: list[str], code: int, message: str
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("scheduler: local\nlog_dir: /nowhere/sets\n")
    argv = [word.replace("SITE", str(site)) for word in argv]
    done = shell("ORCHESTRATOR", argv)
    said = outputs.checked(done.stdout)
    assert list(said) == ["schema", "kind", "error"] and (said["schema"], said["kind"]) == (
        1,
        "error",
    )
    assert list(said["error"]) == ["code", "message", "hint", "fix"]
    assert said["error"]["code"] == done.returncode == code
    assert message in said["error"]["message"]
    assert (
        message in done.stderr
        and said["error"]["hint"].split("\n")[0].removesuffix(" --help") in done.stderr
    )
    without = shell("ORCHESTRATOR", [word for word in argv if word != "--json"])
    assert (without.stdout, without.stderr, without.returncode) == (
        "",
        done.stderr,
        done.returncode,
    )
    assert shell("ORCHESTRATOR >/dev/full", argv).returncode == code


# ---- where the output cannot go ----

SHOWN = [
    ["--help"],
    ["systems", "--json"],
    ["tune", "plan"],
    ["score", "LOGS"],
    ["score", "--compliance", "LOGS"],
    ["nonsense"],
]
names_of_shown = [" ".join(argv) for argv in SHOWN]


def shell(line: str, argv: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which ORCHESTRATOR is the command with `words`."""
    logs = str(
        TOP / "tests/data/mllog/v5.1/AMD/MI325X_EPYC_9575F_pytorch_llama2_70b/llama2_70b_lora"
    )
    command = [
        sys.executable,
        "-m",
        "orchestrator",
        *(logs if word == "LOGS" else word for word in argv),
    ]
    return subprocess.run(
        ["bash", "-c", line.replace("ORCHESTRATOR", '"$@"'), "bash", *command],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        # Of the machine itself, whose settings other tests may be changing meanwhile, nothing is shown.
        env={**os.environ, "PYTHONPATH": str(TOP), "ORCH_TUNABLES_ROOT": "/nowhere", **more},
    )


@cache
def usually(argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return shell("ORCHESTRATOR", list(argv))


@pytest.mark.parametrize("argv", SHOWN, ids=names_of_shown)
def test_a_full_disk_ends_a_command_in_order(argv: list[str]) -> None:
    usual = usually(tuple(argv))
    full = shell("ORCHESTRATOR >/dev/full", argv)
    if usual.stdout:
        assert full.returncode == ExitCode.SET_STATE
        assert "the output cannot be written: No space left on device\n  hint: " in full.stderr
    else:
        assert (full.returncode, full.stderr) == (usual.returncode, usual.stderr)
    assert "Traceback" not in full.stderr and "Exception ignored" not in full.stderr
    # No place for messages: the results and the exit code are the same.
    silent = shell("ORCHESTRATOR 2>/dev/full", argv)
    assert (silent.returncode, silent.stdout) == (usual.returncode, usual.stdout)
    assert shell("ORCHESTRATOR >/dev/full 2>&1", argv).returncode == full.returncode


NO_READER = "exec 3> >(true); wait $!;"
"""Opens a pipe whose reader has ended."""


@pytest.mark.parametrize("argv", SHOWN, ids=names_of_shown)
def test_a_reader_that_goes_away_is_no_error(argv: list[str]) -> None:
    usual = usually(tuple(argv))
    gone = shell(f"{NO_READER} ORCHESTRATOR >&3 3>&-", argv)
    assert (gone.stdout, gone.stderr) == ("", usual.stderr)
    # A verdict is not given without a reader, unless it had been reached before the reader was missed.
    command = argv[0] in COMMANDS and "--help" not in argv
    verdict = command and import_module(f"orchestrator.cli.{argv[0]}").COMMAND.verdict
    assert gone.returncode in (
        {usual.returncode, ExitCode.INTERRUPTED} if verdict else {usual.returncode}
    )
    both = shell(f"{NO_READER} ORCHESTRATOR >&3 2>&1 3>&-", argv)
    assert both.returncode in (usual.returncode, ExitCode.INTERRUPTED)


@pytest.mark.parametrize("argv", SHOWN, ids=names_of_shown)
def test_closed_standard_streams_are_no_error(argv: list[str]) -> None:
    usual = usually(tuple(argv))
    closed = shell("ORCHESTRATOR >&- <&-", argv)
    assert (closed.returncode, closed.stdout, closed.stderr) == (usual.returncode, "", usual.stderr)
    assert shell("ORCHESTRATOR >&- 2>&- <&-", argv).returncode == usual.returncode


@pytest.mark.parametrize("line", ["ORCHESTRATOR >/dev/full", f"{NO_READER} ORCHESTRATOR >&3 3>&-"])
def test_a_run_that_cannot_be_shown(line: str, tmp_path: Path) -> None:
    done = shell(line, ["demo", "--nexp", "1", "--dir", str(tmp_path)])
    assert done.returncode in (ExitCode.SET_STATE, ExitCode.INTERRUPTED)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    from orchestrator.onnode.kernel.records import write_bytes

    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_bytes(tmp_path / "null", b"x")
    write_bytes(tmp_path / "link", b"x")
    assert (tmp_path / "null").is_symlink() and (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "null"]


def test_a_removed_current_folder_is_named(tmp_path: Path) -> None:
    line = 'mkdir "$GONE" && cd "$GONE" && rmdir "$GONE" && ORCHESTRATOR'
    done = shell(
        line,
        ["init", "--yes", "--scheduler", "local", "-o", "site.yaml"],
        GONE=str(tmp_path / "gone"),
    )
    assert done.returncode == ExitCode.BAD_INPUT
    assert (
        done.stderr
        == "orchestrator init: the current folder was removed\n  hint: cd ~, or elsewhere\n"
    )


def test_a_broken_pipe_to_another_process_is_a_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only a reader of our own output may go away unnoticed."""
    from orchestrator.cli import systems

    def run(_: object) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(systems.COMMAND, "run", run)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["systems"]) == ExitCode.INTERNAL
    assert "internal error: BrokenPipeError" in capsys.readouterr().err
