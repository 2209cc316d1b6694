"""The output of `images inspect`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli.output import note, print_json, print_parts
from orchestrator.errors import ExitCode
from orchestrator.views.parts import FactList, Table
from orchestrator.words import cell, count

if TYPE_CHECKING:
    from orchestrator.inspection.contract import Contract
    from orchestrator.inspection.findings import ContractFinding
    from orchestrator.inspection.given import Given
    from orchestrator.inspection.tree import ImageTree
    from orchestrator.model import Entry

FOLDED = 3
"""More findings of a kind without a line share a row."""
RUN_SCRIPTS = ("run_and_time.sh", "run.sh", "train.sh")


def inspect(
    entry: Entry | None,
    reference: str,
    read: Callable[[str, Collection[str]], ImageTree],
    *,
    source: str,
    partial: bool,
    command: Sequence[str],
    folder: Path | None,
    as_json: bool,
) -> int:
    """Print an image's contract, with or without an entry, and keep it in `folder`.

    Raises UsageError, InputError or EngineError.
    """
    from orchestrator.inspection.contract import contract_of
    from orchestrator.inspection.findings import findings
    from orchestrator.inspection.given import Given, given_by
    from orchestrator.inspection.tree import ImageTree

    given = given_by(entry) if entry is not None else Given()
    if command:  # it is no run: no ranks, no training variables
        given = replace(given, nodes=1, gpus=1, ranks="node", sources={}, second=None, is_run=False)
    image = reference or (entry.image if entry is not None else "")
    tree = read(image, given.configured)
    if partial:
        tree = ImageTree(tree, tree.config, complete=False, mentions=tree.mentions)
    argv = tuple(command) or given.command or _own_command(tree)
    contract = contract_of(tree, argv, _around(given, tree), given.second)
    results = findings(contract, given) if entry is not None else []
    published = _published(contract, entry.published_scripts if entry is not None else {})
    changed = _keep(folder, contract, results, entry) if folder and entry is not None else []
    if as_json:
        print_json(
            "images-inspect",
            {
                **_to_json(contract, results, image, source),
                "published": published,
                "changes": changed,
            },
        )
    else:
        _print(contract, results, image or source, published)
        if changed:
            print("\nchanged since the last inspected image of this entry:")
            print(*(cell(line) for line in changed), sep="\n")
    has_errors = any(finding.severity == "error" for finding in results)
    return ExitCode.NO_SCORE if has_errors else ExitCode.OK


def _published(contract: Contract, known: Mapping[str, str]) -> dict[str, str]:
    """Return path -> `equal`, `differs` or `missing`, for files with a published hash."""
    states = {}
    for path, digits in known.items():
        file = contract.tree.get(path)
        content = file.content if file is not None else None
        equal = content is not None and hashlib.sha256(content).hexdigest() == digits
        states[path] = "missing" if content is None else "equal" if equal else "differs"
    return states


def _keep(
    folder: Path, contract: Contract, findings: list[ContractFinding], entry: Entry
) -> list[str]:
    """Keep the result; return changes since the last different result."""
    from orchestrator.inspection.kept import changes, entry_name, keep, newest
    from orchestrator.onnode.kernel.world import now_ms

    if not contract.tree.config.id or not contract.tree.complete:
        return []
    name = entry_name(entry.system, entry.workload, entry.round)
    before = newest(folder, name, other_than=contract.tree.config.id)
    try:
        folder.mkdir(exist_ok=True)
        kept = keep(folder, contract, findings, name, now_ms())
    except OSError as error:
        note(f"the result is not kept: {folder}: {error.strerror or error}")
        return []
    return changes(before, kept) if before else []


def _around(given: Given, tree: ImageTree) -> Any:
    from orchestrator.inspection.run_container import RunContainer

    if given.command:
        return given.around
    return replace(RunContainer(), cwd=tree.config.workdir or "/")


def _own_command(tree: ImageTree) -> tuple[str, ...]:
    folder = tree.config.workdir.rstrip("/")
    for name in RUN_SCRIPTS:
        if tree.text(f"{folder}/{name}") is not None:
            return ("bash", f"./{name}")
    return (*tree.config.entrypoint, *tree.config.command)


# ---- output ----


def _facts(contract: Contract) -> dict[str, str]:
    config, software = contract.tree.config, contract.software
    return {
        "image": config.reference,
        "id": config.id,
        "size": f"{config.size / 1e9:.1f} GB" if config.size else "",
        "user": config.user or "root",
        "folder": config.workdir,
        "entry point": " ".join(config.entrypoint),
        "system": software.os,
        "Python": software.python,
        "torch": software.torch,
        "ROCm": software.rocm,
        "RCCL": software.rccl,
        "libibverbs": software.verbs,
        "RDMA providers": ", ".join(
            f"{name} (ABI {abi})" for name, abi in software.providers.items()
        ),
        "packages": str(len(software.packages)) if software.packages else "",
    }


def _launch(contract: Contract) -> dict[str, str]:
    from orchestrator.inspection.contract import where_errors_go
    from orchestrator.inspection.trace import shown

    training = contract.training
    if training is None:
        return {"command": " ".join(contract.command), "training": "not found"}
    believable = {True: "that of the training", False: "0 also after a failure", None: "undecided"}
    goes = where_errors_go(training) or "is in the log"
    return {
        "command": " ".join(contract.command),
        "training": training.text,
        "started by": str(training.place),
        "ranks": contract.ranks,
        "exit code": believable[contract.exit.is_believable],
        "standard error": shown(goes),
        "scripts read": str(len(contract.scripts)),
        "downloads": str(len(contract.trace.downloads)),
        "undecided": str(len(contract.trace.undecided)),
    }


def _print(
    contract: Contract, findings: list[ContractFinding], name: str, published: Mapping[str, str]
) -> None:
    facts = {**_facts(contract), **_launch(contract)}
    facts["as published"] = ", ".join(
        f"{path}: {'yes' if state == 'equal' else state}" for path, state in published.items()
    )
    facts["image"] = facts["image"] or name
    print_parts([FactList([(label, value) for label, value in facts.items() if value])])
    for undecided in contract.trace.undecided:
        note(cell(f"undecided: {undecided.why} ({undecided.place})"))
    if contract.tree.config.is_stand_in:
        note("a stand-in of the lab: these findings do not apply to the published image")
    if not contract.tree.complete:
        note("parts of the image were not read: a missing file may be in it")
    if findings:
        print()
        table = Table(
            "Findings",
            ("finding", "kind", "where", "what", "why", "fix"),
            [*_rows(findings)],
            states=(0,),
            under=("what", "why", "fix"),
        )
        print_parts([table])
    counts = [
        count(number, severity)
        for severity in ("error", "warning", "note")
        if (number := sum(finding.severity == severity for finding in findings))
    ]
    print(", ".join(counts) or "nothing found")


def _rows(findings: list[ContractFinding]) -> Iterable[list[str]]:
    folded: Mapping[tuple[str, str], list[ContractFinding]] = {}
    for finding in findings:
        if not finding.file:
            folded.setdefault((finding.severity, finding.kind), []).append(finding)  # type: ignore[attr-defined]
    for finding in findings:
        same = folded.get((finding.severity, finding.kind), [])
        if finding.file or len(same) <= FOLDED:
            yield [
                finding.severity,
                finding.kind,
                finding.where,
                finding.what,
                finding.why,
                finding.fix,
            ]
        elif finding is same[0]:
            names = ", ".join(other.what.partition(" ")[0] for other in same)
            what = (
                f"{names}: {finding.what.partition(', and ')[2]}"
                if ", and " in finding.what
                else names
            )
            yield [
                finding.severity,
                f"{finding.kind} x {len(same)}",
                "",
                what,
                finding.why,
                finding.fix,
            ]


def _to_json(
    contract: Contract, findings: list[ContractFinding], image: str, source: str
) -> dict[str, Any]:
    trace, config = contract.trace, contract.tree.config
    training = contract.training
    return {
        "image": config.reference or image or source,
        "id": config.id,
        "digests": list(config.digests),
        "bytes": config.size,
        "user": config.user,
        "workdir": config.workdir,
        "entrypoint": list(config.entrypoint),
        "environment": sorted(config.environment),
        "complete": contract.tree.complete,
        "software": asdict(contract.software),
        "command": list(contract.command),
        "training": training.text if training else "",
        "started_by": str(training.place) if training else "",
        "ranks": contract.ranks,
        "exit_after_success": contract.exit.after_success,
        "exit_after_failure": contract.exit.after_failure,
        "scripts": dict(sorted(contract.scripts.items())),
        "reads": [
            {"name": read.name, "use": read.use, "given": read.given, "where": str(read.place)}
            for read in dict.fromkeys(trace.reads)
        ],
        "downloads": [
            {"what": download.what, "where": str(download.place)} for download in trace.downloads
        ],
        "undecided": [{"why": point.why, "where": str(point.place)} for point in trace.undecided],
        "findings": [finding.to_json() for finding in findings],
    }
