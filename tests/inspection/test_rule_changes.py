"""Changes by rule, at every place of every image: which of them `images inspect` does not name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rule_changes import IMAGES, ON_TWO_NODES, make_image, outcomes

WITHOUT_EFFECT = {
    (ON_TWO_NODES, "NODE_RANK_NEW"),  # c10d numbers the nodes itself
    (ON_TWO_NODES, "SLURM_NNODES_NEW"),  # NNODES has the same number
}
"""Renamed variables after which the training starts as before."""


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(
            image, marks=[] if number % 3 == 0 or image == ON_TWO_NODES else pytest.mark.long
        )
        for number, image in enumerate(IMAGES)
    ],
)
def test_every_change_by_rule_is_named(image: str, tmp_path: Path) -> None:
    found = outcomes(*make_image(image, tmp_path / "root"))
    assert len(found) >= 8
    unnamed = {
        (image, word)
        for change, is_named in found
        if not is_named
        for word in re.findall(r"\w+_NEW\b", change.text)[:1] or [change.rule]
    }
    assert unnamed == {one for one in WITHOUT_EFFECT if one[0] == image}
