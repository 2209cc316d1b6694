"""The defects that were once there can still be put back, and the campaign finds some of them within a few sets."""

from __future__ import annotations

from pathlib import Path

import mutations
import pytest
from old_defects import DEFECTS

FAST = ("too-late-begun", "end-told-to-nobody")
NAMED = {defect.name: defect for defect in DEFECTS}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_each_text_occurs_once_in_the_present_tree(defect: mutations.Defect) -> None:
    assert mutations.problems(defect) == []
    assert all(edit.now != edit.before for edit in defect.edits)


def test_each_defect_has_a_name_and_says_where_it_was_seen() -> None:
    assert len(NAMED) == len(DEFECTS) >= 50
    assert all(defect.what and defect.seen for defect in DEFECTS)


def test_a_defect_is_put_into_the_copy_only(tmp_path: Path) -> None:
    mutations.copy_tree(tmp_path)
    before = {
        path: (mutations.ROOT / path).read_text()
        for path in {edit.file for one in DEFECTS for edit in one.edits}
    }
    for defect in DEFECTS:
        mutations.put_back(defect, tmp_path)
        changed = {path for path, text in before.items() if (tmp_path / path).read_text() != text}
        assert changed == {edit.file for edit in defect.edits}
    mutations.put_back(mutations.NOTHING, tmp_path)
    for path, text in before.items():
        assert (tmp_path / path).read_text() == (mutations.ROOT / path).read_text() == text


@pytest.mark.parametrize("name", [FAST[0], pytest.param(FAST[1], marks=pytest.mark.long)])
def test_a_defect_is_found(name: str, tmp_path: Path) -> None:
    """Of 1,000 seeds about five show either defect, wherever the random streams lead."""
    mutations.copy_tree(tmp_path)
    found = mutations.hunt(NAMED[name], range(1, 1001), tmp_path, most=60)
    assert found.seed, found.why
