"""`orchestrator explain`: the corpus of labelled failures, what is said of sets that wait, bounds, documents."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import failures
import pytest
from effort import lines_run, unlike_lines
from hypothesis import given, settings
from hypothesis import strategies as st
from sources import PACKAGE, tree

from orchestrator.causes.cause import END, PROGRAM
from orchestrator.causes.first import Ended, cause_of, first_cause
from orchestrator.causes.reading import symptoms
from orchestrator.causes.tables import CAUSES
from orchestrator.cli import COMMANDS, main
from orchestrator.evidence.explain import explain
from orchestrator.evidence.explanation import UNKNOWN
from orchestrator.evidence.own_causes import LOOP_CAUSES
from orchestrator.evidence.picture import picture
from orchestrator.evidence.progress import Logs
from orchestrator.evidence.quotes import Proof
from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.kernel.log_ends import COUNT_BYTES, HEAD_BYTES, TAIL_BYTES, read_log_ends
from orchestrator.onnode.policy.trouble import telling_line
from orchestrator.scheduler.job import Job
from orchestrator.scheduler.slurm_reasons import REASONS

LETTERS = str.maketrans("0123456789", "ghijklmnop")
FILES = sorted(path.stem for path in failures.FOLDER.glob("*.txt"))


MISSES = {
    "development": {"bad_argument_3": "input_refused", "read_only_1": "data_missing"},
    "held_out_4": {"shim-denied": "bad_mount"},
    "held_out_5": {"ub-argument-of-older-te": "bad_argument", "verbs-abi": "rccl_failed"},
    "held_out_6": {"merged_doc_idx": "input_refused", "precision_and_plugins": "input_refused"},
    "unseen_7": {"rocblas_file_absent": "missing_library"},
    "unseen_8": {"inductor_backend": "missing_module"},
}
"""Per file, the cases whose cause is not found, and the cause that is named."""


@pytest.mark.parametrize("name", FILES)
def test_the_corpus(tmp_path: Path, name: str) -> None:
    _, wrong = failures.score(tmp_path, name)
    assert {case.name: found.cause for case, found in wrong} == MISSES.get(name, {})


def test_every_label_is_a_cause() -> None:
    labels = {label for name in FILES for case in failures.cases(name) for label in case.labels}
    names = {cause.name for cause in (*CAUSES, *REASONS, *LOOP_CAUSES)} | {UNKNOWN, "cancelled"}
    assert labels <= names
    assert sum(len(failures.cases(name)) for name in FILES) >= 970


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("Error: OCI runtime error: crun: mount `/data`: Stale file handle", "stale_storage"),
        ("docker: unable to find user 1000: no matching entries in passwd file", "unknown_user"),
    ],
)
def test_of_a_reason_the_most_exact_sign_counts(tmp_path: Path, reason: str, cause: str) -> None:
    """Whether its node was excluded or blamed."""
    case = failures.Case("aside", cause, aside=[("n0", "container", reason)])
    assert failures.explained(tmp_path / "set", case).cause == cause
    [events] = (tmp_path / "set").glob("events-*.tsv")
    events.write_text(events.read_text().replace("\taside\t", "\tblamed\t"))
    assert failures.of_set(tmp_path / "set", case).cause == cause


def test_the_first_cause_its_line_and_the_next_command(tmp_path: Path) -> None:
    case = next(one for one in failures.cases("writing") if one.name == "hip_oom_one_rank")
    found = failures.explained(tmp_path / "a set", case)
    assert (found.cause, found.sentence) == (
        "gpu_out_of_memory",
        "n1: the memory of a GPU is used up",
    )
    first = found.evidence[0]
    assert (first.file, first.line) == ("runs/1/attempt_1/node_1.log", 4)
    assert first.text.startswith("[rank9]: torch.OutOfMemoryError: HIP out of memory.")
    assert found.next == "orchestrator doctor --nodes n1"
    assert json.dumps(found.to_json())


def test_the_cause_is_found_before_many_runs_of_an_earlier_job(tmp_path: Path) -> None:
    """A job repeated run 1 after another had done the runs behind it."""
    case = next(one for one in failures.cases("writing") if one.name == "hip_oom_one_rank")
    failures.make_set(tmp_path, case)
    done = {"attempt": 1, "job_id": "4410", "state": "success", "outcome": "success"}
    for run in range(2, 61):
        folder = tmp_path / f"runs/{run}/attempt_1"
        folder.mkdir(parents=True)
        for path in (folder, folder.parent):
            (path / "state.json").write_text(json.dumps({"run": run, **done}))
    described = json.loads((tmp_path / "set.json").read_text())
    (tmp_path / "set.json").write_text(json.dumps({**described, "nexp": 60}))
    assert failures.of_set(tmp_path, case).cause == "gpu_out_of_memory"


def test_the_next_command_is_quoted(tmp_path: Path) -> None:
    case = next(one for one in failures.cases("writing") if one.name == "ras_ue")
    found = failures.explained(tmp_path / "a set; $(x)", case)
    assert found.next == f"orchestrator resume '{tmp_path}/a set; $(x)' --exclude n0"


def test_control_characters_of_a_log_reach_nobody(tmp_path: Path) -> None:
    log = "\x1b]0;title\x07 OSError: [Errno 28] No space left on device \x1b[31m\x9b1m\r\n"
    found = failures.explained(
        tmp_path / "s", failures.Case("x", "disk_full", {0: ({"exit": 1}, log)})
    )
    assert found.cause == "disk_full"
    assert all(one.text.isprintable() and len(one.text) <= 300 for one in found.evidence)


@pytest.mark.parametrize("spaces", [0, 1, 2, 3])
def test_a_part_of_a_record_is_not_quoted(tmp_path: Path, spaces: int) -> None:
    """The end of a log that is read may begin anywhere in a line."""
    record = ':::MLLOG {"key": "throughput", "value": 1.0, "metadata": {"samples_count": 12288}}\n'
    log = record * 100 + " " * spaces + record
    found = failures.explained(tmp_path / "s", failures.Case("x", UNKNOWN, {0: ({"exit": 9}, log)}))
    said = [found.sentence, *(one.text for one in found.evidence)]
    assert found.cause == UNKNOWN and not [text for text in said if "12288" in text], said


@pytest.mark.parametrize("megabytes", [2, 100])
def test_lines_of_large_logs_are_found_without_reading_them(tmp_path: Path, megabytes: int) -> None:
    log = tmp_path / "node_0.log"
    line = b"step 1 loss 2.0 " + b"." * 1007 + b"\n"
    with open(log, "wb") as file:
        for _ in range(megabytes):
            file.write(line * 1024)
        file.write(b"OSError: [Errno 28] No space left on device\nbye\n")
    ends = read_log_ends(log)
    assert ends is not None and len(ends.text) <= HEAD_BYTES + TAIL_BYTES
    [found] = symptoms(ends.text)
    number = ends.line(found.offset)
    assert number == (megabytes * 1024 + 1 if megabytes << 20 < COUNT_BYTES else -2)
    assert ends.line(0) == 1


def test_what_is_no_log_tells_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert [read_log_ends(tmp_path / name) for name in ("pipe", "none", ".")] == [None] * 3


@given(st.binary(max_size=400))
def test_any_bytes_are_read(log: bytes) -> None:
    for one in symptoms(log + b"\nRuntimeError: HIP out of memory\n" + log):
        assert "\n" not in one.text and len(one.text) <= 200
        one.text.encode()


@settings(max_examples=30)
@given(st.permutations(["n0", "n1", "n2", "n3"]))
def test_the_first_cause_does_not_depend_on_the_order_of_nodes(order: list[str]) -> None:
    told = {
        "n0": symptoms(b"torch.distributed.DistBackendError: NCCL error: remote process exited\n"),
        "n1": symptoms(b"[E1122 10:00:09 x] Watchdog caught collective operation timeout\n"),
        "n2": symptoms(b"OSError: [Errno 116] Stale file handle: '/data/x'\n"),
        "n3": symptoms(b"ConnectionResetError: [Errno 104] Connection reset by peer\n"),
    }
    found = first_cause({node: told[node] for node in order}, {})
    assert found is not None and (found[0], found[1].cause) == ("n2", "stale_storage")


def test_the_node_that_ended_by_itself_first_has_the_first_cause() -> None:
    told = {
        node: symptoms(b"OSError: [Errno 28] No space left on device\n")
        for node in ("n0", "n1", "n2")
    }
    ends = {"n0": Ended(143, 10), "n1": Ended(1, 900), "n2": Ended(1, 800)}
    found = first_cause(told, ends)
    assert found is not None and found[0] == "n2"
    assert cause_of(told, ends) == "n2: a file system is full"


@pytest.mark.parametrize("reason", ["Priority", "Nobody has seen this before"])
def test_status_says_the_same_as_explain(tmp_path: Path, reason: str) -> None:
    files = failures.make_set(tmp_path / "s", failures.Case("x", "", slurm=("PENDING", reason)))
    one = picture(files, {"4411": Job("4411", "orch-s", "PENDING", reason)}, Logs())
    found = explain(files, one)
    assert one.reason in found.sentence and reason in found.sentence


BOOKKEEPING = [
    f"2026-11-24T23:27:25+0000 orchestrator: orchestrator-ledger:9:{'d3874cce' * 8}",
    *(
        f"2026-11-24T23:26:20+0000 orchestrator: {who}: tunables: iommu_on wanted x, found absent"
        for who in ("node lab1", "both nodes", "all 2 nodes", "all 8 nodes")
    ),
    "srun: cluster configuration lacks support for cpu binding",
    "cpu-bind=MASK - n0, task  0  0 [4242]: mask 0xff set",
]


@pytest.mark.parametrize("state", ["paused", "lost"])
def test_bookkeeping_lines_of_the_job_are_never_evidence(tmp_path: Path, state: str) -> None:
    """Such a line may be the last of the output, or stand beside the line that counts."""
    ended = "2026-11-24T23:27:25+0000 orchestrator: set s: paused (all 2 nodes exited 9)"
    error = "slurmstepd-n0: error: Unable to create TMPDIR [/x]: Permission denied"
    before, after = BOOKKEEPING[1:], BOOKKEEPING
    for text in (ended, error):
        case = failures.Case("x", UNKNOWN, job="\n".join([*before, text, *after]))
        if state == "paused":
            case.nodes = {0: ({"exit": 9}, ""), 1: ({"exit": 9}, "")}
        root = tmp_path / f"{len(text)}"
        found = failures.explained(root, case)
        quoted = [proof.text for proof in found.evidence] + [found.sentence]
        assert not any(line in words for line in BOOKKEEPING for words in quoted), quoted
        if state == "lost":
            assert any(text in words for words in quoted), quoted


def test_a_set_whose_loop_was_killed_is_resumed(tmp_path: Path) -> None:
    """Slurm's word for the exit code 0:9 is JobLaunchFailure, after finished runs, too."""
    case = failures.Case("x", UNKNOWN, slurm=("FAILED", "JobLaunchFailure"))
    case.nodes = {0: ({"exit": 0}, "")}
    found = failures.explained(tmp_path / "s", case)
    assert (found.state, found.cause) == ("lost", UNKNOWN)
    assert found.next == f"orchestrator resume {tmp_path}/s" and "loop was killed" in found.remedy
    assert "could not start" not in f"{found.sentence} {found.evidence}"
    jobs = {failures.JOB: Job(failures.JOB, "orch-s", *case.slurm)}
    reason = picture(SetEvidence(tmp_path / "s"), jobs, Logs()).reason
    assert reason == "job 4411 failed without closing the set"


def test_a_resumed_job_that_never_started_is_not_explained_by_the_one_before(
    tmp_path: Path,
) -> None:
    """As if its user may not write job_*.out: then slurmd starts no batch script."""
    case = failures.Case("x", UNKNOWN)
    case.nodes = {0: ({"exit": 0}, "")}
    failures.make_set(tmp_path / "s", case)
    second = {
        "number": 2,
        "requested_ms": failures.STARTED + 1_000_000,
        "state": "submitted",
        "job_id": "4412",
        "job_name": "orch-s",
    }
    (tmp_path / "s/submissions/2.json").write_text(json.dumps(second))
    files = SetEvidence(tmp_path / "s")
    jobs = {"4412": Job("4412", "orch-s", "FAILED", "JobLaunchFailure")}
    found = explain(files, picture(files, jobs, Logs()))
    assert (found.state, found.cause) == ("lost", "launch_failed")
    assert "can the job's user write the set's job_*.out?" in found.remedy
    forgotten = explain(files, picture(files, {}, Logs()))
    assert forgotten.cause == UNKNOWN and "loop was killed" not in forgotten.remedy


def test_evidence_without_a_place_has_no_colon() -> None:
    assert str(Proof("", 0, "the time limit is near")) == "the time limit is near"
    assert str(Proof("a.log", 3, "x")) == "a.log:3: x"


OOM = b"[rank9]: torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.\n"
STEP = b" iteration       %d/    5000 | lm loss: 8.1 | grad norm: 2.3 | number of nan iterations:   0 |\n"
WATCHDOG = b"[E1122 10:00:09 x] Watchdog caught collective operation timeout\n"
SHELL = b"cp: cannot stat '/data/vocab.json': No such file or directory\n"


def causes_of(log: bytes) -> list[str]:
    return [one.cause for one in symptoms(log)]


def test_what_a_program_outlived_is_no_cause() -> None:
    early = b"OSError: [Errno 28] No space left on device\n"
    assert causes_of(early + STEP % 1 + OOM) == ["disk_full", "gpu_out_of_memory"]
    assert causes_of(early + b"".join(STEP % at for at in range(3)) + OOM) == ["gpu_out_of_memory"]


def test_words_said_in_passing_count_only_as_the_last_ones_and_in_errors() -> None:
    assert causes_of(SHELL) == ["data_missing"] and causes_of(SHELL + b"loading\n" * 20) == []
    assert causes_of(b"tuning file x does not exist\n" * 2 + b"go\n" * 9) == []
    assert causes_of(b"ValueError: file x does not exist\n" + b"go\n" * 9) == ["data_missing"]
    found = first_cause({"n0": symptoms(SHELL + OOM)}, {})
    assert found is not None and found[1].cause == "gpu_out_of_memory"


def test_who_waited_is_not_the_cause_but_who_was_gone() -> None:
    told = {"n0": symptoms(WATCHDOG.replace(b"1122 10:00:09", b"")), "n1": symptoms(SHELL)}
    gone_first = first_cause(told, {"n0": Ended(1, 900), "n1": Ended(1, 2)})
    assert gone_first is not None and gone_first[0] == "n1"
    ended_last = first_cause(told, {"n0": Ended(1, 900), "n1": Ended(143, 905)})
    assert ended_last is not None and ended_last[0] == "n0"


@pytest.mark.parametrize(
    ("exits", "cause"),
    [
        ({"n0": (143, 62), "n1": (137, 60)}, "killed"),
        ({"n0": (1, 62), "n1": (139, 60)}, "crash"),
        ({"n0": (1, 60), "n1": (137, 95)}, "peer_lost"),
    ],
)
def test_the_exit_code_speaks_for_the_node_that_ended_first_without_a_word(
    exits: dict[str, tuple[int, int]], cause: str
) -> None:
    told = {
        node: symptoms(b"ConnectionResetError: [Errno 104] Connection reset by peer\n")
        for node in exits
    }
    found = first_cause(told, {node: Ended(*end) for node, end in exits.items()})
    assert found is not None and found[1].cause == cause


HARMLESS = (
    b'n2:41:41 [0] /rccl/build/hipify/src/init.cc:136 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!\n',
    b'n2:41:41 [0] /rccl/build/hipify/src/init.cc:115 NCCL WARN NUMA auto balancing enabled which can lead to variability in the RCCL performance! Disable by "sudo sysctl kernel.numa_balancing=0"\n',
    b"n2:41:41 [0] /rccl/src/rccl_wrap.cc:58 NCCL WARN LL cutoff points not detected for a supported arch gfx950\n",
    b"n2:41:41 [0] /rccl/src/init.cc:2201 NCCL WARN MSCCL++: Feature not enabled. ENABLE_MSCCLPP must be defined at compile-time\n",
    b"/opt/amdgpu/share/libdrm/amdgpu.ids: No such file or directory\n",
    b"ERROR: ld.so: object '/usr/lib/libjemalloc.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.\n",
)


@pytest.mark.parametrize("line", HARMLESS)
def test_lines_that_good_runs_print_beat_no_failure(line: bytes) -> None:
    """Neither those of `explain` nor of the loop, which quotes a line as its reason."""
    assert symptoms(line) == [] and telling_line(line) == ""
    lost = b"RuntimeError: Connection closed by peer [10.0.0.7]:4411\n"
    assert telling_line(line + lost) == lost.decode().rstrip()
    told = {"n1": symptoms(b"step 1\n" * 50 + b"Killed\n"), "n2": symptoms(line + lost)}
    ends = {"n1": Ended(137, 60), "n2": Ended(1, 70)}
    assert cause_of(told, ends).startswith("n1: a process was killed from outside (signal 9)")
    assert causes_of(line + WATCHDOG) == ["collective_timeout"]


def test_advice_of_rccl_as_its_last_error_is_not_the_failure() -> None:
    raised = b"[rank0]: torch.distributed.DistBackendError: NCCL error in: /x/y.cpp:2027, unhandled system error, NCCL version 2.20.5\n"
    log = raised + b"[rank0]: ncclSystemError: System call failed.\n[rank0]: Last error:\n"
    [found] = symptoms(log + b"[rank0]: " + HARMLESS[0][HARMLESS[0].index(b"Missing") :])
    assert found.text in raised.decode() and found.cause == "rccl_system_error"


@pytest.mark.parametrize(("code", "cause"), [(137, "killed"), (139, "crash"), (1, "data_missing")])
def test_a_signal_counts_before_words_said_in_passing(code: int, cause: str) -> None:
    found = first_cause({"n1": symptoms(SHELL)}, {"n1": Ended(code, 60)})
    assert found is not None and found[1].cause == cause


REMARK = b"error: XDG_RUNTIME_DIR not set in the environment.\n"
KILLED = b"step\n" * 9 + b"Killed\n"


@pytest.mark.parametrize(
    ("log", "code", "cause"),
    [
        (b"", 1, ""),
        (b"", 137, "killed"),
        (KILLED, 1, "killed"),
        (b"Segmentation fault (core dumped)\n", 1, "crash"),
        (WATCHDOG, 1, "collective_timeout"),
        (b"step\n" * 9 + b"HIP error: out of memory\n", 1, "gpu_out_of_memory"),
    ],
)
def test_an_error_of_unknown_meaning_hides_no_known_failure(
    log: bytes, code: int, cause: str
) -> None:
    found = first_cause({"n1": symptoms(REMARK + log)}, {"n1": Ended(code, 60)})
    assert found is not None and found[1].cause == cause
    # It may be the first failure, so it is quoted if it is near.
    is_quoted = REMARK.decode().rstrip() in (found[1].text, *(text for text, _ in found[1].episode))
    assert is_quoted == (not log.startswith(b"step") and code == 1)


@pytest.mark.parametrize(("lasted", "node"), [((70, 60, 65), "n1"), ((50, 60, 65), "n0")])
def test_an_error_of_unknown_meaning_counts_on_the_node_that_ended_first(
    lasted: tuple[int, ...], node: str
) -> None:
    lost = b"RuntimeError: Connection closed by peer [10.0.0.7]:4411\n"
    logs = {"n0": lost, "n1": KILLED, "n2": WATCHDOG}
    ends = {name: Ended(1, seconds) for name, seconds in zip(logs, lasted, strict=True)}
    found = first_cause({name: symptoms(REMARK + log) for name, log in logs.items()}, ends)
    assert found is not None and found[0] == node
    without_ends = first_cause({name: symptoms(REMARK + log) for name, log in logs.items()}, {})
    assert without_ends is not None and without_ends[1].cause == "killed"


def test_the_source_that_a_traceback_quotes_says_nothing() -> None:
    frame = b'[rank0]:   File "/x/train.py", line 3, in <module>\n[rank0]:     raise OSError("No space left on device")\n'
    assert causes_of(frame) == []
    assert causes_of(frame + b"[rank0]: KeyError: 'a'\n") == ["input_refused"]


def test_no_sign_says_anything_of_lines_that_good_runs_print() -> None:
    noise = (
        "Librccl path : /opt/rocm/lib/librccl.so.1\nrank 0 in job 1\nmax locked memory (kbytes, -l) unlimited\n"
        "INFO: optional dependency 'apex' is not installed\n#9 RUN python3 -m pip install --upgrade pip\n"
        "modprobe: FATAL: Module amdgpu not found in directory /lib/modules/5.15.0\n"
        "+ docker run --shm-size=64g --oom-kill-disable --ulimit memlock=-1 x\nNCCL_IB_TIMEOUT=22\n{359}[Hardware Error]: event severity: corrected\nGLOO_SOCKET_IFNAME=eth0\n  check_for_nan_in_loss_and_grad .... True\n"
    )
    assert [
        text
        for text in noise.splitlines()
        if any(one.grade <= PROGRAM for one in symptoms(text.encode()))
    ] == []


def test_a_log_of_lines_that_are_all_unlike_is_read_by_its_length() -> None:
    log = unlike_lines(LETTERS)
    symptoms(b"file not found")  # the signs are read once
    every_sign = log.count(b"\n") * sum(len(cause.signs) for cause in CAUSES)
    assert lines_run(lambda: symptoms(log)) < every_sign / 4


def test_a_line_is_quoted_of_nearly_every_log() -> None:
    logs = [
        log.encode()
        for name in FILES
        for case in failures.cases(name)
        for _, log in case.nodes.values()
    ]
    failed = [log for log in logs if any(one.grade <= END for one in symptoms(log))]
    quoted = [log for log in failed if telling_line(log)]
    assert len(quoted) >= 0.95 * len(failed) > 400


def test_the_answer_has_two_lines_then_the_evidence_then_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = "\n".join(
        [
            "HIP Error: out of memory (2) /src/paged.cuh: line 71 at function hipMallocAsync(&buffer)",
            "Traceback (most recent call last):",
            '  File "/app/train.py", line 7, in main',
            "    paged.forward(batch)",
            "RuntimeError: PagedDecode failed with error out of memory",
        ]
    )
    failures.make_set(tmp_path, failures.Case("x", "", {0: ({"exit": 1}, f"{log}\n")}))
    assert main(["explain", str(tmp_path)]) == 0
    first, fix, *evidence, command = capsys.readouterr().out.rstrip("\n").split("\n")
    assert first.startswith(f"{tmp_path.name} is paused: ") and fix.startswith("fix: ")
    assert command.startswith("  orchestrator ") and len(evidence) >= 2
    # What the library said, and the exception that it became.
    assert "node_0.log:1: " in evidence[0] and "node_0.log:5: " in evidence[1]


def texts(path: Path) -> Iterator[str]:
    """The texts of a module; a value in one is an X."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_advice_holds_no_part_of_a_command() -> None:
    """The whole command is below it; in a shell `logs --run 2` is another program or none."""
    modules = sorted((PACKAGE / "evidence").glob("*.py"))
    advice = [*(cause.remedy for cause in CAUSES), *itertools.chain(*map(texts, modules))]
    typed = [words for text in advice for words in re.findall("`([^`]+ [^`]+)`", text)]
    assert "orchestrator tune verify" in typed
    assert [words for words in typed if words.split()[0] in COMMANDS] == []
