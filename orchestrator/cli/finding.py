"""From arguments to site, set, folders and entry."""

from __future__ import annotations

import os
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from orchestrator.cli.output import warn
from orchestrator.errors import Fix, UsageError, closest
from orchestrator.resources import user_path
from orchestrator.words import quoted

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.evidence.sets import RunSet
    from orchestrator.mllog.own import OwnRules
    from orchestrator.model import Catalogue, Entry, Site
    from orchestrator.scheduler.job import Scheduler

SITE_VARIABLE = "ORCHESTRATOR_SITE"
BUNDLE_RUNS = "its bundle would run as you: look at {bundle}, then"


# ---- site and set ----


def find_site(given: str | None) -> Path | None:
    """Return the first of --site, $ORCHESTRATOR_SITE, ./site.yaml, ~/.config/orchestrator/site.yaml
    that exists.

    Raises UsageError if a named file (--site or the variable) is missing, or another user can
    change an unnamed file.
    """
    return find_site_and_source(given)[0]


def find_site_and_source(given: str | None) -> tuple[Path | None, str]:
    """Return find_site(), and the place of the file."""
    for named, by in ((given, "--site"), (os.environ.get(SITE_VARIABLE), SITE_VARIABLE)):
        if named:
            path = user_path(named)
            if not path.is_file():
                raise _no_site_file(path, by)
            return path, by
    config = (
        user_path(os.environ.get("XDG_CONFIG_HOME") or "~/.config") / "orchestrator" / "site.yaml"
    )
    here = Path("site.yaml")
    path = here if here.is_file() else config
    if not path.is_file():
        return None, ""
    from orchestrator.trust import others

    if why := others(path):
        import shlex

        # A site file decides which programs run: in /tmp anybody could have written it.
        name = f"./{path}" if path is here else str(path)
        raise UsageError(
            f"{name} can be changed by other users, so it is not used by default: {why}",
            hint=f"to use it: --site {shlex.quote(name)}",
            fix=Fix(again=("--site", name)),
        )
    return path, "the current folder" if path is here else "the user's configuration"


def _no_site_file(path: Path, by: str) -> UsageError:
    """Return the error for a missing file; its command takes a similar file, else writes
    this file (`init` alone would write ./site.yaml)."""
    from os import listdir

    unnamed = f"; without it: unset {quoted(by)}" if by == SITE_VARIABLE else ""
    if path.is_dir():
        return UsageError(f"{by}: {path} is a folder", hint=f"name a file{unnamed}")
    near = ""
    with suppress(OSError):
        near = closest(path.name, listdir(path.parent))
    if near and (path.parent / near).is_file():
        other = path.parent / near
        text = f'{by}: there is no file {path}; did you mean "{other}"?'
        fix = Fix(options=(by, str(other)))
        if by == SITE_VARIABLE:
            fix = Fix(f"export {quoted(by)}={quoted(other)}")
        return UsageError(text, fix=fix)
    return UsageError(
        f"{by}: there is no file {path}",
        hint=f"the command below writes it{unnamed}",
        fix=Fix(f"orchestrator init -o {quoted(path)}"),
    )


def need_site(given: str | None) -> Path:
    """Raises UsageError with the searched places."""
    path = find_site(given)
    if path is None:
        raise UsageError(
            "there is no site file: --site, $ORCHESTRATOR_SITE, ./site.yaml and "
            "~/.config/orchestrator/site.yaml were tried",
            fix=Fix("orchestrator init"),
        )
    return path


def site_log_dir(site: Site) -> Path:
    from orchestrator.model.sites import sets_folder

    return sets_folder(site)


def log_dir_of(path: Path) -> Path:
    """Return a site file's log directory. The models, a quarter of a second, check the file only if
    that key is unusable."""
    from orchestrator.model.source import read

    log_dir = read(path).data.get("log_dir")
    if isinstance(log_dir, str) and log_dir.startswith("/") and log_dir.isprintable():
        return Path(log_dir)
    from orchestrator.model import load_site

    return site_log_dir(load_site(path))


def chosen_set(args: Namespace) -> RunSet:
    """Reads no site if SET is a path."""
    return named_set(args.set, args.site)


def named_set(name: str, given_site: str | None) -> RunSet:
    """`name` "" is the newest set."""
    from orchestrator.evidence.sets import is_set, open_set
    from orchestrator.runset.find import find_set

    if name and is_set(user_path(name)):
        return open_set(find_set(name, None))
    site = find_site(given_site)
    return open_set(find_set(name, log_dir_of(site) if site else None))


def own_set(args: Namespace, risk: str = BUNDLE_RUNS) -> RunSet:
    """Return SET, to be executed or ended; by default the user's newest.

    Raises SetError for a set with another user's files, unless named with --others.
    """
    from orchestrator.evidence.sets import open_set
    from orchestrator.runset.find import find_set, foreign

    if not args.set:
        if args.others:
            raise UsageError("--others goes with the name of a set")
        site = find_site(args.site)
        return _real(open_set(find_set("", log_dir_of(site) if site else None, owner=os.getuid())))
    run_set = _real(chosen_set(args))
    if not args.others and (why := foreign(run_set.layout)):
        from orchestrator.errors import Fix, SetError

        raise SetError(
            f"another user can change set {run_set.name}: {why}",
            hint=risk.format(bundle=run_set.layout.bundle),
            fix=Fix(again=("--others",)),
        )
    return run_set


def _real(run_set: RunSet) -> RunSet:
    """Raises SetError for a rehearsal, which has no jobs."""
    if run_set.record.rehearsed:
        from orchestrator.errors import SetError
        from orchestrator.evidence.sets import entry_of

        entry = " ".join(map(quoted, entry_of(run_set.record)))
        raise SetError(
            f"set {run_set.name} is a rehearsal: it has no job, and its runs are not resumed",
            hint=f"a real set: orchestrator submit {entry}",
        )
    return run_set


def scheduler_of(run_set: RunSet) -> Scheduler:
    from orchestrator.scheduler import open_scheduler

    return open_scheduler(run_set.record.scheduler)


def folders(named: list[str], site: str | None) -> list[str]:
    """Return paths, else sets of the site by name, else its newest set."""
    from os.path import exists

    if named and all(exists(name) for name in named):
        for name in named:
            if "/.trash" in os.path.realpath(name):
                from orchestrator.runset.find import refuse_trash

                refuse_trash(Path(name))
        return named
    return [name if name and exists(name) else _set_folder(name, site) for name in named or [""]]


def _set_folder(name: str, site: str | None) -> str:
    from orchestrator.runset.find import find_set

    known = find_site(site)
    return str(find_set(name, log_dir_of(known) if known else None))


def own_rules(workload: str, ruleset: str, site: str | None) -> OwnRules | None:
    """Return the rules of --workload. Raises UsageError for a workload with MLPerf's rules."""
    if not workload:
        return None
    from orchestrator.mllog.own import OwnRules
    from orchestrator.mllog.shipped import OWN
    from orchestrator.model import load_site
    from orchestrator.model.catalogue import Catalogue

    known = find_site(site)
    _, document = Catalogue(load_site(known).systems_dirs if known else []).workload(workload)
    if ruleset not in ("", OWN):
        raise UsageError(f"--workload goes with --ruleset {OWN}, not with round {ruleset}")
    if all(part.ruleset != OWN for part in document.rounds.values()):
        raise UsageError(
            f"--workload {workload}: {document.benchmark} is scored by MLPerf's rules, no round of "
            f"it has `ruleset: {OWN}`",
            hint="leave --workload out; --ruleset names the round whose rules count",
        )
    target = None if document.target is None else float(document.target)
    return OwnRules(
        document.benchmark,
        target,
        document.metric,
        document.target_is_upper_bound,
        document.runs_required,
    )


# ---- the entry to run, and its folders ----


def catalogue_of(args: Namespace, *further: Path) -> Catalogue:
    """Search `further`, systems_folders(), and the built-in documents."""
    from orchestrator.model import Catalogue

    return Catalogue([*further, *systems_folders(args)])


def systems_folders(args: Namespace) -> list[Path]:
    """Return the folders of --systems-dir, then of the site."""
    site = find_site(args.site)
    if site is None:
        return list(args.systems_dir)
    from orchestrator.model.source import folders_in, read

    return [*args.systems_dir, *folders_in(read(site))]


def load_named(
    args: Namespace, site: Path | Site | None, env: dict[str, str] | None = None
) -> Entry:
    """Return the entry of add_system()'s arguments. Raises UsageError, with the system's workloads
    if WORKLOAD is missing."""
    from orchestrator.model import Catalogue, load_entry

    if not args.workload:
        workloads = list(catalogue_of(args).system(args.system)[1].workloads)  # if it is known
        raise UsageError(
            f"{args.system}: which WORKLOAD? it has: {', '.join(workloads)}",
            fix=Fix(again=tuple(workloads[:1])),
        )
    try:
        return load_entry(
            args.system,
            args.workload,
            round=args.round,
            site=site,
            env=env or {},
            systems_dirs=args.systems_dir,
            overrides=vars(args).get("override", ()),
        )
    except UsageError as error:
        if args.system in Catalogue(args.systems_dir).workload_names():
            swap = {args.system: args.workload, args.workload: args.system}
            typed = [swap.get(word, word) for word in vars(args).get("typed", swap.values())]
            raise UsageError(
                f"{args.system} is a workload, and SYSTEM comes first",
                hint=" ".join(map(quoted, ["orchestrator", *typed])),
            ) from error
        raise


def load_asked(
    args: Namespace, warn: Callable[[str], object] = warn, known: Sequence[str] = ()
) -> Entry:
    """Return the entry of add_entry()'s arguments; `warn` of its warnings, except `known`. Raises
    DescriptorError for rules that cannot score a set."""
    from orchestrator.runset.doubts import refuse_unscorable

    entry = load_named(args, need_site(args.site), dict(args.env))
    refuse_unscorable(entry)
    print_warnings(entry, warn, known)
    return with_allocation(entry, args)


def print_warnings(
    entry: Entry, warn: Callable[[str], object] = warn, known: Sequence[str] = ()
) -> None:
    """Print an entry's warnings, with names for the site's `acknowledged`."""
    for warning in entry.warnings:
        if warning.name not in known:
            warn(f"{warning} [{warning.name}]")


def excluded(args: Namespace) -> list[str]:
    """Raises UsageError for an unknown node or unreadable file."""
    from orchestrator.nodes.names import names_given

    return names_given(args.exclude, "--exclude") if args.exclude else []


def with_allocation(entry: Entry, args: Namespace) -> Entry:
    """Replace the site's values by --spares and --side-by-side; add --exclude."""
    from dataclasses import replace

    site, changed = entry.site, {}
    if args.spares is not None:
        changed["spares"] = args.spares
    if args.side_by_side is not None:
        changed["side_by_side"] = args.side_by_side
    if args.sbatch:
        refuse_without_scheduler(site.scheduler, "--sbatch")
        changed["sbatch"] = [*site.sbatch, *args.sbatch]
    if names := excluded(args):
        from orchestrator.runset.allocation import without

        refuse_without_scheduler(site.scheduler)
        changed["exclude"] = [*site.exclude, *names]
        changed["nodelist"] = without(site.nodelist, names)
    return replace(entry, site=site.model_copy(update=changed)) if changed else entry


def job_options(args: Namespace, scheduler: str) -> tuple[str, ...]:
    """Return --dependency and --begin for sbatch. Raises UsageError without Slurm."""
    given = {"--dependency": args.dependency, "--begin": args.begin}
    for option in (option for option, value in given.items() if value):
        refuse_without_scheduler(scheduler, option)
    return tuple(f"{option}={value}" for option, value in given.items() if value)


def refuse_without_scheduler(scheduler: str, option: str = "--exclude") -> None:
    from orchestrator.scheduler.kinds import kind_of

    if kind_of(scheduler).runs_here:
        raise UsageError(
            f"{option}: without a scheduler nothing is asked of one (scheduler: local)"
        )
