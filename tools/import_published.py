"""Import every published config in a folder of texts and compare with the catalogue.

    python tools/import_published.py FOLDER [--execute] [--json]

FOLDER holds v5.0, v5.1 and v6.0, each as the tree of the round's results repository. Prints one
line per configuration of the catalogue: the text, how many variables differ between the imported
documents and the catalogue's entry, and each difference with its reason. A configuration without
a text says why. Exit code 1 if a difference has no reason.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from orchestrator.errors import OrchestratorError
from orchestrator.importing.config import Checked, import_config
from orchestrator.importing.split import ImportOptions
from orchestrator.importing.writing import as_published, composed, write
from orchestrator.mllog.rounds import ruleset_problem
from orchestrator.model import Catalogue, load_entry
from orchestrator.model.documents import System, SystemRound

ROOT = Path(__file__).resolve().parent.parent
RULES: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "tests/model/differences.yaml").read_text(encoding="utf-8")
)
FACTS: list[dict[str, Any]] = json.loads(
    (ROOT / "tests/data/facts_env.json").read_text(encoding="utf-8")
)["entries"]


WITHOUT = {
    "config": "FOLDER lacks the file that its source names",
    "logs": "no config is published; its variables are those that its logs name",
    "assumed": "no config is published; its variables are those of the submitter it shares code with",
}
"""The origin of a configuration's variables (`env_from`) -> why there is no text to import."""


def without(system: System, workload: str, name: str, part: SystemRound) -> str:
    """Return why a configuration has no text."""
    if not load_entry(system.name, workload, round=name, site=as_published()).whole_env:
        return "no config is published; its program takes no variables"
    return WITHOUT[part.env_from]


def find_text(folder: Path, round_name: str, system: System, part: SystemRound) -> Path | None:
    """Return the stored config of a configuration: that which its source names."""
    name = f"config_{part.published_as or system.name}.sh"
    top = folder / f"v{round_name}"
    for token in re.findall(r"[\w.-]+/benchmarks?/[\w./-]+", part.source):
        path = top / token.rstrip(".,")
        if path.suffix == ".sh" and path.is_file():
            return path
        paths = sorted(path.rglob(name)) if path.is_dir() else []
        if paths:
            return paths[0]
    return None


def differences(checked: Checked, catalogue_env: dict[str, str], identity: str) -> dict[str, str]:
    """Return name -> reason of each variable that differs; "" without a reason."""
    with tempfile.TemporaryDirectory() as place:
        write(Path(place), checked.documents)
        env = composed(checked.imported, checked.documents, Path(place), [])
    fact = next((fact for fact in FACTS if fact["id"] == identity), {})
    logs = fact.get("logs", {})
    by_script = {
        name for name in fact.get("set", {}) if name not in checked.imported.evaluation.env
    }
    result = {}
    for name in sorted({*env, *catalogue_env}):
        if env.get(name) == catalogue_env.get(name):
            continue
        if name in by_script and name not in env:
            result[name] = "not in the config: the submitter's start script sets it"
            continue
        if name in logs:
            result[name] = f"all logs say {logs[name]}, and logs count"
            continue
        result[name] = next(
            (
                str(rule["reason"])
                for rule in RULES
                if name in rule["variables"] and re.fullmatch(rule.get("entries", ".*"), identity)
            ),
            "",
        )
    return result


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--execute", action="store_true", help="source configs that are not plain")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = table(lambda *key: find_text(args.folder, *key), args.execute)
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        for row in rows:
            print(f"{row['system']:36} {row['workload']:16} {row['round']:4} {row['state']}")
            for name, why in row["differences"].items():
                print(f"    {name}: {why or 'NO REASON'}")
        equal = sum(row["state"].startswith("equal") for row in rows)
        texts = sum(row["text"] is not None for row in rows)
        print(f"{len(rows)} configurations, {texts} with a text, {equal} equal")
    bad = any(
        "error" in row["state"] or "" in row["differences"].values() for row in rows if row["text"]
    )
    return 1 if bad else 0


def table(
    text_of: Callable[[str, System, SystemRound], Path | None], execute: bool
) -> list[dict[str, Any]]:
    """Return a row per configuration of the catalogue."""
    rows: list[dict[str, Any]] = []
    for system in Catalogue().systems():
        for workload, rounds in system.workloads.items():
            for name, part in rounds.items():
                if workload == "builtin":
                    continue
                text = text_of(name, system, part)
                row = {
                    "system": system.name,
                    "workload": workload,
                    "round": name,
                    "text": None if text is None else str(text),
                    "state": f"no text: {without(system, workload, name, part)}",
                    "differences": {},
                }
                if text is not None:
                    row |= compared(text, system, workload, name, execute)
                rows.append(row)
    return rows


def compared(text: Path, system: System, workload: str, name: str, execute: bool) -> dict[str, Any]:
    identity = next(
        (
            str(fact["id"])
            for fact in FACTS
            if (fact["system"], fact["workload"], fact["round"]) == (system.name, workload, name)
        ),
        "",
    )
    entry = load_entry(system.name, workload, round=name, site=as_published())
    try:
        checked = import_config(
            text, ImportOptions(name), [], ruleset_problem=ruleset_problem, execute=execute
        )
    except OrchestratorError as error:
        return {"state": f"error: {error.message}"}
    ours = {variable: str(value) for variable, value in entry.whole_env.items()}
    changes = differences(checked, ours, identity)
    facts = ("micro_batch", "global_batch", "nodes", "gpus_per_node", "tensor_parallel",
             "pipeline_parallel", "context_parallel")  # fmt: skip
    for fact in facts:
        if checked.imported.facts[fact] != str(getattr(entry, fact) or 1):
            follows = [why for why in changes.values() if why.endswith("logs count")]
            changes[fact] = "follows a variable that the logs correct" if follows else ""
    if checked.imported.workload != workload:
        changes["workload"] = ""
    how = "executed" if checked.imported.evaluation.run else "read"
    count = len(checked.imported.evaluation.env)
    state = f"{len(changes)} differ" if changes else "equal"
    return {"state": f"{state}, {count} variables, {how}", "differences": changes}


if __name__ == "__main__":
    sys.exit(main())
