"""MLLOG records on standard output, as mlperf-logging writes them; printed by global rank 0 only.

`json` costs 11 ms of start-up on a node, for records that hold text, numbers, true, false and one
level of objects.
"""

from __future__ import annotations

import sys
import time
from math import isfinite

from training.failures import OutputGone

Scalar = str | float | int | bool | None


def quoted(text: str) -> str:
    """A JSON string in ASCII."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [units[i] << 8 | units[i + 1] for i in range(0, len(units), 2)]
    plain = [chr(c) if 31 < c < 127 and c not in (34, 92) else f"\\u{c:04x}" for c in codes]
    return '"' + "".join(plain) + '"'


def written(value: Scalar | dict[str, Scalar]) -> str:
    """`value` as Python's json module writes it, with bare NaN and Infinity."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join([f"{quoted(name)}: {written(member)}" for name, member in value.items()])
            + "}"
        )
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return repr(value)


class Log:
    """Writes records when `speaks` is true (global rank 0), else nothing."""

    def __init__(self, speaks: bool) -> None:
        self.speaks = speaks

    def line(self, text: str) -> None:
        if not self.speaks:
            return
        try:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        except OSError as reason:
            raise OutputGone(
                f"cannot write the log to standard output: {reason.strerror}"
            ) from None

    def record(
        self,
        event_type: str,
        key: str,
        value: Scalar | dict[str, Scalar],
        metadata: dict[str, Scalar],
    ) -> int:
        """Print one record; its time in Unix milliseconds."""
        now = time.time_ns() // 1_000_000
        if self.speaks:
            caller = sys._getframe(2)
            where: dict[str, Scalar] = {
                "file": caller.f_code.co_filename,
                "lineno": caller.f_lineno,
            }
            self.line(
                f':::MLLOG {{"namespace": "", "time_ms": {now}, "event_type": "{event_type}", '
                f'"key": "{key}", '
                f'"value": {written(value)}, "metadata": {written(where | metadata)}}}'
            )
        return now

    def start(self, key: str, **metadata: Scalar) -> int:
        return self.record("INTERVAL_START", key, None, metadata)

    def end(self, key: str, **metadata: Scalar) -> int:
        return self.record("INTERVAL_END", key, None, metadata)

    def event(self, key: str, value: Scalar | dict[str, Scalar], **metadata: Scalar) -> int:
        return self.record("POINT_IN_TIME", key, value, metadata)
