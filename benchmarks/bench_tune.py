"""Apply, verify and revert the published tuning profile on 64 SSH hosts, against Ansible and ClusterShell.

    python benchmarks/bench_tune.py [--hosts 64] [--rounds 3] [--ansible-bin DIR] [--clush-bin DIR] [--json]

The hosts are addresses 127.0.0.2 and up of one real sshd; every host has its own folder as /proc and /sys. All tools use
the same key, the same key exchange and the same number of connections at a time. Ansible gets one task per knob, with
pipelining and as many forks as hosts, and need not remember old values, which the others do. fabric's own round trip of
`true` accepts every host key, ours of `true` is the transport that `orchestrator tune` uses. A tool that is not there is
left out: `python -m venv V && V/bin/pip install ansible-core ClusterShell`, then give V/bin. `(process)` counts the start
of the command, the others do not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOP), str(TOP / "tests/tuning")]

from tuning_parts import fill, snapshot

from orchestrator.nodes.fanout import run_on_nodes
from orchestrator.nodes.names import NamedNode
from orchestrator.nodes.ssh import Ssh
from orchestrator.tuning.hosts import Root, request, tune_hosts
from orchestrator.tuning.profile import load_profile, profile_script

KEX = "curve25519-sha256@libssh.org"
CPUS = 8


@dataclass(frozen=True)
class Hosts:
    folder: Path
    addresses: list[str]
    port: int

    @property
    def config(self) -> Path:
        return self.folder / "ssh_config"

    @property
    def nodes(self) -> list[NamedNode]:
        return [
            NamedNode(f"h{address.rpartition('.')[2]}", f"ssh://root@{address}:{self.port}")
            for address in self.addresses
        ]

    def root(self, address: str) -> Path:
        return self.folder / "host" / address


@contextmanager
def ssh_hosts(count: int) -> Iterator[Hosts]:
    folder = Path(tempfile.mkdtemp(prefix="bench-tune.", dir="/dev/shm"))
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        port = probe.getsockname()[1]
    hosts = Hosts(folder, [f"127.0.0.{k}" for k in range(2, count + 2)], port)
    for name in ("host_key", "user_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
        )
    key = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(
        "".join(f"[{address}]:{port} {key}" for address in hosts.addresses)
    )
    hosts.config.write_text(
        f"Host *\n  Port {port}\n  User root\n  IdentityFile {folder}/user_key\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking yes\n  KexAlgorithms {KEX}\n  LogLevel ERROR\n"
    )
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 0.0.0.0\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/user_key.pub\nStrictModes no\n"
        "UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\nMaxStartups 1000\nMaxSessions 100\n"
        f"SetEnv HOME={folder}\n"
    )  # bash reads ~/.bashrc for every SSH command; this machine's own may do anything
    Path("/run/sshd").mkdir(
        mode=0o755, exist_ok=True
    )  # where the distribution's own service makes it
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin") or "sshd"
    server = subprocess.Popen(
        [sshd, "-D", "-e", "-f", folder / "sshd_config"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    next(line for line in server.stderr if "Server listening" in line)
    with (folder / "sshd.log").open("w") as log:
        drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=log)
    try:
        yield hosts
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
        drain.wait()
        shutil.rmtree(folder)


def ours(hosts: Hosts, script: bytes, action: str) -> None:
    answers = list(
        tune_hosts(
            hosts.nodes,
            script,
            action,
            transport=Ssh(str(hosts.config)),
            limit=len(hosts.addresses),
        )
    )
    bad = [answer for answer in answers if not answer.ok]
    assert not bad and len(answers) == len(hosts.addresses), bad[:2]


def fabric_round_trip(hosts: Hosts) -> None:
    """What fabric itself takes for `true` on every host, all at once."""
    from fabric import Config, ThreadingGroup

    config = Config(runtime_ssh_path=str(hosts.config))
    with ThreadingGroup(*hosts.addresses, config=config) as group:
        assert len(group.run("true", hide=True, in_stream=False)) == len(hosts.addresses)


def one_round_trip(hosts: Hosts) -> None:
    answers = list(
        run_on_nodes(
            hosts.nodes, ["true"], transport=Ssh(str(hosts.config)), limit=len(hosts.addresses)
        )
    )
    assert all(answer.ok for answer in answers), [answer for answer in answers if not answer.ok][:2]


def command_line(hosts: Hosts, action: str) -> None:
    nodes = ",".join(f"{node.name}={node.address}" for node in hosts.nodes)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "orchestrator",
            "tune",
            action,
            "--profile",
            "published",
            "--nodes",
            nodes,
            "--via",
            "ssh",
            "--ssh-config",
            hosts.config,
            "--parallel",
            str(len(hosts.addresses)),
            "--json",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(TOP)},
    )


def clush_command(binary: Path, hosts: Hosts, *arguments: str) -> list[str]:
    at_once = str(len(hosts.addresses))
    options = ["-S", "-q", "-f", at_once, "-o", f"-F {hosts.config}"]
    return [str(binary), *options, "-w", ",".join(hosts.addresses), *arguments]


def clush(binary: Path, hosts: Hosts, script: bytes, action: str) -> None:
    import shlex

    argv, stdin = request(script, action, owner="tune", root=Root())
    argv = clush_command(binary, hosts, shlex.join(argv))
    answer = subprocess.run(argv, input=stdin, capture_output=True, check=False)
    assert answer.returncode == 0 and answer.stdout, answer.stderr.decode()[-500:]


def clush_true(binary: Path, hosts: Hosts) -> None:
    argv = clush_command(binary, hosts, "-n", "true")
    subprocess.run(argv, check=True, capture_output=True)


# knob, file or pattern, wanted, before
KNOBS = [
    ("cpu_idle_state2", "sys/devices/system/cpu/cpu*/cpuidle/state2/disable", "1", "0"),
    (
        "cpu_governor",
        "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        "performance",
        "powersave",
    ),
    ("nmi_watchdog", "proc/sys/kernel/nmi_watchdog", "0", "1"),
    ("numa_balancing", "proc/sys/kernel/numa_balancing", "0", "1"),
    ("randomize_va_space", "proc/sys/kernel/randomize_va_space", "0", "2"),
    ("thp_enabled", "sys/kernel/mm/transparent_hugepage/enabled", "always", "madvise"),
    ("thp_defrag", "sys/kernel/mm/transparent_hugepage/defrag", "always", "madvise"),
]


def playbook(hosts: Hosts, action: str) -> Path:
    tasks = []
    for name, file, wanted, before in KNOBS:
        place, value = (
            f"{hosts.folder}/host/{{{{ inventory_hostname }}}}/{file}",
            wanted if action == "apply" else before,
        )
        if action == "verify":
            tasks.append(
                {
                    "name": name,
                    "ansible.builtin.shell": f"cat {place}",
                    "register": "found",
                    "changed_when": False,
                    "failed_when": f"found.stdout_lines | unique != ['{wanted}']",
                }
            )
        elif "*" in file:
            tasks.append(
                {
                    "name": name,
                    "ansible.builtin.shell": f"for f in {place}; do echo {value} >$f; done",
                }
            )
        else:
            tasks.append(
                {
                    "name": name,
                    "ansible.builtin.copy": {
                        "dest": place,
                        "content": f"{value}\n",
                        "unsafe_writes": True,
                    },
                }
            )
    path = hosts.folder / f"{action}.json"
    path.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    return path


def ansible(binary: Path, hosts: Hosts, action: str) -> None:
    (hosts.folder / "inventory").write_text("\n".join(hosts.addresses) + "\n")
    env = os.environ | {
        "ANSIBLE_FORKS": str(len(hosts.addresses)),
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_LOCAL_TEMP": str(hosts.folder / "tmp"),
        "ANSIBLE_HOME": str(hosts.folder / "ansible"),
        "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_SSH_ARGS": f"-F {hosts.config} -o ControlMaster=auto -o ControlPersist=60s",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(hosts.folder / "cp"),
    }
    answer = subprocess.run(
        [binary, "-i", hosts.folder / "inventory", playbook(hosts, action)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-1500:] + answer.stderr[-500:]


def measure(work: Callable[[], None], rounds: int) -> float:
    """The best wall time of `rounds`, in seconds: what else runs on the machine only ever adds to it."""
    times = []
    for _ in range(rounds):
        began = time.monotonic()
        work()
        times.append(time.monotonic() - began)
    return min(times)


def cycle(step: Callable[[str], None], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {"apply": [], "verify": [], "revert": []}
    for _ in range(rounds):
        for action, taken in times.items():
            taken.append(measure(lambda action=action: step(action), 1))  # type: ignore[misc]
    best = {action: min(taken) for action, taken in times.items()}
    print({action: round(taken, 2) for action, taken in best.items()}, file=sys.stderr)
    return best | {"all": sum(best.values())}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ansible-bin", type=Path, help="folder with ansible-playbook")
    parser.add_argument("--clush-bin", type=Path, help="folder with clush")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    script = profile_script(load_profile("published"))
    results: dict[str, object] = {"hosts": args.hosts, "rounds": args.rounds}
    with ssh_hosts(args.hosts) as hosts:
        print("best of", args.rounds, "rounds, Ansible once; seconds", file=sys.stderr)
        for address in hosts.addresses:
            # Ansible's tasks set one value for all processors back, so they all begin with it.
            fill(
                hosts.root(address),
                cpus=CPUS,
                gpus=0,
                files={
                    f"sys/devices/system/cpu/cpu{k}/cpufreq/scaling_governor": "powersave\n"
                    for k in range(CPUS)
                },
            )
        before = snapshot(hosts.folder / "host")
        os.environ |= {
            "ORCH_TUNABLES_ROOT": f"{hosts.folder}/host/%a",
            "ORCH_TUNABLES_STATE": f"{hosts.folder}/state/%a",
        }
        one_round_trip(hosts)
        results["fabric's round trip of true"] = measure(
            lambda: fabric_round_trip(hosts), args.rounds
        )
        results["round trip of true"] = measure(lambda: one_round_trip(hosts), args.rounds)
        results["orchestrator"] = cycle(lambda action: ours(hosts, script, action), args.rounds)
        results["orchestrator tune (process)"] = cycle(
            lambda action: command_line(hosts, action), args.rounds
        )
        if args.clush_bin:
            results["clush of true"] = measure(
                lambda: clush_true(args.clush_bin / "clush", hosts), args.rounds
            )
            results["clush of the same script (process)"] = cycle(
                lambda action: clush(args.clush_bin / "clush", hosts, script, action), args.rounds
            )
        assert snapshot(hosts.folder / "host") == before, "the hosts are not as they were"
        if args.ansible_bin:
            results["ansible (process)"] = cycle(
                lambda action: ansible(args.ansible_bin / "ansible-playbook", hosts, action), 1
            )
            assert snapshot(hosts.folder / "host") == before, "the hosts are not as they were"
    if args.json:
        print(json.dumps(results, indent=2))
        return
    for name, value in results.items():
        shown = (
            "  ".join(f"{action} {taken:.2f}" for action, taken in value.items())
            if isinstance(value, dict)
            else value
        )
        print(f"{name:<36} {shown:.2f} s" if isinstance(shown, float) else f"{name:<36} {shown}")


if __name__ == "__main__":
    main()
