"""`orchestrator config --set`: a value into the site file, and nothing else in it changes."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from controller_parts import Commands

from orchestrator.errors import ExitCode
from orchestrator.site.edit import set_values, with_value

KEPT = """\
# the cluster of the third floor
kind: site
log_dir: HERE/sets   # NFS
#spares: 0
data:
  # copied in May
  llama2_70b_lora:
    DATADIR: /shared/llama2   # with checkpoints

network: {ib_hca: [a, b]}
exclude:
- n1
- n2
# the end
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "sets").mkdir()
    path = tmp_path / "site.yaml"
    path.write_text(KEPT.replace("HERE", str(tmp_path)))
    path.chmod(0o640)
    return path


@pytest.mark.parametrize(
    ("given", "before", "after"),
    [
        ("spares=2", "# the end\n", "# the end\nspares: 2\n"),
        ("log_dir=/x", "log_dir: HERE/sets   # NFS", "log_dir: /x   # NFS"),
        (
            "data.flux1.DATADIR=/x y",
            "  llama2_70b_lora:\n",
            "  flux1: {DATADIR: /x y}\n  llama2_70b_lora:\n",
        ),
        ("data.llama2_70b_lora.DATADIR=/x", "/shared/llama2   #", "/x   #"),
        ("network.rdma=required", "b]}", "b], rdma: required}"),
        ("network.ib_hca=[c]", "[a, b]", "[c]"),
        ("exclude=[n3]", "exclude:\n- n1\n- n2\n", "exclude: [n3]\n"),
        ("network=", "network: {ib_hca: [a, b]}", "network: null"),
        ("container.pull=never", "# the end\n", "# the end\ncontainer: {pull: never}\n"),
        ("tunables=off", "# the end\n", "# the end\ntunables: 'off'\n"),
    ],
)
def test_a_value_is_written_and_all_else_stays(
    cli: Commands, path: Path, given: str, before: str, after: str
) -> None:
    here, text = str(path.parent), path.read_text()
    key = given.partition("=")[0]
    done = cli("config", "--set", given, "--site", path)
    if given == "network=":  # a section is no value
        assert done.code == ExitCode.BAD_INPUT and path.read_text() == text
        assert done.err.startswith("orchestrator config: --set network: ")
        return
    assert done.code == ExitCode.OK, done.err
    assert text.count(before.replace("HERE", here)) == 1
    assert path.read_text() == text.replace(before.replace("HERE", here), after)
    assert path.stat().st_mode & 0o777 == 0o640
    shown = [line.split()[0] for line in done.out.splitlines()[4:]]
    assert shown and all(f"{one}.".startswith(f"{key}.") for one in shown)


def test_several_values_or_none(cli: Commands, path: Path) -> None:
    text = path.read_text()
    answer = cli.json("config", "--set", "spares=1", "--set", "partition=b", "--site", path)
    assert {one["key"]: one["value"] for one in answer["values"]} == {"spares": 1, "partition": "b"}
    path.write_text(text)
    cli("config", "--set", "spares=1", "--set", "partitoin=b", "--site", path)
    assert cli.code == ExitCode.BAD_INPUT and path.read_text() == text
    assert "--set partitoin: unknown key" in cli.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("data.flux1.DATADR=/x", "flux1 mounts no folder DATADR; did you mean"),
        ("data.flux1.DATADIR=x", "'x' is not an absolute path"),
        ("data.flux=/x", "--set data.flux: "),
        ("spares={", "this is not valid YAML"),
        ("=x", "is not KEY=VALUE"),
    ],
)
def test_a_wrong_value_changes_nothing(cli: Commands, path: Path, given: str, said: str) -> None:
    text = path.read_text()
    assert cli("config", "--set", given, "--site", path).code == ExitCode.BAD_INPUT
    assert said in cli.err and path.read_text() == text


def test_a_wrong_value_is_corrected(
    cli: Commands, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = path.read_text()
    wrong = text.replace("#spares: 0", "spares: lots") + "partitoin: b\n"
    path.write_text(wrong)
    assert cli("config", "--set", "spares=2", "--site", path).code == ExitCode.BAD_INPUT
    assert "partitoin: unknown key" in cli.err and path.read_text() == wrong
    path.write_text(wrong.replace("partitoin", "partition"))
    assert cli("config", "--set", "spares=2", "--site", path).code == ExitCode.OK, cli.err
    path.write_text(path.read_text().replace("spares: 2", "spares: lots"))
    answers(monkeypatch, "3\n")
    assert cli("config", "--set", "spares", "--site", path).code == ExitCode.OK, cli.err
    assert "\nspares: 3\n" in path.read_text()


def test_what_cannot_be_set_alone_is_left_to_the_user(cli: Commands, path: Path) -> None:
    text = path.read_text().replace("network: {ib_hca: [a, b]}", "network: {\n ib_hca: [a] # b\n}")
    path.write_text(text)
    cli("config", "--set", "network.rdma=required", "--site", path)
    assert cli.code == ExitCode.BAD_INPUT and path.read_text() == text
    assert cli.err.splitlines()[-1] == f"  ${{EDITOR:-vi}} {path}"


def test_a_file_that_cannot_be_written(
    cli: Commands, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr("orchestrator.site.edit.write_bytes", denied)
    cli("config", "--set", "spares=1", "--site", path)
    assert cli.code == ExitCode.BAD_INPUT and "Permission denied" in cli.err
    assert cli.err.splitlines()[-1] == f"  ls -ld {path} {path.parent}"


def test_a_link_stays_a_link(cli: Commands, path: Path) -> None:
    target = path.rename(path.with_name("real.yaml"))
    path.symlink_to(target)
    assert cli("config", "--set", "spares=1", "--site", path).code == ExitCode.OK
    assert path.is_symlink() and target.read_text().endswith("spares: 1\n")


def test_values_set_at_the_same_time_are_all_kept(path: Path) -> None:
    names = [f"A{number}" for number in range(12)]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: set_values(path, [(f"env.{name}", "x")]), names))
    assert sorted(yaml.safe_load(path.read_text())["env"]) == sorted(names)
    assert list(path.parent.glob(".*")) == []


# ---- without a value ----


def answers(monkeypatch: pytest.MonkeyPatch, text: str, *, terminal: bool = False) -> None:
    stream = io.StringIO(text)
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr("sys.stdin", stream)


def test_it_asks_for_a_folder(cli: Commands, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATADIR", raising=False)
    answers(monkeypatch, "~/flux1\n", terminal=True)
    monkeypatch.setenv("HOME", str(path.parent))
    wanted = ("config", "--set", "data.flux1.DATADIR", "--site", path)
    assert cli(*wanted).code == ExitCode.OK, cli.err
    assert cli.out.startswith("folder of the data of flux1 (DATADIR), as nodes see it: ")
    folder = f"{path.parent}/flux1"
    assert cli.err == f"note: {folder} does not exist here\n"
    assert yaml.safe_load(path.read_text())["data"]["flux1"] == {"DATADIR": folder}
    # Its value is the answer of an empty line.
    answers(monkeypatch, "\n", terminal=True)
    path.write_text(path.read_text().replace(folder, str(path.parent)))
    assert cli(*wanted).code == ExitCode.OK and f"see it [{path.parent}]: " in cli.out
    assert yaml.safe_load(path.read_text())["data"]["flux1"] == {"DATADIR": str(path.parent)}


def test_no_answer_sets_nothing(cli: Commands, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATADIR", "/likely")
    text = path.read_text()
    for key in ("data.flux1.DATADIR", "spares"):
        answers(monkeypatch, "")
        assert cli("config", "--set", key, "--site", path).code == ExitCode.BAD_INPUT
        assert f"no value was given for {key}" in cli.err and path.read_text() == text
    answers(monkeypatch, "3\n")
    assert cli("config", "--set", "spares", "--site", path).code == ExitCode.OK
    assert yaml.safe_load(path.read_text())["spares"] == 3 and "value of" not in cli.out


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("a:\nb: 1\n", ["a"], "a: v\nb: 1\n"),
        ("a: # none\nb: 1\n", ["a", "c"], "a: {c: v} # none\nb: 1\n"),
        ("a: {}\n", ["a", "c"], "a: {c: v}\n"),
        ("{a: 1}\n", ["b"], "{a: 1, b: v}\n"),
        ("a: 1", ["b"], "a: 1\nb: v\n"),
        ("a: |\n  x\n  y\n\nb: 1\n", ["a"], "a: v\n\nb: 1\n"),
        ("a:\n  b:\n    c: 1 # one\n  d: 2\n", ["a", "b"], "a:\n  b: v # one\n  d: 2\n"),
        ("a: 'x: y'\n", ["a"], "a: v\n"),
    ],
)
def test_the_forms_of_yaml(text: str, key: list[str], expected: str) -> None:
    assert with_value(text, key, "v") == expected
