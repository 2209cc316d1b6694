"""The all-reduce over plain sockets, for images without torch and for nodes without GPUs.

The nodes form a ring, each sends to the next one. Two things are done:

- a real sum of 16384 numbers, reduce-scatter and all-gather, whose result is checked;
- for the bandwidth, what a ring all-reduce sends: 2(n-1) blocks of 1/n of the data over each link. Blocks are passed on without
  adding, because adding in Python would be slower than the network; each one is compared with what it must be at the end.

The size grows until a pass takes a quarter of a second; the best of the passes of that size counts.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import sys
import threading
import time
from array import array
from queue import Queue

from all_reduce_address import serve_requests

FIRST_BYTES = 1 << 20
MOST_BYTES = 64 << 20
PASS_S = 0.25
ENOUGH_S = 0.6
NUMBERS = 1 << 14


class Ring:
    """Connections to the next and from the previous node. Everything has the time limit of the request."""

    def __init__(self, listener, members, rank, ident, limit):
        self.size = len(members)
        self.rank = rank
        self.members = members
        self.end = time.monotonic() + limit
        token = hashlib.sha256(("%s %s" % (ident, [member["node"] for member in members])).encode()).digest()
        self.following = self._connect(members[(rank + 1) % self.size], token + struct.pack("!I", rank))
        self.previous = self._accept(listener, token + struct.pack("!I", (rank - 1) % self.size))
        for link in (self.following, self.previous):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.queue = Queue()
        self.failure = None
        self.sender = threading.Thread(target=self._send, daemon=True)
        self.sender.start()

    def _left(self):
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time is up")
        return left

    def _connect(self, member, hello):
        problem = None
        while time.monotonic() < self.end:
            try:
                link = socket.create_connection((member["address"], member["port"]), min(5.0, self._left()))
                link.settimeout(self._left())
                link.sendall(hello)
                return link
            except OSError as error:
                problem = error
                time.sleep(0.05)
        raise ConnectionError(
            "no connection to %s (%s:%s): %s" % (member["node"], member["address"], member["port"], problem)
        )

    def _accept(self, listener, wanted):
        """Take the previous node's connection; one that an earlier measurement left behind is closed."""
        while True:
            listener.settimeout(self._left())
            try:
                link, _ = listener.accept()
            except socket.timeout:
                raise ConnectionError("no connection from %s" % self.members[self.rank - 1]["node"])
            try:
                link.settimeout(min(5.0, self._left()))
                if self._exactly(link, bytearray(len(wanted))) == wanted:
                    link.settimeout(self._left())
                    return link
            except OSError:
                pass
            link.close()

    def _exactly(self, link, buffer):
        view = memoryview(buffer)
        while view:
            count = link.recv_into(view)
            if count == 0:
                raise ConnectionError("the connection from %s ended" % self.members[self.rank - 1]["node"])
            view = view[count:]
        return bytes(buffer) if len(buffer) < 256 else buffer

    def _send(self):
        while True:
            data = self.queue.get()
            if data is None:
                return
            try:
                self.following.sendall(data)
            except OSError as error:
                self.failure = "to %s: %s" % (self.members[(self.rank + 1) % self.size]["node"], error)
                self.previous.shutdown(socket.SHUT_RDWR)
                return

    def send(self, data):
        self.queue.put(data)

    def receive(self, buffer):
        try:
            return self._exactly(self.previous, buffer)
        except socket.timeout:
            raise TimeoutError("nothing comes from %s" % self.members[self.rank - 1]["node"])
        except OSError:
            if self.failure:
                raise ConnectionError(self.failure)
            raise

    def agree(self, value, add=0):
        """Pass a number round: every node gets what the first one says, plus what the nodes before it added."""
        if self.rank == 0:
            self.send(struct.pack("!q", value + add))
            return struct.unpack("!q", self.receive(bytearray(8)))[0]
        value = struct.unpack("!q", self.receive(bytearray(8)))[0]
        self.send(struct.pack("!q", value + add))
        return value

    def close(self):
        self.queue.put(None)
        self.sender.join(max(0.0, min(5.0, self.end - time.monotonic())))
        for link in (self.following, self.previous):
            link.close()


def check_sum(ring):
    """Do a real all-reduce; return how many numbers are wrong."""
    n, size = ring.size, -(-NUMBERS // ring.size)
    blocks = [array("I", ((rank_value(ring.rank) + index) % 65536 for index in range(size))) for _ in range(n)]
    for step in range(2 * (n - 1)):
        leaving, coming = (ring.rank - step) % n, (ring.rank - step - 1) % n
        ring.send(blocks[leaving].tobytes())
        block = array("I")
        block.frombytes(bytes(ring.receive(bytearray(size * block.itemsize))))
        blocks[coming] = array("I", map(sum, zip(blocks[coming], block))) if step < n - 1 else block
    expected = array("I", (sum((rank_value(rank) + index) % 65536 for rank in range(n)) for index in range(size)))
    return sum(one != other for block in blocks for one, other in zip(block, expected))


def rank_value(rank):
    return 1 + 7919 * rank


class Blocks:
    """The blocks of one pass; what a block holds follows from its number."""

    def __init__(self, ring, size):
        self.ring = ring
        self.bytes = -(-size // ring.size)
        mine = bytearray(self.expected(ring.rank))
        self.blocks = [mine if index == ring.rank else bytearray(self.bytes) for index in range(ring.size)]

    def expected(self, index):
        pattern = hashlib.sha512(b"%d" % index).digest()
        return (pattern * (self.bytes // len(pattern) + 1))[: self.bytes]

    def exchange(self):
        """Send as much as a ring all-reduce of these blocks does; return the seconds."""
        ring, start = self.ring, time.perf_counter()
        for step in range(2 * (ring.size - 1)):
            ring.send(self.blocks[(ring.rank - step) % ring.size])
            ring.receive(self.blocks[(ring.rank - step - 1) % ring.size])
        # What this node has sent may still wait in its own buffers; a number that goes round behind it waits with it.
        ring.agree(0)
        return time.perf_counter() - start

    def wrong(self):
        bad = 0
        for index, block in enumerate(self.blocks):
            expected = self.expected(index)
            if block != expected:
                bad += sum(one != other for one, other in zip(block, expected))
        return bad


def measure_passes(ring):
    """Return the best pass as (bytes, seconds), and the bytes that arrived wrong on this node."""
    size, best, total, bad, blocks = ring.agree(FIRST_BYTES), None, 0.0, 0, None
    while size:
        if blocks is None or blocks.bytes != -(-size // ring.size):
            blocks, best = Blocks(ring, size), None
            size = ring.agree(size)  # nobody starts while another one still fills its blocks
        seconds = blocks.exchange()
        bad += blocks.wrong()
        total += seconds
        best = min(seconds, best or seconds)
        following = size
        if seconds < PASS_S and size < MOST_BYTES:
            following = 4 * size
        elif total >= ENOUGH_S:
            following = 0
        following = ring.agree(following)
        if not following:
            return blocks.bytes * ring.size, best, bad
        size = following
    raise ValueError("no size to measure")


def measure(request, listener):
    """Measure with the nodes of the request; the first node's answer has the bandwidth."""
    ring = Ring(listener, request["members"], request["rank"], request["id"], request["limit"])
    try:
        wrong = check_sum(ring)
        size, seconds, bad = measure_passes(ring)
        wrong = ring.agree(0, add=wrong + bad)
        busbw = 2 * (ring.size - 1) / ring.size * size / seconds
        return {"bytes": size, "microseconds": round(seconds * 1e6), "mbps": round(busbw / 1e6), "wrong": wrong}
    finally:
        ring.close()


if __name__ == "__main__":
    _listener = socket.socket(fileno=os.dup(int(sys.argv[3])))
    serve_requests(lambda request: measure(request, _listener))
