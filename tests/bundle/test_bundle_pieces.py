"""The small functions of lib/common.sh and lib/set_loop.sh, in real bash."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.resources import data_dir

LIB = data_dir("templates") / "lib"


def bash(script: str, *args: str, env: dict[str, str] | None = None) -> bytes:
    """What `script` prints after common.sh was sourced."""
    done = subprocess.run(
        ["bash", "-uc", f". {LIB}/common.sh\n{script}", "_", *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        env={"PATH": os.environ["PATH"], **(env or {})},
    )
    assert not done.stderr, done.stderr.decode()
    return done.stdout


def test_a_line_that_comes_in_pieces_is_not_lost() -> None:
    script = """
    open_pipe; exec {in}<>/dev/null; fd=$pipe_fd
    printf 'first half, ' >&"$fd"
    read_line "$fd" 0.02; echo "$?:$LINE"
    read_line "$fd" 0.02; echo "$?:$LINE"
    printf 'second half\\nnext' >&"$fd"
    read_line "$fd" 1; echo "$?:$LINE"
    printf ' one\\n' >&"$fd"
    read_line "$fd" 1; echo "$?:$LINE"
    """
    assert bash(script).decode().splitlines() == [
        "2:first half, ",
        "2:first half, ",
        "0:first half, second half",
        "0:next one",
    ]


def test_the_end_of_a_pipe() -> None:
    script = "exec {fd}< <(printf 'whole\\nno end'); for i in 1 2 3; do read_line $fd 5; echo $?:$LINE; done"
    assert bash(script).decode().splitlines() == ["0:whole", "1:no end", "1:"]


def test_pieces_of_two_pipes_are_kept_apart() -> None:
    script = """
    open_pipe; a=$pipe_fd; open_pipe; b=$pipe_fd
    printf 'of a, ' >&"$a"; printf 'of b, ' >&"$b"
    read_line "$a" 0.02; read_line "$b" 0.02
    printf 'a\\n' >&"$a"; printf 'b\\n' >&"$b"
    read_line "$b" 1; echo "$LINE"; read_line "$a" 1; echo "$LINE"
    """
    assert bash(script).decode().splitlines() == ["of b, b", "of a, a"]


def test_pause_waits_and_leaves_no_file(tmp_path: Path) -> None:
    script = 'now_ms; a=$NOW_MS; pause 0.05; pause 0.05; now_ms; echo $((NOW_MS - a)); ls -A "$TMPDIR"'
    [waited] = bash(script, env={"TMPDIR": str(tmp_path)}).split()
    assert 100 <= int(waited) < 2_000


def test_the_time_in_a_locale_with_a_comma() -> None:
    script = """unset EPOCHREALTIME
    for mark in , .; do EPOCHREALTIME="1700000000${mark}123456"; now_ms; echo $NOW_MS; done"""
    assert bash(script).split() == [b"1700000000123", b"1700000000123"]


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=40),
        min_size=1,
        max_size=20,
    )
)
def test_any_text_as_json(texts: list[str]) -> None:
    for locale in ("C", "C.UTF-8"):
        out = bash(
            """for text in "$@"; do json_string "$text"; printf '%s\\0' "$JSON"; done
            json_list "$@"; printf '%s\\0' "$JSON\"""",
            *texts,
            env={"LC_ALL": locale},
        )
        *single, together = [json.loads(one) for one in out.split(b"\0")[:-1]]
        assert single == together
        for text, found in zip(texts, single, strict=True):
            # Control characters may become blanks; nothing else changes.
            assert len(found) == len(text)
            assert all(a == b or (b == " " and not a.isprintable()) for a, b in zip(text, found, strict=True))
            assert [char for char in found if char in "\n\t"] == [char for char in text if char in "\n\t"]


def test_members_of_our_own_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"schema": 1, "state": "running", "exit": -1, "reason": "", "node": "a b"}\n')
    script = """for name in schema state exit reason node nothing; do json_member "$1" "$name"; echo "$?:$MEMBER"; done
    json_member /not/there x; echo "$?:$MEMBER\""""
    assert bash(script, str(tmp_path / "a.json")).decode().splitlines() == [
        "0:1",
        "0:running",
        "0:-1",
        "0:",
        "0:a b",
        "1:",
        "1:",
    ]


def test_a_file_is_replaced_or_left(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    bash('write_atomic "$1" "$2"', str(tmp_path / "a"), "new \\n $(x)")
    assert (tmp_path / "a").read_text() == "new \\n $(x)\n"
    done = subprocess.run(
        ["bash", "-c", f". {LIB}/common.sh; write_atomic /proc/nowhere/a text"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "cannot write /proc/nowhere/a" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


# A parent of a process that has ended, which it never waits for. It says which.
ZOMBIE = """
import os, time
pid = os.fork() or os._exit(0)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print(pid, flush=True)
time.sleep(60)
"""


def test_who_is_alive() -> None:
    script = """
    alive $$; echo $?
    sleep 60 & child=$!; alive $child; echo $?
    kill -KILL $child; wait $child 2>/dev/null; alive $child; echo $?
    # An ended child that nobody has waited for is not alive either.
    # (Its parent is a program that never waits: bash itself does so between any two commands.)
    exec {fd}< <(exec python3 -c "$1")
    parent=$!; read -r child <&"$fd"; kill -0 "$child"; echo $?; alive "$child"; echo $?; kill "$parent"
    alive 999999999; echo $?
    """
    argv = ["bash", "-c", f". {LIB}/common.sh\n{script}", "_", ZOMBIE]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["0", "0", "1", "0", "1", "1"]


def test_run_stop_is_read_from_the_last_record(tmp_path: Path) -> None:
    def status(log: bytes) -> str:
        (tmp_path / "node_0.log").write_bytes(log)
        return (
            bash(
                f"BUNDLE={LIB.parent}; . {LIB}/set_loop.sh; ATTEMPT_DIR=$1; run_stop_status; echo $RUN_STOP",
                str(tmp_path),
            )
            .decode()
            .strip()
        )

    good = b':::MLLOG {"key": "run_stop", "value": null, "metadata": {"status": "success"}}\n'
    aborted = good.replace(b"success", b"aborted")
    assert status(b"") == ""
    assert status(b'the words "key": "run_stop" and "status": "success"\n') == ""
    assert status(good) == "success"
    assert status(aborted) == "aborted"
    assert status(aborted + b"\xff\0binary\n" + good + b"no line end") == "success"
    assert status(b"0: [rank0] " + good) == "success"
    assert status(good.replace(b": ", b":")) == "success"
