"""Frames over TCP: what two nodes say to each other, and how it is cut out of the stream."""

from __future__ import annotations

from struct import Struct, pack, unpack
from time import monotonic

# The public `socket` module wraps this one and doubles the start-up time of a node (23 ms instead
# of 11 ms here),
# mostly for enums. What it adds (accept, makefile, context managers) is a line in exchange.py.
import _socket

MAGIC = b"obw1"
HEADER = Struct("!4sBII")  # magic, kind, sequence number, length of the payload
MAX_PAYLOAD = 1 << 16
HELLO, WELCOME, REFUSE, SUM, ABORT = range(1, 6)
# A peer whose host is gone sends no FIN: ask after 5 s of silence, give up after 3 questions 2 s
# apart.
KEEPALIVE = ((_socket.TCP_KEEPIDLE, 5), (_socket.TCP_KEEPINTVL, 2), (_socket.TCP_KEEPCNT, 3))

Settings = dict[str, str]
Frame = tuple[int, int, bytes]


def frame(kind: int, sequence: int, payload: bytes) -> bytes:
    return HEADER.pack(MAGIC, kind, sequence, len(payload)) + payload


def packed(values: list[int] | None) -> bytes:
    """Eight bytes a value; None (the training has diverged) travels as no bytes at all."""
    return b"" if values is None else pack(f"!{len(values)}q", *values)


def unpacked(payload: bytes, count: int) -> list[int]:
    """struct.error when there are not exactly `count` values."""
    return list(unpack(f"!{count}q", payload))


class NotOurs(Exception):
    """The bytes are not frames of this program."""


class Peer:
    """One connection and the part of a frame that has arrived on it."""

    def __init__(self, socket: _socket.socket, address: str) -> None:
        self.socket = socket
        self.address = address
        self.node = -1
        self.name = ""
        self.buffer = b""
        socket.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE:
            socket.setsockopt(_socket.IPPROTO_TCP, option, value)

    def send(self, kind: int, sequence: int, payload: bytes) -> None:
        self.socket.sendall(frame(kind, sequence, payload))

    def receive(self) -> Frame | None:
        """Read once; the frame when it is complete, else None. EOFError when the other side has
        closed.

        What came together with the last frame counts first: the other side may have said why it
        closed.
        """
        found = self.buffered()
        if found is None:
            data = self.socket.recv(MAX_PAYLOAD)
            if not data:
                raise EOFError("connection closed")
            self.buffer += data
            found = self.buffered()
        return found

    def buffered(self) -> Frame | None:
        """Return the first frame of what has arrived, and take it out; None when it is not
        whole."""
        if len(self.buffer) < HEADER.size:
            return None
        magic, kind, sequence, length = HEADER.unpack_from(self.buffer)
        if magic != MAGIC or length > MAX_PAYLOAD:
            raise NotOurs(f"{self.address} speaks something else")
        end = HEADER.size + length
        if len(self.buffer) < end:
            return None
        payload, self.buffer = self.buffer[HEADER.size : end], self.buffer[end:]
        return kind, sequence, payload

    def drain(self, deadline: float) -> None:
        """Read and drop what still comes, until the other side closes or `deadline`
        (time.monotonic)."""
        try:
            while (left := deadline - monotonic()) > 0:
                self.socket.settimeout(left)
                if not self.socket.recv(MAX_PAYLOAD):
                    return
        except OSError:
            pass  # reset or timed out: either way there is nothing more to wait for

    def wait(self) -> Frame:
        """Block until a whole frame is there, at most the socket's time-out for each part of it."""
        while True:
            found = self.receive()
            if found:
                return found


def encode(settings: Settings) -> bytes:
    return "\n".join(f"{name}={value}" for name, value in settings.items()).encode()


def decode(payload: bytes) -> Settings:
    pairs = (line.partition("=") for line in payload.decode("utf-8", "replace").splitlines())
    return {name: value for name, _, value in pairs}


def differences(node: int, theirs: Settings, ours: Settings) -> str:
    """What node `node` was started with that node 0 was not, as one sentence; empty when they
    agree."""
    found = [
        f"{name} is {theirs.get(name, 'not set')} on node {node} and {value} on node 0"
        for name, value in ours.items()
        if theirs.get(name) != value
    ]
    return "; ".join(found)


def resolve(address: str, port: int) -> tuple[int, tuple]:
    """Family and socket address of the first TCP answer; gaierror (an OSError) when there is
    none."""
    family, _, _, _, target = _socket.getaddrinfo(address, port, 0, _socket.SOCK_STREAM)[0]
    return family, target
