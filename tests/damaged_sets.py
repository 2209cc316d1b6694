"""A set folder with every small file that there is, and ways to damage one of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import set_of_logs as sets

UNIT = "\x1f"
CHECKS = "node\tcheck\tverdict\tms\ttext\tremedy\nnode-a\tengine\tpass\t2\tdocker 27\t\n"
DEEP = "round\tnodes\tway\tbytes\tseconds\tbusbw_gbps\twrong\tnote\nall\tnode-a,node-b\trccl\t536870912\t0.003\t120.5\t0\t\n"


def events(*rows: tuple[str, str, str, str]) -> str:
    """The text of an event file: (from, word, node, detail) one second apart."""
    return "".join(
        f"{1_777_000_001_000 + 1000 * k}\t" + "\t".join(row) + "\n" for k, row in enumerate(rows)
    )


def full_set(log_dir: Path, runs: int = 10) -> Path:
    """A finished set on two nodes, with everything that jobs leave."""
    root = sets.make_set(log_dir, sets.logs(sets.MI355X)[:runs], nexp=runs)
    (root / "submissions/1.json").write_text(
        json.dumps(
            {"number": 1, "state": "submitted", "job_id": "7", "requested_ms": 1_777_000_000_000}
        )
    )
    (root / "bundle/origins.tsv").write_text(
        "variable\tlayer\tfile\tline\tsource\nLR\tsystem\ta.yaml\t7\ta page\n"
    )
    (root / "preflight").mkdir()
    (root / "preflight/7.tsv").write_text(CHECKS)
    (root / "preflight/deep-7.tsv").write_text(DEEP)
    (root / "events-7.tsv").write_text(
        events(("loop", "aside", "node-c", UNIT.join(("check", "no GPU", "0", "0"))))
    )
    (root / "nodes/node-a/hardware.json").write_text(
        json.dumps({"schema": 1, "host_processor_model_name": "EPYC"})
    )
    (root / "runs/1/attempt_1/start.tsv").write_text("node\tfield\tvalue\n*\trocm\t7.0\n")
    (root / "runs/1/attempt_1/node_0.log").write_bytes((root / "runs/1/result_1.txt").read_bytes())
    return root


SMALL_FILES = (
    "set.json",
    "submissions/1.json",
    "jobs/7.json",
    "events-7.tsv",
    "environment.sh",
    "bundle/manifest.json",
    "bundle/origins.tsv",
    "nodes/node-a/tunables.tsv",
    "nodes/node-a/hardware.json",
    "preflight/7.tsv",
    "preflight/deep-7.tsv",
    "runs/1/state.json",
    "runs/1/attempt_1/state.json",
    "runs/1/attempt_1/start.tsv",
    "runs/1/attempt_1/node_0.json",
)


def _numbers(path: Path, value: str) -> None:
    """Every number in the file becomes `value`, which Python's reader of JSON takes."""
    try:
        members = json.loads(path.read_bytes())
    except ValueError:
        path.write_text("\t".join([value] * 9) + "\n")
        return
    marked = {
        name: "@" if isinstance(member, (int, float)) else member
        for name, member in members.items()
    }
    path.write_text(json.dumps(marked).replace('"@"', value))


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "junk": lambda path: path.write_bytes(bytes(range(256)) * 20 + b"\n\t\t\t\t\t\t\t\t\n"),
    "empty": lambda path: path.write_bytes(b""),
    "another type": lambda path: path.write_text("[[], {}, null, 1e999]\n"),
    "a folder": _directory,
    "a pipe": _pipe,
    "a link to itself": _loop,
    "100 MB": lambda path: os.truncate(path, 100_000_000),
    "nested": lambda path: path.write_text('{"a":' * 200_000),
    "NaN": lambda path: _numbers(path, "NaN"),
    "infinite": lambda path: _numbers(path, "1e999"),
    "a large number": lambda path: _numbers(path, "9" * 400),
    "a huge number": lambda path: _numbers(path, "9" * 40_000),
    "half a surrogate": lambda path: path.write_text('{"state": "\\ud800", "reason": "\\udfff"}'),
}
FOUND_ALWAYS = ("a folder", "a pipe", "a link to itself", "100 MB")
"""Damage that is a finding whatever the file is; a table of junk is an empty table."""
