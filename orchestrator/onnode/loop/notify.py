"""The process that sends a notification (docs/notify.md). Message and secret address come on
standard input alone.

Its text is passed by value, so that it needs no storage.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

LOG_TIME = "%Y-%m-%dT%H:%M:%S%z"
"""As in kernel/world.py, which is not passed on."""


class NotSent(Exception):
    """The message has the reason, without an address."""


def main(method: str) -> int:
    """Return the exit status."""
    notification = json.loads(sys.stdin.buffer.read())
    signal.signal(signal.SIGALRM, lambda *_: _late(method, notification["seconds"]))
    signal.alarm(notification["seconds"])
    try:
        {"command": _run, "mail": _mail, "webhook": _post}[method](notification)
    except NotSent as error:
        _log(f"{method}: {error}")
        return 1
    return 0


def _log(text: str) -> None:
    line = f"{time.strftime(LOG_TIME)} orchestrator: notify: {text}\n"
    os.write(2, line.encode("utf-8", "backslashreplace"))


def _late(method: str, seconds: int) -> None:
    _log(f"{method}: not done within {seconds} s")
    os.killpg(0, signal.SIGKILL)  # children share this session


def _run(notification: dict[str, Any]) -> None:
    _feed(notification["command"], json.dumps(notification["message"]).encode() + b"\n")


def _mail(notification: dict[str, Any]) -> None:
    from email.message import EmailMessage

    message = notification["message"]
    mail = EmailMessage()
    # A line end, as in names of a damaged set.json, would end the header.
    mail["Subject"] = " ".join(f"{message['set_id']}: {message['event']}".split())
    mail["To"] = ", ".join(notification["mail"])
    head = f"ledger: {message['ledger']}\n" if message.get("ledger") else ""
    mail.set_content(f"{message['text']}\n\n{message['set']}\n{head}")
    paths = map(shutil.which, ("sendmail", "/usr/sbin/sendmail", "/usr/lib/sendmail"))
    path = next(filter(None, paths), None)
    if path is None:
        raise NotSent("this host has no sendmail")
    _feed([path, "-i", "-t"], mail.as_bytes())  # it has the addresses


def _feed(argv: list[str], text: bytes) -> None:
    try:
        status = subprocess.run(argv, input=text, stdout=subprocess.DEVNULL).returncode
    except OSError as error:
        raise NotSent(f"{argv[0]}: {error.strerror}") from error
    if status:
        raise NotSent(f"{argv[0]} ended with {status}")


def _post(notification: dict[str, Any]) -> None:
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirect(HTTPRedirectHandler):
        """A redirected POST becomes a GET without the message."""

        def redirect_request(self, *_: object) -> None:
            return None

    if not notification["address"].startswith(("https://", "http://")):
        raise NotSent("the address is neither https:// nor http://")
    headers = {"Content-Type": "application/json", "User-Agent": "orchestrator"}
    body = json.dumps(notification["message"]).encode()
    try:
        request = Request(notification["address"], body, headers, method="POST")
        with build_opener(NoRedirect).open(request, timeout=notification["seconds"]):
            pass
    except HTTPError as error:
        raise NotSent(f"the server answered {error.code}") from None
    except URLError as error:
        reason = getattr(error.reason, "strerror", "") or type(error.reason).__name__
        raise NotSent(reason) from None
    except Exception as error:  # its text may hold the address
        raise NotSent(type(error).__name__) from None


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
