"""Engines whose containers' root is not the host's root: rootless, or with userns-remap."""

from __future__ import annotations

from ..kernel.settings import Settings
from .node import Rows

_FORMATS = {"docker": "{{.SecurityOptions}}", "podman": "{{.Host.Security.Rootless}}"}
_ENGINE = "use the engine of the system's root (container.command, such as [sudo, -n, {engine}])"


def question(settings: Settings) -> list[str]:
    """Return the command whose output `mapped` reads."""
    return [*settings.engine_command, "info", "--format", _FORMATS[settings.engine]]


def mapped(settings: Settings, output: str) -> str:
    """Return "rootless", "userns-remap", or "" if the containers' root is the host's."""
    fields = output.strip().strip("[]").split()
    if "name=rootless" in fields or fields == ["true"]:
        return "rootless"
    given = " ".join(settings.container_options)
    is_off = "--userns=host" in given or "--userns host" in given
    return "userns-remap" if "name=userns" in fields and not is_off else ""


def remedy(settings: Settings, kind: str) -> str:
    if kind == "userns-remap":
        return "give the site container.options: [--userns=host], or switch it off (daemon.json)"
    return _ENGINE.format(engine=settings.engine)


def verdict(settings: Settings, kind: str) -> Rows:
    """Yield the row of the check `engine`."""
    name = settings.engine
    if kind == "userns-remap":
        text = f"{name} maps users (userns-remap): a container cannot reach the folders of the job"
        yield "engine", "fail", text, remedy(settings, kind)
    else:
        text = (
            f"{name} is rootless, which is not supported: its containers lack the host's groups, "
            "hence often the GPUs, and unlimited locked memory"
        )
        yield "engine", "warn", text, remedy(settings, kind)
