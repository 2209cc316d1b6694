"""Builds the index of the data inside the container: lost with it, and made anew in every run."""

import os
import time
from pathlib import Path

folder = Path("/npy_indices")
folder.mkdir(exist_ok=True)
time.sleep(float(os.environ.get("STANDIN_PREPARE_S") or 0))
(folder / "index.npy").write_bytes(b"stand-in")
print("index: built", flush=True)
