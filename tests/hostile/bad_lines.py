"""Random command lines with one thing wrong in each, the same for the same seed, and the exit codes that they may have."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.cli import COMMANDS
from orchestrator.errors import ExitCode

BAD = frozenset({ExitCode.BAD_INPUT})
BAD_OR_STATE = BAD | {ExitCode.SET_STATE}

WORDS = (
    "",
    " ",
    "\n",
    "a\nb",
    "\x1b[2J",
    "\udcff\udcfe",
    "☃" * 100,
    "x" * 300,
    "y" * 5000,
    "-",
    "--",
    "~nosuch",
    "../../etc/passwd",
    "$(id)",
    "a b",
    "%s%n",
    "{ref: x}",
    "*",
    "NaN",
)
NUMBERS = (
    "0",
    "-1",
    "1e9",
    "1.5",
    "٣",
    "²",
    "nan",
    "inf",
    "0x10",
    " 7",
    "9" * 25,
    "9" * 5000,
    "",
    "1_0",
    "+",
)
NODES = (
    "n[",
    "n[1-",
    "n[5-1]",
    "n[1-99999999]",
    f"n[{'9' * 5000}]",
    "n[a]",
    "n]",
    "n[1][2][3-99][1-999]",
    "-oProxyCommand=x",
    "x" * 300,
    "a;b",
    "\x1b[31m",
    "\udcff",
    "n1=ftp://x",
    "n1=ssh://",
    "n1=tcp://127.0.0.1:x",
    "@~nosuch",
    "@FIFO",
    "@/dev/zero",
    "@FOLDER",
    "@MISSING",
    "@BINARY",
    "@LOOP",
)
ASSIGNMENTS = ("A", "=1", "1A=2", "SEED=2", "HF_TOKEN=hf_abcdefgh", "A B=1", "\x1b=1", "é=1", "")
FILES = (
    "FIFO",
    "ZERO",
    "FOLDER",
    "LOOP",
    "MISSING",
    "LONG",
    "BINARY",
    "EMPTY",
    "~nosuch/x",
    "\udcff/x",
    "HUGE",
    "a\nb",
)
SITES = (*FILES, "DEEP", "BOMB", "TWICE", "DATE", "DIGITS", "TAGGED", "RELATIVE", "BACKSLASH")
PLACES = ("/", "/proc/nowhere/x", "LONG", "LOOP", "LOOP/x", "EMPTY/x", "FULL", "FIFO")
SETS = (
    "FOLDER",
    "MISSING",
    "LONG",
    "LOOP",
    "FIFO",
    "~nosuch/x",
    "/",
    "/dev/null",
    "EMPTY",
    "\udcff/x",
    "x\n/y",
    "zzz",
)
COMMAND_WORDS = ("sudo 'x", "", "  ", '"', "\\")
ROUNDS = ("9.9", "6", "x", "-1", "\x1b", "٣.٣", "1" * 400)

POOLS: dict[str, tuple[tuple[str, ...], frozenset[ExitCode]]] = {
    "system": (tuple(word for word in (*WORDS, *FILES) if word not in ("-", "--")), BAD),
    "workload": (tuple(word for word in (*WORDS, *FILES) if word not in ("-", "--")), BAD),
    "site": (SITES, BAD_OR_STATE),
    "file": (FILES, BAD_OR_STATE),
    "out": (PLACES, BAD_OR_STATE),
    "set": (SETS, BAD_OR_STATE),
    "number": (NUMBERS, BAD),
    "count": (NUMBERS[1:], BAD),
    "seconds": (("0", "-1", "1e9", "nan", "inf", "0x10", "9" * 25, "9" * 5000, "", "+", "1s"), BAD),
    "nodes": (NODES, BAD),
    "env": (ASSIGNMENTS, BAD),
    "words": (COMMAND_WORDS, BAD),
    "round": (ROUNDS, BAD),
    "choice": (("", "x", "\x1b[2J", "HTML"), BAD),
}
"""Kind of a value -> bad ones, and what they may end with."""

LINES = (  # of words, and of KIND or KIND=GOOD where a value of POOLS can be put
    "render system workload --site site -o out --nexp number --env env --exclude nodes --round round --spares count",
    "render system workload --site site --diff set",
    "submit system workload --site site --nexp number --env env --exclude nodes --side-by-side number",
    "run system workload --site site --nexp number --interval seconds",
    "preflight system workload --site site --nodes nodes --parallel number --via choice=ssh",
    "status --site site",
    "status set",
    "watch set --interval seconds",
    "watch --site site",
    "nodes set",
    "nodes --site site",
    "logs set --run number=1 --attempt number=1",
    "logs --site site",
    "replay set",
    "cancel set",
    "resume set",
    "score set --ruleset round=6.0.0",
    "score --site site",
    "check set --ruleset round=6.0.0",
    "report set -o out --format choice=md --ruleset round=5.1.0",
    "compare set set --ruleset round=6.0.0",
    "package set -o out --submitter AMD --framework x --division choice=closed --system-json file=JSON",
    "metrics --site site -o out",
    "init -o out --scheduler local --log-dir FOLDER",
    "systems show system --workload workload",
    "systems validate file=SITE",
    "systems diff system=MI325X_08x08x32:flux1 system=MI325X_08x08x32:flux1",
    "images check --image x:1 --nodes nodes --limit number --site site --engine-command words",
    "images check system workload --site SITE --nodes nodes --round round",
    "code system workload --site site --engine unix:///nowhere -o OUT",
    "prepare workload --site site=SITE --check --round round",
    "prepare workload=llama2_70b_lora --site site=SITE --engine unix:///nowhere --force-space --hf-token-file file=TOKEN",
    "published --round round",
    "tune plan --profile file=published",
    "tune plan --nodes nodes",
    "tune verify --nodes nodes --via ssh --timeout seconds --parallel number",
    "tune facts set",
    "tune status --nodes nodes --sudo-password-fd number --via choice=ssh",
    "demo --nexp number",
    "audit set --only choice=ledger",
    "ls --site site",
    "config --site site",
    "validate file=SITE",
    "explain set",
    "score set --compliance --ruleset round=6.0.0",
    "export set -o out --format choice=csv --ruleset round=5.1.0",
    "export --site site -o out --format choice=prometheus",
    "rehearse system workload --site site --nexp number=1 --seed number --env env --exclude nodes",
)
GOOD = {
    "system": "MI325X_08x08x32",
    "workload": "flux1",
    "site": "SITE",
    "file": "MISSING",
    "out": "OUT",
    "set": "SET",
    "number": "2",
    "count": "2",
    "seconds": "1",
    "nodes": "n[1-2]",
    "env": "A=1",
    "words": "docker",
    "round": "6.0",
    "choice": "ssh",
}


@dataclass(frozen=True)
class BadLine:
    words: tuple[str, ...]
    may: frozenset[ExitCode]
    why: str


def _parts(line: str) -> tuple[list[str], list[str]]:
    """Return the kinds of the words of a line, and good values for them: KIND, KIND=GOOD, or a word as it is."""
    first, *rest = line.split()
    kinds = [word.partition("=")[0] if word.partition("=")[0] in POOLS else word for word in rest]
    goods = [word.partition("=")[2] or GOOD.get(word, word) for word in rest]
    return [first, *kinds], [first, *goods]


def good_line(line: str, places: dict[str, str]) -> tuple[str, ...]:
    """Return a command line with nothing wrong."""
    return tuple(_filled(word, places) for word in _parts(line)[1])


def bad_line(rng: random.Random, places: dict[str, str]) -> BadLine:
    """Return a command line with one thing wrong. `places`: what the words in capitals stand for."""
    words, goods = _parts(rng.choice(LINES))
    kinds = [place for place, word in enumerate(words) if place and word in POOLS]
    way = rng.choice(("value", "value", "value", "value", "option", "no value", "extra", "command"))
    made, may = list(goods), BAD
    if way == "value" and kinds:
        # Options before the wrong one only: what stands behind it may be wrong in another way.
        place = rng.choice(kinds)
        pool, may = POOLS[words[place]]
        made[place] = rng.choice(pool)
        why = f"{words[place]} {made[place]!r}"
    elif way == "no value" and any(word.startswith("-") for word in made):
        made = made[
            : max(place for place, word in enumerate(made) if word.startswith("--") or word == "-o")
            + 1
        ]
        made = [*made, "--json"] if made[-1] in ("--check", "--dry-run") else made
        why, may = (
            f"{made[-1]} without its value",
            frozenset(DOCUMENTED) if made[-1] == "--json" else BAD,
        )
    elif way == "command":
        made[0] = rng.choice(
            [*(word for word in WORDS if word != "-h"), *(name[:-1] for name in COMMANDS)]
        )
        why = f"command {made[0]!r}"
    elif way == "extra":
        made += [f"surplus-{number}" for number in range(3)]
        may = BAD_OR_STATE
        why = "words too many"
    else:
        made.insert(
            rng.randint(1, len(made)),
            rng.choice(("--nonsense", "--jsonn", "-Z", "--site-file=x", "--=", "---")),
        )
        why = "an option that there is none of"
    return BadLine(tuple(_filled(word, places) for word in made), may, why)


DOCUMENTED = frozenset(ExitCode) - {ExitCode.OK, ExitCode.INTERNAL, ExitCode.INTERRUPTED}


def _filled(word: str, places: dict[str, str]) -> str:
    head = "@" if word.startswith("@") else ""
    first, slash, rest = word.removeprefix("@").partition("/")
    return f"{head}{places[first]}{slash}{rest}" if first in places else word


def bad_lines(seeds: range, places: dict[str, str]) -> Iterator[tuple[int, BadLine]]:
    for seed in seeds:
        yield seed, bad_line(random.Random(seed), places)


def make_places(folder: Path, a_set: Path) -> dict[str, str]:
    """Make what the words in capitals stand for."""
    folder.mkdir()
    logs = folder / "logs"
    logs.mkdir()
    (folder / "FOLDER").mkdir()
    os.mkfifo(folder / "FIFO")
    (folder / "LOOP").symlink_to("LOOP")
    data = f"data: {{flux1: {{DATADIR: {logs}}}, llama2_70b_lora: {{DATADIR: {logs}}}}}"
    texts = {
        "SITE": f"log_dir: {logs}\n{data}\n".encode(),
        "JSON": b"{}",
        "TOKEN": b"hf_abcdefgh\n",
        "BINARY": b"\x00\xff\xfe\x7fELF" * 50,
        "EMPTY": b"",
        "DEEP": b"x: " + b"[" * 100_000,
        "BOMB": b"a0: &a0 [x]\n"
        + b"".join(
            b"a%d: &a%d [%s]\n" % (k, k, b",".join([b"*a%d" % (k - 1)] * 10)) for k in range(1, 12)
        ),
        "TWICE": b"log_dir: /a\nlog_dir: /b\n",
        "DATE": b"x: 2024-13-45\n",
        "DIGITS": b"x: " + b"9" * 5000 + b"\n",
        "TAGGED": b"log_dir: !!python/object/apply:os.system [id]\n",
        "RELATIVE": b"log_dir: results\n",
        "BACKSLASH": b"log_dir: /a\\b\n",
        "HUGE": b"#" * 2_000_000,
    }
    for name, content in texts.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    made = {name: str(folder / name) for name in (*texts, "FOLDER", "FIFO", "LOOP", "MISSING")}
    return made | {
        "ZERO": "/dev/zero",
        "FULL": "/dev/full/x",
        "LONG": "l" * 300,
        "OUT": str(folder / "out"),
        "SET": str(a_set),
    }
