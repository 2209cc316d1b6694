"""A job finds or creates its set's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..kernel import records
from ..kernel.events import number
from ..kernel.files import make_below, raise_if_away
from ..kernel.layout import Layout
from ..kernel.plural import count
from ..kernel.program import Program
from ..kernel.records import SetRecord
from ..kernel.settings import Settings
from ..kernel.walk import SetWalk
from ..kernel.world import World
from . import bundle as bundle_files
from . import ledger
from .folder import BUNDLE_COPY, Folder, FolderError, TakingJob
from .lease import HeldError
from .new import give, largest_root, new_set, new_set_id, show

_SAME = (
    "system",
    "workload",
    "benchmark",
    "round",
    "ruleset",
    "gpus_per_node",
    "engine",
    "metric",
    "max_attempts",
    "run_timeout_s",
)
"""Members of set.json named as in settings.sh."""


def open_folder(
    program: Program,
    settings: Settings,
    job: TakingJob,
    environment: Mapping[str, str],
    world: World,
) -> Folder:
    """Find the folder named in ORCH_SET_DIR; a job started by hand creates its own. Raises
    FolderError."""
    root = _root(settings, environment, world)
    try:
        if not environment.get("ORCH_SET_DIR"):
            _make_root(root, settings.shared_group, world)
        layout = _make_folders(root, world)
        return _Opener(program, settings, job, environment, world).open(layout)
    except HeldError as held:
        raise FolderError(f"{held}; try again") from held
    except LookupError as error:
        raise FolderError(f"{error} (`shared_group` of the site file)") from error
    except OSError as error:
        cause = f"{error.strerror or error} (LOGDIR={settings.logdir})"
        raise FolderError(f"cannot write to {root}: {cause}") from error


def _root(settings: Settings, environment: Mapping[str, str], world: World) -> Path:
    """The folder may not exist yet."""
    named = environment.get("ORCH_SET_DIR", "")
    if not named:
        return Path(settings.logdir) / new_set_id(settings.system, settings.workload, world)
    if not world.files.is_folder(named):
        raise FolderError(
            f"ORCH_SET_DIR={named} does not exist on {world.host}; is the log directory on shared "
            "storage?"
        )
    return Path(named)


def _make_root(root: Path, group: str, world: World) -> None:
    """Raises OSError, LookupError."""
    world.files.make_folder(root, parents=True, exist_ok=True)
    if group:
        give(root, group)


def _make_folders(root: Path, world: World) -> Layout:
    """Raises OSError."""
    layout = Layout(root)
    for folder in (layout.jobs, layout.runs, layout.results, layout.nodes):
        make_below(root, folder, world.files)
    return Layout(Path(world.files.real_path(root)))


@dataclass(frozen=True)
class _Opener:
    program: Program
    settings: Settings
    job: TakingJob
    environment: Mapping[str, str]
    world: World

    def open(self, layout: Layout) -> Folder:
        """Raises FolderError, HeldError, LookupError, OSError."""
        files = self.world.files
        entries = ledger.read(layout.root, files)[0]
        declared = ledger.declared(entries)
        record = records.read(SetRecord, layout.set_file, files, strict=True)
        if record is None and declared is None:
            if SetWalk(layout.root, files, raise_if_away).runs() or entries:
                problem = f"{layout.set_file} is missing, and the set has runs"
                raise FolderError(f"{problem}; put it back, or start a new set")
            record = self._describe(layout)
            records.write(record, layout.set_file, files=files)
        elif declared is not None and not isinstance(record, SetRecord):
            record = declared
            records.write(record, layout.set_file, files=files)
        if not isinstance(record, SetRecord):
            raise FolderError(f"{record or layout.set_file}; it is damaged")
        _check(record, declared, layout.set_file)
        if not files.is_folder(layout.bundle):
            if not self.program.folder:
                raise FolderError(f"{layout.bundle} is missing; put it back, or start a new set")
            _copy(self.program.folder, layout, self.settings.shared_group, self.world)
        if declared is None:
            _declare(record, self.job, layout, self.world)
        return Folder(layout, record, self.job.job_id, self.world)

    def _describe(self, layout: Layout) -> SetRecord:
        """Raises FolderError."""
        settings = self.settings
        return new_set(
            layout.root.name,
            settings.nexp,
            root_seed=self._root_seed(),
            world=self.world,
            created_by="job",
            scheduler=self.job.name,
            nodes=settings.nnodes,
            gpu_model=settings.gpu_model or records.NO_GPU,
            image=settings.cont,
            bundle_sha256=self._bundle_sha256(),
            target=float(settings.target) if settings.target else None,
            target_is_upper_bound=settings.target_is_upper_bound == "true",
            pass_env=list(settings.pass_env),
            unmet=list(settings.unmet),
            **{name: getattr(settings, name) for name in _SAME},
        )

    def _root_seed(self) -> int:
        """Return ROOT_SEED, 0 if unset. Raises FolderError."""
        given = self.environment.get("ROOT_SEED", "")
        nexp = self.settings.nexp
        seed, largest = number(given, 10) if given else 0, largest_root(nexp)
        if given and (seed is None or not 1 <= seed <= largest):
            limit = f"a number from 1 to {largest}: seeds of {count(nexp, 'run')} stay below 2^31"
            raise FolderError(f"ROOT_SEED={given} must be {limit}")
        return seed or 0

    def _bundle_sha256(self) -> str:
        manifest = self.program.files.get(bundle_files.MANIFEST)
        return "" if manifest is None else hashlib.sha256(manifest).hexdigest()


def _check(record: SetRecord, declared: SetRecord | None, path: Path) -> None:
    """Raise FolderError for another set than declared, or too few seeds."""
    plan = record.nexp, record.root_seed
    if declared is not None and plan != (declared.nexp, declared.root_seed):
        raise FolderError(
            f"{path} says {count(record.nexp, 'run')} with root seed {record.root_seed}, and "
            f"{declared.nexp} with "
            f"{declared.root_seed} were declared ({ledger.NAME}); put it back, or start a new set"
        )
    if not 0 < record.nexp < 10_000 or record.root_seed < 1:
        raise FolderError(f"{path}: `root_seed` or `nexp` is out of its range; it is damaged")
    largest = largest_root(record.nexp)
    if record.root_seed > largest:
        raise FolderError(
            f"{path}: `root_seed` is {record.root_seed}; seeds of {count(record.nexp, 'run')} stay "
            f"below 2^31 only up to {largest}; start a new set, or put the file back if it is "
            "damaged"
        )


def _copy(bundle: str, layout: Layout, group: str, world: World) -> None:
    """Copy the bundle into the set, safe from edits of the original. Raises OSError."""
    temporary = layout.root / f"{BUNDLE_COPY}{world.pid}"
    try:
        world.files.copy_tree(bundle, temporary)  # whatever a group can change, it can execute
        if group:
            show(temporary, group)
        world.files.rename(temporary, layout.bundle)
    except OSError:
        world.files.remove_tree(temporary)
        raise


def _declare(record: SetRecord, job: TakingJob, layout: Layout, world: World) -> None:
    """Start the ledger. A set made by a job accepts the bundle as it is. Raises OSError."""
    state = world.files.state(layout.root)
    first = [ledger.declaration(record, layout.root, state.inode if state else 0)]
    if record.bundle_sha256:
        now = bundle_files.hashes(layout.bundle)
        edits = bundle_files.changed(now, layout.bundle, record.bundle_sha256)
        if edits:
            first.append(("edit", {"files": edits}))
    ledger.append(layout.root, *first, job=job.job_id, world=world)
