"""The values of a bundle and the environment of its runs, as bash evaluates them: what is refused, and in which words."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
from sites import local_site, write_system
from until import until

from orchestrator.model import Site, load_entry
from orchestrator.onnode.kernel.program import read
from orchestrator.onnode.kernel.settings import Settings
from orchestrator.onnode.kernel.settings_file import SettingsError, evaluate_config, load
from orchestrator.render import render_bundle, write_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("settings")
    write_system(folder / "systems")
    site = Site(**local_site(folder / "sets"))
    entry = load_entry("one_node", "builtin", site=site, systems_dirs=[folder / "systems"])
    write_bundle(render_bundle(entry, nexp=3), folder / "bundle")
    return folder / "bundle"


def with_value(bundle: Path, name: str, value: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(bundle), name: value}


@pytest.mark.parametrize(
    ("name", "most", "values"),
    [
        ("NEXP", 9999, ["0", "abc", "-1", "1.5", "10000", "1 2", "$(touch pwned)", "08"]),
        ("MAX_ATTEMPTS", 999, ["abc", "0", "1000"]),
        ("RUN_TIMEOUT_S", 9_999_999, ["soon", "0"]),
        ("CONTAINER_START_S", 99_999, ["x[$(touch pwned)]", "-1"]),
    ],
)
def test_a_number_that_is_none(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    most: int,
    values: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in values:
        with pytest.raises(SettingsError) as refused:
            load(read(bundle).files, with_value(bundle, name, value))
        assert str(refused.value) == f"{name}={value} must be a number from 1 to {most}"
    assert list(tmp_path.iterdir()) == [], "nothing of it was evaluated"


@pytest.mark.parametrize("value", ["-5", "x"])
def test_a_number_without_a_largest_value(bundle: Path, value: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(read(bundle).files, with_value(bundle, "STORAGE_WAIT_S", value))
    assert str(refused.value) == f"STORAGE_WAIT_S={value} in settings.sh must be a number from 0"


def test_a_site_allows_no_value_that_its_bundles_refuse() -> None:
    schema = Site.model_json_schema()
    compared = []
    for item in fields(Settings):
        source, most = item.metadata.get("source", ""), item.metadata.get("most")
        key = re.fullmatch(r"(?:(\d+) \* )?site\.(\w+)\.(\w+)", source)
        if key and most:
            section = schema["properties"][key[2]]
            part = schema["$defs"][
                (section.get("$ref") or section["allOf"][0]["$ref"]).rpartition("/")[2]
            ]
            number = part["properties"][key[3]]
            factor = int(key[1] or 1)
            assert factor * number["maximum"] <= most and number["minimum"] >= 1, source
            compared.append(source)
    assert len(compared) >= 9, compared


def test_an_empty_number_is_the_bundles_own(bundle: Path) -> None:
    assert load(read(bundle).files, with_value(bundle, "NEXP", "")).nexp == 3


def test_a_config_that_cannot_be_evaluated(bundle: Path) -> None:
    settings = load(read(bundle).files, with_value(bundle, "NEXP", "1"))
    config = bundle / settings.config_file
    before = config.read_text()
    for line, words in (
        ("export (", "syntax error"),
        ("unset_variable=$nothing", "nothing: unbound variable"),
        ("false", "bash ended with 1"),
        ("exit 3", "bash ended with 3"),
        ("no_such_command", "no_such_command: command not found"),
    ):
        config.write_text(f"{before}{line}\n")
        with pytest.raises(SettingsError, match=f"^{config.name} cannot be evaluated: .*{words}"):
            evaluate_config(read(bundle).files, settings, 1)
    config.write_text(before)


def test_a_bash_that_is_killed_leaves_nothing(bundle: Path, tmp_path: Path) -> None:
    """Bash waits in the config for a word that never comes, and everything is killed."""
    files = dict(read(bundle).files)
    config = load(files, with_value(bundle, "NEXP", "1")).config_file
    os.mkfifo(tmp_path / "never")
    files[config] += b"echo >>%b\nread _ <%b\n" % (
        os.fsencode(tmp_path / "reads"),
        os.fsencode(tmp_path / "never"),
    )
    (tmp_path / "tmp").mkdir()
    child = os.fork()
    if not child:
        try:
            os.setsid()
            os.environ["TMPDIR"] = str(tmp_path / "tmp")
            evaluate_config(files, load(files, with_value(bundle, "NEXP", "1")), 1)
        finally:
            os._exit(1)
    try:
        until((tmp_path / "reads").exists)
        assert list((tmp_path / "tmp").iterdir()) == []
    finally:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_bundle_without_a_script(bundle: Path) -> None:
    files = dict(read(bundle).files)
    settings = load(files, with_value(bundle, "NEXP", "1"))
    del files[settings.config_file]
    with pytest.raises(SettingsError, match=f"^{settings.config_file} is missing from this bundle"):
        evaluate_config(files, settings, 1)
    with pytest.raises(SettingsError, match=r"^settings\.sh is missing from this bundle"):
        load({})


@pytest.mark.parametrize("folder", ["${BASH_SOURCE[0]%/*}", '$(dirname "${BASH_SOURCE[0]}")'])
def test_scripts_source_those_next_to_them(bundle: Path, folder: str) -> None:
    """Also those of a person; a message names the script, not the descriptor."""
    files = dict(read(bundle).files)
    settings = load(files, with_value(bundle, "NEXP", "1"))
    files["mine.sh"] = b"export MINE=$NEXP\n"
    whole = files[settings.config_file]
    files[settings.config_file] = whole + f'. "{folder}/mine.sh"\n'.encode()
    assert b'declare -x MINE="7"\n' in evaluate_config(files, settings, 7)
    files["mine.sh"] = b"\nexport MINE=$nothing\n"
    with pytest.raises(SettingsError, match=r": mine\.sh: line 2: nothing: unbound variable"):
        evaluate_config(files, settings, 7)


@pytest.mark.parametrize("folder", ["", "./", "../{bundle}/", "{place}/"])
def test_a_config_finds_what_lies_beside_it(bundle: Path, folder: str, tmp_path: Path) -> None:
    """By any name, and with a PATH that is the container's."""
    place = shutil.copytree(bundle, tmp_path / "a bundle")
    config = place / load(read(place).files).config_file
    config.write_text(f"export PATH=/nowhere\n{config.read_text()}")
    (place / "rccl_env.sh").write_text("export BESIDE=it\n")
    name = folder.format(bundle=place.name, place=place) + config.name
    argv = ["bash", "-euc", '. "$1"; echo "$BESIDE"', "bash", name]
    done = subprocess.run(argv, cwd=place, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("it\n", "", 0)
