"""`prepare` inspects the image before its steps: what they lack, and every entry of the round."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

TOP = Path(__file__).resolve().parents[2]


def test_a_preparation_on_an_image_without_its_script(lab: Lab) -> None:
    """The lab's image has no scripts: that is said before the step fails for it."""
    folder = lab.shared / f"prepare-{os.getpid()}"
    (folder / "results").mkdir(parents=True)
    site = yaml.safe_load(lab.run(TOP / "lab/site").stdout)
    site |= {"log_dir": str(folder / "results")}
    site["data"] = {"llama2_70b_lora": {"DATADIR": str(folder / "data")}}
    (folder / "site.yaml").write_text(yaml.safe_dump(site))

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return lab.orchestrator(folder, *arguments, HF_TOKEN="hf_" + "x" * 34)

    try:
        done = call("prepare", "llama2_70b_lora", "--force-space")
        assert done.returncode == 1
        missing = "the image has no /workspace/code/scripts/prepare_data_and_model.sh"
        before, _, after = done.stderr.partition("data-and-model: download")
        assert f"warning: data-and-model: {missing}" in before and after
        kept = {path.name.partition(".")[0] for path in (folder / "images").glob("*.contract.json")}
        assert {"MI355X_1x8x1_llama2_70b_lora_6", "MI350X_1x8x1_llama2_70b_lora_6"} <= kept
        report = call("doctor", "MI355X_1x8x1", "llama2_70b_lora", "--json").stdout
        assert "is a stand-in of the lab" in report, "its other scripts are no problem of the site"
        # A second try reads the image no more.
        again = call("prepare", "llama2_70b_lora", "--force-space")
        assert again.returncode == 1 and "warning: data-and-model" not in again.stderr
    finally:
        shutil.rmtree(folder)
