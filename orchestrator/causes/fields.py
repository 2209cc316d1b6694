"""The fields of a line, as words in signs: `#enospc`, `!valueerror`, `@kernel`.

They follow the line, in this order: errors and signals, whether a program writes the number, the
name or the text (`#enospc`, `#sigsegv`); the type of an exception (`!outofmemoryerror`); the
speaker (`@kernel`, `@slurm`). No word of a log can pass for a field: the marks are first taken out
of the line.
"""

from __future__ import annotations

import re

from orchestrator.causes.forms import EXCEPTION, KERNEL

_ERRORS = {
    1: ("eperm", "operation not permitted"),
    2: ("enoent", "no such file or directory|no such file"),
    5: ("eio", "input/output error|i/o error"),
    6: ("enxio", "no such device or address"),
    8: ("enoexec", "exec format error|cannot execute binary file"),
    9: ("ebadf", "bad file descriptor"),
    11: ("eagain", "resource temporarily unavailable"),
    12: ("enomem", "cannot allocate memory"),
    13: ("eacces", "permission denied"),
    16: ("ebusy", "device or resource busy"),
    17: ("eexist", "file exists"),
    19: ("enodev", "no such device"),
    20: ("enotdir", "not a directory"),
    21: ("eisdir", "is a directory"),
    22: ("einval", "invalid argument"),
    23: ("enfile", "too many open files in system|file table overflow"),
    24: ("emfile", "too many open files"),
    28: ("enospc", "no space left"),
    30: ("erofs", "read-?\\s?only file ?system"),
    32: ("epipe", "broken pipe"),
    61: ("enodata", "no data available"),
    98: ("eaddrinuse", "address already in use"),
    101: ("enetunreach", "network (?:is )?unreachable"),
    103: ("econnaborted", "software caused connection abort"),
    104: ("econnreset", "connection reset by peer"),
    107: ("enotconn", "transport endpoint is not connected"),
    108: ("eshutdown", "transport endpoint shutdown"),
    110: ("etimedout", "connection timed out"),
    111: ("econnrefused", "connection refused"),
    112: ("ehostdown", "host is down"),
    113: ("ehostunreach", "no route to host"),
    116: ("estale", "stale (?:nfs )?(?:file )?handle"),
    117: ("euclean", "structure needs cleaning"),
    121: ("eremoteio", "remote i/o error"),
    122: ("edquot", "(?:disk )?quota exceeded"),
}
_COMMAND = re.compile(r": '[\w+-]{1,60}'$")
"""A missing file without a folder and an ending, as Python names it: a command."""
_NAMES = {number: name for number, (name, _) in _ERRORS.items()}
_NUMBER = re.compile(
    r"errno:? ?(\d{1,3})\b|os error (\d{1,3})\)|\brc = -(\d{1,3})\b|\bcode:? -(\d{1,3})\b"
    r"|strerror:? ?(\d{1,3})\b|failed with (\d{1,3}) "
)
_NAME = re.compile(r"\b(" + "|".join(sorted(_NAMES.values())) + r")\b")
_TEXTS = [(re.compile(text), name) for name, text in _ERRORS.values()]
_ANY_TEXT = re.compile("|".join(f"(?:{text})" for _, text in _ERRORS.values()))
_SIGNALS = (
    ("sigkill", (r"sigkill|\b(?:signal|wtermsig):? 9\b|^killed(?! \w)"
                r"|: killed(?! (?!by |due )\w)|\d killed "
                r"|\bcode[ =:]{1,3}(?:-9|137)\b|\bstatus:? 137\b|exited 137\b|exitcode ?: -9\b"
                r"|by signal: killed")),
    ("sigsegv", (r"sigsegv|segmentation fault|segfault at|\bsignal:? 11\b"
                r"|\bcode[ =:]{1,3}(?:-11|139)\b"
                r"|exitcode ?: -11\b|status:? 139\b|exited 139\b")),
    ("sigbus", (r"sigbus|\bbus error\b(?! for)|\bsignal:? 7\b|\bcode[ =:]{1,3}(?:-7|135)\b"
               r"|exitcode ?: -7\b")),
    ("sigill", (r"sigill\b|illegal instruction|\bsignal:? 4\b|\bcode[ =:]{1,3}(?:-4|132)\b"
               r"|exitcode ?: -4\b")),
    ("sigfpe", (r"sigfpe|floating point exception|\bsignal:? 8\b|\bcode[ =:]{1,3}(?:-8|136)\b"
               r"|exitcode ?: -8\b")),
    ("sigabrt", (r"sigabrt|\bsignal:? 6\b|signal: aborted|\baborted \(core dumped|\d aborted  "
                r"|\bcode[ =:]{1,3}(?:-6|134)\b|exitcode ?: -6\b")),
    ("sighup", r"sighup|got signal: ?1\b|\bsignal:? 1\b"),
)  # fmt: skip
_SIGNAL_TEXTS = [(name, re.compile(text)) for name, text in _SIGNALS]
_ANY_SIGNAL = re.compile("|".join(f"(?:{text})" for _, text in _SIGNALS))
_SPEAKERS = (
    ("engine", (r"(?:^|\s)(?:slurmstepd|srun|slurmd|error)\b[^:]{0,40}: (?:error: )?"
               r"(?:pyxis|enroot): ")),
    ("slurm", r"(?:^|\s)(?:slurmstepd|srun|slurmd|salloc|sbatch|spank)\b[^:]{0,40}: "),
    ("mpi", (r"mpich error|\bmpi(?:di|r|d)?_\w+\(|^\w{1,60}\(\d{1,5}\)\.*: |\bofi poll|mpi_abort|mpi_init"
            r"|\bompi|\borte[d_]?\b|pmix|\bpml\b|\bmpirun\b|mpi error|open mpi|\bprterun\b"
            r"|not enough slots|mpi_errors_are_fatal")),
    ("nccl", (r"(?:nccl|rccl) (?:warn|error|failure|operation)|nccl ?watchdog|processgroupnccl"
             r"|\bnccl[a-z]+error|ncclinvalid|duplicate gpu detected")),
    ("ucx", r"\bucx +(?:error|warn)|libfabric|\buc[pt]_\w+ failed"),
    ("compiler", (r"\w[.:]\d{1,6}:\d{1,6}: (?:fatal )?error:|^loc\(.{0,300}error:|triton\.(?:compiler|runtime)"
                 r"|\bclang|\bhipcc|\bnvcc|\bgcc\b|g\+\+|\bld(?:\.lld)?: |lld |ninja|ptxas|hiprtc|mlir|llvm error"
                 r"|cmake error|inductor|passmanager|^error: <unknown>|linker command")),
    ("gpu", (r"\b(?:hip|cuda|rocm|cudnn|cublas|hipblas\w*|rocblas\w*|miopen\w*|hsa|triton) ?(?:runtime )?"
            r"(?:error|failure|status)|(?:cublas|hipblas|rocblas|hsa|hipfft|cufft|cusolver|cudnn)_status"
            r"|miopenstatus|hiperror|cudaerror"
            r"|(?:memory access fault|hw exception) by gpu|aborting with error|cuda_error"
            r"|triton error|cuda driver error"
            r"|\b(?:cu|hip|roc)blas\w* (?:api |ran into an )?(?:error|fail)"
            r"|\b(?:hip|cuda)(?:get|set|malloc|mem|device|stream|event|module|launch)\w*\(")),
    ("engine", (r"\b(?:docker|podman|crun|runc|oci runtime|containerd|enroot|pyxis|apptainer|singularity"
               r"|buildah|netavark|conmon|nvidia-container-cli)\b"
               r"|^container creation failed|^while making image from")),
    ("ray", r"ray\.exceptions|raylet|\bray::|ray instance|ray cluster"),
    ("http", r"https?://|httpsconnectionpool|urlopen|requests\.exceptions|huggingface_hub|aiohttp|httpx"),
)  # fmt: skip
_SPEAKER = [(name, re.compile(text)) for name, text in _SPEAKERS]
ERRORS = frozenset([*_NAMES.values(), *(name for name, _ in _SIGNALS), "nocommand"])
_MARKS = str.maketrans("#!@", "   ")


def with_fields(text: str, bare: str) -> str:
    """Return a line in small letters with its fields behind it."""
    low = text.strip().lower()
    start = bare.strip().lower()
    speaker = _speaker(start)
    fields = [f"#{name}" for name in _errors(low, speaker)]
    if "#enoent" in fields and _COMMAND.search(low):
        fields.append("#nocommand")
    if _ANY_SIGNAL.search(start):
        fields += [f"#{name}" for name, pattern in _SIGNAL_TEXTS if pattern.search(start)]
    raised = EXCEPTION.match(bare.strip())
    if raised is not None:
        kind = raised[0].rstrip(": ").rpartition(".")[2]
        fields.append(f"!{kind.lower()};")
    if speaker:
        fields.append(f"@{speaker}")
    return " ".join([low.translate(_MARKS), *fields])


def _errors(low: str, speaker: str) -> list[str]:
    if speaker == "mpi":
        return []  # its stacks repeat errors of the fabric
    names = {
        _NAMES[number]
        for match in _NUMBER.finditer(low)
        if (number := int(next(group for group in match.groups() if group))) in _NAMES
    }
    names.update(match[1] for match in _NAME.finditer(low))
    if not names and _ANY_TEXT.search(low):
        names.update(name for pattern, name in _TEXTS if pattern.search(low))
    if speaker == "ucx":
        names.discard("eio")
    return sorted(names)


def _speaker(start: str) -> str:
    if KERNEL.match(start) and not start.startswith("hw exception by gpu"):
        return "kernel"
    return next((name for name, pattern in _SPEAKER if pattern.search(start)), "")
