"""Which address of this node the others can reach."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

SIOCGIFADDR = 0x8915


def own_address() -> str:
    """Return the address on NCCL_SOCKET_IFNAME, else on the way to ORCH_DEEP_PEER (another node), else that of this node's name."""
    for name in _interfaces(os.environ.get("NCCL_SOCKET_IFNAME", "")):
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            answer = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
            return socket.inet_ntoa(answer[20:24])
    for target in filter(None, (os.environ.get("ORCH_DEEP_PEER"), socket.gethostname())):
        with suppress(OSError):
            family, kind, protocol, _, place = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(place)  # nothing is sent
                return str(probe.getsockname()[0])
    return "127.0.0.1"


def _interfaces(wanted: str) -> Iterator[str]:
    """Yield the interfaces that the list takes: prefixes, `=` for whole names, `^` for all others."""
    bare = wanted.lstrip("^=")
    marks, words = wanted[: len(wanted) - len(bare)], [word for word in bare.split(",") if word]
    names = [name for _, name in socket.if_nameindex()]
    taken = [name for word in words for name in names if (name == word if "=" in marks else name.startswith(word))]
    yield from (name for name in names if name != "lo" and name not in taken) if "^" in marks else taken
