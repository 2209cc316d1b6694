"""The exchange between nodes: node 0 listens at MASTER_ADDR:MASTER_PORT, adds up what all send, and
answers the sum.

Every wait is a blocking call in the kernel (poll or recv), so a waiting node costs no CPU time.
Sums are of integers (see `network.SCALE`), so the order of arrival does not matter.
"""

from __future__ import annotations

import sys
import time
from select import POLLIN, poll
from struct import error as StructError

import _socket  # see wire.py

TYPE_CHECKING = False  # `typing` costs 15 ms of start-up
if TYPE_CHECKING:
    from typing import NoReturn

from training.failures import Disagreement, NoRendezvous, PeerLost
from training.wire import (
    ABORT,
    HELLO,
    REFUSE,
    SUM,
    WELCOME,
    NotOurs,
    Peer,
    Settings,
    decode,
    differences,
    encode,
    frame,
    packed,
    resolve,
    unpacked,
)

REFUSE_GRACE_S = 1.0
FIRST_RETRY_S, LAST_RETRY_S = 0.005, 0.02
LAST_WORDS_S = 5.0


class Alone:
    """The exchange of a run on one node: there is nobody to talk to."""

    number = 0

    def total(self, values: list[int] | None) -> list[int] | None:
        return values

    def close(self) -> None:
        pass


class Root:
    """Node 0's side. `number` is that of its ranks: 0, or by the nodes' names (`name`) where they
    are numbered by these."""

    def __init__(
        self,
        address: str,
        port: int,
        name: str,
        nodes: int,
        settings: Settings,
        connect_s: float,
        exchange_s: float,
    ):
        self.nodes, self.name, self.number = nodes, name, 0
        self.settings = settings
        self.sequence = 0
        self.exchange_ms = int(exchange_s * 1000)
        self.peers: dict[int, Peer] = {}
        self.poll = poll()
        self.listener = self.listen(address, port)
        self.rendezvous(time.monotonic() + connect_s, connect_s)

    def listen(self, address: str, port: int) -> _socket.socket:
        try:
            family, _ = resolve(address, port)
            listener = _socket.socket(family, _socket.SOCK_STREAM)
            listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            # All interfaces: a host often resolves its own name to 127.0.1.1, where the others
            # cannot reach it.
            listener.bind(("::" if family == _socket.AF_INET6 else "0.0.0.0", port))
            listener.listen(self.nodes)
        except OSError as reason:
            raise NoRendezvous(
                f"node 0 cannot listen at MASTER_ADDR={address} MASTER_PORT={port}: "
                f"{reason.strerror or reason}; "
                "is another run using the port?"
            ) from None
        return listener

    def rendezvous(self, deadline: float, connect_s: float) -> None:
        """Wait until every other node is here and agrees."""
        waiting: dict[int, Peer] = {}
        self.poll.register(self.listener.fileno(), POLLIN)
        problem = ""
        while len(self.peers) < self.nodes - 1:
            events = self.poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not events:
                self.abort(REFUSE if problem else ABORT, problem or self.missing(connect_s))
                raise Disagreement(problem) if problem else NoRendezvous(self.missing(connect_s))
            for number, _ in events:
                if number == self.listener.fileno():
                    peer = self.accept()
                    waiting[peer.socket.fileno()] = peer
                    continue
                found = self.greet(number, waiting)
                if found and not problem:
                    problem, deadline = found, min(deadline, time.monotonic() + REFUSE_GRACE_S)
        if problem:
            self.abort(REFUSE, problem)
            raise Disagreement(problem)
        for socket in (self.listener, *[stranger.socket for stranger in waiting.values()]):
            self.poll.unregister(socket.fileno())
            socket.close()
        self.welcome()

    def welcome(self) -> None:
        """Number all nodes by their names, as torchrun's c10d rendezvous does; without names as
        whoever started them."""
        names = sorted([(self.name, 0), *[(peer.name, peer.node) for peer in self.peers.values()]])
        numbers = {node: number for number, (_, node) in enumerate(names)}
        self.number = numbers[0]
        for peer in self.peers.values():
            self.give(peer, frame(WELCOME, self.sequence, str(numbers[peer.node]).encode()))

    def accept(self) -> Peer:
        descriptor, address = self.listener._accept()
        peer = Peer(_socket.socket(fileno=descriptor), f"{address[0]}:{address[1]}")
        self.poll.register(descriptor, POLLIN)
        return peer

    def greet(self, number: int, waiting: dict[int, Peer]) -> str:
        """Take one node's greeting; the disagreement it shows, or an empty text."""
        peer = waiting.get(number)
        if peer is None:
            lost = next(peer for peer in self.peers.values() if peer.socket.fileno() == number)
            self.lose(lost, "it ended before all nodes were there")
        try:
            found = peer.receive()
            if found is None:
                return ""
            if found[0] != HELLO:
                raise NotOurs("it did not say hello")
            settings = decode(found[2])
            peer.node, peer.name = int(settings.pop("node")), settings.pop("name")
        except (OSError, EOFError, NotOurs, KeyError, ValueError) as reason:
            # A port scan or a health check must not end a run.
            print(
                f"builtin: node 0: ignored a connection from {peer.address}: {reason}",
                file=sys.stderr,
            )
            self.poll.unregister(number)
            waiting.pop(number).socket.close()
            return ""
        del waiting[number]
        if peer.node in self.peers or not 0 < peer.node < self.nodes:
            # Kept under a number that no node has, so that it too is told why the run ends.
            self.peers[-len(self.peers) - 1] = peer
            problem = f"which is taken or outside 1..{self.nodes - 1}"
            return f"{peer.address} says that it is node {peer.node}, {problem}"
        self.peers[peer.node] = peer
        return differences(peer.node, settings, self.settings)

    def missing(self, connect_s: float) -> str:
        absent = [str(node) for node in range(1, self.nodes) if node not in self.peers]
        return f"node {', '.join(absent)} did not connect within {connect_s:g} s"

    def total(self, values: list[int] | None) -> list[int] | None:
        """The sum over all nodes; None as soon as one of them has diverged."""
        self.sequence += 1
        open_peers = {peer.socket.fileno(): peer for peer in self.peers.values()}
        while open_peers:
            events = self.poll.poll(self.exchange_ms)
            if not events:
                self.lose(
                    next(iter(open_peers.values())), f"silent for {self.exchange_ms / 1000:g} s"
                )
            for number, _ in events:
                peer = open_peers.get(number) or self.early(number)
                payload = self.take(peer)
                if payload is not None:
                    del open_peers[number]
                    values = self.add(peer, values, payload)
        self.answer(SUM, packed(values))
        return values

    def early(self, number: int) -> Peer:
        """A peer that has sent its part already can only be readable again because it ended."""
        return next(peer for peer in self.peers.values() if peer.socket.fileno() == number)

    def take(self, peer: Peer) -> bytes | None:
        try:
            found = peer.receive()
        except (OSError, EOFError, NotOurs) as reason:
            self.lose(peer, str(reason))
        if found is None:
            return None
        if found[:2] != (SUM, self.sequence):
            self.lose(peer, f"it is at exchange {found[1]}, not at {self.sequence}")
        return found[2]

    def add(self, peer: Peer, values: list[int] | None, payload: bytes) -> list[int] | None:
        if values is None or not payload:
            return None
        try:
            theirs = unpacked(payload, len(values))
        except StructError:
            self.lose(peer, f"it sent {len(payload)} bytes instead of {8 * len(values)}")
        return [a + b for a, b in zip(values, theirs)]

    def answer(self, kind: int, payload: bytes) -> None:
        data = frame(kind, self.sequence, payload)
        for peer in self.peers.values():
            self.give(peer, data)

    def give(self, peer: Peer, data: bytes) -> None:
        try:
            peer.socket.sendall(data)
        except OSError as reason:
            self.lose(peer, str(reason))

    def lose(self, lost: Peer, why: str) -> NoReturn:
        """Tell the other nodes and end; raises PeerLost."""
        text = f"node {lost.node} ({lost.address}) was lost at exchange {self.sequence}: {why}"
        self.abort(ABORT, text)
        raise PeerLost(text)

    def abort(self, kind: int, text: str) -> None:
        told = []
        for peer in self.peers.values():
            try:
                peer.send(kind, self.sequence, text.encode())
                peer.socket.shutdown(_socket.SHUT_WR)
                told.append(peer)
            except OSError:
                pass  # it is gone already, which is what it would have been told to do
        # Closing a connection with unread data in it would reset it, and the words just sent would
        # be lost with it.
        deadline = time.monotonic() + LAST_WORDS_S
        for peer in told:
            peer.drain(deadline)

    def close(self) -> None:
        for peer in self.peers.values():
            peer.socket.close()


class Leaf:
    """Any other node's side."""

    def __init__(
        self,
        address: str,
        port: int,
        name: str,
        node: int,
        settings: Settings,
        connect_s: float,
        exchange_s: float,
    ):
        self.where = f"MASTER_ADDR={address} MASTER_PORT={port}"
        self.sequence = 0
        deadline = time.monotonic() + connect_s
        self.peer = self.connect(address, port, deadline, connect_s)
        self.peer.socket.settimeout(max(0.1, deadline - time.monotonic()) + 2 * REFUSE_GRACE_S)
        self.send(HELLO, encode({"node": str(node), "name": name, **settings}))
        self.number = int(self.expect(WELCOME))
        self.peer.socket.settimeout(exchange_s)

    def connect(self, address: str, port: int, deadline: float, connect_s: float) -> Peer:
        """Try until node 0 listens; the pause between two tries doubles up to LAST_RETRY_S."""
        pause = FIRST_RETRY_S
        while True:
            try:
                family, target = resolve(address, port)
                socket = _socket.socket(family, _socket.SOCK_STREAM)
                socket.settimeout(max(0.1, deadline - time.monotonic()))
                socket.connect(target)
                # While nobody listens, a port of the ephemeral range can be connected to itself on
                # loopback.
                if socket.getsockname() != socket.getpeername():
                    return Peer(socket, f"{address}:{port}")
                reason: object = "nobody listens"
                socket.close()
            except OSError as failure:
                reason = failure.strerror or failure
            if time.monotonic() + pause > deadline:
                raise NoRendezvous(
                    f"no connection to node 0 at {self.where} within {connect_s:g} s: {reason}"
                )
            time.sleep(pause)
            pause = min(2 * pause, LAST_RETRY_S)

    def send(self, kind: int, payload: bytes) -> None:
        try:
            self.peer.send(kind, self.sequence, payload)
        except OSError:
            self.expect(
                kind
            )  # node 0 has usually said why before it closed; if not, this raises PeerLost

    def expect(self, wanted: int) -> bytes:
        """The payload of the next frame, which has to be of kind `wanted` and of this exchange."""
        try:
            kind, sequence, payload = self.peer.wait()
        except NotOurs:
            raise NoRendezvous(f"what answers at {self.where} is not node 0 of this run") from None
        except (OSError, EOFError) as reason:
            raise PeerLost(
                f"node 0 ({self.where}) was lost at exchange {self.sequence}: {reason}"
            ) from None
        if kind == REFUSE:
            raise Disagreement(f"node 0 refused: {payload.decode()}")
        if kind == ABORT:
            raise PeerLost(f"node 0 ended the run: {payload.decode()}")
        if (kind, sequence) != (wanted, self.sequence):
            raise PeerLost(f"node 0 is at exchange {sequence}, this node is at {self.sequence}")
        return payload

    def total(self, values: list[int] | None) -> list[int] | None:
        """The sum over all nodes; None as soon as one of them has diverged."""
        self.sequence += 1
        self.send(SUM, packed(values))
        payload = self.expect(SUM)
        return unpacked(payload, len(payload) // 8) if payload else None

    def close(self) -> None:
        self.peer.socket.close()


Exchange = Alone | Root | Leaf
