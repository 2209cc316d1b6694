"""The YAML documents of systems/host_settings/ (keys: docs/tuning.md)."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from orchestrator.model.fields import Line, Name, matching, refuse
from orchestrator.model.part import DocumentPart

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:-]*")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,60}")
# The script expands paths unquoted, as patterns: no other character may be special in bash.
_PATH = re.compile(r"/(proc|sys)/[A-Za-z0-9_./:*?\[\]-]+")
# Links in a process's folder lead out of /proc (root, cwd, fd).
_PROCESS = re.compile(r"/+proc/+(\./+)*(self|thread-self|[0-9*?\[])")
_SETTING = re.compile(r"[a-z][a-z0-9_]*")
_OTHER_UNIT = re.compile(
    r".*\.(socket|device|mount|automount|swap|target|path|timer|slice|scope)"
)  # systemd.unit(5)


def _path(text: str) -> str:
    if not _PATH.fullmatch(text) or ".." in text or _PROCESS.match(text):
        raise refuse(f"{text!r} is not a file or pattern below /proc or /sys")
    return text


def _value(text: str) -> str:
    if "|" in text or "\t" in text or "," in text:
        raise refuse(
            f"{text!r} holds a '|', a ',' or a tab; "
            "write several accepted values as the list any_of"
        )
    return text


def _unit(text: str) -> str:
    """Return a service's name without `.service`, which the script adds."""
    if _OTHER_UNIT.fullmatch(text):
        raise refuse(f"{text!r} is not a service; only services can be set and checked")
    return text.removesuffix(".service")


Value = Annotated[Line, AfterValidator(_value)]
Word = Annotated[str, matching(WORD, "a name; accepted: letters, digits and '_.@:-'")]
_SettingName = Annotated[
    str, matching(_NAME, "a setting's name; accepted: lower-case letters, digits and '_'")
]
_Setting = Annotated[
    str,
    matching(_SETTING, "a file of the GPU in /sys, such as power_dpm_force_performance_level"),
]
KIND_KEYS = {
    "file": "path",
    "sysctl": "key",
    "cpu_idle": "state",
    "cpu_governor": "",
    "module": "module",
    "service": "unit",
    "gpu": "setting",
    "cmdline": "",
    "acs": "",
    "numa_per_socket": "",
}
"""The key that holds the target."""
WITHOUT_VALUE = {"module": "loaded", "acs": "off"}
BOOT_KINDS = frozenset({"cmdline", "acs", "numa_per_socket"})
"""Only a boot or the BIOS changes them."""


class SettingPart(DocumentPart):
    """`value` is set and reverted, `any_of` only checked."""

    name: _SettingName
    kind: Literal[
        "file",
        "sysctl",
        "cpu_idle",
        "cpu_governor",
        "module",
        "service",
        "gpu",
        "cmdline",
        "acs",
        "numa_per_socket",
    ]
    path: Annotated[str, AfterValidator(_path)] | None = None
    key: Word | None = None
    state: Annotated[int, Field(ge=0, le=15)] | None = None
    module: Word | None = None
    unit: Annotated[Word, AfterValidator(_unit)] | None = None
    setting: _Setting | None = None
    value: Value | None = None
    any_of: Annotated[list[Value], Field(min_length=1)] | None = None
    keep: bool = False
    root: bool | None = None
    need: Literal["required", "optional"]
    purpose: Line
    source: Line | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> SettingPart:
        for name in filter(None, KIND_KEYS.values()):
            needed = name == KIND_KEYS[self.kind]
            if needed and getattr(self, name) is None:
                raise refuse(f"a setting of kind {self.kind} needs the key {name}")
            if not needed and getattr(self, name) is not None:
                raise refuse(f"a setting of kind {self.kind} has no key {name}")
        if self.kind in WITHOUT_VALUE:
            if self.value or self.any_of:
                raise refuse(
                    f"a setting of kind {self.kind} has no value: it is {WITHOUT_VALUE[self.kind]}"
                )
        elif (self.value is None) == (self.any_of is None):
            raise refuse("a setting needs either value (to be set) or any_of (to be checked)")
        if self.kind in BOOT_KINDS and self.value is not None:
            raise refuse(
                f"a setting of kind {self.kind} can only be checked; write any_of instead of value"
            )
        if self.kind == "service" and self.value not in (None, "active", "inactive"):
            raise refuse("a service is active or inactive")
        if self.keep and self.kind != "module":
            raise refuse("only a module can be kept")
        return self


class Profile(DocumentPart):
    """systems/host_settings/<name>.yaml"""

    kind: Literal["tuning"]
    name: Name
    title: Line
    source: Line
    extends: list[Name] = []
    knobs: list[SettingPart] = []


class PerRound(DocumentPart):
    """Profiles of a workload by round."""

    default: Name | None = None
    rounds: dict[str, Name] = {}


class Choice(DocumentPart):
    """systems/host_settings/choice.yaml"""

    kind: Literal["tuning_choice"]
    default: Name
    rounds: dict[str, Name] = {}
    workloads: dict[Name, PerRound] = {}
