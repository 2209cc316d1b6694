"""What tests may ask of a stand-in, by variables that begin with STANDIN_; lab/standins/README.md
lists them."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from pathlib import Path

from training.environment import Environment
from training.faults import Faults

# Where the kernels of the real images are kept, with the default of each where nobody says another
# place.
CACHES = {
    "TRITON_CACHE_DIR": "~/.triton/cache",
    "TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_root",
    "AMD_COMGR_CACHE_DIR": "~/.cache/comgr",
    "MIOPEN_CUSTOM_CACHE_DIR": "~/.cache/miopen",
}


def node_number() -> int:
    """This node's number as whoever started it counts; without his word, torchrun's."""
    for name in ("SLURM_NODEID", "NODE_RANK", "GROUP_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def faults() -> Faults:
    """The faults of STANDIN_FAULT for this node, which may be named by its number or by its host
    name."""
    text = os.environ.get("STANDIN_FAULT", "")
    here = re.escape(socket.gethostname())
    text = re.sub(rf":node={here}(?=[:,]|$)", f":node={node_number()}", text)
    text = re.sub(r":node=[A-Za-z][^:,]*", ":node=-1", text)
    return Faults(Environment({**os.environ, "BUILTIN_FAULT": text}), node_number())


def seconds(name: str) -> float:
    return float(os.environ.get(name) or 0)


def tell_environment(rank: int) -> None:
    """Write what reached this process where STANDIN_ENVIRONMENT says: a folder, or `-` for a line
    on standard output."""
    place = os.environ.get("STANDIN_ENVIRONMENT", "")
    if not place:
        return
    about = {
        "host": socket.gethostname(),
        "fqdn": socket.getfqdn(),
        "node": node_number(),
        "rank": rank,
        "uid": os.getuid(),
        "cwd": os.getcwd(),
        "argv": sys.argv,
        "environment": dict(os.environ),
    }
    text = json.dumps(about, sort_keys=True)
    if place == "-":
        print(f":::STANDIN {text}", flush=True)
        return
    path = Path(place, f"environment.{about['host']}.{rank}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(text + "\n")
    path.with_suffix(".new").rename(path)


def compile_kernels(rank: int) -> None:
    """Take STANDIN_COMPILE_S seconds unless an earlier run left its kernels in the caches; leave
    ours there."""
    wanted = seconds("STANDIN_COMPILE_S")
    if not wanted:
        return
    folders = {
        name: Path(os.environ.get(name) or default).expanduser() for name, default in CACHES.items()
    }
    cold = {
        name: folder for name, folder in folders.items() if not (folder / f"kernel.{rank}").exists()
    }
    for folder in cold.values():
        time.sleep(wanted / len(CACHES))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"kernel.{rank}").write_text(f"{socket.gethostname()}\n")
    told = " ".join(
        f"{name}={'cold' if name in cold else 'warm'}:{folder}" for name, folder in folders.items()
    )
    print(f"stand-in: rank {rank}: kernels {told}", flush=True)
