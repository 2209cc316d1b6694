"""What the arguments mean: the site, the set, the folders, what to run."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from orchestrator.cli.output import note
from orchestrator.errors import UsageError
from orchestrator.resources import user_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from orchestrator.evidence.sets import RunSet
    from orchestrator.mllog.own import OwnRules
    from orchestrator.model import Entry, Site
    from orchestrator.scheduler import Scheduler

SITE_VARIABLE = "ORCHESTRATOR_SITE"


# ---- site and set ----


def find_site(given: str | None) -> Path | None:
    """--site, $ORCHESTRATOR_SITE, ./site.yaml, ~/.config/orchestrator/site.yaml: the first that is there; None without.

    Raises UsageError when one that was named does not exist, or ./site.yaml is another user's.
    """
    for named, by in ((given, "--site"), (os.environ.get(SITE_VARIABLE), SITE_VARIABLE)):
        if named:
            path = user_path(named)
            if not path.is_file():
                raise UsageError(
                    f"{by}: there is no file {path}", hint="orchestrator init writes one"
                )
            return path
    config = (
        user_path(os.environ.get("XDG_CONFIG_HOME") or "~/.config") / "orchestrator" / "site.yaml"
    )
    here = Path("site.yaml")
    if not here.is_file():
        return config if config.is_file() else None
    if here.stat().st_uid not in (os.getuid(), 0):
        # A site file says what is started as me: in /tmp it could be anybody's.
        raise UsageError(
            "./site.yaml belongs to another user, so it is not taken by itself",
            hint="if you mean it: --site ./site.yaml",
        )
    return here


def need_site(given: str | None) -> Path:
    """find_site(), or a UsageError that says where one was looked for."""
    path = find_site(given)
    if path is None:
        raise UsageError(
            "there is no site file: --site, $ORCHESTRATOR_SITE, ./site.yaml and "
            "~/.config/orchestrator/site.yaml were tried",
            hint="orchestrator init writes one",
        )
    return path


def site_log_dir(site: Site) -> Path:
    from orchestrator.model.sites import sets_folder

    return sets_folder(site)


def log_dir_of(path: Path) -> Path:
    """The log directory that the site file at `path` names; all that a command needs which only looks at sets.

    The file is checked as a whole (which takes a quarter of a second for the models) only when that key is not usable.
    """
    from orchestrator.model.source import read

    found = read(path).data.get("log_dir")
    if isinstance(found, str) and found.startswith("/") and found.isprintable():
        return Path(found)
    from orchestrator.model import load_site

    return site_log_dir(load_site(path))


def chosen_set(args: Namespace) -> RunSet:
    """The set that SET and --site mean. The site is not even read when SET is a path."""
    from orchestrator.evidence.sets import is_set, open_set
    from orchestrator.runset.find import find_set

    if args.set and is_set(user_path(args.set)):
        return open_set(find_set(args.set, None))
    site = find_site(args.site)
    return open_set(find_set(args.set, log_dir_of(site) if site else None))


def own_set(args: Namespace) -> RunSet:
    """The set that SET and --site mean, for what executes or ends something: without SET the newest of one's own.

    Raises SetError for one that another user made, or has files in, unless it is named and --others says that it is meant.
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
        from orchestrator.errors import SetError

        raise SetError(
            f"set {run_set.name} is not yours alone: {why}",
            hint=f"what is in its bundle runs as you; look at it, then add --others: {run_set.layout.bundle}",
        )
    return run_set


def _real(run_set: RunSet) -> RunSet:
    """Return a set that has jobs. Raises SetError for a rehearsal."""
    if run_set.record.rehearsed:
        from orchestrator.errors import SetError

        raise SetError(
            f"set {run_set.name} is a rehearsal: it has no job, and its runs are not resumed",
            hint=f"a real set: orchestrator submit {run_set.record.system} {run_set.record.workload}",
        )
    return run_set


def scheduler_of(run_set: RunSet) -> Scheduler:
    from orchestrator.scheduler import open_scheduler

    return open_scheduler(run_set.record.scheduler)


def folders(named: list[str], site: str | None) -> list[str]:
    """The folders to work on: paths as they are, else sets of the site by name, else its newest set."""
    from os.path import exists

    if named and all(exists(name) for name in named):
        return named
    return [name if name and exists(name) else _set_folder(name, site) for name in named or [""]]


def _set_folder(name: str, site: str | None) -> str:
    from orchestrator.runset.find import find_set

    known = find_site(site)
    return str(find_set(name, log_dir_of(known) if known else None))


def own_rules(workload: str, ruleset: str, site: str | None) -> OwnRules | None:
    """The rules that --workload names; None without it. Raises UsageError for a workload that MLPerf's rules score."""
    if not workload:
        return None
    from orchestrator.mllog.own import OWN, OwnRules
    from orchestrator.model import load_site
    from orchestrator.model.catalogue import Catalogue

    known = find_site(site)
    _, document = Catalogue(load_site(known).systems_dirs if known else []).workload(workload)
    if ruleset not in ("", OWN):
        raise UsageError(f"--workload goes with --ruleset {OWN}, not with round {ruleset}")
    if all(one.ruleset != OWN for one in document.rounds.values()):
        raise UsageError(
            f"--workload {workload}: {document.benchmark} is scored by MLPerf's rules, no round of it says `ruleset: {OWN}`",
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


# ---- what to run, and where ----


def load_named(
    args: Namespace, site: Path | Site | None, env: dict[str, str] | None = None
) -> Entry:
    """The entry on `site` that the arguments of add_system() name."""
    from orchestrator.model import load_entry

    return load_entry(
        args.system,
        args.workload,
        round=args.round,
        site=site,
        env=env or {},
        systems_dirs=args.systems_dir,
    )


def load_asked(args: Namespace) -> Entry:
    """The entry that the arguments of add_entry() describe; its warnings go to standard error."""
    entry = load_named(args, need_site(args.site), dict(args.env))
    tell_warnings(entry)
    return with_allocation(entry, args)


def tell_warnings(entry: Entry) -> None:
    """The warnings of an entry on standard error, each with the name by which the site's `acknowledged` silences it."""
    for warning in entry.warnings:
        note(f"warning: {warning} [{warning.name}]")


def excluded(args: Namespace) -> list[str]:
    """The names of --exclude. Raises UsageError for what names no node and for a file that cannot be read."""
    from orchestrator.nodes.names import names_given

    return names_given(args.exclude, "--exclude") if args.exclude else []


def with_allocation(entry: Entry, args: Namespace) -> Entry:
    """`entry` with --spares, --side-by-side and --exclude in place of and beside what its site says."""
    from dataclasses import replace

    from orchestrator.runset.allocation import without

    site, changed = entry.site, {}
    if args.spares is not None:
        changed["spares"] = args.spares
    if args.side_by_side is not None:
        changed["side_by_side"] = args.side_by_side
    if args.sbatch:
        refuse_without_scheduler(site.scheduler, "--sbatch")
        changed["sbatch"] = [*site.sbatch, *args.sbatch]
    if names := excluded(args):
        refuse_without_scheduler(site.scheduler)
        changed["exclude"] = [*site.exclude, *names]
        changed["nodelist"] = without(site.nodelist, names)
    return replace(entry, site=site.model_copy(update=changed)) if changed else entry


def job_words(args: Namespace, scheduler: str) -> tuple[str, ...]:
    """--dependency and --begin as words for sbatch. Raises UsageError where there is none."""
    given = {"--dependency": args.dependency, "--begin": args.begin}
    for option in (option for option, value in given.items() if value):
        refuse_without_scheduler(scheduler, option)
    return tuple(f"{option}={value}" for option, value in given.items() if value)


def refuse_without_scheduler(scheduler: str, option: str = "--exclude") -> None:
    if scheduler == "local":
        raise UsageError(
            f"{option}: without a scheduler nothing is asked of one (scheduler: local)"
        )
