"""`orchestrator tune` on this host and on hosts behind a real sshd; each host is a folder."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import outputs
import pytest
from command_line import call, program
from processes import captured
from ssh_server import SSHD, Cut, SshServer, serving
from tuning_parts import STUBBORN, TOP, Host, fill, snapshot

from orchestrator.errors import UsageError
from orchestrator.nodes.transport import ThisHost
from orchestrator.tuning.hosts import Root, compact, request, tune_hosts
from orchestrator.tuning.profile import load_profile, profile_script

SECRET = "correct horse; touch {}"


def tune(
    env: dict[str, str], *arguments: str, fds: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Call `orchestrator tune`; with descriptors that it inherits, as a process of its own."""
    if not fds:
        return call(["tune", *arguments], env)
    outer = {name: text for name, text in os.environ.items() if not name.startswith("SLURM_")}
    env = outer | {"PYTHONPATH": str(TOP)} | env
    return program(["tune", *arguments], env, descriptors=fds)


def test_plan_apply_verify_revert_here(host: Host) -> None:
    env = host.env()
    planned = outputs.checked(tune(env, "plan", "--json").stdout)
    assert planned["profile"] == "recommended" and planned["nodes"][0]["ok"]
    assert {knob["knob"]: knob["root"] for knob in planned["knobs"]}["nmi_watchdog"] is True
    assert all(knob["purpose"] and knob["source"] for knob in planned["knobs"])
    assert tune(env, "verify").returncode == 1
    applied = tune(env, "apply")
    assert applied.returncode == 0 and "powersave,schedutil" in applied.stdout
    assert tune(env, "verify").returncode == 0
    status = outputs.checked(tune(env, "status", "--json").stdout)["nodes"][0]["status"]
    assert [owner["name"] for owner in status["owners"]] == ["tune"]
    assert len(status["remembered"]) == 5 + 2 * 4
    assert tune(env, "revert").returncode == 0
    assert host.is_as_before
    assert "nothing to put back" in tune(env, "revert").stdout


def test_the_profile_of_the_site_is_the_one_of_its_jobs(host: Host, tmp_path: Path) -> None:
    mine, site = tmp_path / "mine.yaml", tmp_path / "site.yaml"
    mine.write_text("kind: tuning\nname: mine\ntitle: t\nsource: s\nextends: [host_checks]\n")
    text = f"log_dir: {tmp_path}\nscheduler: local\ntuning: {{profile: {mine}}}\n"
    site.write_text(text)

    def profile(*arguments: str) -> str:
        answer = tune(host.env(), *arguments, "--site", str(site), "--json")
        assert ("tunables: off" in answer.stderr) is off, answer.stderr
        return str(outputs.checked(answer.stdout)["profile"])

    off = False
    assert profile("plan") == profile("verify", "--workload", "builtin") == "mine"
    assert profile("plan", "--profile", "published") == "published"
    off = True
    site.write_text(f"{text}tunables: 'off'\n")
    assert profile("plan") == "mine"
    off = False
    site.write_text("spares: lots\n")
    assert tune(host.env(), "plan", "--site", str(site)).returncode == 2
    assert tune(host.env(), "revert", "--site", str(site)).returncode == 0, "it needs no profile"


def test_what_does_not_hold_is_in_the_exit_code(host: Host) -> None:
    path = host.root / "proc/sys/kernel/nmi_watchdog"
    path.unlink()
    path.symlink_to(STUBBORN)
    answer = tune(host.env(), "apply", "--json")
    assert answer.returncode == 1
    rows = {row["knob"]: row for row in outputs.checked(answer.stdout)["nodes"][0]["rows"]}
    assert rows["nmi_watchdog"]["result"] == "failed" and rows["thp_enabled"]["result"] == "ok"


def test_status_shows_until_when_an_owner_holds(host: Host) -> None:
    env = host.env()
    assert tune(env, "apply").returncode == 0
    assert re.search(r"owner +tune +alive +until `tune revert`\n", tune(env, "status").stdout)
    assert tune(env, "apply", "--for", "600").returncode == 0
    shown = tune(env, "status").stdout
    assert re.search(r"owner +tune +alive +until 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\n", shown), shown
    assert tune(env, "revert").returncode == 0


def test_in_an_allocation_lines_of_srun_are_not_shown(host: Host) -> None:
    """srun adds one for each node on which a setting does not hold."""
    host.tool(
        "srun",
        'while [[ $1 == --* ]]; do shift; done\n"$@"; code=$?\n'
        '((code == 0)) || echo "srun: error: n1: task 0: Exited with exit code $code" >&2\n'
        "exit $code",
    )
    env = host.env() | {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}
    answer = tune(env, "verify")
    assert answer.returncode == 1 and answer.stdout.startswith("n[1-2] (2 hosts)\n")
    assert "srun" not in answer.stdout + answer.stderr
    assert any(call.startswith("srun ") for call in host.calls())


def test_apply_names_the_way_without_ssh(host: Host, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(f"log_dir: {tmp_path}\npartition: gpu\n")
    env = host.env() | {"ORCHESTRATOR_SITE": str(site)}
    answer = tune(env, "apply", "--nodes", "no-such-host-[1-2]")
    assert answer.returncode == 4, answer.stderr
    assert answer.stderr.count("SSH to no-such-host-") == 2
    assert answer.stderr.endswith("\n  salloc --partition=gpu --nodelist='no-such-host-[1-2]'\n")
    site.write_text(f"log_dir: {tmp_path}\nscheduler: local\n")
    assert "salloc" not in tune(env, "apply", "--nodes", "no-such-host-1").stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["plan", "--profile", "nope"],
            "there is no tuning profile nope; there are: host_checks, published, recommended",
        ),
        (["plan", "--workload", "bultin"], 'did you mean "builtin"?'),
        (["plan", "--workload", "flux1", "--round", "5.0"], "there is no round 5.0 of flux1"),
        (["plan", "--round", "zz"], "there is no round zz; there are: 1.0"),
        (["plan", "--nodes", "a,a"], "stands twice"),
        (["apply", "--owner", "a b"], "is not a name"),
        (["verify", "some-set"], "takes no set"),
        (["apply", "--sudo-password-fd", "65000"], "--sudo-password-fd 65000"),
        (["apply", "--sudo-password-fd", "0"], "no password was written to it"),
        (["plan", "--via", "srun"], "needs hosts"),
    ],
)
def test_messages(host: Host, arguments: list[str], message: str) -> None:
    answer = tune(host.env(), *arguments)
    assert answer.returncode == 2 and message in answer.stderr and "Traceback" not in answer.stderr
    assert host.is_as_before


@pytest.mark.parametrize("asks", [True, False])
def test_the_sudo_password_is_only_for_sudo(host: Host, tmp_path: Path, asks: bool) -> None:
    """A sudo that does not ask leaves the line of the password: it must not run as a command."""
    trap = tmp_path / "trap"
    secret = SECRET.format(trap)
    refuse = 'echo "sudo: 1 incorrect password attempt" >&2; exit 1'
    ask = f"IFS= read -r line; [[ $line == {secret!r} ]] || {{ {refuse}; }}" if asks else ""
    host.tool("sudo", f'while [[ $1 != -- ]]; do shift; done; shift\n{ask}\nexec "$@"')
    read, write = os.pipe()
    os.write(write, f"{secret}\n".encode())
    os.close(write)
    answer = tune(host.env(), "apply", "--json", "--sudo-password-fd", str(read), fds=(read,))
    os.close(read)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert host.calls()[0].startswith("sudo -S -p")
    assert secret not in "".join(host.calls()) + answer.stdout + answer.stderr
    assert not trap.exists()
    wrong = tune(host.env(), "revert", "--sudo")
    assert ("incorrect password" in wrong.stderr) == asks


def test_a_password_is_asked_for_on_a_terminal(host: Host) -> None:
    argv = [sys.executable, "-m", "orchestrator", "tune", "apply", "--ask-sudo-password"]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TOP)} | host.env()
    answer = captured(["setsid", "--wait", *argv], env)
    assert answer.returncode == 2 and "no terminal gave a password" in answer.stderr
    assert "--sudo-password-fd" in answer.stderr and "Warning" not in answer.stderr
    assert host.is_as_before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        ("Host n1\n  Port abc\n", "Port abc is not a number"),
        ("Port abc\n", "Port abc is not a number"),
        ("Host 'n1\n", "Unparsable host"),
        ("what\n", "what"),
    ],
)
def test_an_unusable_ssh_config_is_no_failure_of_a_node(
    host: Host, tmp_path: Path, content: str | None, message: str
) -> None:
    config = tmp_path / "config"
    if content is not None:
        config.write_text(content)
    answer = tune(host.env(), "plan", "--nodes", "n1", "--ssh-config", str(config))
    assert answer.returncode == 2 and f"--ssh-config {config}: " in answer.stderr
    assert message in answer.stderr


def test_an_ssh_config_with_conditions_is_read(host: Host, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        'Host gpu*\n  Port 1\nMatch user bob\n  Port="1"\nHost localhost\n  HostName 127.0.0.1\n  Port 1\n'
    )
    answer = tune(host.env(), "plan", "--nodes", "localhost", "--ssh-config", str(config))
    assert answer.returncode == 4 and "not a number" not in answer.stderr, answer.stderr


def test_a_password_of_two_lines_is_refused() -> None:
    with pytest.raises(UsageError, match="line break"):
        request(b"", "apply", owner="x", root=Root(True, "a\nb"), env={})


def test_a_host_that_refuses_is_in_its_answer(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = {**os.environ, "ORCH_TUNABLES_STATE": str(tmp_path / "file/below")}
    script = compact(profile_script(load_profile("host_checks")))
    [answer] = tune_hosts(["here"], script, "apply", transport=ThisHost(env))
    assert not answer.ok and answer.problem.endswith("root is needed") and answer.answered


@pytest.mark.parametrize("action", ["apply", "revert", "revert-all"])
def test_a_script_that_ends_too_soon_is_no_success(action: str) -> None:
    """As bash does with a part of a script."""
    [answer] = tune_hosts(["here"], b"exit 0\n", action, transport=ThisHost(dict(os.environ)))
    assert not answer.ok
    assert answer.problem == f"the {action} ended before it was complete; repeat the command"


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """One sshd on five addresses; its folder (with ssh_config and host/<address>) and port."""
    if SSHD is None or os.getuid() != 0:
        pytest.skip("needs sshd, and root for its login")
    with serving(tmp_path_factory.mktemp("ssh"), [f"127.0.0.{k}" for k in range(2, 7)]) as server:
        yield server


def test_five_hosts_over_ssh(ssh: SshServer) -> None:
    folder, port, addresses = ssh.folder, ssh.port, ssh.addresses
    for address in addresses:
        fill(folder / "host" / address)
    stubborn = folder / "host/127.0.0.5/proc/sys/kernel/nmi_watchdog"
    stubborn.unlink()
    stubborn.symlink_to(STUBBORN)
    before = snapshot(folder / "host")
    nodes = ",".join(
        f"n{k}=ssh://root@{address}:{port}" for k, address in enumerate(addresses, start=1)
    )
    env = {"ORCH_TUNABLES_ROOT": f"{folder}/host/%a", "ORCH_TUNABLES_STATE": f"{folder}/state/%a"}

    def ask(action: str, *more: str, hosts: str = nodes) -> tuple[int, dict[str, Any]]:
        options = ("--nodes", hosts, "--ssh-config", str(folder / "ssh_config"), "--json")
        answer = tune(env, action, *options, *more)
        assert answer.stdout, answer.stderr
        reports = outputs.checked(answer.stdout)["nodes"]
        return answer.returncode, {report["node"]: report for report in reports}

    code, applied = ask("apply")
    assert code == 1 and list(applied) == [f"n{k}" for k in range(1, 6)]
    assert [node for node, report in applied.items() if not report["ok"]] == ["n4"]
    for address in addresses:
        setting = folder / "host" / address / "proc/sys/kernel/randomize_va_space"
        assert setting.read_text() == "0\n"
    assert ask("status")[1]["n2"]["status"]["owners"][0]["name"] == "tune"
    # One that cannot be reached is named and does not hold the others up.
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"ssh://root@127.0.0.1:{closed.getsockname()[1]}"
        code, verified = ask("verify", hosts=f"{nodes},gone={address}")
    assert code == 4 and "SSH to 127.0.0.1" in verified["gone"]["problem"] and verified["n1"]["ok"]
    code, _ = ask("revert")
    assert code == 0 and snapshot(folder / "host") == before
    assert not list((folder / "state").iterdir())
    table = tune(env, "plan", "--nodes", nodes, "--ssh-config", str(folder / "ssh_config")).stdout
    assert table.count("SETTING") == 2 and "n[1-3,5] (4 hosts)" in table


@pytest.mark.parametrize("after_bytes", [0, 1_500, 3_500, 9_000])
def test_a_connection_that_is_cut_is_told(ssh: SshServer, tmp_path: Path, after_bytes: int) -> None:
    """And what was changed before the cut can be put back."""
    address = ssh.addresses[0]
    before = snapshot(fill(tmp_path / "host"))
    env = {"ORCH_TUNABLES_ROOT": f"{tmp_path}/host", "ORCH_TUNABLES_STATE": f"{tmp_path}/state"}
    with Cut(ssh, address, after_bytes) as cut:
        nodes = f"n1=ssh://root@{address}:{cut.port}"
        answer = tune(env, "apply", "--nodes", nodes, "--ssh-config", str(ssh.config), "--json")
    [node] = json.loads(answer.stdout)["nodes"]
    assert answer.returncode == 4, answer.stdout
    assert re.fullmatch(rf"SSH to {address}:\d+: \S.+", node["problem"])
    nodes = f"n1=ssh://root@{address}:{ssh.port}"
    answer = tune(env, "revert", "--nodes", nodes, "--ssh-config", str(ssh.config))
    assert answer.returncode == 0 and snapshot(tmp_path / "host") == before, answer.stderr
