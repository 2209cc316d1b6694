"""The content of this node's container, collected when nothing is timed: at its start, and at the
end of each run.

contents.py runs inside and hashes each part. Its lists go into the set's folder once per hash, for
all nodes: inside/<part>-<hash>.tsv.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..kernel.layout import CONTENT_PARTS
from ..kernel.records import write_bytes
from ..kernel.waiting import Partner, Waiting, end_session
from .executor import Executor
from .node import Node, host_environment
from .observers import Observer

LIMIT_S = 12.0
"""The script stops after eight seconds; the engine starts it."""
_SCRIPT = "contents.py"
# The runs' environment names the places of caches. An image without Python has no known content; one
# older than 3.7 cannot read the script, and ends with 1.
_START = """
. "$0/environment.sh" >/dev/null 2>&1
for python in python3 python; do
  "$python" -I -S -B "$0/contents.py" "$@" && exit
done
"""

Contents = dict[str, str]
"""Part -> hash; missing if unknown."""


class Inside:
    """A collection of the content of a container, or of the host without a container."""

    def __init__(
        self,
        node: Node,
        waiting: Waiting,
        executor: Executor,
        then: Callable[[Contents], object],
    ) -> None:
        """`then` gets the content, {} if unknown."""
        self._node, self._waiting, self._executor, self._then = node, waiting, executor, then
        self._partner: Partner | None = None
        self._lists: dict[str, list[str]] = {}
        self._hashes: Contents = {}
        self._is_done = False
        try:
            self._partner = self._start()
        except OSError as error:
            node.log(f"the content of its container is unknown: {error}")
            self._end()
        else:
            waiting.after("inside", LIMIT_S, self._end)

    def _start(self) -> Partner:
        """Raises OSError."""
        script = f"{self._node.channel}/{_SCRIPT}"
        if not os.path.exists(script):
            write_bytes(script, self._node.program.files[f"lib/agent/{_SCRIPT}"], sync=False)
            os.chmod(script, 0o644)
        mounts = [mount.split("\t") for mount in self._node.settings.mounts]
        data = [mount[2] for mount in mounts if len(mount) > 2]
        executor = self._executor
        argv = executor.command(["bash", "-c", _START, executor.inside, executor.code, *data])
        on_host = executor.inside != "/orch"
        with open(os.devnull, "wb") as errors:
            partner = Partner(
                self._waiting,
                argv,
                self._take,
                self._end,
                errors=errors,
                environment=host_environment() if on_host else None,
            )
        partner.input.close()
        return partner

    def _take(self, line: str) -> None:
        part, _, rest = line.partition("\t")
        name, _, value = rest.partition("\t")
        if part == "hash" and name in CONTENT_PARTS and value.isalnum() and len(value) <= 64:
            self._hashes[name] = value
        elif part in CONTENT_PARTS:
            self._lists.setdefault(part, []).append(rest)

    def _end(self) -> None:
        """At the end of its output, or after too long."""
        if not self._is_done:
            self.give_up()
            self._keep()
            self._then(self._hashes)

    def give_up(self) -> None:
        self._is_done = True
        self._waiting.cancel("inside")
        if self._partner is not None:
            end_session(self._partner.process)
            self._partner.process.wait()

    def _keep(self) -> None:
        """Write the lists that the set lacks."""
        for part, sha in self._hashes.items():
            path = self._node.layout.inside(part, sha)
            try:
                if not path.exists():
                    path.parent.mkdir(exist_ok=True)
                    text = "".join(f"{one}\n" for one in self._lists.get(part, []))
                    write_bytes(path, text.encode("utf-8", "replace"), sync=False)
            except OSError as error:
                self._node.log(f"cannot write {path}: {error.strerror or error}")


def contents(node: Node, waiting: Waiting, executor: Executor) -> Contents:
    """Serve everything else meanwhile; return {} if unknown."""
    found: list[Contents] = []
    collection = Inside(node, waiting, executor, found.append)
    try:
        waiting.wait(lambda: found)
    finally:
        if not found:
            collection.give_up()
    return found[0]


class ContentObserver(Observer):
    """The container's content at the end of a run that ended by itself."""

    def __init__(
        self,
        collect: Callable[[Callable[[Contents], object]], Inside | None],
        tell: Callable[[Contents], object],
        then: Callable[[], object],
    ) -> None:
        """`collect` starts a collection, if it makes sense; `then` is called when it is done."""
        self._collect, self._tell, self._then = collect, tell, then
        self._collection: Inside | None = None
        self._found: Contents = {}

    def run_ended(self) -> None:
        self.is_done = False
        self._collection = self._collect(self._take)
        if self._collection is None:
            self.is_done = True

    def _take(self, found: Contents) -> None:
        self._found = found
        if not self.is_done:
            self.is_done = True
            self._then()

    def end(self) -> dict[str, Any]:
        if not self.is_done and self._collection is not None:
            self._collection.give_up()
        self.is_done = True  # too late
        if self._found:
            self._tell(self._found)
        return {"inside": self._found}
