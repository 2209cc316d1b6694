"""The script of a profile on fake hosts: it sets, remembers, reverts, and refuses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tuning_parts import STUBBORN, Host, journal_names, snapshot, watchdogs
from until import bounded, until

from orchestrator.tuning.profile import HostSetting, TuningProfile, load_profile
from orchestrator.tuning.rows import is_complete, parse_rows

NMI = "proc/sys/kernel/nmi_watchdog"
GPU_LEVEL = "sys/bus/pci/drivers/amdgpu/0000:05:00.0/power_dpm_force_performance_level"


def of_kind(kind: str, target: str, wanted: str, *, change: bool = True) -> HostSetting:
    return HostSetting("knob", kind, change, target, wanted, change, change, "for a test", "")


def host_with(folder: Path, *settings: HostSetting, **shape: object) -> Host:
    return Host(folder, TuningProfile("test", "for a test", settings, ()), **shape)


def test_apply_verify_revert(host: Host) -> None:
    planned = host.rows("plan")
    assert host.is_as_before
    changed = {name for name, row in planned.items() if row.result == "change"}
    assert changed >= {"cpu_idle_state2", "cpu_governor", "nmi_watchdog", "thp_enabled"}
    applied = host.rows("apply", "job-1")
    assert applied["cpu_governor"].before == "powersave,schedutil"
    assert applied["cpu_governor"].after == "performance"
    assert {row.result for row in applied.values() if row.need == "required"} == {"ok"}
    assert {row.result for row in host.rows("verify").values() if row.need == "required"} == {"ok"}
    for k in range(4):
        assert host.read(f"sys/devices/system/cpu/cpu{k}/cpufreq/scaling_governor") == "performance"
        assert host.read(f"sys/devices/system/cpu/cpu{k}/cpuidle/state2/disable") == "1"
    reverted = host.run("revert", "job-1").stdout.splitlines()
    order = [row.knob for row in parse_rows(reverted)]
    assert order[0] == "thp_defrag" and order[-1] == "cpu_idle_state2" and len(order) == 5 + 2 * 4
    assert is_complete(reverted) and host.is_as_before
    again = host.run("revert", "job-1").stdout.splitlines()
    assert not parse_rows(again) and is_complete(again) and host.is_as_before


def test_watch_answers_every_line(host: Host) -> None:
    host.rows("apply", "me")
    process = subprocess.Popen(
        ["bash", host.script, "watch"],
        env=host.env(),
        text=True,
        bufsize=1,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None

    def answer() -> dict[str, list[str]]:
        lines = iter(process.stdout.readline, "\n")  # type: ignore[union-attr]
        return {cells[0]: cells[1:] for cells in (line.rstrip("\n").split("\t") for line in lines)}

    boot = answer()
    assert boot["iommu_passthrough"][0] == "iommu=pt"
    assert boot["iommu_passthrough"][-2:] == ["look", "holds"]
    process.stdin.write("\n")
    first = answer()
    assert first["nmi_watchdog"][:2] == ["0", "0"]
    assert first["nmi_watchdog"][-2:] == ["set", "holds"]
    assert "pcie_acs" not in boot | first and not boot.keys() & first.keys()
    (host.root / "proc/sys/kernel/nmi_watchdog").write_text("1\n")
    # A signal to the whole job does not end it; the end of its input does.
    process.terminate()
    process.stdin.write("\n")
    after = answer()["nmi_watchdog"]
    assert after[:2] == ["1", "0"] and after[-1] == "fails"
    process.stdin.close()
    assert process.wait(300) == 0
    process.stdout.close()
    host.rows("revert", "me")


@pytest.mark.parametrize(
    "before", ["4096\t131072\t6291456", "", "\t"], ids=["tabs", "empty", "a tab"]
)
def test_a_value_is_put_back_whole(tmp_path: Path, before: str) -> None:
    """As net.ipv4.tcp_rmem's, or that of a file that has nothing to say."""
    wanted = "4096 87380 16777216"
    setting = of_kind("file", "/proc/a", wanted)
    host = host_with(tmp_path / "host", setting, files={"proc/a": f"{before}\n"})
    assert host.rows("verify", status=1)["knob"].result == "failed"
    assert host.rows("apply", "job")["knob"].after == wanted == host.read("proc/a")
    (host.root / "proc/a").write_text(wanted.replace(" ", "\t") + "\n")  # as the kernel writes it
    assert host.rows("verify")["knob"].result == "ok"
    host.rows("revert", "job")
    assert (host.root / "proc/a").read_text() == before.replace("\t", " ") + "\n"
    assert not host.state.exists()


def test_apply_twice_remembers_the_first_values(host: Host) -> None:
    host.rows("apply", "job-1")
    journal = (host.state / "journal").read_text()
    host.rows("apply", "job-1")
    assert (host.state / "journal").read_text() == journal
    host.revert("job-1")


def test_two_owners(host: Host) -> None:
    host.rows("apply", "one")
    host.rows("apply", "two")
    answer = host.run("revert", "one")
    assert answer.returncode == 0 and "kept for two" in answer.stderr
    assert host.read(NMI) == "0"
    host.revert("two")


def test_another_value_is_not_forced_on_a_living_owner(host: Host, tmp_path: Path) -> None:
    host.rows("apply", "one")
    other = tmp_path / "other.sh"
    other.write_text(
        host.script.read_text().replace("nmi_watchdog\t0\trequired", "nmi_watchdog\t1\trequired")
    )
    ours, host.script = host.script, other
    row = host.rows("apply", "two", status=1)["nmi_watchdog"]
    assert (row.result, row.wanted, row.after) == ("failed", "1", "0")
    host.script = ours
    assert host.rows("verify")["nmi_watchdog"].result == "ok"
    host.rows("revert", "two")
    host.revert("one")


def test_a_dead_owner_does_not_count(host: Host, sleeper: subprocess.Popen[bytes]) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert host.run("apply", "dead", ORCH_OWNER_PID=str(gone.pid)).returncode == 3
    host.rows("apply", "dead", ORCH_OWNER_PID=str(sleeper.pid), ORCH_LEASE_S="600")
    host.rows("apply", "alive", ORCH_LEASE_S="600")
    sleeper.kill()
    sleeper.wait()
    # Gone, or taken off the list already: the watchdog looks for the dead, too.
    assert {owner["name"] for owner in host.status().owners if owner["state"] != "gone"} == {
        "alive"
    }
    host.revert("alive")


def test_the_watchdog_reverts_for_a_killed_owner(
    host: Host, sleeper: subprocess.Popen[bytes]
) -> None:
    host.rows("apply", "job", ORCH_OWNER_PID=str(sleeper.pid))
    until(lambda: host.status().watchdog in watchdogs(host.state))
    sleeper.send_signal(signal.SIGKILL)
    sleeper.wait()
    until(lambda: host.is_as_before and not watchdogs(host.state))


def test_the_watchdog_ends_with_a_normal_revert_and_holds_nothing(host: Host) -> None:
    # With an open pipe in the watchdog, reading would last until the end of the lease.
    answer = subprocess.run(
        ["bash", host.script, "apply", "job"],
        env=host.env(ORCH_LEASE_S="600"),
        capture_output=True,
        timeout=300,
        check=True,
    )
    assert answer.stdout
    until(lambda: watchdogs(host.state))
    host.rows("revert", "job")
    until(lambda: not watchdogs(host.state))
    assert host.is_as_before


def test_a_time_limit_without_a_process(host: Host) -> None:
    rows = host.rows("apply", "hand", ORCH_OWNER_PID="0", ORCH_OWNER_S="1")
    assert rows["nmi_watchdog"].after == "0"
    until(lambda: host.is_as_before and not watchdogs(host.state))


def test_an_owner_that_lives_has_no_time_limit(host: Host) -> None:
    """The end of its job can move: scontrol, OverTimeLimit, a job that was suspended, a wrong clock."""
    host.rows("apply", "job", ORCH_OWNER_S="1")
    owner = host.state / "owners" / "job"
    pid, start, _ = owner.read_text().split()
    owner.write_text(f"{pid} {start} 1\n")
    assert [row["state"] for row in host.status().owners] == ["alive"]
    assert "kept for job" in host.run("revert", "another").stderr and host.read(NMI) == "0"
    host.revert("job")


def test_held_by_hand_until_revert(host: Host) -> None:
    host.rows("apply", "hand", ORCH_OWNER_PID="0")
    assert not watchdogs(host.state) and host.status().owners[0]["state"] == "alive"
    host.rows("revert", "somebody-else")
    assert host.read(NMI) == "0"
    host.revert("hand")


def test_a_folder_of_somebody_elses_keeps_what_is_in_it(host: Host) -> None:
    host.state.mkdir()
    (host.state / "precious").write_text("mine")
    host.rows("apply", "hand", ORCH_OWNER_PID="0")
    host.rows("revert", "hand")
    assert [path.name for path in host.state.iterdir()] == ["precious"]


def test_killed_while_it_writes(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """Whenever the script is killed, a later revert gives the first values back."""
    host = Host(tmp_path, cpus=64)
    last = host.root / "sys/devices/system/cpu/cpu9/cpufreq/scaling_governor"
    begun: tuple[Callable[[], bool], ...] = (
        lambda: host.state.exists(),
        lambda: (host.state / "journal").exists(),
        lambda: any((host.state / "owners").glob("*")),
        lambda: snapshot(host.root) != host.before,
        lambda: host.read(NMI) == "0",
        lambda: last.read_text() == "performance\n",
    )
    for has_begun in begun:
        process = subprocess.Popen(
            ["bash", host.script, "apply", "job"],
            env=host.env(ORCH_OWNER_PID=str(sleeper.pid), ORCH_LEASE_S="600"),
            stdout=subprocess.DEVNULL,
        )
        with bounded():
            while not has_begun():  # at once: what comes next is to be cut off
                pass
        process.kill()
        process.wait()
        host.rows("revert", "job")
        assert snapshot(host.root) == host.before and not host.state.exists()
    sleeper.kill()
    sleeper.wait()
    until(lambda: not watchdogs(host.state))


def test_a_journal_that_was_cut_off_changes_nothing(host: Host) -> None:
    host.rows("apply", "job")
    journal = host.state / "journal"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines) + "boot\tx\nfile\tnmi_watchdog\t/nowhere/at/all\t9")
    host.revert()


def test_after_a_reboot_old_values_are_not_put_back(host: Host) -> None:
    host.rows("apply", "job")
    journal = host.state / "journal"
    journal.write_text(journal.read_text().replace("boot\t", "boot\tanother-"))
    (host.root / NMI).write_text("7\n")
    host.rows("revert", "job")
    assert host.read(NMI) == "7" and not host.state.exists()


def test_a_knob_that_does_not_hold(host: Host) -> None:
    (host.root / NMI).unlink()
    (host.root / NMI).symlink_to(STUBBORN)
    host.before = snapshot(host.root)
    row = host.rows("apply", "job", status=1)["nmi_watchdog"]
    assert (row.result, row.need, row.wanted) == ("failed", "required", "0")
    assert row.after == STUBBORN.read_text().strip()
    assert host.rows("verify", status=1)["thp_enabled"].result == "ok"
    host.revert()


def test_one_of_many_files_that_does_not_hold(host: Host) -> None:
    path = host.root / "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor"
    path.unlink()
    path.symlink_to(STUBBORN)
    host.before = snapshot(host.root)
    after = host.rows("apply", "job", status=1)["cpu_governor"].after
    assert after == f"performance,{STUBBORN.read_text().strip()}"
    host.revert()


def test_drift_is_seen_and_undone(host: Host) -> None:
    host.rows("apply", "job")
    (host.root / NMI).write_text("1\n")
    row = host.rows("verify", status=1)["nmi_watchdog"]
    assert (row.result, row.wanted, row.after) == ("failed", "0", "1")
    host.revert()


def test_what_cannot_be_put_back_is_kept_for_the_next_try(host: Host) -> None:
    host.rows("apply", "job")
    real = host.root / NMI
    real.unlink()
    real.symlink_to(STUBBORN)
    assert host.rows("revert", "job", status=1)["nmi_watchdog"].result == "failed"
    assert journal_names(host) == ["nmi_watchdog"]
    real.unlink()
    real.write_text("0\n")
    host.revert()


def test_what_the_kernel_lacks_is_unsupported(tmp_path: Path) -> None:
    host = Host(tmp_path)
    (host.root / NMI).unlink()
    for path in host.root.glob("sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"):
        path.unlink()
    rows = host.rows("apply", "job")
    for name in ("nmi_watchdog", "cpu_governor", "pcie_acs"):
        assert rows[name].result == "unsupported"
    assert not (host.root / NMI).exists()
    host.rows("revert", "job")


def test_host_checks_are_never_changed(tmp_path: Path) -> None:
    files = {"proc/cmdline": "quiet iommu=soft\n", GPU_LEVEL: "high\n"}
    host = Host(tmp_path, "host_checks", files=files)
    rows = host.rows("apply", "job")
    results = {name: (row.result, row.after) for name, row in rows.items()}
    assert results["iommu_passthrough"] == ("failed", "iommu=soft")
    assert results["gpu_performance_level"] == ("failed", "high,auto")
    assert rows["numa_per_socket"].result == "ok" and rows["iommu_on"].after == "absent"
    assert snapshot(host.root) == host.before
    host.revert()


@pytest.mark.parametrize(("control", "result"), [(0x1D, "on: 0000:00:01.0"), (0, "off")])
def test_access_control_services_of_bridges(tmp_path: Path, control: int, result: str) -> None:
    host = host_with(tmp_path, of_kind("acs", "-", "off", change=False))
    device = host.root / "sys/bus/pci/devices/0000:00:01.0"
    device.mkdir(parents=True)
    (device / "class").write_text("0x060400\n")
    space = bytearray(4096)
    # Error reporting, then access control at 0x140.
    space[0x100:0x104] = (0x0001 | 2 << 16 | 0x140 << 20).to_bytes(4, "little")
    space[0x140:0x144] = (0x000D | 1 << 16).to_bytes(4, "little")
    space[0x146:0x148] = control.to_bytes(2, "little")
    (device / "config").write_bytes(space)
    assert host.rows("verify")["knob"].after == result


def test_a_module_is_loaded_and_unloaded(tmp_path: Path) -> None:
    host = host_with(tmp_path, of_kind("module", "some-module", "loaded"))
    host.tool(
        "modprobe",
        "module=$ROOT/sys/module/some_module\n"
        "case $* in *--dry-run*) ;; *--remove*) rmdir $module ;; *) mkdir $module ;; esac",
    )
    row = host.rows("apply", "job")["knob"]
    assert (row.before, row.after, row.result) == ("absent", "loaded", "ok")
    assert host.rows("revert", "job")["knob"].after == "absent"
    assert "modprobe --quiet --remove some-module" in host.calls()


def test_the_gpu_driver_is_never_unloaded(tmp_path: Path) -> None:
    host = Host(tmp_path, "published")
    (host.root / "sys/module/amdgpu/version").unlink()
    (host.root / "sys/module/amdgpu").rmdir()
    host.tool("modprobe", "case $* in *--dry-run*) ;; *) mkdir -p $ROOT/sys/module/amdgpu ;; esac")
    assert host.rows("apply", "job")["amdgpu"].result == "ok"
    host.rows("revert", "job")
    assert (host.root / "sys/module/amdgpu").is_dir()
    assert not any("--remove" in call for call in host.calls())


def test_a_service_is_stopped_and_started(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/system.slice/irqbalance.service"
    unit = "usr/lib/systemd/system/irqbalance.service"
    files = {f"{group}/cgroup.procs": "7\n", unit: "[Unit]\n"}
    host = host_with(tmp_path, of_kind("service", "irqbalance", "inactive"), files=files)
    (host.root / "run/systemd/system").mkdir(parents=True)
    host.tool(
        "systemctl",
        f"case $1 in stop) rm -r $ROOT/{group} ;; start) mkdir -p $ROOT/{group} ;; esac",
    )
    assert host.rows("apply", "job")["knob"].result == "ok"
    assert host.rows("verify")["knob"].after == "inactive"
    assert host.rows("revert", "job")["knob"].after == "active"
    assert [call for call in host.calls() if "systemctl" in call] == [
        "systemctl stop irqbalance",
        "systemctl start irqbalance",
    ]


@pytest.mark.parametrize(
    ("tool", "assignments", "call"),
    [
        ("", "", []),
        ("amd-smi", "dev=$3 level=$5", ["amd-smi set --gpu 0000:06:00.0 --perf-level HIGH"]),
        ("rocm-smi", "dev=0000:0$(($2 + 5)):00.0 level=$4",
         ["rocm-smi -d 1 --setperflevel high"]),
    ],
    ids=["sysfs", "amd-smi", "rocm-smi"],
)  # fmt: skip
def test_a_gpu_setting(tmp_path: Path, tool: str, assignments: str, call: list[str]) -> None:
    """If the file refuses a value, a tool makes the driver set it."""
    name = "power_dpm_force_performance_level"
    gpus = "sys/bus/pci/drivers/amdgpu"
    host = host_with(tmp_path, of_kind("gpu", f"/{gpus}/*:*:*.*/{name}", "high"), gpus=2)
    if tool:
        for path in host.root.glob(f"{gpus}/*/{name}"):
            path.unlink()
            path.symlink_to(STUBBORN)
        write = f"file=$ROOT/{gpus}/$dev/{name}; rm $file; echo ${{level,,}} >$file"
        host.tool(tool, f"{assignments}\n{write}")
    assert host.rows("apply", "job")["knob"].result == "ok"
    assert host.calls()[-1:] == call
    host.run("revert-all")


def test_many_at_once(host: Host) -> None:
    """Four jobs on a host at the same time: the last one restores it."""
    line = 'exec >/dev/null 2>&1; bash "$1" apply "$2" && bash "$1" verify && bash "$1" revert "$2"'
    jobs = [
        subprocess.Popen(["bash", "-c", line, "_", host.script, f"job-{k}"], env=host.env())
        for k in range(4)
    ]
    assert [job.wait(300) for job in jobs] == [0] * 4
    assert host.is_as_before


@pytest.mark.skipif(os.getuid() != 0, reason="this test gives root away")
def test_without_root() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        host = Host(Path(folder))
        drop = ["setpriv", "--reuid=65534", "--clear-groups", "bash", str(host.script)]
        env = host.env(ORCH_TUNABLES_STATE="/run/orchestrator-tunables-test")

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*drop, *arguments],
                env=env,
                text=True,
                capture_output=True,
                timeout=300,
                check=False,
            )

        answer = run("apply", "job")
        assert answer.returncode == 3 and "root is needed" in answer.stderr
        rows = run("verify").stdout.splitlines()
        assert len(rows) == len(load_profile("recommended").settings)
        assert snapshot(host.root) == host.before


def test_a_program_that_the_host_lacks_is_named(host: Host, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for path in Path("/usr/bin").iterdir():
        if path.name != "flock":
            (programs / path.name).symlink_to(path)
    answer = host.run("apply", "job", PATH=f"{host.bin}:{programs}")
    assert answer.returncode == 3
    assert answer.stderr == (
        "runtime_tunables.sh: the program flock is not on this host's PATH; "
        "it comes with util-linux\n"
    )
    assert host.is_as_before


@pytest.mark.parametrize(
    "arguments", [(), ("apply",), ("apply", "a b"), ("apply", "../x"), ("tune",), ("revert", "")]
)
def test_wrong_words(host: Host, arguments: tuple[str, ...]) -> None:
    answer = host.run(*arguments)
    assert answer.returncode == 2 and answer.stderr.startswith("usage:")
    assert host.is_as_before


def test_every_shipped_profile_goes_round(tmp_path: Path) -> None:
    for name in ("published", "host_checks", "recommended"):
        host = Host(tmp_path / name, name)
        host.rows("apply", "job")
        host.rows("revert", "job")
        assert host.is_as_before
        assert len(load_profile(name).settings) >= 8


# ---- numbers of others ----


@pytest.mark.parametrize(
    ("action", "content"),
    [
        ("status", "PATH[$(touch${IFS}PWNED)] 1 0"),
        ("status", "1 x[$(touch${IFS}PWNED)] 0"),
        ("status", "1 1 y[$(touch${IFS}PWNED)]"),
        ("apply job-2", "PATH[$(touch${IFS}PWNED)] 1 0"),
        ("revert job-1", "PATH[$(touch${IFS}PWNED)] 1 0"),
    ],
)
def test_an_owners_file_is_never_evaluated(host: Host, action: str, content: str) -> None:
    """bash evaluates the indices of arrays in arithmetic; such a file is no owner."""
    host.rows("apply", "job-1")
    pwned = host.state / "pwned"
    (host.state / "owners/evil").write_text(content.replace("PWNED", str(pwned)) + "\n")
    answer = host.run(*action.split())
    assert answer.returncode == 0 and "evil" not in answer.stdout, answer.stderr
    expected = {"revert job-1": [], "apply job-2": ["job-1", "job-2"]}.get(action, ["job-1"])
    assert [one["name"] for one in host.status().owners] == expected
    host.run("revert-all")
    assert not pwned.exists() and host.is_as_before


@pytest.mark.parametrize("name", ["ORCH_OWNER_PID", "ORCH_OWNER_S"])
def test_numbers_of_the_environment_are_never_evaluated(host: Host, name: str) -> None:
    pwned = host.root / "pwned"
    answer = host.run("apply", "job-1", **{name: f"x[$(touch${{IFS}}{pwned})]"})
    assert answer.returncode == 3 and "are numbers" in answer.stderr
    assert not pwned.exists() and host.is_as_before


NUMBERS = {
    "KNOB_COUNT KNOB_FILES KNOB_FIRST KNOB_NAME": "of the profile, counted by the script",
    "i status nodes sockets seen TUNE_STATUS TUNE_NOW_S OWNERS JOURNAL": "counted by the script",
    "at header hex control id": "hexadecimal digits of od",
    "pid start until": "read_owner has checked them",
    "ORCH_OWNER_S": "tune_apply has checked it",
}
"""Names in the arithmetic of scripts for nodes, and why each can only be a number."""


def test_arithmetic_is_made_of_numbers() -> None:
    templates = Path(__file__).resolve().parents[2] / "templates"
    texts = [path.read_text() for path in templates.iterdir() if path.suffix in (".sh", ".j2")]
    found = {
        name
        for text in texts
        for expression in re.findall(r"\(\((.*?)\)\)", re.sub(r"(?m)(^|\s)#.*", "", text))
        for name in re.findall(r"(?<![\w#])[A-Za-z_]\w*", expression)
    }
    assert found <= {name for names in NUMBERS for name in names.split()}
