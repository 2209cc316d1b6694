"""Sets of runs for use from Python: submit, wait, read, compare."""

from __future__ import annotations

import time
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.compare.comparison import Comparison
    from orchestrator.compare.sides import Side
    from orchestrator.model import Entry
    from orchestrator.views.notebook import NotebookSet


def open_set(folder: str | PathLike[str]) -> NotebookSet:
    """Return the picture of the set in `folder`, from its files alone: no scheduler is asked.

    Times are Unix milliseconds, scores minutes. Raises SetError without a set.
    """
    from orchestrator.evidence import picture, sets
    from orchestrator.views.notebook import for_notebook

    root = Path(folder)
    sets.open_set(root)
    return for_notebook(picture.look([root], [])[0])


def submit_set(
    entry: Entry, *, nexp: int | None = None, warn: Callable[[str], object] = lambda _: None
) -> Path:
    """Submit a set of `nexp` runs (default: as the rules require) below the site's log directory;
    return its folder.

    An unsubmitted set of the same bundle is taken instead. `warn` gets doubts about the set. Raises
    OrchestratorError: nothing is left behind, or it names the set that stays.
    """
    from orchestrator.runset.start import start

    run_set, _ = start(entry, nexp, warn=warn)
    return run_set.layout.root


def wait_for_set(
    folder: str | PathLike[str], *, interval_s: float | None = None, timeout_s: float | None = None
) -> NotebookSet:
    """Wait until the set no longer changes by itself; return its picture, as open_set() does.

    It may be incomplete: `state` and `reason` describe its end. `interval_s`: the pause between
    reads (None: a fiftieth of a run). Raises TimeoutError, SetError without a set.
    """
    from orchestrator.evidence import sets
    from orchestrator.evidence.watch import Watch
    from orchestrator.scheduler import open_scheduler
    from orchestrator.views.notebook import for_notebook

    run_set = sets.open_set(Path(folder))
    end = None if timeout_s is None else time.monotonic() + timeout_s

    def pause(seconds: float) -> None:
        if end is not None and time.monotonic() + seconds > end:
            raise TimeoutError(
                f"{run_set.layout.root}: not over within {timeout_s:g} s; it keeps running"
            )
        time.sleep(seconds)

    *_, last = Watch(run_set, open_scheduler(run_set.record.scheduler), interval_s).pictures(pause)
    return for_notebook(last)


def compare_sets(
    a: str | PathLike[str], b: str | PathLike[str], *, ruleset: str = ""
) -> Comparison:
    """Compare `b` with `a`: each a set, a folder of logs, or a published entry such as
    "6.0/flux1/MI325X_08x08x32".

    Ratios are b / a: a score ratio above 1 means a slower `b`. Raises UsageError for another name,
    InputError for a folder with unusable logs.
    """
    from orchestrator.compare.comparison import compare

    return compare(_side(fspath(a), ruleset), _side(fspath(b), ruleset))


def _side(name: str, ruleset: str) -> Side:
    from orchestrator.compare.sides import find_side

    side = find_side(name, ruleset=ruleset)
    if side is None:
        raise UsageError(
            f"{name}: neither a folder nor a published entry",
            hint="orchestrator published lists them",
        )
    return side
