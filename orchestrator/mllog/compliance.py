"""The verdict of the referee's compliance checker on a log, with explanations.

The order is the referee's (mlperf_logging/compliance_checker/mlp_compliance): the config `common`,
then `<division>_common`, then `<division>_<benchmark>`, each a pass over all records with its own
state. A config that redefines a key withdraws earlier findings about it: a benchmark's rules
override the common rules, which decides submissions.
"""

from __future__ import annotations

from orchestrator.mllog import words
from orchestrator.mllog.reader import Damage, Log, Record
from orchestrator.mllog.rules import Condition, Config, Context, KeyRule, Rules
from orchestrator.words import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from orchestrator.mllog.rules import Statement

ERROR = "error"
WARNING = "warning"
FATAL = "fatal"
"""The referee stops with a traceback at such a file: it scores nothing in that folder."""

MOST_PER_RULE = 10
"""Most findings for a rule of a key in a file."""
MORE = " (and in more lines)"


class LogFinding:
    """A problem in a file. `line` is 0 for the whole file."""

    __slots__ = ("file", "key", "line", "message", "rule", "severity")

    def __init__(
        self, file: str, line: int, key: str, rule: str, message: str, severity: str = ERROR
    ) -> None:
        self.file = file
        self.line = line
        self.key = key
        self.rule = rule
        self.message = message
        self.severity = severity

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.key + ': ' if self.key else ''}{self.message}"


def is_full(findings: list[LogFinding], rule: str) -> bool:
    """Return whether a rule has its most findings; the last then names more."""
    same = [finding for finding in findings if finding.rule == rule]
    if len(same) < MOST_PER_RULE:
        return False
    if not same[-1].message.endswith(MORE):
        same[-1].message += MORE
    return True


def number_lines(log: Log, places: Mapping[LogFinding, Record | Damage]) -> None:
    """Set the lines of findings, in one more pass over the file."""
    if places:
        for finding, line in zip(places, log.lines([*places.values()]), strict=True):
            finding.line = line


class Compliance:
    """The outcome for one log."""

    __slots__ = ("findings",)

    def __init__(self, findings: list[LogFinding]) -> None:
        self.findings = findings

    @property
    def fatal(self) -> bool:
        return any(finding.severity == FATAL for finding in self.findings)

    @property
    def compliant(self) -> bool:
        return all(finding.severity == WARNING for finding in self.findings)


def check_log(log: Log, rules: Rules, *, name: str = "") -> Compliance:
    """Check a log against a round's rules. `name` replaces its path in findings."""
    return _Check(log, rules, name or log.path).run()


class _Fatal(Exception):
    """The referee would end with a traceback here."""

    def __init__(self, message: str, record: Record | None = None, key: str = "") -> None:
        super().__init__(message)
        self.record = record
        self.key = key


class _Check:
    def __init__(self, log: Log, rules: Rules, name: str) -> None:
        self.log = log
        self.rules = rules
        self.name = name
        # A copy: a benchmark's procedure appends to it.
        self.records = list(log.records)
        self.queue: list[str] = []
        self.done: set[str] = set()
        self.keyed: dict[str, list[LogFinding]] = {}
        """A later config that defines the key again withdraws them."""
        self.lasting: list[LogFinding] = []
        self.warnings: list[LogFinding] = []
        self.places: dict[LogFinding, Record | Damage] = {}

    def run(self) -> Compliance:
        self._report_damage(self.log.damage)
        if not self.records:
            self.lasting.append(
                LogFinding(self.name, 0, "", "records", "there is no MLLOG record in this file")
            )
        self.queue.append("common")
        try:
            while self.queue:
                self._run_config(self.queue.pop(0))
        except _Fatal as stop:
            self.lasting.append(self._finding(stop.record, stop.key, "readable", str(stop), FATAL))
        findings = [
            *self.lasting,
            *(finding for group in self.keyed.values() for finding in group),
            *self.warnings,
        ]
        kept = (finding for finding in findings if finding in self.places)
        number_lines(self.log, {finding: self.places[finding] for finding in kept})
        return Compliance(sorted(findings, key=lambda finding: finding.line))

    def _finding(
        self,
        entry: Record | Damage | None,
        key: str,
        rule: str,
        message: str,
        severity: str = ERROR,
    ) -> LogFinding:
        finding = LogFinding(self.name, 0, key, rule, message, severity)
        if entry:
            self.places[finding] = entry
        return finding

    def _report_damage(self, damage: list[Damage]) -> None:
        fatal = next((entry for entry in damage if entry.fatal), None)
        for entry in damage[:MOST_PER_RULE] + [
            entry for entry in damage[MOST_PER_RULE:] if entry is fatal
        ]:
            message = f"damaged record: {entry.message}"
            if entry.fatal:
                message += (
                    "; mlperf-logging ends with a traceback there and scores no log of the folder"
                )
            self.lasting.append(
                self._finding(entry, "", "record", message, FATAL if entry.fatal else ERROR)
            )
        if len(damage) > MOST_PER_RULE:
            self.lasting.append(
                LogFinding(
                    self.name,
                    0,
                    "",
                    "record",
                    f"{count(len(damage), 'damaged record')} in this file",
                )
            )

    def _run_config(self, name: str) -> None:
        config = self.rules.config(name)
        if config is None:
            raise _Fatal(words.no_rules(name, self.rules), *self._announcing(name))
        if name in self.done:  # `closed_common` requests itself for `common`
            raise _Fatal(words.endless(name), *self._announcing("benchmark"))
        self.done.add(name)
        context = Context()
        try:
            for statement in config.begin:
                statement(context, self.records, self.queue)
        except (
            Exception
        ) as error:  # a procedure of the rules on arbitrary log content: the referee ends here, too
            raise _Fatal(f"the evaluations cannot be put together: {error!r}") from error
        for key in config.keys:
            self.keyed.pop(key, None)
        seen: dict[str, list[Record]] = {key: [] for key in config.keys}
        met = self._walk(config, context, seen)
        for key, times in met.items():
            if times == 0:
                self._never_met(config.keys[key], seen[key])
        self._count(config, seen)

    def _announcing(self, config: str) -> tuple[Record | None, str]:
        """Return the record that requested a config, and its key."""
        key = "submission_division" if config.endswith("_common") else "submission_benchmark"
        return self.log.first(key), key

    def _walk(
        self, config: Config, context: Context, seen: dict[str, list[Record]]
    ) -> dict[str, int]:
        """Apply the rules in file order; return how often each "at least one" rule was met."""
        met: dict[str, int] = {}
        rules = config.keys
        for record in self.records:
            key = record.key
            rule = rules.get(key) if key.__class__ is str else None
            if rule is None:
                continue
            earlier = seen[key]
            earlier.append(record)
            context.enter(record)
            if rule.acts and not (rule.once and len(earlier) > 1):
                if rule.before:
                    self._execute(rule.before, record, context)
                for condition in rule.checks:
                    self._test(condition, record, context)
                if rule.after:
                    self._execute(rule.after, record, context)
            if rule.first and len(earlier) == 1:
                self._test(rule.first, record, context)
            if rule.any:
                met[key] = met.get(key, 0) + self._is_met(rule.any, record, context)
        return met

    def _test(self, condition: Condition, record: Record, context: Context) -> None:
        try:
            if condition.holds(context):
                return
            message = words.broken(condition.node, context)
        except (
            Exception
        ) as error:  # the referee counts any failure of a rule's expression as "not met"
            message = words.not_applicable(condition, context, error)
        self._keyed(record, condition.text, message)

    def _execute(self, statements: list[Statement], record: Record, context: Context) -> None:
        try:
            for statement in statements:
                statement(context, self.records, self.queue)
        except Exception as error:  # as above
            self._keyed(
                record, "value", f"the value {words.shown(record.value)} cannot be used: {error}"
            )

    def _is_met(self, condition: Condition, record: Record, context: Context) -> int:
        try:
            return 1 if condition.holds(context) else 0
        except Exception as error:
            # The referee does not guard this expression: its traceback ends the whole check.
            message = (
                f"the value {words.shown(record.value)} cannot be compared with the target "
                f"({error}); "
                "mlperf-logging ends with a traceback here and scores nothing in this folder"
            )
            raise _Fatal(message, record, record.key) from error

    def _never_met(self, rule: KeyRule, records: list[Record]) -> None:
        text = rule.any.text if rule.any else ""
        self.lasting.append(
            self._finding(records[-1], rule.name, text, words.target_missed(rule, records))
        )

    def _count(self, config: Config, seen: dict[str, list[Record]]) -> None:
        reported: set[frozenset[str]] = set()
        for key, rule in config.keys.items():
            records = seen[key]
            if rule.required == "EXACTLY_ONE":
                if len(records) != 1:
                    self._not_once(rule, records)
            elif rule.others:
                alternatives = frozenset([key, *rule.others])
                if alternatives not in reported and not any(seen[other] for other in alternatives):
                    self.lasting.append(
                        LogFinding(
                            self.name, 0, key, rule.required, words.none_of(sorted(alternatives))
                        )
                    )
                reported.add(alternatives)
            elif len(records) < rule.least:
                often = "once" if rule.least == 1 else f"{rule.least} times, not {len(records)}"
                self._missing(rule, f"it must be logged at least {often}")

    def _not_once(self, rule: KeyRule, records: list[Record]) -> None:
        if not records:
            self._missing(rule, "it must be logged exactly once")
        elif all(record.value == records[0].value for record in records):
            message = f"logged {len(records)} times with the same value; once is enough"
            self.warnings.append(
                self._finding(records[1], rule.name, rule.required, message, WARNING)
            )
        else:
            self._keyed(records[1], rule.required, words.different_values(self.log, records))

    def _missing(self, rule: KeyRule, why: str) -> None:
        finding = LogFinding(
            self.name, 0, rule.name, rule.required, f"`{rule.name}` is missing: {why}"
        )
        self.keyed.setdefault(rule.name, []).append(finding)

    def _keyed(self, record: Record, rule: str, message: str) -> None:
        group = self.keyed.setdefault(record.key, [])
        if not is_full(group, rule):
            group.append(self._finding(record, record.key, rule, message))
