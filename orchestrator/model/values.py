"""Values of environment variables; allowed names and values.

Text("32")                     exported exactly as typed
Minutes(fixed=5, per_run=205)  fixed + NEXP x per_run, computed when the config is sourced
Unique("flux-train-")          with a time stamp in nanoseconds, made when the config is sourced
Ref("nodes")                   only in documents; composition replaces it by a Text
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.onnode.kernel.jobs import NNODES, NODEID


@dataclass(frozen=True, slots=True)
class Text:
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Minutes:
    fixed: int
    per_run: int

    def __str__(self) -> str:
        return f"<{self.fixed} + NEXP x {self.per_run}>"


@dataclass(frozen=True, slots=True)
class Unique:
    prefix: str

    def __str__(self) -> str:
        return f"<{self.prefix} and a time stamp>"


@dataclass(frozen=True, slots=True)
class Ref:
    name: str


EnvValue = Text | Minutes | Unique
DocumentValue = EnvValue | Ref | None

REFS = (
    "system",
    "config_file",
    "accelerator",
    "nodes",
    "gpus_per_node",
    "micro_batch",
    "global_batch",
    "accumulation",
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "minutes_per_run",
)

RUN_REFS = ("node_rank", "nodes", "gpus_per_node", "world_size", "master", "port")
"""Names in braces in a `launch`. `world_size`: all nodes' GPUs."""

NETWORK_NAMES = (
    "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "NCCL_IB_DISABLE",
)
"""Variables that differ between sites and nodes: given, or detected on the node. Never empty: to
RCCL an empty NCCL_IB_HCA is a list without devices."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SECRET = re.compile(
    r"(PASS(WORD|WD|PHRASE)|CREDENTIALS?"
    r"|(^|_)(TOKEN|SECRET|PASS|PAT|PWD|AUTHORIZATION|AUTH(_HEADER)?|COOKIE|WEBHOOK(_URL)?"
    r"|(ACCESS|API|APP|AUTH|ACCOUNT|CLIENT|ENCRYPTION|MASTER|PRIVATE|SECRET|SIGNING|SSH|STORAGE)"
    r"_?KEY))(_(BASE)?64)?$",
    re.IGNORECASE,
)
"""Variables with secrets of clouds, hubs, databases and CI."""
NO_SECRET = frozenset({"PWD", "OLDPWD"})

_LOGIN = re.compile(
    r"\b(?:https?|socks[45][ah]?)://[^\s/?#]*@|\b[a-z][a-z0-9+.-]*://[^\s/?#@:]*:[^\s/?#@]+@",
    re.IGNORECASE,
)
"""A user or password in an address; for other protocols, such as ssh, only a password."""
LOGIN_HINT = (
    "a value here ends up in files and logs: export the variable before you submit, and put "
    "its name into the site's `pass_env` list"
)

# Not MASTER_ADDR, MASTER_PORT and NODE_RANK: published single-node configs export defaults, which
# the loop overrides per run.
OWNED_BY_THE_LOOP = {
    "NEXP": "the number of runs is given with --nexp (NEXP in the environment of a bundle)",
    "SEED": "every run and attempt gets its own seed from the set's root seed",
    NNODES: "the loop sets it for every run",
    NODEID: "the loop sets it for every run",
}

OWNED_BY_BASH = re.compile(
    r"BASH(OPTS|PID|_(ALIASES|ARGC|ARGV|CMDS|COMMAND|LINENO|MONOSECONDS|SOURCE|SUBSHELL|VERSINFO))"
    r"|DIRSTACK|EPOCH(REALTIME|SECONDS)|(EU|PP|U)ID|FUNCNAME|GROUPS|HISTCMD|LINENO|PIPESTATUS"
    r"|S?RANDOM|SECONDS|SHELLOPTS|SHLVL|_"
)
"""Variables that keep no exported text."""


def name_problem(name: str) -> str:
    if not NAME.fullmatch(name):
        return (
            f"{name!r} is not a variable name; accepted: letters, digits and _, not starting "
            "with a digit"
        )
    if name in OWNED_BY_THE_LOOP:
        return f"{name} belongs to the loop over the runs: {OWNED_BY_THE_LOOP[name]}"
    if OWNED_BY_BASH.fullmatch(name):
        return f"{name} belongs to bash, which sets it itself or makes it read-only"
    return ""


def secret_problem(name: str) -> str:
    """Return why `name` must not have a value in a document or command line, or ""."""
    if name in NO_SECRET or not SECRET.search(name):
        return ""
    return (
        f"{name} looks like a secret, and values written here end up in files and logs; "
        "put the name into the site's `pass_env` list, then its value is taken from the "
        "environment"
    )


def value_problem(text: str) -> str:
    """Return the problem of a value, without quoting it, or ""."""
    if "\0" in text:
        return "the value contains a NUL byte, which no environment can hold"
    if _LOGIN.search(text):
        return f"the value holds a user name or password in an address; {LOGIN_HINT}"
    return ""


def empty_problem(name: str, value: object) -> str:
    if name not in NETWORK_NAMES or str(value):
        return ""
    return (
        f"{name} is empty, which RCCL does not take for unset; leave it out, or write null in a "
        "document to remove it"
    )


def parse_value(raw: object) -> tuple[DocumentValue, str]:
    """Parse a value of an `env` mapping; return it and a problem, or ""."""
    if raw is None:
        return None, ""
    if isinstance(raw, str):
        return Text(raw), value_problem(raw)
    if isinstance(raw, (bool, int, float)):
        return (
            None,
            "a number or true/false; write it in quotes so that it is exported exactly as typed",
        )
    if isinstance(raw, dict) and len(raw) == 1:
        ((form, argument),) = raw.items()
        if form in _FORMS:
            return _FORMS[form](argument)
    return None, (
        "accepted: text in quotes, null (removes the variable), {ref: NAME}, "
        '{minutes: {fixed: N, per_run: N}}, {unique: "prefix"}'
    )


def _ref(argument: object) -> tuple[DocumentValue, str]:
    if argument in REFS:
        return Ref(str(argument)), ""
    return None, f"ref {argument!r} is unknown; accepted: {', '.join(REFS)}"


def _minutes(argument: object) -> tuple[DocumentValue, str]:
    if (
        isinstance(argument, dict)
        and set(argument) == {"fixed", "per_run"}
        and all(type(number) is int and 0 <= number <= 100_000 for number in argument.values())
    ):
        return Minutes(argument["fixed"], argument["per_run"]), ""
    return None, "minutes needs exactly `fixed` and `per_run`, whole numbers from 0 to 100000"


def _unique(argument: object) -> tuple[DocumentValue, str]:
    if isinstance(argument, str):
        return Unique(argument), value_problem(argument)
    return None, "unique needs a text in quotes, which comes before the time stamp"


_FORMS = {"ref": _ref, "minutes": _minutes, "unique": _unique}
