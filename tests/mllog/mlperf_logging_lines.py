"""How mlperf-logging's parser takes the lines of a file, one by one, where it would end with a traceback too."""

from __future__ import annotations

from pathlib import Path

from mlperf_logging.compliance_checker.mlp_parser import ruleset_600


def referee_lines(path: Path) -> tuple[list[tuple[str, float]], int, int]:
    """((key, time) of every record, damaged lines, lines at which it ends with a traceback)"""
    records, damaged, crashes = [], 0, 0
    with open(path, encoding="latin-1") as file:
        lines = ruleset_600.strip_and_dedup(file)
    for number, line in enumerate(lines):
        try:
            found = ruleset_600.string_to_logline(number, line.strip())
            records.append((found.key, found.timestamp))
        except ValueError:
            damaged += 1
        except (KeyError, TypeError, OverflowError, RecursionError):
            crashes += 1
    return records, damaged, crashes
