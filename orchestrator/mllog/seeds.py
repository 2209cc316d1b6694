"""Seeds: every run logs a seed, all different for the same line. Source:
package_checker/seed_checker."""

from __future__ import annotations

from orchestrator.mllog.compliance import ERROR, FATAL, WARNING, LogFinding, is_full, number_lines
from orchestrator.mllog.reader import Damage, Log, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    SeedKey = tuple[object, object, int]
    # (place, rule, message, severity)
    Problem = tuple[Record | Damage | None, str, str, str]


class RunSeeds:
    """A run's seeds: (record, (metadata.file, metadata.lineno, value)), or why unreadable."""

    __slots__ = ("damage", "log", "name", "seeds", "unreadable")

    def __init__(self, name: str, log: Log) -> None:
        self.name = name
        # Enough to find a line.
        self.log = Log(log.path, log.files)
        self.damage: Damage | None = log.damage[0] if log.damage else None
        self.seeds: list[tuple[Record, SeedKey]] = []
        self.unreadable = ""
        try:
            self.seeds = [(record, _key(record)) for record in log.records if record.key == "seed"]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            self.unreadable = str(error)

    def findings(self, problems: Iterable[Problem]) -> list[LogFinding]:
        findings: list[LogFinding] = []
        places: dict[LogFinding, Record | Damage] = {}
        for entry, rule, message, severity in problems:
            if not is_full(findings, rule):
                findings.append(LogFinding(self.name, 0, "seed", rule, message, severity))
                if entry:
                    places[findings[-1]] = entry
        number_lines(self.log, places)
        return findings


def _key(record: Record) -> SeedKey:
    return record.metadata["file"], record.metadata["lineno"], int(record.value)


def check_seeds(runs: list[RunSeeds]) -> list[LogFinding]:
    """Return findings over a set's runs; anything above a warning fails the set."""
    taken: dict[SeedKey, str] = {}
    return [finding for run in runs for finding in run.findings(_check(run, taken))]


def _check(run: RunSeeds, taken: dict[SeedKey, str]) -> Iterator[Problem]:
    if run.damage:
        message = "a file with a damaged record fails the seed check of the whole set"
        yield run.damage, "readable", message, ERROR
        return
    if run.unreadable:
        message = (
            "a seed must be a whole number with `file` and `lineno` in its metadata: "
            f"{run.unreadable}"
        )
        yield None, "integer", message, ERROR
        return
    if not run.seeds:
        yield None, "logged", "no `seed` is logged; every run must log one", ERROR
    if len(run.seeds) > 1:
        yield run.seeds[1][0], "once", f"{len(run.seeds)} seeds are logged", WARNING
    for record, key in run.seeds:
        try:
            other = taken.get(key)
            taken.setdefault(key, run.name)
        except TypeError:
            message = (
                "`file` and `lineno` must be plain values (mlperf-logging ends with a traceback "
                "here)"
            )
            yield record, "readable", message, FATAL
            continue
        if other is not None:
            message = f"seed {key[2]} is already logged from the same source line in {other}"
            yield record, "unique", message, ERROR
