"""Ways to improve a result afterwards. Each is refused or named by `audit --only ledger`, `check` or `package`, from the set's files alone."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import set_of_logs as sets
from hostile_parts import Answer, call
from ledger_lines import load, store
from recorded_set import edit, environment, keep_heads, recorded_set

from orchestrator.evidence.ledger import verify
from orchestrator.onnode.set import ledger

SLOWEST, SLOW, FAST = 2, 1, 8
"""Runs of the set: dropped as the slowest, slow and counted, and the fastest."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two sets of the same benchmark, both as they ran."""
    contents = sets.logs(sets.MI355X)
    places = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    later = [shifted(content, 1) for content in contents]
    return recorded_set(places[0], contents), recorded_set(places[1], later)


def shifted(content: bytes, days: float, seeds: int = 100_000) -> bytes:
    """A log some days later, with another seed."""
    step = round(days * 86_400_000)
    later = re.sub(rb'"time_ms": (\d+)', lambda at: b'"time_ms": %d' % (int(at[1]) + step), content)
    seed = rb'("key": "seed", "value": )(\d+)'
    return re.sub(seed, lambda at: at[1] + b"%d" % (int(at[2]) + seeds), later)


def faster(content: bytes) -> bytes:
    """A log whose run took half of the time."""
    times = [int(one) for one in re.findall(rb'"time_ms": (\d+)', content)]

    def half(at: re.Match[bytes]) -> bytes:
        return b'"time_ms": %d' % (times[0] + (int(at[1]) - times[0]) // 2)

    return re.sub(rb'"time_ms": (\d+)', half, content)


def result(root: Path, run: int) -> Path:
    return root / f"runs/{run}/result_{run}.txt"


def members(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def of_run(record: dict[str, Any], *runs: int) -> bool:
    return record["kind"] in ("attempt", "end", "result") and record["data"]["run"] in runs


def publish(root: Path, run: int, content: bytes, *, chained: bool = True) -> None:
    """Replace a result, and what the ledger says of it."""
    result(root, run).write_bytes(content)
    records = load(root)
    for record in records:
        if record["kind"] == "result" and record["data"]["run"] == run:
            sha = hashlib.sha256(content).hexdigest()
            record["data"] = {**record["data"], "sha256": sha, "bytes": len(content)}
    store(root, records, chained=chained)


# ---- the ways ----

Way = Callable[[Path, Path], object]
WAYS: dict[str, tuple[Way, str, str]] = {}
"""Name -> the way, the command that has to say so, and its words."""


def way(name: str, by: str, words: str) -> Callable[[Way], Way]:
    def kept(function: Way) -> Way:
        WAYS[name] = (function, by, words)
        return function

    return kept


@way("drop the slowest result", "verify", r"result_2\.txt: missing, but listed in the ledger")
def _(root: Path, _: Path) -> None:
    result(root, SLOWEST).unlink()


@way("drop the slowest run", "verify", r"runs/2/attempt_2/state\.json: missing")
def _(root: Path, _: Path) -> None:
    shutil.rmtree(root / f"runs/{SLOWEST}")


@way("drop a slow run and its records", "verify", r"jobs/7\.json knows it")
def _(root: Path, _: Path) -> None:
    shutil.rmtree(root / f"runs/{SLOW}")
    store(root, [one for one in load(root) if not of_run(one, SLOW)])


@way("drop a slow run everywhere", "package", "9 of 10 runs finished")
def _(root: Path, _: Path) -> None:
    shutil.rmtree(root / f"runs/{SLOW}")
    store(root, [one for one in load(root) if not of_run(one, SLOW)])
    keep_heads(root)


@way("declare fewer runs", "verify", "`nexp` is 9, and was declared as 10")
def _(root: Path, _: Path) -> None:
    members(root / "set.json", nexp=9)
    shutil.rmtree(root / f"runs/{SLOW}")


@way(
    "replace a slow result by the fastest",
    "verify",
    r"result_1\.txt: differs from the published file",
)
def _(root: Path, _: Path) -> None:
    shutil.copy(result(root, FAST), result(root, SLOW))


@way("the same log as two runs, recorded", "check", "differ|seed")
def _(root: Path, _: Path) -> None:
    publish(root, SLOW, result(root, FAST).read_bytes())
    keep_heads(root)


@way(
    "replace a result from another set", "verify", r"result_1\.txt: differs from the published file"
)
def _(root: Path, other: Path) -> None:
    shutil.copy(result(other, FAST), result(root, SLOW))


@way("best of two sets", "verify", r"runs/1/attempt_1/state\.json: .*differ from the ledger")
def _(root: Path, other: Path) -> None:
    for run in (1, 2, 6):
        shutil.rmtree(root / f"runs/{run}")
        shutil.copytree(other / f"runs/{run + 2}", root / f"runs/{run}")
        for path in (root / f"runs/{run}").rglob("state.json"):
            members(path, run=run)
        result(root, run + 2).exists() and (root / f"runs/{run}/result_{run + 2}.txt").rename(
            result(root, run)
        )


@way("the ledger of the better set", "verify", r"set\.json: `set_id`|is a copy|was declared as")
def _(root: Path, other: Path) -> None:
    shutil.copy(other / ledger.NAME, root / ledger.NAME)
    members(root / "set.json", root_seed=77)


@way("half the time in a log", "verify", r"result_1\.txt: differs from the published file")
def _(root: Path, _: Path) -> None:
    result(root, SLOW).write_bytes(faster(result(root, SLOW).read_bytes()))


@way("half the time, recorded without its chain", "verify", "it was changed")
def _(root: Path, _: Path) -> None:
    publish(root, SLOW, faster(result(root, SLOW).read_bytes()), chained=False)


@way("half the time, recorded with its chain", "verify", r"jobs/7\.json knows")
def _(root: Path, _: Path) -> None:
    publish(root, SLOW, faster(result(root, SLOW).read_bytes()))


@way("half the time, everything made anew", "head", "no record is")
def _(root: Path, _: Path) -> None:
    publish(root, SLOW, faster(result(root, SLOW).read_bytes()))
    keep_heads(root)


@way("everything made anew but the node's log", "verify", "shorter than the log|node_0")
def _(root: Path, _: Path) -> None:
    log = root / f"runs/{SLOW}/attempt_1/node_0.log"
    log.write_bytes(result(root, SLOW).read_bytes() + b"the end\n")
    publish(root, SLOW, faster(result(root, SLOW).read_bytes())[:-40] + b"\n")
    keep_heads(root)


@way("two results change places", "verify", r"result_1\.txt: differs from the published file")
def _(root: Path, _: Path) -> None:
    first, second = result(root, SLOW).read_bytes(), result(root, 3).read_bytes()
    result(root, SLOW).write_bytes(second)
    result(root, 3).write_bytes(first)


@way("records in another order", "verify", r"stands in line|is missing|it was changed")
def _(root: Path, _: Path) -> None:
    records = load(root)
    records[3], records[-1] = records[-1], records[3]
    store(root, records, chained=False)


@way("records in another order, with their chain", "verify", r"jobs/7\.json knows")
def _(root: Path, _: Path) -> None:
    records = load(root)
    records[3:6], records[-3:] = records[-3:], records[3:6]
    store(root, records)


@way("a second result of a run", "verify", "one more result|differs from the published file")
def _(root: Path, _: Path) -> None:
    content = result(root, FAST).read_bytes()
    result(root, SLOW).write_bytes(content)
    sha = hashlib.sha256(content).hexdigest()
    data = {"run": SLOW, "attempt": 1, "rank": 0, "sha256": sha, "bytes": len(content)}
    ledger.append(root, ("result", data))
    keep_heads(root)


@way("go back to before the slow runs", "verify", r"is missing, and jobs/7\.json knows it")
def _(root: Path, _: Path) -> None:
    store(root, load(root)[:20], chained=False)
    for run in range(6, 11):
        shutil.rmtree(root / f"runs/{run}", ignore_errors=True)


@way("a run more than was declared", "verify", r"result_11\.txt: is not recorded")
def _(root: Path, other: Path) -> None:
    shutil.copytree(other / f"runs/{FAST}", root / "runs/11")
    (root / f"runs/11/result_{FAST}.txt").rename(result(root, 11))


@way("eleven runs, the slowest dropped", "package", r"ledger: runs/11/\S+: missing, but")
def _(root: Path, other: Path) -> None:
    at = next(one for one in load(other) if one["kind"] == "attempt" and of_run(one, FAST))
    ledger.append(root, ("attempt", {**at["data"], "run": 11}))
    keep_heads(root)


@way("a bad run is the infrastructure's", "verify", r"attempt_1/state\.json: .*outcome")
def _(root: Path, _: Path) -> None:
    for path in (root / "runs/1/state.json", root / "runs/1/attempt_1/state.json"):
        members(path, state="failed", outcome="infrastructure", reason="node-a: lost")


@way("a lost attempt has the better result", "package", "which one counts must not be chosen")
def _(root: Path, _: Path) -> None:
    members(root / "runs/2/attempt_1/state.json", state="success", outcome="success")


@way("the lost attempt's result counts", "verify", r"attempt_1/state\.json: .*outcome")
def _(root: Path, _: Path) -> None:
    members(root / "runs/2/attempt_1/state.json", state="success", outcome="success")
    shutil.rmtree(root / "runs/2/attempt_2")


@way("an attempt that was never made", "verify", "the attempt is not recorded")
def _(root: Path, other: Path) -> None:
    shutil.copytree(other / "runs/3/attempt_1", root / "runs/3/attempt_2")
    members(root / "runs/3/attempt_2/state.json", attempt=2)


@way("another seed", "verify", "`root_seed` is 7|seed or nodes are not those on record")
def _(root: Path, _: Path) -> None:
    members(root / "set.json", root_seed=7)
    members(root / "runs/1/attempt_1/state.json", seed=7)


@way("an easier target", "verify", "`target` is 0.99, and was declared as 0.925")
def _(root: Path, _: Path) -> None:
    members(root / "set.json", target=0.99)


@way("rules of another round", "verify", r"`ruleset` is 5\.0\.0, and was declared as 5\.1\.0")
def _(root: Path, _: Path) -> None:
    members(root / "set.json", ruleset="5.0.0")


@way("the clock set back, in the set", "verify", r"start_ms, end_ms differ from the ledger")
def _(root: Path, _: Path) -> None:
    for path in root.glob("runs/9/attempt_1/state.json"):
        members(path, start_ms=1, end_ms=2)


@way("the clock set back, in the log", "verify", r"result_9\.txt: differs from the published file")
def _(root: Path, _: Path) -> None:
    result(root, 9).write_bytes(shifted(result(root, 9).read_bytes(), -30, 0))


@way("the clock set back, in the ledger", "verify", "note: clock: record 20|it was changed")
def _(root: Path, _: Path) -> None:
    records = load(root)
    for record in records[19:]:
        record["time_ms"] -= 30 * 86_400_000
    store(root, records)
    keep_heads(root)


@way(
    "edit the bundle without a word",
    "verify",
    r"bundle/config_\S+: was edited since it was declared",
)
def _(root: Path, _: Path) -> None:
    [config] = (root / "bundle").glob("config_*.sh")
    config.write_text(config.read_text() + "export LEARNING_RATE=99\n")


@way("edit the bundle and its manifest", "verify", r"bundle/manifest\.json: was edited since")
def _(root: Path, _: Path) -> None:
    [config] = (root / "bundle").glob("config_*.sh")
    config.write_text(config.read_text() + "export LEARNING_RATE=99\n")
    manifest = json.loads((root / "bundle/manifest.json").read_text())
    manifest["outputs"][config.name] = hashlib.sha256(config.read_bytes()).hexdigest()
    (root / "bundle/manifest.json").write_text(json.dumps(manifest))


@way("edit, run, and put back", "package", "differs: bundle: was edited between run 10 and runs 1")
def _(root: Path, _: Path) -> None:
    records, last = load(root), [one for one in load(root) if of_run(one, 10)]
    store(root, [one for one in records if not of_run(one, 10)])
    edit(root)
    for one in last:
        ledger.append(root, (one["kind"], one["data"]))
    edit(root, "")
    keep_heads(root)


@way("edit, run, put back, and drop the edits", "verify", r"jobs/7\.json knows")
def _(root: Path, _: Path) -> None:
    edit(root)
    keep_heads(root)
    edit(root, "")
    store(root, [one for one in load(root) if one["kind"] != "edit"])


ENVIRONMENT = "jobs/7.env.gz"


@way("another environment of the job", "verify", rf"{ENVIRONMENT}: differs from the recorded")
def _(root: Path, _: Path) -> None:
    environment(root, b'declare -x LEARNING_RATE="99"\n')


@way("no environment of the job", "verify", rf"{ENVIRONMENT}: missing, but listed in the ledger")
def _(root: Path, _: Path) -> None:
    (root / ENVIRONMENT).unlink()


@way("an environment behind that of the job", "verify", rf"{ENVIRONMENT}: differs|cannot be read")
def _(root: Path, _: Path) -> None:
    """A second member of gzip: `zcat` shows both."""
    path = root / ENVIRONMENT
    path.write_bytes(path.read_bytes() + gzip.compress(b'declare -x LEARNING_RATE="99"\n'))


@way("an environment without an end", "package", rf"{ENVIRONMENT}: differs from the recorded")
def _(root: Path, _: Path) -> None:
    content = (root / ENVIRONMENT).read_bytes()
    (root / ENVIRONMENT).write_bytes(content[:-9])


@way("an environment of zeros", "verify", rf"{ENVIRONMENT}: (differs|cannot be read)")
def _(root: Path, _: Path) -> None:
    (root / ENVIRONMENT).write_bytes(gzip.compress(bytes(64 << 20)))


@way("two halves of two sets", "verify", r"runs/6/attempt_1/state\.json: .*differ from the ledger")
def _(root: Path, other: Path) -> None:
    for run in range(6, 11):
        shutil.rmtree(root / f"runs/{run}")
        shutil.copytree(other / f"runs/{run}", root / f"runs/{run}")


@way("a copy of the set runs on", "verify", "note: this is a copy of")
def _(root: Path, _: Path) -> None:
    original = root.with_name("original")
    shutil.copytree(root, original, symlinks=True)
    records = load(root)
    place = records[0]["data"]["place"]
    records[0]["data"]["place"] = {**place, "path": str(original), "inode": 1}
    store(root, records)
    keep_heads(root)


@way("no ledger at all", "verify", "there is none, or it is empty")
def _(root: Path, _: Path) -> None:
    (root / ledger.NAME).unlink()


@way("a rehearsal that says it ran", "verify", "`created_by` is controller, and was declared as")
def _(root: Path, _: Path) -> None:
    records = load(root)
    records[0]["data"]["set"]["created_by"] = "rehearsal"
    store(root, records)
    keep_heads(root)


@way("a result that is a link", "package", "this is a link out of the set")
def _(root: Path, other: Path) -> None:
    kept = root.with_name("elsewhere")
    kept.write_bytes(result(root, SLOW).read_bytes())
    result(root, SLOW).unlink()
    result(root, SLOW).symlink_to(kept)


@way("a compressed result next to the slow one", "verify", r"missing, but listed in the ledger")
def _(root: Path, other: Path) -> None:
    packed = gzip.compress(result(other, FAST).read_bytes())
    result(root, SLOW).unlink()
    result(root, SLOW).with_suffix(".txt.gz").write_bytes(packed)


@way(
    "a last evaluation that came sooner",
    "verify",
    r"result_1\.txt: differs from the published file",
)
def _(root: Path, _: Path) -> None:
    content = result(root, SLOW).read_bytes().splitlines(keepends=True)
    stop = next(at for at, line in enumerate(content) if b'"run_stop"' in line)
    early = content[stop - 30]
    time = re.search(rb'"time_ms": \d+', early)
    assert time
    content[stop] = re.sub(rb'"time_ms": \d+', time[0], content[stop])
    result(root, SLOW).write_bytes(b"".join(content))


@way("the same set handed in twice", "package", "a submission has one set of each")
def _(root: Path, _: Path) -> None:
    pass


def test_there_are_thirty_ways() -> None:
    assert len(WAYS) >= 30


def asked(root: Path, other: Path, by: str, head: str, out: Path) -> Answer:
    again = [str(other)] if not (root / "changed").exists() else []
    package = ["package", str(root), "-o", str(out), "--submitter", "AMD", "--framework", "x"]
    return call(
        {
            "verify": ["ledger", "verify", str(root)],
            "head": ["ledger", "verify", str(root), "--head", head],
            "check": ["check", str(root)],
            "package": [package[0], *again, *package[1:]],
        }[by]
    )


def test_the_sets_are_sound(sound: tuple[Path, Path], place: Path) -> None:
    """Nothing is named before anything was done."""
    for root in sound:
        verdict = verify(root)
        assert (verdict.problems, verdict.clock, verdict.copy_of) == ((), (), "")
        (root / "changed").touch()
        for by in ("verify", "check", "package", "head"):
            answer = asked(root, root, by, verdict.head, place / root.parent.name)
            assert answer.code == 0, answer
        (root / "changed").unlink()


@pytest.mark.parametrize("name", WAYS)
def test_a_way_to_improve_a_result_is_named(
    name: str, sound: tuple[Path, Path], place: Path
) -> None:
    do, by, words = WAYS[name]
    root = place / sound[0].name
    shutil.copytree(sound[0], root, symlinks=True)
    records = load(root)  # a copy in its own place
    records[0]["data"]["place"] = {"path": str(root), "inode": root.stat().st_ino}
    store(root, records)
    submitted = next(one for one in ledger.read(root)[0] if one.kind == "submit")
    members(root / "submissions/1.json", ledger=f"{submitted.number} {submitted.hash}")
    keep_heads(root)
    verdict = verify(root)
    assert verdict.problems == ()
    do(root, sound[1])
    if name != "the same set handed in twice":
        (root / "changed").touch()
    answer = asked(root, sound[1], by, verdict.head, place / "out")
    assert re.search(words, answer.out + answer.err), answer
    noted = "note: " in words and re.search("note: (?:clock|this is a copy)", answer.out)
    assert answer.code or noted, answer
    assert not (place / "out").exists()
