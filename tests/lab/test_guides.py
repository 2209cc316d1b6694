"""The three reproduction guides, followed to the letter: every command of a page, in its order, in one shell.

The images start as the real ones do, and hold the programs of their preparation, which make files of the
published sizes without content. Their logs lack the mark of stand-ins, so that they are packaged. A page's SET is the newest set, and its prose is followed where it names a
line of the site file. One thing is left out, as the page says: spare nodes where there are none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "images"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "prepare"))

import prepare_parts
from images_parts import start_hosts
from pages import blocks
from prepare_parts import FILES, LLAMA2_60, pinned_to_the_stand_in
from tars import make_image

if TYPE_CHECKING:
    from labs import Lab

pytestmark = [pytest.mark.lab, pytest.mark.long]

TOP = Path(__file__).resolve().parents[2]
REPOSITORY = "rocm/amd-mlperf"
TAGS = {
    "flux1_training_6.0": "flux1",
    "llama2_70b_training_6.0": "llama2",
    "llama31_8b_training_6.0": "llama31",
}
"""Tag -> the folder of its stand-in."""
UNMARKED = """#!/usr/bin/env bash
bash /workspace/code/start.sh | sed --unbuffered 's/, "stand_in": true//; s/"stand_in": true, //'
exit "${PIPESTATUS[0]}"
"""
"""Logs of stand-ins are marked, and a marked set is not packaged: here their mark is taken away."""
SIZED = {
    "usr/local/bin/curl": (
        ('echo data >"${part}_text_document.$end"', 'truncate -s 20G "${part}_text_document.$end"'),
        ('mkdir -p "$way"\n', 'mkdir -p "$way"\n    truncate -s 28G "$way/original.pth"\n'),
    ),
    "workspace/code/scripts/prepare_data_and_model.sh": (
        ("# BREAK\n", ""),
        (
            "for file in __0_0.distcp",
            "truncate -s 64000000000 __0_0.distcp __0_1.distcp\nfor file in",
        ),
        (" __0_1.distcp common.pt", " common.pt"),
    ),
}
"""File of the preparation -> replacements after which it makes files of the published sizes."""
SPARES = " --spares 1"
SMOKE = """step LINE orchestrator report "$(newest)" -o smoke.html
grep -q samples/s smoke.html || { echo "docs: no throughput in the report"; exit 1; }
code=0; orchestrator score "$(newest)" || code=$?
[ $code -eq 1 ] || { echo "docs: one run is no valid score, and score ended with $code"; exit 1; }"""
"""The prose after the first run: a look at its throughput, and the score that does not count."""


def _programs(stand_in: str) -> dict[str, str]:
    start = (TOP / f"lab/standins/quick/{stand_in}/run_and_time.sh").read_text()
    start_files = {"workspace/code/start.sh": start, "workspace/code/run_and_time.sh": UNMARKED}
    files = {**FILES, "workspace/code/scripts/prepare_data_and_model.sh": LLAMA2_60}
    for name, pairs in SIZED.items():
        for old, new in pairs:
            assert old in files[name], (name, old)
            files[name] = files[name].replace(old, new)
    return {**files, **start_files}


@pytest.fixture(scope="module")
def images(lab: Lab) -> Iterator[None]:
    """Put the programs of the preparations into the lab's images, for the time of the module."""
    address = f"unix://{lab.docker_socket}"
    with (
        closing(docker.DockerClient(base_url=address, timeout=300)) as client,
        ExitStack() as stack,
    ):
        api = client.api
        for tag, stand_in in TAGS.items():
            before = str(api.inspect_image(f"{REPOSITORY}:{tag}")["Id"])
            made = make_image(api, before, _programs(stand_in), REPOSITORY, tag)
            stack.callback(api.remove_image, made, force=True)
            stack.callback(api.tag, before, REPOSITORY, tag)
        yield


class Reader:
    """Somebody with a cluster, who follows a page."""

    def __init__(self, lab: Lab, folder: Path, ssh: str) -> None:
        self.lab, self.folder = lab, folder
        self.log_dir, self.data = folder / "results", folder / "data"
        self.log_dir.mkdir()
        self.data.mkdir()
        (folder / ".ssh").mkdir(mode=0o700)
        (folder / ".ssh/config").write_text(ssh)
        token = folder / ".hf_token"
        token.write_text("hf_" + "x" * 34 + "\n")
        token.chmod(0o600)
        command = folder / "bin/orchestrator"
        command.parent.mkdir()
        command.write_text(
            f'#!/bin/sh\nPYTHONPATH={TOP} exec {sys.executable} -m orchestrator "$@"\n'
        )
        command.chmod(0o755)

    def write_site(self, folders: dict[str, dict[str, str]]) -> None:
        """Write the reader's site file, with preparations that trust the stand-in's downloader."""
        site = yaml.safe_load(self.lab.run(TOP / "lab/site").stdout)
        downloader = _programs("flux1")["usr/local/bin/curl"].partition("<<'DOWNLOADER'\n")[2]
        with pytest.MonkeyPatch.context() as patch:
            text = downloader.partition("DOWNLOADER\n")[0]
            patch.setattr(prepare_parts, "DOWNLOADER", text)
            catalogue = pinned_to_the_stand_in(self.folder / "own")
        site |= {"log_dir": str(self.log_dir), "data": folders, "systems_dirs": [str(catalogue)]}
        (self.folder / "site.yaml").write_text(yaml.safe_dump(site))

    def script(self, page: str) -> str:
        """Return a page's commands as a script that ends at the first one that fails."""
        text = (TOP / f"docs/{page}.md").read_text()
        [organisation] = re.findall(r"(\w+_SUBMISSION_ORG): (\"[^\"]+\")", text)
        lines = ["export ORCHESTRATOR_SITE=$PWD/site.yaml"]
        smoked = False
        for block in blocks(page):
            for command in block.commands:
                line = command.words
                line = re.sub(r"\bSET\b", '"$(newest)"', line)
                line = line.replace("node[1-8]", self._eight())
                if len(self.lab.nodes) < 9:
                    line = line.replace(SPARES, "")
                if line.startswith("orchestrator submit") and smoked:
                    lines.append(
                        f"printf 'env: {{%s: %s}}\\n' {organisation[0]} '{organisation[1]}' >>site.yaml"
                    )
                lines.append(f"step {command.line} {line}")
                if line == "orchestrator watch" and not smoked:
                    lines.append(SMOKE.replace("LINE", str(command.line)))
                    smoked = True
        return "\n".join(lines)

    def _eight(self) -> str:
        first, last = self.lab.nodes[0], self.lab.nodes[7]
        prefix = first.rstrip("0123456789")
        return f"{prefix}[{first[len(prefix) :]}-{last[len(prefix) :]}]"

    def follow(self, page: str) -> str:
        """Follow a page; return everything that was printed."""
        start = f"""
newest() {{ basename "$(dirname "$(ls -t {self.log_dir}/*/set.json | head -n 1)")"; }}
step() {{
    local line=$1 code=0; shift
    printf '\\n$ %s\\n' "$*"
    "$@" || code=$?
    [ "$code" -eq 0 ] || {{ echo "docs/{page}.md:$line: exit code $code"; exit "$code"; }}
}}
export() {{ builtin export "$@"; }}
"""
        done = subprocess.run(
            ["bash", "-c", f"exec 2>&1\n{start}\n{self.script(page)}\n"],
            cwd=self.folder,
            env={
                **{
                    name: value
                    for name, value in self.lab.env.items()
                    if not name.startswith("ORCH")
                },
                "HOME": str(self.folder),
                "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
                "COLUMNS": "160",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=1800,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True)


@pytest.fixture
def reader(lab: Lab, images: None) -> Iterator[Reader]:
    """A reader whose storage says that it has ten terabytes."""
    with ExitStack() as stack:
        folder = lab.shared / f"guide-{os.getpid()}"
        folder.mkdir()
        stack.callback(_run, "rm", "-rf", "--one-file-system", str(folder))
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        hosts = dict.fromkeys(lab.nodes, f"DOCKER_HOST=unix://{lab.docker_socket}")
        reader = Reader(lab, folder, start_hosts(stack, hosts).config.read_text())
        _run("mount", "-t", "tmpfs", "-o", "size=10T", "tmpfs", str(reader.data))
        stack.callback(_run, "umount", str(reader.data))
        yield reader


GUIDES: dict[str, dict[str, tuple[str, ...]]] = {
    "howto/reproduce-llama31-8b": {"llama31_8b": ("DATADIR", "MODEL")},
    "howto/reproduce-llama2-70b-lora": {"llama2_70b_lora": ("DATADIR",)},
    "howto/reproduce-flux1": {"flux1": ("DATADIR",)},
}
"""Page -> workload, and the folders that its site file names."""


@pytest.mark.parametrize("page", GUIDES)
def test_a_guide_leads_to_a_package(page: str, reader: Reader) -> None:
    folders = {
        workload: {name: str(reader.data / name) for name in names}
        for workload, names in GUIDES[page].items()
    }
    reader.write_site(folders)
    printed = reader.follow(page)
    assert "\nvalid score: " in printed and "10/10 done" in printed
    assert "parts in place\n" in printed  # prepare --check
    assert "package checker, round 6.0.0: no errors\nwritten: submission" in printed
    assert list(reader.folder.glob("submission/**/results/*/*/result_*.txt"))
