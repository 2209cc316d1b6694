"""Spare nodes with real processes, settings and links; who takes over when is in tests/simulation/test_sets_spares.py."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from bundle_parts import Bundles
from until import LIMIT_S


def make(bundles: Bundles, plan: str = "", *, spares: int = 1, **more: Any) -> Bundles:
    return bundles.make(plan, system="two_nodes", spares=spares, **more)


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
    assert one.excluded() == [("local1", 1)]
    assert "went silent" in one.job["set_aside"][0]["reason"]
    assert one.run(1)["nodes"] == ["local0", "local2"]
    assert one.left_behind() == []


def test_a_host_setting_that_does_not_hold_costs_the_node_its_place(bundles: Bundles) -> None:
    code, out = bundles.run(**with_a_setting(bundles, nodes=4, refusing=[0]))
    one = bundles.set
    assert code == 0, out
    assert one.excluded() == [("local0", 0)]
    assert "k wanted 1" in one.job["set_aside"][0]["reason"]
    assert one.job["nodes"] == ["local2", "local1"] and one.job["spares"] == ["local3"]
    assert {(bundles.folder / f"root/local{rank}/proc/k").read_text() for rank in (1, 2, 3)} == {"0\n"}
    assert "local0\ttunables\tfail" in (one.root / f"preflight/{one.job['job_id']}.tsv").read_text()


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
