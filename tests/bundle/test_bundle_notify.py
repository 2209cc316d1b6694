"""Who is told how a set goes: by the loop alone, to a real server, a real program and a sendmail; a set never suffers from it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from bundle_parts import Bundles
from ports import free_port
from servers import on_a_thread
from until import LIMIT_S

from orchestrator.onnode.kernel import world
from orchestrator.onnode.loop import notify

SECRET = "T0PSECRETPATH"


@dataclass
class Server:
    """A webhook on this machine. `answer`: the status, or None to keep silent."""

    port: int
    answer: int | None = 200
    got: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    passwords: list[str | None] = field(default_factory=list)
    """Of a proxy."""
    asked: list[str] = field(default_factory=list)
    """What GET asked for."""
    let_go: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/{SECRET}"


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server(free_port())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Content-Type"] == "application/json"
            one.paths.append(self.path)
            one.passwords.append(self.headers["Proxy-Authorization"])
            one.got.append(json.loads(body))
            if one.answer is None:
                one.let_go.wait(LIMIT_S)
                return
            self.send_response(one.answer)
            if 300 <= one.answer < 400:
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            one.asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on the test's output."""

    with on_a_thread(ThreadingHTTPServer(("127.0.0.1", one.port), Handler)):
        try:
            yield one
        finally:
            one.let_go.set()


def files_with(folder: Path, word: str) -> list[Path]:
    return [
        path for path in folder.rglob("*") if path.is_file() and word.encode() in path.read_bytes()
    ]


def notices(out: str) -> list[str]:
    return [
        line.partition("orchestrator: ")[2]
        for line in out.splitlines()
        if "orchestrator: notify" in line
    ]


def send(channel: str, order: dict[str, Any], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", Path(notify.__file__).read_text(), channel],
        input=json.dumps({"seconds": 60, **order}),
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        start_new_session=True,
    )


def test_a_set_tells_of_itself_and_the_address_is_nowhere(bundles: Bundles, server: Server) -> None:
    """Not in a file, not on a command line, not in the environment of a run or a node, not in an error."""
    server.answer = 500
    tools = bundles.folder / "tools"
    tools.mkdir()
    for name in ("tell", "sendmail"):
        (tools / name).write_text(
            f'#!/bin/bash\necho "$*" >{tools}/{name}.argv\ncat >{tools}/{name}.got\n'
        )
        (tools / name).chmod(0o755)
    site = {
        "webhook": "HOOK",
        "command": [str(tools / "tell"), "me"],
        "mail": ["me@example.com", "you@example.com"],
        "events": ["complete"],
    }
    plan = (
        "env >$ORCH_SEEN/env; cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' ' >$ORCH_SEEN/argv; true"
    )
    bundles.make(plan.replace("$ORCH_SEEN", str(bundles.folder)), notify=site, nexp=1)
    code, out = bundles.run(HOOK=server.address, PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")
    assert code == 0, out
    one = bundles.set
    [told] = server.got
    assert server.paths == [f"/{SECRET}"]
    assert (told["set"], told["set_id"], told["job_id"]) == (
        str(one.root),
        one.root.name,
        one.job["job_id"],
    )
    assert (told["event"], told["state"], told["nexp"], told["converged"]) == (
        "complete",
        "complete",
        1,
        1,
    )
    assert told["text"] == f"{one.root.name} is complete: 1 of 1 run done"
    assert (
        json.loads((tools / "tell.got").read_text()) == told
        and (tools / "tell.argv").read_text() == "me\n"
    )
    mail = (tools / "sendmail.got").read_text()
    assert (tools / "sendmail.argv").read_text() == "-i -t\n"
    assert (
        f"Subject: {told['set_id']}: complete\n" in mail
        and "To: me@example.com, you@example.com\n" in mail
    )
    assert told["text"] in mail.replace("=\n", "")
    assert notices(out) == ["notify: webhook: the server answered 500"]
    assert SECRET not in out and "HOOK=" not in (bundles.folder / "env").read_text()
    assert files_with(bundles.folder, SECRET) == [] and one.left_behind() == []


def test_the_webhook_alone_goes_through_the_proxy(bundles: Bundles, server: Server) -> None:
    tell = bundles.folder / "tell"
    tell.write_text(f"#!/bin/bash\nenv >{bundles.folder}/env\n")
    tell.chmod(0o755)
    site = {"webhook": "HOOK", "command": [str(tell)], "events": ["complete"]}
    bundles.make(notify=site, nexp=1)
    proxy = f"http://me:{SECRET}@127.0.0.1:{server.port}"
    code, out = bundles.run(
        HOOK="http://hooks.invalid/place", http_proxy=proxy, HTTPS_PROXY=proxy, no_proxy="intern"
    )
    assert code == 0 and notices(out) == []
    assert server.paths == ["http://hooks.invalid/place"]
    assert server.passwords == [f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"]
    assert "proxy" not in (bundles.folder / "env").read_text().lower()
    assert SECRET not in out and files_with(bundles.set.root, SECRET) == []
    server.answer = 502
    done = send("webhook", {"message": {}, "address": "https://hooks.invalid/"}, https_proxy=proxy)
    assert done.returncode == 1 and SECRET not in done.stdout + done.stderr


def set_grace(bundles: Bundles, seconds: float) -> None:
    """Set how long the loop waits for a sender beyond its own limit."""
    notice = bundles.bundle / "lib/loop/notice.py"
    notice.write_text(notice.read_text().replace("GRACE_S = 2.0", f"GRACE_S = {seconds}"))


def test_a_process_that_is_killed_is_named(bundles: Bundles) -> None:
    tell = bundles.folder / "tell"
    tell.write_text("#!/bin/bash\nexec sleep 10000\n")
    tell.chmod(0o755)
    site = {"command": [str(tell)], "seconds": 60, "events": ["complete"]}
    bundles.make(notify=site, nexp=1)
    set_grace(bundles, -60)
    code, out = bundles.run()
    assert code == 0
    assert notices(out) == ["notify: command: killed, as it had not ended in time"]
    assert bundles.set.left_behind() == []


def test_who_does_not_answer_holds_nobody_up(bundles: Bundles, server: Server) -> None:
    server.answer = None
    tell = bundles.folder / "tell"
    tell.write_text("#!/bin/bash\nexec sleep 10000\n")
    tell.chmod(0o755)
    site = {"webhook": "HOOK", "command": [str(tell)], "seconds": 1, "events": ["complete"]}
    bundles.make(notify=site, nexp=1)
    set_grace(bundles, 600)
    code, out = bundles.run(HOOK=server.address)
    assert code == 0
    command, webhook = sorted(notices(out))
    assert command == "notify: command: not done within 1 s"
    assert webhook in (
        "notify: webhook: not done within 1 s",
        "notify: webhook: TimeoutError",
    )  # its own limit, or the process's
    assert bundles.set.left_behind() == []


@pytest.mark.parametrize(
    ("channel", "order", "said"),
    [
        (
            "webhook",
            {"address": f"file:///etc/{SECRET}"},
            "the address is neither https:// nor http://",
        ),
        ("webhook", {"address": f"http://127.0.0.1:%s/{SECRET}"}, "Connection refused"),
        ("webhook", {"address": f"http://[{SECRET}"}, "ValueError"),
        (
            "command",
            {"command": ["/no/such/program"]},
            "/no/such/program: No such file or directory",
        ),
        ("command", {"command": ["bash", "-c", "exit 3"]}, "bash ended with 3"),
    ],
)
def test_who_cannot_be_told_is_named_without_the_address(
    channel: str, order: dict[str, Any], said: str
) -> None:
    if "%s" in order.get("address", ""):
        order = {"address": order["address"] % free_port()}
    done = send(channel, {"message": {}, **order})
    assert done.returncode == 1
    assert notices(done.stdout + done.stderr) == [f"notify: {channel}: {said}"]
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("answer", [301, 302, 303, 307, 308])
def test_a_redirected_message_was_not_sent(server: Server, answer: int) -> None:
    """A client would ask the new place with GET, without the message, and call that sent."""
    server.answer = answer
    done = send("webhook", {"message": {"text": "done"}, "address": server.address})
    assert done.returncode == 1 and len(server.got) == 1 and not server.asked
    assert notices(done.stdout + done.stderr) == [f"notify: webhook: the server answered {answer}"]


def test_a_name_with_line_ends_is_no_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail = tmp_path / "mail"
    program = tmp_path / "sendmail"
    program.write_text(f"#!/bin/sh\ncat >{mail}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    message = {"set_id": "a\nBcc: x@example.org\r\n b", "event": "ended", "text": "t", "set": "/s"}
    done = send("mail", {"message": message, "mail": ["me@example.org"]})
    assert done.returncode == 0, done.stdout + done.stderr
    heads = mail.read_text().partition("\n\n")[0].splitlines()
    assert [line for line in heads if line.startswith(("Subject:", "Bcc:"))] == [
        "Subject: a Bcc: x@example.org b: ended"
    ]


def test_its_log_has_the_time_of_the_loop() -> None:
    assert notify.LOG_TIME == world.LOG_TIME
