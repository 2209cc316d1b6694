"""Both sides of the agent's contract: the real agent with real processes, and the simulated one (simulation/nodes.py).

A script is the same for both. Its steps are orders as the loop writes them, and sentences of `MISHAPS`, which say for each
side how the same thing comes about there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from agent_parts import STOP, Agent, Bench
from processes import processes_of
from until import until

from orchestrator.onnode.kernel.files import HERE
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.program import read
from orchestrator.onnode.kernel.settings import Settings
from orchestrator.onnode.kernel.settings_file import load
from orchestrator.simulation import nodes
from orchestrator.simulation.agent_parts import AgentPost
from orchestrator.simulation.engine import NEVER, Engine, Stuck
from orchestrator.simulation.machine import Machine, NodeCondition, NodePace
from orchestrator.simulation.node_run import Part, TrainingRun

IMAGE, OTHER_IMAGE = NodeCondition.image, f"sha256:{'7' * 64}"
PROFILE = """kind: tuning
name: contract
title: two knobs
source: this test
knobs:
  - {name: watchdog, kind: sysctl, key: kernel.nmi_watchdog, value: "0", need: required, purpose: noise}
  - {name: numa, kind: sysctl, key: kernel.numa_balancing, value: "0", need: optional, purpose: noise}
"""
HOST = {
    "proc/cmdline": "quiet\n",
    "proc/meminfo": "Buffers: 10 kB\nCached: 500 kB\nShmem: 100 kB\nSReclaimable: 40 kB\n",
    "proc/sys/kernel/nmi_watchdog": "1\n",
    "proc/sys/kernel/numa_balancing": "1\n",
    "proc/sys/vm/drop_caches": "0\n",
}
# An engine whose containers are processes of this host: below their mounts they see the folders themselves. Files in its store
# are what goes wrong; with `hold` it waits.
ENGINE = r"""#!/bin/bash
store=STORE
wait_for_store() { while [[ -e $store/hold ]]; do read -r -t 0.05 <> <(:); done; }
case $1 in
  image) cat "$store/image" ;;
  ps) wait_for_store ;;
  pull)
    wait_for_store
    [[ ! -e $store/broken ]] || { cat "$store/broken"; exit 1; }
    echo IMAGE >"$store/image"
    ;;
  run)
    [[ ! -e $store/broken ]] || { cat "$store/broken" >&2; exit 125; }
    wait_for_store
    while [[ $1 != -c ]]; do
      image=$1
      if [[ $1 == --mount ]]; then
        source=${2#*source=} target=${2#*target=}
        printf 's,%s\\b,%s,g\n' "${target%%,*}" "${source%%,*}" >>"$store/mounts"
      fi
      shift
    done
    [[ ! -e $store/moved || $image == IMAGE ]] || { echo "another image"; exit 125; }
    script='bash "/orch/script.$name"'
    edited="bash <(sed -u -f '$store/mounts' \"/orch/script.\$name\")"
    text=$(sed -f "$store/mounts" <<<"${2/"$script"/"$edited"}")
    shift 2
    exec bash -c "$text" "$@"
    ;;
esac
""".replace("IMAGE", IMAGE)


PY_SPY = """#!/bin/bash
echo 'Thread 1 (idle): "MainThread"'
echo '    all_reduce (torch/distributed/distributed_c10d.py:2501)'
"""


class Training(NamedTuple):
    """One training: as a script, and as the model's part of a run."""

    script: str
    part: Part
    deaf: bool = False
    """It does not heed TERM."""


def _lines(*texts: str) -> tuple[tuple[float, bytes], ...]:
    return tuple((0.1 * at, f"{text}\n".encode()) for at, text in enumerate(texts, 1))


_RUN_START = STOP.replace("run_stop", "run_start")
_ABORTED = STOP.replace("success", "aborted")
_RDMA, _SOCKET = (
    "host:1:2 [0] NCCL INFO Using network IB",
    "host:3:4 [1] NCCL INFO Using network Socket",
)
_MUCH = 3_000_000
TRAININGS = {
    "succeeds": Training(f"echo '{STOP}'", Part(_lines(STOP), 1.0)),
    "misses its target": Training(f"echo '{_ABORTED}'", Part(_lines(_ABORTED), 1.0)),
    "prints nothing": Training("exit 0", Part((), 1.0)),
    "exits with 7": Training("echo no; exit 7", Part(_lines("no"), 1.0, 7)),
    "is killed": Training("kill -9 $$", Part((), 1.0, 137)),
    "fails after run_stop": Training(f"echo '{STOP}'; exit 1", Part(_lines(STOP), 1.0, 1)),
    "prints too much": Training(
        f"head -c {_MUCH} /dev/zero | tr '\\0' x; echo; echo '{STOP}'",
        Part(((0.1, b"x" * _MUCH + b"\n"), (0.2, f"{STOP}\n".encode())), 1.0),
    ),
    "tells of its network": Training(
        f"echo '{_RDMA}'; echo '{_SOCKET}'; echo '{STOP}'", Part(_lines(_RDMA, _SOCKET, STOP), 1.0)
    ),
    "hangs": Training("echo up; sleep 1000", Part(_lines("up"), NEVER)),
    "hangs after run_start": Training(
        f"echo '{_RUN_START}'; echo up; sleep 1000", Part(_lines(_RUN_START, "up"))
    ),
    "hangs after run_stop": Training(
        f"echo '{STOP}'; echo up; sleep 1000", Part(_lines(STOP, "up"))
    ),
    "ignores TERM": Training(
        "trap '' TERM; echo up; while :; do read -r -t 0.05 <> <(:); done",
        Part(_lines("up")),
        deaf=True,
    ),
}


SITES: dict[str, dict[str, Any]] = {
    "plain": {},
    "checks": {"preflight": {"run": True, "skip": ["rdma", "clock"]}},
    "tuned": {"tunables": "apply", "clear_caches": True},
    "two nodes": {"network": {"rdma": "off"}},
    "container": {"container": {"engine": "docker", "pull": "missing"}},
    "without pull": {
        "container": {"engine": "docker", "pull": "never"},
        "preflight": {"run": True, "warn": ["image"]},
    },
}


class Benches:
    """One bench for each kind of site, made when the first script wants it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made, self._count = folder, dict[str, Bench](), 0

    def bench(self, site: str) -> Bench:
        """Return the bench for a site, with an empty set and a host and an engine in which nothing is wrong."""
        if site not in self._made:
            self._made[site] = _make(site, self._folder / site.replace(" ", "-"))
        made, self._count = self._made[site], self._count + 1
        for agent in made.agents:  # of a script that went wrong
            if agent.process.poll() is None:
                agent.process.kill()
                agent.process.wait()
        made.layout = Layout(made.folder / "sets" / f"set{self._count}")
        made.layout.root.mkdir(parents=True)
        made.layout.environment.write_text("")
        for file, text in HOST.items():
            (host_of(made) / file).parent.mkdir(parents=True, exist_ok=True)
            write_anew(host_of(made) / file, text)
        shutil.rmtree(host_of(made) / "state", ignore_errors=True)
        (made.folder.parent / "bin/flock").unlink(missing_ok=True)
        for path in store_of(made).iterdir():
            path.unlink()
        (store_of(made) / "image").write_text(f"{IMAGE}\n")
        return made

    def close(self) -> None:
        for made in self._made.values():
            made.close()


def host_of(made: Bench) -> Path:
    return made.folder.parent / "host"


def store_of(made: Bench) -> Path:
    return made.folder.parent / "store"


def write_anew(path: Path, text: str) -> None:
    """Write a file in place of whatever has its name."""
    path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
    path.write_text(text)


def _make(site: str, folder: Path) -> Bench:
    folder.mkdir()
    keys = dict(SITES[site])
    if site == "tuned":
        (folder / "contract.yaml").write_text(PROFILE)
        keys["tuning"] = {"profile": str(folder / "contract.yaml")}
    made = Bench(folder / "bench", **keys)
    # Limits that are waited for: what does not heed TERM is killed sooner, and so is what does not end.
    made.change(
        "agent/run.py",
        "OUTPUT_S, KILL_S, CLEAR_S = 5, 10,",
        "OUTPUT_S, KILL_S, CLEAR_S = 0.5, 0.2,",
    )
    made.change("agent/agent.py", "_STOP_S = 3", "_STOP_S = 0.2")
    # No limit on reading.
    made.change("agent/contents.py", "LIMIT_S = 8.0", "LIMIT_S = 1e6")
    made.change("agent/inside.py", "LIMIT_S = 12.0", "LIMIT_S = 1e6")
    made.change("agent/container.py", "_END_S = 5", "_END_S = 0.2")
    store_of(made).mkdir()
    if site == "two nodes":
        text = (made.bundle / "settings.sh").read_text()
        assert "\nNNODES=1\n" in text
        (made.bundle / "settings.sh").write_text(text.replace("\nNNODES=1\n", "\nNNODES=2\n"))
    program(folder / "bin/docker", ENGINE.replace("STORE", str(store_of(made))))
    program(folder / "bin/py-spy", PY_SPY)
    return made


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class Real:
    """A script's real side."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.environment = bench, dict[str, str]()
        self.host, self.store, self.bin = (
            host_of(bench),
            store_of(bench),
            bench.folder.parent / "bin",
        )
        self.agent: Agent

    def start(self) -> None:
        self.agent = self.bench.agent(
            **{
                "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
                "ORCH_HOST_NAME": "%n.cluster",
                "ORCH_TUNABLES_ROOT": str(self.host),
                "ORCH_TUNABLES_STATE": str(self.host / "state"),
                **self.environment,
            }
        )

    def train(self, training: Training) -> None:
        """Have the next run that begins be this training."""
        self.bench.plan(training.script)

    def wait(self, happens: Callable[[], bool]) -> None:
        until(happens)

    def settle(self) -> None:
        """Return when all orders are obeyed: a ping is answered at any time, but a second one not before they are."""
        for number in (901, 902):
            self.agent.say("ping", n=number)
            while ("pong", str(number)) not in {
                (word, fields[0]) for word, fields in self.agent.words
            }:
                self.agent.hear_more("pong")

    def signal(self, number: int) -> None:
        os.killpg(self.agent.process.pid, number)

    def end_place(self) -> None:
        """Kill all that is in the container, or what starts the runs where there is none."""
        pid = self.agent.process.pid
        if (self.bench.channels / self.agent.channel / "request").exists():
            found = processes_of(self.bin)
            inside = [one for one, words in found.items() if one != pid and "remover" not in words]
        else:
            inside = [
                int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            ][:1]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none sees another's end
            for one in inside:
                with suppress(ProcessLookupError):
                    os.kill(one, number)


@cache
def _settings(bundle: Path) -> Settings:
    return load(read(bundle).files, {"PATH": os.environ["PATH"], "NEXP": "2"})


class Orders:
    """The input of a simulated agent."""

    def __init__(self, agent: ModelAgent) -> None:
        self._agent = agent

    def write(self, line: bytes) -> None:
        try:
            order = json.loads(line)
        except ValueError:
            return  # the loop of a simulation gives objects, no lines
        agent = self._agent.model
        if isinstance(order, dict) and agent.process.alive:
            agent.process.after(0.0, lambda: agent.hear(order))

    def close(self) -> None:
        agent = self._agent.model
        agent.process.after(0.0, agent.end_input)


class ModelAgent(Agent):
    """A simulated agent, spoken to and read as the real ones are."""

    def __init__(
        self,
        bench: Bench,
        machine: Machine,
        environment: dict[str, str],
        seed: int,
        pace: NodePace,
    ) -> None:
        self.bench, self.name, self.words, self.writes = bench, machine.name, [], []
        self.engine = Engine(seed)
        self.training = TRAININGS["succeeds"]
        self._rest, self._heard, self._written = b"", 0, bytearray()
        own = {"ORCH_SET_DIR": str(bench.layout.root), "ORCH_JOB_ID": "7"}
        post = AgentPost(
            self.engine.process(f"agent of {self.name}", self.name),
            machine,
            HERE,
            _settings(bench.bundle),
            {**own, **environment},
            lambda line: self._written.extend(line + b"\n"),
            pace,
            lambda node, how: None,
        )
        self.model = nodes.Agent(post, self._part, [])
        self.input, self.process = Orders(self), SimpleNamespace(wait=lambda seconds: 0)

    def _part(self, run: TrainingRun) -> Part:
        run.deaf = self.training.deaf
        return self.training.part

    def _read(self) -> bytes:
        self.engine.run(lambda: bool(self._written) or not self.model.process.alive)
        piece = bytes(self._written)
        self._written.clear()
        return piece


class Model:
    """A script's simulated side."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, self.environment, self._seed = bench, dict[str, str](), seed
        self.machine, self.pace = Machine("n1"), NodePace()
        self.agent: ModelAgent

    def start(self) -> None:
        self.agent = ModelAgent(self.bench, self.machine, self.environment, self._seed, self.pace)

    def train(self, training: Training) -> None:
        self.agent.training = training

    def wait(self, happens: Callable[[], bool]) -> None:
        self.agent.engine.run(happens)

    def settle(self) -> None:
        """Give it half a minute to say what it should not."""
        engine = self.agent.engine
        late = engine.now + 30.0
        while engine.turn(late):
            pass

    def signal(self, number: int) -> None:
        process = self.agent.model.process
        if number == signal.SIGKILL:
            process.kill()
        elif number == signal.SIGSTOP:
            process.stop()
        elif number == signal.SIGCONT:
            process.resume()
        else:
            process.after(0.0, self.agent.model.terminate)

    def end_place(self) -> None:
        model = self.agent.model
        model.process.after(0.0, model.lose_container)


Side = Real | Model


def _knob(name: str, value: str) -> Callable[[Real], object]:
    """Return what has a setting of the host be `value`."""
    return lambda real: write_anew(real.host / f"proc/sys/kernel/{name}", f"{value}\n")


def _unwritable(file: str) -> Callable[[Real], object]:
    def act(real: Real) -> None:
        (real.host / file).unlink()
        # A real file of the kernel that nobody can write.
        (real.host / file).symlink_to("/proc/sys/kernel/ngroups_max")

    return act


def _store(name: str, text: str = "") -> Callable[[Real], object]:
    return lambda real: (real.store / name).write_text(f"{text}\n")


def _marker(side: Side, text: str) -> None:
    marker = side.bench.layout.root / "marker"
    marker.write_text("seen\n")
    side.environment |= {"ORCH_MARKER": str(marker), "ORCH_MARKER_TEXT": text}


def _slow_evidence(real: Real) -> None:
    """Have py-spy wait for the file `looked`."""
    for file in ("asked", "looked"):
        (real.host / file).unlink(missing_ok=True)
    wait = (
        f"cd {real.host} && : >asked && while [[ ! -e looked ]]; do read -r -t 0.05 <> <(:); done"
    )
    program(real.host / "bin/py-spy", f"{PY_SPY}{wait}\n")
    real.environment["PATH"] = os.pathsep.join(
        map(str, (real.host / "bin", real.bin, os.environ["PATH"]))
    )


def _kill_training(real: Real) -> None:
    for pid in processes_of(real.bench.code):
        with suppress(ProcessLookupError):  # it went with its parent
            os.kill(pid, signal.SIGKILL)


def _end_training(model: Model) -> None:
    if (run := model.agent.model.run) is not None:
        model.agent.model.process.after(0.0, lambda: run.ended(137))


def _same(
    act: Callable[[Side], object],
) -> tuple[Callable[[Real], object], Callable[[Model], object]]:
    return act, act


def _set(name: str, value: object) -> Callable[[Model], object]:
    return lambda model: model.machine.change(**{name: value})


def _nothing(model: Model) -> None:
    pass


WATCHDOG, FULL = "watchdog wanted 0, found 1", "no space left on device"
MISHAPS: dict[str, tuple[Callable[[Real], object], Callable[[Model], object]]] = {
    # before its start
    "the loop chooses": _same(lambda side: side.environment.update(ORCH_CHOOSE="1")),
    "a marker is on shared storage": _same(lambda side: _marker(side, "seen")),
    "its folder is a file": _same(
        lambda side: (side.bench.layout.nodes.mkdir(), side.bench.layout.node("n1").write_text(""))
    ),
    "it lacks the image": (lambda real: (real.store / "image").unlink(), _set("image", "")),
    "the tag of its image moves": (
        lambda real: (
            (real.store / "image").write_text(f"{OTHER_IMAGE}\n"),
            (real.store / "moved").touch(),
        ),
        _set("image", OTHER_IMAGE),
    ),
    "its engine is broken": (_store("broken", FULL), lambda model: _break_engine(model.machine)),
    "its engine takes long": (_store("hold"), _nothing),
    "it is hard to look into": (
        _slow_evidence,
        lambda model: setattr(model, "pace", NodePace(evidence=(4.0, 8.0))),
    ),
    "a setting cannot be set": (
        _unwritable("proc/sys/kernel/nmi_watchdog"),
        _set("untunable", WATCHDOG),
    ),
    # in the middle
    "its engine goes on": (lambda real: (real.store / "hold").unlink(), _nothing),
    "a setting is changed": (_knob("nmi_watchdog", "1"), _set("refuses", WATCHDOG)),
    "the setting is put right": (_knob("nmi_watchdog", "0"), _set("refuses", "")),
    "an optional setting is changed": (
        _knob("numa_balancing", "2"),
        lambda model: model.machine.change(
            facts={**model.machine.condition.facts, "knob.numa": "2"}
        ),
    ),
    "its caches stay": (
        lambda real: (
            (real.host / "proc/sys/vm/drop_caches").unlink(),
            (real.host / "proc/sys/vm/drop_caches").mkdir(),
        ),
        _set("keeps_caches", "device or resource busy"),
    ),
    "its settings cannot be put back": (
        lambda real: program(real.bin / "flock", "#!/bin/bash\nkill -KILL $$\n"),
        _set("unreverted", "its script was ended by signal 9"),
    ),
    "the log of 1.1 is on a full disk": _same(lambda side: _full(side.bench.layout)),
    "its training is killed": (_kill_training, _end_training),
    "its place ends": _same(lambda side: side.end_place()),
    "its input ends": _same(lambda side: side.agent.input.close()),
    "TERM": _same(lambda side: side.signal(signal.SIGTERM)),
    "KILL": _same(lambda side: side.signal(signal.SIGKILL)),
    "STOP": _same(lambda side: side.signal(signal.SIGSTOP)),
    "CONT": _same(lambda side: side.signal(signal.SIGCONT)),
    # what is waited for
    "all is obeyed": _same(lambda side: side.settle()),
    "it looks into 1.1": (lambda real: until((real.host / "asked").exists), _nothing),
    "it has looked": (lambda real: (real.host / "looked").touch(), _nothing),
}


def _break_engine(machine: Machine) -> None:
    machine.change(broken_container=FULL, failing={"pull": FULL})


def _full(layout: Layout) -> None:
    log = layout.node_log(1, 1, 0)
    log.parent.mkdir(parents=True)
    if os.getuid() != 0:
        pytest.skip("only root can make a device")
    os.mknod(log, 0o666 | stat.S_IFCHR, os.makedev(1, 7))


# ---- orders ----


def obey(side: Side, step: str) -> None:
    """Do one step of a script."""
    word, _, rest = step.partition(" ")
    agent = side.agent if step != "start" and step not in MISHAPS else None
    if step in MISHAPS:
        MISHAPS[step][isinstance(side, Model)](side)  # type: ignore[arg-type]
    elif step == "start":
        side.start()
    elif agent is None:
        raise AssertionError(step)
    elif rest == "is up":
        run, attempt = map(int, word.split("."))
        side.wait(lambda: b"up\n" in side.agent.log(run, attempt))
    elif word == "line":
        agent.input.write(rest.encode() + b"\n")
    elif word == "prepare":
        _prepare(side, rest)
    elif word in ("use", "pull"):
        agent.say(word, nodes=rest.split())
    elif word == "ping":
        agent.say(word, n=int(rest))
    else:
        ident, _, training = rest.partition(" ")
        if training:
            side.train(TRAININGS[training])
        agent.say(word, id=ident)


def _prepare(side: Side, rest: str) -> None:
    """`1.2`, `1.2 clear`, `1.2 for n2 n1`, `1.2 without a folder`"""
    ident, _, more = rest.partition(" ")
    run, attempt = map(int, ident.split("."))
    if more != "without a folder":
        side.bench.layout.attempt(run, attempt).mkdir(parents=True, exist_ok=True)
    order: dict[str, Any] = {"clear": more == "clear"}
    if more.startswith("for "):
        order["nodes"] = more.split()[1:]
    side.agent.prepare(run, attempt, **order)


# ---- words ----

DIFFERS: dict[str, dict[int, str]] = {
    "network": {0: "NETWORK"},
    "inside": {1: "", 2: "", 3: "", 4: ""},
    "host": {0: "NAME", 1: "ADDRESS"},
    "check": {2: "", 3: "", 4: ""},
    "checked": {0: "MS"},
    "prepared": {1: "MS", 2: "KIB", 3: "KIB"},
    "exit": {2: "MS", 3: "MS"},
    "pong": {2: "MS", 4: "MS"},
    "evidence": {1: "DOING"},
    "revert-failed": {0: "TEXT"},
}
"""Word -> the fields that differ between two nodes or two runs, and what stands for them in scripts: "" nothing at all."""
TEXTS = (
    (re.compile(r"^(its container ended: ).*"), r"\1WORDS"),
    (re.compile(r"^(tunables: |cannot drop caches: ).*"), r"\1TEXT"),
    (re.compile(r"^image \S+ (is not on this node);.*"), r"image IMAGE \1"),
    (re.compile(r"^cannot pull \S+: "), "cannot pull IMAGE: "),
    (re.compile(re.escape(IMAGE)), "IMAGE"),
)
"""Words of other programs, and names, in the middle of a text."""
ANY_TIME = ("pong", "check", "same", "facts+", "pulling", "note", "trouble", "inside", "checked")
"""What may come between any two words: answers to pings, rows of checks, continued facts, progress, words for people."""


def shown(word: str, fields: list[str], root: Path) -> str:
    """Return a word as scripts have it: '' is an empty field, and "-" is in no way different."""
    if word == "facts":
        return "facts FACTS"
    texts = (
        []
        if fields == [""]
        else [_plain(text, DIFFERS.get(word, {}).get(at)) for at, text in enumerate(fields)]
    )
    return " ".join(filter(None, [word, *texts])).replace(str(root), "SET")


def _plain(text: str, instead: str | None) -> str:
    if instead is not None and (text not in ("", "-") or not instead):
        return instead
    for pattern, plain in TEXTS:
        text = pattern.sub(plain, text)
    return text or "''"


class Words:
    """What an agent says, in order; what it may say at any time apart."""

    def __init__(self, side: Side) -> None:
        self._side, self._taken = side, set[int]()

    def next(self, wanted: str) -> str:
        """Return the next word, or, where `wanted` may come at any time, the next with the same first field."""
        agent, root = self._side.agent, self._side.bench.layout.root
        key = wanted.split(" ")[:2] if wanted.split(" ")[0] in ANY_TIME else None
        seen = 0
        while True:
            for at, (word, fields) in enumerate(agent.words[seen:], seen):
                first = DIFFERS.get(word, {}).get(0, fields[0])
                fits = [word, first] == key if key else word not in ANY_TIME
                if fits and at not in self._taken:
                    self._taken.add(at)
                    return shown(word, fields, root)
            seen = len(agent.words)
            agent.hear_more(wanted)

    def rest(self) -> list[str]:
        """Return the ordered words that nobody asked for, once it has ended."""
        agent, root = self._side.agent, self._side.bench.layout.root
        agent.end()
        left = [
            one
            for at, one in enumerate(agent.words)
            if at not in self._taken and one[0] not in ANY_TIME
        ]
        return [shown(word, fields, root) for word, fields in left]

    def checks(self) -> set[str]:
        """Return the checks that it has told of, if it came to their end."""
        words = self._side.agent.words
        ended = any(word == "checked" for word, _ in words)
        return {fields[0] for word, fields in words if word == "check" and ended}


def parsed(text: str) -> list[tuple[str, list[str]]]:
    """Return the steps of a script with the words that follow each: `STEP -> WORD; WORD`."""
    steps: list[tuple[str, list[str]]] = []
    for line in text.strip().splitlines():
        step, _, words = line.partition("->")
        if step.strip():
            steps.append((step.strip(), []))
        steps[-1][1].extend(word.strip() for word in words.split(";") if word.strip())
    return steps


def play(side: Side, script: list[tuple[str, list[str]]]) -> tuple[list[str], set[str]]:
    """Do the steps and return them with the words that came, up to the first that is another one, and the checks told of."""
    told, words = list[str](), Words(side)
    for step, expected in script:
        told.append(f"    {step}")
        with suppress(BrokenPipeError):  # it has ended, and hears no more orders
            obey(side, step)
        for wanted in expected:
            try:
                said = words.next(wanted)
            except (AssertionError, Stuck) as silent:
                said = f"nothing, where a word should come: {silent}"
            told.append(said)
            if said != wanted:
                return told, set()
    return told + words.rest(), words.checks()
