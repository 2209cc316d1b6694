"""Connects to the outside hosts that starting runs reach, and to the registry of an image to pull;
through the proxy, if any. Nothing is sent."""

from __future__ import annotations

import os
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from ..kernel.client import proxy_of, registry_in
from ..kernel.system import ask
from .node import EngineState, Node, Rows, listed, shortened

_DAEMON = "{{.IndexServerAddress}}\n{{.HTTPSProxy}}\n{{.NoProxy}}\n{{len .RegistryConfig.Mirrors}}"
LIMIT_S = 5
"""For all hosts together: they are tried at once."""


def reach(node: Node, engine: EngineState) -> Rows:
    """Warn about hosts without an answer: caches may do without them, and images may come from
    files."""
    settings = node.settings
    uses = dict(entry.split("\t", 1) for entry in settings.reaches)
    ways = dict.fromkeys(uses, proxy_variables(node, os.environ))
    registry, way = registry_of(node, engine)
    if registry:
        uses.setdefault(registry, "the image, which is not on this node")
        ways.setdefault(registry, way)
    if not uses:
        yield "reach", "skip", "runs reach no host outside", ""
        return
    problems: dict[str, str] = {}
    threads = [
        threading.Thread(target=_try, args=(host, ways[host], problems), daemon=True)
        for host in uses
    ]
    end = time.monotonic() + min(LIMIT_S, settings.preflight_check_s / 2)
    for thread in threads:
        thread.start()
    for thread in threads:  # the name service has no limit of its own
        thread.join(max(end - time.monotonic(), 0))
    known = dict(problems)
    missing = {host: known.get(host, "no answer") for host in uses if known.get(host, "-")}
    used = dict.fromkeys(filter(None, (_shown(_proxy(host, ways[host])) for host in uses)))
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
    if registry in missing:
        remedy += "; orchestrator images distribute brings the image without a registry"
    yield "reach", "warn", f"hosts not reached{through}: {text}", remedy


def proxy_variables(node: Node, environment: Mapping[str, str]) -> dict[str, str]:
    """The runs' variables: the site's, and those passed by name."""
    given = dict(variable.split("=", 1) for variable in node.settings.proxy)
    passed = {name: environment.get(name, "") for name in node.settings.pass_env}
    return {**given, **{name: value for name, value in passed.items() if value}}


def registry_of(node: Node, engine: EngineState) -> tuple[str, dict[str, str]]:
    """Return the registry (HOST or HOST:PORT) from which this node pulls, and the variables of the
    proxy to it. "": no pull, or by a mirror, or a proxy with a hidden password."""
    settings = node.settings
    if engine.state != "up" or engine.image_id or settings.pull != "missing":
        return "", {}
    from .container import pulled_name  # a bundle without an engine does not carry it

    named = registry_in(pulled_name(settings))
    if settings.engine == "podman":
        return named, dict(variable.split("=", 1) for variable in settings.proxy)
    argv = [*settings.engine_command, "info", "--format", _DAEMON]
    status, text = ask(argv, min(LIMIT_S, settings.preflight_check_s / 4))
    index, proxy, direct, mirrors, *_ = [*text.rstrip("\n").split("\n"), "", "", "", ""]
    if status != 0 or "@" in proxy or (not named and mirrors not in ("", "0")):
        return "", {}
    return named or urlsplit(index).hostname or "", {"https_proxy": proxy, "no_proxy": direct}


def daemon_lacks_proxy(node: Node) -> bool:
    """Pulls of Docker's daemon bypass the site's proxy."""
    settings = node.settings
    if not settings.proxy or settings.engine != "docker":
        return False
    wanted = "{{.HTTPSProxy}}"
    status, text = ask([*settings.engine_command, "info", "--format", wanted], LIMIT_S)
    return status == 0 and not text.strip()  # never shown: it may hold a password


# ---- a host ----


def _parts(target: str) -> tuple[str, int]:
    host, _, port = target.partition(":")
    return host, int(port or 443)


def _proxy(target: str, variables: Mapping[str, str]) -> SplitResult | None:
    address = proxy_of(_parts(target)[0], variables)
    return urlsplit(address if "://" in address else f"http://{address}") if address else None


def _shown(proxy: SplitResult | None) -> str:
    """Leave out user name and password."""
    return proxy.netloc.rpartition("@")[2] if proxy else ""


def _try(target: str, variables: Mapping[str, str], problems: dict[str, str]) -> None:
    """Put the host's problem, or "", into `problems`."""
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
    """Ask for a tunnel; return the refusal, or ""."""
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
    fields = status.split(" ", 1)
    if len(fields) == 2 and fields[0].startswith("HTTP/") and fields[1][:1] == "2":
        return ""
    return f"the proxy answers {shortened(fields[-1], 60) or 'nothing'}"
