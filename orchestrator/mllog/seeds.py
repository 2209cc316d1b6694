"""Seeds: every run logs a seed, all different for the same line. Source:
package_checker/seed_checker."""

from __future__ import annotations

from orchestrator.mllog.compliance import ERROR, FATAL, WARNING, LogFinding
from orchestrator.mllog.reader import Damage, Log, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    SeedKey = tuple[object, object, int]


class RunSeeds:
    """A run's seeds: (record, (metadata.file, metadata.lineno, value)), or why unreadable."""

    __slots__ = ("damage", "log", "name", "seeds", "unreadable")

    def __init__(self, name: str, log: Log) -> None:
        self.name = name
        # A log without its records: enough for messages to find a line.
        self.log = Log(log.path, log.files)
        self.damage: Damage | None = log.damage[0] if log.damage else None
        self.seeds: list[tuple[Record, SeedKey]] = []
        self.unreadable = ""
        try:
            self.seeds = [(record, _key(record)) for record in log.records if record.key == "seed"]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            self.unreadable = str(error)

    def finding(
        self, entry: Record | Damage | None, rule: str, message: str, severity: str = ERROR
    ) -> LogFinding:
        line = self.log.line(entry) if entry else 0
        return LogFinding(self.name, line, "seed", rule, message, severity)


def _key(record: Record) -> SeedKey:
    return record.metadata["file"], record.metadata["lineno"], int(record.value)


def check_seeds(runs: list[RunSeeds]) -> list[LogFinding]:
    """Return findings over a set's runs; anything above a warning fails the set."""
    findings: list[LogFinding] = []
    taken: dict[SeedKey, str] = {}
    for run in runs:
        if run.damage:
            message = "a file with a damaged record fails the seed check of the whole set"
            findings.append(run.finding(run.damage, "readable", message))
        elif run.unreadable:
            message = (
                "a seed must be a whole number with `file` and `lineno` in its metadata: "
                f"{run.unreadable}"
            )
            findings.append(run.finding(None, "integer", message))
        else:
            findings += _check(run, taken)
    return findings


def _check(run: RunSeeds, taken: dict[SeedKey, str]) -> list[LogFinding]:
    findings = []
    if not run.seeds:
        findings.append(run.finding(None, "logged", "no `seed` is logged; every run must log one"))
    if len(run.seeds) > 1:
        findings.append(
            run.finding(run.seeds[1][0], "once", f"{len(run.seeds)} seeds are logged", WARNING)
        )
    for record, key in run.seeds:
        try:
            other = taken.get(key)
            taken.setdefault(key, run.name)
        except TypeError:
            message = (
                "`file` and `lineno` must be plain values (mlperf-logging ends with a traceback "
                "here)"
            )
            findings.append(run.finding(record, "readable", message, FATAL))
            continue
        if other is not None:
            message = f"seed {key[2]} is already logged from the same source line in {other}"
            findings.append(run.finding(record, "unique", message))
    return findings
