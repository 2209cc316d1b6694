"""Records parsed before: a set's logs repeat their settings, with other times.

A record of MLCommons' logging library starts with its time. The text behind it is the key of the
parsed value. Values and metadata are shared: nobody may change them.
"""

from __future__ import annotations

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
    """Parsed records by their text behind the time; shared by all logs of a set."""

    def __init__(self) -> None:
        self._known: dict[bytes, Parsed] = {}

    def find(self, text: bytes) -> tuple[float, Parsed] | None:
        """Return (time, parsed record), None if unknown."""
        parsed = self._known.get(text[_REST])
        if parsed is None or text[_BEGIN] != BEGIN:
            return None
        time = text[_TIME]
        # 13 digits without a leading zero: any other text could be no number of JSON.
        return (float(time), parsed) if time.isdigit() and time[0] != 48 else None

    def keep(self, text: bytes, time: float, parsed: Parsed) -> None:
        """Remember a record, if its only time is where `find` expects it."""
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
