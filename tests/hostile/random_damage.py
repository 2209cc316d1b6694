"""Sets with random damage, the same for the same seed: any file of a set, in any of many ways, one to four at once."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

HOSTILE_TEXT = (
    "\x1b]52;c;Zm9v\x07\x1b[2J",
    "a\nb  complete  10/10",
    "\r100 %",
    "\x9b31m",
    "\u202egnp",
    "\ud800",
    "x" * 5000,
    "=cmd|' /C calc'!A0",
    "</script><script>alert(1)</script>",
    "../../../etc",
    "",
    "\t",
    "%s%n{}{0}[/]",
)
HOSTILE_VALUES: tuple[Any, ...] = (
    *HOSTILE_TEXT,
    None,
    True,
    -1,
    0,
    0.5,
    10**9,
    10**18,
    10**400,
    -(10**30),
    1e308,
    float("nan"),
    float("inf"),
    [],
    {},
    [[[]]],
    {"a": {"b": 1}},
    [1, "a", None],
    ["\x1b[31m"],
)


def damage(root: Path, rng: random.Random) -> str:
    """Damage something in the set `root` and return what was done."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    # Half of the time what says what the set is and how it goes, which are few files among many.
    small = [path for path in files if path.suffix in (".json", ".tsv", ".sh")]
    path = rng.choice(small if rng.random() < 0.6 and small else files)
    how = rng.choice(WAYS)
    how(path, rng)
    return f"{how.__name__} {path.relative_to(root)}"


def truncated(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size + 1))


def flipped(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 20)):
        if content:
            content[rng.randrange(len(content))] = rng.randrange(256)
    path.write_bytes(content)


def inserted(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    at = rng.randrange(len(content) + 1)
    text = rng.choice(HOSTILE_TEXT).encode("utf-8", "surrogatepass")
    path.write_bytes(content[:at] + text + content[at:])


def shuffled(path: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)[:5000]
    rng.shuffle(lines)
    path.write_bytes(b"".join(lines))


def junk(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(rng.randint(0, 4000)))


def nested(path: Path, rng: random.Random) -> None:
    depth = rng.choice((50, 2000, 100_000))
    opening = rng.choice(('{"a":', "["))
    text = opening * depth
    if path.suffix in (".txt", ".log"):
        text = f':::MLLOG {{"key": "eval_accuracy", "time_ms": 1, "metadata": {{}}, "value": {text}'
    path.write_text(text)


def folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(rng.choice(("/dev/zero", "/dev/tty", "/dev/full")))


def linked(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(
        rng.choice((path.name, "/nowhere", "/etc/hostname", "/proc/self/mem", "..", "/"))
    )


def large(path: Path, rng: random.Random) -> None:
    os.truncate(
        path,
        rng.choice((20_000_000, 3_000_000_000))
        if path.suffix not in (".txt", ".log")
        else 20_000_000,
    )


def gone(path: Path, rng: random.Random) -> None:
    path.unlink()


def folder_gone(path: Path, rng: random.Random) -> None:
    shutil.rmtree(path.parent)


def folder_is_file(path: Path, rng: random.Random) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_text("not a folder\n")


def strange_names(path: Path, rng: random.Random) -> None:
    for name in (
        b"\xff\xfe.json",
        b"a\nb.json",
        b"\x1b[31m.tsv",
        b"99999999999999999999.json",
        "²".encode(),
        b"-rf",
    ):
        os.mkdir(os.path.join(os.fsencode(path.parent), name))


def strange_value(path: Path, rng: random.Random) -> None:
    """Another value of a member of a JSON file, of a cell of a table, or of an MLLOG record."""
    content = path.read_bytes()
    try:
        members = json.loads(content)
    except (ValueError, RecursionError):  # an earlier damage may be too deep to read
        members = None
    if isinstance(members, dict) and members:
        name = rng.choice(sorted(members))
        members[name] = rng.choice(HOSTILE_VALUES)
        path.write_text(json.dumps(members))
        return
    lines = content.split(b"\n")
    number = rng.randrange(len(lines))
    value = rng.choice(HOSTILE_VALUES)
    if b":::MLLOG" in content:
        record = {
            "key": "eval_accuracy",
            "value": value,
            "time_ms": rng.choice(HOSTILE_VALUES),
            "metadata": {},
        }
        record["key"] = rng.choice(
            ("eval_accuracy", "run_start", "run_stop", "seed", "submission_benchmark", "\x1b[2J")
        )
        record["metadata"] = rng.choice(({}, {"status": value}, {"samples_count": value}, value))
        lines.insert(number, b":::MLLOG " + json.dumps(record).encode())
    else:
        cells = lines[number].split(b"\t")
        cells[rng.randrange(len(cells))] = str(value).encode("utf-8", "surrogatepass")
        lines[number] = b"\t".join(cells)
    path.write_bytes(b"\n".join(lines))


WAYS: tuple[Callable[[Path, random.Random], None], ...] = (
    truncated,
    flipped,
    inserted,
    shuffled,
    junk,
    nested,
    folder,
    pipe,
    device,
    linked,
    large,
    gone,
    folder_gone,
    folder_is_file,
    strange_names,
    strange_value,
    strange_value,
    strange_value,
)


def damaged_copy(whole: Path, log_dir: Path, seed: int) -> tuple[Path, list[str]]:
    """Copy the set `whole` into `log_dir` with the damage of `seed`; returns it and what was done."""
    rng = random.Random(seed)
    root = log_dir / whole.name
    shutil.copytree(whole, root, symlinks=True)
    done = []
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        try:
            done.append(damage(root, rng))
        except (OSError, IndexError) as error:  # an earlier damage is in the way
            done.append(f"nothing: {error}")
    return root, done
