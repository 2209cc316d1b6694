"""Seeded damage to the logs of a set: every kind that logs of real clusters show, and some that they do not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

Files = dict[str, bytes]
TOKEN = b":::MLLOG "

VALUES = [
    None,
    "",
    "x",
    "8",
    "closed",
    -1,
    0,
    1,
    2,
    8,
    16,
    0.5,
    1e9,
    1e400,
    float("nan"),
    float("inf"),
    True,
    False,
    [],
    {},
    [1],
    {"a": 1},
    10**30,
    "nan",
    0.925,
    0.3,
    3072,
    "success",
    "aborted",
    -0.0,
    12345678901234567890123,
]
KEYS = [
    "submission_division",
    "submission_benchmark",
    "submission_org",
    "submission_platform",
    "cache_clear",
    "init_start",
    "init_stop",
    "run_start",
    "run_stop",
    "block_start",
    "block_stop",
    "eval_start",
    "eval_stop",
    "eval_accuracy",
    "train_samples",
    "eval_samples",
    "gradient_accumulation_steps",
    "global_batch_size",
    "opt_base_learning_rate",
    "lora_rank",
    "lora_alpha",
    "seed",
    "opt_gradient_clip_norm",
    "opt_learning_rate_warmup_steps",
    "opt_learning_rate_decay_steps",
    "max_steps",
    "opt_name",
    "epoch_start",
    "tracked_stats",
    "train_loss",
    "eval_error",
]


class Mutator:
    """Applies one to three random changes to a copy of a set; `story` says which."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.story: list[str] = []

    def mutate(self, files: Files) -> Files:
        files = dict(files)
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            if not files:
                break
            change = self.random.choice(SET_CHANGES if self.random.random() < 0.3 else FILE_CHANGES)
            if change in SET_CHANGES:
                files = change(self, files)
            else:
                # Often one file, sometimes several: one bad run is allowed, two are not.
                for name in self.random.sample(
                    sorted(files), min(len(files), self.random.choice((1, 1, 2, 3)))
                ):
                    files[name] = change(self, files[name])
            self.story.append(change.__name__)
        return files

    def lines(self, data: bytes) -> list[bytes]:
        return data.splitlines(keepends=True)

    def pick(self, lines: list[bytes], key: str | None = None) -> int | None:
        key = key or self.random.choice(KEYS)
        found = [
            index
            for index, line in enumerate(lines)
            if TOKEN in line and b'"key": "%s"' % key.encode() in line
        ]
        return self.random.choice(found) if found else None

    def edit(self, data: bytes, change: Callable[[dict], None], key: str | None = None) -> bytes:
        """Change one record as JSON."""
        lines = self.lines(data)
        index = self.pick(lines, key)
        if index is None:
            return data
        head, _, text = lines[index].rpartition(TOKEN)
        try:
            record = json.loads(text.decode("latin-1"))
            change(record)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return data
        end = b"\r\n" if text.endswith(b"\r\n") else b"\n"
        lines[index] = head + TOKEN + json.dumps(record).encode("latin-1") + end
        return b"".join(lines)

    def value(self) -> object:
        return self.random.choice(VALUES)


def drop_key(m: Mutator, data: bytes) -> bytes:
    key = m.random.choice(KEYS).encode()
    return b"".join(line for line in m.lines(data) if b'"key": "%s"' % key not in line)


def drop_record(m: Mutator, data: bytes) -> bytes:
    lines = m.lines(data)
    index = m.pick(lines)
    return b"".join(lines[:index] + lines[index + 1 :]) if index is not None else data


def double_record(m: Mutator, data: bytes) -> bytes:
    lines = m.lines(data)
    index = m.pick(lines)
    if index is not None:
        lines.insert(m.random.choice((index, len(lines))), lines[index])
    return b"".join(lines)


def double_with_other_value(m: Mutator, data: bytes) -> bytes:
    lines = m.lines(data)
    index = m.pick(lines)
    if index is None:
        return data
    changed = m.edit(
        lines[index], lambda record: record.update(value=m.value()), json_key(lines[index])
    )
    lines.insert(index + 1, changed)
    return b"".join(lines)


def json_key(line: bytes) -> str:
    return line.rpartition(b'"key": "')[2].split(b'"')[0].decode("latin-1")


def change_value(m: Mutator, data: bytes) -> bytes:
    return m.edit(data, lambda record: record.update(value=m.value()))


def nudge_value(m: Mutator, data: bytes) -> bytes:
    return m.edit(
        data,
        lambda record: record.update(
            value=record["value"] * m.random.choice((-1, 0.5, 0.999, 1.0, 1.001, 2))
        ),
    )


def change_metadata(m: Mutator, data: bytes) -> bytes:
    def change(record: dict) -> None:
        name = m.random.choice(
            [
                "samples_count",
                "epoch_num",
                "status",
                "file",
                "lineno",
                "epoch_count",
                "first_epoch_num",
            ]
        )
        if m.random.random() < 0.5:
            record["metadata"].pop(name)
        else:
            record["metadata"][name] = m.value()

    return m.edit(data, change)


def replace_metadata(m: Mutator, data: bytes) -> bytes:
    return m.edit(
        data,
        lambda record: record.update(
            metadata=m.random.choice([None, [], {}, "samples_count", 5, ["status"]])
        ),
    )


def drop_member(m: Mutator, data: bytes) -> bytes:
    return m.edit(data, lambda record: record.pop(m.random.choice(list(record))))


def change_time(m: Mutator, data: bytes) -> bytes:
    def change(record: dict) -> None:
        time = record["time_ms"]
        record["time_ms"] = m.random.choice(
            [
                time + 1,
                time - 3_600_000,
                time + 1_799_999,
                time + 0.5,
                str(time),
                "soon",
                None,
                0,
                -time,
                True,
                [],
                1e400,
                10**400,
                float("nan"),
                time + 100_000,
            ]
        )

    return m.edit(data, change)


def tear_line(m: Mutator, data: bytes) -> bytes:
    lines = m.lines(data)
    index = m.pick(lines)
    if index is not None:
        cut = m.random.randrange(len(lines[index]))
        keep_end = m.random.random() < 0.7
        lines[index] = lines[index][:cut] + (b"\n" if keep_end else b"")
    return b"".join(lines)


def insert_text(m: Mutator, data: bytes) -> bytes:
    lines = m.lines(data)
    index = m.pick(lines)
    if index is not None:
        at = m.random.randrange(len(lines[index]))
        text = m.random.choice(
            [
                b"\xe2\x96",
                b"\r",
                b"\n",
                b"\x00",
                b'"',
                b"}",
                b"{",
                b",",
                b"\x1c",
                b"\xa0",
                TOKEN,
                b"0: ",
                b"\\u0041",
            ]
        )
        lines[index] = lines[index][:at] + text + lines[index][at:]
    return b"".join(lines)


def prefix(m: Mutator, data: bytes) -> bytes:
    lines = m.lines(data)
    index = m.pick(lines)
    if index is not None:
        lines[index] = (
            m.random.choice(
                [
                    b"0: ",
                    b" 12: ",
                    b": ",
                    TOKEN,
                    b":::MLLOG",
                    b"[0] NCCL INFO -> 0[",
                    b"\xff\xfe",
                    TOKEN + b'{"a": 1} ',
                ]
            )
            + lines[index]
        )
    return b"".join(lines)


def suffix(m: Mutator, data: bytes) -> bytes:
    lines = m.lines(data)
    index = m.pick(lines)
    if index is not None:
        body = lines[index].rstrip(b"\r\n")
        lines[index] = (
            body
            + m.random.choice(
                [
                    b" ",
                    b"\t",
                    b"\x0b",
                    b"\x85",
                    b"\xa0",
                    b"\x1f",
                    b" x",
                    b"}",
                    b"{}",
                    b",{}",
                    b"\x00",
                    b" :::",
                ]
            )
            + b"\n"
        )
    return b"".join(lines)


def line_ends(m: Mutator, data: bytes) -> bytes:
    end = m.random.choice([b"\r\n", b"\r", b"\n\r", b"\n\n"])
    plain = data.replace(b"\r\n", b"\n")
    if m.random.random() < 0.5:
        return plain.replace(b"\n", end)
    lines = plain.split(b"\n")
    return (
        b"".join(line + (end if m.random.random() < 0.2 else b"\n") for line in lines[:-1])
        + lines[-1]
    )


def bad_bytes(m: Mutator, data: bytes) -> bytes:
    for _ in range(m.random.choice((1, 3, 20))):
        at = m.random.randrange(len(data) + 1)
        data = (
            data[:at]
            + bytes(m.random.randrange(256) for _ in range(m.random.choice((1, 2, 50))))
            + data[at:]
        )
    return data


def noise_lines(m: Mutator, data: bytes) -> bytes:
    lines = m.lines(data)
    for _ in range(20):
        noise = m.random.choice(
            [
                b"\rstep 1\rstep 2\r",
                b":::DLPAL x\n",
                b"+ echo ':::SYSJSON {}'\n",
                b"::MLLOG {}\n",
                b":::MLLOG{}\n",
                b":::mllog {}\n",
                b":::MLLOG  \xe2\x96\x88\n",
                b"\xff\n",
                b"eval_accuracy\n",
                b":::MLLOG null\n",
            ][: 7 if m.random.random() < 0.7 else 10]
        )
        lines.insert(m.random.randrange(len(lines) + 1), noise)
    return b"".join(lines)


def truncate(m: Mutator, data: bytes) -> bytes:
    return data[: m.random.randrange(len(data) + 1)] if m.random.random() < 0.8 else b""


def cut_span(m: Mutator, data: bytes) -> bytes:
    start = m.random.randrange(len(data) + 1)
    return data[:start] + data[start + m.random.randrange(1, 3000) :]


def swap_lines(m: Mutator, data: bytes) -> bytes:
    lines = m.lines(data)
    one, other = m.pick(lines), m.pick(lines)
    if one is not None and other is not None:
        lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def status(m: Mutator, data: bytes) -> bytes:
    return m.edit(
        data,
        lambda record: record["metadata"].update(
            status=m.random.choice(["aborted", "success", "", None, "Success"])
        ),
        "run_stop",
    )


def second_run_stop(m: Mutator, data: bytes) -> bytes:
    lines = m.lines(data)
    index = m.pick(lines, "run_stop")
    if index is not None:
        again = m.edit(
            lines[index].rstrip(b"\r\n") + b"\n",
            lambda record: (
                record["metadata"].update(status=m.random.choice(["aborted", "success"])),
                record.update(time_ms=record["time_ms"] + m.random.choice((-60000, 0, 60000))),
            ),
            "run_stop",
        )
        lines.insert(m.random.randrange(max(0, index - 6), len(lines) + 1), again)
    return b"".join(lines)


def after_run_stop(m: Mutator, data: bytes) -> bytes:
    lines = m.lines(data)
    index = m.pick(
        lines,
        m.random.choice(
            ["eval_accuracy", "train_samples", "init_start", "seed", "run_start", "block_start"]
        ),
    )
    return b"".join([*lines, lines[index]]) if index is not None else data


def miss_target(m: Mutator, data: bytes) -> bytes:
    value = m.random.choice([9.9, 0.0, -1.0, float("nan"), "0.9", None])
    for _ in range(60):
        lines = m.lines(data)
        todo = [
            i
            for i, line in enumerate(lines)
            if b'"key": "eval_accuracy"' in line and b"MISSED" not in line
        ]
        if not todo:
            break
        data = (
            b"".join(lines[: todo[0]])
            + m.edit(
                lines[todo[0]],
                lambda r: (r.update(value=value), r["metadata"].update(m="MISSED")),
                "eval_accuracy",
            )
            + b"".join(lines[todo[0] + 1 :])
        )
    return data


def other_seed(m: Mutator, data: bytes) -> bytes:
    return m.edit(
        data,
        lambda record: record.update(
            value=m.random.choice([1, 1, "1", 1.0, 1.7, "x", None, float("nan"), True])
        ),
        "seed",
    )


# Changes of a whole set.


def nine_files(m: Mutator, files: Files) -> Files:
    files.pop(m.random.choice(sorted(files)))
    return files


def eleven_files(m: Mutator, files: Files) -> Files:
    extra = files[m.random.choice(sorted(files))]
    files["result_10.txt"] = m.edit(
        extra,
        lambda record: record.update(value=m.random.choice([987654, record["value"]])),
        "seed",
    )
    return files


def batch_size(m: Mutator, files: Files) -> Files:
    size = m.random.choice(
        [
            1,
            4,
            7,
            8,
            9,
            12,
            15,
            16,
            24,
            31,
            32,
            33,
            64,
            100,
            128,
            129,
            256,
            512,
            700,
            2304,
            4096,
            8192,
            8.0,
            9.5,
            -1,
            0,
            "8",
            None,
            float("nan"),
            [8],
            True,
        ]
    )
    return {
        name: m.edit(data, lambda record: record.update(value=size), "global_batch_size")
        for name, data in files.items()
    }


def one_batch_size(m: Mutator, files: Files) -> Files:
    name = m.random.choice(sorted(files))
    files[name] = m.edit(
        files[name],
        lambda record: record.update(value=m.random.choice([8, 16, 32, 64])),
        "global_batch_size",
    )
    return files


def scale_samples(m: Mutator, files: Files) -> Files:
    """Faster or slower convergence, often close to what the reference allows."""
    factor = m.random.choice(
        [0.5, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 1.02, 1.5, m.random.uniform(0.9, 1.05)]
    )

    def scale(line: bytes) -> bytes:
        if b'"key": "eval_accuracy"' not in line:
            return line
        return m.edit(
            line,
            lambda r: r["metadata"].update(samples_count=r["metadata"]["samples_count"] * factor),
            "eval_accuracy",
        )

    return {name: b"".join(scale(line) for line in m.lines(data)) for name, data in files.items()}


def everywhere(m: Mutator, files: Files) -> Files:
    """The same change of one key's value in every file."""
    key, value = m.random.choice(KEYS), m.value()
    return {
        name: m.edit(data, lambda record: record.update(value=value), key)
        for name, data in files.items()
    }


def same_seed(m: Mutator, files: Files) -> Files:
    for name in m.random.sample(sorted(files), min(2, len(files))):
        files[name] = m.edit(files[name], lambda record: record.update(value=4711), "seed")
    return files


def aborted_runs(m: Mutator, files: Files) -> Files:
    for name in m.random.sample(sorted(files), min(len(files), m.random.choice((1, 1, 2)))):
        files[name] = m.edit(
            files[name], lambda record: record["metadata"].update(status="aborted"), "run_stop"
        )
    return files


def killed_runs(m: Mutator, files: Files) -> Files:
    for name in m.random.sample(sorted(files), min(len(files), m.random.choice((1, 1, 2)))):
        files[name] = b"".join(line for line in m.lines(files[name]) if b'"run_stop"' not in line)
    return files


def swap_files(m: Mutator, files: Files) -> Files:
    one, other = m.random.choice(sorted(files)), m.random.choice(sorted(files))
    files[one] = files[other]
    return files


FILE_CHANGES = [
    drop_key,
    drop_record,
    double_record,
    double_with_other_value,
    change_value,
    nudge_value,
    change_metadata,
    replace_metadata,
    drop_member,
    change_time,
    tear_line,
    insert_text,
    prefix,
    suffix,
    line_ends,
    bad_bytes,
    noise_lines,
    truncate,
    cut_span,
    swap_lines,
    status,
    second_run_stop,
    after_run_stop,
    miss_target,
    other_seed,
]
SET_CHANGES = [
    nine_files,
    eleven_files,
    batch_size,
    one_batch_size,
    scale_samples,
    everywhere,
    same_seed,
    aborted_runs,
    killed_runs,
    swap_files,
]
