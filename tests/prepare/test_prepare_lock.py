"""The lock on the data: who may take it over, and when."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from orchestrator.errors import InputError, SetError
from orchestrator.prepare.lock import STALE_S, DataHolder, DataLock


def nothing() -> None:
    pass


def someone(path: Path, **changes: object) -> DataHolder:
    """This process as the holder, but for `changes`; written, as if just touched."""
    holder = replace(DataLock(path, nothing).me, token="another", **changes)  # type: ignore[arg-type]
    path.write_text(json.dumps(asdict(holder)))
    return holder


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_it_is_taken_and_released(path: Path) -> None:
    with DataLock(path, nothing) as lock:
        lock.confirm()
        with pytest.raises(SetError, match=f"process {os.getpid()} on "), DataLock(path, nothing):
            pass
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    "changes", [{"boot": "another"}, {"pids": "pid:[1]"}, {"boot": ""}, {"host": "node9", "boot": "9"}]
)
def test_anothers_process_may_live_until_it_was_not_heard_of_for_long(path: Path, changes: dict[str, object]) -> None:
    """A pid says nothing on another machine, after another boot or in another container, whatever the name."""
    someone(path, pid=2**22 + 1, **changes)
    age(path, STALE_S - 30)
    with pytest.raises(SetError, match="it was heard of 9[0-9] s ago"), DataLock(path, nothing):
        pass
    age(path, STALE_S + 1)
    with DataLock(path, nothing) as lock:
        lock.confirm()
    assert list(path.parent.iterdir()) == []


def test_a_process_of_this_machine_that_is_over_is_known_to_be(path: Path) -> None:
    over = subprocess.Popen(["true"])
    someone(path, pid=over.pid, start=1)
    over.wait()
    with DataLock(path, nothing):
        pass
    someone(path, start=1)  # the pid lives, but it is another process
    with DataLock(path, nothing):
        pass


def test_a_lock_that_cannot_be_read_is_held_until_it_is_old(path: Path) -> None:
    path.write_text("")
    with pytest.raises(SetError, match="unknown host"), DataLock(path, nothing):
        pass
    age(path, STALE_S + 1)
    with DataLock(path, nothing):
        pass


def test_the_holder_is_heard_of(path: Path) -> None:
    with DataLock(path, nothing, beat_s=0.02):
        age(path, 1000)
        until = time.monotonic() + 30
        while time.time() - path.stat().st_mtime > 100:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_who_lost_it_is_told_and_does_not_remove_anothers(path: Path) -> None:
    told = threading.Event()
    with DataLock(path, told.set, beat_s=0.02) as lock:
        other = someone(path, host="node9")
        assert told.wait(30)
        with pytest.raises(SetError, match="on node9; it took over"):
            lock.confirm()
    assert json.loads(path.read_text()) == asdict(other)


def test_of_many_that_find_an_old_one_at_once_one_goes_on(path: Path) -> None:
    for _ in range(20):
        someone(path, boot="another")
        age(path, STALE_S + 1)
        start, done = threading.Barrier(8, timeout=60), threading.Barrier(8, timeout=60)

        def go(start: threading.Barrier = start, done: threading.Barrier = done) -> bool:
            start.wait()
            try:
                with DataLock(path, nothing) as lock:
                    done.wait()
                    with suppress(SetError):  # two that remove the same old one can cross
                        lock.confirm()
                        return True
            except SetError:
                done.wait()
            return False

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(lambda _: go(), range(8))) <= 1
        path.unlink(missing_ok=True)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be made"), DataLock(tmp_path / "gone/lock", nothing):
        pass
