"""Growing logs and finished ones have the start and stop of the referee, in any order of the events."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from orchestrator.evidence.progress import Tail
from orchestrator.mllog.reader import read_log

ORDERS = [keys for length in range(5) for keys in product(("start", "stop"), repeat=length)]


def log(keys: tuple[str, ...], step: int = -1) -> bytes:
    """Records `step` apart, between other records: only their order in the file counts."""
    record = (
        ':::MLLOG {{"namespace": "", "time_ms": {}, "event_type": "POINT_IN_TIME", "key": "{}",'
        ' "value": null, "metadata": {{"status": "success"}}}}\n'
    )
    events = (record.format(900 + step * at, f"run_{key}") for at, key in enumerate(keys))
    return "".join(event + record.format(5, "init_stop") for event in events).encode()


def referee(content: bytes, path: Path) -> tuple[float | None, float | None]:
    """What MLCommons' summarizer takes; a missing event is None."""
    package = pytest.importorskip("mlperf_logging.result_summarizer.result_summarizer")
    parser = pytest.importorskip("mlperf_logging.compliance_checker.mlp_parser.ruleset_600")

    path.write_bytes(content)
    records, _ = parser.parse_file(str(path))
    try:
        start, stop = package._query_run_start_stop(records)
    except ValueError:
        times: dict[str, float | None] = {record.key: record.timestamp for record in records}
        return times.get("run_start"), times.get("run_stop")
    return start, stop


@pytest.mark.parametrize("step", [-1, 1])
@pytest.mark.parametrize("keys", ORDERS, ids=lambda keys: "-".join(keys) or "no event")
def test_any_order_of_up_to_four_events(keys: tuple[str, ...], step: int, tmp_path: Path) -> None:
    content, path = log(keys, step), tmp_path / "result_1.txt"
    expected = referee(content, path)
    assert read_log(str(path)).start_stop == expected
    for size in (len(content) or 1, 100, 7):
        tail = Tail()
        for at in range(0, len(content), size):
            tail.feed(content[at : at + size])
        assert (tail.start_ms or None, tail.stop_ms or None) == expected
    minutes = read_log(str(path)).minutes
    # A score refuses negative times itself; views have none.
    assert tail.minutes == (None if minutes is None or minutes < 0 else minutes)


def test_a_word_of_the_console_is_no_start() -> None:
    from orchestrator.onnode.kernel.mllog_tail import has_start

    assert not has_start(b"waiting for run_start\n" + log(("stop",)))
    assert not has_start(b'{"key": "run_start", "metadata": {}}\n')
    assert not has_start(b':::MLLOG {"key": "note", "value": "run_start", "metadata": {}}\n')
    assert has_start(b"noise\n" + log(("start",)))
