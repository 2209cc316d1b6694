"""The line of a log that names why a program ended; such lines of several nodes as a text.

`orchestrator explain` explains such lines with tables of causes (orchestrator/causes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..kernel.node_names import all_of
from .reports import MOST_QUOTED, line

TAIL_BYTES = 1 << 16
MOST_LINE = 4096
MOST_TOLD = 3
_LABEL = re.compile(r"^(?:\s*\[?(?:rank ?)?\d+\]?:\s?)*\s*")
_RAISED = re.compile(
    r"(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Interrupt|Failure|Exit)(?::\s|:?$)"
    r"|(?:\w+\.)+[A-Z]\w+: "
)
_MAY_SAY = re.compile(
    rb"error|exception|interrupt|failure|exit|fatal|fail|abort|what\(\)|memory|denied|not found"
    rb"|no such|no space|fault|killed|unable|cannot|can't|refused|reset|closed|timed? ?out|quota"
    rb"|warn|panic|is hung|lockup|\bnan\b|no module|unavailable|invalid|smashing|null|resolve"
    rb"|blocked"
    rb"|read-only|down",
    re.IGNORECASE,
)
_PASSED_OVER = re.compile(
    r"warning|deprecat|\[w ?\d|\[w |\[info|\[debug|\b(?:info|debug)\b ?[:\]|-]|\b(?:info|debug) +\S"
    r"|nccl info|ignored|retrying|will retry|fall(?:ing)? ?back|^\++ |^export |^[a-z0-9_]+=\S*$"
)
"""In a line's first characters: the program did not end because of it."""
_HARMLESS = re.compile(
    r"^(?:rm|rmdir|umount): |^sudo: unable to resolve host|^error(?: response from daemon)?: "
    r"no such container|^fatal: not a git repository|^error: pip's dependency resolver"
    r"|setlocale: |unlink domain socket|_get_pss: "
    r"|server socket cannot be initialized on \[::\]|: ignored\.?$|/amdgpu\.ids: "
    r"|missing \".{1,120} which can lead to|numa auto balancing enabled"
    r"|ll cutoff points not detected|msccl\+\+: feature not enabled"
)
"""Lines of tools that clean up or look something up, and RCCL's advice about the host and its own
build: no program ends because of them."""
_ECHO = re.compile(
    r"childfailed|signalexception|broken ?pipe|connection ?(?:was )?(?:reset|refused|closed"
    r"|aborted)"
    r"|dist(?:backend|network|store)error|(?:nccl|rccl) (?:error|communicator|operations)"
    r"|\bnccl[a-z]+error\b"
    r"|remote (?:process|peer|rank|error)|unhandled (?:system|cuda) error|peer (?:closed|is gone)"
    r"|keyboardinterrupt|systemexit|calledprocesserror|process(?:raised|exited)exception|eoferror"
    r"|non-zero exit|exit ?code:? |sigterm|death signal|got signal|sigabrt|signal 15"
    r"|terminate called|core dumped"
    r"|fatal python error: aborted|exception(?: was|:$)|^orchestrator: local rank|shutting down"
    r"|force terminated|job step aborted|task failure|worker (?:group failed|failure)|in destructor"
    r"|semaphore objects|data inconsistency|store->get|failed to (?:recv|send)|other ranks?\b"
)
"""The end of another process, or a header: quoted if the log has nothing else."""
_PEER = re.compile(
    r"timed? ?out|watchdog|rendezvous|no route|unreachable|host name|gaierror|getaddrinfo|not known"
    r"|retry exceeded|retry counter|vendor err|completion (?:error|with error)|desync|did not join"
)
"""Another process may have caused this failure."""
_OWN = re.compile(
    r"what\(\):|fatal python error|hsa_status_error|\b(?:hip|cuda|nccl|rccl) error"
    r"|^(?:error|fatal|failed)[:\s]|out of memory|oom-kill|cannot allocate memory"
    r"|memory access fault"
    r"|segmentation fault|segfault at|bus error|illegal instruction|floating point exception"
    r"|double free|corrupted|^killed|: killed\b|:\s+\d+ killed\b|no space left|quota exceeded"
    r"|read-only file system|input/output error|stale file handle|too many open files"
    r"|permission denied|operation not permitted|command not found|cannot execute|exec format error"
    r"|cannot open shared object|undefined symbol|can't open file|unrecognized arguments"
    r"|resource temporarily unavailable|no module named|parameter null|unexpected eof|: error: "
    r"|stack smashing|kernel panic|hardware error|hw exception|is hung|soft lockup|blocked for more"
    r"|link is down|did not match|could not resolve|unrecoverable|cannot reach"
    r"|non-finite|loss is nan|nan loss|assertion .*failed|sh: .*no such file|: line \d+: "
)
_LOOSE = re.compile(r"no such file|not found|does not exist|doesn't exist|nccl warn")
"""Loose words: they count less than a failure of the program itself."""
_KILLED = re.compile(r"failed \(exitcode: -(?!15\b)\d+\) local_rank")
"""torchrun about a rank that a signal ended; with 15, torchrun ends the others."""
_GRADES = ((_KILLED, 0), (_ECHO, 3), (_PEER, 1), (_OWN, 0), (_LOOSE, 2))


def telling_line(tail: bytes) -> str:
    """Return the last line that names the failure in a log's end, or "". Never raises.

    The program's failure comes first, then a failure that another process may have caused, loose
    words, and the end of another process.
    """
    best: dict[int, str] = {}
    for raw in reversed(tail[-TAIL_BYTES:].replace(b"\r", b"\n").split(b"\n")):
        if not _MAY_SAY.search(raw) or b":::MLLOG" in raw:
            continue
        text = line(raw[:MOST_LINE].decode("utf-8", "replace"), MOST_LINE)
        text = _LABEL.sub("", text).strip()
        grade = _grade(text)
        if grade is not None:
            best.setdefault(grade, text[:MOST_QUOTED])
            if grade == 0:
                break
    return best[min(best)] if best else ""


def _grade(text: str) -> int | None:
    """0 is the best; None: the line names no failure."""
    low = text.lower()
    raised = _RAISED.match(text) is not None
    if not raised and is_harmless(text):
        return None
    if not raised and _PASSED_OVER.search(low, 0, 160) and "nccl warn" not in low:
        return None
    graded = next((grade for pattern, grade in _GRADES if pattern.search(low)), None)
    return 0 if raised and graded in (None, 2) else graded


def is_harmless(text: str) -> bool:
    """Return whether good programs print such a line, too."""
    return _HARMLESS.search(text.strip().lower()) is not None


def is_echo(error: str) -> bool:
    """Return whether a line is about another process's end, or being stopped."""
    return _ECHO.search(error.lower()) is not None


def way_of(error: str) -> str:
    """Remove numbers: ports, addresses and ranks differ between attempts."""
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "0", error)


def in_one(nodes: Sequence[str], errors: Mapping[str, str]) -> str:
    groups: dict[str, list[str]] = {}
    for node in nodes:
        if errors.get(node):
            groups.setdefault(errors[node], []).append(node)
    texts = [f"{_names(some, nodes)}{error}" for error, some in groups.items()]
    more = f"; and {len(texts) - MOST_TOLD} other last words" if len(texts) > MOST_TOLD else ""
    return "; ".join(texts[:MOST_TOLD]) + more


def _names(some: Sequence[str], nodes: Sequence[str]) -> str:
    if len(some) == len(nodes):
        return f"{all_of(len(nodes))}: " if len(nodes) > 1 else ""
    more = f" and {len(some) - MOST_TOLD} more" if len(some) > MOST_TOLD else ""
    return f"{', '.join(some[:MOST_TOLD])}{more}: "
