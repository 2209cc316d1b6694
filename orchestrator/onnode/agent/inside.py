"""The content of this node's container or host, collected when nothing is timed: at its start, and
after each run that ended by itself.

contents.py runs inside as long as the agent, hashes each part, and rereads only changed files. Its
lists go into the set's folder once per hash: inside/<part>-<hash>.tsv.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from shlex import join
from typing import Any

from ..kernel.layout import CONTENT_PARTS
from ..kernel.records import write_bytes
from ..kernel.waiting import Waiting
from .executor import Conversation, Executor
from .node import Node
from .observers import Observer

LIMIT_S = 12.0
"""The program stops after eight seconds."""
_PROGRAM, _SCRIPT = "contents.py", "contents.sh"
# The runs' environment names the caches. An image without Python 3.7 has no known content: an older
# version cannot read the script.
_START = """
. "${0%/*}/environment.sh" >/dev/null 2>&1
for python in python3 python; do
  "$python" -I -S -B "${0%/*}/contents.py" "$@" && exit
done
"""

Contents = dict[str, str]
"""Part -> hash; missing if unknown."""


class Inside:
    def __init__(self, node: Node, waiting: Waiting, executor: Executor) -> None:
        self._node, self._waiting, self._executor = node, waiting, executor
        self._is_possible = True
        """False: the image has no Python."""
        self._reader: Conversation | None = None
        self._then: Callable[[Contents], object] | None = None
        """Gets the content, while it is collected."""
        self._lists: dict[str, list[str]] = {}
        self._hashes: Contents = {}

    def collect(self, then: Callable[[Contents], object]) -> None:
        """Collect anew. `then` gets the content, {} if unknown."""
        if not self._is_possible:
            then({})
            return
        self._then, self._lists, self._hashes = then, {}, {}
        try:
            if self._reader is None or not self._reader.send("again"):
                self.close()
                self._reader = self._start()
        except OSError as error:
            self._node.log(f"the content of its container is unknown: {error}")
            self._end()
        else:
            self._waiting.after("inside", LIMIT_S, self._lose)

    def _start(self) -> Conversation:
        """Start contents.py, which reads once unasked. Raises OSError."""
        program = self._node.program.files[f"lib/agent/{_PROGRAM}"]
        mounts = [mount.split("\t") for mount in self._node.settings.mounts]
        arguments = [self._executor.code, *(mount[2] for mount in mounts if len(mount) > 2)]
        script = f"set -- {join(arguments)}\n{_START}".encode("utf-8", "surrogateescape")
        for name, content in ((_PROGRAM, program), (_SCRIPT, script)):
            path = f"{self._node.channel}/{name}"
            if not os.path.exists(path):
                write_bytes(path, content, sync=False)
                os.chmod(path, 0o644)
        return self._executor.converse(self._waiting, _SCRIPT, self._take, self._lose)

    def _take(self, line: str) -> None:
        if self._then is None:
            return
        part, _, rest = line.partition("\t")
        name, _, value = rest.partition("\t")
        if line == "done":
            self._end()
        elif part == "hash" and name in CONTENT_PARTS and value.isalnum() and len(value) <= 64:
            self._hashes[name] = value
        elif part in CONTENT_PARTS:
            self._lists.setdefault(part, []).append(rest)

    def _lose(self) -> None:
        """It takes too long, was killed, or the container has no Python."""
        self.close()
        self._end()

    def _end(self) -> None:
        self._waiting.cancel("inside")
        then, self._then = self._then, None
        if then is not None:
            self._keep()
            then(self._hashes)

    def give_up(self) -> None:
        """Stop collecting: nothing reads while a run is timed."""
        if self._then is not None:
            self._then = None
            self._waiting.cancel("inside")
            self.close()

    def close(self) -> None:
        """End contents.py."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _keep(self) -> None:
        """Write the lists that the set lacks."""
        for part, sha in self._hashes.items():
            path = self._node.layout.inside(part, sha)
            try:
                if not path.exists():
                    path.parent.mkdir(exist_ok=True)
                    text = "".join(f"{line}\n" for line in self._lists.get(part, []))
                    write_bytes(path, text.encode("utf-8", "replace"), sync=False)
            except OSError as error:
                self._node.log(f"cannot write {path}: {error.strerror or error}")

    def contents(self) -> Contents:
        """Collect for the first time, and serve everything else; return {} if unknown."""
        collected: list[Contents] = []
        self.collect(collected.append)
        try:
            self._waiting.wait(lambda: collected)
        finally:
            self.give_up()
        self._is_possible = bool(collected[0])
        return collected[0]


class ContentObserver(Observer):
    """The content at a run's end."""

    def __init__(
        self,
        inside: Inside,
        makes_sense: Callable[[], bool],
        tell: Callable[[Contents], object],
        then: Callable[[], object],
    ) -> None:
        """`then` is called when the content is known, if it `makes_sense` to collect it."""
        self._inside, self._makes_sense, self._tell, self._then = inside, makes_sense, tell, then
        self._contents: Contents = {}

    def run_ended(self) -> None:
        if self._makes_sense():
            self.is_done = False
            self._inside.collect(self._take)

    def _take(self, contents: Contents) -> None:
        self._contents = contents
        if not self.is_done:
            self.is_done = True
            self._then()

    def end(self) -> dict[str, Any]:
        if not self.is_done:  # too late
            self._inside.give_up()
            self.is_done = True
        if self._contents:
            self._tell(self._contents)
        return {"inside": self._contents}
