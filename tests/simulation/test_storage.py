"""The simulated file server: as the real storage without faults; each fault; and the records, leases and ledger on it."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.onnode import records
from orchestrator.onnode.files import Files
from orchestrator.onnode.lease import Lease
from orchestrator.onnode.policy.lease import Holder
from orchestrator.onnode.records import RunRecord
from orchestrator.onnode.world import World
from orchestrator.simulation.engine import START_MS, Engine, Killed, Process
from orchestrator.simulation.storage import Server, SimFiles

RUN = RunRecord(run=1, attempt=1, state="running", reason="x" * 200)


class Storage:
    """A server with processes on it."""

    def __init__(self, root: Path, seed: int = 1) -> None:
        root.mkdir()
        self.engine = Engine(seed)
        self.server = Server(self.engine, root)
        self.faults = self.server.faults
        self.root = root

    def process(self, host: str = "node1", dies_at: float = float("inf")) -> tuple[Process, SimFiles]:
        process = self.engine.process("test", host)
        process.dies_at = dies_at
        return process, SimFiles(self.server, process)

    def files(self, host: str = "node1") -> SimFiles:
        return self.process(host)[1]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "root")


def error_of(action: Callable[[], object]) -> int:
    """Return the errno that an action fails with, 0 if it succeeds."""
    try:
        action()
    except OSError as error:
        return error.errno or -1
    return 0


def tree(root: Path) -> dict[str, object]:
    """Return the folders, links and contents below `root`, with modes."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name, mode = str(path.relative_to(root)), path.lstat().st_mode
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = (mode, path.read_bytes() if path.is_file() else None)
    return found


def times(root: Path) -> dict[str, int]:
    """Return the times of all files and folders below `root`, in nanoseconds."""
    return {str(path.relative_to(root)): path.lstat().st_mtime_ns for path in sorted(root.rglob("*"))}


# ---- without faults it is the real storage ----


def script(chance: random.Random, length: int) -> list[tuple[str, list[Any], dict[str, Any]]]:
    """Return calls of Files with paths relative to its root; names are few, so that calls meet."""
    names = ["a", "b", "f", "f/a", "f/b", "f/g", "f/g/a", "missing/a", "l"]

    def name() -> str:
        return chance.choice(names)

    def text() -> bytes:
        return bytes([97 + chance.randrange(26)]) * chance.choice([0, 1, 40, 9000])

    makers: dict[str, Callable[[], tuple[list[Any], dict[str, Any]]]] = {
        "create": lambda: ([name(), text()], {"sync": chance.random() < 0.1}),
        "write": lambda: ([name(), text()], {}),
        "append": lambda: ([name(), text()], {"sync": chance.random() < 0.1}),
        "join": lambda: ([name(), [name(), name()]], {}),
        "rename": lambda: ([name(), name()], {}),
        "link": lambda: ([name(), name()], {}),
        "point": lambda: ([name(), chance.choice(["a", "f/../a", "f", "nowhere"])], {}),
        "remove": lambda: ([name()], {}),
        "touch": lambda: ([name()], {}),
        "make_folder": lambda: ([name()], {"parents": chance.random() < 0.5, "exist_ok": chance.random() < 0.5}),
        "remove_folder": lambda: ([name()], {}),
        "remove_tree": lambda: ([name()], {}),
        "copy_tree": lambda: ([chance.choice(["f", "f/g", "a"]), f"copy{chance.randrange(3)}"], {}),
        "sync_folder": lambda: ([name()], {}),
        "try_out": lambda: ([name()], {}),
        "open": lambda: ([name()], {}),
        "read_bytes": lambda: ([name()], {"limit": chance.choice([10, 1 << 20])}),
        "read_with_time": lambda: ([name()], {"limit": 50}),
        "names": lambda: ([name()], {}),
        "state": lambda: ([name()], {}),
        "exists": lambda: ([name()], {}),
        "has_name": lambda: ([name()], {}),
        "is_folder": lambda: ([name()], {}),
    }
    kinds = list(makers)
    calls = [("make_folder", ["f"], {})] if chance.random() < 0.7 else []
    for _ in range(length):
        kind = chance.choice(kinds)
        calls.append((kind, *makers[kind]()))
    return calls


def answer(files: Files, root: Path, method: str, args: list[Any], more: dict[str, Any]) -> object:
    """Return what a call answers, without what differs by nature: times and inode numbers."""
    place: dict[str, Callable[[Any], Any]] = {
        "point": lambda value: value,
        "join": lambda value: [root / name for name in value],
    }
    second = place.get(method, lambda value: root / value if isinstance(value, str) else value)
    given = [root / args[0], *(second(value) for value in args[1:])]
    try:
        found = getattr(files, method)(*given, **more)
        if method == "open":
            with found:
                return found.read()
    except shutil.Error as error:
        return "shutil.Error", len(error.args[0])
    except OSError as error:
        return type(error).__name__, error.errno
    if method == "names":
        return sorted(found)
    if method == "read_with_time":
        return found[0]
    if method == "state" and found is not None:
        return (found.size if not found.is_folder else 0), found.is_folder
    return found


@pytest.mark.parametrize("seed", range(60))
def test_without_faults_it_answers_as_the_real_storage(tmp_path: Path, seed: int) -> None:
    real = tmp_path / "real"
    real.mkdir()
    storage, files = Storage(tmp_path / "root", seed), Files()
    simulated = storage.files()
    for method, args, more in script(random.Random(seed), 120):
        expected = answer(files, real, method, args, more)
        assert answer(simulated, storage.root, method, args, more) == expected, (method, args, more)
        assert tree(storage.root) == tree(real), (method, args, more)


def play(root: Path, seed: int) -> tuple[dict[str, object], dict[str, int], list[object]]:
    """Return tree, times and answers of a script with time that passes, mishaps and a death."""
    storage, answers = Storage(root, seed), list[object]()
    files, chance = storage.files(), random.Random(seed)
    process, dying = storage.process(dies_at=150)
    for number, (method, args, more) in enumerate(script(chance, 200)):
        storage.engine.now += 0.1
        storage.faults.full(number % 20 > 15, room_bytes=100)
        try:
            who = files if number % 2 or not process.alive else dying
            answers.append(answer(who, root, method, args, more))
            answers.append(files.temporary("a"))
            answers.append(files.state(root / "f"))
            answers.append(files.names(root))
        except Killed:
            answers.append("killed")
    return tree(root), times(root), answers


@pytest.mark.parametrize("seed", range(10))
def test_the_same_seed_gives_the_same_tree_with_its_times_and_numbers(tmp_path: Path, seed: int) -> None:
    first, second = play(tmp_path / "root", seed), None
    shutil.rmtree(tmp_path / "root")
    second = play(tmp_path / "root", seed)
    assert first == second


def test_files_have_the_times_of_the_servers_clock(storage: Storage) -> None:
    files = storage.files()
    storage.engine.now, storage.server.clock_s = 7.5, 100.0
    files.make_folder(storage.root / "f")
    files.create(storage.root / "f/a", b"1")
    files.append(storage.root / "f/b", b"1")
    assert set(times(storage.root).values()) == {START_MS * 1_000_000 + 107_500_000_000}
    storage.engine.now = 8.5
    files.touch(storage.root / "f/a")
    state = files.state(storage.root / "f/a")
    assert state is not None and state.mtime == START_MS / 1000 + 108.5
    assert files.read_with_time(storage.root / "f/b")[1] == START_MS / 1000 + 107.5


# ---- death ----


def deaths(root: Path, action: Callable[[SimFiles, Path], object], prepare: Callable[[Path], object]) -> list[Storage]:
    """Return a storage of each step at which a process can die in `action`, after that happened."""
    found: list[Storage] = []
    while True:
        step = len(found) + 1
        storage = Storage(root.with_name(f"{root.name}{step}"), step)
        prepare(storage.root)
        process, files = storage.process(dies_at=step)
        try:
            action(files, storage.root)
        except Killed:
            pass
        if process.alive:
            return found
        before = tree(storage.root)
        for call in (lambda: files.create(storage.root / "z", b"1"), lambda: files.exists(storage.root)):  # noqa: B023
            with pytest.raises(Killed):
                call()
        assert tree(storage.root) == before
        found.append(storage)


def test_a_writer_that_dies_leaves_an_empty_or_half_file(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4
    found = deaths(tmp_path / "root", lambda files, root: files.create(root / "a", content, sync=True), lambda root: 0)
    left = [list(storage.root.iterdir()) for storage in found]
    sizes = [path[0].stat().st_size if path else None for path in left]
    assert sizes[0] is None and sizes[1] is not None and sizes[1] <= len(content) and sizes[-1] == len(content)
    assert all(content.startswith(path[0].read_bytes()) for path in left if path)


def test_a_torn_append_is_a_part_of_what_was_to_be_written(tmp_path: Path) -> None:
    sizes = set()
    for seed in range(20):
        storage = Storage(tmp_path / f"root{seed}", seed)
        _, files = storage.process(dies_at=2)
        with pytest.raises(Killed):
            files.append(storage.root / "a", b"0123456789")
        assert b"0123456789".startswith((storage.root / "a").read_bytes())
        sizes.add((storage.root / "a").stat().st_size)
    assert {0, 10} < sizes


def test_a_record_killed_at_any_step_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    old, new = RUN, replace(RUN, state="success", outcome="success")

    def prepare(root: Path) -> None:
        records.write(old, root / "state.json")

    def action(files: SimFiles, root: Path) -> None:
        records.write(new, root / "state.json", files=files)

    found = deaths(tmp_path / "root", action, prepare)
    assert len(found) >= 6
    states = [records.read(RunRecord, storage.root / "state.json") for storage in found]
    assert set(map(str, states)) == {str(old), str(new)}
    for storage in found:
        rest = [path.name for path in storage.root.iterdir() if path.name != "state.json"]
        assert len(rest) <= 1 and all(".tmp." in name for name in rest)


def test_a_tree_removed_or_copied_by_a_process_that_dies_is_there_in_part(tmp_path: Path) -> None:
    def prepare(root: Path) -> None:
        for name in ("f/a", "f/b", "f/g/a"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(b"content")

    sizes = [len(tree(one.root)) for one in deaths(tmp_path / "x", lambda f, root: f.remove_tree(root / "f"), prepare)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 5 and sizes[-1] == 1
    copy = deaths(tmp_path / "y", lambda f, root: f.copy_tree(root / "f", root / "copy"), prepare)
    sizes = [len(tree(one.root)) for one in copy]
    assert sizes == sorted(sizes) and sizes[0] == 5 and sizes[-1] == 10


# ---- faults ----


def test_a_full_disk_takes_what_fits_and_lets_go(storage: Storage) -> None:
    files, root = storage.files(), storage.root
    files.create(root / "old", bytes(50_000))
    storage.faults.full(room_bytes=1000)
    assert error_of(lambda: files.create(root / "a", bytes(20_000))) == errno.ENOSPC
    assert (root / "a").stat().st_size == 1000
    assert error_of(lambda: files.try_out(root / "probe")) == errno.ENOSPC
    assert not (root / "probe").exists()
    files.remove(root / "old")
    assert files.append(root / "b", bytes(60_000)) == 50_000
    storage.faults.none()
    files.try_out(root / "probe")


def test_on_a_full_disk_small_writes_may_fit(storage: Storage) -> None:
    files, root = storage.files(), storage.root
    storage.faults.full()
    errors = {error_of(lambda: files.append(root / "log", b"line\n")) for _ in range(100)}
    assert errors == {0, errno.ENOSPC}
    assert error_of(lambda: files.append(root / "log", bytes(5000))) == errno.ENOSPC
    storage.faults.quota()
    assert error_of(lambda: files.append(root / "log", bytes(5000))) == errno.EDQUOT


def test_a_full_disk_may_be_noticed_when_a_file_is_closed(storage: Storage) -> None:
    files, root = storage.files(), storage.root
    file = files.appender(root / "log")
    storage.faults.full(late=True)
    assert file.write(bytes(5000)) == 5000
    assert error_of(file.sync) == errno.ENOSPC
    assert file.write(bytes(5000)) == 5000
    assert error_of(file.close) == errno.ENOSPC
    assert (root / "log").stat().st_size == 0
    assert error_of(lambda: files.append(root / "log", bytes(5000))) == errno.ENOSPC


def test_read_only_storage_can_be_read(storage: Storage) -> None:
    files, root = storage.files(), storage.root
    files.make_folder(root / "f")
    files.create(root / "a", b"1")
    storage.faults.read_only()
    changes: list[Callable[[], object]] = [
        lambda: files.create(root / "b", b"1"), lambda: files.append(root / "a", b"1"), lambda: files.write(root / "a", b""),
        lambda: files.rename(root / "a", root / "b"), lambda: files.link(root / "a", root / "b"), lambda: files.touch(root / "a"),
        lambda: files.remove(root / "a"), lambda: files.make_folder(root / "g"), lambda: files.point(root / "l", "a"),
        lambda: files.remove_folder(root / "f"), lambda: files.try_out(root / "b"), lambda: files.join(root / "b", [root / "a"]),
    ]  # fmt: skip
    assert [error_of(change) for change in changes] == [errno.EROFS] * len(changes)
    files.make_folder(root / "f", exist_ok=True)
    files.remove(root / "missing")
    files.remove_tree(root / "f")
    assert files.read_bytes(root / "a") == b"1" and sorted(files.names(root)) == ["a", "f"]
    storage.faults.read_only(False)
    files.remove(root / "a")


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE, errno.ENOENT])
def test_storage_that_is_away_fails_and_comes_back(storage: Storage, error: int) -> None:
    files, root = storage.files(), storage.root
    files.create(root / "a", b"1")
    file = files.appender(root / "log")
    storage.faults.away(error=error)
    expected = errno.ESTALE if error == errno.ENOENT else error
    assert error_of(lambda: files.read_bytes(root / "a")) == error
    assert error_of(lambda: files.create(root / "b", b"1")) == error
    assert error_of(lambda: file.write(b"1")) == expected
    assert not files.exists(root / "a") and not files.has_name(root / "a") and not files.is_folder(root / "f")
    assert files.is_folder(root) == (error == errno.ENOENT)
    assert error_of(lambda: files.state(root / "a")) == (0 if error == errno.ENOENT else error)
    storage.faults.away(False)
    assert file.write(b"1") == 1 and files.exists(root / "a")


def test_only_the_host_that_is_cut_off_misses_its_storage(storage: Storage) -> None:
    one, two = storage.files("node1"), storage.files("node2")
    storage.faults.cut("node1", error=errno.EHOSTDOWN)
    assert error_of(lambda: one.create(storage.root / "a", b"1")) == errno.EHOSTDOWN
    two.create(storage.root / "a", b"1")
    storage.faults.cut("node1", False)
    assert one.exists(storage.root / "a")


def test_a_hard_mount_waits_for_its_server(storage: Storage) -> None:
    (process, files), root = storage.process(), storage.root
    storage.faults.away(hang=True)
    storage.engine.after(60.0, lambda: storage.faults.away(False))
    seen: list[float] = []
    process.after(0.0, lambda: (files.create(root / "a", b"1"), seen.append(storage.engine.now)))
    storage.engine.run(lambda: bool(seen))
    assert 60.0 <= seen[0] < 62.0
    storage.faults.away(hang=True)
    storage.engine.after(5.0, process.kill)
    process.after(0.0, lambda: files.create(root / "b", b"1"))
    storage.engine.run(lambda: not process.alive)
    assert not (root / "b").exists()


def test_handles_that_are_stale_stay_so(storage: Storage) -> None:
    one, two = storage.files("node1"), storage.files("node2")
    first, second = one.appender(storage.root / "a"), two.appender(storage.root / "b")
    storage.faults.stale_handles("node1")
    assert error_of(lambda: first.write(b"1")) == errno.ESTALE == error_of(first.size) == error_of(first.sync)
    assert second.write(b"1") == 1
    first.close()
    assert one.appender(storage.root / "a").write(b"1") == 1
    storage.faults.stale_handles()
    assert error_of(lambda: second.write(b"1")) == errno.ESTALE


def test_operations_on_slow_storage_take_time_in_which_others_go_on(storage: Storage) -> None:
    storage.faults.slow(2.0, 1.0)
    (one, files), (two, others) = storage.process("node1"), storage.process("node2")
    order: list[tuple[str, float]] = []

    def work(name: str, by: SimFiles) -> None:
        by.create(storage.root / name, b"1")
        order.append((name, storage.engine.now))

    one.after(0.0, lambda: work("a", files))
    two.after(0.5, lambda: work("b", others))
    storage.engine.run(lambda: len(order) == 2)
    assert all(now >= 2.0 for _, now in order)


def test_without_hard_links_a_lease_is_taken_all_the_same(storage: Storage) -> None:
    files, root = storage.files(), storage.root
    files.create(root / "a", b"1")
    storage.faults.no_hard_links(error=errno.EOPNOTSUPP)
    assert error_of(lambda: files.link(root / "a", root / "b")) == errno.EOPNOTSUPP
    me, world = someone(storage, files)
    lease = Lease(root / "lock", me, world=world)
    lease.take(beat=False)
    assert lease.mine


def test_what_is_not_on_the_server_meets_no_fault(storage: Storage, tmp_path: Path) -> None:
    files = storage.files()
    storage.faults.away()
    files.create(tmp_path / "local", b"1")
    assert files.read_bytes(tmp_path / "local") == b"1"


# ---- leases and the ledger on it ----


class SimWorld(World):
    """As much of a world as a lease and the ledger ask."""

    def __init__(self, storage: Storage, files: SimFiles) -> None:
        self.files, self._storage = files, storage
        self.now = lambda: storage.engine.now  # type: ignore[method-assign]
        self.pause = lambda seconds: storage.engine.pause(files.process, seconds)  # type: ignore[assignment]
        self.wall_ms = lambda: storage.engine.wall_ms  # type: ignore[method-assign]
        self.token = lambda size=8: f"{storage.engine.random.getrandbits(8 * size):0{2 * size}x}"  # type: ignore[method-assign]

    def holder(self, job: str = "", cluster: str = "", restart: int = 0) -> Holder:
        process = self.files.process  # type: ignore[attr-defined]
        return Holder(cluster, 0, process.host, process.host, "", process.pid, "1", job, restart, self.token())


def someone(storage: Storage, files: SimFiles) -> tuple[Holder, Any]:
    world = SimWorld(storage, files)
    return world.holder(), world
