"""What can happen to a set. Each kind does one thing to a `Trial` at the moment it is called, or raises NothingToHit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trial import NothingToHit, Trial

Act = Callable[[Trial], object]
ANY = ("local", "docker", "podman")
SLURM = ("docker", "podman")


@dataclass(frozen=True)
class Kind:
    """`when`: before the set is submitted, while it is at work, or between two of its jobs."""

    name: str
    act: Act
    flavours: tuple[str, ...]
    when: str


KINDS: dict[str, Kind] = {}


def kind(name: str, flavours: tuple[str, ...] = ANY, when: str = "work") -> Callable[[Act], Act]:
    def keep(act: Act) -> Act:
        KINDS[name] = Kind(name, act, flavours, when)
        return act

    return keep


# ---- signals to what is at work -------------------------------------------------------------------


def _signalled(role: str, number: signal.Signals) -> Act:
    def act(trial: Trial) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(trial.one(role), number)

    return act


def _stopped(role: str) -> Act:
    def act(trial: Trial) -> None:
        pid = trial.one(role)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(trial.dice.uniform(0.3, 3))
            os.kill(pid, signal.SIGCONT)

    return act


for _role in ("loop", "agent", "training"):
    for _name, _number in (("kill9", signal.SIGKILL), ("term", signal.SIGTERM)):
        kind(f"{_name}_{_role}")(_signalled(_role, _number))
    kind(f"stop_{_role}")(_stopped(_role))
kind("kill9_warden", ("local",))(_signalled("warden", signal.SIGKILL))
kind("term_warden", ("local",))(_signalled("warden", signal.SIGTERM))


@kind("kill9_all_agents")
def _(trial: Trial) -> None:
    found = trial.processes("agent")
    if not found:
        raise NothingToHit
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@kind("kill9_everything")
def _(trial: Trial) -> None:
    trial.one("loop")
    for pid in trial.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# ---- what trainings do ----------------------------------------------------------------------------


def _training(fault: str) -> Act:
    def act(trial: Trial) -> None:
        untouched = [
            run for run in range(1, trial.runs + 1) if f"run={run}:" not in ",".join(trial.faults)
        ]
        run = trial.dice.choice(untouched or range(1, trial.runs + 1))
        node = trial.dice.randrange(trial.flavour.nodes)
        trial.faults.append(fault.format(where=f"run={run}:attempt=1", node=node))

    return act


for _name, _fault in {
    "training_dies": "die:{where}:node={node}",
    "training_dies_everywhere": "die:{where}",
    "training_dies_at_start": "die:{where}:node={node}:at=init",
    "training_is_killed": "kill:{where}:node={node}",
    "training_hangs": "hang:{where}",
    "training_hangs_deaf": "hang:{where}:node={node}:deaf",
    "training_is_slow": "slow:{where}:ms=20",
    "training_exits_badly": "late-exit:{where}:node={node}",
    "training_leaks": "leak:{where}:node={node}:seconds=20",
    "training_leaks_a_session": "leak:{where}:node={node}:seconds=20:session",
}.items():
    kind(_name, when="before")(_training(_fault))


# ---- commands of people ---------------------------------------------------------------------------


@kind("cancel")
def _(trial: Trial) -> None:
    trial.command("cancel", str(trial.set), codes=(0, 5))


@kind("cancel_twice_at_once")
def _(trial: Trial) -> None:
    both = [trial.start_command("cancel", str(trial.set)) for _ in range(2)]
    _done(trial, both, (0, 5))


@kind("resumes_at_once", when="between")
def _(trial: Trial) -> None:
    _done(trial, [trial.start_command("resume", str(trial.set)) for _ in range(3)], (0, 5))


@kind("resume_while_it_works")
def _(trial: Trial) -> None:
    trial.command("resume", str(trial.set), codes=(0, 5))


@kind("kill_resume", when="between")
def _(trial: Trial) -> None:
    process = trial.start_command("resume", str(trial.set))
    time.sleep(trial.dice.uniform(0.1, 1.0))
    process.kill()
    process.communicate()


@kind("kill_cancel")
def _(trial: Trial) -> None:
    process = trial.start_command("cancel", str(trial.set))
    time.sleep(trial.dice.uniform(0.1, 0.8))
    process.kill()
    process.communicate()


@kind("second_loop", ("local",))
def _(trial: Trial) -> None:
    """Somebody starts the bundle by hand for the set that is at work."""
    trial.one("loop")
    own = {
        "ORCH_SET_DIR": str(trial.set),
        "ORCH_JOB_ID": "",
        "ORCH_JOB_NAME": f"orch-{trial.set.name}",
    }
    process = subprocess.Popen(
        ["bash", str(trial.set / "bundle/run_with_docker.sh")],
        env={**trial.env, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    threading.Thread(
        target=process.wait, daemon=True
    ).start()  # nobody else takes it off the process table


def _done(trial: Trial, processes: list[subprocess.Popen[str]], codes: tuple[int, ...]) -> None:
    for process in processes:
        out, err = process.communicate(timeout=120)
        if process.returncode not in codes or "Traceback" in out + err:
            trial.said.append(f"{process.args!r:.80}: exit {process.returncode}: {err[-200:]}")


# ---- the set's folder -----------------------------------------------------------------------------


def _comes_again(trial: Trial) -> None:
    """What only a job makes anew is left alone in a set that is complete; `status` and `score` go by the attempts."""
    if trial.complete:
        raise NothingToHit


def _damaged(pattern: str) -> Act:
    def act(trial: Trial) -> str:
        found = sorted(path for path in trial.set.glob(pattern) if path.is_file())
        if not found:
            raise NothingToHit
        if pattern == "runs/*/state.json":
            _comes_again(trial)
        path, way = (
            trial.dice.choice(found),
            trial.dice.choice(("empty", "half", "junk", "gone", "deep")),
        )
        text = path.read_bytes()
        trial.damaged = True
        if way == "gone":
            path.unlink()
        else:
            words = {
                "empty": b"",
                "half": text[: len(text) // 2],
                "junk": os.urandom(200),
                "deep": b"[" * 100_000,
            }
            path.write_bytes(words[way])
        return f"{path.relative_to(trial.set)} {way}"

    return act


for _name, _pattern in {
    "damage_run_state": "runs/*/state.json",
    "damage_job": "jobs/*.json",
    "damage_submission": "submissions/*.json",
    "damage_events": "events-*.tsv",
    "damage_environment": "environment.sh",
    "damage_node_record": "runs/*/attempt_*/node_*.json",
}.items():
    kind(_name, when="between")(_damaged(_pattern))


@kind("damage_lock")
def _(trial: Trial) -> str:
    """Of a loop that was killed. Whoever it named is unknown then, and counts as gone after 90 seconds of silence."""
    KINDS["kill9_everything"].act(trial)
    told = str(_damaged("loop.lock")(trial))
    for lock in trial.set.glob("loop.lock"):
        os.utime(lock, (lock.stat().st_mtime - 100,) * 2)
    return told


@kind("lose_link", when="between")
def _(trial: Trial) -> None:
    _comes_again(trial)
    found = sorted(trial.set.glob("results/*"))
    if not found:
        raise NothingToHit
    trial.dice.choice(found).unlink()


@kind("lock_removed")
def _(trial: Trial) -> None:
    lock = trial.set / "loop.lock"
    if not lock.exists():
        raise NothingToHit
    lock.unlink()


@kind("folder_away", ("local",))
def _(trial: Trial) -> None:
    """The storage is gone for a while."""
    trial.one("loop")
    away = trial.set.with_name(f"{trial.set.name}.away")
    trial.set.rename(away)
    time.sleep(trial.dice.uniform(0.2, 2))
    if trial.set.exists():  # somebody made it anew: what is in it must not be lost with it
        trial.said.append(
            f"made anew while it was away: {[path.name for path in trial.set.rglob('*')][:5]}"
        )
        trial.set.rename(trial.set.with_name(f"{trial.set.name}.made"))
    away.rename(trial.set)


@kind("immutable_for_a_while", ANY)
def _(trial: Trial) -> None:
    """A file system that has turned read-only: nothing can be made or renamed in the folders of the runs."""
    places = [path for path in (trial.set, *trial.set.glob("runs/*")) if path.is_dir()]
    with _immutable(places):
        time.sleep(trial.dice.uniform(0.2, 2))


@contextlib.contextmanager
def _immutable(places: list[Path]) -> Iterator[None]:
    words = [os.fspath(place) for place in places]
    if subprocess.run(["chattr", "+i", *words], capture_output=True).returncode != 0:
        subprocess.run(["chattr", "-i", *words], capture_output=True)
        raise NothingToHit
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", *words], capture_output=True, check=True)


# ---- fences ---------------------------------------------------------------------------------------


@kind("zombie_loop", ("local",))
def _(trial: Trial) -> None:
    """A loop that was held up while its job was given up comes back beside its successor."""
    pid = trial.one("loop")
    os.kill(pid, signal.SIGSTOP)
    for other in trial.processes():
        if other != pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(other, signal.SIGKILL)
    time.sleep(0.2)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


# ---- storage --------------------------------------------------------------------------------------


@kind("disk_full", ("local",), when="before")
def _(trial: Trial) -> None:
    """The log directory is a small file system that somebody fills, in the middle of the runs, and empties again."""
    place = trial.root / "results"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], capture_output=True
    )
    if done.returncode != 0:
        raise NothingToHit
    trial.at_end.append(lambda: subprocess.run(["umount", "--lazy", place], check=False))
    begin, length = trial.dice.uniform(1, 5), trial.dice.uniform(0.3, 3)

    def fill() -> None:
        trial.wait(lambda: trial.set != Path())
        time.sleep(begin)
        with contextlib.suppress(OSError), open(place / "somebody's", "wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass
        time.sleep(length)
        with contextlib.suppress(OSError):
            os.unlink(place / "somebody's")

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    trial.undo.append(thread.join)


@kind("declaration_gone", when="between")
def _(trial: Trial) -> str:
    """set.json is lost or emptied: it is restored, or the set refuses to go on; never another root seed."""
    path = trial.set / "set.json"
    text = path.read_bytes()
    way = trial.dice.choice(("gone", "empty"))
    if way == "gone":
        path.unlink()
    else:
        path.write_bytes(b"")
    trial.command("resume", str(trial.set), codes=(0, 3, 4, 5))

    def back() -> None:
        trial.wait(lambda: not trial.alive(), 60)
        if not path.exists() or not path.read_bytes():
            path.write_bytes(text)

    trial.undo.append(back)
    trial.damaged = True
    return way


@kind("planted_files", when="between")
def _(trial: Trial) -> str:
    """A colleague's accidents: a FIFO, a folder, a link to /dev/zero and an endless one where files are looked for."""
    names = (
        "jobs/x.json",
        "submissions/junk.json",
        "events-1.tsv",
        "nodes/x",
        "runs/99",
        "results/result_9.txt",
    )
    path = trial.set / trial.dice.choice(names)
    if os.path.lexists(path):
        raise NothingToHit
    way = trial.dice.choice(("fifo", "folder", "zero", "loop"))
    path.parent.mkdir(exist_ok=True)
    if way == "fifo":
        os.mkfifo(path)
    elif way == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if way == "zero" else path.name)
    trial.damaged = True
    trial.undo.append(lambda: path.rmdir() if way == "folder" else path.unlink(missing_ok=True))
    return f"{way} {path.relative_to(trial.set)}"
