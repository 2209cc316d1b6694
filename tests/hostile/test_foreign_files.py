"""What others have put where a command reads, writes or starts: a message, the right exit code, and nothing obeyed."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import outputs
import pytest
from effort import bytes_read
from hostile_parts import CONTROL, call
from sources import package_for_all
from until import LIMIT_S

import orchestrator
from orchestrator.cli import COMMANDS
from orchestrator.errors import ExitCode
from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.agent import node
from orchestrator.onnode.kernel import events
from orchestrator.onnode.kernel.regular import open_regular, parse, read_bytes
from orchestrator.views import markup, terminal
from orchestrator.views.parts import Table
from orchestrator.words import Cleaned, clean

TOP = Path(orchestrator.__file__).resolve().parent.parent
EVIL = "\x1b]52;c;Zm9v\x07\x1b[2J\x9b31m\u202eok\nMI300X  complete  10/10"


def command(*words: str | bytes, **more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(TOP), **more},
        timeout=LIMIT_S,
    )


@pytest.fixture
def a_set(whole: Path, place: Path) -> Path:
    (place.parent / "site.yaml").write_text(f"log_dir: {place}/sets\n")
    return Path(shutil.copytree(whole, place / "sets" / whole.name, symlinks=True))


# ---- reading ----


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "loop", "large"])
def test_only_regular_files_of_some_size_are_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "large":
        path.write_bytes(b"12345")
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "x")
    with pytest.raises(OSError):
        read_bytes(path, 4)
    if kind != "large":
        with pytest.raises(OSError):
            open_regular(path)


def test_a_link_is_followed_unless_it_may_not_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link") == b"1"
    with pytest.raises(OSError):
        read_bytes(tmp_path / "link", follow=False)


@pytest.mark.parametrize("text", [b"[" * 200_000, b"NaN", b'"\\ud800"', b"9" * 5000, b"\xff", b""])
def test_json_that_cannot_be_used_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"x: " + b"[" * 100_000, "nested deeper than 20 levels"),
        (b"a: &a [x]\nlog_dir: *a\n", "anchors"),
        (b"log_dir: /a\nlog_dir: /b\n", "stands twice"),
        (b"log_dir: /a\n<<: {b: 1}\n", "merge keys"),
        (b"log_dir: !!python/name:os.system\n", "tag"),
        (b"x: 2024-13-45\n", "unknown key"),
        (b"x: " + b"9" * 5000, "unknown key"),
    ],
)
def test_every_command_reads_a_site_file_alike(text: bytes, said: str, place: Path) -> None:
    path = place.parent / "site.yaml"
    path.write_bytes(text)
    for words in (
        ["status"],
        ["watch"],
        ["logs"],
        ["score"],
        ["render", "MI325X_08x08x32", "flux1", "-o", "x"],
    ):
        answer = call([*words, "--site", str(path)])
        assert (answer.code, answer.problem) == (ExitCode.BAD_INPUT, ""), answer
        assert said in answer.err, answer


def test_a_site_file_of_another_user_is_not_taken_by_itself(place: Path) -> None:
    Path("site.yaml").write_text(f"log_dir: {place}\n")
    assert call(["status"]).code == ExitCode.OK
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown("site.yaml", 12345, -1)
    answer = call(["status"])
    assert answer.code == ExitCode.BAD_INPUT and "belongs to user 12345" in answer.err
    assert call(["status", "--site", "./site.yaml"]).code == ExitCode.OK


# ---- names and environments ----


def test_names_that_cannot_be(place: Path) -> None:
    for words in (
        ["score", "a" * 5000],
        ["status", "a" * 300],
        ["report", "~nosuch/x"],
        ["nodes", "~nosuch/x"],
        ["status", "--site", "~nosuch/site.yaml"],
        ["render", "MI325X_08x08x32", "flux1", "--site", "~nosuch", "-o", "x"],
        ["check", "\udcff\udcfe"],
    ):
        answer = call(words)
        assert answer.code == ExitCode.BAD_INPUT and not answer.problem, answer


def test_no_home_and_no_entry_of_the_user(place: Path) -> None:
    """The user of a container often has neither."""
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); os.setuid(54321); from orchestrator.cli import main; "
        "sys.exit(main(['status']))"
    )
    if os.getuid() != 0:
        pytest.skip("only root can become a user without an entry")
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
    }
    python = shutil.which("python3", path="/usr/bin") or sys.executable
    with package_for_all() as package:
        argv = [python, "-I", "-c", program, str(package)]
        done = subprocess.run(argv, capture_output=True, cwd="/", env=env, timeout=LIMIT_S)
    assert done.returncode == ExitCode.BAD_INPUT and b"there is no site file" in done.stderr, (
        done.stderr
    )


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_names_that_are_no_utf8(locale: str, a_set: Path) -> None:
    odd = os.fsencode(a_set.parent) + b"/odd-\xff-\xe2\x98\x83"
    shutil.copytree(os.fsencode(a_set), odd, symlinks=True)
    for words in (
        ["status", odd],
        ["score", odd],
        ["nodes", odd],
        ["check", odd],
        ["report", odd, "-o", odd + b".html"],
    ):
        done = command(*words, LC_ALL=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
        assert done.returncode in (ExitCode.OK, ExitCode.NO_SCORE), done.stderr
        assert b"Traceback" not in done.stderr and b"defect" not in done.stderr, done.stderr


def test_interrupted_while_it_starts(place: Path) -> None:
    """At any moment from the import of the package to the end of Python."""
    words = ["render", "MI325X_08x08x32", "flux1", "--site", "/nowhere/x", "-o", "x"]
    program = (
        "import os, signal, sys, threading\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from mlperf_orchestrator import main\n"
        "interrupt = (os.getpid(), signal.SIGINT)\n"
        "threading.Timer(float(sys.argv[2]), os.kill, interrupt).start()\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"sys.argv[1:] = {words}\n"
        "sys.exit(main())\n"
    )
    for after in (0.0, 0.002, 0.005, 0.01, 0.02, 0.04):
        done = subprocess.run(
            [sys.executable, "-c", program, str(TOP), str(after)],
            capture_output=True,
            timeout=LIMIT_S,
        )
        assert b"Traceback" not in done.stderr or done.returncode == -signal.SIGINT, (
            after,
            done.stderr,
        )
        assert done.returncode in (ExitCode.INTERRUPTED, ExitCode.BAD_INPUT, -signal.SIGINT), (
            after,
            done.stderr,
        )


# ---- terminals ----


def test_clean() -> None:
    assert clean("plain ünïcode ☃") == "plain ünïcode ☃"
    assert clean("a\x1b[2Jb\nc\t\r\x9b\u202e\ud800") == "a\\x1b[2Jb\\nc\\t\\r\\x9b\\u202e\\ud800"
    assert clean("a\nb\x07", lines=True) == "a\nb\\x07"
    table = Table("t", ("a", "b"), [("x\ny", "\x1b")])
    assert terminal.lines([table]) == ["A    B", "x y  \\x1b"]


HIDDEN = ("\x00", "\x1b", "\x7f", "\x85", "\x9b", "\u061c", "\u200e", "\u200f", "\u2028", "\u2029")
TURNS = tuple(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))


@pytest.mark.parametrize("char", [*HIDDEN, *TURNS])
def test_a_hidden_character_reaches_no_event_and_no_terminal(
    char: str, capfd: pytest.CaptureFixture[str]
) -> None:
    node.say("n1", "note", f"a{char}b")
    assert capfd.readouterr().out == "note\tn1\ta b\n"
    assert events.clean(f"a{char}b", 10) == "a b" and node.shortened(f"a{char}b", 10) == "a b"
    assert char not in clean(f"a{char}b") and char not in markup.clean(f"a{char}b")


def test_nodes_and_commands_hide_the_same_characters() -> None:
    both = {chr(code) for code in events.UNSHOWN}
    ours = {chr(code) for code in range(0x10000) if clean(chr(code)) != chr(code)}
    of_encodings = {chr(code) for code in (*range(0xD800, 0xE000), 0xFFFE, 0xFFFF)}
    assert ours - of_encodings == both


def spoil(root: Path) -> None:
    """Put what a terminal obeys everywhere where words are."""
    for path in root.rglob("*.json"):
        members = json.loads(path.read_bytes())
        for name, value in members.items():
            if name in (
                "reason",
                "outcome",
                "system",
                "image",
                "metric",
                "workload",
                "warnings",
                "problem",
            ):
                members[name] = [EVIL] if isinstance(value, list) else EVIL
        path.write_text(json.dumps({**members, "reason": EVIL} if "reason" in members else members))
    runs = sorted(root.glob("runs/*/result_*.txt"), key=lambda path: int(path.parent.name))
    for path in (runs[-1], runs[-1].with_name("state.json")):  # it failed
        path.unlink()
    job = json.loads((root / "jobs/7.json").read_bytes())
    aside = {"node": "node-b", "reason": EVIL, "run": 1, "attempt": 1, "kind": EVIL}
    (root / "jobs/7.json").write_text(
        json.dumps({**job, "state": "failed", "warnings": [EVIL], "set_aside": [aside]})
    )
    (root / "preflight/7.tsv").write_text(
        f"node\tcheck\tverdict\tms\ttext\tremedy\nnode-a\tx\tfail\t2\t{EVIL.partition(chr(10))[0]}\t\x1b[31m\n"
    )
    log = root / "runs/1/result_1.txt"
    stop = {
        "key": "run_stop",
        "value": None,
        "time_ms": 1,
        "metadata": {"status": EVIL, "file": EVIL, "lineno": 1},
    }
    log.write_bytes(
        log.read_bytes().replace(b'"run_stop"', b'"other"')
        + b":::MLLOG "
        + json.dumps(stop).encode()
        + b"\n"
    )
    (root / "job_7.out").write_text(EVIL)


def test_nothing_is_obeyed_and_no_row_is_forged(a_set: Path, place: Path) -> None:
    spoil(a_set)
    one, site = str(a_set), str(place.parent / "site.yaml")
    for words in (
        ["status", one],
        ["status", "--site", site],
        ["watch", one],
        ["nodes", one],
        ["score", one],
        ["check", one],
        ["replay", one],
        ["tune", "facts", one],
        ["compare", one, one],
        *([name, one, "--json"] for name in ("status", "watch", "nodes")),
    ):
        answer = call(words)
        assert not answer.problem, answer
        assert not any(line.startswith("MI300X") for line in answer.out.splitlines()), answer.out
    told = outputs.checked(call(["status", one, "--json"]).out)
    assert told["reason"] == EVIL, "JSON carries the words as they are, as escapes"


def on_a_terminal(*words: str) -> str:
    """What a terminal gets from the command."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(TOP), "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
    )
    os.close(theirs)
    got = bytearray()
    try:
        while piece := os.read(ours, 65536):
            got += piece
    except OSError:  # EIO: the other side is closed
        pass
    os.close(ours)
    assert process.wait(LIMIT_S) in (0, 1)
    return got.decode("utf-8", "replace")


def test_on_a_terminal(a_set: Path) -> None:
    spoil(a_set)
    (a_set / "runs/10/attempt_1/node_0.log").write_text(f"{EVIL}\rover it\r\n")
    for words in (["status"], ["nodes"], ["logs"], ["logs", "--job"]):
        text = on_a_terminal(words[0], str(a_set), *words[1:])
        assert (
            "\x1b]52" not in text
            and "\x1b[2J" not in text
            and "\x9b" not in text
            and "\u202e" not in text
        ), ascii(text)
        assert "\\x1b" in text and "\rover it" not in text.replace("\r\n", "\n")
    # In a pipe, logs are the bytes that they are.
    assert EVIL.encode() in command("logs", str(a_set)).stdout


# ---- a log that goes on ----


@pytest.mark.parametrize(
    "line",
    [
        b":::MLLOG " + b"[" * 200_000,
        b':::MLLOG {"key":"eval_accuracy","time_ms":1,"value":' + b"9" * 400 + b',"metadata":{}}',
        b':::MLLOG {"key":"run_start","time_ms":' + b"9" * 400 + b',"value":null,"metadata":{}}',
        b':::MLLOG {"key":"eval_accuracy","time_ms":1,"value":"\\ud800","metadata":{"file":"\\ud800"}}',
    ],
    ids=["nested", "value", "time", "surrogate"],
)
def test_a_line_of_a_run_that_goes_on(line: bytes, a_set: Path, place: Path) -> None:
    job = json.loads((a_set / "jobs/7.json").read_bytes())
    (a_set / "jobs/7.json").write_text(
        json.dumps({**job, "state": "running", "ended_ms": 0, "run": 10, "attempt": 1})
    )
    for path in (a_set / "runs/10/state.json", a_set / "runs/10/attempt_1/state.json"):
        path.parent.mkdir(exist_ok=True)
        state = json.loads((a_set / "runs/10/state.json").read_bytes())
        path.write_text(json.dumps({**state, "state": "running", "outcome": "", "end_ms": 0}))
    log, one = a_set / "runs/10/attempt_1/node_0.log", str(a_set)
    log.write_bytes(
        (a_set / "runs/10/result_10.txt").read_bytes().rpartition(b":::MLLOG")[0] + line + b"\n"
    )
    for path in (a_set / "runs/10/result_10.txt", a_set / "runs/9/result_9.txt"):
        path.write_bytes(log.read_bytes())
    site = str(place.parent / "site.yaml")
    told = json.loads(call(["status", one, "--json"]).out)
    assert (told["state"], told["current_run"]) == ("running", 10), told
    for words in (
        ["status", one],
        ["status", "--site", site],
        ["nodes", one],
        ["explain", one],
        ["score", one],
        ["logs", one],
    ):
        answer = call(words)
        assert not answer.problem, answer
    assert call(["report", one, "-o", "-"]).code in (ExitCode.OK, ExitCode.NO_SCORE)
    assert call(["status", "--site", site]).code == ExitCode.OK


# ---- the net ----


def test_an_unexpected_exception_is_a_line_and_a_file(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.cli import systems

    def run(_: object) -> int:
        raise KeyError("\x1b[2J what\nnobody expected of https://me:sesame@host/")

    monkeypatch.setattr(systems.COMMAND, "run", run)
    answer = call(["systems", "show", "SECRET=hidden", "--workload", "http://me:sesame@h"])
    assert (
        answer.code == ExitCode.INTERNAL
        and "Traceback" not in answer.err
        and not CONTROL.search(answer.err)
    )
    [path] = (place.parent / "state/orchestrator").iterdir()
    assert str(path) in answer.err and path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert (
        "Traceback" in text
        and "nobody expected" in text
        and "orchestrator systems show SECRET=..." in text
    )
    assert "hidden" not in text and "sesame" not in text and "sesame" not in answer.err
    # Where others could read or replace it, or no state can be kept: a private temporary folder.
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    path.parent.chmod(0o777)
    for home in (str(place.parent / "state"), "/proc/nowhere"):
        monkeypatch.setenv("XDG_STATE_HOME", home)
        kept = call(["systems"]).err.partition("send ")[2].partition(" to the maintainers")[0]
        assert Path(kept).is_file() and Path(kept).parent.stat().st_mode & 0o777 == 0o700
        assert Path(kept).parent.parent == place


def test_a_set_that_brings_out_a_defect_does_not_hide_the_others(
    a_set: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.evidence import picture

    other = a_set.with_name("other")
    shutil.copytree(a_set, other, symlinks=True)
    judge = picture.judge

    def failing(files: SetEvidence, *args: Any, **options: Any) -> object:
        if files.layout.root == a_set:
            raise ZeroDivisionError("a defect")
        return judge(files, *args, **options)

    monkeypatch.setattr(picture, "judge", failing)
    answer = call(["status", "--site", str(place.parent / "site.yaml"), "--json"])
    told = {Path(one["set"]).name: one for one in outputs.checked(answer.out)["sets"]}
    assert told["other"]["state"] == "complete", told
    assert told[a_set.name]["state"] == "damaged"
    assert "ZeroDivisionError" in told[a_set.name]["reason"]
    assert call(["status", str(a_set)]).code == ExitCode.INTERNAL


def test_a_set_without_its_description_is_a_damaged_row(a_set: Path, place: Path) -> None:
    (a_set / "set.json").unlink()
    [told] = json.loads(call(["status", "--site", str(place.parent / "site.yaml"), "--json"]).out)[
        "sets"
    ]
    assert (told["state"], told["reason"]) == ("damaged", "set.json is missing")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_what_cannot_be_read_is_no_defect(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import import_module

    def run(_: object) -> int:
        raise PermissionError(13, "Permission denied", "/some/where")

    command = import_module(f"orchestrator.cli.{name}").COMMAND
    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(command, "arguments", lambda parser: None)
    answer = call([name])
    assert (
        answer.code == ExitCode.BAD_INPUT
        and f"orchestrator {name}: /some/where: Permission denied" in answer.err
    )


# ---- full storage ----


def test_a_full_disk_is_not_bad_input(
    a_set: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, one = str(place.parent / "site.yaml"), str(a_set)
    answer = call(["report", one, "-o", "/dev/full"])
    assert answer.code == ExitCode.SET_STATE and "No space left on device" in answer.err
    real = os.mkdir

    def full(path: str, *more: int) -> None:
        if "out" in os.fspath(path):
            raise OSError(28, "No space left on device", path)
        real(path, *more)

    monkeypatch.setattr(os, "mkdir", full)
    for words in (
        ["render", "MI325X_08x08x32", "flux1", "--site", site, "-o", str(place / "out/bundle")],
        ["package", one, "-o", str(place / "out"), "--submitter", "AMD", "--framework", "x"],
    ):
        answer = call(words)
        assert answer.code == ExitCode.SET_STATE and "No space left on device" in answer.err, answer
    assert call(["report", one, "-o", "/proc/nowhere/x.html"]).code == ExitCode.BAD_INPUT


# ---- a package ----


def test_a_package_takes_nothing_from_outside_of_the_set(a_set: Path, place: Path) -> None:
    private = place.parent / "private"
    (private / "deeper").mkdir(parents=True)
    (private / "id_ed25519").write_text("SECRET KEY")
    words = [
        "package",
        str(a_set),
        "-o",
        str(place / "out"),
        "--submitter",
        "AMD",
        "--framework",
        "x",
        "--system-json",
    ]
    given = place.parent / "given.json"
    given.write_text("{}")
    (a_set / "bundle/key").symlink_to(private / "id_ed25519")
    (a_set / "bundle/more").symlink_to(private)
    call([*words, str(given)])
    shutil.move(a_set / "bundle", private / "bundle")
    (a_set / "bundle").symlink_to(private)
    answer = call([*words, str(given)])
    assert not [
        path for path in place.rglob("*") if path.is_file() and b"SECRET KEY" in path.read_bytes()
    ]
    result = a_set / "runs/3/result_3.txt"
    shutil.move(result, private / "result_3.txt")
    result.symlink_to(private / "result_3.txt")
    shutil.rmtree(place / "out", ignore_errors=True)
    answer = call([*words, str(given)])
    assert answer.code == ExitCode.NO_SCORE and "this is a link out of the set" in answer.err, (
        answer
    )
    assert not (place / "out").exists()


def test_sizes_are_checked_after_expansion(place: Path, whole: Path) -> None:
    """3 MB that become 700: the size in the file system says nothing."""
    import gzip

    from orchestrator.submission.chosen import content

    class Run:
        path = str(place / "result_0.txt.gz")

    with gzip.open(Run.path, "wb", compresslevel=1) as file:
        for _ in range(200):
            file.write(bytes(1 << 20))
    assert len(content(Run(), 1000)) == 1001  # type: ignore[arg-type]


def test_a_large_file_in_a_bundle_is_left_out_unread(a_set: Path) -> None:
    from orchestrator.evidence.bundle import files
    from orchestrator.evidence.sets import SetEvidence

    with open(a_set / "bundle/core", "wb") as file:
        file.truncate(3_000_000_000)
    evidence = SetEvidence(a_set)
    assert bytes_read(lambda: files(evidence)) < 1_000_000
    assert "core" not in files(evidence)
    assert [finding.path.name for finding in evidence.findings] == ["core"]


def test_words_that_an_encoding_has_not(place: Path) -> None:
    import io

    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    Cleaned(stream).write("é ☃ \x1b\n")
    stream.flush()
    assert stream.buffer.getvalue() == b"\xe9 \\u2603 \\x1b\n"  # type: ignore[attr-defined]
