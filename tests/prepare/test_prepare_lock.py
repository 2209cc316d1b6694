"""The lock on the data: what is said of who has it. What a lease is: tests/onnode/test_lease.py."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from orchestrator.errors import InputError, SetError
from orchestrator.onnode.kernel.world import THIS
from orchestrator.prepare.work import data_lock


def nothing() -> None:
    pass


def test_a_second_one_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with data_lock(tmp_path / "lock", nothing) as lock:
        message = f"being prepared by process {os.getpid()} on .*; its process is at work"
        with pytest.raises(SetError, match=message), data_lock(tmp_path / "lock", nothing):
            pass
        lock.confirm()
    assert list(tmp_path.iterdir()) == []


def test_who_lost_it_does_not_go_on(tmp_path: Path) -> None:
    with data_lock(tmp_path / "lock", nothing) as lock:
        (tmp_path / "lock").write_text(json.dumps(asdict(replace(THIS.holder(), host="node9"))))
        with pytest.raises(SetError, match="on node9; it took over"):
            lock.confirm()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="cannot be written"),
        data_lock(tmp_path / "gone/lock", nothing),
    ):
        pass
