"""Slurm's output: its messages about ended processes, as 22.05 writes them, and its labels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.onnode.kernel.events import MAX_WORD_BYTES
from orchestrator.onnode.loop.slurm import (
    MOST_HELD,
    Senders,
    SlurmAllocation,
    first_copy,
    has_labels,
    labelled,
    named_node,
)
from orchestrator.onnode.loop.step import BEHIND_S, Complaints

NODES = ["n1", "n2", "n3"]
KILLED = "srun: error: n2: task 1: Killed"
EXITED = "srun: error: n2: task 1: Exited with exit code 2"
NO_PYTHON = "error: execve(): python3: No such file or directory"
OLD_PYTHON = (
    "orchestrator: /usr/bin/python3 on n3.cluster is Python 3.6; the bundle needs 3.9 or newer: "
    "install python3, or name ..."
)
UNREACHABLE = [
    "srun: error: Task launch for StepId=4.1 failed on node n2: Communication connection failure",
    "srun: error: Application launch failed: Communication connection failure",
    "slurmstepd-n1: error: *** STEP 4.1 ON n1 CANCELLED AT 2026-11-22T03:24:34 ***",
    "srun: error: n1: task 0: Killed",
]
REMEDY = (
    "install python3 (3.9 or newer) there, or name another interpreter "
    "(`python:` in the site file, PYTHON=... for this bundle)"
)


@pytest.mark.parametrize(
    ("reply", "is_answer"),
    [
        ((0, ""), False),
        ((0, "\n"), False),
        ((1, "slurm_load_jobs error: Unable to contact slurm controller"), False),
        ((-1, ""), False),
        ((0, "JobState=RUNNING Reason=None"), True),
        ((0, "another scheduler's words"), True),
    ],
)
def test_an_empty_reply_is_no_answer(reply: tuple[int, str], is_answer: bool) -> None:
    """So no node is blamed for an end that the scheduler may have made."""
    world: Any = SimpleNamespace(ask=lambda *_, **__: (0, "n1"))
    allocation = SlurmAllocation({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}, world)
    world.ask = lambda *_, **__: reply
    assert (allocation.job_end() is not None) is is_answer


def ended(*lines: str, over: bool = False) -> dict[str, str]:
    """Return the ended nodes, with reasons, after a step's standard error; `over`: it has ended."""
    clock = [100.0]
    expand = {"n[1-3]": NODES}
    complaints = Complaints(lambda: clock[0], lambda text: expand.get(text, [text]), str)
    senders = Senders(NODES, lambda *_: None, complaints.take)
    for line in lines:
        senders.receive_error(line.encode())
    if over:
        senders.end()
    assert over or complaints.ended_nodes(is_over=False) == [], "nodes may still report themselves"
    first = complaints.ended_nodes(is_over=True) if over else []
    clock[0] += BEHIND_S
    assert complaints.ended_nodes(is_over=False) == [], "their last lines may be unread"
    complaints.next_check(clock[0] + 60)
    return dict([*first, *complaints.ended_nodes(is_over=over)])


@pytest.mark.parametrize(
    "line", [KILLED, "slurmstepd: error: *** STEP 7.0 ON n2 CANCELLED, error on node n2"]
)
def test_a_killed_process(line: str) -> None:
    assert ended(line) == {"n2": f"its step ended: {line}"}


@pytest.mark.parametrize("stepd", ["slurmstepd-n2", "1: slurmstepd-n2", "1: slurmstepd"])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_missing_interpreter_is_the_cause_before_or_after_its_consequence(
    stepd: str, is_first: bool
) -> None:
    """Several slurmd on one host have their node's name; else only the label has it."""
    cause = f"{stepd}: {NO_PYTHON}"
    lines = [cause, EXITED] if is_first else [EXITED, cause]
    reason = f"cannot start python3: No such file or directory; {REMEDY}"
    assert ended(*lines) == {"n2": reason}


def test_an_old_interpreter() -> None:
    assert ended(OLD_PYTHON, EXITED.replace("n2", "n3")) == {"n3": OLD_PYTHON}


def test_several_nodes_in_one_message() -> None:
    assert set(ended("srun: error: n[1-3]: tasks 0-2: Killed")) == set(NODES)


@pytest.mark.parametrize("over", [True, False])
def test_an_unreachable_node_does_not_take_others_along(over: bool) -> None:
    assert ended(*UNREACHABLE, over=over) == {"n2": f"its step ended: {UNREACHABLE[0]}"}


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: Node failure on n2",  # a silent slurmd: a dead node does not answer pings
        "n2 is as well as n1",
        "0: srun: error: n2: task 1: Killed",
        "0: slurmstepd-n2: error: *** STEP 4.1 ON n2 CANCELLED, error on node n2",
        "0: srun: error: Application launch failed: so it claims",
    ],
)
def test_other_messages_and_those_of_other_nodes_end_no_node(line: str) -> None:
    assert ended(line) == {}
    assert ended(line, KILLED) == ended(KILLED)


# ---- labels ----


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"0: left\tn1\t", ("n1", b"left\tn1\t")),
        (b" 1: a: b", ("n2", b"a: b")),
        (b"01: a", ("n2", b"a")),
        (b"1: 0: forged", ("n2", b"0: forged")),
        (b"1: ", ("n2", b"")),
        (b"2: of no task", ("", b"2: of no task")),
        (b"-1: a", ("", b"-1: a")),
        (b"left\tn1\t", ("", b"left\tn1\t")),
        (b": a", ("", b": a")),
        ("\u0661: a".encode(), ("", "\u0661: a".encode())),
        (b"", ("", b"")),
    ],
)
def test_the_label_of_srun_names_the_sender(line: bytes, found: tuple[str, bytes]) -> None:
    assert labelled(line, ["n1", "n2"]) == found


def heard(*lines: str, nodes: str = "n1 n2 n3") -> list[tuple[str, str]]:
    """Return who said what when srun wrote these lines, such as `0: begin n1` for the word `begin` of task 0 about n1."""
    found: list[tuple[str, str]] = []
    senders = Senders(
        nodes.split(),
        lambda sender, line: found.append((sender, line.decode().replace("\t", " ").strip())),
    )
    for text in lines:
        label, *words = text.split(" ")
        senders.receive_output(f"{label} {chr(9).join([*words, ''])}".encode())
    return found


def test_tasks_in_the_order_of_the_names() -> None:
    assert heard("2: begin n3", "0: begin n1") == [("n3", "begin n3"), ("n1", "begin n1")]


def test_tasks_in_another_order_are_believed_once_all_of_them_agree() -> None:
    said = ["0: begin n3", "0: facts n3", "1: begin n1", "2: begin n2"]
    assert heard(*said[:3]) == []
    assert heard(*said, "0: left n3") == [
        ("n3", "begin n3"), ("n3", "facts n3"), ("n1", "begin n1"), ("n2", "begin n2"), ("n3", "left n3"),
    ]  # fmt: skip


@pytest.mark.parametrize("place", range(4))
def test_who_names_a_node_that_is_in_its_place_speaks_for_another_one(place: int) -> None:
    """Until the others are known, it could be any of them."""
    order = ["0: begin n1", "2: begin n3"]
    order.insert(place, "1: left n1")
    assert sorted(heard(*order)) == [("n1", "begin n1"), ("n2", "left n1"), ("n3", "begin n3")]
    without = [line for line in order if "n3" not in line]
    assert heard(*without) == [("n1", "begin n1")]


def test_one_that_speaks_for_another_one_takes_nobody_with_it() -> None:
    found = heard("2: left n2", "1: left n1", "0: begin n1", "1: begin n2")
    assert sorted(found) == [
        ("n1", "begin n1"),
        ("n2", "begin n2"),
        ("n2", "left n1"),
        ("n3", "left n2"),
    ]


def test_two_that_change_names_are_only_themselves() -> None:
    assert heard("0: begin n2", "1: begin n1", "0: left n1") == [
        ("n2", "begin n2"),
        ("n1", "begin n1"),
        ("n2", "left n1"),
    ]


def test_who_is_never_known_is_not_heard() -> None:
    """It is silent, as its time limit shows; its complaints follow the end of the step."""
    found: list[tuple[str, str, bytes]] = []
    senders = Senders(
        NODES,
        lambda node, line: found.append(("says", node, line)),
        lambda node, line: found.append(("complains", node, line)),
    )
    for _ in range(2 * MOST_HELD):
        senders.receive_output(b"1: note\tn1\t")
        senders.receive_output(b"2: garbage")
    senders.receive_error(b"0: no python")
    assert found == []
    senders.end()
    assert set(found) == {("complains", "n1", b"no python"), ("says", "n1", b"note\tn1\t")}
    assert len(found) == MOST_HELD + 1


@pytest.mark.parametrize("stream", ["output", "error"])
def test_lines_of_a_task_that_has_not_named_itself_blame_nobody(stream: str) -> None:
    """Tasks in the order of slurm.conf: task 0 is on n3, and writes before it says so."""
    found: list[tuple[str, bytes]] = []
    senders = Senders(NODES, *[lambda node, line: found.append((node, line))] * 2)
    for line in (b"0: flood", b"1: begin\tn1\t", b"0: flood", b"2: begin\tn2\t"):
        receive = senders.receive_error if line.endswith(b"flood") else senders.receive_output
        (receive if stream == "error" else senders.receive_output)(line)
        assert found == []
    senders.receive_output(b"0: begin\tn3\t")
    senders.receive_error(b"0: later")
    flood = [line for node, line in found if node == "n3"]
    assert flood == [b"flood", b"flood", b"begin\tn3\t", b"later"]
    assert {node for node, line in found if b"flood" in line} == {"n3"}


@pytest.mark.parametrize("lines", [
    ["srun: error: n[1-2]: tasks 0-1: Exited with exit code 127"],
    ["srun: error: n2: task 1: Killed", "srun: error: n1: task 0: Killed"],
])  # fmt: skip
def test_the_end_of_a_task_shows_its_node(lines: list[str]) -> None:
    found: list[tuple[str, bytes]] = []
    senders = Senders(
        ["n1", "n2", "n3", "n4"], lambda *_: None, lambda node, line: found.append((node, line))
    )
    for line in (b"0: of n1", b"1: of n2", b"2: of n3?", *map(str.encode, lines)):
        senders.receive_error(line)
    told = [(node, line) for node, line in found if node]
    assert sorted(told) == [("n1", b"of n1"), ("n2", b"of n2")]


def test_the_end_of_a_task_elsewhere_shows_its_node() -> None:
    found: list[tuple[str, bytes]] = []
    senders = Senders(NODES, lambda *_: None, lambda node, line: found.append((node, line)))
    senders.receive_error(b"0: no python")
    senders.receive_error(b"1: srun: error: n1: task 0: Killed")  # of a node: nothing to believe
    assert found == []
    senders.receive_error(b"srun: error: n[1,3]: tasks 0-1: Killed")  # which of both?
    senders.receive_error(b"srun: error: n3: task 0: Killed")
    assert [node for node, line in found if line == b"no python"] == ["n3"]


def test_a_line_that_is_no_message_names_nobody() -> None:
    long = b"facts\tn1\t" + b"x" * MAX_WORD_BYTES
    assert named_node(long[:100]) == "n1" and named_node(long) == ""


def test_the_lines_of_a_single_node_have_labels_too() -> None:
    """Its errors are told from those of srun itself."""
    allocation = SlurmAllocation.__new__(SlurmAllocation)
    [(command, _)] = allocation.commands(["n1"], ["true"])
    assert "--label" in command and has_labels(command) and not has_labels(["python3", "-c", ""])
    found: list[tuple[str, bytes]] = []
    senders = Senders(["n1"], lambda node, line: found.append((node, line)))
    for line in (b"0: ready\tn1\t", b"ready\tn1\t"):  # the second: of an srun without labels
        senders.receive_output(line)
    assert found == [("n1", b"ready\tn1\t")] * 2


def test_what_is_no_word_has_a_node_once_its_task_is_known() -> None:
    lines = ["0: Traceback", "srun: error n1", "1: x n9"]
    assert heard(*lines) == [("", "srun: error n1")]
    assert heard(*lines, "2: begin n3", "1: begin n2")[1:] == [
        ("n3", "begin n3"),
        ("n2", "x n9"),
        ("n2", "begin n2"),
        ("n1", "Traceback"),
    ]


@pytest.mark.parametrize(
    ("environment", "works"),
    [
        ({}, ""),
        ({"SLURM_NODEID": "0", "SLURMD_NODENAME": "n1"}, ""),
        ({"SLURM_NODEID": "0", "SLURMD_NODENAME": "n3"}, ""),  # a shell in a step of one node
        ({"SLURM_NODEID": "2", "SLURMD_NODENAME": "n3"}, "n1"),
        ({"SLURM_NODEID": "2"}, "n1"),
        ({"SLURMD_NODENAME": "n1"}, ""),
        ({"SLURMD_NODENAME": "n2"}, "n1"),
        ({"SLURMD_NODENAME": "login"}, ""),  # not a node of the job
        ({"SLURM_NODEID": "x"}, ""),
    ],
)
def test_of_several_batch_scripts_the_first_nodes_works(
    environment: dict[str, str], works: str
) -> None:
    assert first_copy(environment, ["n1", "n2", "n3"]) == works


class Controller:
    """Answers of `sinfo` and `scontrol` for a job on three nodes."""

    def __init__(self, states: str, job: str) -> None:
        self.states, self.job, self.asked = states, job, list[list[str]]()

    def ask(self, argv: list[str], seconds: float) -> tuple[int, str]:
        if argv[:3] == ["scontrol", "show", "hostnames"]:
            return 0, "\n".join({"n[1,3]": ["n1", "n3"]}[argv[3]])
        self.asked.append(argv)
        text = self.states if argv[0] == "sinfo" else self.job
        return (0, text) if text else (1, "")


def test_another_task_of_a_job_array_is_another_job() -> None:
    tasks = [
        f"JobId={job} ArrayJobId=7 ArrayTaskId={task} JobName=s JobState={state} Reason=None"
        for job, task, state in ((7, 1, "RUNNING"), (8, 2, "CANCELLED"))
    ]
    world: Any = SimpleNamespace(ask=lambda *_, **__: (0, "n1"))
    for job, ended in (("7", False), ("8", True)):
        given = {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "n1"}
        allocation = SlurmAllocation(given, world)
        allocation.world = SimpleNamespace(ask=lambda *_, **__: (0, "\n".join(tasks)))  # type: ignore[assignment]
        end = allocation.job_end()
        assert end is not None and end.is_ended is ended


def test_the_end_of_one_node_ends_no_other() -> None:
    """Whatever WaitTime the site has."""
    allocation = SlurmAllocation.__new__(SlurmAllocation)
    [(argv, _)] = allocation.commands(NODES, ["true"])
    assert {"--wait=0", "--kill-on-bad-exit=0", "--no-kill"} <= set(argv)


RUNNING = "JobId=7 JobState=RUNNING Reason=None ReqNodeList=n[1-3] NodeList=n[1,3] BatchHost=n1"
IDLE = "n1 mixed\nn2 idle\nn3 mixed\n"


def test_a_node_that_slurm_removed_from_the_job_stays_lost() -> None:
    allocation = SlurmAllocation.__new__(SlurmAllocation)
    allocation.job_id, allocation._removed = "7", set()
    slurm = allocation.world = Controller(IDLE, RUNNING)  # type: ignore[assignment]
    assert allocation.lost(NODES) == {"n2": "removed from the job"}
    slurm.job = ""  # no answer
    assert allocation.lost(NODES) == {"n2": "removed from the job"}
    slurm.states = IDLE.replace("n3 mixed", "n3 down*")
    assert allocation.lost(NODES) == {"n2": "removed from the job", "n3": "down*"}
    slurm.states = ""
    assert allocation.lost(NODES) is None
    assert "--all" in slurm.asked[0], "its partition can be hidden"


@pytest.mark.parametrize(
    ("job", "lost"),
    [
        (RUNNING.replace("n[1,3]", "n1,n2,n3"), []),
        (RUNNING.replace("n[1,3]", "n1"), ["n2", "n3"]),
        (RUNNING.replace("n[1,3]", "(null)"), []),
        (RUNNING.replace("RUNNING", "COMPLETING"), []),
    ],
)
def test_only_a_running_job_shows_its_nodes(job: str, lost: list[str]) -> None:
    allocation = SlurmAllocation.__new__(SlurmAllocation)
    allocation.job_id, allocation._removed = "7", set()
    allocation.world = Controller(IDLE, job)  # type: ignore[assignment]
    assert allocation.lost(NODES) == dict.fromkeys(lost, "removed from the job")


def test_a_harmless_line_opens_no_reason() -> None:
    complaints = Complaints(lambda: 0.0, lambda text: [text], str)
    refusal = "srun: error: Unable to create step for job 7: Requested node configuration is ..."
    for line in ("srun: cluster configuration lacks support for cpu binding", refusal):
        complaints.take("", line.encode())
    assert complaints.last_lines == refusal
