"""Scripts of others that a preparation runs: those of a commit, with the content that they had."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest

from orchestrator.errors import DescriptorError
from orchestrator.model import Site
from orchestrator.prepare.documents import load_preparation, names
from orchestrator.prepare.plan import Plan, make_plan

URL = "https://example.org/main/script.sh"
AT = "https://example.org/0123/script.sh"
SCRIPT = "echo ran with $1\n"
SHA = hashlib.sha256(SCRIPT.encode()).hexdigest()
CURL = """#!/bin/bash
[[ ${*: -1} == AT && -e SCRIPT ]] || exit 22
cat SCRIPT
"""


def plan(folder: Path, sha256: str | None = SHA, run: str = f"bash <(curl -s {URL}) one") -> Plan:
    (folder / "data").mkdir(exist_ok=True)
    pin = {"url": URL, "at": AT} | ({"sha256": sha256} if sha256 else {})
    part = {
        "pins": [pin],
        "mounts": [{"variable": "DATADIR", "container": "/d"}],
        "workdir": "/d",
        "steps": [{"name": "a", "what": "b", "run": run}],
        "tree": [{"variable": "DATADIR", "path": "x"}],
    }
    document = {"kind": "preparation", "name": "flux1", "rounds": {"6.0": part}}
    place = folder / "documents/workloads/preparations"
    place.mkdir(parents=True, exist_ok=True)
    (place / "flux1.yaml").write_text(json.dumps(document))
    site = Site(
        log_dir=str(folder),
        data={"flux1": {"DATADIR": str(folder / "data")}},
        systems_dirs=[str(folder / "documents")],
    )
    return make_plan("flux1", site)


def ran(made: Plan, folder: Path, script: str | None = SCRIPT) -> subprocess.CompletedProcess[str]:
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    given = folder / "given"
    given.unlink(missing_ok=True)
    if script is not None:
        given.write_text(script)
    (programs / "curl").write_text(CURL.replace("AT", AT).replace("SCRIPT", str(given)))
    (programs / "curl").chmod(0o755)
    text = made.text(made.part.steps[0], again=False)
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        env={"PATH": f"{programs}:/usr/bin:/bin", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("sha256", [SHA, None])
def test_the_script_of_the_commit_runs(tmp_path: Path, sha256: str | None) -> None:
    done = ran(plan(tmp_path, sha256), tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran with one\n"), done.stderr


@pytest.mark.parametrize("script", [SCRIPT + "rm -rf /\n", "", "echo ran\n"])
def test_another_content_does_not_run(tmp_path: Path, script: str) -> None:
    done = ran(plan(tmp_path), tmp_path, script)
    assert done.returncode == 1 and done.stdout == ""
    assert f"{AT} is not the script of this preparation" in done.stderr and SHA in done.stderr
    assert "`pins`" in done.stderr


def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = ran(plan(tmp_path), tmp_path, None)
    assert done.returncode == 1 and f"cannot fetch {AT}" in done.stderr and not done.stdout


def test_a_done_step_stays_done(tmp_path: Path) -> None:
    """The steps are as published, and so is what was prepared with them before there were pins."""
    with_pin, other = plan(tmp_path), plan(tmp_path, "0" * 64)
    step = with_pin.part.steps[0]
    assert with_pin.fingerprint(step) == other.fingerprint(other.part.steps[0])
    assert URL in step.run


def test_a_pin_that_no_step_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DescriptorError, match="no step runs"):
        plan(tmp_path, run="echo nothing")


def test_every_script_of_others_is_pinned() -> None:
    found = 0
    for name in names():
        for key, part in load_preparation(name)[1].rounds.items():
            for step in part.steps:
                text = step.run
                for pin in part.pins:
                    assert pin.sha256 and re.search(r"/[0-9a-f]{40}/", pin.at), (name, key)
                    found += text.count(pin.published)
                    text = text.replace(pin.published, "")
                assert not re.search(r"<\(\s*curl|curl[^|]*\|\s*(ba)?sh", text), (
                    name,
                    key,
                    step.name,
                )
    assert found >= 7
