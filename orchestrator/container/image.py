"""An image's identity, read from what an engine's `image inspect` says.

The identity is the image's id: the digest of its configuration, which names every layer. It is the same on every node,
whether the image was pulled or loaded from a tar. A tag says nothing: it can mean another image on each node. Engines
with the containerd image store use the manifest's digest as the id; two such images are also known to be the same when
they share a repository digest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import ExitCode, OrchestratorError, UsageError


class EngineError(OrchestratorError):
    """A container engine did not answer, or refused."""

    exit_code = ExitCode.SCHEDULER


@dataclass(frozen=True, slots=True)
class Image:
    """An image in an engine. `id` is `sha256:<64 hex>`, `digests` are `name@sha256:<64 hex>`, `size` is bytes."""

    id: str
    digests: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    size: int = 0

    def same_as(self, other: Image) -> bool:
        mine = {digest.partition("@")[2] for digest in self.digests}
        return self.id == other.id or any(
            digest.partition("@")[2] in mine for digest in other.digests
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "repo_digests": list(self.digests),
            "tags": list(self.tags),
            "bytes": self.size,
        }


@dataclass(frozen=True, slots=True)
class Look:
    """What a node's engine said: `image` is None when it has none, and there is a `problem` when it did not answer."""

    node: str
    image: Image | None = None
    problem: str = ""


def image_of(inspected: Any) -> Image:
    """Return the image that one object of `image inspect` describes. Raises EngineError when it does not."""
    if not isinstance(inspected, dict) or not isinstance(inspected.get("Id"), str):
        raise EngineError("the engine's answer to `image inspect` is not understood")
    raw = inspected["Id"]
    digests, tags = (tuple(sorted(inspected.get(key) or ())) for key in ("RepoDigests", "RepoTags"))
    return Image(
        raw if raw.startswith("sha256:") else f"sha256:{raw}",
        digests,
        tags,
        int(inspected.get("Size") or 0),
    )


def images_in(text: str) -> list[Image]:
    """Return the images in the JSON list that `image inspect` prints. Raises EngineError for anything else."""
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise EngineError(
            f"the engine's answer to `image inspect` is no JSON: {text[:80]!r}"
        ) from error
    if not isinstance(answer, list):
        raise EngineError("the engine's answer to `image inspect` is not a list")
    return [image_of(one) for one in answer]


def wanted_id(text: str) -> str:
    """Return the image id that a user wrote, with its `sha256:`. Raises UsageError for anything else."""
    digits = text.removeprefix("sha256:").lower()
    if not 12 <= len(digits) <= 64 or digits.strip("0123456789abcdef"):
        raise UsageError(
            f"{text!r} is not an image id",
            hint="give sha256: and 12 to 64 hex digits, as `orchestrator images check` prints them",
        )
    return f"sha256:{digits}"


def short(image_id: str) -> str:
    """Return the id as people compare it: 12 hex digits."""
    return image_id.removeprefix("sha256:")[:12]


def common(images: Sequence[Image]) -> Image | None:
    """Return the image that more nodes have than any other; None when there is no such one."""
    counts = sorted(
        ((sum(other.same_as(image) for other in images), image) for image in images),
        key=lambda pair: pair[0],
        reverse=True,
    )
    if not counts:
        return None
    most, first = counts[0]
    rivals = [image for count, image in counts if count == most and not image.same_as(first)]
    return None if rivals else first
