"""Sets with random damage before every command that reads sets: no traceback, hang or wrong exit code, and `status` shows all
the same the set beside it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_parts import Answer, call
from random_damage import damaged_copy

SETS, FEW = 1000, 3
GOOD = "good"


def lines(root: Path, site: Path, out: Path) -> Iterator[list[str]]:
    """Every command about sets, as people call it."""
    one = str(root)
    yield from (
        [name, one]
        for name in ("nodes", "logs", "score", "check", "replay", "explain", "cancel", "resume")
    )
    yield from ([name, one, "--json"] for name in ("status", "nodes", "score", "check", "replay"))
    yield from (
        ["report", one, "-o", "-", "--format", kind] for kind in ("html", "md", "csv", "json")
    )
    yield from (
        ["logs", one, "--job"],
        ["logs", one, "--run", "1", "--node", "1"],
        ["logs", one, "--run", "2"],
    )
    yield from (["status", one], ["tune", "facts", one], ["status", "--site", str(site)])
    yield from (["audit", one, *more] for more in ((), ("--only", "ledger"), ("--json",)))
    yield from (["ls", "--site", str(site)], ["export", one, "-o", "-"])
    yield ["compare", one, "5.1/llama2_70b_lora/MI355X_1x8x1"]
    yield ["compare", one, str(root.parent / GOOD)]
    yield ["package", one, "-o", str(out), "--submitter", "AMD", "--framework", "x"]
    yield ["render", "MI325X_08x08x32", "flux1", "--site", str(site), "--diff", one]


def answers(place: Path, whole: Path, seed: int) -> Iterator[tuple[Answer, str]]:
    """Every command's answer about the set of `seed`, and what is wrong with it."""
    log_dir, out, site = place / "sets", place / "out", place / "site.yaml"
    shutil.rmtree(log_dir, ignore_errors=True)
    log_dir.mkdir()
    site.write_text(f"log_dir: {log_dir}\n")
    shutil.copytree(whole, log_dir / GOOD, symlinks=True)
    root, done = damaged_copy(whole, log_dir, seed)
    all_of_them = call(["status", "--site", str(site), "--json"], place.parent)
    yield all_of_them, all_of_them.problem or not_shown(all_of_them, root)
    live = any(
        one["state"] in ("unknown", "pending", "starting", "running", "ending")
        for one in json.loads(all_of_them.out)["sets"]
    )
    for words in lines(root, site, out):
        answer = call(words, place.parent)
        yield answer, f"{answer.problem} after {done}" if answer.problem else ""
        shutil.rmtree(out, ignore_errors=True)
    if not live:  # otherwise it watches for ever, as it should
        answer = call(["watch", str(root)], place.parent)
        yield answer, f"{answer.problem} after {done}" if answer.problem else ""


def not_shown(status: Answer, root: Path) -> str:
    """Both sets are rows: the good one as it is, the other one as damaged where nothing else can be said of it."""
    told = {Path(one["set"]).name: one for one in json.loads(status.out)["sets"]}
    good = told.get(GOOD, {})
    if status.code or (good.get("state"), good.get("done")) != ("complete", 10):
        return f"exit code {status.code}, the good set is {good}"
    left = (root / "jobs").is_dir() or (root / "set.json").exists()
    return "" if root.name in told or not left else "the damaged set is not shown"


def wrong(seeds: range, place: Path, whole: Path) -> list[str]:
    return [
        f"seed {seed}: {what}: {answer}"
        for seed in seeds
        for answer, what in answers(place, whole, seed)
        if what
    ]


@pytest.mark.parametrize("seed", range(FEW))
def test_a_damaged_set(seed: int, place: Path, whole: Path) -> None:
    assert wrong(range(seed, seed + 1), place, whole) == []


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, SETS, 50))
def test_a_thousand_damaged_sets(first: int, place: Path, whole: Path) -> None:
    assert wrong(range(first, first + 50), place, whole) == []


def test_damage_is_the_same_again(place: Path, whole: Path) -> None:
    told = [
        [damaged_copy(whole, place / name / str(seed), seed)[1] for seed in range(5)]
        for name in ("a", "b")
    ]
    assert told[0] == told[1] and len({str(one) for one in told[0]}) == 5
