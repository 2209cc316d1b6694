"""Checks of a node other than its GPUs, and how they run: time limits, skips, ends."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from preflight_parts import NAMES, Node
from processes import see_them_go
from until import LIMIT_S, make_older, until

from orchestrator.onnode.agent import checks as agent_checks
from orchestrator.onnode.agent import space
from orchestrator.onnode.agent.checks import Checks
from orchestrator.onnode.agent.host import engine, root
from orchestrator.onnode.agent.leftovers import open_channel, remove_folder

ROOT = Path(__file__).resolve().parents[2]
HARMLESS = {"pass", "skip", "warn"}


def test_every_check_has_one_row_and_a_short_line(node: Node) -> None:
    answer = node.check(CONT="registry/" + "x" * 2000)
    assert set(answer.rows) == set(NAMES)
    assert max(len(line.encode()) for line in answer.lines) <= 900
    assert answer.errors == ""


def test_a_virtual_node_without_gpus_and_tools_has_no_failure(node: Node) -> None:
    assert {row.verdict for row in node.check().rows.values()} <= HARMLESS


def test_a_cut_text_keeps_whole_characters(node: Node) -> None:
    row = node.check(CONT="é" * 1000).rows["image"]
    assert row.text.endswith("...") and "�" not in row.text


# ---- time ----


def test_a_hung_tool_is_ended_with_its_children(node: Node) -> None:
    node.driver()
    node.tool("amd-smi", f"sleep 10000 {node.top}/child & bash -c 'sleep 10000; : {node.top}'")
    rows = node.check(PREFLIGHT_CHECK_S=4).rows
    late = "amd-smi did not answer within 2 s"
    known = "7 links, of unknown state, in the driver's topology on each of 8 GPUs"
    assert rows["gpu_links"].line == f"warn: {known}; {late}"
    assert "dmesg" in rows["gpu_links"].remedy
    assert {row.verdict for row in rows.values()} <= HARMLESS
    see_them_go(node.top)


def let_the_driver_hang(node: Node) -> None:
    """As in a GPU reset that never ends: reading /sys never returns."""
    node.driver()
    node.tool("amd-smi", "sleep 10000")
    node.hung = ("gpu_memory", "gpu_errors", "gpu_processes", "gpu_links")
    used = node.top / "sys/bus/pci/drivers/amdgpu/0000:07:00.0/mem_info_vram_used"
    used.unlink()
    os.mkfifo(used)


def test_a_driver_whose_files_block_fails(node: Node) -> None:
    let_the_driver_hang(node)
    rows = node.check(PREFLIGHT_CHECK_S=1).rows
    assert rows["gpu_count"].verdict == rows["data"].verdict == "pass"
    for name in node.hung:
        assert rows[name].line == "fail: no answer within 1 s"
        assert "reboot" in rows[name].remedy
    see_them_go(node.top)


def test_a_hung_engine_costs_only_its_own_check(node: Node) -> None:
    node.tool("docker", "sleep 10000")
    rows = node.check(PREFLIGHT_CHECK_S=4).rows
    assert rows["leftovers"].line == "warn: the container engine does not list its containers"
    assert "docker ps" in rows["leftovers"].remedy
    assert {rows[name].verdict for name in NAMES if name != "leftovers"} <= HARMLESS


def started(node: Node, seconds: int) -> Checks:
    """Start checks with a tool that hangs, ignores TERM, and keeps its descriptors open."""
    hangs = node.top / "hangs"
    node.tool("amd-smi", f"trap '' TERM; : >{hangs}; sleep 10000 & while :; do sleep 10000; done")
    node.settings["PREFLIGHT_CHECK_S"] = seconds
    with node.environment():
        checks = Checks(node.real(), node.engine, alone=True)
    # On a busy machine the tool's time can be over before its first line.
    until(lambda: hangs.exists() or select.select([checks], [], [], 0)[0])
    return checks


def test_checks_that_are_no_longer_wanted_are_ended(node: Node) -> None:
    checks = started(node, 600)
    checks.end()
    assert checks.done
    see_them_go(node.top)


def test_time_while_a_node_is_suspended_does_not_count(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`scontrol suspend` stops the checks, too."""
    clock = iter((1000, 1001, 1003, 1103, 1104, 1108, 1112))
    monkeypatch.setattr(agent_checks, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    checks = started(node, 10)
    assert [checks.rest_s() for _ in range(6)] == [9, 7, 7, 6, 6, 6]
    checks.end()
    see_them_go(node.top)


def start_and_wait(node: Node) -> None:
    os.chdir(node.top)  # see_them_go knows the jobs by it
    started(node, 1)
    (node.top / "waits").touch()
    signal.pause()


def test_checks_end_by_themselves_when_nobody_is_left_to_end_them(node: Node) -> None:
    let_the_driver_hang(node)
    agent = multiprocessing.get_context("forkserver").Process(target=start_and_wait, args=(node,))
    agent.start()
    until(lambda: (node.top / "waits").exists() or agent.exitcode is not None)
    assert agent.exitcode is None
    agent.kill()
    agent.join()
    see_them_go(node.top)


def test_checks_hold_nothing_of_the_agent_open(node: Node) -> None:
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    checks = started(node, 600)
    os.close(theirs)
    assert os.read(ours, 1) == b""
    os.close(ours)
    checks.end()
    see_them_go(node.top)


def test_a_check_that_fails_in_an_unforeseen_way_costs_its_own_verdict(node: Node) -> None:
    answer = node.check(IMAGE_ID=5)
    row = answer.rows["image"]
    assert row.line == "fail: the check ended without an answer" and "hold.log" in row.remedy
    assert "check image: TypeError" in answer.errors and "Traceback" not in answer.errors
    assert {row.verdict for name, row in answer.rows.items() if name != "image"} <= HARMLESS


# ---- switched off, softened ----


def test_skipped_and_softened_checks(node: Node) -> None:
    node.limits(nofile="1024", memlock="65536")
    rows = node.check(
        ENGINE_STATE="silent",
        IMAGE_ID="",
        PREFLIGHT_SKIP=["limits", "gpu_count", "leftovers"],
        PREFLIGHT_WARN=["engine"],
    ).rows
    assert {rows[name].verdict for name in ("limits", "gpu_count", "leftovers")} == {"skip"}
    assert rows["limits"].text == "switched off (preflight.skip)"
    assert rows["engine"].line == "warn: the container engine (docker) does not answer"


def test_a_softened_check_that_hangs_is_a_warning(node: Node) -> None:
    let_the_driver_hang(node)
    row = node.check(PREFLIGHT_CHECK_S=1, PREFLIGHT_WARN=["gpu_memory"]).rows["gpu_memory"]
    assert row.line == "warn: no answer within 1 s"


# ---- root ----


def root_row(node: Node, **settings: Any) -> str:
    """The verdict and text of the check in this process."""
    node.settings |= settings
    with node.environment():
        _, verdict, text, remedy = next(iter(root(node.real(), node.engine)))
    assert bool(remedy) == (verdict == "fail")
    return f"{verdict}: {text}"


def test_root_is_needed_for_settings_and_caches(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {"RUNTIME_TUNABLES": 1, "CLEAR_CACHES": 1, "ORCH_TUNABLES_ROOT": ""}
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    who = "jobs run as user 65534, and the site has no `sudo`"
    both = "host settings and dropping caches"
    assert root_row(node, **needs) == f"fail: root is needed for {both}; {who}"
    needs["RUNTIME_TUNABLES"] = 0
    assert root_row(node, **needs) == f"fail: root is needed for dropping caches; {who}"
    needs["CLEAR_CACHES"] = 0
    assert root_row(node, **needs) == "skip: not needed (tunables, clear_caches)"
    needs["CLEAR_CACHES"] = 1
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert root_row(node, **needs) == "pass: for dropping caches"


def test_the_sites_sudo_is_tried(node: Node) -> None:
    needs = {"RUNTIME_TUNABLES": 1, "CLEAR_CACHES": 0, "SUDO": [f"{node.top}/bin/sudo", "-n"]}
    node.tool("sudo", 'echo "sudo: a password is required" >&2; exit 1')
    reply = f"`{node.top}/bin/sudo -n`: sudo: a password is required"
    assert root_row(node, **needs) == f"fail: root is needed for host settings; {reply}"
    node.tool("sudo", "echo 0")
    assert root_row(node, **needs) == "pass: for host settings"


# ---- engine, image, clock, versions ----


@pytest.mark.parametrize(
    ("told", "settings", "line", "remedy"),
    [
        ("[name=seccomp,profile=builtin name=cgroupns]", {}, "pass: docker answers", ""),
        (
            "[name=seccomp,profile=builtin name=userns name=cgroupns]",
            {},
            "fail: docker maps users (userns-remap)",
            "--userns=host",
        ),
        (
            "[name=seccomp,profile=builtin name=userns]",
            {"CONTAINER_OPTIONS": ["--userns=host"]},
            "pass: docker answers",
            "",
        ),
        (
            "[name=seccomp,profile=builtin name=rootless]",
            {},
            "warn: docker is rootless, which is not supported",
            "container.command, such as [sudo, -n, docker]",
        ),
        ("true", {"ENGINE": "podman"}, "warn: podman is rootless", "[sudo, -n, podman]"),
        ("false", {"ENGINE": "podman"}, "pass: podman answers", ""),
    ],
)
def test_whose_root_containers_have(
    node: Node, told: str, settings: dict[str, Any], line: str, remedy: str
) -> None:
    engine = settings.get("ENGINE", "docker")
    node.tool(engine, f"[[ $1 == info ]] && echo {shlex.quote(told)}")
    row = node.check(**settings, ENGINE_COMMAND=[engine]).rows["engine"]
    assert row.line.startswith(line) and remedy in row.remedy
    node.alone = False
    row = node.check(**settings, ENGINE_COMMAND=[engine]).rows["engine"]
    assert row.line == f"pass: {engine} answers"  # the container's shell sees it


def test_a_tmp_that_is_private_to_jobs_is_named(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mounts of this job and of the daemon, which is this process: it listens at the socket."""
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(f"{short}/docker.sock")
        daemon.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{short}/docker.sock")
        root = "22 1 8:1 / / rw - ext4 /dev/sda1 rw"
        private = f"90 22 8:1 /scratch/7 {node.top} rw - ext4 /dev/sda1 rw"
        node.write(f"proc/{os.getpid()}/mountinfo", f"{root}\n")
        node.write("proc/self/mountinfo", f"{root}\n23 22 0:5 / /proc rw - proc proc rw\n")
        with node.environment():
            (before,) = engine(node.real(), node.engine)
            node.write("proc/self/mountinfo", f"{root}\n{private}\n")
            (_, verdict, text, remedy) = next(engine(node.real(), node.engine))
    assert before[1:3] == ("pass", "docker answers")
    assert text == f"the engine does not see {node.top}/tmp of the job: it is private to jobs"
    assert verdict == "fail" and "container.channel_dir" in remedy


def test_silent_engine(node: Node) -> None:
    rows = node.check(ENGINE_STATE="silent", IMAGE_ID="").rows
    assert rows["engine"].line == "fail: the container engine (docker) does not answer"
    assert "systemctl start docker" in rows["engine"].remedy
    assert rows["image"].verdict == "skip"


@pytest.mark.parametrize(
    ("pull", "line"),
    [
        ("never", "fail: image rocm/training:6.0 is not on this node"),
        ("missing", "warn: image rocm/training:6.0 is not on this node yet"),
    ],
)
def test_missing_image(node: Node, pull: str, line: str) -> None:
    assert node.check(IMAGE_ID="", PULL=pull).rows["image"].line == line


def test_a_missing_image_that_no_registry_has_is_built(node: Node) -> None:
    for pull in ("never", "missing"):
        row = node.check(IMAGE_ID="", PULL=pull, BUILT="build it from a tree").rows["image"]
        assert row.remedy == "build it from a tree"


def test_without_containers(node: Node) -> None:
    rows = node.check(ENGINE="none", ENGINE_STATE="none", IMAGE_ID="").rows
    assert (rows["engine"].verdict, rows["image"].verdict) == ("skip", "skip")


def test_time_source(node: Node) -> None:
    assert node.check().rows["clock"].text == "time source unknown"
    (node.top / "run/systemd/timesync").mkdir(parents=True)
    assert node.check().rows["clock"].text == "not synchronised yet (systemd-timesyncd)"
    node.write("run/systemd/timesync/synchronized", "")
    row = node.check().rows["clock"]
    assert row.line == "pass: synchronised (systemd-timesyncd)"


def test_versions(node: Node) -> None:
    node.write("proc/sys/kernel/osrelease", "5.15.0-164-generic\n")
    node.write(AMDGPU, "6.10.5\n")
    node.write(ROCM, "6.3.1-48\n")
    row = node.check().rows["versions"]
    assert row.line == "pass: kernel 5.15.0-164-generic, amdgpu 6.10.5, ROCm 6.3.1-48"


NIC = "sys/class/infiniband/rdma0/fw_ver"


OLD_NIC = {NIC: "1.117.5-a-77", NIC.replace("0", "1"): "1.117.5-a-56"}
AMDGPU = "sys/module/amdgpu/version"
ROCM = "opt/rocm/.info/version"
IMAGE = "rocm/training:6.0"


@pytest.mark.parametrize(
    ("requires", "files", "line"),
    [
        ("driver=6.12.12", {AMDGPU: "6.12.12"}, "pass: amdgpu 6.12.12"),
        ("driver=6.12.12", {AMDGPU: "6.14.1"}, "pass: amdgpu 6.14.1"),
        ("driver=6.12.12", {AMDGPU: "6.8.5"},
         f"fail: driver 6.8.5: {IMAGE} needs 6.12.12 or newer"),
        ("driver=6.12.12", {},
         f"warn: driver: the host does not report it, {IMAGE} needs 6.12.12 or newer"),
        ("rocm=7.2.2", {ROCM: "7.2.2-81"}, "pass: ROCm 7.2.2-81"),
        ("rocm=7.2.2", {ROCM: "7.2.1-12"}, f"warn: rocm 7.2.1-12: {IMAGE} needs 7.2.2 or newer"),
        ("rocm=7.2.2", {}, "pass: "),
        ("nic_firmware=1.117.5-a-77", {NIC: "1.117.5-a-77"}, "pass: NIC firmware 1.117.5-a-77"),
        ("nic_firmware=1.117.5-a-77", OLD_NIC,
         f"fail: nic firmware 1.117.5-a-56: {IMAGE} needs 1.117.5-a-77 or newer"),
        ("gfx=gfx942 gfx950", {}, "pass: "),
        ("gfx=gfx950", {}, "fail: the image is built for gfx950, "),
    ],
)  # fmt: skip
def test_what_the_image_needs_of_a_host(
    node: Node, requires: str, files: dict[str, str], line: str
) -> None:
    for name, value in files.items():
        node.write(name, f"{value}\n")
    row = node.check(REQUIRES=[requires], GPU_GFX="gfx942").rows["versions"]
    assert row.line.startswith(line)
    assert bool(row.remedy) == (row.verdict != "pass")


def test_a_failure_is_told_before_what_the_host_does_not_tell(node: Node) -> None:
    node.write(AMDGPU, "6.8.5\n")
    row = node.check(REQUIRES=["driver=6.12", "nic_firmware=1.2"]).rows["versions"]
    assert row.line.startswith("fail: driver 6.8.5: ") and "; nic firmware: the host" in row.text
    assert row.remedy.startswith("install a newer amdgpu driver, or name another image; ")


# ---- limits ----


MEMLOCK = "locked memory is limited to 8192 KiB, RDMA needs unlimited"
ULIMITS = ["--ulimit", "memlock=-1:-1", "--ulimit=nofile=1048576:1048576"]


@pytest.mark.parametrize(
    ("fabric", "options", "line"),
    [
        ("infiniband", [], f"warn: {MEMLOCK}, open files are limited to 1024"),
        ("infiniband", ULIMITS, "pass: memlock unlimited, nofile 1048576"),
        ("none", [], "warn: open files are limited to 1024"),
    ],
    ids=["of the host", "of the container", "without RDMA"],
)
def test_limits(node: Node, fabric: str, options: list[str], line: str) -> None:
    node.limits(nofile="1024", memlock="8388608")
    row = node.check(FABRIC=fabric, CONTAINER_OPTIONS=options).rows["limits"]
    assert row.line == line
    assert ("LimitMEMLOCK" in row.remedy) == (MEMLOCK in line)
    assert ("LimitNOFILE" in row.remedy) == ("open files" in line)


# ---- storage ----


def test_log_folder(node: Node) -> None:
    row = node.check().rows["log_dir"]
    assert row.line == f"pass: {node.top}/logs: readable and writable"
    assert (node.top / "logs/.marker.n1").read_text() == "job 7\n"


WRITE_LATE = """
import ctypes, os, sys
libc, marker = ctypes.CDLL(None), os.fsencode(sys.argv[1])
watch = libc.inotify_init()
assert libc.inotify_add_watch(watch, marker, 0x10) > 0  # IN_CLOSE_NOWRITE
print("ready", flush=True)
os.read(watch, 4096)
with open(marker, "w") as file:
    file.write("job 7\\n")
"""
"""Writes a file anew after it has been read once."""


def test_a_marker_that_comes_late_is_seen(node: Node) -> None:
    node.write("logs/.marker", "job 6\n")
    argv = [sys.executable, "-c", WRITE_LATE, node.top / "logs/.marker"]
    late = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert late.stdout is not None and late.stdout.readline() == "ready\n"
    row = node.check(PREFLIGHT_CHECK_S=600).rows["log_dir"]
    said = rf"pass: {node.top}/logs: readable and writable; the batch host's file appeared after \d+\.\d s"
    assert re.fullmatch(said, row.line)
    assert late.wait(LIMIT_S) == 0
    late.stdout.close()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("older", "an older marker is there"),
        ("none", "the marker of the batch host is missing"),
        ("folder", "the folder is not on this node"),
    ],
)
def test_a_marker_that_is_never_seen(node: Node, change: str, text: str) -> None:
    if change == "older":
        node.write("logs/.marker", "job 6\n")
    else:
        (node.top / "logs/.marker").unlink()
    if change == "folder":
        (node.top / "logs").rmdir()
    row = node.check(PREFLIGHT_CHECK_S=1).rows["log_dir"]
    assert row.verdict == "fail" and re.search(rf"logs: {text} after \d+ s", row.text)
    assert "mount" in row.remedy


def test_a_log_folder_that_takes_nothing(node: Node) -> None:
    (node.top / "logs/.marker.n1").mkdir()
    row = node.check().rows["log_dir"]
    assert (
        row.verdict == "fail"
        and row.text.endswith("logs: Is a directory")
        and "quota" in row.remedy
    )


def test_a_link_of_another_user_in_the_log_folder_is_not_followed(node: Node) -> None:
    foreign = node.write("foreign", "text\n")
    (node.top / "logs/.marker.n1").symlink_to(foreign)
    assert node.check().rows["log_dir"].verdict == "pass"
    assert foreign.read_text() == "text\n"
    assert (node.top / "logs/.marker.n1").read_text() == "job 7\n"


def test_a_log_folder_without_marker_is_tried(node: Node) -> None:
    row = node.check(ORCH_MARKER="", ORCH_MARKER_TEXT="").rows["log_dir"]
    assert row.verdict == "pass" and row.text.endswith("is writable")
    assert sorted(path.name for path in (node.top / "logs").iterdir()) == [".marker"]


def test_data_value_is_that_of_the_content(node: Node) -> None:
    first = node.check().same
    assert len(first) == 1 and first[0].startswith("data=") and len(first[0]) == len("data=") + 32
    assert node.check().same == first
    (node.top / "data/train").touch()
    assert node.check().same == first
    node.write("data/train/part-0.tar", "other samples")
    second = node.check().same
    assert second != first
    node.write("data/train/part-1.tar", "")
    assert node.check().same not in (first, second)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("", "fail: DATADIR is not set"),
        ("/no/such/folder", "fail: DATADIR: /no/such/folder does not exist on this node"),
        ("{top}/run", "warn: {top}/run: empty"),
    ],
)
def test_missing_data(node: Node, value: str, line: str) -> None:
    row = node.check(DATADIR=value.format(top=node.top)).rows["data"]
    assert row.line == line.format(top=node.top) and row.remedy


def test_results_and_logs_are_no_data(node: Node) -> None:
    answer = node.check(MOUNTS=["LOGDIR\t.\t/logs\trw", "DATADIR\t.\t/results\trw"])
    assert (answer.rows["data"].verdict, answer.same) == ("skip", [])


def test_free_space(node: Node) -> None:
    rows = node.check(PREFLIGHT_FREE_GB=1).rows
    assert rows["free_space"].text.startswith(("free: ", f"{node.top}"))
    row = node.check(PREFLIGHT_FREE_GB=10_000_000).rows["free_space"]
    assert row.verdict == "fail" and "at least 10000000 needed" in row.text
    assert "free_gb" in row.remedy


LAYERS = {"layers": [{"size": 12 * 10**9}, {"size": 8 * 10**9}]}
INDEX = {
    "manifests": [
        {"digest": "sha256:aa", "platform": {"architecture": "arm64", "os": "linux"}},
        {"digest": "sha256:bb", "platform": {"architecture": "amd64", "os": "linux"}},
    ]
}


def registry(node: Node, **manifests: object) -> None:
    """A docker that knows these manifests, by the end of the reference."""
    cases = "".join(
        f"*{end}) cat {node.write(f'manifest-{end}', json.dumps(text))} ;; "
        for end, text in manifests.items()
    )
    node.tool(
        "docker",
        f'echo "$*" >>{node.top}/asked\n'
        f'[ "$1 $2" != "manifest inspect" ] || case $3 in {cases} *) exit 1 ;; esac',
    )


FULL = "/proc"
"""A file system without free space."""


@pytest.mark.parametrize(
    ("manifests", "image_gb", "source"),
    [
        ({"6.0": LAYERS}, 10, "80.0 needed to pull rocm/training:6.0 (20.0 GB compressed, by the registry, times 4)"),
        ({"6.0": INDEX, "sha256:bb": LAYERS}, 0, "(20.0 GB compressed, by the registry, times 4)"),
        ({}, 10, "40.0 needed to pull rocm/training:6.0 (10.0 GB compressed, by the round's image_gb, times 4)"),
        ({"6.0": ["no", "manifest"]}, 10, "by the round's image_gb"),
        ({"6.0": {"layers": [{"size": "9"}, {"size": -1}, 7, {}]}}, 10, "by the round's image_gb"),
    ],
)  # fmt: skip
def test_an_image_about_to_be_pulled_needs_room(
    node: Node, manifests: dict[str, object], image_gb: int, source: str
) -> None:
    registry(node, **manifests)
    missing: dict[str, object] = {"IMAGE_ID": "", "PULL": "missing", "IMAGE_GB": image_gb}
    row = node.check(**missing, ORCH_ENGINE_STORAGE=FULL).rows["free_space"]
    assert row.verdict == "fail" and row.text.startswith(f"{FULL}: 0.0 GB free, ")
    assert source in row.text
    assert "preflight.warn" in row.remedy


def test_an_image_that_fits_is_there_or_unknown_needs_no_room(node: Node) -> None:
    registry(node, **{"6.0": {"layers": [{"size": 1 << 20}]}})
    missing: dict[str, object] = {"IMAGE_ID": "", "PULL": "missing", "IMAGE_GB": 10**6}
    assert node.check(**missing).rows["free_space"].verdict == "pass"  # 4 MB, by the registry
    (node.top / "asked").unlink(missing_ok=True)
    for settings in ({"PULL": "never"}, {"ENGINE_STATE": "silent"}, {"IMAGE_ID": "sha256:1"}):
        row = node.check(**{**missing, **settings}, ORCH_ENGINE_STORAGE=FULL).rows["free_space"]
        assert row.verdict == "pass"
    assert "manifest" not in (node.top / "asked").read_text()
    registry(node)
    unknown = node.check(**{**missing, "IMAGE_GB": 0}, ENGINE_STATE="up")
    assert unknown.rows["free_space"].verdict == "pass"


@pytest.mark.parametrize(
    ("told", "folder"),
    [
        ('/proc\n[["Backing Filesystem","extfs"]]', "/proc"),
        ('/elsewhere\n[["driver-type","io.containerd.snapshotter.v1"]]', "/var/lib/containerd"),
        ("permission denied", ""),
    ],
)
def test_the_engine_names_its_storage(node: Node, told: str, folder: str) -> None:
    node.tool("docker", f"cat {node.write('told', told)}")
    del node.settings["ORCH_ENGINE_STORAGE"]
    with node.environment():
        assert space.storage(node.real()) == folder


# ---- RDMA ----


def test_rdma_is_left_out_where_there_is_none(node: Node) -> None:
    assert node.check(FABRIC="none").rows["rdma"].verdict == "skip"
    assert node.check(FABRIC="infiniband", NETWORK_RDMA="off").rows["rdma"].verdict == "skip"
    one_node = node.check(FABRIC="infiniband", NETWORK_RDMA="required", NNODES=1)
    assert one_node.rows["rdma"].verdict == "skip"


def test_no_rdma_device(node: Node) -> None:
    row = node.check(FABRIC="infiniband").rows["rdma"]
    assert row.line == "warn: no RDMA device, the fabric of MI300X_2x8x1 is infiniband"


def test_rdma_ports(node: Node) -> None:
    node.port("mlx5_0")
    node.port("mlx5_1")
    row = node.check(FABRIC="infiniband").rows["rdma"]
    assert row.line == "pass: 2 ports up at 400 Gb/s"
    node.port("mlx5_1", state="1: DOWN")
    row = node.check().rows["rdma"]
    assert row.line == "fail: mlx5_1: the port is DOWN (physical state LinkUp)"
    assert "cable" in row.remedy
    node.port("mlx5_1", rate="200 Gb/sec (4X HDR)")
    assert node.check().rows["rdma"].text == "mlx5_1: 200 Gb/s, others 400"
    node.port("mlx5_0", rate="200 Gb/sec (4X HDR)")
    row = node.check().rows["rdma"]
    assert row.line == "fail: RDMA devices run at 200 Gb/s, the fabric of MI300X_2x8x1 has 400"


# ---- leftovers ----


def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def hold(node: Node, job: str, pid: int, start: str = "") -> None:
    channel = node.channel(job)
    channel.mkdir(parents=True)
    (channel / "hold_pid").write_text(f"{pid} {start}\n")


def start_time() -> str:
    return Path("/proc/self/stat").read_text().rsplit(") ", 1)[1].split()[19]


def containers(node: Node, listed: str, inspected: str = "", user: int = os.getuid()) -> None:
    """A docker that lists these containers, and records those that it has to remove."""
    node.write("listed", listed)
    node.write("inspected", inspected)
    for line in listed.splitlines():
        identity, job, name, _ = line.split("|")
        node.write(f"folder-{identity}", f"{node.top}/tmp/orch-{user}-{job}-{name}\n")
    node.tool(
        "docker",
        f"""cd {node.top}; case $1 in
        ps) cat listed ;;
        inspect) if [[ $3 == *Mounts* ]]; then cat "folder-$4"; else cat inspected; fi ;;
        rm) echo "$3" >>removed ;;
    esac""",
    )


def removed(node: Node) -> list[str]:
    path = node.top / "removed"
    return sorted(path.read_text().split()) if path.exists() else []


def left(node: Node, jobs: str) -> str:
    """Those of `jobs` with a channel."""
    return "".join(job for job in jobs if node.channel(job).exists())


REMOVED = "pass: removed what an ended job left: "
IN_USE = "warn: in use by another job of orchestrator: "
NOT_OURS = "warn: of somebody else, left alone: "
OUR_CONTAINER = "aaa|5|n1|orch-5-n1-1\n"


def test_folders_of_dead_holders_are_removed(node: Node) -> None:
    hold(node, "5", dead_pid())
    hold(node, "6", os.getpid())
    hold(node, "7", dead_pid())
    of_others = node.write("tmp/orch-999999-5-n1/hold_pid", f"{dead_pid()}\n")
    of_this_job = node.write(f"tmp/orch-{os.getuid()}-7-n2/hold_pid", f"{dead_pid()}\n")
    assert node.check().rows["leftovers"].line == f"{REMOVED}orch-{os.getuid()}-5-n1"
    assert left(node, "567") == "67" and of_others.exists() and of_this_job.exists()


def test_shared_memory_of_dead_holders_is_removed(node: Node) -> None:
    hold(node, "6", os.getpid())
    mine = [
        node.write(f"dev/shm/orch-{os.getuid()}-{job}-n1{end}", "x")
        for job, end in (("5", ".ring"), ("6", ""), ("7", ""))
    ]
    other = node.write("dev/shm/nccl-abcdef", "x")
    row = node.check().rows["leftovers"]
    assert row.verdict == "pass" and "5-n1.ring" in row.text
    assert [path.exists() for path in mine] == [False, True, True] and other.exists()


@pytest.mark.parametrize(
    ("squeue", "ended"),
    [
        ('echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1', True),
        ("echo COMPLETED", True),
        ("exit 0", True),
        ("echo RUNNING", False),
        ("echo COMPLETING", False),
        ('echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1', False),
    ],
)
def test_a_container_of_an_ended_job_is_removed(node: Node, squeue: str, ended: bool) -> None:
    node.tool("squeue", squeue)
    containers(node, f"{OUR_CONTAINER}bbb|7|n1|orch-7-n1-1\nccc|5|n2|orch-5-n2-1\n")
    line = node.check().rows["leftovers"].line
    assert line == f"{REMOVED if ended else IN_USE}container orch-5-n1-1"
    assert removed(node) == (["aaa"] if ended else [])


def test_a_container_with_a_living_holder_is_left_alone(node: Node) -> None:
    node.tool("squeue", "exit 0")
    hold(node, "5", os.getpid())
    containers(node, OUR_CONTAINER)
    assert node.check().rows["leftovers"].verdict == "warn"
    assert removed(node) == []


def test_a_container_of_another_user_is_left_alone(node: Node) -> None:
    node.tool("squeue", "exit 0")
    containers(node, OUR_CONTAINER, user=4242)
    line = node.check().rows["leftovers"].line
    assert line == f"{NOT_OURS}container orch-5-n1-1 of another user's job 5"
    assert removed(node) == []


def test_containers_of_other_programs_are_only_reported(node: Node) -> None:
    devices = "/trainer false /dev/kfd /dev/dri \n/web false \n"
    containers(node, "aaa|||trainer\nbbb|||web\n", devices)
    assert node.check().rows["leftovers"].line == f"{NOT_OURS}container trainer"
    assert removed(node) == []


def test_a_container_of_a_local_job(node: Node) -> None:
    jobs = {
        "aaa": f"local-{dead_pid()}-123456",
        "bbb": f"local-{os.getpid()}-{start_time()}",
        "ccc": f"local-{os.getpid()}-1234567",
    }
    containers(node, "".join(f"{key}|{job}|n1|{key}\n" for key, job in jobs.items()))
    assert node.check().rows["leftovers"].line == f"{IN_USE}container bbb"
    assert removed(node) == ["aaa", "ccc"]


def test_a_container_that_cannot_be_removed(node: Node) -> None:
    node.tool("squeue", "exit 0")
    containers(node, OUR_CONTAINER)
    docker = node.top / "bin/docker"
    docker.write_text(docker.read_text().replace('echo "$3" >>removed', "exit 1"))
    row = node.check().rows["leftovers"]
    assert row.line == "fail: of an earlier job, and could not be removed: container orch-5-n1-1"
    assert row.remedy == "remove them by hand on this node"


def test_a_recycled_pid_is_no_holder(node: Node) -> None:
    hold(node, "5", os.getpid(), f"{start_time()}1")
    hold(node, "6", os.getpid(), start_time())
    for job, text in (("8", "junk"), ("9", "")):
        node.write(f"tmp/{node.channel(job).name}/hold_pid", f"{text}\n")
    outside = node.write("outside/file", "x")
    (node.channel("5") / "deep/er").mkdir(parents=True)
    (node.channel("5") / "deep/er/file").write_text("x")
    (node.channel("5") / "deep/link").symlink_to(outside.parent)
    (node.channel("5") / "deep/broken").symlink_to("nowhere")
    line = node.check().rows["leftovers"].line
    assert line == f"{REMOVED}{node.channel('5').name}, {node.channel('8').name}"
    assert left(node, "5689") == "69" and outside.exists()


def test_a_folder_that_its_owner_made_again_stays(node: Node) -> None:
    hold(node, "5", os.getpid())
    remove_folder(str(node.channel("5")))
    assert (node.channel("5") / "hold_pid").exists()
    (node.channel("5") / "hold_pid").write_text(f"{dead_pid()}\n")
    remove_folder(str(node.channel("5")))
    assert left(node, "5") == ""


def test_a_folder_without_a_holder_is_removed_after_a_day(node: Node) -> None:
    for job, age_s in {"5": 2 * 86400, "6": 0, "7": 2 * 86400}.items():
        node.write(f"tmp/{node.channel(job).name}/results/file", "x")
        make_older(node.channel(job), age_s)
    assert node.check().rows["leftovers"].line == f"{REMOVED}{node.channel('5').name}"
    assert left(node, "567") == "67"


def test_an_empty_folder_is_removed_at_once(node: Node) -> None:
    """A removal was killed after hold_pid."""
    node.channel("5").mkdir()
    assert node.check().rows["leftovers"].line == f"{REMOVED}{node.channel('5').name}"


@pytest.mark.parametrize("job", ["5", "7"])
@pytest.mark.parametrize("call", ["os.mkdir", "write_bytes", "os.rename"])
def test_a_folder_whose_maker_was_killed_is_removed_at_once(
    node: Node, call: str, job: str
) -> None:
    """Also that of an earlier agent of this node and job, which is 7."""
    program = f"""
import os, signal, sys
from orchestrator.onnode.agent import leftovers
real = leftovers.{call}
def killed(*arguments, **options):
    if "{call}" != "os.rename":
        real(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
leftovers.{call} = killed
leftovers.make_folder(sys.argv[1])
"""
    done = subprocess.run([sys.executable, "-c", program, node.channel(job)], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    [made] = (node.top / "tmp").iterdir()
    assert made.name.startswith(f"{node.channel(job).name}.new.")
    with node.environment():
        open_channel(node.real())
    assert [path.name for path in (node.top / "tmp").iterdir()] == [node.channel("7").name]


def test_a_folder_in_the_making_stays(node: Node) -> None:
    name = f"{node.channel('5').name}.new.{os.getpid()}.{start_time()}"
    (node.top / "tmp" / name).mkdir()
    assert "removed" not in node.check().rows["leftovers"].line
    remove_folder(str(node.top / "tmp" / name))
    assert (node.top / "tmp" / name).is_dir()


def test_a_full_file_system_keeps_no_folder(node: Node) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with node.environment():
        real = node.real()
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError):
            open_channel(real)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((node.top / "tmp").iterdir()) == []
    open_channel(real)
    assert (node.channel("7") / "hold_pid").exists()


def test_pipes_of_earlier_versions(node: Node) -> None:
    for name, age_s in (("orch-pipe.old", 2 * 86400), ("orch-pipe.new", 0), ("pipe", 2 * 86400)):
        os.mkfifo(node.top / "tmp" / name)
        make_older(node.top / "tmp" / name, age_s)
    assert node.check().rows["leftovers"].line == f"{REMOVED}orch-pipe.old"
    assert {path.name for path in (node.top / "tmp").iterdir()} == {"orch-pipe.new", "pipe"}
