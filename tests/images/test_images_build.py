"""An image that no registry has is built from its published tree; the engine is a program that notes its arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import call

from orchestrator import render_bundle
from orchestrator.model import Entry, Site, load_entry

REFERENCE = "rocm/amd-mlperf:gpt_oss_20b_training_6.0"
ENTRY = ("MI355X_1x8x1_Oracle", "gpt_oss_20b")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    engine = tmp_path / "engine"
    engine.write_text(f"#!/bin/bash\nprintf '%s\\n' \"$@\" >{tmp_path}/asked; exit ${{FAILS:-0}}\n")
    engine.chmod(0o755)
    path = tmp_path / "site.yaml"
    path.write_text(f"kind: site\nlog_dir: {tmp_path}\ncontainer: {{command: [{engine}]}}\n")
    return path


def refused(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """What is refused starts no engine, which would need a real output."""
    return call(["images", *words], {})


def images(*words: str | Path, answer: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "orchestrator", "images", *map(str, words)]
    return subprocess.run(
        argv, text=True, capture_output=True, check=False, env={**os.environ, **env}, input=answer
    )


def test_it_is_built_with_the_engine_of_the_site(site: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    words = ("build", *ENTRY, "--site", site, "--tree", tree)
    missing = refused(*words)
    assert missing.returncode == 2 and f"there is no {tree}/Dockerfile" in missing.stderr
    assert "Oracle/benchmarks/gpt_oss_20b" in missing.stderr
    (tree / "Dockerfile").write_text("FROM scratch\n")
    done = images(*words, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["reference"] == REFERENCE
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["build", "--tag", REFERENCE, "--file", f"{tree}/Dockerfile", str(tree)]
    # Without --tree it asks: the command that others end in can be pasted.
    assert images(*words[:-2], answer=f"{tree}\n").returncode == 0
    again = (tmp_path / "asked").read_text().splitlines()
    assert again[-len(asked) :] == asked
    failed = images(*words, FAILS="7")
    assert failed.returncode == 3 and "exited 7" in failed.stderr


def test_what_cannot_be_built_is_said(site: Path, tmp_path: Path) -> None:
    pulled = refused("build", "MI355X_1x8x1", "llama31_8b", "--site", site, "--tree", tmp_path)
    assert pulled.returncode == 2 and "images pull --image" in pulled.stderr
    assert "--tree DIR" in refused("build", *ENTRY, "--site", site).stderr
    assert refused("build", "--image", REFERENCE, "--tree", tmp_path).returncode == 2


def test_a_bundle_says_how_to_get_an_image_that_no_registry_has() -> None:
    site = Site(log_dir="/sets")

    def built(entry: Entry) -> str:
        lines = render_bundle(entry, nexp=1)["settings.sh"].decode().splitlines()
        return next(line for line in lines if line.startswith("BUILT="))

    entry = load_entry(*ENTRY, site=site)
    assert "orchestrator images build MI355X_1x8x1_Oracle gpt_oss_20b --tree DIR" in built(entry)
    assert built(entry.with_document("mine", image="own/image:1")) == "BUILT=''"
    assert built(load_entry("MI355X_1x8x1", "llama31_8b", site=site)) == "BUILT=''"
