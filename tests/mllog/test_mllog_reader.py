"""The reader on single lines and on any bytes."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from mlperf_logging_lines import referee_lines

from orchestrator.mllog.blocks import BLOCK, LONGEST_LINE, TOKEN, blocks, count_lines
from orchestrator.mllog.reader import Log, read_log
from orchestrator.mllog.shapes import SKIPPED_KEYS, Shapes


def record(key: str = "seed", value: Any = 1, time: Any = 1000, **metadata: Any) -> bytes:
    return (
        TOKEN
        + json.dumps(
            {
                "namespace": "",
                "time_ms": time,
                "event_type": "POINT_IN_TIME",
                "key": key,
                "value": value,
                "metadata": {"file": "a.py", "lineno": 7, **metadata},
            }
        ).encode()
    )


def read(tmp_path: Path, data: bytes, **options: Any) -> Log:
    path = tmp_path / "result_0.txt"
    path.write_bytes(data)
    return read_log(str(path), **options)


@pytest.mark.parametrize(
    "line",
    [
        record(),
        b"0: " + record(),
        b" 12: " + record(),
        b": " + record(),
        b"NCCL INFO 8[0] -> 0[" + record(),
        b"\xff\xfe" + record(),
        TOKEN + b"torn" + record(),
        record() + b"  \t",
        record() + b"\x0b\x85\xa0",
        TOKEN + b" \t" + record()[len(TOKEN) :],
    ],
)
def test_a_record_is_found_wherever_it_stands(line: bytes, tmp_path: Path) -> None:
    for end in (b"\n", b"\r\n", b"\r", b""):
        log = read(tmp_path, b"console\n" + line + end)
        assert [entry.key for entry in log.records] == ["seed"]
        assert not log.damage
        assert log.line(log.records[0]) == 2


@pytest.mark.parametrize(
    "line",
    [
        b":::MLLOG" + record()[len(TOKEN) :],
        b"::MLLOG {}",
        b":::mllog {}",
        b":::DLPAL x",
        b"+ echo ':::SYSJSON {}'",
        b":::GITCOMMITID",
    ],
)
def test_neighbouring_tokens_are_no_records(line: bytes, tmp_path: Path) -> None:
    assert not read(tmp_path, line + b"\n").entries


@pytest.mark.parametrize(
    ("text", "fatal", "words"),
    [
        (b"{", False, "not one JSON object"),
        (b"", False, "not one JSON object"),
        (b"{} x", False, "not one JSON object"),
        (b"null", False, "null"),
        (b"\xa0" + record()[len(TOKEN) :], False, "not one JSON object"),
        (b"[1]", True, "list"),
        (b'"text"', True, "str"),
        (b"{}", True, "time_ms"),
        (b'{"time_ms": null, "key": "a", "value": 1, "metadata": {}}', True, "time_ms"),
        (b'{"time_ms": "soon", "key": "a", "value": 1, "metadata": {}}', False, "soon"),
        (b'{"time_ms": 1, "key": "a", "value": 1}', True, "metadata"),
        (b"[" * 100000, True, "deeply"),
        (
            b'{"time_ms": 1' + b"0" * 400 + b', "key": "a", "value": 1, "metadata": {}}',
            True,
            "time_ms",
        ),
        (
            b'{"time_ms": 1' + b"0" * 9000 + b', "key": "a", "value": 1, "metadata": {}}',
            False,
            "not one JSON object",
        ),
        (record()[len(TOKEN) :] + record()[len(TOKEN) :], False, "not one JSON object"),
        (
            record()[len(TOKEN) :] + b',"<record boundary 7c41b6>",' + record()[len(TOKEN) :],
            False,
            "not one JSON object",
        ),
    ],
)
def test_damage_is_found_and_said(text: bytes, fatal: bool, words: str, tmp_path: Path) -> None:
    log = read(tmp_path, record() + b"\n\r" + TOKEN + text + b"\n" + record("x") + b"\n")
    assert [entry.key for entry in log.records] == ["seed", "x"]
    assert [damage.fatal for damage in log.damage] == [fatal]
    assert words in log.damage[0].message
    assert log.line(log.damage[0]) == 3


def test_numbers_that_strict_parsers_refuse(tmp_path: Path) -> None:
    log = read(tmp_path, record(value=float("nan")) + b"\n" + record(value=float("inf")) + b"\n")
    assert [repr(entry.value) for entry in log.records] == ["nan", "inf"]


def test_lines_are_counted_like_python_counts_them() -> None:
    chance = random.Random(5)
    for _ in range(300):
        data = bytes(chance.choice(b"\r\n\r\nab") for _ in range(chance.randrange(40)))
        assert count_lines(data) == data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")


def test_blocks_are_whole_lines_whatever_the_read_size() -> None:
    import io

    chance = random.Random(6)
    for _ in range(400):
        data = bytes(chance.choice(b"\r\n\nabcdefgh") for _ in range(chance.randrange(120)))
        size = chance.randrange(1, 30)
        out, ends = b"", []
        for offset, block, start, end in blocks(io.BytesIO(data), size):
            assert data[offset + start : offset + end] == block[start:end]
            out += block[start:end]
            ends.append(out)
        assert out == data
        for part in ends[:-1]:
            assert part.endswith((b"\n", b"\r"))
            assert not (part.endswith(b"\r") and data[len(part) : len(part) + 1] == b"\n")


def test_any_bytes_read_as_the_referee_reads_them(tmp_path: Path) -> None:
    """Random pieces of records, line ends, prefixes and bytes: the same records in the same order."""
    chance = random.Random(7)
    pieces = [
        record(),
        record("tracked_stats", {"loss": 0.5}),
        record("train_loss", 2.25, time=17),
        TOKEN,
        b":::MLLOG",
        b"\n",
        b"\n",
        b"\r\n",
        b"\r",
        b"0: ",
        b"noise ",
        b"\xe2\x96",
        b"{",
        b"}",
        b" ",
        b"\x85",
        b"\x1c",
        b'"',
        record("run_stop", None, status="success"),
    ]
    for _ in range(1500):
        data = b"".join(chance.choice(pieces) for _ in range(chance.randrange(1, 25)))
        log = read(tmp_path, data, full=True)
        records, damaged, crashes = referee_lines(tmp_path / "result_0.txt")
        assert len(log.damage) == damaged + crashes
        ours = [(entry.key, entry.time) for entry in log.records if entry.key not in SKIPPED_KEYS]
        assert ours == [(key, time) for key, time in records if key not in SKIPPED_KEYS]
        assert len(log.statistics) == len(records) - len(ours)


def statistics(count: int) -> list[bytes]:
    return [
        record(
            "tracked_stats",
            {"loss": 1 / (step + 1), "grad": -step},
            time=1000 + step,
            step=step,
            lr=1e-05 * step,
        )
        for step in range(count)
    ]


def test_a_dense_log_skips_statistics_but_not_the_damaged_ones(tmp_path: Path) -> None:
    lines = [record("run_start"), *statistics(1200), record("run_stop", status="success")]
    whole = read(tmp_path, b"\n".join(lines) + b"\n")
    assert [entry.key for entry in whole.records] == [
        "run_start",
        "run_stop",
    ] and not whole.statistics
    assert whole.line(whole.records[1]) == 1202
    chance = random.Random(8)
    changes = [
        lambda line: line[: chance.randrange(12, len(line))],
        lambda line: line + b" x",
        lambda line: line.replace(b'"step": ', b'"step": 0'),
        lambda line: line.replace(b'"time_ms": ', b'"time_ms": -0'),
        lambda line: line.replace(b"}", b"", 1),
        lambda line: line.replace(b'"metadata"', b'"meta"'),
        lambda line: line.replace(b"loss", b"lo\tss"),
        lambda line: line.replace(b"0.", b".", 1).replace(b"1.", b".", 1),
        lambda line: line.replace(b'"lineno": 7', b'"lineno": +7'),
    ]
    for change in changes:
        at = chance.randrange(600, 1200)
        changed = change(lines[at])
        log = read(tmp_path, b"\n".join([*lines[:at], changed, *lines[at + 1 :]]) + b"\r\n")
        _records, damaged, crashes = referee_lines(tmp_path / "result_0.txt")
        assert len(log.damage) == damaged + crashes, changed
        for damage in log.damage:
            assert log.line(damage) == at + 1
        assert [entry.key for entry in log.records] == ["run_start", "run_stop"]


def test_a_carriage_return_inside_of_statistics_damages_each(tmp_path: Path) -> None:
    """JSON takes it for white space; the referee ends the line there."""
    lines = [line.replace(b', "metadata"', b',\r "metadata"') for line in statistics(1200)]
    log = read(tmp_path, b"\r\n".join([record("run_start"), *lines, b""]))
    _records, damaged, crashes = referee_lines(tmp_path / "result_0.txt")
    assert (len(log.damage), crashes) == (damaged, 0) == (1200, 0)


def test_statistics_with_words_of_the_rcp_test_are_not_skipped(tmp_path: Path) -> None:
    odd = [line.replace(b"a.py", b"eval_accuracy.py") for line in statistics(600)]
    log = read(tmp_path, b"\n".join(odd) + b"\n")
    assert len(log.records) == 600 and all(entry.words for entry in log.records)


def test_throughput_is_kept_in_dense_logs(tmp_path: Path) -> None:
    lines = statistics(1000)
    lines[500] = record("tracked_stats", {"throughput": 24.5}, time=5)
    assert read(tmp_path, b"\n".join(lines)).throughput == [(5.0, 24.5)]


def test_a_sparse_log_skips_known_statistics_too(tmp_path: Path) -> None:
    noise = b"console text of a training step\n" * 200
    lines = statistics(300)
    log = read(
        tmp_path,
        b"".join(
            noise + line + b"\n" for line in [*lines, record("seed", 5), b"\r" + lines[7][:-1]]
        ),
    )
    assert [(entry.key, entry.value) for entry in log.records] == [("seed", 5)]
    assert len(log.damage) == 1
    assert log.line(log.damage[0]) == 201 * 302 + 1


def test_no_rule_of_any_round_names_a_skipped_key() -> None:
    from orchestrator.mllog.rules import Rules
    from orchestrator.mllog.shipped import ROUNDS

    for ruleset in ROUNDS:
        rules = Rules(ruleset)
        for name in rules._raw:
            config = rules.config(name)
            assert config is not None and not SKIPPED_KEYS & set(config.keys)


@pytest.mark.parametrize(
    "line",
    [b"x" * (3 * LONGEST_LINE), TOKEN + b"x" * (3 * LONGEST_LINE), b"\xff" * (3 * LONGEST_LINE)],
    ids=["text", "record", "bytes"],  # the megabytes themselves otherwise
)
def test_a_line_without_end_does_not_fill_the_memory(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    path.write_bytes(line + b"\n" + record() + b"\n")
    tracemalloc.start()
    try:
        log = read_log(str(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * LONGEST_LINE
    assert [entry.key for entry in log.records] == ["seed"]
    assert len(log.damage) == line.startswith(TOKEN)


def test_a_record_across_the_read_boundary(tmp_path: Path) -> None:
    for cut in range(-len(record()) - 2, 3, 7):
        log = read(
            tmp_path,
            b"x" * (BLOCK + cut - 1) + b"\n" + record() + b"\r\n" + record("run_start") + b"\r\n",
        )
        assert [entry.key for entry in log.records] == ["seed", "run_start"]
        assert [log.line(entry) for entry in log.records] == [2, 3]


def test_shapes_are_shared_between_the_logs_of_a_set(tmp_path: Path) -> None:
    shapes = Shapes()
    read(tmp_path, b"\n".join(statistics(1000)), shapes=shapes)
    learned = list(shapes._shapes)
    assert learned
    read(tmp_path, b"\n".join(statistics(1000)), shapes=shapes)
    assert shapes._shapes == learned
