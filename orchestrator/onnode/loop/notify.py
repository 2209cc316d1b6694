"""The process that notifies people over one channel: a command, a mail, a webhook (docs/notify.md).

The message and the secret address come on standard input: neither is on a command line or in a file.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..kernel.world import THIS, log


class NotTold(Exception):
    """Nobody was told; the message says why, without an address."""


def main(_: Path, channel: str) -> int:
    """Tell what standard input says, through one channel, within its time; the exit status."""
    order = json.loads(sys.stdin.buffer.read())
    signal.signal(signal.SIGALRM, lambda *_: _late(channel, order["seconds"]))
    signal.alarm(order["seconds"])
    try:
        {"command": _run, "mail": _mail, "webhook": _post}[channel](order)
    except NotTold as error:
        _log(f"{channel}: {error}")
        return 1
    return 0


def _log(text: str) -> None:
    log(THIS.wall_ms(), f"notify: {text}")


def _late(channel: str, seconds: int) -> None:
    _log(f"{channel}: not done within {seconds} s")
    os.killpg(0, signal.SIGKILL)  # with what it has started: this session is ours alone


def _run(order: dict[str, Any]) -> None:
    _feed(order["command"], json.dumps(order["message"]).encode() + b"\n")


def _mail(order: dict[str, Any]) -> None:
    from email.message import EmailMessage

    message = order["message"]
    mail = EmailMessage()
    mail["Subject"] = f"{message['set_id']}: {message['event']}"
    mail["To"] = ", ".join(order["mail"])
    mail.set_content(f"{message['text']}\n\n{message['set']}\n")
    path = next(
        filter(
            None,
            (shutil.which(one) for one in ("sendmail", "/usr/sbin/sendmail", "/usr/lib/sendmail")),
        ),
        "",
    )
    if not path:
        raise NotTold("this host has no sendmail")
    _feed([path, "-i", "-t"], mail.as_bytes())  # the addresses are read from the mail


def _feed(argv: list[str], text: bytes) -> None:
    try:
        status = subprocess.run(argv, input=text, stdout=subprocess.DEVNULL).returncode
    except OSError as error:
        raise NotTold(f"{argv[0]}: {error.strerror}") from error
    if status:
        raise NotTold(f"{argv[0]} ended with {status}")


def _post(order: dict[str, Any]) -> None:
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    if not order["address"].startswith(("https://", "http://")):
        raise NotTold("the address is neither https:// nor http://")
    headers = {"Content-Type": "application/json", "User-Agent": "orchestrator"}
    try:
        request = Request(
            order["address"], json.dumps(order["message"]).encode(), headers, method="POST"
        )
        with urlopen(request, timeout=order["seconds"]):
            pass
    except HTTPError as error:
        raise NotTold(f"the server answered {error.code}") from None
    except URLError as error:
        raise NotTold(
            getattr(error.reason, "strerror", "") or type(error.reason).__name__
        ) from None
    except Exception as error:  # whatever it is: its words may hold the address
        raise NotTold(type(error).__name__) from None
