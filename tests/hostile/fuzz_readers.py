"""Every reader of bytes that somebody else wrote, under bytes that nobody would write.

python tests/hostile/fuzz_readers.py [--examples N] [--seed N] [READER...]

A case that brings out an exception nobody expects is kept below tests/data/fuzz/READER/, and stays a test.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TOP = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(TOP / "tests"), str(TOP)]

import set_of_logs as sets
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from recorded_set import recorded_set

from orchestrator.errors import OrchestratorError
from orchestrator.evidence.events import read_events, read_told
from orchestrator.evidence.ledger import verify
from orchestrator.evidence.replay import replay
from orchestrator.evidence.sets import SetEvidence
from orchestrator.mllog.reader import read_log
from orchestrator.mllog.score import score_dir
from orchestrator.model.catalogue import Catalogue
from orchestrator.model.sites import load_site
from orchestrator.onnode.agent import space
from orchestrator.onnode.kernel.events import UNIT, Event, parse_pong, parse_word
from orchestrator.onnode.kernel.mllog_tail import StopFinder, last_status, lines
from orchestrator.onnode.kernel.records import Holder
from orchestrator.onnode.loop.attempt_reports import AttemptReports
from orchestrator.onnode.policy.reports import NodeReport
from orchestrator.onnode.set import lease, ledger
from orchestrator.scheduler import slurm, slurm_nodes
from orchestrator.scheduler.command import Answer

KEPT = TOP / "tests/data/fuzz"
MARK = "abcdef"
Reader = Callable[[bytes, Path], object]


# ---- readers ----


def read_yaml(content: bytes, folder: Path) -> None:
    """A site file, a system and a workload: each is refused in words, or is a document."""
    for name in ("site.yaml", "MI325X_fuzz.yaml", "workload.yaml"):
        (folder / name).write_bytes(content)
    catalogue = Catalogue([folder])
    for ask in (
        lambda: load_site(folder / "site.yaml"),
        lambda: catalogue.systems(),
        lambda: catalogue.system(str(folder / "MI325X_fuzz.yaml")),
        lambda: catalogue.workload(str(folder / "workload.yaml")),
    ):
        try:
            ask()
        except OrchestratorError as error:
            str(error).encode("utf-8", "backslashreplace")


def read_mllog(content: bytes, folder: Path) -> None:
    """A result, read where it counts and while it grows."""
    (folder / "result_0.txt").write_bytes(content)
    read_log(str(folder / "result_0.txt"), full=True)
    list(lines(content))
    last_status(folder / "result_0.txt")
    finder = StopFinder()
    for start in range(0, len(content), 97):
        finder.feed(content[start : start + 97])
    finder.finish()
    try:
        json.dumps(score_dir(str(folder)).to_json(), allow_nan=True)
    except OrchestratorError:
        pass


def read_event_file(content: bytes, folder: Path) -> None:
    """The events of a job: those that are shown, and all of them replayed."""
    whole(folder)
    (folder / "set/events-7.tsv").write_bytes(content)
    evidence = SetEvidence(folder / "set")
    read_told(evidence)
    found = replay(read_events(folder / "set/events-7.tsv"))
    list(map(str, found.differences))


def read_ledger(content: bytes, folder: Path) -> None:
    whole(folder)
    (folder / "set" / ledger.NAME).write_bytes(content)
    verdict = verify(folder / "set")
    json.dumps(verdict.to_json())
    entries, _ = ledger.read(folder / "set")
    ledger.declared(entries)
    ledger.original(folder / "set", entries)
    try:
        score_dir(str(folder / "set"))
    except OrchestratorError:
        pass


def read_lease(content: bytes, folder: Path) -> None:
    path = folder / "loop.lock"
    path.write_bytes(content)
    lease.read(path)
    for sees in (True, False, None):
        found = lease.look(path, Holder(), lambda *_, seen=sees: seen)
        assert found is None or (str(found[0]) is not None and found[1].why is not None)


def read_slurm(content: bytes, folder: Path) -> None:
    """What squeue, scontrol, sinfo, sbatch and salloc print, whatever was asked."""
    text = content.decode("utf-8", "replace")
    answer = Answer(["program"], 0, text, text)
    for parse in (
        lambda: slurm.parse_queue(answer, MARK),
        lambda: slurm.parse_show(answer),
        lambda: slurm._job_id(answer),
        lambda: slurm_nodes._states(answer, only_default=False),
        lambda: slurm_nodes.allocation_reply(text),
        lambda: answer.complaint,
        lambda: slurm.Slurm(ask=lambda *_, **__: answer).cluster(),
    ):
        try:
            parse()
        except OrchestratorError:
            pass
    for line in text.splitlines():
        try:
            slurm_nodes.minutes_of(line)
        except ValueError:
            pass


def read_words(content: bytes, folder: Path) -> None:
    """What a node says to the loop."""
    report, attempt = NodeReport(), AttemptReports(3, 1, ["n1", "n2"])
    for line in content.split(b"\n"):
        word = parse_word(line, frozenset(("n1", "n2")))
        if word is not None:
            report.apply(word[0], word[2])
            attempt.take(Event(1, "node", word[0], word[1], word[2]))
        parse_pong(line)
    attempt.gate.refusals()
    attempt.gate.not_ready()
    [check.sentence.encode() for check in report.checks.values()]


def read_registry(content: bytes, folder: Path) -> None:
    """What a registry says of an image, as the engine passes it on."""
    program = SimpleNamespace(engine_command=["docker"], proxy=[], preflight_check_s=4)
    asked, space.ask = space.ask, lambda *_, **__: (0, content.decode("utf-8", "replace"))
    try:
        size = space._registry_bytes(SimpleNamespace(settings=program), "host/name:tag")  # type: ignore[arg-type]
    finally:
        space.ask = asked
    assert size >= 0


@functools.cache
def recorded() -> Path:
    return recorded_set(Path(tempfile.mkdtemp()), sets.logs(sets.MI355X)[:2])


def whole(folder: Path) -> None:
    """Have a link farm of a sound set, whose small files may be replaced."""
    root = folder / "set"
    if not root.exists():
        for path in sorted(recorded().rglob("*")):
            place = root / path.relative_to(recorded())
            if path.is_dir():
                place.mkdir(parents=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, place)
    for name in (ledger.NAME, "events-7.tsv"):
        (root / name).unlink(missing_ok=True)


# ---- what they are given ----


def _yaml() -> list[bytes]:
    paths = [TOP / "workloads/flux1.yaml", *sorted((TOP / "systems").glob("*.yaml"))[:3]]
    site = b"kind: site\nlog_dir: /x\npartition: gpu\npass_env: [HF_TOKEN]\nenv: {A: '1'}\n"
    return [site, *(path.read_bytes()[:6000] for path in paths)]


def _mllog() -> list[bytes]:
    content = sets.logs(sets.MI355X)[0]
    rows = content.splitlines(keepends=True)
    return [content[:5000], b"".join(rows[:5] + rows[-5:]), content[-5000:]]


def _events() -> list[bytes]:
    words = ["begin", "hold", "placed", "ordered", "outcome", "judged", "hung", "take", "aside"]
    detail = json.dumps({"generation": 1, "nodes": ["n1", "n2"], "run": 1, "attempt": 1})
    rows = [f"1777000001000\tloop\t{word}\tn1\t{detail}\n" for word in words]
    rows += [f"1777000002000\tnode\tcheck\tn1\tgpus{UNIT}pass{UNIT}3{UNIT}8 GPUs{UNIT}\n"]
    return ["".join(rows).encode(), *(row.encode() for row in rows)]


def _ledger() -> list[bytes]:
    content = (recorded() / ledger.NAME).read_bytes()
    rows = content.splitlines(keepends=True)
    return [content, b"".join(rows[:2]), b"".join(rows[-2:])]


def _lease() -> list[bytes]:
    from dataclasses import asdict

    holder = asdict(Holder())
    return [json.dumps(holder).encode(), json.dumps({**holder, "pid": 7, "host": "h"}).encode()]


def _slurm() -> list[bytes]:
    fields = slurm.FIELD
    queue = f"{fields}{MARK}{fields}" + fields.join(
        ("7", "RUNNING", "1777000000", "2026-01-01T00:00:00", "n[1-2]", "None", "orch-x")
    )
    show = "JobId=7 JobName=orch-x UserId=a(1) GroupId=b(1) JobState=RUNNING Reason=None StartTime=2026-01-01T00:00:00 EndTime=Unknown NodeList=n[1-2]\n"
    sinfo = fields.join(("n1", "idle", "gpu*", "none")) + "\n"
    return [
        queue.encode(),
        show.encode(),
        sinfo.encode(),
        b"Submitted batch job 7\n",
        b"7;cluster\n",
        b"2-00:00:00\ninfinite\n12:30\n",
        b"salloc: Granted job allocation 7\nsalloc: error: Job submit failed\n",
        b"ClusterName = here\n",
    ]


def _words() -> list[bytes]:
    said = [
        f"check\tn1\tgpus{UNIT}pass{UNIT}3{UNIT}8 GPUs{UNIT}",
        f"prepared\tn1\t3.1{UNIT}1777000000000{UNIT}5{UNIT}6",
        f"exit\tn2\t3.1{UNIT}0{UNIT}1{UNIT}2{UNIT}success",
        f"pong\tn1\t3.1{UNIT}3.1{UNIT}5{UNIT}1{UNIT}0{UNIT}0",
        f"transport\tn1\t3.1{UNIT}1{UNIT}0{UNIT}Using network IB",
        f"inside\tn1\t3.1{UNIT}packages={'a' * 64}",
        f"facts\tn1\tgpu.name{UNIT}MI325X",
        f"network\tn1\tport{UNIT}mlx5_0",
        f"doing\tn2\t3.1{UNIT}stopped: rank 3",
        f"failed\tn2\tstorage{UNIT}full",
    ]
    return ["\n".join(said).encode(), *(one.encode() for one in said)]


def _registry() -> list[bytes]:
    layers = {"layers": [{"size": 100, "digest": "sha256:1"}], "schemaVersion": 2}
    index = {"manifests": [{"platform": {"architecture": "amd64"}, "digest": "sha256:2"}]}
    return [json.dumps(one).encode() for one in (layers, index, {**layers, **index}, [layers])]


READERS: dict[str, tuple[Reader, Callable[[], list[bytes]]]] = {
    "yaml": (read_yaml, _yaml),
    "mllog": (read_mllog, _mllog),
    "events": (read_event_file, _events),
    "ledger": (read_ledger, _ledger),
    "lease": (read_lease, _lease),
    "slurm": (read_slurm, _slurm),
    "words": (read_words, _words),
    "registry": (read_registry, _registry),
}
TOKENS = (
    *(b"", b"\0", b"\n", b"\r", b"\t", b"\x1f", b"\x1b[2J", b"\xff\xfe", b"\xed\xa0\x80", b"\xc2\x85"),
    *("\u2028".encode(), "\u202e".encode(), "²".encode(), "٣".encode(), "é".encode()),
    *(b"NaN", b"Infinity", b"-1", b"1e999", b"9" * 400, b"9" * 5000, b"0x10", b"1_0", b"0001-01-01"),
    *(b"9999-12-31T23:59:59", b"0001-01-01T00:00:00", b"null", b"true", b"[]", b"{}", b'"\\ud800"'),
    *(b"[" * 3000, b'{"a":' * 3000, b"- " * 500, b"&a ", b"*a", b"<<: ", b"!!python/name:os.system "),
    *(b"? ", b"|\n", b">\n", b"%YAML 9\n", b"---\n", b"...\n", b"'", b'"', b"#", b": ", b","),
    *(b":::MLLOG ", b"JobId=", b" UserId=", b" JobState=", b"Time=", MARK.encode(), b"=" * 50),
)  # fmt: skip
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(("insert", "replace", "drop", "double", "cut", "flip", "value")),
        st.integers(0, 1 << 16),
        st.integers(0, 200),
        st.sampled_from(TOKENS) | st.binary(max_size=20),
    ),
    max_size=6,
)


def changed(content: bytes, changes: list[tuple[str, int, int, bytes]]) -> bytes:
    for how, where, size, token in changes:
        at = where % (len(content) + 1)
        head, middle, tail = content[:at], content[at : at + size], content[at + size :]
        if how == "insert":
            content = head + token + middle + tail
        elif how == "replace":
            content = head + token + tail
        elif how == "drop":
            content = head + tail
        elif how == "double":
            content = head + middle + middle + tail
        elif how == "cut":
            content = head
        elif how == "flip" and middle:
            content = head + bytes([middle[0] ^ (1 << size % 8)]) + middle[1:] + tail
        elif how == "value":
            content = valued(content, where, token)
    return content[: 1 << 17]


def valued(content: bytes, where: int, token: bytes) -> bytes:
    """Replace a whole value: the text between two delimiters."""
    marks = b" \t\n,:;=|\"'[]{}\x1f"
    at = where % (len(content) + 1)
    begin = max((content.rfind(bytes([mark]), 0, at) for mark in marks), default=-1) + 1
    ends = [end for mark in marks if (end := content.find(bytes([mark]), at)) >= 0]
    return content[:begin] + token + content[min(ends, default=len(content)) :]


def contents(name: str) -> st.SearchStrategy[bytes]:
    start = st.sampled_from(READERS[name][1]())
    return st.builds(changed, start, CHANGES) | st.binary(max_size=300)


# ---- runs ----


def fuzz(name: str, examples: int, seed: int, folder: Path) -> bytes | None:
    """Return the smallest content that brings out an exception nobody expects, or None."""
    read, failing = READERS[name][0], list[bytes]()

    @seeded(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(contents(name))
    def run(content: bytes) -> None:
        try:
            read(content, folder)
        except Exception:
            failing.append(content)
            raise

    try:
        run()
    except Exception as error:
        if not failing:
            raise
        print(f"{name}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
        return failing[-1]
    return None


def keep(name: str, content: bytes) -> Path:
    path = KEPT / name / hashlib.sha256(content).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"of {', '.join(READERS)}")
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    found: list[Any] = []
    for name in args.readers or READERS:
        with tempfile.TemporaryDirectory() as folder:
            case = fuzz(name, args.examples, args.seed, Path(folder))
        if case is not None:
            found.append(keep(name, case))
        print(
            f"{name:10}{args.examples:10} examples, seed {args.seed}: {found[-1] if case is not None else 'nothing found'}",
            flush=True,
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
