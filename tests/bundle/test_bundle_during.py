"""What only real processes and a real disk show while a run is going on; the outcomes: tests/simulation/test_sets_during.py."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from bundle_parts import Bundles, Set
from processes import processes_of
from until import until

HANG_LIMITS = {"HANG_MULTIPLE": "2", "HANG_S": "2", "HANG_START_S": "60"}


def hashes(one: Set) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in one.root.glob("runs/*/result_*.txt")
    }


def test_a_run_that_hangs_is_ended_with_evidence_and_a_stopped_node_stands_out(
    bundles: Bundles,
) -> None:
    # The first node's output goes on until the second one is stopped.
    pid = bundles.folder / "pid"
    plan = f"""
[[ $me != 1.1.1 ]] || {{ echo $$ >{pid}.new; mv {pid}.new {pid}; kill -STOP $$; }}
[[ $me != 1.1.0 ]] || until grep -qs "^State:.T" /proc/$(<{pid})/status; do echo on; sleep 0.1; done
[[ $me != 1.1.* ]] || hang"""
    code, out = bundles.make(plan, system="local_2x2x8", nexp=1).run(**HANG_LIMITS)
    assert code == 0, out
    reason = bundles.set.attempt(1, 1)["reason"]
    assert "node local1 (rank 1) stands out: stopped: a process does not run (state T)" in reason, (
        reason
    )
    for node in ("local0", "local1"):
        text = (bundles.set.root / f"runs/1/attempt_1/hang/{node}.txt").read_text()
        assert (
            text.index("==== processes\n")
            < text.index("==== kernel log\n")
            < text.index("==== GPUs\n")
        )
    assert processes_of(bundles.folder) == {}


def test_the_loop_waits_for_a_disk_that_is_full(
    bundles: Bundles, mount: Callable[..., Path]
) -> None:
    mount(bundles.log_dir, "size=2m")
    fill = f'head -c 4000000 /dev/zero >"$(echo {bundles.log_dir}/*)/fill" 2>/dev/null'
    plan = f"[[ $me != 2.1.0 ]] || {{ {fill}; stop success; exit 0; }}"
    loop = bundles.make(plan, nexp=3, preflight={"skip": ["free_space"]}).start()
    one = bundles.running(1, 1, "run_start")  # the second run's own lines may find no room any more
    until(lambda: (one.root / "fill").exists() and os.statvfs(one.root).f_bavail == 0)
    before = hashes(one)
    loop.hear("waiting for storage")
    (one.root / "fill").unlink()
    assert loop.end() == 0, loop.out
    assert (
        f"waiting for storage: {one.root}" in loop.out
        and "No space left on device: gone after" in loop.out
    )
    assert one.results() == [1, 2, 3]
    assert {name: hashes(one)[name] for name in before} == before
    assert [one.outcomes(run)[-1] for run in (1, 2, 3)] == ["success"] * 3
    assert (one.job["state"], one.job["reason"]) == ("complete", "")
    assert any("No space left on device" in text for text in one.job["warnings"])
    assert one.left_behind() == []
