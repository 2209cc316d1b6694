"""The hosts outside that runs reach while they start: a connection to each, through the site's
proxy if there is one. Nothing is sent."""

from __future__ import annotations

import os
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from ..kernel.proxy import proxy_of
from ..kernel.system import ask
from .node import EngineState, Node, Rows, listed, shortened

LIMIT_S = 5
"""For all hosts together: they are tried at once."""


def reach(node: Node, engine: EngineState) -> Rows:
    """Warn about hosts without an answer: a cache in the image may do without them."""
    settings = node.settings
    uses = dict(one.split("\t", 1) for one in settings.reaches)
    if not uses:
        yield "reach", "skip", "runs reach no host outside", ""
        return
    variables = proxy_variables(node, os.environ)
    problems: dict[str, str] = {}
    threads = [
        threading.Thread(target=_try, args=(host, variables, problems), daemon=True)
        for host in uses
    ]
    end = time.monotonic() + min(LIMIT_S, settings.preflight_check_s / 2)
    for thread in threads:
        thread.start()
    for thread in threads:  # the name service has no limit of its own
        thread.join(max(end - time.monotonic(), 0))
    told = dict(problems)
    missing = {host: told.get(host, "no answer") for host in uses if told.get(host, "-")}
    used = dict.fromkeys(filter(None, (_shown(_proxy(host, variables)) for host in uses)))
    through = f" through the proxy {' '.join(used)}" if used else ""
    if not missing:
        yield "reach", "pass", f"{listed([*uses])} reached{through}", ""
        return
    text = listed([f"{host} ({uses[host]}): {problem}" for host, problem in missing.items()])
    remedy = (
        "check container.proxy of the site, and what the proxy allows"
        if used
        else "give the site file container.proxy, or let the nodes out"
    )
    yield "reach", "warn", f"runs start with hosts not reached{through}: {text}", remedy


def proxy_variables(node: Node, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxy's variables of the runs: the site's, and those passed by name."""
    given = dict(one.split("=", 1) for one in node.settings.proxy)
    passed = {name: environment.get(name, "") for name in node.settings.pass_env}
    return {**given, **{name: value for name, value in passed.items() if value}}


def daemon_lacks_proxy(node: Node) -> bool:
    """Return whether pulls of Docker's daemon go without the proxy that the site gives."""
    settings = node.settings
    if not settings.proxy or settings.engine != "docker":
        return False
    wanted = "{{.HTTPSProxy}}"
    status, text = ask([*settings.engine_command, "info", "--format", wanted], LIMIT_S)
    return status == 0 and not text.strip()  # never shown: it may hold a password


# ---- one host ----


def _parts(target: str) -> tuple[str, int]:
    host, _, port = target.partition(":")
    return host, int(port or 443)


def _proxy(target: str, variables: Mapping[str, str]) -> SplitResult | None:
    address = proxy_of(_parts(target)[0], variables)
    return urlsplit(address if "://" in address else f"http://{address}") if address else None


def _shown(proxy: SplitResult | None) -> str:
    """Return a proxy without its user name and password."""
    return proxy.netloc.rpartition("@")[2] if proxy else ""


def _try(target: str, variables: Mapping[str, str], problems: dict[str, str]) -> None:
    """Put the problem of a host, or "", into `problems`."""
    try:
        proxy = _proxy(target, variables)
        problems[target] = _through(target, proxy) if proxy else _direct(target)
    except (OSError, ValueError) as error:
        late = isinstance(error, (socket.timeout, TimeoutError))
        text = "no answer" if late else getattr(error, "strerror", "") or str(error)
        problems[target] = shortened(text, 80)


def _direct(target: str) -> str:
    with socket.create_connection(_parts(target), LIMIT_S):
        return ""


def _through(target: str, proxy: SplitResult) -> str:
    """Ask a proxy for a tunnel; return its refusal, or ""."""
    if proxy.scheme not in ("http", "https"):
        return f"cannot be checked through a {shortened(proxy.scheme, 16)} proxy"
    port = proxy.port or (443 if proxy.scheme == "https" else 80)
    host = "{}:{}".format(*_parts(target))
    lines = [f"CONNECT {host} HTTP/1.1", f"Host: {host}"]
    if proxy.username is not None:
        login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {b64encode(login.encode()).decode()}")
    with socket.create_connection((proxy.hostname or "", port), LIMIT_S) as plain:
        connection = plain
        if proxy.scheme == "https":
            import ssl

            connection = ssl.create_default_context().wrap_socket(
                plain, server_hostname=proxy.hostname
            )
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        with connection.makefile("rb") as reply:
            status = reply.readline(512).decode("ascii", "replace").strip()
    words = status.split(" ", 1)
    if len(words) == 2 and words[0].startswith("HTTP/") and words[1][:1] == "2":
        return ""
    return f"the proxy answers {shortened(words[-1], 60) or 'nothing'}"
