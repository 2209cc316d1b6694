"""Two ranks on three or four nodes: who takes over, what is on record, and when the set has to stop."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest
from bundle_parts import Bundles, Set
from until import LIMIT_S, until


def make(bundles: Bundles, plan: str = "", *, spares: int = 1, **more: Any) -> Bundles:
    return bundles.make(plan, system="two_nodes", spares=spares, **more)


def aside(one: Set) -> list[tuple[str, int]]:
    return [(entry["node"], entry["run"]) for entry in one.job["set_aside"]]


def with_a_setting(bundles: Bundles, nodes: int, refusing: list[int]) -> dict[str, str]:
    """A set of two ranks whose nodes have a setting of their own, which some refuse; returns the environment for its runs."""
    knob = bundles.folder / "ours.yaml"
    knob.write_text(
        "kind: tuning\nname: ours\ntitle: t\nsource: s\nknobs:\n"
        "  - {name: k, kind: file, path: /proc/k, value: '1', need: required, purpose: p, root: false}\n"
    )
    for rank in range(nodes):
        path = bundles.folder / f"root/local{rank}/proc/k"
        path.parent.mkdir(parents=True)
        if rank in refusing:
            path.symlink_to("/proc/version")  # it can be read, and no write changes it
        else:
            path.write_text("0\n")
    make(bundles, spares=nodes - 2, tunables="apply", tuning={"profile": str(knob)})
    return {"ORCH_TUNABLES_ROOT": f"{bundles.folder}/root/%n", "ORCH_TUNABLES_STATE": f"{bundles.folder}/state-%n"}


def test_a_spare_waits_and_is_on_record(bundles: Bundles) -> None:
    code, out = make(bundles, nexp=2).run()
    one = bundles.set
    assert code == 0, out
    assert (one.job["nodes"], one.job["spares"], one.job["set_aside"]) == (["local0", "local1"], ["local2"], [])
    assert one.results() == [1, 2]
    assert [one.run(run)["nodes"] for run in (1, 2)] == [["local0", "local1"]] * 2
    assert one.left_behind() == []


@pytest.mark.parametrize("rank", [0, 1])
def test_a_node_on_which_a_run_dies_is_replaced(bundles: Bundles, rank: int) -> None:
    code, out = make(
        bundles, f"[[ $me != 2.1.{rank} ]] || exit 3; [[ $ORCH_ATTEMPT != 1 || $ORCH_RUN != 2 ]] || hang", nexp=3
    ).run(MAX_ATTEMPTS="1")
    one = bundles.set
    assert code == 0, out
    assert one.results() == [1, 2, 3]
    assert one.outcomes(2) == ["infrastructure", "success"], "the attempt that the node cost is not the run's"
    assert aside(one) == [(f"local{rank}", 2)]
    assert "run 2 died there" in one.job["set_aside"][0]["reason"]
    now = ["local0", "local1"]
    now[rank] = "local2"
    assert one.attempt(2, 1)["nodes"] == ["local0", "local1"]
    assert one.run(2)["nodes"] == one.run(3)["nodes"] == one.job["nodes"] == now, "the other node keeps its rank"
    assert one.left_behind() == []


def test_a_node_that_ends_early_with_0_is_blamed_after_the_grace(bundles: Bundles) -> None:
    """The image of flux1 exits with 0 whatever happened, and the other nodes wait for it."""
    plan = (
        "[[ $me != 1.1.1 ]] || { echo 'RuntimeError: HIP error: no device'; exit 0; }; [[ $ORCH_ATTEMPT != 1 ]] || hang"
    )
    code, out = make(bundles, plan, nexp=1).run(END_GRACE_S="1")
    one = bundles.set
    assert code == 0, out
    assert one.outcomes(1) == ["infrastructure", "success"]
    assert one.attempt(1, 1)["reason"] == (
        "no run_stop; node local0 (rank 0) exited 143; local1: RuntimeError: HIP error: no device"
    )
    assert aside(one) == [("local1", 1)]
    assert "ended there first, without run_stop: RuntimeError" in one.job["set_aside"][0]["reason"]
    assert one.run(1)["nodes"] == ["local0", "local2"]


def test_ranks_follow_the_host_names_also_after_a_spare_took_over(bundles: Bundles) -> None:
    """torchrun numbers nodes by their full host names, as texts, whatever ranks they are given."""
    plan = "[[ $me != 1.1.0 ]] || exit 3; [[ $ORCH_ATTEMPT != 1 ]] || hang; echo rank $SLURM_NODEID $NODE_RANK"
    code, out = make(bundles, plan, nexp=1).run(ORCH_HOST_NAME="%n.cluster")
    one = bundles.set
    assert code == 0, out
    assert one.attempt(1, 1)["nodes"] == ["local0", "local1"]
    assert one.run(1)["nodes"] == one.job["nodes"] == ["local1", "local2"], (
        "local2 comes in place of local0, as the last"
    )
    assert [f"rank {rank} {rank}".encode() in one.log(1, 2, rank) for rank in (0, 1)] == [True, True]
    events = (one.root / f"events-{one.job['job_id']}.tsv").read_text()
    assert "\thost\tlocal2\tlocal2.cluster" in events and events.count("\tordered\t") == 2


def test_a_program_that_fails_everywhere_is_nobodys_fault(bundles: Bundles) -> None:
    code, _ = make(bundles, "[[ $ORCH_ATTEMPT != 1 ]] || exit 3", nexp=1).run(MAX_ATTEMPTS="2")
    one = bundles.set
    assert code == 0
    assert aside(one) in ([], [("local0", 1)], [("local1", 1)])
    assert one.outcomes(1) == ["infrastructure", "success"]


def test_a_node_that_went_silent_is_replaced(bundles: Bundles) -> None:
    plan = """if [[ $me == 1.1.1 ]]; then
      agent=$(cut -d' ' -f4 /proc/$PPID/stat)
      tr '\\0' ' ' </proc/$agent/cmdline | grep -q 'lib node hold' || exit 99
      kill -KILL "$agent"; exit 1
    fi
    [[ $me != 1.1.0 ]] || hang"""
    code, out = make(bundles, plan, nexp=1).run()
    one = bundles.set
    assert code == 0, out
    assert aside(one) == [("local1", 1)]
    assert "went silent" in one.job["set_aside"][0]["reason"]
    assert one.run(1)["nodes"] == ["local0", "local2"]
    assert one.left_behind() == []


def test_without_a_spare_left_blamed_nodes_are_asked_again(bundles: Bundles) -> None:
    code, out = make(
        bundles, "[[ $SLURM_NODEID != 1 || $ORCH_ATTEMPT -ge 3 ]] || exit 3; [[ $ORCH_ATTEMPT -ge 3 ]] || hang", nexp=1
    ).run(MAX_ATTEMPTS="2")
    one = bundles.set
    assert code == 0, out
    assert one.outcomes(1) == ["infrastructure", "infrastructure", "success"]
    assert aside(one) == [("local1", 1), ("local2", 1)]


def test_a_host_setting_that_does_not_hold_costs_the_node_its_place(bundles: Bundles) -> None:
    code, out = bundles.run(**with_a_setting(bundles, nodes=4, refusing=[0]))
    one = bundles.set
    assert code == 0, out
    assert aside(one) == [("local0", 0)]
    assert "k wanted 1" in one.job["set_aside"][0]["reason"]
    assert one.job["nodes"] == ["local2", "local1"] and one.job["spares"] == ["local3"]
    assert {(bundles.folder / f"root/local{rank}/proc/k").read_text() for rank in (1, 2, 3)} == {"0\n"}
    assert "local0\ttunables\tfail" in (one.root / f"preflight/{one.job['job_id']}.tsv").read_text()


def test_too_few_fit_nodes_pause_the_set(bundles: Bundles) -> None:
    rehearsal = with_a_setting(bundles, nodes=3, refusing=[0, 1, 2])
    code, _ = bundles.run(**rehearsal)
    one = bundles.set
    assert (code, one.job["state"]) == (1, "paused")
    assert one.job["reason"].startswith("1 of 3 nodes are fit, 2 are needed; node local0: tunables: k wanted 1")
    for rank in range(3):
        (bundles.folder / f"root/local{rank}/proc/k").unlink()
        (bundles.folder / f"root/local{rank}/proc/k").write_text("0\n")
    code, out = bundles.again(one, **rehearsal)
    assert code == 0, out
    assert one.results() == [1, 2]


def test_the_bandwidth_between_the_nodes_is_measured_once(bundles: Bundles) -> None:
    make(bundles, "[[ $me != 1.1.1 ]] || exit 3; [[ $me != 1.1.0 ]] || hang", nexp=1, preflight={"deep": True})
    code, out = bundles.run(ORCH_DEEP_BYTES="1048576")
    one = bundles.set
    assert code == 0, out
    assert out.count("orchestrator: deep: ") == 1, "a second hold does not measure again"
    rows = [line.split("\t") for line in (one.root / f"preflight/{one.job['job_id']}.tsv").read_text().splitlines()]
    deep = {row[0]: row[2] for row in rows if row[1] == "deep"}
    assert set(deep) == {"local0", "local1", "local2"} and set(deep.values()) <= {"pass", "warn"}, rows
    assert list((one.root / "preflight").glob("deep-*.tsv"))
    assert one.run(1)["nodes"] == ["local0", "local2"]
    assert one.left_behind() == []


def test_a_slow_node_gets_a_rank_last(bundles: Bundles) -> None:
    make(bundles, nexp=1, preflight={"deep": True})
    search = bundles.bundle / "lib/deep/search.py"
    # What a measurement of a slow link says is tested in tests/deep; here it is who gets the ranks then.
    search.write_text(
        search.read_text()
        + """

def _said(search):
    texts = {"local0": ("fail", "1 GB/s, the others 9", ""), "local1": ("pass", "9 GB/s", ""), "local2": ("pass", "9 GB/s", "")}
    return DeepVerdict(texts, ["local0"], "said so", None)


Search.next_round, Search.verdict = (lambda search: None), _said
"""
    )
    code, out = bundles.run(ORCH_DEEP_BYTES="1048576")
    one = bundles.set
    assert code == 0, out
    assert (one.job["nodes"], one.job["spares"]) == (["local1", "local2"], [])
    assert [(entry["node"], entry["reason"]) for entry in one.job["set_aside"]] == [
        ("local0", "check deep: 1 GB/s, the others 9")
    ]


def test_a_program_that_fails_on_one_node_after_the_other_comes_to_an_end(bundles: Bundles) -> None:
    code, _ = make(bundles, "[[ $SLURM_NODEID != 1 ]] || exit 3; hang", nexp=1, spares=2).run(MAX_ATTEMPTS="2")
    one = bundles.set
    assert code == 1
    # Two of its own, and one for each spare node.
    assert one.outcomes(1) == ["infrastructure"] * 4
    assert one.job["state"] == "complete" and one.left_behind() == []


def test_the_node_that_was_blamed_longest_ago_is_asked_first(bundles: Bundles) -> None:
    plan = """case $ORCH_ATTEMPT.$SLURM_NODEID in 1.0 | 2.1 | 3.1 | 4.1) exit 3 ;; esac
    ((ORCH_ATTEMPT > 4)) || hang"""
    code, out = make(bundles, plan, nexp=1).run(MAX_ATTEMPTS="5")
    one = bundles.set
    assert code == 0, out
    held = [one.attempt(1, attempt)["nodes"] for attempt in one.attempts(1)]
    assert held == [
        ["local0", "local1"],
        ["local2", "local1"],
        ["local2", "local0"],
        ["local2", "local1"],
        ["local2", "local0"],
    ]


def test_nodes_are_not_asked_for_again_when_every_run_is_done(bundles: Bundles) -> None:
    code, out = make(bundles, "[[ $me != 2.1.1 ]] || { stop success; exit 3; }", nexp=2, spares=0).run()
    one = bundles.set
    assert code == 0, out
    assert one.results() == [1, 2]
    assert "renewed" not in out and one.job["state"] == "complete"


@pytest.mark.parametrize("spares", [0, 1])
def test_a_signal_during_the_checks(bundles: Bundles, spares: int) -> None:
    make(bundles, nexp=1, spares=spares, preflight={"check_seconds": 600})
    script = bundles.bundle / "lib/agent/host.py"
    slow = f"def clock(*_):\n    open({str(bundles.folder / 'checking')!r}, 'w').close()\n    time.sleep(10000)\n    yield from ()\n"
    assert "\ndef clock(" in script.read_text()
    script.write_text(f"{script.read_text()}\n\n{slow}")
    loop = bundles.start()
    until((bundles.folder / "checking").exists)
    one = bundles.set
    loop.signal(signal.SIGTERM)
    assert loop.end() == 1
    assert one.job["state"] == "cancelled"
    assert one.attempts(1) == [] and one.run(1)["state"] == "queued"
    assert list((one.root / "preflight").glob(".*")) == []


def test_the_words_of_preflight_are_files_here(bundles: Bundles) -> None:
    make(bundles)
    done = subprocess.run(
        ["bash", bundles.bundle / "preflight.sh", "--tsv", "rows.tsv", "--exclude-file", "bad.txt", "--json"],
        cwd=bundles.folder,
        env=bundles.environment(),
        text=True,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["given"], found["tested"], found["exclude"]) == (3, 3, [])
    assert {line.split("\t")[0] for line in (bundles.folder / "rows.tsv").read_text().splitlines()} == {
        "node",
        "local0",
        "local1",
        "local2",
    }
    assert list(bundles.log_dir.iterdir()) == []


def test_preflight_refuses_wrong_words(bundles: Bundles) -> None:
    make(bundles)
    for words in (["--nodes"], ["--what"], ["--judge"]):
        done = subprocess.run(
            ["bash", bundles.bundle / "preflight.sh", *words], env=bundles.environment(), capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (2, ""), words
        assert "preflight.sh: " in done.stderr


def test_what_a_node_says_is_not_evaluated(bundles: Bundles) -> None:
    make(bundles)
    trap = bundles.folder / "trap"
    lines = [
        f"checked\t0\tn1\tBASH_VERSINFO[$(touch {trap})]",
        "checked\t0\tn1\tgarbage",
        "check\t0\tn1\tx",
        "\x01\xff",
        "checked\t1\tn2\t1",
        f"check\t0\tn2\tengine\x1fpass\x1f$(touch {trap})\x1fyes\x1f",
    ]
    done = subprocess.run(
        ["bash", bundles.bundle / "preflight.sh", "--judge", "--nodes", "n1,n2,n3", "--json"],
        env=bundles.environment(),
        input="\n".join(lines) + "\n",
        text=True,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert not trap.exists()
    found = {node["node"]: node["verdict"] for node in json.loads(done.stdout)["nodes"]}
    assert found["n3"] == "untested"
