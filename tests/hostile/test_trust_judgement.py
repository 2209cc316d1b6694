"""Who can replace a file or folder: its owner, its mode, its parents, and where its links lead."""

from __future__ import annotations

import grp
import os
from pathlib import Path

import pytest

from orchestrator.trust import others, replaceable


def test_owner_mode_and_parents(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(0o755)
    file = folder / "file"
    assert not others(file)  # a name that is free, where nobody else can make it
    file.write_text("")
    file.chmod(0o644)
    assert not others(file)
    file.chmod(0o666)
    assert "everybody may write" in others(file)
    file.chmod(0o644)
    folder.chmod(0o777)
    assert str(folder) in others(file) and not others(file, parents=False)
    folder.chmod(0o1777)  # others can make names in it, but not replace this one
    assert not others(file)


def test_a_group_of_several(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can give a file to any group")
    file = tmp_path / "file"
    file.write_text("")
    os.chown(file, -1, 54321)
    file.chmod(0o664)
    assert "group 54321 may write" in others(file)
    group = next(entry for entry in grp.getgrall() if entry.gr_gid)
    os.chown(file, -1, group.gr_gid)
    assert f"group {group.gr_name} may write" in others(file)
    os.chown(file, -1, 54321)
    assert not others(file, group=True)


def test_links_are_judged_with_their_targets(tmp_path: Path) -> None:
    open_folder, link = tmp_path / "open", tmp_path / "link"
    open_folder.mkdir()
    (open_folder / "file").write_text("")
    open_folder.chmod(0o777)
    link.symlink_to("open/file")
    assert str(open_folder) in others(link)
    (tmp_path / "round").symlink_to("round")
    assert "too many links" in others(tmp_path / "round")


def test_another_user(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can give a file to another user")
    file = tmp_path / "file"
    file.write_text("")
    os.chown(file, 4242, -1)
    assert "belongs to user 4242" in others(file)
    (tmp_path / "mine").symlink_to(file)
    assert "belongs to user 4242" in others(tmp_path / "mine")


def test_a_folder_in_which_names_can_be_replaced(tmp_path: Path) -> None:
    for mode, found in ((0o755, ""), (0o777, "everybody may write"), (0o1777, "")):
        tmp_path.chmod(mode)
        assert replaceable(tmp_path).startswith(found) and bool(found) == bool(
            replaceable(tmp_path)
        )
