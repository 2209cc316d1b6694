"""Archives of images that somebody made: nothing outside the folder is written, and no link leads there."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.container.unpack import Unpacked, unpack
from orchestrator.errors import InputError

LONG = "d" * 247
Member = tuple[str, bytes, str, bytes]
"""Name, type, target of a link, content."""


def archive(*members: Member) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, target, content in members:
            about = tarfile.TarInfo(name)
            about.type, about.linkname, about.size = kind, target, len(content)
            about.mode = 0o6777
            tar.addfile(about, io.BytesIO(content))
    stream.seek(0)
    return stream


def unpacked(folder: Path, *members: Member) -> Unpacked:
    folder.mkdir(exist_ok=True)
    with tarfile.open(fileobj=archive(*members), mode="r|") as tar:
        return unpack(tar, folder)


def file(name: str, content: bytes = b"x") -> Member:
    return name, tarfile.REGTYPE, "", content


def link(name: str, target: str) -> Member:
    return name, tarfile.SYMTYPE, target, b""


def hard(name: str, target: str) -> Member:
    return name, tarfile.LNKTYPE, target, b""


def chain() -> list[Member]:
    """Links whose real path is longer than any resolver takes: CVE-2025-4517."""
    members, place = list[Member](), "w"
    for letter in "abcdefghijklmnop":
        members.append((f"{place}/{LONG}", tarfile.DIRTYPE, "", b""))
        members.append(link(f"{place}/{letter}", LONG))
        place += f"/{LONG}"
    short = "w/" + "/".join("abcdefghijklmnop")
    members.append(link(f"{short}/{'l' * 254}", "../" * 16))
    members.append(link("w/escape", f"{short[2:]}/{'l' * 254}/../../outside"))
    members += [hard("w/flaglink", "w/escape/flag"), file("w/flaglink", b"overwritten")]
    return members


ATTACKS = {
    "a chain longer than a path": chain(),
    "through a link": [link("w/out", "../../outside"), file("w/out/flag", b"overwritten")],
    "through a link to everything": [link("w/out", "/"), file("w/out/tmp/flag")],
    "a hard link to a link": [
        link("w/out", "../../outside/flag"),
        hard("w/more", "w/out"),
        file("w/more", b"overwritten"),
    ],
    "a link replaces a folder": [
        ("w/folder", tarfile.DIRTYPE, "", b""),
        link("w/folder", "../../outside"),
        file("w/folder/flag", b"overwritten"),
    ],
    "a link through a link": [
        ("w/a/b", tarfile.DIRTYPE, "", b""),
        link("w/a/b/top", "../.."),
        link("w/out", "a/b/top/../../outside"),
    ],
    "a hard link to a file outside": [hard("w/more", "../outside/flag")],
}


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_outside_is_written(name: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "flag").write_bytes(b"mine")
    try:
        found = unpacked(tmp_path / "top", *ATTACKS[name])
        assert found.left_out, "the link out is named"
    except (InputError, OSError):
        pass
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"flag": b"mine"}
    assert (outside / "flag").stat().st_nlink == 1
    inside(tmp_path / "top")


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "w/../../x", "w\0/x", "a/" * 300 + "x"])
def test_a_path_outside_is_refused(name: str, tmp_path: Path) -> None:
    about = tarfile.TarInfo(name)
    with pytest.raises(InputError, match="not to be trusted"):
        unpack([about], tmp_path)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_what_an_image_has_is_unpacked(tmp_path: Path) -> None:
    found = unpacked(
        tmp_path / "top",
        ("w", tarfile.DIRTYPE, "", b""),
        file("w/run.sh", b"first"),
        file("w/run.sh", b"second"),
        file("w/deep/er/train.py", b"train"),
        link("w/link", "deep/er/train.py"),
        link("w/deep/up", "../run.sh"),
        hard("w/same", "w/run.sh"),
        ("w/device", tarfile.CHRTYPE, "", b""),
        link("w/root", "/etc/passwd"),
        link("w/out", "../other"),
    )
    top = tmp_path / "top/w"
    assert (top / "run.sh").read_bytes() == (top / "deep/up").read_bytes() == b"second"
    assert (top / "link").read_bytes() == b"train" and (top / "same").samefile(top / "run.sh")
    assert (top / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert sorted(found.left_out) == ["w/device", "w/out", "w/root"]
    assert (found.files, found.bytes) == (3, 16)


def inside(top: Path) -> None:
    """No link leads out of the first folder below `top`, followed component by component."""
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            place = Path(folder, name)
            if place.is_symlink():
                first = top / place.relative_to(top).parts[0]
                assert not walked(place, 0) or first in (
                    walked(place, 0),
                    *walked(place, 0).parents,
                )


def walked(link: Path, depth: int) -> Path:
    """Where a link leads, as the kernel walks, without a limit on lengths."""
    here, todo = link.parent, os.readlink(link).split("/")
    for part in todo:
        if part in ("", "."):
            continue
        here = here.parent if part == ".." else here / part
        if part != ".." and here.is_symlink() and depth < 40:
            here = walked(here, depth + 1)
    return here


NAMES = st.lists(st.sampled_from(["a", "b", "c", "..", "."]), min_size=1, max_size=4).map("/".join)
KINDS = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
MEMBERS = st.tuples(NAMES, KINDS, NAMES | st.just("/outside"), st.just(b"new"))


@settings(max_examples=150)
@given(st.lists(MEMBERS, max_size=8))
def test_any_archive(tmp_path_factory: pytest.TempPathFactory, members: list[Member]) -> None:
    place = tmp_path_factory.mktemp("any")
    (place / "a").write_text("mine")
    top = place / "top"
    try:
        unpacked(
            top,
            *((name, kind, to, b"" if kind != b"0" else text) for name, kind, to, text in members),
        )
    except (InputError, OSError):
        pass
    assert sorted(path.name for path in place.iterdir()) == ["a", "top"]
    assert (place / "a").read_text() == "mine" and (place / "a").stat().st_nlink == 1
    inside(top)
