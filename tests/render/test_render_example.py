"""The example of a benchmark of one's own: its documents, its bundle, its scripts. (Training takes torch.)"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest

from orchestrator.cli import main
from orchestrator.model import load_entry
from orchestrator.render import render_bundle

EXAMPLE = Path(__file__).parents[2] / "examples/tiny_gpt"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    text = (EXAMPLE / "site.yaml").read_text()
    path = tmp_path / "site.yaml"
    path.write_text(
        text.replace("/path/to/tiny_gpt", str(EXAMPLE)).replace("/path/to/results", str(tmp_path))
    )
    return path


def test_its_documents_are_in_order(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [EXAMPLE / "systems/two_gpus.yaml", EXAMPLE / "systems/workloads/tiny_gpt.yaml", site]
    assert (
        main(["systems", "validate", "--systems-dir", str(EXAMPLE / "systems"), *map(str, files)])
        == 0
    )
    entry = load_entry("two_gpus", "tiny_gpt", site=site)
    assert entry.ruleset == "own" and str(entry.target) == str(entry.env["TINY_TARGET"])
    assert (
        entry.container.engine == "none"
        and entry.code_path == str(EXAMPLE / "code")
        and not entry.warnings
    )


def test_its_bundle_names_what_its_code_logs_and_reads(site: Path) -> None:
    entry = load_entry("two_gpus", "tiny_gpt", site=site)
    files = render_bundle(entry, nexp=entry.runs_required)
    code = (EXAMPLE / "code/train.py").read_text()
    for check in json.loads(files["workload.json"])["logged"]:
        assert f'"{check["key"]}"' in code
    script = (EXAMPLE / "code/run_and_time.sh").read_text()
    read = set(re.findall(r"TINY_[A-Z_]+\b", code + script)) - {"TINY_"} | {
        "TINY_WIDTH",
        "TINY_LAYERS",
        "TINY_HEADS",
    }
    assert read == {name for name in entry.env if name.startswith("TINY_")}


def test_its_code_can_be_read() -> None:
    ast.parse((EXAMPLE / "code/train.py").read_text(), feature_version=(3, 9))
    subprocess.run(["bash", "-n", EXAMPLE / "code/run_and_time.sh"], check=True)


def test_the_commands_of_its_readme_name_files_and_options_that_exist() -> None:
    readme = (EXAMPLE / "README.md").read_text()
    for name in re.findall(r"^\| `([^`]+)` \|", readme, re.MULTILINE):
        assert (EXAMPLE / name).is_file()
    assert str((EXAMPLE / "site.yaml").read_text()).count("/path/to/") == 3
