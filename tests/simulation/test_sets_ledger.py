"""The ledger of a set: clean as it is, and every attack on it, or on what it speaks of, is named."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import outputs
import pytest
from ledger_lines import load, store
from until import LIMIT_S
from worlds import Sets, exits

from orchestrator.cli import main
from orchestrator.evidence.ledger import Mismatch, marked, verify
from orchestrator.onnode.kernel.files import Files, PathLike
from orchestrator.onnode.kernel.world import World
from orchestrator.onnode.set import ledger
from orchestrator.runset.submit import mark_cancelled

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def original(place_of_worlds: Path) -> Iterator[Path]:
    """A complete set of three runs with a failed attempt, a submission and a cancel."""
    place = place_of_worlds / "ledger"
    place.mkdir()
    sets = Sets(place)
    world = sets.make(lambda me: exits(3) if me[:2] == (2, 1) else None, nodes=1, nexp=3)
    assert world.play() == 0 and world.run_set is not None
    mark_cancelled(world.run_set, world.set.job["job_id"])
    yield world.set.root
    sets.forget()


@pytest.fixture
def one(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / original.name, symlinks=True))


def kinds(root: Path) -> list[str]:
    return [entry.kind for entry in ledger.read(root)[0]]


def test_cancels_at_once_are_one_on_record(tmp_path: Path) -> None:
    """Whether it is there already is looked at by the one who may write."""
    cancelled: ledger.NewRecord = ("cancel", {"number": 1, "job_id": "7"})
    words = f"from orchestrator.onnode.set import ledger; ledger.append(ledger.Path({str(tmp_path)!r}), {cancelled!r}, once=True)"
    writers = [
        subprocess.Popen([sys.executable, "-c", words], env={**os.environ, "PYTHONPATH": str(TOP)})
        for _ in range(5)
    ]
    assert [one.wait(LIMIT_S) for one in writers] == [0] * 5
    assert kinds(tmp_path) == ["cancel"]


def test_what_was_done_is_on_record_in_order(
    original: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["attempt", "end", "result"]
    again = ["attempt", "end", *run]
    assert [kind for kind in kinds(original) if kind != "job"] == [
        "declare",
        "submit",
        *run,
        *again,
        *run,
        "cancel",
    ]
    verdict = verify(original)
    assert verdict.problems == () and not verdict.torn and not verdict.copy_of
    capsys.readouterr()
    assert main(["ledger", "verify", str(original), "--json", "--head", verdict.head]) == 0
    assert outputs.checked(capsys.readouterr().out)["head"] == verdict.head
    assert main(["ledger", "verify", str(original), "--head", "3 abc"]) == 1
    assert "no record is 3 abc" in capsys.readouterr().out


def test_what_was_declared_is_what_was_asked_for(original: Path) -> None:
    data = ledger.read(original)[0][0].data
    assert (data["set"]["nexp"], data["place"]["path"]) == (3, str(original))
    manifest = hashlib.sha256((original / "bundle/manifest.json").read_bytes()).hexdigest()
    assert data["set"]["bundle_sha256"] == manifest and data["set"]["root_seed"] > 0


def test_a_line_that_was_never_finished_is_covered_by_the_next_one(one: Path) -> None:
    with open(one / ledger.NAME, "ab") as file:
        file.write(b'{"n":99,"ki')
    verdict = verify(one)
    assert verdict.torn and verdict.problems == ()
    ledger.append(one, ("note", {"text": "after a crash"}))
    verdict = verify(one)
    assert not verdict.torn and verdict.problems == ()
    assert kinds(one)[-2:] == ["", "note"]


def test_many_writers_at_once(one: Path) -> None:
    before = len(kinds(one))
    children = []
    for number in range(4):
        child = os.fork()
        if not child:
            for turn in range(10):
                ledger.append(one, ("note", {"writer": number, "turn": turn}))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert len(kinds(one)) == before + 40 and verify(one).problems == ()


def test_a_clock_that_was_set_back_is_a_note(one: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The records of ten years ahead stay in the ledger for ever, and nobody has changed anything."""
    text = (one / ledger.NAME).read_bytes()
    prev, ahead = hashlib.sha256(text.splitlines()[-1]).hexdigest(), load(one)[-1]
    for when_ms in (ahead["time_ms"] + 3650 * 86_400_000, ahead["time_ms"] + 3_600_000):
        ahead = {**ahead, "n": ahead["n"] + 1, "prev": prev, "time_ms": when_ms, "kind": "note"}
        line = json.dumps(ahead).encode()
        text, prev = text + line + b"\n", hashlib.sha256(line).hexdigest()
    (one / ledger.NAME).write_bytes(text)
    assert main(["ledger", "verify", str(one)]) == 0
    out = capsys.readouterr().out
    assert (
        f"note: clock: record {ahead['n']}: its time, 20" in out
        and f"of record {ahead['n'] - 1}, 20" in out
    )
    assert main(["ledger", "verify", str(one), "--json"]) == 0
    told = outputs.checked(capsys.readouterr().out)
    assert told["valid"] and [step["record"] for step in told["clock"]] == [ahead["n"]]


@pytest.mark.parametrize("torn", [1, 2, 3])
def test_lines_that_were_never_finished_are_covered_by_the_next_record(
    one: Path, torn: int
) -> None:
    """A disk that is full for a while cuts off one line after another."""
    path = one / ledger.NAME
    for number in range(torn):
        before = path.stat().st_size
        ledger.append(one, ("cancel", {"number": 1, "job_id": f"torn {number}"}))
        os.truncate(path, before + 30 + number)
    ledger.append(one, ("notify", {}))
    assert verify(one).problems == ()
    lines = path.read_bytes().split(b"\n")
    for at in range(len(lines) - 2 - torn, len(lines) - 2):
        for changed in (lines[:at] + lines[at + 1 :], [*lines[:at], b"{}", *lines[at:]]):
            path.write_bytes(b"\n".join(changed))
            assert verify(one).problems != (), at


class Still(World):
    """A writer that stands still when it has read the ledger, for so long that another takes its lease and writes."""

    def __init__(self, root: Path) -> None:
        self.root: Path | None = root

    def wall_ms(self) -> int:  # asked for a record
        root, self.root = self.root, None
        if root is not None:
            (root / ledger.LOCK).unlink()
            ledger.append(root, ("notify", {"other": 1}))
        return super().wall_ms()


@pytest.mark.parametrize("once", [True, False])
def test_who_stood_still_reads_again(one: Path, once: bool) -> None:
    before = kinds(one)
    ledger.append(one, ("notify", {"late": 1}), once=once, world=Still(one))
    assert kinds(one) == [*before, "notify", "notify"] and not (one / ledger.LOCK).exists()
    assert [entry.data for entry in ledger.read(one)[0][-2:]] == [{"other": 1}, {"late": 1}]
    assert verify(one).problems == ()


class Late(Files):
    """Storage on which its writer stands still before it appends, for so long that another takes its lease and writes."""

    def __init__(self, root: Path) -> None:
        self.root: Path | None = root

    def append(self, path: PathLike, content: bytes | bytearray, *, sync: bool = False) -> int:
        root, self.root = self.root, None
        if root is not None:
            (root / ledger.LOCK).unlink()
            ledger.append(root, ("notify", {}))
        return super().append(path, content, sync=sync)


def test_a_record_that_comes_too_late_is_void_and_made_again(one: Path) -> None:
    world, said = World(), ("notify", {"late": 1})
    world.files = Late(one)
    ledger.append(one, said, once=True, world=world)
    assert verify(one).problems == () and kinds(one)[-4:] == ["notify", "", "void", "notify"]
    ledger.append(one, said, once=True)
    assert kinds(one)[-2:] == ["void", "notify"] and not (one / ledger.LOCK).exists()


class Slow(Files):
    """Storage on which its writer stands still after it has appended, for so long that another takes its lease and writes."""

    def __init__(self, root: Path) -> None:
        self.root: Path | None = root

    def append(self, path: PathLike, content: bytes | bytearray, *, sync: bool = False) -> int:
        written = super().append(path, content, sync=sync)
        root, self.root = self.root, None
        if root is not None:
            (root / ledger.LOCK).unlink()
            ledger.append(root, ("notify", {}))
        return written


@pytest.mark.parametrize("once", [True, False])
def test_a_record_that_another_one_follows_is_not_void(one: Path, once: bool) -> None:
    world, said = World(), [("notify", {"late": 1}), ("notify", {"late": 2})]
    world.files, before = Slow(one), kinds(one)
    head = ledger.append(one, *said, once=once, world=world)
    assert verify(one).problems == () and kinds(one) == [*before, *["notify"] * 3]
    assert head == ledger.head(ledger.read(one)[0]) and not (one / ledger.LOCK).exists()


def test_a_late_record_before_one_that_does_not_follow_it_is_void(one: Path) -> None:
    """Both have read the ledger before either wrote."""
    path, said = one / ledger.NAME, ("notify", {"late": 1})
    before = path.read_bytes()
    ledger.append(one, ("notify", {}))
    other = path.read_bytes()[len(before) :]
    path.write_bytes(before)
    world = World()

    class Raced(Files):
        raced = False

        def append(self, path: PathLike, content: bytes | bytearray, *, sync: bool = False) -> int:
            written = super().append(path, content, sync=sync)
            if not self.raced:
                self.raced = True
                (one / ledger.LOCK).unlink()
                super().append(path, other)
            return written

    world.files = Raced()
    ledger.append(one, said, world=world)
    assert kinds(one)[-4:] == ["", "notify", "void", "notify"]
    assert verify(one).problems == ()
    assert path.read_bytes().count(b'"late":1') == 2


# ---- attacks ----

Lines = list[dict[str, Any]]
Named = Callable[[Mismatch], bool]


def about(number: int) -> Named:
    return lambda problem: problem.record in (number - 1, number, number + 1)


def from_on(number: int) -> Named:
    """With a chain that was made anew: a record behind it that another file knows, or what it spoke of."""
    return lambda problem: problem.record >= number - 1 or bool(problem.file)


def file(name: str) -> Named:
    return lambda problem: problem.file == name


def flip(path: Path, dice: random.Random) -> None:
    content = bytearray(path.read_bytes())
    at = dice.randrange(len(content))
    content[at] ^= 1 << dice.randrange(7)
    path.write_bytes(content)


def changed(value: Any, dice: random.Random) -> Any:
    if isinstance(value, dict) and value:
        name = dice.choice(sorted(value))
        return {**value, name: changed(value[name], dice)}
    if isinstance(value, list):
        return [*value, "x"]
    if isinstance(value, bool) or value is None:
        return "x"
    return value + 1 if isinstance(value, (int, float)) else f"{value}0"


def byte_of_a_record(root: Path, dice: random.Random) -> Named:
    lines = (root / ledger.NAME).read_bytes().splitlines(keepends=True)
    at = dice.randrange(len(lines))
    line = bytearray(lines[at])
    line[dice.randrange(len(line) - 1)] ^= 1
    lines[at] = bytes(line)
    (root / ledger.NAME).write_bytes(b"".join(lines))
    return about(at + 1)


def member_of_a_record(root: Path, dice: random.Random, *, chained: bool = False) -> Named:
    lines = load(root)
    at = dice.randrange(len(lines))
    name = dice.choice(["time_ms", "by", "kind", "data"])
    lines[at] = {**lines[at], name: changed(lines[at][name], dice)}
    store(root, lines, chained=chained)
    return from_on(at + 1) if chained else about(at + 1)


def dropped(root: Path, dice: random.Random, *, chained: bool = False) -> Named:
    lines = load(root)
    at = dice.randrange(len(lines))
    del lines[at]
    store(root, lines, chained=chained)
    return (
        from_on(at + 1)
        if chained
        else lambda problem: problem.record == at + 1 or bool(problem.file)
    )


def tail_dropped(root: Path, dice: random.Random) -> Named:
    lines = load(root)
    keep = dice.randrange(1, len(lines))
    store(root, lines[:keep], chained=False)
    return lambda problem: problem.record > keep or bool(problem.file)


def moved(root: Path, dice: random.Random, *, chained: bool = False) -> Named:
    lines = load(root)
    first, second = sorted(dice.sample(range(len(lines)), 2))
    lines[first], lines[second] = lines[second], lines[first]
    store(root, lines, chained=chained)
    return from_on(first + 1) if chained else about(first + 1)


def inserted(root: Path, dice: random.Random, *, chained: bool = False) -> Named:
    lines = load(root)
    source, at = dice.randrange(len(lines)), dice.randrange(1, len(lines) + 1)
    lines.insert(at, lines[source])
    store(root, lines, chained=chained)
    return from_on(at) if chained else lambda problem: problem.record in (source + 1, at, at + 1)


def added_behind(root: Path, dice: random.Random) -> Named:
    lines = load(root)
    run = dice.randrange(4, 9)
    what = {"run": run, "attempt": 1, "rank": 0, "sha256": "0" * 64, "bytes": 7}
    store(root, [*lines, {**lines[-1], "kind": "result", "data": what}], chained=True)
    return file(f"runs/{run}/result_{run}.txt")


def cut(root: Path, dice: random.Random) -> Named:
    content = (root / ledger.NAME).read_bytes()
    (root / ledger.NAME).write_bytes(content[: dice.randrange(len(content) - 5)])
    return lambda problem: bool(problem.record or problem.file)


def result(root: Path, dice: random.Random) -> Named:
    run = dice.randrange(1, 4)
    path = root / f"runs/{run}/result_{run}.txt"
    how = dice.randrange(5)
    if how == 0:
        flip(path, dice)
    elif how == 1:
        path.write_bytes(path.read_bytes()[: -dice.randrange(1, 20)])
    elif how == 2:
        path.write_bytes(path.read_bytes() + b"more\n")
    elif how == 3:
        other = run % 3 + 1
        shutil.copy(root / f"runs/{other}/result_{other}.txt", path)
    else:
        path.unlink()
    return file(f"runs/{run}/result_{run}.txt")


def result_added(root: Path, dice: random.Random) -> Named:
    run = dice.randrange(4, 9)
    (root / f"runs/{run}").mkdir()
    shutil.copy(root / "runs/1/result_1.txt", root / f"runs/{run}/result_{run}.txt")
    return file(f"runs/{run}/result_{run}.txt")


def state_of_an_attempt(root: Path, dice: random.Random) -> Named:
    name = (
        dice.choice(
            ["runs/1/attempt_1", "runs/2/attempt_1", "runs/2/attempt_2", "runs/3/attempt_1"]
        )
        + "/state.json"
    )
    member = dice.choice(["seed", "outcome", "reason", "start_ms", "exit_codes", "state"])
    values = json.loads((root / name).read_text())
    (root / name).write_text(
        json.dumps(
            {
                **values,
                member: {"n9": 1} if member == "exit_codes" else changed(values[member], dice),
            }
        )
    )
    return file(name)


def attempt_removed(root: Path, dice: random.Random) -> Named:
    name = dice.choice(["runs/1/attempt_1", "runs/2/attempt_1", "runs/3/attempt_1"])
    shutil.rmtree(root / name)
    return file(f"{name}/state.json")


def declaration(root: Path, dice: random.Random) -> Named:
    values = json.loads((root / "set.json").read_text())
    member = dice.choice(["nexp", "root_seed", "bundle_sha256", "image", "target", "max_attempts"])
    (root / "set.json").write_text(
        json.dumps(
            {**values, member: 7 if values[member] is None else changed(values[member], dice)}
        )
    )
    return file("set.json")


def submission(root: Path, dice: random.Random) -> Named:
    path = root / "submissions/1.json"
    if dice.randrange(2):
        path.unlink()
        return lambda problem: problem.file == "submissions/1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "job_id": "8"}))
    return file("submissions/1.json")


def removed(root: Path, dice: random.Random) -> Named:
    if dice.randrange(2):
        (root / ledger.NAME).unlink()
    else:
        (root / ledger.NAME).write_bytes(b"")
    return file(ledger.NAME)


ATTACKS: list[Callable[[Path, random.Random], Named]] = [
    byte_of_a_record,
    member_of_a_record,
    lambda root, dice: member_of_a_record(root, dice, chained=True),
    dropped,
    lambda root, dice: dropped(root, dice, chained=True),
    tail_dropped,
    moved,
    lambda root, dice: moved(root, dice, chained=True),
    inserted,
    lambda root, dice: inserted(root, dice, chained=True),
    added_behind,
    cut,
    result,
    result,
    result_added,
    state_of_an_attempt,
    attempt_removed,
    declaration,
    submission,
    removed,
]


@pytest.mark.parametrize("kind", range(len(ATTACKS)))
def test_every_attack_is_named(original: Path, tmp_path: Path, kind: int) -> None:
    """Ten seeds of each of twenty kinds: two hundred."""
    for seed in range(10):
        root = Path(shutil.copytree(original, tmp_path / f"{seed}", symlinks=True))
        before = (root / ledger.NAME).read_bytes()
        named = ATTACKS[kind](root, random.Random(1000 * kind + seed))
        assert (
            not (root / ledger.NAME).exists()
            or kind > 11
            or (root / ledger.NAME).read_bytes() != before
        )
        problems = verify(root).problems
        assert any(map(named, problems)), (kind, seed, [str(one) for one in problems])
        assert all(str(one).isprintable() for one in problems)


# ---- who reads it ----


def test_two_results_of_one_run_are_refused(one: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two loops were at work: which result counts must not be chosen."""
    assert "two attempts" not in scored(one, capsys)
    shutil.copytree(one / "runs/2/attempt_2", one / "runs/2/attempt_3")
    assert "run 2 has results of attempts 2, 3" in scored(one, capsys)


def scored(root: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    main(["score", str(root), "--json"])
    told = outputs.checked(capsys.readouterr().out)
    return " ".join([*told["reasons"], *told["notes"]])


def test_a_set_that_was_chosen_from_more_runs_is_told(
    one: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "were declared" not in scored(one, capsys)
    for run in (4, 5):
        ledger.append(one, ("attempt", {"run": run, "attempt": 1, "seed": run, "nodes": []}))
    assert "5 runs are recorded, 3 declared" in scored(one, capsys)


def test_without_set_json_the_declaration_counts(
    one: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = scored(one, capsys)
    unusable = "set.json: is no JSON: Expecting value: line 1 column 1 (char 0)"
    for damage, expected in (
        (lambda: (one / "set.json").write_text(""), f"{before} {unusable}"),
        ((one / "set.json").unlink, before),
    ):
        damage()
        assert scored(one, capsys) == expected
        assert main(["status", str(one)]) == 0
        assert "complete" in capsys.readouterr().out


# ---- heads outside of the set ----


def heads(root: Path) -> dict[Path, dict[str, Any]]:
    """Return the files of a set that know a head, with their content."""
    files = [*root.glob("jobs/*.json"), *root.glob("submissions/*.json")]
    return {path: json.loads(path.read_text()) for path in files}


def forge(root: Path) -> None:
    """Improve a result as who can write all files can: the result, its record, the chain, and every head in the set."""
    result = root / "runs/1/result_1.txt"
    result.write_bytes(result.read_bytes() + b":::MLLOG forged\n")
    sha256 = hashlib.sha256(result.read_bytes()).hexdigest()
    lines, before = load(root), {one.hash: one.number for one in ledger.read(root)[0]}
    for line in lines:
        if line["kind"] == "result" and line["data"]["run"] == 1:
            line["data"].update(sha256=sha256, bytes=result.stat().st_size)
    store(root, lines, chained=True)
    now = {one.number: ledger.head([one]) for one in ledger.read(root)[0]}
    for path, known in heads(root).items():
        if known.get("ledger"):
            number = before[known["ledger"].split()[1]]
            path.write_text(json.dumps({**known, "ledger": now[number]}))


def test_a_forged_set_is_told_by_what_was_kept_elsewhere(
    one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [job] = one.glob("jobs/*.json")
    output = one / f"job_{job.stem}.out"
    [*_, last] = output.read_text().splitlines()
    head = marked(last.split()[-1])[0]
    assert head in [ledger.head([entry]) for entry in ledger.read(one)[0]]

    def verified(*words: str) -> tuple[int, dict[str, Any], str]:
        code = main(["audit", str(one), "--only", "ledger", "--json", *words])
        document = outputs.checked(capsys.readouterr().out)
        assert main(["audit", str(one), "--only", "ledger", *words]) == code
        return code, document, capsys.readouterr().out

    scontrol = tmp_path / "bin/scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text("#!/bin/sh\nexit 1\n")
    scontrol.chmod(0o755)
    (scontrol.with_name("sacct")).symlink_to(scontrol)
    monkeypatch.setenv("PATH", f"{scontrol.parent}:{os.environ['PATH']}")
    code, document, text = verified()
    assert code == 0 and f"compared with the output of job {job.stem}" in text
    assert document["compared"] == [{"source": "job output", "job_id": job.stem, "head": head}]

    forge(one)
    code, document, text = verified()
    assert code == 1 and f"is not the one that the output of job {job.stem}" in text
    output.unlink()
    code, document, text = verified()
    assert code == 0 and document["compared"] == [] and "compared only with itself" in text
    shown = "#!/bin/sh\necho 'JobId={id} JobName={name}'; echo '   Comment=for:alice {mark}'\n"
    mark = ledger.mark(head)
    scontrol.write_text(shown.format(id=job.stem, name="orch-another-set", mark=mark))
    code, document, text = verified()
    assert code == 0 and document["compared"] == [], "the id of another job"
    scontrol.write_text(shown.format(id=job.stem, name=f"orch-{one.name}", mark=mark))
    code, document, text = verified()
    assert code == 1 and f"the one that the comment of job {job.stem} in Slurm knows" in text
    assert [anchor["source"] for anchor in document["compared"]] == ["job comment"]
    scontrol.write_text("#!/bin/sh\nexit 1\n")
    code, document, text = verified("--head", head)
    assert code == 1 and f"no record is {head}" in text and "compared with --head" in text


def test_a_jobs_comment_keeps_what_the_site_wrote(tmp_path: Path) -> None:
    """The head is put next to it, and replaces an earlier one."""
    sets = Sets(tmp_path)
    world = sets.make(nodes=1, nexp=1)
    found: list[str] = []

    def note(job: Any) -> None:
        job.amend(comment="for:alice orchestrator-ledger:1:" + "0" * 64)
        found.append(job.id)

    world.jobs.at_next_loop(lambda loop: note(loop.job))
    assert world.play() == 0
    words = world.cluster.jobs[found[0]].request.comment.split()
    assert words == ["for:alice", ledger.mark(world.set.job["ledger"])]
    sets.forget()


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_slow_slurm_gets_the_head_unless_the_job_may_be_killed_soon(
    tmp_path: Path, is_cancelled: bool
) -> None:
    sets = Sets(tmp_path)
    world = sets.make(nodes=1, nexp=1)
    world.start().running(1)
    world.cluster.slow(6, for_s=1e6)
    if is_cancelled:
        world.fault("the job is cancelled")
    world.end()
    job = world.set.job
    assert job["state"] == ("paused" if is_cancelled else "complete")
    kept = world.cluster.jobs[job["job_id"]].request.comment.split()
    assert kept == ([] if is_cancelled else [ledger.mark(job["ledger"])])
    sets.forget()


def test_only_a_whole_word_is_a_head() -> None:
    sha = "a" * 64
    assert marked(f"x orchestrator-ledger:3:{sha} y") == [f"3 {sha}"]
    for text in (
        f"a-orchestrator-ledger:3:{sha}",
        f"orchestrator-ledger:3:{sha}b",
        "orchestrator-ledger:3:",
    ):
        assert marked(text) == []
    assert ledger.mark("") == ""
