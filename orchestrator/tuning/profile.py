"""Profiles of host settings, read from YAML and flattened for the script."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.resources import data_dir, user_path

if TYPE_CHECKING:
    from orchestrator.tuning.documents import Knob, Profile

MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Tunable:
    """One setting. `wanted` joins the accepted values with `|`; `set` False: checked, never
    changed."""

    name: str
    kind: str
    """The script's kinds: file, gpu, module, service, cmdline, acs or numa_per_socket."""
    set: bool
    target: str
    """File or pattern, module, or unit; "-" if the kind needs no target."""
    wanted: str
    required: bool
    root: bool
    purpose: str
    source: str

    @property
    def line(self) -> str:
        """Return the setting as a line of the script's KNOBS."""
        return "\t".join(
            (
                self.name,
                self.kind,
                "set" if self.set else "look",
                self.target,
                self.wanted,
                "required" if self.required else "optional",
            )
        )


@dataclass(frozen=True, slots=True)
class TuningProfile:
    """A named list of settings, in the order of application."""

    name: str
    title: str
    tunables: tuple[Tunable, ...]
    files: tuple[str, ...]
    """Its documents, included ones as well."""


def load_profile(name: str) -> TuningProfile:
    """Return the profile `name`: a shipped one, or a YAML file if the name has a slash or ends in
    .yaml.

    Raises UsageError for an unknown name, DescriptorError with every problem of a document.
    """
    profile, tunables, files = _read(_path_of(name, None), ())
    seen: dict[str, Tunable] = {}
    for tunable in tunables:
        seen[tunable.name] = tunable  # a later document wins, at the place of the earlier one
    return TuningProfile(
        profile.name, profile.title, tuple(seen.values()), tuple(str(path) for path in files)
    )


def profile_names() -> list[str]:
    """Return the names of the shipped profiles."""
    return sorted(
        path.stem
        for path in data_dir("systems/host_settings").glob("*.yaml")
        if path.stem != "choice"
    )


def choose_profile(workload: str = "", round: str = "") -> str:
    """Return the profile's name for a workload and round, from host_settings/choice.yaml."""
    from orchestrator.model.problems import checked, validate
    from orchestrator.model.source import read
    from orchestrator.tuning.documents import Choice

    document = read(data_dir("systems/host_settings") / "choice.yaml")
    choice = checked(document, validate(document, Choice))
    own = choice.workloads.get(workload)
    if own and (found := own.rounds.get(round) or own.default):
        return found
    return choice.rounds.get(round, choice.default)


def _path_of(name: str, beside: Path | None) -> Path:
    if "/" in name or name.endswith((".yaml", ".yml")):
        return user_path(name)
    for folder in filter(None, (beside, data_dir("systems/host_settings"))):
        if (folder / f"{name}.yaml").is_file() and name != "choice":
            return folder / f"{name}.yaml"
    raise UsageError(
        f"there is no tuning profile {name}; there are: {', '.join(profile_names())}",
        hint="give a file of your own as ./my_profile.yaml",
    )


def _read(path: Path, above: tuple[Path, ...]) -> tuple[Profile, list[Tunable], list[Path]]:
    from orchestrator.model.problems import checked, validate
    from orchestrator.model.source import read
    from orchestrator.tuning.documents import Profile

    document = read(path)
    profile = validate(document, Profile)
    names = [knob.name for knob in profile.knobs] if profile else []
    for place, name in enumerate(names):
        if name in names[:place]:
            document.add(("knobs", place, "name"), f"the knob {name} stands twice")
    if path in above or len(above) > MAX_DEPTH:
        document.add(("extends",), "the profile extends itself")
    profile = checked(document, profile)
    tunables: list[Tunable] = []
    files = [path]
    for name in profile.extends:
        _, more, read_files = _read(_path_of(name, path.parent), (*above, path))
        tunables += more
        files += read_files
    tunables += [tunable_of(knob, profile.source) for knob in profile.knobs]
    return profile, tunables, files


def tunable_of(knob: Knob, source: str) -> Tunable:
    """Flatten a document's setting: every kind in /proc or /sys becomes a file."""
    kind, target = _place(knob)
    wanted = (
        {"module": "loaded", "acs": "off"}.get(knob.kind)
        or knob.value
        or "|".join(knob.any_of or [])
    )
    changes = knob.value is not None or knob.kind == "module"
    return Tunable(
        knob.name,
        kind,
        changes,
        target,
        wanted,
        knob.need == "required",
        (changes or knob.kind == "acs") if knob.root is None else knob.root,
        knob.purpose,
        knob.source or source,
    )


def _place(knob: Knob) -> tuple[str, str]:
    cpus = "/sys/devices/system/cpu/cpu[0-9]*"
    match knob.kind:
        case "file":
            return "file", knob.path or ""
        case "sysctl":
            return "file", f"/proc/sys/{(knob.key or '').replace('.', '/')}"
        case "cpu_idle":
            return "file", f"{cpus}/cpuidle/state{knob.state}/disable"
        case "cpu_governor":
            return "file", f"{cpus}/cpufreq/scaling_governor"
        case "gpu":
            # Only devices with the driver: a server's own display has another.
            return "gpu", f"/sys/bus/pci/drivers/amdgpu/*:*:*.*/{knob.setting}"
        case "module":
            return "module", f"{knob.module}{'!' if knob.keep else ''}"
        case "service":
            return "service", knob.unit or ""
        case _:
            return knob.kind, "-"
