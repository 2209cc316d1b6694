"""The explanation of a set: a sentence, its evidence and a command, with the set's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from shlex import join, quote
from typing import Any

from orchestrator.causes.cause import RESUME, Cause
from orchestrator.evidence.files import is_node_name
from orchestrator.evidence.picture import SetPicture
from orchestrator.evidence.quotes import Proof
from orchestrator.evidence.sets import SetEvidence, again, entry_of
from orchestrator.onnode.kernel.node_names import fold
from orchestrator.onnode.kernel.records import RunRecord, SetRecord

UNKNOWN = "unknown"
RUN_LOG = "orchestrator logs {set} --run {run} --attempt {attempt}"
NODE_LOG = f"{RUN_LOG} --node {{node}}"
JOB_LOG = "orchestrator logs {set} --job"


@dataclass
class Explanation:
    """`cause` is a name of docs/explain.md, the set's state if all is well, or `unknown`."""

    state: str
    cause: str
    sentence: str
    remedy: str = ""
    next: str = ""
    evidence: list[Proof] = field(default_factory=list)
    node: str = ""
    """The node that failed first, if known."""

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "cause": self.cause,
            "known": self.cause != UNKNOWN,
            "sentence": self.sentence,
            "remedy": self.remedy,
            "next": self.next,
            "evidence": [vars(proof) for proof in self.evidence],
        }


class Wording:
    """Puts the names of a set into causes and commands."""

    def __init__(self, files: SetEvidence, picture: SetPicture) -> None:
        self.files, self.picture = files, picture

    def explain(
        self,
        cause: Cause,
        text: str,
        proofs: Sequence[Proof],
        node: str = "",
        attempt: RunRecord | None = None,
    ) -> Explanation:
        return Explanation(
            self.picture.state,
            cause.name,
            text,
            cause.remedy,
            self.command(cause.next, node, attempt),
            [*proofs],
            node,
        )

    def command(self, template: str, node: str = "", attempt: RunRecord | None = None) -> str:
        """Fill a template; without its node or attempt, return `resume`."""
        if ("{node}" in template and not node) or ("{run}" in template and attempt is None):
            template = RESUME
        values = {
            "set": str(self.files.layout.root),
            "node": node,
            "job": self.picture.job_id or "JOB",
            **self._names(),
        }
        if attempt:
            values |= {"run": str(attempt.run), "attempt": str(attempt.attempt)}
        names = {name: quote(value) for name, value in values.items()}
        record = self.picture.record or SetRecord(system="SYSTEM", workload="WORKLOAD", nexp=1)
        names |= {"entry": join(entry_of(record)), "again": join(again(record))}
        return template.format_map(names)

    def _names(self) -> dict[str, str]:
        """Return the names in templates: workload, nodes, folder."""
        record, job = self.picture.record, self.files.job
        nodes = job.nodes if job else []
        return {
            "workload": record.workload if record else "WORKLOAD",
            "nodes": fold([node for node in nodes if is_node_name(node)]),
            "log_dir": str(self.files.layout.root.parent),
        }
