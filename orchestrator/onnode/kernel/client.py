"""An engine's client: the command line that starts a container, its folders, the image's registry,
the site's proxy.

A bundle's README shows the line that a node executes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence


def folders(mounts: Iterable[str], data: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (variable, host folder or "", place with mode) of MOUNTS."""
    places = []
    for variable, below, target, mode in (mount.split("\t") for mount in mounts):
        source = data.get(variable, "")
        places.append(
            (
                variable,
                source if below == "." or not source else f"{source}/{below}",
                f"{target}:{mode}",
            )
        )
    return places


def shared_folders(shared: Iterable[str], site_mounts: Iterable[str]) -> dict[str, str]:
    """Return place -> folder's name; a site mount at the place wins."""
    of_the_site = {mount.split("\t")[1] for mount in site_mounts}
    return {path: path.strip("/").replace("/", "_") for path in shared if path not in of_the_site}


def bind(source: str, target: str, mode: str = "rw") -> str:
    """Return a CSV value for --mount: unlike with --volume, a missing folder is an error."""
    fields = [
        "type=bind",
        f"source={source}",
        f"target={target}",
        *(["readonly"] if mode == "ro" else []),
    ]
    return ",".join(
        '"' + field.replace('"', '""') + '"' if set(field) & set(',"') else field
        for field in fields
    )


def client_argv(
    engine: Sequence[str],
    name: str,
    labels: Mapping[str, str],
    options: Sequence[str],
    volumes: Sequence[str],
    image: str,
) -> list[str]:
    """The container lives as long as its input is open. bash's arguments follow."""
    argv = [*engine, "run", "--rm", "--interactive", "--init", "--name", name]
    argv += [
        word
        for label, value in labels.items()
        for word in ("--label", f"orchestrator.{label}={value}")
    ]
    argv += [*options, *(word for volume in volumes for word in ("--mount", volume))]
    return [*argv, "--entrypoint", "bash", image]


# ---- registry and proxy ----


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


def repository_in(image: str) -> str:
    """Return an image's name without tag and digest."""
    head, slash, last = image.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def _is_in(host: str, exception: str) -> bool:
    """`exception`: an entry of no_proxy (name, domain, address, network, *)."""
    if exception == "*":
        return True
    import ipaddress  # slow, seldom needed

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(exception, strict=False)
    except ValueError:
        pass
    domain = exception.lstrip("*.")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))
