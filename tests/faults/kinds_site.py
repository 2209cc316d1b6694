"""What sites, people and networks do to a set: clocks that step, a private /tmp, other users and clusters, cut connections."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

from kinds import ANY, SLURM, kind
from ports import free_port
from ssh_server import SSHD, Cut, serving
from trial import TOP, NothingToHit, Trial

NOBODY = 65534
REFUSED = (2, 3, 4, 5)
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
STEPS_S = (3600, -3600, 40_000, -40_000, 30, -30, 315_360_000)
# Files keep the clock of their storage. time.sleep() of Python 3.11 is an absolute clock_nanosleep(), which libfaketime 0.9.10 breaks.
FAKED = """if [[ ${{4:-}} == -c && " ${{*: -2:1}} " == " loop " ]]; then
  echo $$ >>{clock}.pids
  export LD_PRELOAD={library} FAKETIME_TIMESTAMP_FILE={clock} FAKETIME_NO_CACHE=1
  export FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1 FAKE_UTIME=1
  exec python3 "${{@:1:3}}" -c 'import select, sys, time
time.sleep = lambda seconds: select.select([], [], [], seconds) and None
loader, *sys.argv[1:] = sys.argv[1:]
exec(loader)' "${{@:5}}"
fi
unset LD_PRELOAD
"""
PRIVATE_TMP = """if [[ " $* " == *"/program/"* && -z ${OWN_TMP:-} ]]; then
  OWN_TMP=1 exec unshare --mount --propagation=private bash -c 'mount -t tmpfs none /tmp && exec "$@"' - "$0" "$@"
fi
"""


def remove_shared_clocks(clock: Path) -> None:
    """Remove the shared memory of libfaketime, named by its process, which a killed loop leaves."""
    pids = clock.with_name(f"{clock.name}.pids")
    for pid in pids.read_text().split() if pids.exists() else ():
        for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            Path("/dev/shm", name).unlink(missing_ok=True)


@kind("clock_steps", when="before")
def _(trial: Trial) -> str:
    """The clock of the batch host jumps twice; those of the nodes and of the storage do not."""
    if not FAKETIME:
        raise NothingToHit
    clock = trial.root / "clock"
    clock.write_text("+0\n")
    trial.wrap_python(FAKED.format(library=FAKETIME[0], clock=clock))
    trial.at_end.append(lambda: remove_shared_clocks(clock))
    steps, begin = trial.dice.sample(STEPS_S, 2), trial.dice.uniform(3, 12)

    def step() -> None:
        trial.wait(lambda: trial.set != Path())
        for seconds in (*steps, 0):
            time.sleep(begin)
            clock.write_text(f"{seconds:+d}\n")

    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    trial.undo.append(thread.join)
    return f"{steps} s"


@kind("private_tmp", when="before")
def _(trial: Trial) -> None:
    """Batch host and nodes have a /tmp of their own each, as job_container/tmpfs gives; the engine has another one."""
    tried = subprocess.run(
        ["unshare", "--mount", "--propagation=private", "true"], capture_output=True
    )
    if tried.returncode != 0:
        raise NothingToHit
    trial.wrap_python(PRIVATE_TMP)
    channels = trial.root / "channels"
    channels.mkdir()
    trial.change_site(
        lambda text: text.replace("container: {", f"container: {{channel_dir: {channels}, ", 1)
    )


# ---- others ---------------------------------------------------------------------------------------


def _as_nobody(trial: Trial, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    who = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *argv]
    return subprocess.run(
        who,
        env={**trial.env, "HOME": "/nonexistent", **env},
        cwd="/",
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )


def _refused(
    trial: Trial, what: str, answer: subprocess.CompletedProcess[str], codes: tuple[int, ...]
) -> None:
    said = answer.stdout + answer.stderr
    if answer.returncode not in codes or "Traceback" in said:
        trial.said.append(f"{what}: exit {answer.returncode}: {said[-300:].strip()}")


@kind("other_user")
def _(trial: Trial) -> str:
    """A second user of the machine, without rights in the set's folder, looks at it, resumes, cancels and starts its loop."""
    if os.geteuid() != 0:
        raise NothingToHit
    for folder in (trial.root.parent, trial.root):
        folder.chmod(0o755)
    path = os.pathsep.join((str(TOP), sysconfig.get_path("purelib")))
    what = trial.dice.choice(
        ("status", "explain", "resume", "cancel", "resume --others", "cancel --others", "loop")
    )
    if what == "loop":
        own = {
            "ORCH_SET_DIR": str(trial.set),
            "ORCH_JOB_ID": "",
            "ORCH_JOB_NAME": f"orch-{trial.set.name}",
        }
        answer = _as_nobody(trial, "bash", str(trial.set / "bundle/run_with_docker.sh"), **own)
        _refused(trial, "another user's loop", answer, tuple(range(1, 126)))
    else:
        # The interpreter of a virtual environment may lie where only its owner can read.
        python = (
            sys.executable
            if _as_nobody(trial, sys.executable, "-V").returncode == 0
            else "/usr/bin/python3"
        )
        answer = _as_nobody(
            trial, python, "-m", "orchestrator", *what.split(), str(trial.set), PYTHONPATH=path
        )
        _refused(
            trial,
            f"another user's {what}",
            answer,
            (0, 4) if what in ("status", "explain") else REFUSED,
        )
    return what


@kind("other_cluster", SLURM)
def _(trial: Trial) -> str:
    """Somebody on a second cluster, with its own controller and the same storage, resumes and cancels the set."""
    job = trial.job()
    if not job or not trial.alive():
        raise NothingToHit
    lab, place, port = Path(trial.env["ORCHESTRATOR_LAB"]), trial.root / "beta", free_port()
    (place / "state").mkdir(parents=True)
    text = (lab / "slurm/slurm.conf").read_text()
    for key, value in {
        "ClusterName": "beta",
        "SlurmctldPort": str(port),
        "StateSaveLocation": place / "state",
        "SlurmctldPidFile": place / "pid",
        "SlurmctldLogFile": place / "log",
        "JobCompLoc": place / "jobs",
    }.items():
        text = re.sub(rf"(?m)^{key}=.*$", f"{key}={value}", text)
    (place / "slurm.conf").write_text(
        re.sub(r"Port=\[\d+-\d+\]", f"Port={port}", text)
    )  # nodes that do not answer
    for name in ("gres.conf", "cgroup.conf"):
        (place / name).write_text((lab / "slurm" / name).read_text())
    env = {**trial.env, "SLURM_CONF": str(place / "slurm.conf")}
    controller = subprocess.Popen(
        ["slurmctld", "-D", "-i", "-f", place / "slurm.conf"],
        env={**env, "PATH": f"{env['PATH']}:/usr/sbin"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:

        def up() -> bool:
            ping = subprocess.run(["scontrol", "ping"], env=env, capture_output=True)
            return b"is UP" in ping.stdout

        if not trial.wait(up, 20):
            raise NothingToHit
        what = trial.dice.choice(("resume", "cancel"))
        argv = [sys.executable, "-m", "orchestrator", what, str(trial.set)]
        answer = subprocess.run(
            argv,
            env=env,
            cwd=trial.root,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
        )
        # The job may have ended meanwhile; then its set is anybody's who can read it, also on another cluster.
        if trial.alive() and trial.job() == job:
            _refused(trial, f"{what} on another cluster", answer, REFUSED)
        queue = subprocess.run(
            ["squeue", "--noheader"], env=env, text=True, capture_output=True
        ).stdout
        subprocess.run(["scancel", "--me"], env=env, capture_output=True)
        return f"{what}{', which took a job' if queue.strip() else ''}"
    finally:
        controller.terminate()
        controller.wait(30)


# ---- connections ----------------------------------------------------------------------------------


@kind("ssh_cut", ANY)
def _(trial: Trial) -> str:
    """Connections of `tune` and `preflight` to two hosts end after some bytes; what they changed can be put back."""
    if SSHD is None:
        raise NothingToHit
    place = trial.root / f"ssh-{len(list(trial.root.glob('ssh-*')))}"
    place.mkdir()
    bytes_ = trial.dice.choice((trial.dice.randrange(4000), trial.dice.randrange(60_000)))
    what = trial.dice.choice(("tune apply", "tune status", "tune revert", "preflight"))
    with serving(place, ["127.0.0.2", "127.0.0.3"]) as server:
        for address in server.addresses:
            knob = place / "host" / address / "proc/sys/kernel/randomize_va_space"
            knob.parent.mkdir(parents=True)
            knob.write_text("2\n")
        before = {path: path.read_bytes() for path in (place / "host").rglob("*") if path.is_file()}
        env = {"ORCH_TUNABLES_ROOT": f"{place}/host/%a", "ORCH_TUNABLES_STATE": f"{place}/state/%a"}

        def ask(words: str, ports: dict[str, int], *more: str) -> subprocess.CompletedProcess[str]:
            nodes = ",".join(
                f"n{address[-1]}=ssh://root@{address}:{port}" for address, port in ports.items()
            )
            argv = [sys.executable, "-m", "orchestrator", *words.split(), *more, "--nodes", nodes]
            argv += ["--ssh-config", str(server.config)]
            return subprocess.run(
                argv,
                env={**trial.env, **env},
                cwd=trial.root,
                text=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=120,
            )

        whole = dict.fromkeys(server.addresses, server.port)
        if what == "tune revert":
            ask("tune apply", whole)
        with Cut(server, server.addresses[0], bytes_) as cut:
            words = ("--via", "ssh") if what == "preflight" else ()
            system = (str(trial.root / "faulty.yaml"), "builtin") if what == "preflight" else ()
            answer = ask(what, {**whole, server.addresses[0]: cut.port}, *system, *words)
        _refused(trial, f"{what} cut after {bytes_} bytes", answer, (0, 1, 3, 4))
        answer = ask("tune revert", whole)
        _refused(trial, "tune revert after a cut", answer, (0,))
        after = {path: path.read_bytes() for path in (place / "host").rglob("*") if path.is_file()}
        if after != before or any((place / "state").glob("*")):
            trial.said.append(f"{what} cut after {bytes_} bytes: the host is not as before")
    return f"{what} after {bytes_} bytes"
