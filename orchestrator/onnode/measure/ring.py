"""The all-reduce over plain sockets, for images without torch and for nodes without GPUs.

The nodes form a ring, each sends to the next one. Two things are done:

- a real sum of 16384 numbers, reduce-scatter and all-gather, whose result is checked;
- for the bandwidth, the traffic of a ring all-reduce: 2(n-1) blocks of 1/n of the data over each
  link. Blocks are passed on without adding, because adding in Python would be slower than the
  network; each is compared with its expected content at the end.

The size grows until a pass takes a quarter of a second; the best of the passes of that size counts.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import threading
import time
from array import array
from queue import Queue
from typing import Any

FIRST_BYTES = 1 << 20
MOST_BYTES = 64 << 20
PASS_S = float(os.environ.get("ORCH_DEEP_PASS_S", "0.25"))
ENOUGH_S = 2.4 * PASS_S
NUMBERS = 1 << 14
NUMBER = struct.Struct("!q")


class Ring:
    """Connections to the next and from the previous node. Everything has the time limit of the
    request."""

    def __init__(self, listener: socket.socket, request: Any) -> None:
        members: list[Any] = request["members"]
        self.rank, self.size = request["rank"], len(members)
        self.next, self.before = members[(self.rank + 1) % self.size], members[self.rank - 1][0]
        self.end = time.monotonic() + request["limit"]
        token = hashlib.sha256(
            f"{request['id']} {[member[0] for member in members]}".encode()
        ).digest()
        self.following = self._connect(token + struct.pack("!I", self.rank))
        self.previous = self._accept(
            listener, token + struct.pack("!I", (self.rank - 1) % self.size)
        )
        for link in (self.following, self.previous):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.queue: Queue[bytes | None] = Queue()
        self.failure = ""
        self.sender = threading.Thread(target=self._send, daemon=True)
        self.sender.start()

    def _left(self) -> float:
        left: float = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time is up")
        return left

    def _connect(self, hello: bytes) -> socket.socket:
        node, address, port = self.next
        problem: OSError | None = None
        while time.monotonic() < self.end:
            try:
                link = socket.create_connection((address, port), min(5.0, self._left()))
                link.settimeout(self._left())
                link.sendall(hello)
                return link
            except OSError as error:
                problem = error
                time.sleep(0.05)
        raise ConnectionError(f"no connection to {node} ({address}:{port}): {problem}")

    def _accept(self, listener: socket.socket, wanted: bytes) -> socket.socket:
        """Accept the previous node's connection; a leftover of an earlier measurement is closed."""
        while True:
            listener.settimeout(self._left())
            try:
                link, _ = listener.accept()
            except socket.timeout:
                raise ConnectionError(f"no connection from {self.before}") from None
            try:
                link.settimeout(min(5.0, self._left()))
                if self._exactly(link, bytearray(len(wanted))) == wanted:
                    link.settimeout(self._left())
                    return link
            except OSError:
                pass
            link.close()

    def _exactly(self, link: socket.socket, buffer: bytearray) -> bytearray:
        view = memoryview(buffer)
        while view:
            count = link.recv_into(view)
            if count == 0:
                raise ConnectionError(f"the connection from {self.before} ended")
            view = view[count:]
        return buffer

    def _send(self) -> None:
        for data in iter(self.queue.get, None):
            try:
                self.following.sendall(data)
            except OSError as error:
                self.failure = f"to {self.next[0]}: {error}"
                self.previous.shutdown(socket.SHUT_RDWR)
                return

    def exchange(self, leaving: bytes, coming: bytearray) -> bytearray:
        """Send to the next node while `coming` is filled by the previous one; return that."""
        self.queue.put(leaving)
        return self.receive(coming)

    def receive(self, buffer: bytearray) -> bytearray:
        try:
            return self._exactly(self.previous, buffer)
        except socket.timeout:
            raise TimeoutError(f"nothing comes from {self.before}") from None
        except OSError:
            if self.failure:
                raise ConnectionError(self.failure) from None
            raise

    def agree(self, value: int, add: int = 0) -> int:
        """Pass a number round: every node gets the first node's value, plus the additions of the
        nodes before it."""
        if self.rank == 0:
            self.queue.put(NUMBER.pack(value + add))
        told = int(NUMBER.unpack(self.receive(bytearray(NUMBER.size)))[0])
        if self.rank != 0:
            self.queue.put(NUMBER.pack(told + add))
        return told

    def close(self) -> None:
        self.queue.put(None)
        self.sender.join(max(0.0, min(5.0, self.end - time.monotonic())))
        self.following.close()
        self.previous.close()


def check_sum(ring: Ring) -> int:
    """Do a real all-reduce; return how many numbers are wrong."""
    n, size = ring.size, -(-NUMBERS // ring.size)
    blocks = [
        array("I", ((rank_value(ring.rank) + index) % 65536 for index in range(size)))
        for _ in range(n)
    ]
    for step in range(2 * (n - 1)):
        leaving, coming = (ring.rank - step) % n, (ring.rank - step - 1) % n
        block = array("I", bytes(ring.exchange(blocks[leaving].tobytes(), bytearray(size * 4))))
        blocks[coming] = array("I", map(sum, zip(blocks[coming], block))) if step < n - 1 else block
    expected = array(
        "I", (sum((rank_value(rank) + index) % 65536 for rank in range(n)) for index in range(size))
    )
    return sum(one != other for block in blocks for one, other in zip(block, expected))


def rank_value(rank: int) -> int:
    return 1 + 7919 * rank


def pattern(index: int, size: int) -> bytes:
    """Return the content of block `index` of a pass."""
    digest = hashlib.sha512(b"%d" % index).digest()
    return (digest * (size // len(digest) + 1))[:size]


def one_pass(ring: Ring, blocks: list[bytearray]) -> float:
    """Send as much as a ring all-reduce of these blocks does; return the seconds."""
    start = time.perf_counter()
    for step in range(2 * (ring.size - 1)):
        ring.exchange(
            blocks[(ring.rank - step) % ring.size], blocks[(ring.rank - step - 1) % ring.size]
        )
    # Data may still wait in this node's own buffers; a number that goes round behind it waits with
    # it.
    ring.agree(0)
    return time.perf_counter() - start


def measure_passes(ring: Ring) -> tuple[int, float, int]:
    """Return bytes and seconds of the best pass of the last size, and the wrong bytes on this
    node."""
    size, best, total, wrong = 0, 0.0, 0.0, 0
    wanted = ring.agree(FIRST_BYTES)
    while wanted:
        if wanted != size:
            size, best, block_bytes = wanted, float("inf"), -(-wanted // ring.size)
            blocks = [bytearray(block_bytes) for _ in range(ring.size)]
            blocks[ring.rank][:] = pattern(ring.rank, block_bytes)
            ring.agree(0)  # nobody starts while another one still fills its blocks
        seconds = one_pass(ring, blocks)
        for index, block in enumerate(blocks):
            sent = pattern(index, block_bytes)
            wrong += 0 if block == sent else sum(one != other for one, other in zip(block, sent))
        total, best = total + seconds, min(seconds, best)
        wanted = (
            4 * size if seconds < PASS_S and size < MOST_BYTES else 0 if total >= ENOUGH_S else size
        )
        wanted = ring.agree(wanted)  # the first node decides
    return block_bytes * ring.size, best, wrong


def measure(listener: socket.socket, request: Any) -> dict[str, int]:
    """Measure with the nodes of the request; the first node's answer has the bandwidth."""
    ring = Ring(listener, request)
    try:
        wrong = check_sum(ring)
        size, seconds, bad = measure_passes(ring)
        wrong = ring.agree(0, add=wrong + bad)
    finally:
        ring.close()
    busbw = 2 * (ring.size - 1) / ring.size * size / seconds
    return {
        "bytes": size,
        "microseconds": round(seconds * 1e6),
        "mbps": round(busbw / 1e6),
        "wrong": wrong,
    }
