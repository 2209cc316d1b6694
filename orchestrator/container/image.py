"""The identity of an image: its id, the digest of its configuration.

It is equal on every node, after a pull and after a load; a tag may not be. Engines with the
containerd image store use the manifest's digest: there repository digests are compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import ExitCode, OrchestratorError, UsageError


class EngineError(OrchestratorError):
    """A container engine did not answer, or refused a request."""

    exit_code = ExitCode.SCHEDULER


@dataclass(frozen=True, slots=True)
class Image:
    """`id` is `sha256:<64 hex>`, `digests` `name@sha256:<64 hex>`, `size` bytes."""

    id: str
    digests: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    size: int = 0

    def same_as(self, other: Image) -> bool:
        mine = {digest.partition("@")[2] for digest in self.digests}
        others = {digest.partition("@")[2] for digest in other.digests}
        return self.id == other.id or bool(mine & others)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "repo_digests": list(self.digests),
            "tags": list(self.tags),
            "bytes": self.size,
        }


def image_of(inspected: Any) -> Image:
    """Return the image of an `image inspect` object. Raises EngineError."""
    if not isinstance(inspected, dict) or not isinstance(inspected.get("Id"), str):
        raise EngineError("the engine's answer to `image inspect` is not understood")
    digits = inspected["Id"].removeprefix("sha256:")
    return Image(
        f"sha256:{digits}",
        digests=tuple(sorted(inspected.get("RepoDigests") or ())),
        tags=tuple(sorted(inspected.get("RepoTags") or ())),
        size=int(inspected.get("Size") or 0),
    )


def images_in(text: str) -> list[Image]:
    """Return the images in `image inspect` JSON. Raises EngineError."""
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise EngineError(
            f"the engine's answer to `image inspect` is no JSON: {text[:80]!r}"
        ) from error
    if not isinstance(answer, list):
        raise EngineError("the engine's answer to `image inspect` is not a list")
    return [image_of(inspected) for inspected in answer]


def wanted_id(text: str) -> str:
    """Return the user's id with `sha256:`. Raises UsageError."""
    digits = text.removeprefix("sha256:").lower()
    if not 12 <= len(digits) <= 64 or digits.strip("0123456789abcdef"):
        raise UsageError(
            f"{text!r} is not an image id",
            hint="give sha256: and 12 to 64 hex digits, as `orchestrator images check` prints them",
        )
    return f"sha256:{digits}"


def short(image_id: str) -> str:
    return image_id.removeprefix("sha256:")[:12]


def common(images: Sequence[Image]) -> Image | None:
    """Return the most frequent image, None for a tie."""
    if not images:
        return None
    counts = [sum(other.same_as(image) for other in images) for image in images]
    most = max(counts)
    leaders = [image for count, image in zip(counts, images, strict=True) if count == most]
    return leaders[0] if all(image.same_as(leaders[0]) for image in leaders) else None
