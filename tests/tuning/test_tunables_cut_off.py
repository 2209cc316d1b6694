"""The script when its programs are killed: nothing stays changed, and nothing is put back twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tuning_parts import Host, journal_names, watchdogs
from until import until

from orchestrator.tuning.profile import HostSetting, TuningProfile, profile_script
from orchestrator.tuning.rows import is_complete

NMI, ASLR, BALANCING = (
    f"proc/sys/kernel/{name}" for name in ("nmi_watchdog", "randomize_va_space", "numa_balancing")
)
KILLED = "kill -KILL $$"


def real(name: str) -> str:
    return f'exec {shutil.which(name)} "$@"'


def under(switch: Path, fault: str, name: str) -> str:
    """A program that has a fault while the file `switch` exists, and is the real one otherwise."""
    return f"[[ ! -e {switch} ]] || {{ {fault}; }}\n{real(name)}"


@pytest.mark.parametrize("program", ["flock", "mv", "rm", "rmdir"])
def test_term_to_every_process_ends_no_program_of_a_revert(
    host: Host, tmp_path: Path, program: str
) -> None:
    switch = tmp_path / "switch"
    host.tool(program, under(switch, "kill -TERM $$; kill -INT $$; kill -HUP $$", program))
    host.rows("apply", "14-lab1")
    switch.touch()
    reply = host.run("revert", "14-lab1")
    assert reply.returncode == 0 and is_complete(reply.stdout.splitlines()), reply.stderr
    assert f"{program} " in " ".join(host.calls()) and host.is_as_before


def test_term_ends_no_program_of_an_apply(host: Host) -> None:
    for program in ("flock", "sync"):
        host.tool(program, f"kill -TERM $$\n{real(program)}")
    reply = host.run("apply", "14-lab1")
    assert reply.returncode == 0 and is_complete(reply.stdout.splitlines()), reply.stderr
    host.revert("14-lab1")


def test_a_flock_that_is_killed_is_no_lock_that_is_held(host: Host, tmp_path: Path) -> None:
    host.rows("apply", "14-lab1")
    once, always = tmp_path / "once", tmp_path / "always"
    host.tool("flock", under(once, f"rm {once}; {KILLED}", "flock"))
    once.touch()
    assert is_complete(host.run("revert", "14-lab1").stdout.splitlines()) and host.is_as_before

    host.tool("flock", real("flock"))
    host.rows("apply", "14-lab1")
    host.tool("flock", under(always, KILLED, "flock"))
    always.touch()
    reply = host.run("revert", "14-lab1")
    assert (reply.returncode, reply.stdout) == (3, "")
    assert reply.stderr.splitlines()[-1] == "runtime_tunables.sh: flock was ended by signal 9"
    assert host.read(NMI) == "0"
    always.unlink()
    host.revert("14-lab1")


def test_a_revert_that_cannot_put_everything_back_is_not_complete(host: Host) -> None:
    host.rows("apply", "one")
    host.rows("apply", "two")
    assert is_complete(host.run("revert", "one").stdout.splitlines()), (
        "the values are kept for the other owner"
    )
    (host.root / NMI).unlink()
    (host.root / NMI).mkdir()
    reply = host.run("revert", "two")
    assert reply.returncode == 1 and not is_complete(reply.stdout.splitlines())
    (host.root / NMI).rmdir()
    (host.root / NMI).write_text("0\n")
    assert is_complete(host.run("revert-all").stdout.splitlines()) and host.is_as_before


# ---- a revert that was cut off at its end


def set_by_operator(host: Host) -> None:
    (host.root / BALANCING).write_text("0\n")
    (host.root / ASLR).write_text("1\n")


def values_of_operator(host: Host) -> bool:
    return (host.read(BALANCING), host.read(ASLR)) == ("0", "1")


@pytest.mark.parametrize("fault", ["kill -TERM $$; exit", KILLED])
def test_what_an_operator_sets_after_a_cut_off_revert_stays(host: Host, fault: str) -> None:
    """Every rm dies. The values are back, and the next job ignores the rest of the state."""
    host.rows("apply", "14-lab1")
    host.tool("rm", fault)
    host.run("revert", "14-lab1")
    set_by_operator(host)
    host.tool("rm", real("rm"))
    host.rows("apply", "15-lab1")
    host.rows("revert", "15-lab1")
    assert values_of_operator(host)
    assert not list(host.state.parent.glob("state*")), (
        "the next revert removes what the first one left"
    )


def test_the_watchdog_completes_a_revert_that_cannot_forget(host: Host, tmp_path: Path) -> None:
    """The folder has a file of another program, so it cannot be moved, and every rm is killed."""
    switch = tmp_path / "switch"
    host.tool("rm", under(switch, KILLED, "rm"))
    host.state.mkdir()
    (host.state / "precious").write_text("mine")
    host.rows("apply", "14-lab1")
    until(lambda: watchdogs(host.state))
    switch.touch()
    reply = host.run("revert", "14-lab1")
    assert reply.returncode == 3 and not is_complete(reply.stdout.splitlines())
    assert watchdogs(host.state) and (host.state / "journal").exists()
    (host.state / "owners/14-lab1").unlink()  # the agent that waits for the revert ends
    switch.unlink()
    until(lambda: not watchdogs(host.state))
    assert [path.name for path in host.state.iterdir()] == ["precious"]
    shutil.rmtree(host.state)
    assert host.is_as_before


def test_a_journal_whose_values_all_hold_is_not_the_next_job_s(host: Host, tmp_path: Path) -> None:
    host.rows("apply", "one")
    journal = (host.state / "journal").read_text()
    host.rows("revert", "one")
    host.state.mkdir()
    (host.state / "journal").write_text(journal)
    host.script = tmp_path / "other.sh"
    knob = HostSetting("nmi_watchdog", "file", True, f"/{NMI}", "0", True, True, "for a test", "")
    host.script.write_bytes(profile_script(TuningProfile("other", "one knob", (knob,), ())))
    host.rows("apply", "two")
    assert journal_names(host) == ["nmi_watchdog"]
    set_by_operator(host)
    host.rows("revert", "two")
    assert host.read(NMI) == "1" and values_of_operator(host)


# ---- the watchdog


def test_a_watchdog_whose_flock_dies_tries_again(
    host: Host, tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    switch = tmp_path / "switch"
    host.tool("flock", under(switch, KILLED, "flock"))
    host.rows("apply", "job", ORCH_OWNER_PID=str(sleeper.pid))
    until(lambda: host.status().watchdog)
    switch.touch()
    called = len(host.calls())
    sleeper.kill()
    sleeper.wait()
    until(lambda: len(host.calls()) > called + 3)
    switch.unlink()
    until(lambda: host.is_as_before and not watchdogs(host.state))


SYSTEMD_RUN = """
import os, re, subprocess, sys
VARIABLE = r"\\$(?:\\$|[A-Za-z_]\\w*|\\{[^{}]*\\})"
words = [one for one in sys.argv[1:] if not one.startswith("--")]
words = [re.sub(VARIABLE, lambda found: "$" if found[0] == "$$" else "", one) for one in words]
kept = {name: os.environ[name] for name in ("PATH",)}
subprocess.Popen(words, env=kept, start_new_session=True, stdin=0, stdout=1, stderr=2)
"""
"""As systemd does, it starts a service in an environment of its own, with the variables in its command replaced."""


def test_a_watchdog_that_systemd_starts(
    host: Host, tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "systemd-run.py").write_text(SYSTEMD_RUN)
    host.tool("systemd-run", f'exec {sys.executable} {tmp_path}/systemd-run.py "$@"')
    (host.root / "run/systemd/system").mkdir(parents=True)
    host.rows("apply", "job", ORCH_OWNER_PID=str(sleeper.pid))
    until(lambda: host.status().watchdog)
    assert any(call.startswith("systemd-run --quiet") for call in host.calls())
    sleeper.kill()
    sleeper.wait()
    until(lambda: host.is_as_before and not watchdogs(host.state))


def test_a_watchdog_does_not_bring_back_what_a_revert_has_just_removed(host: Host) -> None:
    """The revert ends while the watchdog is about to take the lock."""
    host.state.mkdir()
    (host.state / "owners").mkdir()
    functions, call, _ = host.script.read_text().rpartition('tune_main "$@"')
    assert call
    host.script.write_text(
        functions + 'command() { rm -r "$TUNE_STATE"; builtin command "$@"; }\n'
        "orchestrator_tunables_watchdog; declare -p tune_lock\n"
    )
    done = host.run()
    assert "tune_lock: not found" in done.stderr, "no lock was taken"
    assert not host.state.exists()


def test_a_watchdog_that_ignores_term_ends_with_the_revert(host: Host) -> None:
    """It is started by a process that ignores the signals of a job's end, and inherits that."""
    host.rows("apply", "job", ORCH_LEASE_S="3600")
    until(lambda: host.status().watchdog)
    [watchdog] = watchdogs(host.state)
    status = Path(f"/proc/{watchdog}/status").read_text()
    ignored = status.partition("SigIgn:")[2].split()[0]
    assert int(ignored, 16) & 1 << 14, "TERM"
    os.kill(watchdog, 15)
    host.rows("revert", "job")
    until(lambda: not watchdogs(host.state))
    assert host.is_as_before
