"""The preflight command: which nodes are asked, how, and what is told of their answers. A small script is the bundle's."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import outputs
import pytest
from controller_parts import Commands
from processes import kill_all, see_them_go
from sites import write_site
from tars import tar_of
from until import LIMIT_S, until

from orchestrator.container.image import Image
from orchestrator.container.store import save
from orchestrator.errors import ExitCode
from orchestrator.evidence.checks import judge, parse_table
from orchestrator.nodes.names import NamedNode
from orchestrator.nodes.transport import NodeAnswer, NodeCommand
from orchestrator.onnode import loader
from orchestrator.onnode.policy.verdict import Row

# Says of every node that is fit, except of those called `bad...` and `warm...`; silent nodes say nothing.
SCRIPT = r"""#!/usr/bin/env bash
nodes=here table="" judge=0
echo "$*" >>"$(dirname "$0")/../../calls"
while (($#)); do
  case $1 in --tsv) table=$2; shift ;; --nodes) nodes=$2; shift ;; --judge) judge=1 ;; --deep) deep=1 ;; esac
  shift
done
[[ ! -e "$(dirname "$0")/../../hang" ]] || exec sleep 60
[[ ! -e "$(dirname "$0")/../../broken" ]] || { echo "scontrol: no such thing" >&2; exit 3; }
{
  printf 'node\tcheck\tverdict\tms\ttext\tremedy\n'
  if ((judge)); then
    while IFS=$'\t' read -r word node detail; do
      [[ $word == check ]] || continue
      IFS=$'\x1f' read -r name verdict ms text remedy <<<"$detail"
      printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$node" "$name" "$verdict" "$ms" "$text" "$remedy"
    done
  else
    for node in ${nodes//,/ }; do
      [[ $node != silent* ]] || continue
      printf '%s\tengine\tpass\t3\tdocker 27\t\n' "$node"
      [[ $node != bad* ]] || printf '%s\tgpu_count\tfail\t9\t7 of 8 GPUs\tcheck dmesg\n' "$node"
      [[ $node != warm* ]] || printf '%s\tclock\twarn\t9\t3 s off\tsynchronise it\n' "$node"
    done
    [[ -z ${deep:-} ]] || for node in ${nodes//,/ }; do
      case $node in
        bad*) ;;
        lean*) printf '%s\tdeep\tskip\t9\tno torch in the image\t\n' "$node" ;;
        *) printf '%s\tdeep\tpass\t900\tbus bandwidth 312.4 GB/s\t\n' "$node" ;;
      esac
    done
  fi
} >"$table"
"""
NODE = r"""
import os, subprocess, sys, time
env = os.environ
def say(word, *fields):
    print(word, env["ORCH_NODE"], "\x1f".join(fields), sep="\t")
def main(program, part, *words):
    if part == "preflight":
        script = os.path.dirname(os.path.dirname(program[1])) + "/bundle/preflight.sh"
        return subprocess.run(["bash", script, *words]).returncode
    with open(env["ORCH_MARKER"]) as marker:
        if words != ("check",) or not os.path.isdir(env["ORCH_SET_DIR"]) or marker.read().strip() != env["ORCH_MARKER_TEXT"]:
            return 1
    say("check", "engine", "pass", "4", "docker 27", "")
    if env["ORCH_NODE"].startswith("bad"):
        say("check", "image", "fail", "4", "no image", "pull it")
    say("checked", str(time.time_ns() // 10**6))
    return 0
"""
BANDWIDTH = "bus bandwidth 312.4 GB/s"
FILES = {
    "lib/loader.py": Path(loader.__file__).read_bytes(),
    "lib/__main__.py": NODE.encode(),
    "preflight.sh": SCRIPT.encode(),
    "manifest.json": b"{}",
}
"""The bundle: its program starts the script above, in place of the checks."""
# What salloc does with its command; its own options go to a file.
SALLOC = 'echo "salloc: Granted job allocation 7" >&2; while [[ $1 != -- ]]; do shift; done; shift; SLURM_JOB_ID=7 exec "$@"'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site file beside its log directory `sets`; the bundle is the script above."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    (tmp_path / "sets").mkdir()
    (tmp_path / "site.yaml").write_text(
        f"kind: site\npartition: gpu\nlog_dir: {tmp_path}/sets\nsbatch: ['--mem=0', '--requeue']\n"
    )
    monkeypatch.setattr("orchestrator.render.render_bundle", lambda entry, nexp: FILES)
    return tmp_path


def sinfo(fake: Callable[[str, str], Path], *nodes: str) -> Path:
    """`name state [reason]` each"""
    lines = [node.split(" ", 2) for node in nodes]
    text = "".join(
        "\x1f".join((name, state, "gpu*", (rest or ["none"])[0])) + "\n"
        for name, state, *rest in lines
    )
    return fake("sinfo", f"cat <<'END'\n{text}END")


def preflight(cli: Commands, place: Path, *arguments: str | Path) -> Commands:
    return cli("preflight", "MI325X_08x08x32", "flux1", "--site", place / "site.yaml", *arguments)


def calls(place: Path) -> list[str]:
    return (place / "sets/calls").read_text().splitlines()


def left(place: Path) -> list[str]:
    return [path.name for path in (place / "sets").iterdir() if path.name.startswith(".preflight")]


def test_idle_nodes_are_checked_in_a_short_allocation(
    cli: Commands, place: Path, fake: Callable[[str, str], Path]
) -> None:
    sinfo(
        fake,
        "n1 idle",
        "bad2 idle",
        "n3 mixed",
        "n4 drained bad fan",
        "warm5 idle",
        "silent6 idle",
        "n7 down*",
    )
    salloc = fake("salloc", SALLOC)
    excluded = place / "bad.txt"
    preflight(cli, place, "--exclude-file", excluded)
    assert cli.code == ExitCode.UNKNOWN, "silent6 did not answer"
    for line in (
        r"n1 +pass$",
        r"bad2 +fail +gpu_count: 7 of 8 GPUs; check dmesg +srun .*--nodelist=bad2 bash -c 'sudo dmesg ",
        r"n3 +untested +mixed$",
        r"n4 +untested +drained: bad fan$",
        r"warm5 +warn +clock: 3 s off; synchronise it +srun --partition=gpu --nodelist=warm5 ",
        r"silent6 +untested +no answer$",
        r"n7 +untested +down \(does not answer\)$",
        r"tested 3 of 7 nodes: 1 fit, 1 fit with warnings, 1 failed$",
        r"exclude: bad2,silent6$",
    ):
        assert re.search(f"^{line}", cli.out, re.MULTILINE), line
    assert excluded.read_text() == "bad2\nsilent6\n"
    asked = salloc.read_text()
    assert asked.count("--immediate=") == 1
    assert (
        "--nodes=4 --nodelist=n1,bad2,warm5,silent6 --ntasks-per-node=1" in asked
        and "--immediate=" in asked
    )
    assert "--partition=gpu --gres=gpu:8 --mem=0 -- python3 " in asked and "--requeue" not in asked
    assert "--nodes n1,bad2,warm5,silent6" in calls(place)[0] and left(place) == []


@pytest.mark.parametrize(
    ("gpu_request", "option"),
    [("gres", "--gres=gpu:8 "), ("gpus-per-node", "--gpus-per-node=8 "), ("none", "")],
)
def test_gpus_are_requested_as_the_site_says(
    cli: Commands, place: Path, fake: Callable[[str, str], Path], gpu_request: str, option: str
) -> None:
    """Slurm without GPUs refuses any request: "Invalid generic resource"."""
    sinfo(fake, "n1 idle")
    salloc = fake("salloc", SALLOC)
    with (place / "site.yaml").open("a") as site:
        site.write(f"gpu_request: {gpu_request}\n")
    preflight(cli, place)
    assert cli.code == 0, cli.err
    assert f" --partition=gpu {option}--mem=0 -- " in salloc.read_text()


def test_a_command_waits_for_nodes_that_the_one_before_has_lent(
    cli: Commands, place: Path, fake: Callable[[str, str], Path]
) -> None:
    states = f"[ -e {place}/asked ] && state=idle || state=completing; touch {place}/asked"
    fake("sinfo", rf"{states}; printf 'n1\x1f%s\x1fgpu*\x1fnone\n' $state")
    fake("salloc", "echo 'salloc: error: Job submit failed: x' >&2; exit 1")
    cli("tune", "status", "--nodes", "n1", "--site", place / "site.yaml")
    assert "Slurm lends no nodes" in cli.err, "it is idle by now"


DISTRIBUTE = ("images", "distribute", "--image", "tiny:1", "--limit", "8", "--timeout", "3600")


@pytest.mark.parametrize(
    ("limit", "words", "minutes"),
    [
        ("infinite", DISTRIBUTE, 5 + 3 * 61),
        ("2:00:00", DISTRIBUTE, 120),
        ("infinite", ("images", "check", "--image", "tiny:1", "--limit", "8"), 5 + 3),
        ("infinite", ("tune", "status", "--via", "slurm", "--timeout", "90"), 5 + 2),
        (
            "infinite",
            ("tune", "status", "--via", "slurm", "--timeout", "90", "--parallel", "9"),
            5 + 3,
        ),
    ],
)
def test_nodes_are_lent_until_the_last_may_have_ended(
    cli: Commands,
    place: Path,
    fake: Callable[[str, str], Path],
    limit: str,
    words: tuple[str, ...],
    minutes: int,
) -> None:
    """17 idle nodes, 8 at a time, are three rounds."""
    image = Image(f"sha256:{'1' * 64}")
    save(place / "images", "tiny:1", image, [tar_of({"manifest.json": image.id})])
    fake(
        "sinfo",
        rf"""case "$*" in *--Node*) printf 'n%s\x1fidle\x1fgpu*\x1fnone\n' {{1..17}}
        printf 'n18\x1fdrained\x1fgpu*\x1fnone\n' ;;
        *) printf 'gpu*\x1f{limit}\n' ;; esac""",
    )
    salloc = fake("salloc", "echo 'salloc: error: Job submit failed: x' >&2; exit 1")
    cli(*words, "--site", place / "site.yaml")
    assert "Slurm lends no nodes" in cli.err
    assert " --nodes=17 --nodelist=" in salloc.read_text()
    assert f" --time={minutes} " in salloc.read_text()


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        ("n1,n2", f"deep: {BANDWIDTH}"),
        ("lean1,lean2", "bandwidth not measured: no torch in the image"),
        ("bad1", "bandwidth not measured: no node passed its checks"),
    ],
)
def test_a_requested_bandwidth_test_is_reported_whatever_its_outcome(
    cli: Commands, place: Path, fake: Callable[[str, str], Path], nodes: str, line: str
) -> None:
    sinfo(fake, *(f"{node} idle" for node in nodes.split(",")))
    fake("salloc", SALLOC)
    preflight(cli, place, "--deep", "--nodes", nodes)
    assert cli.out.splitlines().count(line) == 1
    preflight(cli, place, "--nodes", nodes)
    assert "bandwidth" not in cli.out


def test_what_all_nodes_say_is_said_once(
    cli: Commands, place: Path, fake: Callable[[str, str], Path]
) -> None:
    sinfo(fake, "warm1 idle", "warm2 idle", "n3 drained")
    fake("salloc", SALLOC)
    preflight(cli, place)
    assert cli.out.count("clock: 3 s off") == 1
    command = r"srun --partition=gpu --nodes=2 --nodelist='warm\[1-2\]' bash -c 'sudo chronyc "
    line = rf"^all tested +warn +clock: 3 s off; synchronise it +{command}"
    assert re.search(line, cli.out, re.MULTILINE)
    assert re.search(r"^warm2 +warn$", cli.out, re.MULTILINE)


def test_what_does_not_listen_is_ended_by_force(
    place: Path, fake: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.errors import SchedulerError
    from orchestrator.preflight import places

    monkeypatch.setattr(places, "ENDING_S", 0.3)
    script = place / "deaf/program.tar.gz"
    script.parent.mkdir()
    script.write_text("trap : TERM; touch $(dirname $0)/up; while :; do sleep 0.1; done")
    fake("salloc", 'trap : TERM; setsid "$@" & while :; do wait; done')
    process = places._start(["salloc", "bash", str(script)], dict(os.environ))
    until((script.parent / "up").exists)
    with pytest.raises(SchedulerError, match="did not end within"):
        places._outcome(process, 0.1)
    see_them_go(script)


def test_the_command_waits_longer_than_the_loop_for_the_release_of_its_nodes() -> None:
    from orchestrator.onnode.loop.step import RELEASE_S
    from orchestrator.preflight.places import ENDING_S

    assert ENDING_S > RELEASE_S + 2  # the loop then ends its step by force, in 2 s


def test_all_fit(cli: Commands, place: Path, fake: Callable[[str, str], Path]) -> None:
    log = sinfo(fake, "n1 idle", "warm2 idle")
    fake("salloc", SALLOC)
    preflight(cli, place, "--json", "--deep", "--nodes", "n1,warm2")
    assert cli.code == 0, cli.err
    document = outputs.checked(cli.out)
    assert (document["given"], document["tested"], document["verdict"], document["exclude"]) == (
        2,
        2,
        "warn",
        [],
    )
    assert document["nodes"][0] == {
        "node": "n1",
        "verdict": "pass",
        "reason": "",
        "remedy": "",
        "checks": [
            {"check": "engine", "verdict": "pass", "ms": 3, "text": "docker 27", "remedy": ""},
            {"check": "deep", "verdict": "pass", "ms": 900, "text": BANDWIDTH, "remedy": ""},
        ],
    }
    assert "checking 2 of 2 named nodes of partition gpu" in cli.err
    assert "--nodes=n1,warm2" in log.read_text() and "--deep" in calls(place)[0]
    preflight(cli, place, "--nodes", "n1,n9")
    assert cli.code == 1 and "n9    untested  not in partition gpu" in cli.out


def test_nothing_idle_asks_for_nothing(
    cli: Commands, place: Path, fake: Callable[[str, str], Path]
) -> None:
    sinfo(fake, "n1 allocated")
    salloc = fake("salloc", SALLOC)
    preflight(cli, place)
    assert (
        cli.code == 1
        and "tested 0 of 1 node" in cli.out
        and "exclude:" not in cli.out
        and not salloc.exists()
    )


@pytest.mark.parametrize(
    ("complaint", "message"),
    [
        (
            "salloc: error: Job submit/allocate failed: Invalid account",
            "no allocation for the preflight: Job submit/allocate failed: Invalid",
        ),
        (
            "salloc: error: Unable to allocate resources: Requested nodes are busy",
            "the nodes were taken, or not given within 15 s",
        ),
        (
            "salloc: error: Unable to allocate resources: Connection timed out",
            "the nodes were taken, or not given within 15 s",
        ),
    ],
)
def test_slurm_refuses(
    cli: Commands, place: Path, fake: Callable[[str, str], Path], complaint: str, message: str
) -> None:
    sinfo(fake, "n1 idle")
    salloc = fake("salloc", f"echo '{complaint}' >&2; exit 1")
    preflight(cli, place)
    assert cli.code == 3 and message in cli.err and left(place) == []
    assert salloc.read_text().count("--immediate=") == (2 if "Unable" in complaint else 1)


def test_a_script_that_fails_in_its_allocation_is_not_tried_again(
    cli: Commands, place: Path, fake: Callable[[str, str], Path]
) -> None:
    sinfo(fake, "n1 idle")
    salloc = fake("salloc", SALLOC + "; echo 'salloc: Job allocation 7 has been revoked.' >&2")
    (place / "sets/broken").touch()
    preflight(cli, place)
    assert cli.code == 3 and "preflight.sh could not run: scontrol: no such thing" in cli.err
    assert salloc.read_text().count("--immediate=") == 1


def test_slurm_does_not_answer(
    cli: Commands, place: Path, fake: Callable[[str, str], Path]
) -> None:
    fake("sinfo", "echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1")
    preflight(cli, place)
    assert cli.code == 4 and left(place) == []


def test_inside_an_allocation(cli: Commands, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2],bad3")
    preflight(cli, place)
    assert (
        cli.code == 1
        and "tested 3 of 3 nodes" in cli.out
        and "--nodes n1,n2,bad3" in calls(place)[-1]
    )
    preflight(cli, place, "--nodes", "n1")
    assert cli.code == 0 and "--nodes n1" in calls(place)[-1]
    preflight(cli, place, "--nodes", "n1,n9")
    assert cli.code == 2 and "n9 is not of this allocation" in cli.err


def test_without_a_system_only_hosts_are_checked(
    cli: Commands, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(
        "orchestrator.render.render_bundle",
        lambda entry, nexp: seen.append(entry) or FILES,
    )
    cli("preflight", "--site", place / "site.yaml", "--via", "local")
    assert (
        cli.code == 0
        and "hosts only" in cli.err
        and re.search("^here +pass", cli.out, re.MULTILINE)
    )
    assert (
        seen[0].gfx == ""
        and seen[0].site.preflight.skip == ["image"]
        and seen[0].fabric_kind == "none"
    )
    cli("preflight", "--site", place / "site.yaml", "--via", "local", "--deep")
    assert [entry.site.preflight.deep for entry in seen] == [False, True], (
        "the bundle has what measures"
    )
    cli("preflight", "MI325X_08x08x32", "--site", place / "site.yaml")
    assert cli.code == 2 and "MI325X_08x08x32: which WORKLOAD? it has: flux1" in cli.err
    cli("preflight", "--site", place / "site.yaml", "--via", "local", "--nodes", "a")
    assert cli.code == 2


class Hosts:
    """A transport for hosts of this machine: `dark1` does not answer, `blind1` does not see the log directory."""

    def run(self, node: NamedNode, command: NodeCommand, stopped: Event) -> NodeAnswer:
        if node.name == "dark1":
            return NodeAnswer(node.name, -1, problem="SSH to dark1:22: no answer in time")
        arguments = [
            word.replace("/sets/", "/nowhere/")
            if word.endswith(".tar.gz") and node.name == "blind1"
            else word
            for word in command.argv
        ]
        done = subprocess.run(arguments, capture_output=True, timeout=LIMIT_S)
        return NodeAnswer(node.name, done.returncode, done.stdout, done.stderr)


def test_over_ssh(cli: Commands, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.nodes.ssh.Ssh", lambda config_file: Hosts())
    preflight(
        cli, place, "--via", "ssh", "--nodes", "n[1-2],bad3,dark1,blind1=ssh://me@10.0.0.9:2222"
    )
    assert cli.code == ExitCode.UNKNOWN, cli.err
    for line in (
        r"n2 +pass",
        r"bad3 +fail +image: no image; pull it +orchestrator images pull MI325X_08x08x32 flux1 --site ",
        r"dark1 +untested +SSH to dark1:22: no answer",
        r"blind1 +fail +log_dir: does not see .*/sets, the site's log_dir; mount ",
        r"blind1 .* ssh ssh://me@10.0.0.9:2222 'ls -ld /.*/sets; df -h /.*/sets'$",
        r"tested 4 of 5 nodes: 2 fit, 2 failed",
    ):
        assert re.search(f"^{line}", cli.out, re.MULTILINE), line
    assert "--judge --nodes n1,n2,bad3,dark1,blind1" in calls(place)[0] and left(place) == []
    preflight(cli, place, "--via", "ssh", "--deep", "--nodes", "n1")
    assert cli.code == 2 and "--deep needs an allocation" in cli.err
    preflight(cli, place, "--via", "ssh")
    assert cli.code == 2 and "which hosts?" in cli.err


def test_a_script_that_could_not_run(cli: Commands, place: Path) -> None:
    (place / "sets/broken").touch()
    preflight(cli, place, "--via", "local")
    assert (
        cli.code == 3
        and "preflight.sh could not run: scontrol: no such thing" in cli.err
        and left(place) == []
    )


def test_bad_places(cli: Commands, place: Path) -> None:
    preflight(cli, place, "--via", "local", "--exclude-file", place / "no/such")
    assert cli.code == 2 and "--exclude-file" in cli.err
    (place / "sets").rename(place / "elsewhere")
    preflight(cli, place, "--via", "local")
    assert cli.code == 5 and "does not exist here" in cli.err


RUN = """
import sys, orchestrator.render
from pathlib import Path
top = Path(sys.argv[1])
files = {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*") if path.is_file()}
orchestrator.render.render_bundle = lambda entry, nexp: files
from orchestrator.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_leaves_nothing(place: Path, by: signal.Signals, code: int) -> None:
    (place / "sets/hang").touch()
    for name, content in FILES.items():
        (place / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "files" / name).write_bytes(content)
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            RUN,
            place / "files",
            "preflight",
            "--site",
            place / "site.yaml",
            "--via",
            "local",
        ],
        stderr=subprocess.DEVNULL,
    )
    until(lambda: (place / "sets/calls").exists())
    process.send_signal(by)
    assert process.wait(LIMIT_S) == code and left(place) == []
    kill_all(place)  # the script, which the signal did not reach


def test_what_a_killed_one_left_is_removed(cli: Commands, place: Path) -> None:
    old = place / "sets" / f".preflight-{os.uname().nodename}-4194999-00ff"
    other = place / "sets/.preflight-elsewhere-4194999-00ff"
    old.mkdir()
    other.mkdir()
    preflight(cli, place, "--via", "local")
    assert left(place) == [other.name]


def test_verdicts() -> None:
    rows = parse_table(
        "node\tcheck\tverdict\tms\ttext\tremedy\na\tx\tpass\t1\t\t\nb\tx\tskip\t\t\t\nb\ty\tnew\t1\t\t\ntorn\tx\n"
    )
    assert rows == [Row("a", "x", "pass", 1), Row("b", "x", "skip", 0)]
    document = judge(
        ["a", "b", "c", "d"],
        [*rows, Row("a", "y", "fail", 1), Row("d", "-", "untested", 0, "lost")],
        {},
    )
    assert [node.verdict for node in document.nodes] == ["fail", "pass", "untested", "untested"]
    assert (
        document.exclude == ["a", "c", "d"]
        and not document.fit
        and document.nodes[3].problem == "lost"
    )
    assert judge([], [], {}).verdict == "untested"


def test_a_start_is_lean(place: Path, cli: Commands, fake: Callable[[str, str], Path]) -> None:
    """One question and one allocation, however many nodes there are."""
    asked = [sinfo(fake, *(f"n{index} idle" for index in range(64))), fake("salloc", SALLOC)]
    preflight(cli, place)
    assert cli.code == 0 and "tested 64 of 64 nodes: 64 fit" in cli.out
    questions = asked[0].read_text().splitlines()
    assert (len(questions), asked[1].read_text().count("--immediate=")) == (1, 1)
    assert len(calls(place)) == 1


# ---- with the real bundle ----


@pytest.fixture
def real(tmp_path: Path) -> Path:
    write_site(tmp_path / "site.yaml", tmp_path / "sets", preflight={"skip": ["leftovers"]})
    return tmp_path


def test_this_host_with_the_real_bundle(cli: Commands, real: Path) -> None:
    cli("preflight", "local_2x2x8", "builtin", "--site", real / "site.yaml", "--json")
    document = outputs.checked(cli.out)
    assert document["tested"] == document["given"] == 2, cli.out
    names = {check["check"] for check in document["nodes"][0]["checks"]}
    assert {"log_dir", "free_space", "clock", "limits"} <= names
    assert document["verdict"] in ("pass", "warn") and cli.code == 0 and left(real) == []


def test_over_ssh_with_the_real_bundle(
    cli: Commands, real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.nodes.ssh.Ssh", lambda config_file: Hosts())
    asked = [
        "--site",
        real / "site.yaml",
        "--via",
        "ssh",
        "--nodes",
        "n[1-2],dark1,blind1",
        "--json",
    ]
    cli("preflight", "local_2x2x8", "builtin", *asked)
    document = outputs.checked(cli.out)
    nodes = {row["node"]: row for row in document["nodes"]}
    assert (document["given"], document["tested"], cli.code) == (4, 3, ExitCode.UNKNOWN), cli.out
    assert {nodes[name]["verdict"] for name in ("n1", "n2")} <= {"pass", "warn"}, cli.out
    assert nodes["dark1"]["verdict"] == "untested" and "SSH to dark1" in nodes["dark1"]["reason"]
    assert nodes["blind1"]["verdict"] == "fail" and left(real) == []
    marker = next(check for check in nodes["n1"]["checks"] if check["check"] == "log_dir")
    assert marker["verdict"] == "pass"


def test_a_judge_that_starts_late_blames_no_clock(
    cli: Commands, real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy host the nodes may have answered long before."""

    class Quick(Hosts):
        def run(self, *arguments: Any) -> NodeAnswer:
            answer = super().run(*arguments)
            (real / "answered").touch()
            return answer

    python = real / "python"
    wait = f"while [[ ! -e {real}/answered ]]; do sleep 0.05; done; sleep 1.1"
    python.write_text(
        f'#!/bin/bash\n[[ $* != *" preflight --"* ]] || {{ {wait}; }}\nexec python3 "$@"\n'
    )
    python.chmod(0o755)
    limits = {"clock_seconds": 1, "skip": ["leftovers"]}
    write_site(real / "site.yaml", real / "sets", python=str(python), preflight=limits)
    monkeypatch.setattr("orchestrator.nodes.ssh.Ssh", lambda config_file: Quick())
    cli("preflight", "--site", real / "site.yaml", "--via", "ssh", "--nodes", "n1", "--json")
    [node] = outputs.checked(cli.out)["nodes"]
    assert [row["verdict"] for row in node["checks"] if row["check"] == "clock"] == ["pass"], (
        cli.out
    )


def test_only_what_this_host_left_is_swept(cli: Commands, place: Path) -> None:
    """Not what belongs to a host whose name begins like this one's."""
    host, dead = os.uname().nodename, 2**22 + 1
    mine = f".preflight-{host}-{dead}-ab12"
    others = [
        f".preflight-{host}-{dead}-4711-ab12",
        f".preflight-{host}x-{dead}-ab12",
        f".preflight-{host}-{os.getpid()}-ab12",
    ]
    for name in (mine, *others):
        (place / "sets" / name).mkdir()
    preflight(cli, place, "--via", "local")
    assert sorted(left(place)) == sorted(others)


def test_a_bundle_that_is_replaced_meanwhile_is_not_executed(
    cli: Commands, real: Path, fake: Callable[[str, str], Path]
) -> None:
    """Who may write in the log directory changes the preflight's bundle while Slurm looks for nodes."""
    ran = real / "ran"
    sinfo(fake, "n1 idle")
    change = (
        f"for file in $(find {real}/sets -name '*.py' -o -name '*.sh'); do\n"
        f"""  echo 'raise SystemExit(open("{ran}", "w"))' >"$file"\n"""
        f"""  [[ $file != *.sh ]] || echo "touch {ran}" >"$file"\ndone\n"""
    )
    fake("salloc", change + SALLOC)
    for name in ("scontrol", "srun"):
        fake(name, "echo n1")
    cli("preflight", "local_2x2x8", "builtin", "--site", _with_slurm(real))
    assert not ran.exists() and "n1" in cli.out, cli.err


def _with_slurm(folder: Path) -> Path:
    site = folder / "slurm.yaml"
    site.write_text(
        (folder / "site.yaml").read_text().replace("scheduler: local", "scheduler: slurm")
    )
    return site
