"""Bundles on disk: all or nothing, nothing of anybody else's, no hand edit lost; and the comparison."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import outputs
import pytest
from render_parts import NEXP, an_entry
from sites import write_site

from orchestrator.cli import main
from orchestrator.errors import ExitCode, RenderError
from orchestrator.render import diff_bundle, render_bundle, write_bundle
from orchestrator.render.files import edited_files, read_bundle

FILES = render_bundle(an_entry("local_2x2x8", "builtin"), nexp=NEXP)
OTHER = render_bundle(an_entry("local_2x2x8", "builtin"), nexp=5)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True
        ).returncode
    ):
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_written_as_rendered(tmp_path: Path) -> None:
    write_bundle(FILES, tmp_path / "new/bundle")
    assert read_bundle(tmp_path / "new/bundle") == FILES
    assert edited_files(tmp_path / "new/bundle") == []
    assert os.listdir(tmp_path / "new") == ["bundle"]


def test_scripts_to_start_are_executable(tmp_path: Path) -> None:
    write_bundle(FILES, tmp_path / "b")
    executable = {name for name in FILES if (tmp_path / "b" / name).stat().st_mode & stat.S_IXUSR}
    assert {"job.sh", "run_with_docker.sh", "runtime_tunables.sh"} <= executable
    assert not {"settings.sh", "rccl_env.sh", "config_local_2x2x8.sh", "manifest.json"} & executable


def test_the_umask_holds(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_bundle(FILES, tmp_path / "b")
    finally:
        os.umask(old)
    modes = {
        stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "b", *(tmp_path / "b").rglob("*")]
    }
    assert modes == {0o750, 0o640}


def test_a_bundle_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_bundle(OTHER, tmp_path / "b")
    write_bundle(FILES, tmp_path / "b")
    assert read_bundle(tmp_path / "b") == FILES
    assert os.listdir(tmp_path) == ["b"]


def test_through_a_link_the_folder_behind_it_is_replaced(tmp_path: Path) -> None:
    write_bundle(OTHER, tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    write_bundle(FILES, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert read_bundle(tmp_path / "real") == FILES
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_the_current_folder_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RenderError, match="current folder"):
        write_bundle(FILES, Path("."))
    assert os.listdir(".") == []


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    write_bundle(FILES, tmp_path / "b")
    assert read_bundle(tmp_path / "b") == FILES


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/thesis.tex").write_text("all of it")
    for force in (False, True):
        with pytest.raises(RenderError, match="other files than a bundle"):
            write_bundle(FILES, tmp_path / "home", replace_edited=force)
    assert os.listdir(tmp_path / "home") == ["thesis.tex"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("x")
    with pytest.raises(RenderError, match="is a file"):
        write_bundle(FILES, tmp_path / "b")
    with pytest.raises(RenderError, match="cannot write the bundle"):
        write_bundle(FILES, tmp_path / "b/below")
    assert (tmp_path / "b").read_text() == "x"


@pytest.mark.parametrize("edit", ["changed", "added", "removed", "manifest"])
def test_hand_edits_are_not_lost(tmp_path: Path, edit: str) -> None:
    bundle = tmp_path / "b"
    write_bundle(OTHER, bundle)
    name = {
        "changed": "settings.sh",
        "added": "lib/own.sh",
        "removed": "rccl_env.sh",
        "manifest": "manifest.json",
    }[edit]
    (bundle / name).unlink() if edit == "removed" else (bundle / name).write_text("# mine\n")
    before = read_bundle(bundle)
    with pytest.raises(RenderError, match=f"was edited since it was rendered: {name}") as error:
        write_bundle(FILES, bundle)
    assert "--force" in error.value.hint
    assert read_bundle(bundle) == before
    write_bundle(FILES, bundle, replace_edited=True)
    assert read_bundle(bundle) == FILES


def test_a_place_that_cannot_be_written() -> None:
    with pytest.raises(RenderError, match="cannot write the bundle to /proc/nowhere/b"):
        write_bundle(FILES, Path("/proc/nowhere/b"))


def test_a_full_disk_leaves_nothing(small_disk: Path) -> None:
    with pytest.raises(RenderError, match="No space left"):
        write_bundle(FILES, small_disk / "b")
    assert os.listdir(small_disk) == []


def test_a_full_disk_leaves_the_old_bundle(small_disk: Path) -> None:
    files = {name: FILES[name] for name in ("job.sh", "settings.sh")}
    files["manifest.json"] = b'{"outputs": {}}'
    write_bundle(files, small_disk / "b")
    with pytest.raises(RenderError, match="No space left"):
        write_bundle(FILES, small_disk / "b", replace_edited=True)
    assert read_bundle(small_disk / "b") == files
    assert os.listdir(small_disk) == ["b"]


def test_a_read_only_file_system(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(RenderError, match="Read-only file system"):
        write_bundle(FILES, small_disk / "b")


def test_the_difference_in_lines(tmp_path: Path) -> None:
    write_bundle(OTHER, tmp_path / "b")
    assert list(diff_bundle(OTHER, tmp_path / "b")) == []
    lines = list(diff_bundle(FILES, tmp_path / "b"))
    assert "-use NEXP 5" in lines
    assert "+use NEXP 10" in lines
    assert [line for line in lines if line.startswith("--- ")] == [
        "--- set/README",
        "--- set/job.sh",
        "--- set/manifest.json",
        "--- set/settings.sh",
    ]


def test_files_that_only_one_side_has(tmp_path: Path) -> None:
    write_bundle({**FILES, "lib/own.sh": b"echo\n"}, tmp_path / "b")
    (tmp_path / "b/rccl_env.sh").unlink()
    lines = list(diff_bundle(FILES, tmp_path / "b"))
    assert "-echo" in lines
    assert "+# shellcheck shell=bash" in lines
    assert {line for line in lines if line.startswith("+++ ")} == {
        "+++ new/lib/own.sh",
        "+++ new/rccl_env.sh",
    }


# ---- the command ----


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return write_site(tmp_path / "site.yaml", tmp_path / "sets")


def run(*argv: str | Path) -> int:
    return main(["render", "local_2x2x8", "builtin", *map(str, argv)])


def test_job_on_standard_output(
    site: Path, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    assert run("--site", site, "-o", "-") == ExitCode.OK
    printed = capfdbinary.readouterr()
    assert run("--site", site, "-o", tmp_path / "b") == ExitCode.OK
    assert printed.out == (tmp_path / "b/job.sh").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["b", "sets", "site.yaml"]


@pytest.mark.parametrize("output", ["-o -", "--image-config {}/new"])
def test_what_is_no_json_is_not_written_for_it(
    site: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, output: str
) -> None:
    assert run("--site", site, "--json", *output.format(tmp_path).split()) == ExitCode.BAD_INPUT
    assert outputs.checked(capsys.readouterr().out)["kind"] == "error"
    assert not (tmp_path / "new").exists()


def test_what_render_says(site: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("--site", site, "-o", tmp_path / "b", "--json") == ExitCode.OK
    message = outputs.checked(capsys.readouterr().out)
    assert (message["system"], message["workload"], message["round"]) == (
        "local_2x2x8",
        "builtin",
        "1.0",
    )
    assert set(message["files"]) == set(read_bundle(tmp_path / "b"))
    run("--site", site, "-o", tmp_path / "b")
    assert f"bash {tmp_path}/b/run_with_docker.sh" in capsys.readouterr().out


def test_the_exit_code_of_diff(
    site: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bundle = tmp_path / "sets/local-1/bundle"
    assert run("--site", site, "-o", bundle) == ExitCode.OK
    (bundle.parent / "set.json").write_text('{"schema": 1, "set_id": "local-1", "created_ms": 1}')
    capsys.readouterr()
    for place in (bundle, bundle.parent, "local-1"):
        assert run("--site", site, "--diff", place) == ExitCode.OK
        assert capsys.readouterr().out == f"no difference from {bundle}\n"
    assert run("--site", site, "--diff", "local-1", "--nexp", "5") == ExitCode.NO_SCORE
    assert "-use NEXP 3\n+use NEXP 5\n" in capsys.readouterr().out
    assert run("--site", site, "--diff", "local-1", "--nexp", "5", "--json") == ExitCode.NO_SCORE
    assert outputs.checked(capsys.readouterr().out)["equal"] is False
    assert run("--site", site, "--diff", "nothing") == ExitCode.BAD_INPUT
    assert "nothing" in capsys.readouterr().err


def test_where_to_is_needed(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ((), ("-o", "x", "--diff", "y")):
        assert run("--site", site, *arguments) == ExitCode.BAD_INPUT
        assert "-o DIR" in capsys.readouterr().err
