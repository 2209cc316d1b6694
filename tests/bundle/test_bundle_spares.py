"""Spare nodes with real processes and links, and preflight.sh; who takes over when is in tests/simulation/test_sets_spares.py."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from bundle_parts import Bundles
from until import LIMIT_S


def test_a_node_that_does_not_answer_is_replaced(bundles: Bundles) -> None:
    """Its agent is stopped, and so are its runs' pipes; the others do not wait for it."""
    plan = "[[ $me != 1.1.1 ]] || kill -STOP $(cut -d' ' -f4 /proc/$PPID/stat); [[ $me != 1.1.* ]] || hang"
    bundles.make(plan, system="two_nodes", spares=1, nexp=1)
    code, out = bundles.run(NODE_SILENCE_S="8")
    one = bundles.set
    assert code == 0, out
    assert one.outcomes(1) == ["infrastructure", "success"]
    assert one.attempt(1, 1)["exit_codes"] == {"local0": 143, "local1": -1}
    assert one.excluded() == [("local1", 1)] and "went silent" in one.job["set_aside"][0]["reason"]
    assert one.run(1)["nodes"] == ["local0", "local2"]
    assert one.left_behind() == []


def test_the_bandwidth_is_measured_and_a_slow_node_gets_a_rank_last(bundles: Bundles) -> None:
    bundles.make(system="two_nodes", spares=1, nexp=1, preflight={"deep": True})
    search = bundles.bundle / "lib/policy/bandwidth.py"
    # Real results depend on this machine's load, and are tested in tests/deep; this test is about the ranks.
    search.write_text(
        search.read_text()
        + """

_verdict = Search.verdict


def _slow(search):
    found = _verdict(search)
    rows = {**dict.fromkeys(found.rows, ("pass", "9 GB/s", "")), "local0": ("fail", "1 GB/s, the others 9", "")}
    return DeepVerdict(rows, ["local0"], found.summary, found.data)


Search.verdict = _slow
"""
    )
    code, out = bundles.run(ORCH_DEEP_BYTES="65536")
    one = bundles.set
    assert code == 0, out
    assert out.count("orchestrator: deep: ") == 1
    rows = [
        line.split("\t")
        for line in (one.root / f"preflight/{one.job['job_id']}.tsv").read_text().splitlines()
    ]
    deep = {row[0]: row[2] for row in rows if row[1] == "deep"}
    assert deep == {"local0": "fail", "local1": "pass", "local2": "pass"}, rows
    assert list((one.root / "preflight").glob("deep-*.tsv"))
    assert one.attempt(1, 1)["nodes"] == ["local1", "local2"]
    assert one.excluded()[0] == ("local0", 0)
    assert one.job["set_aside"][0]["reason"] == "check deep: 1 GB/s, the others 9"
    assert one.left_behind() == []


def preflight(bundles: Bundles, *words: str, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", bundles.bundle / "preflight.sh", *words],
        cwd=bundles.folder,
        env=bundles.environment(),
        input=said,
        text=True,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_preflight_here_and_its_words(bundles: Bundles) -> None:
    bundles.make(system="two_nodes", spares=1)
    # Files that it is asked for are here, not in the bundle.
    done = preflight(bundles, "--tsv", "rows.tsv", "--exclude-file", "bad.txt", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["given"], found["tested"], found["exclude"]) == (3, 3, [])
    rows = (bundles.folder / "rows.tsv").read_text().splitlines()
    assert {line.split("\t")[0] for line in rows} == {"node", "local0", "local1", "local2"}
    assert list(bundles.log_dir.iterdir()) == []
    for word in ("--nodes", "--what"):
        done = preflight(bundles, word)
        assert (done.returncode, done.stdout) == (2, ""), word
        assert "preflight.sh: " in done.stderr
    judge_hostile_words(bundles, bundles.folder / "trap")


def judge_hostile_words(bundles: Bundles, trap: Path) -> None:
    """What a node says is not evaluated."""
    lines = [
        f"checked\t0\tn1\tBASH_VERSINFO[$(touch {trap})]",
        "checked\t0\tn1\tgarbage",
        "check\t0\tn1\tx",
        "\x01\xff",
        "checked\t1\tn2\t1",
        f"check\t0\tn2\tengine\x1fpass\x1f$(touch {trap})\x1fyes\x1f",
    ]
    done = preflight(
        bundles, "--judge", "--nodes", "n1,n2,n3", "--json", said="\n".join(lines) + "\n"
    )
    assert done.returncode == 1, done.stderr
    assert not trap.exists()
    found = {node["node"]: node["verdict"] for node in json.loads(done.stdout)["nodes"]}
    assert found["n3"] == "untested"
