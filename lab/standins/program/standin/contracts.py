"""What the published implementations do differently, as far as a launcher can see it: one row per
implementation."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Contract:
    """How one implementation reads its settings and which records it prints."""

    benchmark: str
    gpus: str
    """The variable that says how many ranks a node has."""
    early: str = "first"
    """Who prints cache_clear and init_start: `first` (global rank 0) or `all`."""
    cache_clear: bool = True
    """Whether the training itself prints cache_clear; else whoever starts it does."""
    init_start: str = "INTERVAL_START"
    status: str = "onprem"
    """The value of submission_status."""
    nodes: str = ""
    """The variable with the number of nodes that the implementation compares with what it finds
    ("": it compares nothing)."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Its own name of a setting -> the name under which benchmarks.Plan reads it."""
    index: tuple[str, ...] = ()
    """What rank 0 makes below /results before the training, and every other rank reads there."""
    folders: tuple[str, ...] = ()
    """What it makes below /results on every node, as root; {NAME} is a variable."""


_LLAMA31_NEMO = {
    "GBS": "PRIMUS_GLOBAL_BATCH_SIZE",
    "MBS": "PRIMUS_MICRO_BATCH_SIZE",
    "MAX_LR": "PRIMUS_LR",
    "MAX_STEPS": "PRIMUS_TRAIN_ITERS",
    "WARMUP_STEPS": "PRIMUS_LR_WARMUP_ITERS",
    "EVAL_EVERY": "EVAL_SAMPLES_INTERVAL",
    "TARGET": "TARGET_EVAL_LOSS",
}

CONTRACTS = {
    "flux1": Contract(
        "flux1", "DGXNGPU", cache_clear=False, folders=("nemo_experiments/{EXP_NAME}",)
    ),
    "llama2-nemo": Contract(
        "llama2_70b_lora",
        "DGXNGPU",
        nodes="DGXNNODES",
        index=("data_index/train", "data_index/val"),
    ),
    # Without a /results that nodes have in common, each must have made its own.
    "llama2-llmboost": Contract(
        "llama2_70b_lora",
        "DGXNGPU",
        nodes="DGXNNODES",
        folders=("data_index/train", "data_index/val"),
    ),
    "llama31-nemo": Contract("llama31_8b", "GPUS_PER_NODE", early="all", renamed=_LLAMA31_NEMO),
    "llama31-primus": Contract(
        "llama31_8b", "GPUS_PER_NODE", early="all", init_start="POINT_IN_TIME", status=""
    ),
    "llama2-primus": Contract(
        "llama2_70b_lora",
        "GPUS_PER_NODE",
        early="all",
        init_start="POINT_IN_TIME",
        status="",
        folders=("artifacts",),
    ),
}
