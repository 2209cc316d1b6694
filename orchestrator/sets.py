"""Sets of runs for use from Python: the one place that says which of our functions read a set's folder for others."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.compare.comparison import Comparison
    from orchestrator.compare.sides import Side
    from orchestrator.evidence.picture import SetPicture


def open_set(folder: str | PathLike[str]) -> SetPicture:
    """Return what the set in `folder` has done so far, from its files alone: no scheduler is asked.

    Times are Unix milliseconds, scores minutes. Raises SetError when there is no set in it.
    """
    from orchestrator.evidence import picture, sets

    root = Path(folder)
    sets.open_set(root)
    [found] = picture.look([root], [])
    return found


def compare_sets(a: str | PathLike[str], b: str | PathLike[str], *, ruleset: str = "") -> Comparison:
    """Compare `b` with `a`: each a set, a folder of logs, or a published entry such as "6.0/flux1/MI325X_08x08x32".

    Ratios are b / a: a score ratio above 1 means that `b` is slower. Raises UsageError for what is none of these,
    InputError for a folder whose logs cannot be used.
    """
    from orchestrator.compare.comparison import compare

    return compare(_side(fspath(a), ruleset), _side(fspath(b), ruleset))


def _side(name: str, ruleset: str) -> Side:
    from orchestrator.compare.sides import find_side

    side = find_side(name, ruleset=ruleset)
    if side is None:
        raise UsageError(f"{name}: neither a folder nor a published entry", hint="orchestrator published lists them")
    return side
