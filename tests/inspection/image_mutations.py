"""One change of a stand-in's files each, with the kind of finding that must name it."""

from __future__ import annotations

from dataclasses import dataclass

RUN = "workspace/code/run_and_time.sh"
TRAIN = "workspace/code/src/train.py"
CLI = "workspace/Primus/runner/primus-cli"


@dataclass(frozen=True)
class Mutation:
    """`old` occurs in `file` of the stand-in; a finding of `kind` that has `word` must be new."""

    image: str
    file: str
    old: str
    new: str
    kind: str
    word: str = ""


MUTATIONS = [
    # a variable renamed
    Mutation(
        "flux1-amd",
        RUN,
        "ranks=${STANDIN_RANKS:-$DGXNGPU}",
        "ranks=$DGX_GPUS",
        "unset variable",
        "DGX_GPUS",
    ),
    Mutation(
        "flux1-amd",
        RUN,
        '--node_rank="$SLURM_NODEID"',
        '--node_rank="$NODE_INDEX"',
        "unset variable",
        "NODE_INDEX",
    ),
    Mutation(
        "flux1-amd", RUN, '"model=$MODEL"', '"model=$MODEL_NAME"', "unset variable", "MODEL_NAME"
    ),
    Mutation("flux1-amd", RUN, '"data=$DATA"', '"data=$DATASET_NAME"', "unread variable", "DATA "),
    Mutation("flux1-oracle", RUN, "$DGXNGPU", "$GPUS", "unset variable", "GPUS"),
    Mutation(
        "flux1-oracle",
        RUN,
        '--master_addr="$MASTER_ADDR"',
        '--master_addr="$HEAD_NODE"',
        "unset variable",
        "HEAD_NODE",
    ),
    Mutation(
        "llama31-nemo", RUN, '--mbs "$MBS"', '--mbs "$MICRO_BATCH"', "unset variable", "MICRO_BATCH"
    ),
    Mutation(
        "llama31-nemo", RUN, "SIZE MAX_LR", "SIZE PEAK_LR MAX_LR", "unset variable", "PEAK_LR"
    ),
    Mutation("llama31-nemo", RUN, "GBS MBS SEED", "GBS MBS SEED BLEND", "unset variable", "BLEND"),
    Mutation(
        "llama31-primus",
        RUN,
        ': "${SEED:?SEED is not set}"',
        ': "${RUN_SEED:?}"',
        "unset variable",
        "RUN_SEED",
    ),
    Mutation(
        "llama2-primus",
        RUN,
        '--config "$EXP"',
        '--config "$EXPERIMENT"',
        "unset variable",
        "EXPERIMENT",
    ),
    Mutation(
        "llama2-primus", RUN, '--config "$EXP"', '--config "$EXPERIMENT"', "unread variable", "EXP "
    ),
    Mutation(
        "llama2-primus",
        RUN,
        "$PRETRAINED_CHECKPOINT",
        "$CHECKPOINT",
        "unset variable",
        "CHECKPOINT",
    ),
    Mutation(
        "llama2-cisco",
        TRAIN,
        "import sys\n",
        'import os, sys\nos.environ["PMI_RANK"]\n',
        "unset variable",
        "PMI_RANK",
    ),
    Mutation(
        "llama2-nemo-5.1",
        "workspace/code/src/train.py",
        "import sys\n",
        'import os, sys\nos.environ["CONVERTED"]\n',
        "unset variable",
        "CONVERTED",
    ),
    Mutation(
        "llama31-nemo",
        "workspace/code/src/prepare_data.py",
        "import os\n",
        'import os\nos.environ["BLEND_FILE"]\n',
        "unset variable",
        "BLEND_FILE",
    ),
    Mutation(
        "llmboost-5.0",
        "usr/local/bin/llmboost",
        "$DGXNGPU",
        "$NUM_GPUS",
        "unset variable",
        "NUM_GPUS",
    ),
    # a path moved
    Mutation("flux1-amd", RUN, "src/train.py", "source/train.py", "missing program"),
    Mutation(
        "llama2-primus",
        RUN,
        "./runner/primus-cli",
        "./bin/primus-cli",
        "missing program",
        "primus-cli",
    ),
    Mutation(
        "llama2-primus",
        CLI,
        "/workspace/code/src/train.py",
        "/opt/primus/train.py",
        "missing program",
    ),
    Mutation(
        "llama2-primus",
        "opt/standin/hooks.sh",
        '$root/megatron_checkpoints/Llama-2-70b-hf" ]',
        '$root/nemo_checkpoints/llama2" ]',
        "expected path",
        "nemo_checkpoints",
    ),
    Mutation(
        "llama31-nemo",
        "workspace/code/src/prepare_data.py",
        '"/npy_indices"',
        '"/index_cache"',
        "missing path",
        "/index_cache",
    ),
    Mutation(
        "llama2-primus",
        "opt/standin/hooks.sh",
        "mkdir -p /workspace/Primus/.pip_cache",
        "mkdir -p /ckpt/pip_cache",
        "written path",
        "/ckpt",
    ),
    Mutation(
        "llama2-nemo-5.1",
        RUN,
        "start=$SECONDS",
        "rm -rf /data/gov_report\nstart=$SECONDS",
        "deleted path",
        "/data/gov_report",
    ),
    Mutation(
        "flux1-oracle",
        RUN,
        "start=$SECONDS",
        "touch /dataset/.ready\nstart=$SECONDS",
        "written path",
        "/dataset",
    ),
    # a redirect added
    Mutation(
        "llama2-nemo-5.1", RUN, "src/train.py\n", "src/train.py 2>/dev/null\n", "hidden errors"
    ),
    Mutation(
        "flux1-oracle", RUN, "start=$SECONDS", "exec 2>/dev/null\nstart=$SECONDS", "hidden errors"
    ),
    Mutation(
        "llmboost-5.0",
        "usr/local/bin/llmboost",
        "exec torchrun",
        "exec 2>/results/err.log\nexec torchrun",
        "hidden errors",
    ),
    Mutation(
        "llama31-nemo", RUN, '--tag "$TAG"', '--tag "$TAG" 2>&1 | grep MLLOG', "hidden output"
    ),
    # an exit code lost
    Mutation("llama2-nemo-5.1", RUN, 'exit "$code"', "exit 0", "exit code"),
    Mutation(
        "llama2-nemo-5.1",
        RUN,
        "src/train.py\n",
        "src/train.py | tee /results/train.log\n",
        "exit code",
    ),
    Mutation("flux1-oracle", RUN, "set -euo pipefail", "set -u", "exit code"),
    Mutation("llama31-primus", RUN, "set -e\n", "", "exit code"),
    Mutation("llama31-nemo", RUN, "set -e\n", "", "exit code"),
    Mutation(
        "llama2-primus", RUN, '[ "${codes[0]}" -eq 0 ] || exit "${codes[0]}"', ":", "exit code"
    ),
    Mutation("llama31-primus-early", RUN, "set -e\n", "", "exit code"),
    # a download added
    Mutation(
        "llama31-primus",
        RUN,
        "start=$SECONDS",
        "pip install -U transformers\nstart=$SECONDS",
        "download",
        "transformers",
    ),
    Mutation(
        "flux1-amd",
        RUN,
        "start=$SECONDS",
        "python3 -m pip install megatron-energon\nstart=$SECONDS",
        "download",
        "energon",
    ),
    Mutation(
        "llama2-nemo-5.1",
        RUN,
        "start=$SECONDS",
        "git clone https://example.org/x.git\nstart=$SECONDS",
        "download",
        "git clone",
    ),
    Mutation(
        "llama31-nemo",
        "workspace/code/src/train.py",
        "import sys\n",
        'import sys\nfrom huggingface_hub import snapshot_download\nsnapshot_download("meta/llama")\n',
        "download",
        "meta/llama",
    ),
    Mutation(
        "flux1-oracle",
        RUN,
        "start=$SECONDS",
        "wget -q https://example.org/tokenizer.model\nstart=$SECONDS",
        "download",
        "wget",
    ),
    # ranks made in another way
    Mutation(
        "llama31-primus",
        RUN,
        'torchrun --nnodes="${NNODES:-1}" --nproc_per_node="${STANDIN_RANKS:-${GPUS_PER_NODE:-8}}" --node_rank="${NODE_RANK:-0}" \\\n    --rdzv_backend=c10d --rdzv_endpoint="$MASTER_ADDR:$MASTER_PORT"',
        "python3",
        "ranks",
        "one process",
    ),
    Mutation(
        "llama2-nemo-5.1",
        RUN,
        'torchrun --nproc_per_node="${STANDIN_RANKS:-8}"',
        "python3",
        "ranks",
        "one process",
    ),
    Mutation("llmboost-5.0", "usr/local/bin/llmboost", '--nnodes="$DGXNNODES" ', "", "ranks", ""),
    # a value that the bundle's cannot win over
    Mutation(
        "flux1-oracle",
        RUN,
        "start=$SECONDS",
        "export DGXNGPU=4\nstart=$SECONDS",
        "overwritten variable",
        "DGXNGPU",
    ),
    Mutation(
        "llama31-nemo",
        RUN,
        "start=$SECONDS",
        "SEED=$RANDOM\nstart=$SECONDS",
        "overwritten variable",
        "SEED",
    ),
]
