"""settings.sh of a bundle and the runs' environment (config_<SYSTEM>.sh), each evaluated once by
bash, from memory."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product

from .events import clean, number
from .program import PARTS, SITE, needs
from .settings import Settings, rows

MOST = {setting.name: setting.metadata["most"] for setting in rows() if setting.metadata["most"]}
"""Numbers settable by the caller's environment, from 1 to these."""

# Prints every value as NAME, count, values, each ended by NUL; `@` names are arrays. %s: the names.
_TELL = r"""
. "$1" || exit 1
for one in %s; do
  declare -n value=$one
  printf '%%s\0%%d\0' "$one" "${#value[@]}"
  ((${#value[@]} == 0)) || printf '%%s\0' "${value[@]}"
done
for one in "${MOUNTS[@]}"; do
  one=${one%%%%$'\t'*}
  printf '%%s\0%%d\0%%s\0' "=$one" 1 "${!one:-}"
done
"""


class SettingsError(Exception):
    """The message names the value."""


def load(files: Mapping[str, bytes], environment: Mapping[str, str] | None = None) -> Settings:
    """Raises SettingsError."""
    kinds = {setting.name: str(setting.type) for setting in rows()}
    script = _TELL % " ".join(kinds).upper()
    output = bash(script, [], environment, "settings.sh", files)
    fields = output.decode("utf-8", "surrogateescape").split("\0")
    settings: dict[str, list[str]] = {}
    while len(fields) > 1:
        name, count, fields = fields[0], int(fields[1]), fields[2:]
        settings[name], fields = fields[:count], fields[count:]
    values: dict[str, object] = {
        "data": {name[1:]: parts[0] for name, parts in settings.items() if name.startswith("=")}
    }
    for name, kind in kinds.items():
        parts = settings.get(name.upper(), [])
        text = parts[0] if parts else ""
        values[name] = (
            tuple(parts)
            if kind == "tuple[str, ...]"
            else text
            if kind == "str"
            else _number(name, text)
        )
    return Settings(**values)  # type: ignore[arg-type]


def check_parts(files: Collection[str], settings: Settings, *, deep: bool) -> None:
    """Raise SettingsError if lib/ lacks a needed part."""
    scratch = bool(settings.scratch_dir)
    wanted = needs(settings.engine, deep=deep, notifies=settings.notifies, scratch=scratch)
    for part in PARTS:
        if wanted[part.need] and not any(name.startswith(f"lib/{part.path}") for name in files):
            raise SettingsError(
                f"this bundle was rendered without lib/{part.path}; render it with "
                f"{SITE[part.need]} in the site file"
            )


def _number(name: str, text: str) -> int:
    value, limit = number(text, 9), MOST.get(name)
    if limit is not None and (value is None or not 1 <= value <= limit or text[0] == "0"):
        raise SettingsError(f"{name.upper()}={text} must be a number from 1 to {limit}")
    if value is None or value < 0:
        raise SettingsError(f"{name.upper()}={text} in settings.sh must be a number from 0")
    return value


def rehearsed(name: str, default: str, node: str) -> str:
    """Return a host folder's replacement in rehearsals (ORCH_SYS_ROOT, ...); %n: node."""
    return os.environ.get(name, default).replace("%n", node)


def bash(
    script: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None,
    file: str,
    files: Mapping[str, bytes],
) -> bytes:
    """Return a script's output; `file` is its $1. Raises SettingsError."""
    try:
        with _opened(files) as places:
            if file not in places:
                raise SettingsError(f"{file} is missing from this bundle")
            argv = ["bash", "--noprofile", "--norc", "-c", script, "bash", places[file], *arguments]
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment,
                timeout=60,
                pass_fds=[int(place.rpartition("/")[2]) for place in places.values()],
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SettingsError(f"{file} cannot be evaluated: {error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace")
        names = {place: name for name, place in places.items()}
        said = re.sub(r"/dev/fd/\d+", lambda match: names.get(match[0], match[0]), said)
        said = clean(said, 400).strip() or f"bash ended with {done.returncode}"
        raise SettingsError(f"{file} cannot be evaluated: {said}")
    return done.stdout


_ITS_FOLDER = (
    b'${BASH_SOURCE[0]%"${BASH_SOURCE[0]##*/}"}.',
    b'$(dirname "${BASH_SOURCE[0]}")',
    b"${BASH_SOURCE[0]%/*}",
)
"""How a config names its own folder, to source what lies there: as rendered (also right without a
slash, or a PATH), as people write it, and as in older bundles."""


@contextmanager
def _opened(files: Mapping[str, bytes]) -> Iterator[dict[str, str]]:
    """Put the bundle's top-level scripts into memory; yield their paths by name. Raises OSError.

    Nothing is left if this process is killed, and no other user can read or change them.
    """
    scripts = {name: text for name, text in files.items() if "/" not in name and name[-3:] == ".sh"}
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(os.fdopen(os.memfd_create("script"), "wb"))
            for name in scripts
        }
        places = {name: f"/dev/fd/{file.fileno()}" for name, file in opened.items()}
        for name, file in opened.items():
            text = scripts[name]
            for folder, (other, place) in product(_ITS_FOLDER, places.items()):
                text = text.replace(b"%b/%b" % (folder, other.encode()), place.encode())
            file.write(text)
            file.flush()
        yield places


def evaluate_config(
    files: Mapping[str, bytes], settings: Settings, nexp: int, *, timeless: bool = False
) -> bytes:
    """Evaluate the config in an empty environment; return `declare -x` lines.

    `timeless`: with empty time stamps, for `unique_names`. Raises SettingsError with bash's
    message.
    """
    script = 'set -eu; NEXP=$2; . "$1"; export -n PWD SHLVL OLDPWD _; declare -px'
    script = "date() { :; }; " * timeless + script
    config = settings.config_file
    return bash(script, [str(nexp)], {}, config, files)


def config(
    files: Mapping[str, bytes], settings: Settings, nexp: int
) -> tuple[bytes, frozenset[str]]:
    """Return the runs' environment, and its unique variables. Raises SettingsError."""
    text = evaluate_config(files, settings, nexp)
    return text, unique_names(text, evaluate_config(files, settings, nexp, timeless=True))


_WORDS = rb'"[^"\\]*(?:\\.[^"\\]*)*"|\$\'[^\'\\]*(?:\\.[^\'\\]*)*\''
# Bash prints arrays without exporting them; lines in their values are no variables.
_DECLARED = re.compile(
    rb"(?ms)^declare -([A-Za-z]*x[A-Za-z]*) ([A-Za-z_][A-Za-z0-9_]*)=(?:(%b)|\((?:[^\"'\n]|%b)*\))$"
    % (_WORDS, _WORDS)
)
_IN_DOUBLE = re.compile(rb'\\([\\"$`])')
_IN_ANSI = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|([abeEfnrtv\\'\"?]))")
_LETTERS = dict(zip(b"abeEfnrtv", b"\a\b\x1b\x1b\f\n\r\t\v"))


def declared(environment: bytes) -> dict[str, str]:
    """Return the variables of `declare -x` lines, byte for byte.

    Invalid UTF-8 becomes surrogates (errors="surrogateescape"); see `shown`. Arrays and variables
    without a value are in no process's environment.
    """
    values = {}
    for flags, name, word in _DECLARED.findall(environment):
        if word and not set(flags) & set(b"aAn"):
            raw = (
                _IN_ANSI.sub(_ansi, word[2:-1])
                if word[:1] == b"$"
                else _IN_DOUBLE.sub(rb"\1", word[1:-1])
            )
            values[name.decode()] = raw.decode("utf-8", "surrogateescape")
    return values


def unique_names(environment: bytes, timeless: bytes) -> frozenset[str]:
    """Return variables with a time stamp, which differ per job (`{unique: ...}` in a document)."""
    values, constant = declared(environment), declared(timeless)
    return frozenset(name for name, value in values.items() if value != constant.get(name))


def fingerprint(environment: bytes, unique: Collection[str]) -> str:
    """Return the SHA-256 of other variables: equal in all jobs of an unedited set."""
    values = sorted(declared(environment).items())
    text = "".join(f"{name}={value}\0" for name, value in values if name not in unique)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _ansi(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, letter = match.groups()
    if letter:
        return bytes([_LETTERS.get(letter[0], letter[0])])
    return bytes([int(octal, 8) & 255 if octal else int(hexadecimal, 16)])


def shown(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
