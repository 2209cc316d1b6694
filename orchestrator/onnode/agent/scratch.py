"""A node's scratch folder: temporary files and compile caches that outlive a job's containers.

A cache belongs to an image, GPU architecture and user: that of another tool chain is worse than an
empty cache. It ends with the job, unless the site keeps it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from shlex import quote
from typing import Any

from ..kernel.client import bind
from ..kernel.system import entries, first_line
from ..kernel.waiting import Failed, Waiting, failing
from .leftovers import has_ended, is_old
from .node import Node

INSIDE = "/orch-scratch"
_CACHES = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "PYTORCH_KERNEL_CACHE_PATH": "kernels",
    "MIOPEN_USER_DB_PATH": "miopen-db",
    "MIOPEN_CUSTOM_CACHE_DIR": "miopen",
    "AOTRITON_CACHE_DIR": "aotriton",
    "AMD_COMGR_CACHE_DIR": "comgr",
    "HIPRTC_CACHE_PATH": "hiprtc",
    "XDG_CACHE_HOME": "xdg",
    "HF_HOME": "huggingface",
}
_MOST_ENTRIES, _LOOK_S, _REMOVE_S = 20_000, 1.0, 10


class Scratch:
    """The node's folder for an image. Raises Failed."""

    def __init__(self, node: Node, waiting: Waiting, image_id: str) -> None:
        settings = node.settings
        self._node, self._waiting = node, waiting
        prefix, top = f"orch-scratch-{os.getuid()}-", settings.scratch_dir
        self.folder = f"{top}/{prefix}{node.owner}"
        keeps = f"{top}/orch-cache-{os.getuid()}" if settings.keep_caches == 1 else ""
        name = f"{image_id.rpartition(':')[2][:12]}-{settings.gpu_gfx or 'cpu'}"
        if not os.path.isdir(top):
            raise Failed(
                "storage", f"{top} does not exist on this node (container.scratch of the site)"
            )
        # Only this user may enter; the container's root may be any user there.
        with failing("storage", f"cannot write to {top} (container.scratch of the site)"):
            self._private(self.folder)
            with open(f"{self.folder}/job", "w", encoding="utf-8") as file:
                file.write(node.job_id + "\n")
            if keeps:
                self._private(keeps)
            self.cache, self.tmp = f"{keeps or self.folder}/{name}", f"{self.folder}/tmp"
            for folder in (
                self.cache,
                self.tmp,
                *(f"{self.cache}/{name}" for name in _CACHES.values()),
            ):
                os.makedirs(folder, exist_ok=True)
                if os.stat(folder).st_uid == os.getuid():
                    os.chmod(folder, 0o1777 if folder == self.tmp else 0o777)
        self._sweep(f"{top}/{name}" for name in entries(top) if name.startswith(prefix))

    def _private(self, folder: str) -> None:
        """An existing folder may be another user's."""
        if not os.path.lexists(folder):
            os.mkdir(folder, 0o700)
        if not _is_own(folder):
            raise Failed("storage", f"{folder} is not this user's")

    @property
    def volumes(self) -> list[tuple[str, str]]:
        """The container's mounts: host folder, place."""
        return [(self.cache, f"{INSIDE}/cache"), (self.tmp, f"{INSIDE}/tmp")]

    def lines(self, *, inside: bool) -> bytes:
        """Shell text that names the folders; values of config, site or image win."""
        cache, tmp = (place if inside else folder for folder, place in self.volumes)
        values = {
            "TMPDIR": tmp,
            "AMD_COMGR_CACHE": "1",
            **{name: f"{cache}/{folder}" for name, folder in _CACHES.items()},
        }
        # Images may have models below the default of XDG_CACHE_HOME.
        text = (
            '[ ! -d ~/.cache/huggingface ] || [ "${HF_HOME+x}" ] || export '
            "HF_HOME=~/.cache/huggingface\n"
        )
        text += "".join(
            f'[ "${{{name}+x}}" ] || export {name}={quote(value)}\n'
            for name, value in values.items()
        )
        return text.encode()

    def look(self) -> dict[str, Any]:
        """`state`: cold (empty) or warm; `whole` false: counted in part."""
        files = size = seen = 0
        end, folders = time.monotonic() + _LOOK_S, [self.cache]
        while folders and seen < _MOST_ENTRIES and time.monotonic() < end:
            try:
                with os.scandir(folders.pop()) as scan:
                    for entry in scan:
                        seen += 1
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        else:
                            files += 1
                            size += entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue
        return {
            "state": "warm" if files else "cold",
            "files": files,
            "bytes": size,
            "whole": not folders,
        }

    def _sweep(self, folders: Iterable[str]) -> None:
        for folder in folders:
            job = first_line(f"{folder}/job") if _is_own(folder) else ""
            ended = has_ended(self._node, job) if job else is_old(folder)
            if ended and job != self._node.job_id:
                self._node.say("note", f"removes {folder}, which job {job or 'unknown'} left")
                self._remove(folder)

    def remove(self) -> None:
        self._remove(self.folder)

    def _remove(self, folder: str) -> None:
        """A container removes files of its own root."""
        argv = ["rm", "-rf", "--", folder]
        if self._waiting.call(argv, _REMOVE_S)[0] and self._node.settings.engine != "none":
            from .container import run_argv

            name, volumes = f"orch-{self._node.owner}-rm", [bind(folder, INSIDE)]
            script = ["-c", f"rm -rf {INSIDE}/*"]
            image = self._node.settings.cont
            self._waiting.call(run_argv(self._node, name, image, volumes, script), _REMOVE_S)
            self._waiting.call(argv, _REMOVE_S)
        if os.path.lexists(folder):
            self._node.say("note", f"cannot remove {folder}")


def _is_own(folder: str) -> bool:
    about = os.lstat(folder)
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
