"""More runs for a set: declared in its ledger first, then in its set.json.

Seeds follow from the root seed and a run's number, so earlier ones stay. The bundle stays, too:
NEXP reaches its job by the environment.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.errors import SetError, UsageError
from orchestrator.evidence.files import Findings
from orchestrator.evidence.sets import RunSet
from orchestrator.onnode.kernel.records import write
from orchestrator.onnode.kernel.walk import MOST_RUNS
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.onnode.set import ledger
from orchestrator.onnode.set.lease import HeldError
from orchestrator.onnode.set.new import largest_root
from orchestrator.runset.bundle import check_bundle
from orchestrator.runset.room import no_room
from orchestrator.words import count, quoted


def extension(nexp: int) -> ledger.NewRecord:
    """Return the record: from here on the set has `nexp` runs."""
    return "extend", {"nexp": nexp}


def check_number(run_set: RunSet, nexp: int) -> None:
    """Raise UsageError for fewer runs or too many. `nexp` 0: as declared."""
    declared = run_set.record.nexp
    if 0 < nexp < declared:
        raise UsageError(
            f"--nexp {nexp}: set {run_set.name} was declared with {count(declared, 'run')}, and "
            "a set does not shrink",
            hint="orchestrator submit makes a new set",
        )
    if nexp > MOST_RUNS:
        raise UsageError(f"--nexp {nexp}: a set has at most {MOST_RUNS} runs")


def check_extension(run_set: RunSet, nexp: int) -> None:
    """Raise UsageError as check_number, SetError if seeds or bundle forbid more runs."""
    check_number(run_set, nexp)
    record, layout = run_set.record, run_set.layout
    if not nexp or nexp == record.nexp:
        return
    if record.root_seed > largest_root(nexp):
        raise SetError(
            f"set {run_set.name} cannot have {nexp} runs: their seeds would pass 2^31 (root seed "
            f"{record.root_seed})",
            hint="orchestrator submit makes a new set",
        )
    check_bundle(run_set, nexp)
    if "def extensions(" not in Findings().text(layout.bundle / "lib/set/ledger.py"):
        raise SetError(
            f"the bundle of {run_set.name} is of an earlier version, which takes no more runs",
            hint="orchestrator submit makes a new set",
        )


def extend(run_set: RunSet, nexp: int, world: World = THIS) -> RunSet:
    """Declare `nexp` runs. Needs the set's lock, and no live job. Raises SetError."""
    root = run_set.layout.root
    try:
        ledger.append(root, extension(nexp), world=world)
        return with_extension(run_set, world)
    except HeldError as held:
        raise SetError(f"{held}", hint="try again in a minute") from held
    except OSError as error:
        what = f"{root}: the set cannot be extended"
        raise no_room(error, what, root.parent) or SetError(
            f"{what}: {error.strerror or error}", hint=f"ls -ld {quoted(root)}"
        ) from error


def with_extension(run_set: RunSet, world: World = THIS) -> RunSet:
    """Write the runs declared in the ledger to set.json. Raises OSError."""
    entries = ledger.read(run_set.layout.root, world.files)[0]
    nexp = max((runs for _, runs in ledger.extensions(entries)), default=0)
    if nexp <= run_set.record.nexp:
        return run_set
    record = replace(run_set.record, nexp=nexp)
    write(record, run_set.layout.set_file, files=world.files)
    return RunSet(run_set.layout, record)
