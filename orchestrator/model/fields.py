"""Single fields: each type accepts one shape and describes it in its errors."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, WithJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError

from orchestrator.model import values

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ROUND = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
_VERSION = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}")
_BRACED = re.compile(r"\{(\w+)\}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_TIME = re.compile(r"[0-9]+(:[0-5]?[0-9]){0,2}|[0-9]+-[0-9]{1,2}(:[0-5]?[0-9]){0,2}")
_PROXY = re.compile(r"https?://([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?/?")
_REACHED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?")
_DIRECT = re.compile(r"[A-Za-z0-9.*:\[\]/_-]+")
OWN = "own"
"""The ruleset outside MLPerf: the workload's document has the rules."""

_SBATCH_OPTION = re.compile(r"(--?[A-Za-z][A-Za-z-]*)")
_ASSIGNED = re.compile(r"(?<![\w-])([A-Za-z_]\w*)=")

_OWNED = "{} is set by orchestrator itself and cannot be changed here"
_LIMIT = f"{_OWNED}; a new set takes `time_limit` of the site file, the next job `resume --time`"
_CLUSTER = (
    "{}: jobs are looked for in the cluster of this host alone; submit them on a login node of "
    "theirs"
)
_WAIT = "{}: sbatch would return only when the job has ended"
# Sets depend on the job's name, output, shape and signal; a site cannot change them.
_SBATCH_REFUSED = {
    "--job-name": _OWNED,
    "-J": _OWNED,
    "--output": _OWNED,
    "-o": _OWNED,
    "--error": _OWNED,
    "-e": _OWNED,
    "--nodes": _OWNED,
    "-N": _OWNED,
    "--ntasks": _OWNED,
    "-n": _OWNED,
    "--ntasks-per-node": _OWNED,
    "--tasks-per-node": _OWNED,
    "--signal": _OWNED,
    "--array": _OWNED,
    "-a": _OWNED,
    "--time": _LIMIT,
    "-t": _LIMIT,
    "--clusters": _CLUSTER,
    "-M": _CLUSTER,
    "--wait": _WAIT,
    "-W": _WAIT,
    "--test-only": "{}: sbatch would submit no job",
}
_SHORT = re.compile(r"-[HOQVhsv]*[A-Za-z]")
"""Short options that take no value, and the next one (slurm/src/common/slurm_opt.c)."""


# A container lives as long as its input, is found by name and labels, and is removed at its end.
_RUN_OWNED = (
    "--name",
    "--detach",
    "--interactive",
    "--tty",
    "--rm",
    "--entrypoint",
    "--restart",
    "--cidfile",
    "--init",
)
_RUN_FLAGS = ("--privileged", "--read-only", "--oom-kill-disable", "--no-healthcheck", "--no-hosts")


def refuse(reason: str) -> PydanticCustomError:
    """Braces in `reason` are text."""
    return PydanticCustomError("refused", "{what}", {"what": reason})


def matching(pattern: re.Pattern[str], meaning: str) -> AfterValidator:
    """Accept texts that match the whole pattern."""

    def checked(text: str) -> str:
        if not pattern.fullmatch(text):
            raise refuse(f"{text!r} is not {meaning}")
        return text

    return AfterValidator(checked)


def parse_each(raw: dict[str, Any], parse: Callable[[str, Any], tuple[Any, str]]) -> dict[str, Any]:
    """Parse a mapping's items; report each problem under its key."""
    parsed, errors = {}, []
    for key, value in raw.items():
        parsed[key], problem = parse(key, value)
        if problem:
            errors.append(InitErrorDetails(type=refuse(problem), loc=(key,), input=value))
    if errors:
        raise ValidationError.from_exception_data("mapping", errors)
    return parsed


def _line(text: str) -> str:
    if not text.strip() or text != text.strip():
        raise refuse("must not be empty, or start or end with blanks")
    if not text.isprintable():
        raise refuse(f"{text!r} holds a line break or another control character")
    if problem := values.value_problem(text):
        raise refuse(problem)
    return text


def _name(text: str) -> str:
    if not NAME.fullmatch(text) or len(text) > 80:
        raise refuse(
            f"{text!r} is not a name; accepted: up to 80 letters, digits, '.', '_' and '-', "
            f"starting with a letter or digit"
        )
    return text


def _slurm_value(text: str) -> str:
    if re.search(r"[\s\"'#\\]", _line(text)):
        raise refuse(
            f"{text!r} holds a blank, a quote, # or a backslash, which sbatch takes for a sign of "
            "its own in #SBATCH lines; write it without"
        )
    return text


def _batch(text: str) -> str:
    if not (text.isascii() and text.isdecimal()) or text.startswith("0"):
        raise refuse(
            f'{text!r} is not a global batch; accepted: a whole number in quotes such as "512"'
        )
    return text


def _ruleset(text: str) -> str:
    if text != OWN and not _VERSION.fullmatch(text):
        raise refuse(
            f"{text!r} is no ruleset; accepted: the round whose MLPerf rules count, such as "
            '"6.0.0", '
            f"or {OWN} for a workload that is no MLPerf benchmark (docs/scoring.md)"
        )
    return text


def _form(text: str) -> str:
    if text.count("{}") != 1:
        raise refuse(f"{text!r} must have {{}} once, as the place of the value")
    unknown = [name for name in _BRACED.findall(text) if name not in values.REFS]
    if unknown:
        raise refuse(f"{{{unknown[0]}}} is no fact; accepted: {', '.join(values.REFS)}")
    return _line(text)


def _absolute(text: str) -> str:
    if not text.startswith("/"):
        raise refuse(f"{text!r} is not an absolute path; write it from / on")
    _line(text)
    if ".." in text.split("/"):
        raise refuse(f"{text!r} goes through '..'; write the path it leads to")
    return text


def is_file_name(text: str) -> bool:
    """Return whether a profile is named by its file."""
    return "/" in text or text.endswith((".yaml", ".yml"))


def _profile(text: str) -> str:
    return _absolute(text) if is_file_name(text) else _name(text)


def _log_dir(text: str) -> str:
    if "\\" in _absolute(text):
        raise refuse(
            f"{text!r} holds a backslash, which sbatch --output takes for a sign of its own; use "
            "another folder"
        )
    return text


def _relative(text: str) -> str:
    if text.startswith("/") or ".." in text.split("/"):
        raise refuse(
            f"{text!r} must be a path below the data folder, without a leading / and without '..'"
        )
    return _line(text)


def _variable(text: str) -> str:
    if problem := values.name_problem(text):
        raise refuse(problem)
    return text


def _passed(text: str) -> str:
    """Parse a name; never quote other texts, which can be secrets."""
    if not values.NAME.fullmatch(text):
        raise refuse(
            "must be the name of a variable alone (letters, digits and _); its value comes from "
            "the environment"
        )
    return _variable(text)


def _run_option(text: str) -> str:
    """Refuse options that tie a container to its job."""
    _refuse_secrets(text)
    _line(text)
    option = re.match(r"--?[A-Za-z][A-Za-z-]*", text)
    if not option:
        # Not quoted: it can be the value of `-e` in the item before.
        raise refuse(
            "this is not an option of the engine's `run`; write it as one word, such as --cpus=32"
        )
    if option[0] in ("--env", "--env-file", "-e"):
        raise refuse(
            "variables have keys of their own: `env`, `network.env`, `pass_env` and "
            "`container.env_files`"
        )
    if option[0] in _RUN_OWNED or not text.startswith("--"):
        raise refuse(
            f"{option[0]} cannot be set by a site: it is part of how containers live and end with "
            "their job"
        )
    if "=" not in text and option[0] not in _RUN_FLAGS:
        raise refuse(f"{option[0]} has no value; write it as one word: {option[0]}=VALUE")
    return text


def _proxy(text: str) -> str:
    """Parse a proxy's address. A user name or password is refused without quoting it."""
    if "@" in text:
        raise refuse(
            "the address holds a user name or password: write it without them, or leave the key "
            f"out; {values.LOGIN_HINT} (https_proxy)"
        )
    if not _PROXY.fullmatch(text):
        raise refuse(f"{text!r} is not a proxy; accepted: http://HOST:PORT or https://HOST:PORT")
    return text.rstrip("/")


def _reached(text: str) -> str:
    if not _REACHED.fullmatch(text):
        raise refuse(f"{text!r} is not a host; accepted: HOST, or HOST:PORT (443 by default)")
    return text


def _direct(raw: object) -> object:
    """Split the variable no_proxy, and parse each host."""
    listed = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(listed, list) or not all(isinstance(host, str) for host in listed):
        return listed
    hosts = [host.strip() for host in listed]
    for host in hosts:
        if not _DIRECT.fullmatch(host):
            raise refuse(
                f"{host!r} is not a host; accepted: a name, a domain (.cluster), an address, a "
                "network (10.0.0.0/8), or *"
            )
    return hosts


def _time_limit(raw: object) -> object:
    if type(raw) is int:
        if not 1 <= raw <= 525_600:
            raise refuse(f"{raw} minutes; accepted: 1 to 525600 (a year)")
        return str(raw)
    if isinstance(raw, str) and not _TIME.fullmatch(raw):
        raise refuse(
            f"{raw!r} is not a time; accepted: minutes, or Slurm's HH:MM:SS, D-HH, D-HH:MM, "
            "D-HH:MM:SS"
        )
    if isinstance(raw, str) and not re.search("[1-9]", raw):
        raise refuse(f"{raw!r} is no limit to sbatch; leave it out for the time that the runs need")
    return raw


def _true_false_unknown(raw: object) -> object:
    if raw is True or raw is False or raw == "unknown":
        return raw
    raise refuse(f"{raw!r} is not accepted; accepted: true, false, unknown")


def _joined(raw: object) -> object:
    return (
        ",".join(raw)
        if isinstance(raw, list) and raw and all(isinstance(line, str) for line in raw)
        else raw
    )


def _listed(raw: object) -> object:
    return [raw] if isinstance(raw, str) else raw


def _refuse_secrets(text: str) -> None:
    for problem in filter(None, map(values.secret_problem, _ASSIGNED.findall(text))):
        raise refuse(problem)


def _sbatch(text: str) -> str:
    _refuse_secrets(text)  # --export can carry secrets
    _line(text)
    if text.startswith("#"):
        raise refuse(f"{text!r}: write the option alone, without #SBATCH")
    match = _SBATCH_OPTION.match(text)
    if not match:
        raise refuse(f'{text!r} is not an sbatch option; accepted: lines such as "--mem=0"')
    for problem in filter(None, map(_refused_option, _words(text))):
        raise refuse(problem)
    return text


def _words(text: str) -> list[str]:
    """Split a #SBATCH line as sbatch does, which itself refuses a missing quote."""
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def _refused_option(word: str) -> str:
    """Return why an option of sbatch is refused, or "". getopt accepts a long option's start, and a
    short option with its value or after others."""
    match = _SBATCH_OPTION.match(word)
    short = _SHORT.match(word)
    for option, problem in _SBATCH_REFUSED.items():
        if match and option.startswith("--") and option.startswith(match[1]):
            return problem.format(option)
        if short and option == f"-{short[0][-1]}":
            return problem.format(option)
    return ""


def sbatch_problem(text: str) -> str:
    """Return the problem of an sbatch option, or ""."""
    try:
        _sbatch(text)
    except PydanticCustomError as error:
        return error.message()
    return ""


def _env(raw: object) -> object:
    return parse_each(raw, _env_item) if isinstance(raw, dict) else raw


def _env_item(name: str, raw: Any) -> tuple[Any, str]:
    value, problem = values.parse_value(raw)
    secret = "" if raw is None else values.secret_problem(name)
    empty = "" if value is None else values.empty_problem(name, value)
    return value, values.name_problem(name) or secret or problem or empty


def _paths(raw: object) -> object:
    return parse_each(raw, _path_item) if isinstance(raw, dict) else raw


def _path_item(name: str, raw: Any) -> tuple[Any, str]:
    if problem := values.name_problem(name):
        return raw, problem
    if not isinstance(raw, str):
        return raw, "must be an absolute path in quotes"
    try:
        _absolute(raw)
    except PydanticCustomError as error:
        return raw, error.message()
    return (
        raw,
        f"{raw!r} holds a `:`, which ends a path for the engine's --volume; use another folder"
        if ":" in raw
        else "",
    )


Line = Annotated[str, AfterValidator(_line)]
Name = Annotated[str, AfterValidator(_name)]
Round = Annotated[str, matching(_ROUND, 'a round; accepted: two numbers such as "6.0"')]
Batch = Annotated[str, AfterValidator(_batch)]
Ruleset = Annotated[str, AfterValidator(_ruleset)]
Form = Annotated[str, AfterValidator(_form)]
LogDir = Annotated[str, AfterValidator(_log_dir)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
ProfileName = Annotated[str, AfterValidator(_profile)]
RelativePath = Annotated[str, AfterValidator(_relative)]
_FORMS = "NAME:TAG or NAME@sha256:DIGEST"
Image = Annotated[str, matching(_IMAGE, f"an image reference; accepted: {_FORMS}")]
Variable = Annotated[str, AfterValidator(_variable)]
PassedName = Annotated[str, AfterValidator(_passed)]
ProxyAddress = Annotated[str, AfterValidator(_proxy)]
ReachedHost = Annotated[str, AfterValidator(_reached)]
DirectHosts = Annotated[
    list[str],
    BeforeValidator(_direct),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}}),
]
TimeLimit = Annotated[
    str, BeforeValidator(_time_limit), WithJsonSchema({"type": ["integer", "string"]})
]
TrueFalseUnknown = Annotated[
    bool | str,
    BeforeValidator(_true_false_unknown),
    WithJsonSchema({"enum": [True, False, "unknown"]}),
]
Joined = Annotated[
    Line,
    BeforeValidator(_joined),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}}),
]
Lines = Annotated[
    list[Line],
    BeforeValidator(_listed),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}}),
]
SlurmValue = Annotated[str, AfterValidator(_slurm_value)]
SlurmValues = Annotated[
    list[SlurmValue],
    BeforeValidator(_listed),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}}),
]
SbatchLine = Annotated[str, AfterValidator(_sbatch)]
RunOption = Annotated[str, AfterValidator(_run_option)]
Count = Annotated[int, Field(ge=1, le=100_000)]
Size = Annotated[int, Field(ge=1, le=10_000_000)]


def _only(**keys: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": keys,
        "required": [*keys],
        "additionalProperties": False,
    }


_MINUTES = _only(
    fixed={"type": "integer", "description": "Minutes, however many runs."},
    per_run={"type": "integer", "description": "Minutes for each run."},
)
ENV_SCHEMA: dict[str, Any] = {
    "type": "object",
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    "additionalProperties": {
        "anyOf": [
            {"type": ["string", "null"]},
            _only(
                ref={"enum": list(values.REFS), "description": "The system's value of this name."}
            ),
            _only(
                unique={
                    "type": "string",
                    "description": "Text before a time stamp, new for every job.",
                }
            ),
            _only(
                minutes={
                    **_MINUTES,
                    "description": "fixed + NEXP x per_run, computed when the bundle starts.",
                }
            ),
        ]
    },
}
Env = Annotated[dict[str, Any], BeforeValidator(_env), WithJsonSchema(ENV_SCHEMA)]
DataFolders = Annotated[
    dict[str, str],
    BeforeValidator(_paths),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
]
