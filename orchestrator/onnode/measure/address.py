"""Which address of this node the others can reach."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator

SIOCGIFADDR = 0x8915


def own_address() -> str:
    """Return the address on NCCL_SOCKET_IFNAME, else on the way to ORCH_DEEP_PEER (another node), else that of this node's name."""
    for name in _interfaces(os.environ.get("NCCL_SOCKET_IFNAME", "")):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            try:
                answer = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
            except OSError:  # it has none
                continue
        return socket.inet_ntoa(answer[20:24])
    return _way_to(os.environ.get("ORCH_DEEP_PEER", "")) or _way_to(socket.gethostname()) or "127.0.0.1"


def _interfaces(wanted: str) -> Iterator[str]:
    """Yield the interfaces that the list takes: prefixes, `=` for whole names, `^` for all others."""
    bare = wanted.lstrip("^=")
    marks, words = wanted[: len(wanted) - len(bare)], [word for word in bare.split(",") if word]
    names = [name for _, name in socket.if_nameindex()]

    def fits(name: str, word: str) -> bool:
        return name == word if "=" in marks else name.startswith(word)

    if "^" in marks:
        yield from (name for name in names if name != "lo" and not any(fits(name, word) for word in words))
    else:
        yield from (name for word in words for name in names if fits(name, word))


def _way_to(target: str) -> str:
    """Return this node's address on the way to the target, "" where there is none. Nothing is sent."""
    try:
        for family, kind, protocol, _, place in (
            socket.getaddrinfo(target or None, 9, type=socket.SOCK_DGRAM) if target else ()
        ):
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(place)
                return str(probe.getsockname()[0])
    except OSError:
        pass
    return ""
