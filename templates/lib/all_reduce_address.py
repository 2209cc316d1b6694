"""Which address of this node the others can reach, and what the processes of all_reduce.py share."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys
import threading
from functools import lru_cache

SIOCGIFADDR = 0x8915


@lru_cache(maxsize=None)
def own_address():
    """Return the address on NCCL_SOCKET_IFNAME, else on the way to ORCH_DEEP_PEER (another node), else that of this node's name."""
    for name in _interfaces(os.environ.get("NCCL_SOCKET_IFNAME", "")):
        address = _interface_address(name)
        if address:
            return address
    peer = os.environ.get("ORCH_DEEP_PEER", "")
    for target in ([peer] if peer else []) + [socket.gethostname()]:
        address = _way_to(target)
        if address:
            return address
    return "127.0.0.1"


def _interfaces(wanted):
    """Yield the interfaces that the list takes: prefixes, `=` for whole names, `^` for all others."""
    names = [name for _, name in socket.if_nameindex()]
    marks = wanted[: len(wanted) - len(wanted.lstrip("^="))]
    words = [word for word in wanted[len(marks) :].split(",") if word]

    def fits(name, word):
        return name == word if "=" in marks else name.startswith(word)

    if "^" in marks:
        yield from (name for name in names if name != "lo" and not any(fits(name, word) for word in words))
    else:
        yield from (name for word in words for name in names if fits(name, word))


def _interface_address(name):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            answer = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def _way_to(target):
    """Return this node's address on the way to the target. Nothing is sent."""
    try:
        for family, kind, protocol, _, place in socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(place)
                return probe.getsockname()[0]
    except OSError:
        pass
    return ""


def serve_requests(measure, hello=None):
    """Answer the requests on standard input with `measure` until it ends. An exception is an answer too."""
    requests = []
    ready = threading.Condition()
    output = os.fdopen(int(sys.argv[2]), "w")

    def read():
        for line in sys.stdin:
            with ready:
                requests.append(json.loads(line))
                ready.notify()
        # The one that measures may hang in a library that no signal reaches.
        os._exit(0)

    def answer(what):
        output.write(json.dumps(what) + "\n")
        output.flush()

    threading.Thread(target=read, daemon=True).start()
    if hello is not None:
        answer(hello)
    while True:
        with ready:
            while not requests:
                ready.wait()
            request = requests.pop(0)
        try:
            answer(measure(request))
        except Exception as error:  # whatever a library raises: the loop is told, and the worker replaced
            answer({"error": "%s: %s" % (type(error).__name__, str(error)[:500])})
