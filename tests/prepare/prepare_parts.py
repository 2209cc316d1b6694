"""An image whose programs do what the real ones do, on tiny files; and the folders of a preparation."""

from __future__ import annotations

import io
import json
import os
import select
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import docker

TOP = Path(__file__).resolve().parents[2]
TOKEN = "hf_ThisIsTheTokenOfTheTests0123456789"
BASE = "orchestrator/builtin:1"
IMAGE = "orchestrator-test/prepare:1"

# `bash <(curl -s URL) [-d DIR] URI` downloads into DIR, or into a folder named after the URI.
CURL = r"""#!/bin/bash
[ ! -e /dataset/offline ] || exit 6
case ${*: -1} in
*/mlc-r2-downloader.sh) cat <<'DOWNLOADER'
set -e
dir=.
while getopts d: option; do dir=$OPTARG; done
shift $((OPTIND - 1))
mkdir -p "$dir"
cd "$dir"
case $1 in
*/llama-3-1-8b-preprocessed-c4-dataset.uri)
    for part in c4-train.en_6 c4-validation-91205-samples.en; do
        for end in bin idx; do echo data >"${part}_text_document.$end"; done
    done ;;
*/llama-3-1-8b-tokenizer.uri)
    mkdir -p llama3_1_8b_tokenizer
    for file in tokenizer config; do echo '{}' >"llama3_1_8b_tokenizer/$file.json"; done ;;
*/flux-1-*.uri)
    name=${1##*/flux-1-} name=${name%.uri}
    mkdir -p "${name//-/_}"
    echo data >"${name//-/_}/part" ;;
*) echo "no such thing: $1" >&2; exit 9 ;;
esac
DOWNLOADER
;;
*) exit 22 ;;
esac
"""
# Shows the token in every way in which a careless script does.
LLAMA2 = r"""#!/bin/bash
set -euo pipefail
echo "token is $HF_TOKEN"
set -x
: "${HF_TOKEN}" again "$HF_TOKEN$HF_TOKEN" >&2
set +x
printf %s "${HF_TOKEN:0:9}"
[ ! -p /data/at_work ] || { echo here >/data/at_work; read -r </data/gate; }
printf '%s\n' "${HF_TOKEN:9}"
mkdir -p /data/data/megatron_checkpoints/Llama-2-70b-hf/iter_0000000/tokenizer
cd /data/data
for file in train.npy validation.npy packed_metadata.jsonl; do echo data >"$file"; done
cd megatron_checkpoints/Llama-2-70b-hf
for file in latest_checkpointed_iteration.txt latest_train_state.pt; do echo x >"$file"; done
cd iter_0000000
for file in __0_0.distcp __0_1.distcp common.pt .metadata metadata.json run_config.yaml modelopt_run_config.yaml \
    train_state.pt tokenizer/tokenizer.model tokenizer/tokenizer_config.json tokenizer/special_tokens_map.json; do
    echo x >"$file"
done
"""
TO_WEBDATASET = r"""
import os, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
os.mkdir(given["--output_path"])  # fails when a half-done one lies there
if os.path.exists("/dataset/break"):
    sys.exit("broken")
open(given["--output_path"] + "/shard.tar", "w").write("x" * len(os.listdir(given["--input_path"])))
assert os.path.exists("/tmp/datasets-installed")
"""
ENERGON = r"""#!/bin/bash
set -e
read -r first; read -r second; read -r class
[ "$1 $first $second $class" = "prepare y y 11" ]
mkdir .nv-meta
echo x >.nv-meta/split.yaml
"""
FILES = {
    "usr/local/bin/curl": CURL,
    "workspace/code/scripts/prepare_data_and_model.sh": LLAMA2,
    "workspace/code/scripts/to_webdataset.py": TO_WEBDATASET,
    "usr/local/bin/energon": ENERGON,
    "usr/local/bin/pip": "#!/bin/sh\n[ \"$*\" = 'install datasets' ] && touch /tmp/datasets-installed\n",
    "usr/local/bin/python": '#!/bin/sh\nexec python3 "$@"\n',
}


@contextmanager
def stand_in(address: str) -> Iterator[None]:
    """IMAGE in the engine at `address`, for the time of the block."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in FILES.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o755
            tar.addfile(member, io.BytesIO(text.encode()))
    repository, _, tag = IMAGE.rpartition(":")
    with closing(docker.DockerClient(base_url=address, timeout=300)) as client:
        made = client.api.create_container(BASE, command=["true"])["Id"]
        try:
            client.api.put_archive(made, "/", buffer.getvalue())
            client.api.commit(made, repository=repository, tag=tag)
        finally:
            client.api.remove_container(made, force=True)
        try:
            yield
        finally:
            client.api.remove_image(IMAGE, force=True)


@dataclass
class Data:
    """One test's data folders, its site file, and the command line on them."""

    top: Path
    engine: str
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        data = self.top / "data"
        self.site.write_text(
            f"kind: site\nname: test\nlog_dir: {self.top}/results\ndata:\n"
            f"  flux1: {{DATADIR: {data}/flux1}}\n  llama2_70b_lora: {{DATADIR: {data}/llama2}}\n"
            f"  llama31_8b: {{DATADIR: {data}/8b/data, MODEL: {data}/8b/model}}\n"
        )

    @property
    def site(self) -> Path:
        return self.top / "site.yaml"

    def folder(self, name: str) -> Path:
        return self.top / "data" / name

    def state(self, name: str, step: str) -> dict[str, object]:
        workload = {"llama2": "llama2_70b_lora", "8b/data": "llama31_8b"}.get(name, name)
        return dict(json.loads((self.folder(name) / ".orchestrator-prepare" / workload / f"{step}.json").read_text()))

    def command(self, workload: str, *words: str) -> list[str]:
        run = [] if {"--check", "--dry-run"} & set(words) else ["--engine", self.engine]
        return [
            sys.executable,
            "-m",
            "orchestrator",
            "prepare",
            workload,
            "--site",
            str(self.site),
            "--image",
            IMAGE,
            *run,
            *words,
        ]

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("HF_TOKEN", "ORCHESTRATOR_SITE")}
        return {**kept, **self.env}

    def prepare(self, workload: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(workload, *words),
            env=self.environment,
            text=True,
            cwd=TOP,
            timeout=300,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )

    def start(self, workload: str, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(workload, *words),
            env=self.environment,
            text=True,
            cwd=TOP,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@contextmanager
def gate(folder: Path, process: subprocess.Popen[str]) -> Iterator[None]:
    """Runs the block while the stand-in's step is at work and waits; lets it go on afterwards."""
    reader = os.open(folder / "at_work", os.O_RDONLY | os.O_NONBLOCK)
    try:
        ready = select.select([reader], [], [], 40)[0]
        assert ready, f"the step did not begin: {process.poll()}"
        yield
    finally:
        os.close(reader)
    if process.poll() is None:
        with open(folder / "gate", "w") as file:
            file.write("go\n")
