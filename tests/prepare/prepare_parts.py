"""An image with stand-ins for the real programs, on tiny files; folders of a preparation."""

from __future__ import annotations

import hashlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import docker
import yaml
from command_line import call
from tars import make_image
from until import LIMIT_S, until

TOP = Path(__file__).resolve().parents[2]
TOKEN = "hf_ThisIsTheTokenOfTheTests0123456789"
BASE = "orchestrator/builtin:1"
IMAGES = "orchestrator-test/prepare"

# `bash <(curl -s URL) [-d DIR] URI` downloads into DIR, or into a folder named after the URI.
CURL = r"""#!/bin/bash
[ ! -e /dataset/offline ] || exit 6
case ${*: -1} in
*/mlc-r2-downloader.sh) cat <<'DOWNLOADER'
set -e
dir=.
while getopts d: option; do dir=$OPTARG; done
shift $((OPTIND - 1))
[ ! -e /dataset/nothing ] || exit 0
mkdir -p "$dir"
cd "$dir"
case $1 in
*/llama-3-1-8b-preprocessed-c4-dataset.uri)
    for part in c4-train.en_6 c4-validation-91205-samples.en; do
        for end in bin idx; do echo data >"${part}_text_document.$end"; done
    done ;;
*/llama-3-1-8b-tokenizer.uri)  # into DIR, or a folder in it or next to it
    way=$(cat tokenizer_way 2>/dev/null || echo llama3_1_8b_tokenizer)
    mkdir -p "$way"
    for file in tokenizer config; do echo '{}' >"$way/$file.json"; done ;;
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
DOWNLOADER = CURL.partition("<<'DOWNLOADER'\n")[2].partition("DOWNLOADER\n")[0]


def pinned_to_the_stand_in(folder: Path) -> Path:
    """Preparations that run this downloader, and no other one."""
    sha = hashlib.sha256(DOWNLOADER.encode()).hexdigest()
    place = folder / "workloads/preparations"
    place.mkdir(parents=True)
    for path in sorted((TOP / "workloads/preparations").glob("*.yaml")):
        shipped = yaml.safe_load(path.read_text())
        rounds = {
            key: {"pins": [{**pin, "sha256": sha} for pin in part["pins"]]}
            for key, part in shipped["rounds"].items()
            if "pins" in part
        }
        if rounds:
            own = {"kind": "preparation", "name": path.stem, "extends": path.stem}
            (place / path.name).write_text(json.dumps({**own, "rounds": rounds}))
    return folder


# The published scripts of llama2_70b_lora, with their effect on existing folders. GOV_REPORT is
# their download: it deletes all other files in the folder, and then checks its content.
GOV_REPORT = r"""
download_dataset() {
    mkdir -p "$1/data" "$1/.cache/huggingface"
    for part in train validation; do echo data >"$1/data/$part-00000.parquet"; done
    mv "$1"/data/* "$1/" && find "$1" -mindepth 1 ! -name '*.parquet' -exec rm -rf {} +
    files=$(ls -A "$1" | tr '\n' ' ')
    [ "$files" = "train-00000.parquet validation-00000.parquet " ] || {
        echo "wrong hash" >&2
        exit 1
    }
    for part in train validation; do echo data >"$1/$part.npy"; done
}
"""
# Prints the token in every careless way.
LLAMA2_60 = (
    r"""#!/bin/bash
set -euo pipefail
"""
    + GOV_REPORT
    + r"""
echo "token is $HF_TOKEN"
set -x
: "${HF_TOKEN}" again "$HF_TOKEN$HF_TOKEN" >&2
set +x
printf %s "${HF_TOKEN:0:9}"
# WAIT
printf '%s\n' "${HF_TOKEN:9}"
download_dataset /data
# BREAK
echo data >/data/packed_metadata.jsonl
made=/data/megatron_checkpoints/Llama-2-70b-hf
mkdir -p "$made/iter_0000000/tokenizer"
cd "$made"
for file in latest_checkpointed_iteration.txt latest_train_state.pt; do echo x >"$file"; done
cd iter_0000000
for file in __0_0.distcp __0_1.distcp common.pt .metadata metadata.json run_config.yaml \
    modelopt_run_config.yaml train_state.pt tokenizer/tokenizer.model \
    tokenizer/tokenizer_config.json tokenizer/special_tokens_map.json; do
    echo x >"$file"
done
"""
)
WAIT = """
mkdir -p /data/.cache && mkfifo /data/.cache/at_work /data/.cache/gate
echo here >/data/.cache/at_work; read -r </data/.cache/gate
"""
# Needs no token: the model is public.
LLAMA2_50 = (
    r"""#!/bin/bash
set -euo pipefail
"""
    + GOV_REPORT
    + r"""
download_dataset /data/gov_report
mkdir -p /data/model /tmp/made/model_weights
echo shard >/data/model/pytorch_model-00001.bin
for file in model_config.yaml abc_tokenizer.model model_weights/common.pt; do
    echo x >"/tmp/made/$file"
done
tar -C /tmp/made -cf /data/model/llama2-70b.nemo .
# BREAK
cd /data/model
find . -type f ! -name llama2-70b.nemo -exec rm -f {} +
tar -xf llama2-70b.nemo
mv /data/gov_report /data/data
"""
)
LLAMA2_51 = (
    r"""#!/bin/bash
set -euo pipefail
[ -n "$HF_TOKEN" ]
"""
    + GOV_REPORT
    + r"""
download_dataset /data/gov_report
mkdir -p /ckpt/weights/module.decoder /ckpt/context/nemo_tokenizer
for file in weights/module.decoder/0.0 context/nemo_tokenizer/tokenizer.model; do
    echo x >"/ckpt/$file"
done
mv /data/gov_report /data/data
mv /ckpt/weights/ /ckpt/model_weights/
cd /ckpt/model_weights/
for d in module.*/; do mv -- "$d" "model.${d#module.}"; done
cp /ckpt/context/nemo_tokenizer/tokenizer.model /ckpt/tokenizer.model
echo x >/ckpt/model_config.yaml
# BREAK
mv /ckpt /data/model/
exit 0
"""
)
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
# Beside the working folder's scripts, so that `python3 -c` finds it.
HUB = """import os
from pathlib import Path

def snapshot_download(repo, allow_patterns):
    assert os.environ["HF_TOKEN"], "401: a gated repository"
    name = "models--" + repo.replace("/", "--")
    made = Path(os.environ["HF_HOME"], "hub", name, "snapshots", "0123")
    made.mkdir(parents=True)
    for one in ("config.json", "tokenizer.model"):
        (made / one).write_text("x")
"""
FILES = {
    "workspace/code/huggingface_hub.py": HUB,
    "usr/local/bin/curl": CURL,
    "workspace/code/scripts/to_webdataset.py": TO_WEBDATASET,
    "usr/local/bin/energon": ENERGON,
    "usr/local/bin/pip": (
        "#!/bin/sh\n[ \"$*\" = 'install datasets' ] && touch /tmp/datasets-installed\n"
    ),
    "usr/local/bin/python": '#!/bin/sh\nexec python3 "$@"\n',
}
LLAMA2 = {"5.0": LLAMA2_50, "5.1": LLAMA2_51, "6.0": LLAMA2_60}
SCRIPTS = {
    **LLAMA2,
    **{f"{key}-broken": text.replace("# BREAK\n", "exit 7\n") for key, text in LLAMA2.items()},
    "waiting": LLAMA2_60.replace("# WAIT\n", WAIT),
}
"""Tag of the image -> its prepare_data_and_model.sh."""


def tag(arguments: tuple[str, ...]) -> str:
    """The image of the round that the command line asks for."""
    return arguments[arguments.index("--round") + 1] if "--round" in arguments else "6.0"


@contextmanager
def stand_in(address: str) -> Iterator[None]:
    """IMAGES:TAG of SCRIPTS in the engine at `address`, for the time of the block."""
    with closing(docker.DockerClient(base_url=address, timeout=300)) as client:
        try:
            for name, script in SCRIPTS.items():
                path = "workspace/code/scripts/prepare_data_and_model.sh"
                make_image(client.api, BASE, {**FILES, path: script}, IMAGES, name)
            yield
        finally:
            for image in client.images.list(IMAGES):
                client.api.remove_image(image.id, force=True)


@dataclass
class Data:
    """One test's data folders, its site file, and the command line on them."""

    top: Path
    engine: str
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        data = self.top / "data"
        if not (own := self.top / "documents").exists():
            pinned_to_the_stand_in(own)
        self.site.write_text(
            f"kind: site\nname: test\nlog_dir: {self.top}/results\nsystems_dirs: [{own}]\ndata:\n"
            f"  flux1: {{DATADIR: {data}/flux1}}\n  llama2_70b_lora: {{DATADIR: {data}/llama2}}\n"
            f"  llama31_8b: {{DATADIR: {data}/8b/data, MODEL: {data}/8b/model}}\n"
        )

    @property
    def site(self) -> Path:
        return self.top / "site.yaml"

    def folder(self, name: str) -> Path:
        return self.top / "data" / name

    def state(self, name: str, step: str, round: str = "6.0") -> dict[str, object]:
        workload = {"llama2": "llama2_70b_lora", "8b/data": "llama31_8b"}.get(name, name)
        folder = self.folder(name) / ".orchestrator-prepare" / workload / round
        return dict(json.loads((folder / f"{step}.json").read_text()))

    def containers(self, client: docker.DockerClient, *, ended: bool = False) -> list[str]:
        """The ids of the containers that mount these folders, with `ended` also ended ones."""

        def mounts_here(container: dict[str, list[dict[str, str]]]) -> bool:
            sources = [Path(mount["Source"]) for mount in container["Mounts"]]
            return any(source.is_relative_to(self.top) for source in sources)

        listed = client.api.containers(all=ended, filters={"label": "orchestrator=prepare"})
        return [container["Id"] for container in listed if mounts_here(container)]

    def command(self, workload: str, *arguments: str) -> list[str]:
        engine = [] if {"--check", "--dry-run"} & set(arguments) else ["--engine", self.engine]
        options = ["--site", str(self.site), "--image", f"{IMAGES}:{tag(arguments)}", *engine]
        return ["prepare", workload, *options, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("HF_TOKEN", "ORCHESTRATOR_SITE")
        }
        return {**kept, **self.env}

    def prepare(self, workload: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return call(self.command(workload, *arguments), self.env)

    def start(self, workload: str, *arguments: str, host: str = "") -> subprocess.Popen[str]:
        """`host`: as on another machine of that name, with its own processes."""
        elsewhere = []
        if host:
            elsewhere = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
            elsewhere += ["sh", "-c", f'hostname {host} && exec "$0" "$@"']
        return subprocess.Popen(
            [*elsewhere, sys.executable, "-m", "orchestrator", *self.command(workload, *arguments)],
            env=self.environment,
            text=True,
            cwd=TOP,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@contextmanager
def gate(folder: Path, process: subprocess.Popen[str]) -> Iterator[None]:
    """Run the block while the step of the image `waiting` waits; then the step continues."""
    pipes = folder / "data/.cache"
    until(lambda: (pipes / "gate").exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    reader = os.open(pipes / "at_work", os.O_RDONLY | os.O_NONBLOCK)
    try:
        ready = select.select([reader], [], [], LIMIT_S)[0]
        assert ready, f"the step did not begin: {process.poll()}"
        yield
    finally:
        os.close(reader)
    if process.poll() is None:
        with open(pipes / "gate", "w") as file:
            file.write("go\n")


WAITING = ("--image", f"{IMAGES}:waiting")
"""For a command line: its step waits in gate()."""
