"""What can end a run early, each with the exit code that a launcher sees."""

from __future__ import annotations


class Failure(Exception):
    """Ends this node's process with `code` after one line on standard error."""

    code = 1


class BadSettings(Failure):
    """The environment is missing something or makes no sense."""

    code = 2


class PeerLost(Failure):
    """Another node's process is gone, or says nothing within the time-out."""

    code = 3


class NoRendezvous(Failure):
    """The nodes did not find each other: port busy, unknown address, time-out."""

    code = 4


class Disagreement(Failure):
    """Nodes of one run were started with different settings."""

    code = 5


class OutputGone(Failure):
    """Nobody reads the log any more: standard output is closed, or its disk is full."""

    code = 6
