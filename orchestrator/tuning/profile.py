"""Profiles of host settings, from YAML, and the bash script of a profile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.errors import DescriptorError, UsageError
from orchestrator.resources import data_dir, user_path

if TYPE_CHECKING:
    from orchestrator.model import Site
    from orchestrator.model.entry import Entry
    from orchestrator.tuning.documents import Choice, Profile, SettingPart

MAX_DEPTH = 8
SCRIPT = "runtime_tunables.sh"
CPUS = "/sys/devices/system/cpu/cpu[0-9]*"
FOLDER = "systems/host_settings"


class HostSetting(NamedTuple):
    """`wanted` joins accepted values with `|`."""

    name: str
    kind: str
    """file, gpu, module, service, cmdline, acs or numa_per_socket."""
    changes: bool
    """Set, not only checked."""
    target: str
    """File or pattern, module, unit, or "-"."""
    wanted: str
    required: bool
    root: bool
    purpose: str
    source: str

    @property
    def need(self) -> str:
        return "required" if self.required else "optional"

    @property
    def line(self) -> str:
        """Return its line in the script's KNOBS."""
        action = "set" if self.changes else "look"
        return "\t".join((self.name, self.kind, action, self.target, self.wanted, self.need))

    def to_json(self) -> dict[str, object]:
        return {
            "knob": self.name,
            "kind": self.kind,
            "target": self.target,
            "wanted": self.wanted,
            "set": self.changes,
            "root": self.root,
            "need": self.need,
            "purpose": self.purpose,
            "source": self.source,
        }


@dataclass(frozen=True, slots=True)
class TuningProfile:
    name: str
    title: str
    settings: tuple[HostSetting, ...]
    files: tuple[str, ...]


def load_profile(name: str) -> TuningProfile:
    """Return a shipped profile, or a file's (with a slash or .yaml).

    Raises UsageError if unknown, DescriptorError with every problem.
    """
    profile, settings, files = _read(_path_of(name, None), ())
    # A later document wins, but keeps the earlier one's place.
    by_name = {setting.name: setting for setting in settings}
    paths = tuple(str(path) for path in files)
    return TuningProfile(profile.name, profile.title, tuple(by_name.values()), paths)


def profile_problem(name: str) -> str:
    """Return why `load_profile` refuses a profile, or ""."""
    try:
        load_profile(name)
    except (UsageError, DescriptorError) as error:
        return "; ".join(error.message.splitlines())
    return ""


def profile_names() -> list[str]:
    names = sorted(path.stem for path in data_dir(FOLDER).glob("*.yaml"))
    return [name for name in names if name != "choice"]


def choose_profile(workload: str = "", round: str = "", site: Site | None = None) -> str:
    if site is not None and site.tuning.profile:
        return site.tuning.profile
    choice = read_choice(data_dir(FOLDER) / "choice.yaml")
    per_round = choice.workloads.get(workload)
    name = (per_round.rounds.get(round) or per_round.default) if per_round else None
    return name or choice.rounds.get(round, choice.default)


def read_choice(path: Path) -> Choice:
    """Raises DescriptorError with every problem."""
    from orchestrator.model.problems import checked, validate
    from orchestrator.model.source import read
    from orchestrator.tuning.documents import Choice

    document = read(path)
    return checked(document, validate(document, Choice))


def profile_for(entry: Entry) -> TuningProfile:
    return load_profile(choose_profile(entry.workload, entry.round, entry.site))


def _path_of(name: str, folder: Path | None) -> Path:
    from orchestrator.model.fields import is_file_name

    if is_file_name(name):
        return (folder or Path()) / user_path(name)
    for parent in filter(None, (folder, data_dir(FOLDER))):
        path = parent / f"{name}.yaml"
        if path.is_file() and name != "choice":
            return path
    raise UsageError(
        f"there is no tuning profile {name}; there are: {', '.join(profile_names())}",
        hint="give a file of your own as ./my_profile.yaml",
    )


def _read(path: Path, above: tuple[Path, ...]) -> tuple[Profile, list[HostSetting], list[Path]]:
    from orchestrator.model.problems import checked, validate
    from orchestrator.model.source import read
    from orchestrator.tuning.documents import Profile

    document = read(path)
    profile = validate(document, Profile)
    names = [part.name for part in profile.knobs] if profile else []
    for number, name in enumerate(names):
        if name in names[:number]:
            document.add(("knobs", number, "name"), f"the setting {name} is listed twice")
    if path in above or len(above) > MAX_DEPTH:
        document.add(("extends",), "the profile extends itself")
    extended: list[Path] = []
    for number, name in enumerate(profile.extends if profile else ()):
        try:
            extended.append(_path_of(name, path.parent))
        except UsageError as error:
            document.add(("extends", number), error.message)
    profile = checked(document, profile)
    settings: list[HostSetting] = []
    files = [path]
    for other in extended:
        _, more_settings, more_files = _read(other, (*above, path))
        settings += more_settings
        files += more_files
    settings += [_setting_of(part, profile.source) for part in profile.knobs]
    return profile, settings, files


def _setting_of(part: SettingPart, source: str) -> HostSetting:
    kind, target = _kind_and_target(part)
    implied = {"module": "loaded", "acs": "off"}.get(part.kind)
    changes = part.value is not None or part.kind == "module"
    needs_root = changes or part.kind == "acs"
    return HostSetting(
        name=part.name,
        kind=kind,
        changes=changes,
        target=target,
        wanted=implied or part.value or "|".join(part.any_of or []),
        required=part.need == "required",
        root=needs_root if part.root is None else part.root,
        purpose=part.purpose,
        source=part.source or source,
    )


def _kind_and_target(part: SettingPart) -> tuple[str, str]:
    match part.kind:
        case "file":
            return "file", part.path or ""
        case "sysctl":
            return "file", f"/proc/sys/{(part.key or '').replace('.', '/')}"
        case "cpu_idle":
            return "file", f"{CPUS}/cpuidle/state{part.state}/disable"
        case "cpu_governor":
            return "file", f"{CPUS}/cpufreq/scaling_governor"
        case "gpu":
            # Only devices with this driver: a server's own display has another.
            return "gpu", f"/sys/bus/pci/drivers/amdgpu/*:*:*.*/{part.setting}"
        case "module":
            return "module", f"{part.module}{'!' if part.keep else ''}"
        case "service":
            return "service", part.unit or ""
        case _:
            return part.kind, "-"


# ---- the script ----

COLUMNS = (
    "# name, kind, `set` or `look`, target, wanted (accepted values, separated by |), need; "
    "separated by tabs"
)

_USAGE = """\
#
#   runtime_tunables.sh plan            the changes that apply would make
#   runtime_tunables.sh apply OWNER     remember all values, then set; 1 if a required setting fails
#   runtime_tunables.sh verify          compare with the wanted values; 1 if a required one fails
#   runtime_tunables.sh watch           the same for every line of its input, for frequent checks
#   runtime_tunables.sh revert OWNER    put back the values from before the first owner
#   runtime_tunables.sh revert-all      the same, also if somebody holds the settings
#   runtime_tunables.sh status          owners, remembered values, watchdog
#
# apply and revert need root (or the site's sudo prefix). Formats and rules: docs/tuning.md.
# shellcheck disable=SC2034,SC2154,SC2015,SC2317
""".splitlines()


def profile_script(profile: TuningProfile) -> bytes:
    """Return the script; equal profiles give equal bytes."""
    from orchestrator.model.quoting import comment, quote

    title = f"Profile: {comment(profile.name)} ({comment(profile.title)})."
    head = [
        "#!/usr/bin/env bash",
        f"# Host settings for the time of a job, put back afterwards. {title}",
        *_USAGE,
        COLUMNS,
        "KNOBS=(",
        *(f"  {quote(setting.line)}" for setting in profile.settings),
        ")",
        "",
    ]
    return "\n".join(head).encode() + b"\n" + (data_dir("templates") / "tunables.sh").read_bytes()
