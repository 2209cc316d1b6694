"""The registry of an image; the site's proxy for an engine's pulls or a host outside."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence


def with_proxy(
    command: Sequence[str], variables: Sequence[str], clients: Sequence[str] = ("podman",)
) -> list[str]:
    """Return an engine's command with the proxy of `variables` (NAME=VALUE) for these `clients`.

    Podman pulls by itself; Docker's daemon has its own proxy, and its client only reads manifests.
    sudo clears the environment and may allow the engine alone: nothing changes behind it.
    """
    direct = os.path.basename("".join(command[:1])) in clients
    return ["env", *variables, *command] if variables and direct else list(command)


def proxy_of(host: str, variables: Mapping[str, str]) -> str:
    """Return the proxy's address for https:// to `host`; "" for a direct connection."""
    values = {name.lower(): value for name, value in variables.items() if value}
    exceptions = values.get("no_proxy", "").split(",")
    if any(_is_in(host.lower(), exception.strip().lower()) for exception in exceptions):
        return ""
    return values.get("https_proxy", "")


def registry_in(image: str) -> str:
    """Return HOST or HOST:PORT from an image's name; "" for Docker Hub."""
    head, slash, _ = image.partition("/")
    return head if slash and (set(head) & set(".:") or head == "localhost") else ""


def _is_in(host: str, exception: str) -> bool:
    """`exception`: an entry of no_proxy (name, domain, address, network, *)."""
    if exception == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(exception, strict=False)
    except ValueError:
        pass
    domain = exception.lstrip("*.")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))
