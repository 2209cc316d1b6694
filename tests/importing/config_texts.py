"""Configs in the style of the published ones, made from the facts that the catalogue is tested with."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

FACTS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "facts_env.json").read_text(encoding="utf-8")
)
ENTRIES: list[dict[str, Any]] = FACTS["entries"]

STEM = r"$(basename $(readlink -f ${BASH_SOURCE[0]}) | sed 's/^config_//' | sed 's/\.sh$//' )"
MIN_LR = r'$(awk "BEGIN { printf \"%g\", ${PRIMUS_LR} * 0.1 }")'
COMPUTED = (
    (r"DGXSYSTEM=<derived.*>", STEM),
    (r"WALLTIME=<computed: NEXP .*>", "$(( (${NEXP:-1} * WALLTIME_MINUTES) ))"),
    (r"WALLTIME=<computed: 5 .*>", "$((5 + ${NEXP:-1} * ($WALLTIME_RUNANDTIME + 5)))"),
    (r"CONTINUAL_CKPT=<.*>", '"${CONTINUAL_CKPT:-/data/model/saved_ckpts}"'),
    (r"SEED=<random.*>", "$RANDOM"),
    (r"GLOO_SOCKET_IFNAME=<same.*>", "${NCCL_SOCKET_IFNAME}"),
    (r"SEGMENT=<.*>", "${DGXNNODES:-8}"),
    (r"EXP_NAME=<.*>", "${EXP_NAME:-flux-train-$(date +%y%m%d%H%M%S%N)}"),
    (r"(MLLOG_)?CONFIG_FILENAME=<.*>", '$(basename "$(readlink -f "${BASH_SOURCE[0]}")")'),
    (r"PYTHONPATH=<.*(/third_party/[\w-]+) .*>", r'"${PRIMUS_PATH}:${PRIMUS_PATH}\1:${PYTHONPATH}"'),
    (r"PRIMUS_EVAL_INTERVAL=<.*>", "$((12288 / PRIMUS_GLOBAL_BATCH_SIZE))"),
    (r"(PRIMUS_)?EVAL_ITERS=<.*>", "$((1024 / PRIMUS_GLOBAL_BATCH_SIZE))"),
    (r"PRIMUS_LR_DECAY_ITERS=<.*>", "$((PRIMUS_TRAIN_ITERS - PRIMUS_LR_WARMUP_ITERS))"),
    (r"PRIMUS_MIN_LR=<.*>", MIN_LR),
    (r"\w+=<blank.*>", ""),
    (r"NODE_RANK=<.*>", "${NODE_RANK:-0}"),
    (r"MASTER_ADDR=<required>", "${MASTER_ADDR:?MASTER_ADDR must be set}"),
    (r"PET_RDZV_CONF=<.*: (.*)>", r"\1"),
)  # fmt: skip
"""How a computed value of the facts is written in a config."""


def environment(fact: dict[str, Any]) -> dict[str, str]:
    """Return what ran: the published config, and over it what all logs of the entry say otherwise."""
    if "env" in fact:
        return dict(fact["env"])
    env = {**FACTS["profiles"][fact["profile"]], **fact.get("set", {}), **fact.get("logs", {})}
    return {name: value for name, value in env.items() if name not in fact.get("absent", ())}


def computed(name: str, value: str) -> str | None:
    """Return the expression for a computed value; None for a plain one."""
    for pattern, text in COMPUTED:
        if match := re.fullmatch(pattern, f"{name}={value}"):
            return re.sub(r"\\1", lambda _: match[1] or "", text) if r"\1" in text else text
    assert "<" not in value, f"{name}={value}"
    return None


def write_config(folder: Path, name: str, env: dict[str, str]) -> Path:
    """Write config `name` and the common file that it sources; return its path."""
    folder.mkdir(parents=True)
    plain = [key for key, value in env.items() if computed(key, value) is None]
    common = plain[len(plain) // 2 :]
    lines = ["#!/bin/bash", "# what all systems share"]
    lines += [f"export {key}={shlex.quote(env[key])};" for key in common]
    (folder / "config_common.sh").write_text("\n".join(lines) + "\n")
    lines = ["#!/bin/bash", "source $(dirname ${BASH_SOURCE[0]})/config_common.sh", ""]
    for number, key in enumerate(plain[: len(plain) // 2]):
        value = shlex.quote(env[key])
        style = (
            f"export {key}={value}     # a remark",
            f'export {key}="{env[key]}"' if re.fullmatch(r"[\w.,:/ -]*", env[key]) else f"export {key}={value}",
            f"{key}={value} && export {key}" if value else f"export {key}=",
            f': "${{{key}:={env[key]}}}"\nexport {key}' if re.fullmatch(r"[\w.,:/-]+", env[key]) else f"export {key}={value}",
        )  # fmt: skip
        lines.append(style[number % len(style)])
    for key, value in env.items():
        if (text := computed(key, value)) is not None:
            lines.append(f"export {key}={text}")
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path
