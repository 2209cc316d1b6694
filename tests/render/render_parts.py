"""What the renderer's tests share: entries with any values in them, and real bash to read them back."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from until import LIMIT_S

from orchestrator.model import Catalogue, Entry, Minutes, Site, Text, Unique, load_entry
from orchestrator.render import render_bundle

ENGINES = ("docker", "podman", "none")
NEXP = 10

# Each of these has broken some launcher's quoting.
NASTY = (
    "",
    " ",
    "  two  blanks  ",
    "'",
    '"',
    "''",
    "a'b",
    'it\'s "both"',
    "$HOME",
    "$(touch pwned)",
    "`touch pwned`",
    "${IFS}",
    "$((1+1))",
    "\\",
    "\\\\",
    "ends in \\",
    "a\\nb",
    "\n",
    "two\nlines",
    "ends in a line break\n",
    "\r\n",
    "\t",
    "a\tb",
    "-n",
    "--",
    "-e \\x41",
    "!",
    "!!",
    "a!b",
    "*",
    "?",
    "[a-z]*",
    "~",
    "~root",
    "{a,b}",
    "a;b",
    "a&b",
    "a|b",
    "a>b",
    "#",
    "#no comment",
    "a #b",
    "=",
    "a=b",
    "%s%n",
    "%",
    "\x1b[31mred\x1b[0m",
    "\x01",
    "\x7f",
    "\u00e9",
    "\u65e5\u672c\u8a9e",
    "\U0001f680",
    "\u2028",
    "\ufeff",
    "\u202e",
    "{{ entry }}",
    "{% raw %}",
    "{#",
    "$'a'",
    '$"a"',
    "EOF",
    "x" * 20_000,
    "'" * 500,
)
ANY = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=60),
)
# What the models let through where one line is asked for.
LINE = ANY.map(lambda text: "".join(char for char in text if char.isprintable())).filter(
    lambda text: text.strip()
)
PATH = LINE.map(lambda text: f"/{text}")


@cache
def triples() -> list[tuple[str, str, str]]:
    """Every system, workload and round of the catalogue."""
    return [
        (system.name, workload, name)
        for system in Catalogue().systems()
        for workload, rounds in system.workloads.items()
        for name in rounds
    ]


def an_entry(
    system: str = "MI325X_08x08x32",
    workload: str = "flux1",
    *,
    round: str | None = None,
    **site: Any,
) -> Entry:
    return load_entry(
        system, workload, round=round, site=Site(**{"log_dir": "/shared/results", **site})
    )


def with_site(entry: Entry, **values: Any) -> Entry:
    """The entry with values in its site that no site file could hold: the renderer is the last look."""
    return dataclasses.replace(entry, site=entry.site.model_copy(update=values))


def put(files: Mapping[str, bytes], folder: Path) -> Path:
    """The bundle without any of write_bundle's care."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def rendered(entry: Entry, folder: Path) -> Path:
    return put(render_bundle(entry, nexp=NEXP), folder)


def bash(
    script: str, *args: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> bytes:
    """What `script` prints in a bash that has no environment but `env`."""
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", script, "_", *args],
        env=env or {"PATH": os.environ["PATH"]},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert not done.stderr, done.stderr.decode(errors="replace")
    return done.stdout


def zero_separated(output: bytes) -> list[str]:
    """The texts of `printf '%s\\0'`."""
    assert not output or output.endswith(b"\0")
    return [text.decode("utf-8", "surrogateescape") for text in output.split(b"\0")[:-1]]


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE texts as a mapping, without what bash itself exports when it starts."""
    result = dict(text.split("=", 1) for text in texts)
    return {
        name: value for name, value in result.items() if name not in ("PWD", "SHLVL", "_", "OLDPWD")
    }


def assert_environment(result: Mapping[str, str], entry: Entry, nexp: int) -> None:
    wanted = entry.whole_env
    assert set(result) == set(wanted)
    for name, value in wanted.items():
        match value:
            case Text(text):
                assert result[name] == text, name
            case Minutes(fixed, per_run):
                assert result[name] == str(fixed + nexp * per_run), name
            case Unique(prefix):
                assert (
                    result[name].startswith(prefix) and result[name][len(prefix) :].isdecimal()
                ), name
