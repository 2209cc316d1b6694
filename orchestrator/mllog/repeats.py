"""Records that were parsed before. The settings of a set are the same in all its logs; only their time differs.

A record in the form that MLCommons' logging library writes begins with its time. Everything behind the time is the key
here; what it was parsed to is taken again. Values and metadata of such records are shared: nobody may change them.
"""

from __future__ import annotations

# Not typing's own constant: importing typing takes a tenth of a cold `orchestrator score`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # (key, value, metadata, words of the RCP test)
    Parsed = tuple[Any, Any, Any, int]

BEGIN = b'{"namespace": "", "time_ms": '
_BEGIN = slice(len(BEGIN))
_TIME = slice(len(BEGIN), len(BEGIN) + 13)
_REST = slice(len(BEGIN) + 13, None)
MOST = 2048


class Repeats:
    """What records were parsed to, by their text behind the time; one instance serves all logs of a set."""

    def __init__(self) -> None:
        self._known: dict[bytes, Parsed] = {}

    def find(self, text: bytes) -> tuple[float, Parsed] | None:
        """Return (time, what the record was parsed to), None if no equal one is known."""
        parsed = self._known.get(text[_REST])
        if parsed is None or text[_BEGIN] != BEGIN:
            return None
        time = text[_TIME]
        # 13 digits without a leading zero: any other text could be no number of JSON.
        return (float(time), parsed) if time.isdigit() and time[0] != 48 else None

    def keep(self, text: bytes, time: float, parsed: Parsed) -> None:
        """Remember a record, if its time is where `find` reads it and nowhere else."""
        rest = text[_REST]
        if (
            len(self._known) < MOST
            and text.startswith(BEGIN)
            and rest.startswith(b",")
            and text[_TIME].isdigit()
            and float(text[_TIME]) == time
            # A second time in the same object would win; a backslash could spell it.
            and b'"time_ms"' not in rest
            and b"\\" not in rest
        ):
            self._known[rest] = parsed
