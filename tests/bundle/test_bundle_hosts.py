"""A host whose clock somebody sets while a run goes on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from bundle_parts import Bundles

FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
# Wall clock only: files keep that of their storage. libfaketime 0.9.10 breaks the time.sleep() of Python 3.11. Runs are not faked.
CLOCK = r"""#!/bin/bash
export LD_PRELOAD=%s FAKETIME_TIMESTAMP_FILE=%s FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1 FAKE_UTIME=1
sleep='import os, runpy, select, sys, time
del os.environ["LD_PRELOAD"]
time.sleep = lambda seconds: select.select([], [], [], seconds) and None
'
case $4 in
*/lib) exec %s "${@:1:3}" -c "$sleep
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')" "${@:4}" ;;
-c) [[ $5 != *ARCHIVE* ]] || exec %s "${@:1:4}" "$sleep$5" "${@:6}" ;;
esac
exec %s "$@"
"""


@pytest.mark.skipif(not FAKETIME, reason="no libfaketime: apt-get install faketime")
def test_a_clock_that_is_set_ends_no_run(bundles: Bundles) -> None:
    step_s = -86400
    clock, python = bundles.folder / "clock", bundles.folder / "python"
    clock.write_text("+0\n")
    real = os.path.realpath(shutil.which("python3") or "")
    python.write_text(CLOCK % (FAKETIME[0], clock, real, real, real))
    python.chmod(0o755)
    step = f"[[ $me != 1.1.0 ]] || echo {step_s:+d} >{clock}; sleep 2"
    code, out = bundles.make(step, system="local_2x2x8", nexp=2).run(
        PYTHON=str(python), RUN_TIMEOUT_S="100"
    )
    assert code == 0, out
    one = bundles.set
    assert [one.outcomes(run) for run in (1, 2)] == [["success"], ["success"]], one.attempt(1, 1)
    seen_s = (one.run(2)["start_ms"] - one.run(1)["start_ms"]) / 1000
    assert seen_s / step_s > 0.5, "the loop saw it"
    assert one.left_behind() == []
