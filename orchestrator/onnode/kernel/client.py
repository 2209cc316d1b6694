"""The command line of an engine's client that starts a container, and the folders in it.

A bundle's README shows the line that a node executes.
"""

from __future__ import annotations

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
