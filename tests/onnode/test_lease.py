"""A lease: complete when it appears, with beats, taken over from who is gone."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from sources import package_for_all
from until import LIMIT_S, make_older, until

from orchestrator.onnode.kernel.files import Files, PathLike, linked, open_new
from orchestrator.onnode.kernel.holder import Holder
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.onnode.policy.lease import STALE_S
from orchestrator.onnode.set.lease import HeldError, Lease, remove_abandoned

HEARD_OF = r"it was heard of \d+ s ago$"
"""The age depends on how long the test takes."""


@contextmanager
def held(path: Path, **more: Any) -> Iterator[Lease]:
    lease = Lease(path, THIS.holder(), **more)
    lease.take()
    try:
        yield lease
    finally:
        lease.release()


def someone(path: Path, **changes: object) -> Holder:
    """This process as the holder, but for `changes`; written, as if just touched."""
    holder = replace(THIS.holder(), token="another", **changes)  # type: ignore[arg-type]
    path.write_text(json.dumps(asdict(holder)))
    return holder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_it_is_taken_and_released(path: Path) -> None:
    with held(path) as lock:
        lock.confirm()
        with pytest.raises(HeldError, match=f"process {os.getpid()} on "), held(path):
            pass
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [{"boot": "another"}, {"pids": "pid:[1]"}, {"boot": ""}, {"host": "node9", "boot": "9"}],
)
def test_anothers_process_may_live_until_it_was_not_heard_of_for_long(
    path: Path, changes: dict[str, object]
) -> None:
    """A pid says nothing on another machine, after another boot or in another container, whatever the name."""
    someone(path, pid=2**22 + 1, **changes)
    make_older(path, 10)
    with pytest.raises(HeldError, match=HEARD_OF), held(path):
        pass
    make_older(path, STALE_S + 1)
    with held(path) as lock:
        lock.confirm()
    assert list(path.parent.iterdir()) == []


def test_a_process_of_this_machine_that_is_over_is_known_to_be(path: Path) -> None:
    over = subprocess.Popen(["true"])
    someone(path, pid=over.pid, start="1")
    over.wait()
    with held(path):
        pass
    someone(path, start="1")  # the pid lives, but it is another process
    with held(path):
        pass


def test_a_lock_that_cannot_be_read_is_held_until_it_is_old(path: Path) -> None:
    path.write_text("")
    with pytest.raises(HeldError, match="unknown host"), held(path):
        pass
    make_older(path, STALE_S + 1)
    with held(path):
        pass


def test_the_holder_is_heard_of(path: Path) -> None:
    with held(path, beat_s=0.02):
        before = path.stat().st_mtime
        make_older(path, 1000)
        until(lambda: path.stat().st_mtime >= before)


def test_who_lost_it_is_told_and_does_not_remove_anothers(path: Path) -> None:
    told = threading.Event()
    with held(path, lost=told.set, beat_s=0.02) as lock:
        other = someone(path, host="node9")
        assert told.wait(LIMIT_S)
        with pytest.raises(HeldError, match="on node9; it took over"):
            lock.confirm()
    assert json.loads(path.read_text()) == asdict(other)


def test_of_many_that_find_an_old_one_at_once_one_goes_on(path: Path) -> None:
    for _ in range(20):
        someone(path, boot="another")
        make_older(path, STALE_S + 1)
        start, done = threading.Barrier(8, timeout=LIMIT_S), threading.Barrier(8, timeout=LIMIT_S)

        def go(start: threading.Barrier = start, done: threading.Barrier = done) -> bool:
            start.wait()
            try:
                with held(path) as lock:
                    done.wait()
                    with suppress(HeldError):  # two that remove the same old one can cross
                        lock.confirm()
                        return True
            except HeldError:
                done.wait()
            return False

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(lambda _: go(), range(8))) <= 1
        path.unlink(missing_ok=True)


def test_without_hard_links_only_one_gets_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with held(path) as lease:
        assert lease.mine
        with pytest.raises(HeldError), held(path):
            pass
    assert list(path.parent.iterdir()) == []


def lost_reply(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The server makes each link, and the client gets an error: it asked twice, or gave up."""
    link = os.link

    def fails(source: PathLike, target: PathLike) -> None:
        link(source, target)
        raise OSError(number, os.strerror(number), target)

    monkeypatch.setattr(os, "link", fails)


@pytest.mark.parametrize("number", [errno.EEXIST, errno.EIO, errno.ETIMEDOUT])
def test_a_link_whose_reply_is_lost_is_ones_own(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    lost_reply(monkeypatch, number)
    with held(path) as lease:
        assert lease.mine
        with pytest.raises(HeldError), held(path):
            pass
    assert list(path.parent.iterdir()) == []


def test_a_process_that_stood_still_while_it_took_one_tries_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own file was removed as that of a dead process. The holder keeps its lease."""
    link = os.link

    def stands_still(source: PathLike, target: PathLike) -> None:
        monkeypatch.setattr(os, "link", link)
        os.unlink(source)
        link(source, target)

    with held(path) as lease:
        monkeypatch.setattr(os, "link", stands_still)
        with pytest.raises(HeldError), held(path):
            pass
        assert lease.mine
    monkeypatch.setattr(os, "link", stands_still)
    with held(path) as lease:
        assert lease.mine and os.link is link
    assert list(path.parent.iterdir()) == []


def test_failing_storage_takes_nobodys_lease_away(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with held(path) as lease:
        with monkeypatch.context() as storage:
            storage.setattr(os, "link", fails)
            storage.setattr(Files, "read_bytes", fails)
            with pytest.raises(OSError, match="Input/output error"), held(path):
                pass
        assert lease.mine
    assert list(path.parent.iterdir()) == []


def test_a_process_does_not_wait_for_a_lease_that_it_took_without_knowing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply to its link is lost, and so is the next one, which would have shown the file."""

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as storage:
        lost_reply(storage, errno.EEXIST)
        storage.setattr(Files, "state", fails)
        with pytest.raises(OSError, match="Input/output error"), held(path):
            pass
    assert path.exists()
    with held(path) as lease:
        assert lease.mine
    assert list(path.parent.iterdir()) == []


def test_a_lease_taken_at_the_second_try_is_not_given_away(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(path, THIS.holder())
    with monkeypatch.context() as storage:
        lost_reply(storage, errno.EIO)
        storage.setattr(Files, "state", lambda *_: os.stat(path / "nowhere"))
        with pytest.raises(OSError, match="Not a directory"):
            lease.take(beat=False)
    lease.take(beat=False)
    remove_abandoned()
    assert lease.mine
    lease.release()
    assert list(path.parent.iterdir()) == []


def test_a_planted_link_is_not_followed(path: Path) -> None:
    victim = path.with_name("victim")
    victim.write_text("mine")
    path.symlink_to(victim)
    new = path.with_name("new")
    new.write_text("lock")
    assert not linked(new, path, THIS.files)
    with pytest.raises(FileExistsError):
        open_new(path)
    assert victim.read_text() == "mine"


class Future(World):
    """This machine, with a clock that is years ahead."""

    @staticmethod
    def wall_ms() -> int:
        return 10_000_000_000_000


def test_age_is_measured_by_the_clock_of_the_files(path: Path) -> None:
    """A machine whose clock is wrong by a day takes nothing over."""
    someone(path, boot="another")
    with pytest.raises(HeldError, match=HEARD_OF), held(path, world=Future()):
        pass


def test_a_beat_from_the_future_counts_from_now_on(path: Path) -> None:
    """The clock of the storage was set back: nobody else would get in for as long as that."""
    someone(path, boot="another")
    make_older(path, -1_000_000)
    ahead = path.stat().st_mtime
    with pytest.raises(HeldError, match=HEARD_OF), held(path):
        pass
    assert path.stat().st_mtime < ahead - 900_000
    make_older(path, STALE_S + 1)
    with held(path):
        pass


HIDDEN = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from orchestrator.onnode.set.lease import HeldError, Lease, remove_abandoned
from orchestrator.onnode.kernel.world import THIS
try:
    Lease(Path(sys.argv[2]), THIS.holder()).take()
except HeldError as error:
    print(error)
"""


@pytest.mark.skipif(
    os.getuid() != 0, reason="only root can become another user and hide processes from them"
)
def test_another_users_process_that_proc_hides_is_alive(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """hidepid=2: to others it is as if there were no such process."""
    with tempfile.TemporaryDirectory() as name, package_for_all() as package:
        os.chmod(name, 0o777)
        lock = Path(name) / "lock"
        with held(lock):
            make_older(lock, STALE_S + 1000)
            hide = 'mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=54321 --regid=54321 --clear-groups -- "$@"'
            argv = [
                "unshare",
                "--mount",
                "sh",
                "-c",
                hide,
                "sh",
                "/usr/bin/python3",
                "-I",
                "-c",
                HIDDEN,
            ]
            done = subprocess.run(
                [*argv, str(package), str(lock)],
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            assert f"process {os.getpid()} on " in done.stdout and "is at work" in done.stdout, (
                done.stderr
            )


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Lease(tmp_path / "gone/lock", THIS.holder()).take()


class Refusing(Files):
    """Storage that refuses to remove some files, so many times."""

    def __init__(self, words: str, times: int) -> None:
        self.words, self.times = words, times

    def remove(self, path: PathLike) -> None:
        if self.times and self.words in os.fspath(path):
            self.times -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), os.fspath(path))
        super().remove(path)


@pytest.mark.parametrize("words", [".new.", ".of-", "/lock"])
@pytest.mark.parametrize("times", [1, 2])
def test_storage_that_refuses_to_remove_a_file_locks_nobody_out(
    path: Path, words: str, times: int
) -> None:
    """Neither the process itself, nor whoever comes after the one that is gone."""
    world = World()
    world.files = Refusing(words, times)
    someone(path, pid=1, start="0")
    taken = 0
    for _ in range(4):
        lease = Lease(path, world.holder(), world=world)
        with suppress(OSError):
            lease.take(beat=False)
            lease.confirm()
            lease.release()
            taken += 1
    assert taken >= 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
def test_a_disk_that_is_full_locks_nobody_out(tmp_path: Path) -> None:
    """There is room for a name, and none for what is in it."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], check=True)
    try:
        with suppress(OSError), open(tmp_path / "fill", "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                Lease(tmp_path / "lock", THIS.holder()).take()
            assert [path.name for path in tmp_path.iterdir()] == ["fill"]
            with pytest.raises(OSError, match="No space left"):
                THIS.files.create(tmp_path / "half", b"half")
            assert [path.name for path in tmp_path.iterdir()] == ["fill"]
        (tmp_path / "fill").unlink()
        with held(tmp_path / "lock") as lock:
            lock.confirm()
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)
