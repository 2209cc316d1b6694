"""What a later job of a set asks the scheduler for beyond its bundle, which stays as it is: spare nodes, nodes to avoid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.evidence.files import Findings
from orchestrator.nodes.names import expand, expand_all

if TYPE_CHECKING:
    from orchestrator.onnode.layout import Layout
    from orchestrator.onnode.records import SetRecord

_EXCLUDE = re.compile(r"^#SBATCH --exclude=(\S+)$", re.MULTILINE)
_NODELIST = re.compile(r"^#SBATCH --nodelist=(\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Allocation:
    """`spares` None and no `exclude` leave what job.sh says."""

    spares: int | None = None
    exclude: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """For the job's environment, which wins over its settings.sh."""
        return {} if self.spares is None else {"SPARES": str(self.spares)}

    def options(self, record: SetRecord, layout: Layout) -> tuple[str, ...]:
        """Words for sbatch, which win over the #SBATCH lines of job.sh.

        An option of the command line replaces such a line, so nodes that job.sh avoids are named again.
        """
        options = [] if self.spares is None else [f"--nodes={record.nodes + self.spares}"]
        if self.exclude:
            script = Findings().text(layout.bundle / "job.sh")
            avoided = expand_all([*_listed(_EXCLUDE, script), ",".join(self.exclude)])
            options.append(f"--exclude={','.join(avoided)}")
            wanted = expand_all(_listed(_NODELIST, script))
            if left := without(wanted, avoided):
                options += [f"--nodelist={','.join(left)}"] if len(left) < len(wanted) else []
        return tuple(options)


def without(nodelist: Sequence[str], avoided: Sequence[str]) -> list[str]:
    """`nodelist` (names, or Slurm's short form) without the nodes to avoid. Raises UsageError when none is left."""
    wanted = [name for text in nodelist for name in expand(text)]
    left = [name for name in wanted if name not in set(avoided)]
    if wanted and not left:
        raise UsageError(
            f"every node of the nodelist ({','.join(nodelist)}) is excluded",
            hint="name other nodes in the site's `nodelist`, or exclude fewer",
        )
    return left


def _listed(pattern: re.Pattern[str], script: str) -> list[str]:
    found = pattern.search(script)
    return [found[1]] if found else []
