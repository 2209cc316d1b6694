"""Print the time that a job of ten runs asks for beside that of the published ones, for every
configuration of the catalogue.

usage:  python tools/job_times.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from orchestrator.model import Catalogue, load_entry
from orchestrator.render.job_time import job_time, published_need


def rows() -> list[tuple[str, str, str, int, float | None]]:
    """Return system, workload, round, minutes asked for, and minutes of the published runs."""
    jobs = []
    for system in Catalogue().systems():
        for workload, rounds in system.workloads.items():
            for round_name in rounds:
                entry = load_entry(system.name, workload, round=round_name)
                need, nexp = published_need(entry), entry.runs_required
                asked = job_time(entry).minutes(nexp)
                published = None if need is None else nexp * need.minutes
                jobs.append((system.name, workload, round_name, asked, published))
    return jobs


def main() -> None:
    ratios = []
    for system, workload, round_name, asked, published in rows():
        beside = "no result is published"
        if published is not None:
            ratios.append(asked / published)
            beside = f"{published:7.0f} min published, {ratios[-1]:.2f} x"
        print(f"{system:34} {workload:16} {round_name:5} {asked:6} min asked, {beside}")
    print(f"{len(ratios)} configurations: {min(ratios):.2f} to {max(ratios):.2f} x")


if __name__ == "__main__":
    main()
