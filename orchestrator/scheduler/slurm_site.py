"""Slurm's facts about a cluster: partitions (sinfo), accounts (sacctmgr), reservations
(scontrol)."""

from __future__ import annotations

import re
from typing import NamedTuple

from orchestrator.errors import SchedulerError
from orchestrator.scheduler.command import Answer, ask, refused, unknown
from orchestrator.scheduler.slurm import CLUSTER_HINT, FIELD, NO_ANSWER, NO_CLUSTER, QUERY_S
from orchestrator.scheduler.slurm_times import minutes_of
from orchestrator.words import count, duration

_GPUS = re.compile(r"(?:^|,)gpu:(?:[^:,()]+:)?(\d+)")


class Partition(NamedTuple):
    """`limit`: the longest job in Slurm's words; `gpus`: of a node by GRES (0: undeclared)."""

    name: str
    is_default: bool
    is_up: bool
    limit: str
    nodes: int
    gpus: int

    @property
    def description(self) -> str:
        gpus = f"{count(self.gpus, 'GPU')} each" if self.gpus else "no GPUs"
        time = f"jobs of up to {self.longest}" if self.longest else "no time limit"
        return f"{count(self.nodes, 'node')} with {gpus} (GRES), {time}"

    @property
    def longest(self) -> str:
        """The longest job for people; "" without a limit."""
        try:
            minutes = minutes_of(self.limit)
        except ValueError:
            return self.limit
        return "" if minutes is None else duration(60 * minutes, parts=3)


def partitions() -> list[Partition]:
    """Return visible partitions. Raises SchedulerUnknown without an answer, SchedulerError if sinfo
    fails."""
    answer = ask(
        ["sinfo", "--noheader", f"--format=%P{FIELD}%a{FIELD}%l{FIELD}%D{FIELD}%G"],
        timeout_s=QUERY_S,
    )
    if answer.returncode != 0:
        if NO_ANSWER.search(answer.stderr):
            raise unknown(answer, "sinfo does not answer")
        raise refused(
            answer, "sinfo", hint=CLUSTER_HINT if NO_CLUSTER.search(answer.stderr) else ""
        )
    return _partitions(answer)


def _partitions(answer: Answer) -> list[Partition]:
    partitions: dict[str, Partition] = {}
    for line in answer.stdout.splitlines():
        cells = [cell.strip() for cell in line.split(FIELD)]
        if len(cells) != 5 or not cells[3].isdecimal():
            raise unknown(answer, "sinfo's answer cannot be read")
        name = cells[0].removesuffix("*")
        gpus = max((int(count) for count in _GPUS.findall(cells[4])), default=0)
        partition = Partition(
            name, cells[0].endswith("*"), cells[1] == "up", cells[2], int(cells[3]), gpus
        )
        # A line for each kind of node.
        before = partitions.get(name)
        partitions[name] = (
            before._replace(nodes=before.nodes + partition.nodes, gpus=max(before.gpus, gpus))
            if before
            else partition
        )
    return list(partitions.values())


def accounts(user: str) -> list[str]:
    """Return a user's accounts, the default first; [] without accounting, or an answer."""
    try:
        associations = ask(_sacctmgr("associations", f"user={user}", "Account"), timeout_s=QUERY_S)
        default = ask(_sacctmgr("user", user, "DefaultAccount"), timeout_s=QUERY_S)
    except SchedulerError:
        return []
    names = [
        line.strip()
        for answer in (default, associations)
        if answer.returncode == 0
        for line in answer.stdout.splitlines()
    ]
    return list(dict.fromkeys(filter(None, names)))


def _sacctmgr(entity: str, whose: str, column: str) -> list[str]:
    return ["sacctmgr", "--noheader", "--parsable2", "show", entity, whose, f"format={column}"]


def reservations(user: str, own_accounts: list[str]) -> list[str]:
    """Return active reservations for the user or their accounts; [] without an answer."""
    try:
        answer = ask(["scontrol", "--oneliner", "show", "reservation"], timeout_s=QUERY_S)
    except SchedulerError:
        return []
    names = []
    for line in answer.stdout.splitlines() if answer.returncode == 0 else ():
        about = dict(word.split("=", 1) for word in line.split() if "=" in word)
        mine = user in about.get("Users", "").split(",") or set(own_accounts) & set(
            about.get("Accounts", "").split(",")
        )
        if mine and about.get("State") == "ACTIVE" and (name := about.get("ReservationName")):
            names.append(name)
    return names
