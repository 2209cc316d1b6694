"""Build orchestrator/mllog/data/ from the installed mlperf-logging package.

    python tools/build_rule_data.py            # write the data files
    python tools/build_rule_data.py --check    # exit 1 if they differ from what the package gives

orchestrator/mllog/translation.py translates the package's rules.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from orchestrator.mllog.shipped import DATA, ROUNDS
from orchestrator.mllog.translation import Untranslatable, condition, reference_points, rules

__all__ = ["Untranslatable", "condition"]


def compact(document: dict[str, Any]) -> str:
    """JSON with one line per member of the inner objects: small, and a change shows as a readable
    diff."""
    lines = []
    for name, value in document.items():
        if isinstance(value, dict):
            inner = ",\n".join(
                f"  {json.dumps(key)}: {json.dumps(item)}" for key, item in value.items()
            )
            lines.append(f"{json.dumps(name)}: {{\n{inner}\n}}")
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def build() -> dict[str, str]:
    """File name -> text of every data file."""
    import mlperf_logging

    # A namespace package: it has a path but no file.
    package = Path(next(iter(mlperf_logging.__path__)))
    files = {}
    for ruleset in ROUNDS:
        files[f"rules-{ruleset}.json"] = compact(rules(package, ruleset))
        files[f"rcp-{ruleset}.json"] = compact(reference_points(package, ruleset))
    return files


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    check = parser.parse_args().check
    stale = []
    for name, text in build().items():
        path = Path(DATA) / name
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            stale.append(name)
        elif not check:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(
            f"out of date: {', '.join(stale)}\n  hint: python tools/build_rule_data.py writes them",
            file=sys.stderr,
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
