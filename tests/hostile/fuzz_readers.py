"""Every reader of bytes that somebody else wrote, under bytes that nobody would write.

python tests/hostile/fuzz_readers.py --keep DIR [--minutes 10] [--processes N] [--seed N] [READER...]

Each reader gets so many minutes of processor time, in parts of EXAMPLES inputs. DIR keeps what is done: the same command
continues after an end, and prints the table again; a reader of which a module has changed begins again. `lines`: lines of the package that a sample of the inputs ran, and how
many of them the last quarter of the parts added. A case that brings out an exception nobody expects is kept in
DIR/READER/; copied below tests/data/fuzz/READER/, it stays a test.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from http.client import parse_headers
from multiprocessing import active_children
from multiprocessing.util import Finalize
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

TOP = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(TOP / "tests"), str(TOP)]

import set_of_logs as sets
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from recorded_set import recorded_set
from tars import tar_of

from orchestrator.cli.signals import exit_on
from orchestrator.container import registry
from orchestrator.errors import OrchestratorError
from orchestrator.evidence.copies import original
from orchestrator.evidence.events import read_events, read_job_notes
from orchestrator.evidence.ledger import marked, verify
from orchestrator.evidence.picture import as_json, look
from orchestrator.evidence.replay import replay
from orchestrator.evidence.sets import SetEvidence
from orchestrator.inspection import archives
from orchestrator.mllog.reader import read_log
from orchestrator.mllog.score import score_dir
from orchestrator.model.catalogue import Catalogue
from orchestrator.model.sites import load_site
from orchestrator.onnode.agent import space
from orchestrator.onnode.kernel.events import UNIT, Event, parse_pong, parse_word
from orchestrator.onnode.kernel.holder import Holder
from orchestrator.onnode.kernel.jobs import comment
from orchestrator.onnode.kernel.mllog_tail import StopFinder, last_status, lines
from orchestrator.onnode.kernel.settings_file import declared, shown
from orchestrator.onnode.loop.attempt_reports import AttemptReports
from orchestrator.onnode.loop.slurm import Senders, job_end, step_message
from orchestrator.onnode.policy.reports import NodeReport
from orchestrator.onnode.set import lease, ledger
from orchestrator.scheduler import slurm, slurm_nodes, slurm_times
from orchestrator.scheduler.command import Answer

KEPT = TOP / "tests/data/fuzz"
EXAMPLES, TRACED = 500, 20
"""Inputs of a part, and the first of them whose lines are collected."""
EVENTS, ENVIRONMENT = "events-7.tsv", "jobs/7.env.gz"
RECORDS = (
    "set.json", "jobs/7.json", "submissions/1.json", "runs/1/state.json", "runs/1/attempt_1/state.json",
)  # fmt: skip
SMALL = (ledger.NAME, EVENTS, ENVIRONMENT, *RECORDS)
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
    root = put(folder, EVENTS, content)
    read_job_notes(SetEvidence(root))
    found = replay(read_events(root / EVENTS))
    list(map(str, found.differences))


def read_ledger(content: bytes, folder: Path) -> None:
    root = put(folder, ledger.NAME, content)
    verdict = verify(root)
    json.dumps(verdict.to_json())
    entries, _ = ledger.read(root)
    ledger.declared(entries)
    original(root, entries)
    try:
        score_dir(str(root))
    except OrchestratorError:
        pass


def read_environment(content: bytes, folder: Path) -> None:
    """The environment of runs, of the set and of a job."""
    verify(put(folder, ENVIRONMENT, content))
    list(map(shown, declared(content).values()))


def read_records(content: bytes, folder: Path) -> None:
    """The small files of a set, each in turn, as `status` shows them."""
    for name in RECORDS:
        root = put(folder, name, content)
        scheduler = SimpleNamespace(name="slurm", runs_here=False, jobs=lambda **_: {})
        [picture] = look([root], [scheduler])  # type: ignore[list-item]
        json.dumps(as_json(picture)).encode()


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
        lambda: marked(comment(text)),
        lambda: job_end(text),
        lambda: slurm.Slurm(ask=lambda *_, **__: answer).comments("orch-x", ["7", "8"]),
        lambda: slurm.Slurm(ask=lambda *_, **__: answer).cluster(),
    ):
        try:
            parse()
        except OrchestratorError:
            pass
    for line in text.splitlines():
        step_message("", line, str.split)
        try:
            slurm_times.minutes_of(line)
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
    senders = Senders(["n1", "n2"], lambda *_: None, lambda *_: None)
    for line in content.split(b"\n"):
        senders.receive_output(line)
        senders.receive_error(line)
    senders.end()
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


class _Response:
    """What a registry answers: a status, headers, and a body."""

    def __init__(self, body: bytes, status: int = 200, headers: bytes = b"") -> None:
        self.status, self.reason, self._body = status, "", io.BytesIO(body)
        self.headers = parse_headers(io.BytesIO(headers + b"\r\n\r\n"))
        self.read, self.close = self._body.read, self._body.close


def read_image(content: bytes, folder: Path) -> None:
    """An image's manifest, configuration and layer, errors and the way to a login, as a registry sends them."""
    layer, config = _layer(), b"{}"
    one_line = content[:2000].replace(b"\n", b" ").replace(b"\r", b" ")
    challenge = _Response(b"", 401, b"WWW-Authenticate: " + one_line)
    answers: list[list[Callable[[], _Response]]] = [
        [lambda: _Response(content)] * 4,
        [lambda: _Response(_manifest(content, layer)), lambda: _Response(content), lambda: _Response(layer)],
        [lambda: _Response(_manifest(config, content)), lambda: _Response(config), lambda: _Response(content)],
        [lambda: _Response(content, 500)],
        [lambda: challenge, lambda: _Response(content), lambda: _Response(content)],
    ]  # fmt: skip
    before, registry.PAUSES_S = registry.PAUSES_S, ()
    try:
        for several in answers:
            source = _source()
            source._authorization = ""
            left = iter(several)
            source._follow = lambda *_, left=left: next(left, _gone)()  # type: ignore[method-assign]
            try:
                archives.read_registry(source, ["a.sh"])
            except OrchestratorError as error:
                str(error).encode("utf-8", "backslashreplace")
    finally:
        registry.PAUSES_S = before


def _manifest(config: bytes, layer: bytes) -> bytes:
    described = [
        {"digest": f"sha256:{hashlib.sha256(part).hexdigest()}", "size": len(part)}
        for part in (config, layer)
    ]
    return json.dumps({"config": described[0], "layers": described[1:]}).encode()


@functools.cache
def _source() -> registry.Registry:
    """Reading the certificates of this machine takes longer than what it reads here."""
    return registry.Registry("127.0.0.1:1/own/image:1")


def _gone() -> _Response:
    return _Response(b"", 404)


@functools.cache
def _layer() -> bytes:
    return tar_of({"a.sh": "new\n", ".wh.b.sh": "new\n"})


@functools.cache
def recorded() -> Path:
    folder = tempfile.TemporaryDirectory()
    Finalize(None, folder.cleanup, exitpriority=0)  # processes of a pool run no atexit
    return recorded_set(Path(folder.name), sets.logs(sets.MI355X)[:2])


def put(folder: Path, name: str, content: bytes) -> Path:
    """Have a link farm of a sound set, but for one file."""
    root = folder / "set"
    if not root.exists():
        for path in recorded().rglob("*"):
            if path.is_dir():
                (root / path.relative_to(recorded())).mkdir(parents=True, exist_ok=True)
        for path in recorded().rglob("*"):
            if not path.is_dir():
                _link(path, root / path.relative_to(recorded()))
    for small in SMALL:
        (root / small).unlink(missing_ok=True)
        if small != name and (recorded() / small).exists():
            _link(recorded() / small, root / small)
    (root / name).write_bytes(content)
    return root


def _link(path: Path, place: Path) -> None:
    """Make a hard link, or a copy on another file system."""
    try:
        os.link(path, place)
    except OSError:
        shutil.copy2(path, place)


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


def _environment() -> list[bytes]:
    text = b'declare -x A="b \\\\"c"\ndeclare -x D=$\'a\\n\\001\'\ndeclare -ax E=([0]="x")\n'
    return [gzip.compress(text, mtime=0), (recorded() / ENVIRONMENT).read_bytes(), text]


def _records() -> list[bytes]:
    return [(recorded() / name).read_bytes() for name in RECORDS]


def _image() -> list[bytes]:
    sha, kind = f"sha256:{'a' * 64}", "application/vnd.oci.image.layer.v1.tar+gzip"
    part = {"mediaType": kind, "digest": sha, "size": 100}
    platform = {"architecture": "amd64", "os": "linux"}
    settings = {"Env": ["A=b"], "Entrypoint": ["/x"], "Cmd": None, "WorkingDir": "/w", "Labels": {}}
    described = (
        {"schemaVersion": 2, "config": part, "layers": [part, {**part, "urls": ["https://x/"]}]},
        {"manifests": [{**part, "platform": platform, "annotations": {"a": "b"}}]},
        {**platform, "config": settings, "rootfs": {"diff_ids": [sha]}, "history": [{}]},
        {"errors": [{"code": "DENIED", "message": "no"}]},
        {"token": "abc", "access_token": "abc"},
    )
    challenge = b'Bearer realm="http://127.0.0.1:2/token",service="x",scope="repository:x:pull"'
    packed = gzip.compress(_layer(), mtime=0)
    return [*(json.dumps(one).encode() for one in described), challenge, _layer(), packed]


READERS: dict[str, tuple[Reader, Callable[[], list[bytes]]]] = {
    "yaml": (read_yaml, _yaml),
    "mllog": (read_mllog, _mllog),
    "events": (read_event_file, _events),
    "ledger": (read_ledger, _ledger),
    "environment": (read_environment, _environment),
    "records": (read_records, _records),
    "lease": (read_lease, _lease),
    "slurm": (read_slurm, _slurm),
    "words": (read_words, _words),
    "registry": (read_registry, _registry),
    "image": (read_image, _image),
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


def keep(name: str, content: bytes, folder: Path = KEPT) -> Path:
    path = folder / name / hashlib.sha256(content).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# ---- many minutes of it ----


@dataclass
class Progress:
    """What is done of one reader. `lines`: after each part, those that a sample of inputs has run.
    `sources`: the hash of each file that it ran or that such a file imports."""

    processor_s: float = 0.0
    parts: int = 0
    inputs: int = 0
    lines: list[int] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    processor_s: float
    inputs: int
    lines: frozenset[str]
    case: bytes | None


def part(name: str, seed: int) -> Part:
    """Give a reader EXAMPLES inputs; the same seed gives the same."""
    before, run, seen = sum(os.times()[:2]), set[str](), 0
    read, begin = READERS[name]

    def counted(content: bytes, folder: Path) -> object:
        nonlocal seen
        seen += 1
        with lines_of_package(run) if seen <= TRACED else nullcontext():
            return read(content, folder)

    READERS[name] = counted, begin
    try:
        with tempfile.TemporaryDirectory() as folder:
            case = fuzz(name, EXAMPLES, seed, Path(folder))
    finally:
        READERS[name] = read, begin
    return Part(sum(os.times()[:2]) - before, seen, frozenset(run), case)


@contextmanager
def lines_of_package(run: set[str]) -> Iterator[None]:
    package = f"{TOP / 'orchestrator'}/"

    def trace(frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(package):
            return None
        run.add(f"{name[len(package) :]}:{frame.f_lineno}")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def sources(files: set[str]) -> dict[str, str]:
    """Hash these files of the package, all that they import, and this program: file -> hash.
    A figure counts as long as they are the same."""
    modules = [f"orchestrator.{file[:-3].replace('/', '.')}" for file in sorted(files)]
    imported = subprocess.run(
        [sys.executable, "-c", IMPORTED, *modules], cwd=TOP, check=True, capture_output=True
    ).stdout.decode()
    return {name: _hash(name) for name in [*imported.split(), str(Path(__file__).relative_to(TOP))]}


IMPORTED = """
import importlib, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
found = [m.__file__ for n, m in sorted(sys.modules.items()) if n.partition(".")[0] == "orchestrator"]
print(*[os.path.relpath(file) for file in found if file])
"""


def _hash(name: str) -> str:
    path = TOP / name
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.exists() else ""


class Kept:
    """The progress of all readers, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "progress.json"
        kept = json.loads(self._path.read_text()) if self._path.exists() else {}
        self.readers = {name: Progress(**kept.get("readers", {}).get(name, {})) for name in READERS}
        self._lines = {name: set(kept.get("lines", {}).get(name, ())) for name in READERS}
        for name, one in self.readers.items():
            changed = [file for file, before in one.sources.items() if _hash(file) != before]
            if changed or (one.parts and not one.sources):
                print(f"{name}: again from the start, changed: {' '.join(changed)}", flush=True)
                self.readers[name] = Progress(parts=one.parts, found=one.found)
                self._lines[name] = set()

    def take(self, name: str, done: Part) -> None:
        one = self.readers[name]
        one.processor_s += done.processor_s
        one.parts, one.inputs = one.parts + 1, one.inputs + done.inputs
        new_files = _files(done.lines) - _files(self._lines[name])
        self._lines[name] |= done.lines
        if new_files:
            one.sources = sources(_files(self._lines[name]))
        one.lines.append(len(self._lines[name]))
        if done.case is not None:
            one.found.append(str(keep(name, done.case, self.folder)))
        whole = {
            "readers": {name: asdict(one) for name, one in self.readers.items()},
            "lines": {name: sorted(lines) for name, lines in self._lines.items()},
        }
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(whole))
        new.replace(self._path)

    def print_table(self) -> None:
        print(f"{'reader':<12}{'minutes':>8}{'inputs':>10}{'lines':>7}{'of late':>9}  found")
        for name, one in self.readers.items():
            lines = one.lines[-1] if one.lines else 0
            late = lines - one.lines[-1 - len(one.lines) // 4] if one.lines else 0
            found = ", ".join(dict.fromkeys(one.found)) or "nothing"
            print(
                f"{name:<12}{one.processor_s / 60:>8.1f}{one.inputs:>10}{lines:>7}{late:>9}  {found}"
            )


def _files(lines: Iterable[str]) -> set[str]:
    return {line.partition(":")[0] for line in lines}


def fuzz_all(kept: Kept, names: list[str], minutes: float, processes: int, seed: int) -> None:
    """Give each reader its minutes of processor time, the one with the fewest first."""
    given = {name: kept.readers[name].parts for name in names}
    with _workers(processes) as pool:
        running: dict[Future[Part], str] = {}
        while True:
            short = [name for name in names if kept.readers[name].processor_s < 60 * minutes]
            busy = list(running.values())
            short.sort(key=lambda name: (busy.count(name), kept.readers[name].processor_s))
            for name in short[: processes - len(running)]:
                running[pool.submit(part, name, seed * 1_000_000 + given[name])] = name
                given[name] += 1
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                kept.take(running.pop(done), done.result())


@contextmanager
def _workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Start a pool whose temporary folders lie in one of this process, as a signal may come when a
    worker has just made its own. End the parts if the block ends by an exception."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(count, initializer=_begin, initargs=(folder,)) as pool,
    ):
        try:
            yield pool
        except BaseException:
            for worker in active_children():
                worker.terminate()
            raise


def _begin(folder: str) -> None:
    """Ignore Ctrl-C, which the parent gets, too. TERM raises what Hypothesis passes on."""
    tempfile.tempdir = folder
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"of {', '.join(READERS)}")
    parser.add_argument("--keep", type=Path, required=True, metavar="DIR")
    parser.add_argument("--minutes", type=float, default=10, help="of processor time, each")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    kept = Kept(args.keep)
    try:
        with exit_on(signal.SIGTERM):
            fuzz_all(kept, args.readers or list(READERS), args.minutes, args.processes, args.seed)
    except KeyboardInterrupt:
        print("the same command continues", file=sys.stderr)
    kept.print_table()
    return 1 if any(one.found for one in kept.readers.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
