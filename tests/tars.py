"""Tar archives, and images made of them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from typing import Any


def tar_of(files: Mapping[str, str | bytes], mode: int = 0o755) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            content = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def make_image(api: Any, base: str, files: Mapping[str, str], repository: str, tag: str) -> str:
    """Make an image with more files than `base`, by the API of an engine; return its id."""
    container = api.create_container(base, command=["true"])["Id"]
    try:
        api.put_archive(container, "/", tar_of(files))
        return str(api.commit(container, repository=repository, tag=tag)["Id"])
    finally:
        api.remove_container(container, force=True)
