"""Images without a stand-in on the lab: scripts written from what is known of their start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from standin_images import PROGRAMS

RUN = "workspace/code/run_and_time.sh"
TRAIN = "workspace/code/src/train.py"


@dataclass(frozen=True)
class WrittenImage:
    """Files of an image, an entry that would run in it, and its true contract."""

    files: dict[str, str]
    entry: tuple[str, str, str]
    ranks: str
    after_failure: int
    findings: frozenset[str]


WRITTEN = {
    # torchrun's static rendezvous with Slurm's own name for the first host, which no bundle sets.
    "llama2-dell-slurm": WrittenImage(
        {
            RUN: """set -e
export DGXNNODES=$SLURM_NNODES
torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 --node_rank=$SLURM_NODEID \\
    --master_addr=$SLURM_SRUN_COMM_HOST --master_port=29500 src/train.py
""",
            TRAIN: 'import os\nos.environ["SEED"]\n',
        },
        ("MI300X_1x8x1", "llama2_70b_lora", "5.0"),
        "torchrun static",
        7,
        frozenset({"warning unset variable /workspace/code/run_and_time.sh:4"}),
    ),
    # One task per node, torchrun in it; the log is split by tee.
    "llama31-cisco": WrittenImage(
        {
            RUN: """set -e
: "${SEED:?}"
export NODE_RANK=$SLURM_NODEID
torchrun --nnodes="$NNODES" --nproc_per_node="$GPUS_PER_NODE" --node_rank="$NODE_RANK" \\
    --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" src/train.py 2>&1 | tee /results/train.log
exit "${PIPESTATUS[0]}"
""",
            TRAIN: "print(1)\n",
        },
        ("MI350X_2x8x1", "llama31_8b", "6.0"),
        "torchrun static",
        7,
        frozenset({"note hidden errors /workspace/code/run_and_time.sh:4"}),
    ),
    # A guard of the network card ends with 42; the training's code is kept without `set -e`.
    "gpt-oss": WrittenImage(
        {
            RUN: """if [[ -z "${SEED}" ]]; then exit 1; fi
words=(--nproc_per_node="$GPUS_PER_NODE")
if [[ "${SLURM_NNODES:-1}" -gt 1 ]]; then
    if [[ "${AINIC_REQUIRE:-0}" == 1 ]] && ibv_devices 2>&1 | grep -q "ABI"; then exit 42; fi
    words+=(--nnodes="$SLURM_NNODES" --node_rank="$SLURM_NODEID" --rdzv_backend=c10d
        --rdzv_endpoint="$MASTER_ADDR:${MASTER_PORT:-29501}")
fi
torchrun "${words[@]}" src/train.py
code=$?
echo "RESULT"
exit $code
""",
            TRAIN: "print(1)\n",
        },
        ("MI355X_2x8x1_tp1pp1ep1_gbs64", "gpt_oss_20b", "6.0"),
        "torchrun c10d",
        7,
        frozenset({"note ranks /workspace/code/run_and_time.sh:8"}),
    ),
    # No launcher: one process with all GPUs, twice; the pipe to tee hides its code.
    "bert-tinycorp": WrittenImage(
        {
            RUN: """export SEED=$RANDOM
INITMLPERF=1 BENCHMARK=10 python3 src/train.py
RUNMLPERF=1 python3 src/train.py | tee bert.log
""",
            TRAIN: "print(1)\n",
        },
        ("tinybox_8xMI300X", "bert", "5.0"),
        "task per GPU",
        0,
        frozenset(
            {
                "error ranks /workspace/code/run_and_time.sh:3",
                "warning exit code /workspace/code/run_and_time.sh:3",
                "warning overwritten variable /workspace/code/run_and_time.sh:1",
            }
        ),
    ),
    # The RESULT line is printed although the training failed; the code is the real one.
    "primus": WrittenImage(
        {
            RUN: """cd /workspace/Primus
./runner/primus-cli direct -- train pretrain --config "$EXP"
code=$?
echo "RESULT,LLM"
exit $code
""",
            "workspace/Primus/runner/primus-cli": """#!/bin/bash
set -euo pipefail
while [[ $# -gt 0 ]]; do
    case "$1" in direct) shift ;; --) shift; break ;; *) break ;; esac
done
MASTER_ADDR=${MASTER_ADDR:-localhost}
torchrun --nproc_per_node "${GPUS_PER_NODE:-8}" --nnodes "${NNODES:-1}" --node_rank "${NODE_RANK:-0}" \\
    --master_addr "$MASTER_ADDR" --master_port "${MASTER_PORT:-1234}" primus/cli/main.py "$@"
""",
            "workspace/Primus/primus/cli/main.py": "print(1)\n",
        },
        ("MI355X_1x8x1", "llama2_70b_lora", "6.0"),
        "torchrun static",
        7,
        frozenset(),
    ),
}


def write_root(image: WrittenImage, folder: Path) -> Path:
    """Write the file system of an image below `folder`."""
    for name, text in image.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    programs = folder / "usr/bin"
    programs.mkdir(parents=True)
    for name in PROGRAMS:
        (programs / name).write_bytes(b"\x7fELF")
        (programs / name).chmod(0o755)
    return folder
