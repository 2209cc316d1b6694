"""Places where an image and a bundle do not fit, or a run would fail silently."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from orchestrator.inspection.contract import Contract, where_errors_go
from orchestrator.inspection.given import Given
from orchestrator.inspection.patterns import search
from orchestrator.inspection.streams import LOG
from orchestrator.inspection.trace import PathUse, Place, Read, Start, is_known, shown, whole_number
from orchestrator.words import count

Severity = Literal["error", "warning", "note"]
ORDER: tuple[Severity, ...] = ("error", "warning", "note")

BY_LAUNCHERS = frozenset(
    (
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"),
        *("GROUP_WORLD_SIZE", "ROLE_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"),
        *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
    )
)
"""Set by torchrun for its workers (torch/distributed/run.py)."""

OF_LIBRARIES = re.compile(
    r"(NCCL|RCCL|HSA|HIP|ROCR|ROCM|NVTE|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|AITER|CK|MIOPEN"
    r"|HIPBLASLT|AMD"
    r"|AMDGCN|UCX|GLOO|OMPI|PMI|OMP|MKL|KMP|HF|TRANSFORMERS|DIFFUSERS|TOKENIZERS|PYTHON|CUDA|CUDNN"
    r"|CUBLAS"
    r"|GPU|NVIDIA|PET|TQDM|HYDRA|PIP|LD|USE_HIPBLASLT|TF|XLA|FI|IBV|RDMAV|MC|MSCCL|MSCCLPP|ENABLE"
    r"|FUSED|LORA)(_|$)"
)
"""Prefixes of variables of compiled libraries, out of reach of a text search."""


@dataclass(frozen=True, slots=True)
class ContractFinding:
    """`file` and `line` are in the image, or "" and 0."""

    kind: str
    severity: Severity
    what: str
    why: str
    fix: str
    file: str = ""
    line: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""


def _at(place: Place) -> dict[str, Any]:
    return {"file": place.file, "line": place.line}


def findings(contract: Contract, given: Given) -> list[ContractFinding]:
    """Return the findings, worst first."""
    rules = (
        _missing,
        _ends_early,
        _unset,
        _unread,
        _overwritten,
        _downloads,
        _errors,
        _exit_code,
        _ranks,
        _launcher,
        _paths,
        _user,
        _platform,
    )
    results = list(dict.fromkeys(finding for rule in rules for finding in rule(contract, given)))
    return sorted(results, key=lambda finding: ORDER.index(finding.severity))


def _missing(contract: Contract, given: Given) -> Iterator[ContractFinding]:
    for missing in contract.trace.missing:
        start = missing.start
        yield ContractFinding(
            "missing program",
            "warning" if start.place.maybe else "error",
            f"{shown(missing.what)} {missing.fault}"
            if missing.fault
            else f"the image has no {shown(missing.what)}: `{start.text[:120]}`",
            "the command ends with 127 or 2 before the training",
            "another image, or `launch.command` and `launch.code_dir` of the round",
            **_at(start.place),
        )


def _ends_early(contract: Contract, given: Given) -> Iterator[ContractFinding]:
    if contract.training is None and not contract.trace.missing and contract.tree.complete:
        if contract.trace.undecided:
            first = contract.trace.undecided[0]
            yield ContractFinding(
                "no training",
                "warning",
                f"no training was found: {shown(first.why)}",
                "the files do not decide how it is started",
                "look at that place; `launch.command` of the round can name the script itself",
                **_at(first.place),
            )
            return
        yield ContractFinding(
            "no training",
            "error",
            f"`{' '.join(contract.command)}` starts no program",
            "a script ends before the training; see the variables that it requires",
            "orchestrator images inspect --json lists the scripts",
        )


# ---- variables ----


def _unset(contract: Contract, given: Given) -> Iterator[ContractFinding]:
    worst: dict[str, Read] = {}
    for read in contract.trace.reads:
        if read.given or read.use in ("default", "test") or not _concerns(contract, given, read):
            continue
        before = worst.get(read.name)
        if before is None or _rank(read) < _rank(before):
            worst[read.name] = read
    for name, read in worst.items():
        required = read.use == "required"
        yield ContractFinding(
            "unset variable",
            "error" if required and not read.place.maybe else "warning",
            f"{name} is {'required' if required else 'read without a default'}, and nobody sets it",
            "the program ends there" if required else "it is empty there",
            f"`env: {{{name}: ...}}` in the round or the system",
            **_at(read.place),
        )


def _rank(read: Read) -> tuple[bool, bool]:
    return (read.use != "required", read.place.maybe)


def _concerns(contract: Contract, given: Given, read: Read) -> bool:
    if not re.fullmatch(r"[A-Z][A-Z0-9_]+", read.name) or read.name in given.unset:
        return False
    is_python = read.place.file.endswith((".py", ".yaml", ".yml"))
    return not (is_python and read.name in BY_LAUNCHERS and "torchrun" in contract.ranks)


def _unread(contract: Contract, given: Given) -> Iterator[ContractFinding]:
    if contract.training is None or contract.training.place.maybe:
        return
    read = {read.name for read in contract.trace.reads}
    for name in sorted(given.configured - read - BY_LAUNCHERS):
        if OF_LIBRARIES.match(name) or name in contract.tree.mentions or _is_named(contract, name):
            continue
        yield ContractFinding(
            "unread variable",
            "warning" if name in given.logged and contract.tree.complete else "note",
            f"{name} is set by {given.sources[name]}, and nothing in the image names it",
            "the value has no effect: a renamed variable, or a variable of another image",
            "remove it, or use the image's own name",
        )


def _is_named(contract: Contract, name: str) -> bool:
    """Return whether a file of the image reads the variable; scripts that only set it do not."""
    text = name.encode()
    read = re.compile(rf"\$\{{?[!#]?{re.escape(name)}\b".encode())
    token = re.compile(rf"\b{re.escape(name)}\b".encode())
    return any(
        (read if file.path.endswith((".sh", ".bash", ".sub")) else token).search(file.content)
        for file in contract.tree
        if file.content is not None and text in file.content
    )


def _overwritten(contract: Contract, given: Given) -> Iterator[ContractFinding]:
    mine = given.around.environment
    last = {
        assignment.name: assignment
        for assignment in contract.trace.assignments
        if assignment.name in given.configured | {"SEED", "MASTER_ADDR", "MASTER_PORT"}
    }
    forced = {assignment.name for assignment in contract.trace.assignments if assignment.forced}
    for name, assignment in last.items():
        if name not in forced or name not in mine or assignment.value == mine[name]:
            continue
        if not is_known(mine[name]):
            continue
        theirs = (
            (assignment.value or "nothing") if is_known(assignment.value) else "a value of its own"
        )
        yield ContractFinding(
            "overwritten variable",
            "note" if assignment.place.maybe else "warning",
            f"{name} is {mine[name]!r} in the bundle, and the image sets {shown(theirs)}",
            "the bundle's value has no effect after that line",
            "remove it from the documents, or use the image's value there",
            **_at(assignment.place),
        )


# ---- network ----


def _downloads(contract: Contract, given: Given) -> Iterator[ContractFinding]:
    for download in contract.trace.downloads:
        if download.switched_off_by:
            continue
        sure = not download.place.maybe
        yield ContractFinding(
            "download",
            "warning" if sure else "note",
            f"{'at every start' if sure else 'perhaps, at a start'}: {shown(download.what)}",
            "needs the network on the nodes, and the downloaded files can change between two runs",
            "offline: in the round, after `orchestrator prepare` has filled the caches",
            **_at(download.place),
        )


# ---- errors and exit codes ----


def _errors(contract: Contract, given: Given) -> Iterator[ContractFinding]:
    training = contract.training
    if training is None:
        return
    if astray := _records_lost(contract, training.out):
        yield ContractFinding(
            "hidden output",
            "warning",
            f"standard output of the training {astray}",
            "no record reaches the run's log: every run would lack run_start and run_stop",
            "another command in the round, `launch.command`, that leaves standard output alone",
            **_at(training.place),
        )
    elif "grep" in training.out:
        yield ContractFinding(
            "hidden output",
            "note",
            f"standard output of the training goes through `{shown(training.out[2:])}`",
            "other lines than these never reach the log",
            _shown_by(given),
            **_at(training.place),
        )
    if not (goes := where_errors_go(training)):
        return
    lost = goes == "is thrown away" or any(
        _lets_through(pattern, options, AN_ERROR) is False
        for options, pattern in _filters(training.err)
    )
    severity: Severity = "warning" if lost and not given.verbose else "note"
    yield ContractFinding(
        "hidden errors",
        severity,
        f"standard error of the training {goes}",
        "a run that fails leaves no reason in its log" if lost else "the log may lack its lines",
        _shown_by(given),
        **_at(training.place),
    )


_FILTER = re.compile(r"\b[ef]?grep\b((?:\s+-{1,2}[\w-]+)*)\s+(?:'([^']*)'|\"([^\"]*)\"|([^\s|]+))")
_TO_FILE = re.compile(r"(?<![0-9&])(?:1|&)?>>?\s*(?!&)(?P<file>[^\s|&>]+)")
AN_ERROR = "RuntimeError: HIP error: out of memory"
A_RECORD = ':::MLLOG {"namespace": "", "time_ms": 1, "key": "run_stop", "value": null}'


def _records_lost(contract: Contract, out: str) -> str:
    """Return how records get lost; "" if they reach the log."""
    if out.startswith("|"):
        for options, pattern in _filters(out):
            if _lets_through(pattern, options, A_RECORD) is False:
                return f"goes through `grep{options} {shown(pattern)}`"
        last = out.rpartition("|")[2]
        file = _TO_FILE.search(last)
        return f"ends in {shown(file['file'])}" if file and is_known(last) else ""
    if out == LOG or not is_known(out):
        return ""
    later = any(use.path == out and use.how == "read" for use in contract.trace.paths)
    return "" if later else f"goes to {shown(out)}"


def _filters(out: str) -> list[tuple[str, str]]:
    filters = _FILTER.findall(out) if out.startswith("|") else []
    return [(options, next(filter(None, patterns), "")) for options, *patterns in filters]


def _lets_through(pattern: str, options: str, line: str) -> bool | None:
    """Return whether grep lets a line through; None if unknown."""
    if not is_known(pattern) or "$" in pattern or not pattern:
        return None
    fixed = re.search(r"\s-\w*F", options) is not None
    matches = pattern in line if fixed else search(pattern.replace("\\|", "|"), line)
    return None if matches is None else matches is not bool(re.search(r"\s-\w*v|--invert", options))


def _shown_by(given: Given) -> str:
    if not given.verbose:
        return "launch.verbose: in the round, if the image has a variable that shows everything"
    pairs = " ".join(f"{name}={value}" for name, value in given.verbose.items())
    return f"{pairs} shows it; an attempt after one without any record sets it"


def _exit_code(contract: Contract, given: Given) -> Iterator[ContractFinding]:
    training = contract.training
    if training is None:
        return
    after = contract.exit
    if after.after_success:
        yield ContractFinding(
            "exit code",
            "error",
            f"the command ends with {after.after_success} also after a good training",
            "every run would be a failure",
            "check the last lines of the script",
            **_at(training.place),
        )
    if after.is_believable is False:
        yield ContractFinding(
            "exit code",
            "warning",
            "the command ends with 0 although the training failed",
            "a failed run looks successful to Slurm and to scripts",
            "nothing: the loop takes run_stop in the log as proof, never the exit code",
            **_at(training.place),
        )
    elif after.is_believable is None:
        yield ContractFinding(
            "exit code",
            "note",
            "whether a failed training is a failure of the command is undecided",
            "a condition of the script depends on the run",
            "nothing: the loop takes run_stop in the log as proof, never the exit code",
            **_at(training.place),
        )


# ---- ranks ----


def _ranks(contract: Contract, given: Given) -> Iterator[ContractFinding]:
    training, ranks = contract.training, contract.ranks
    if training is None:
        return
    nodes, gpus, start = given.nodes, given.gpus, training.text[:100]
    rows: tuple[tuple[bool, Severity, str, str, str], ...] = (
        (
            ranks.startswith("torchrun") and given.ranks == "gpu",
            "error",
            "the image starts torchrun, and the bundle starts it once per GPU",
            f"each of the copies ({gpus}) would make as many ranks",
            "`launch.ranks: node` in the round",
        ),
        (
            ranks == "task per GPU" and not given.ranks and gpus > 1,
            "error",
            f"the image starts one process: `{start}`",
            f"the node has {count(gpus, 'GPU')}, and nothing starts the other ranks",
            "`launch.ranks: gpu` in the round; `node` if this process runs all ranks of its node",
        ),
        (
            ranks == "torchrun one node" and nodes > 1,
            "error",
            f"torchrun is given no number of nodes: `{start}`",
            f"each of {nodes} nodes would train alone",
            "`launch.most_nodes: 1` in the round, and a system of one node",
        ),
        (
            ranks == "torchrun c10d" and nodes > 1,
            "note",
            "the rendezvous is c10d: global rank 0 is on the node with the smallest full name",
            "--node_rank does not count, and the records are in that node's log",
            "nothing: the loop finds the log with the records",
        ),
    )
    for applies, severity, what, consequence, remedy in rows:
        if applies:
            place = _at(training.place)
            yield ContractFinding("ranks", severity, what, consequence, remedy, **place)


def _launcher(contract: Contract, given: Given) -> Iterator[ContractFinding]:
    first = contract.training
    if first is None or not contract.ranks.startswith("torchrun"):
        return
    if not given.is_run or given.ranks == "gpu":
        return
    options = _options(first)
    other = _options(contract.second) if contract.second is not None else options
    for what, why in _misled(options, other, given, is_c10d=contract.ranks.endswith("c10d")):
        yield ContractFinding(
            "ranks",
            "error",
            what,
            why,
            "another image, or the variable that its script reads in `env` of the round",
            **_at(first.place),
        )
    port = other.get("master_port") or other.get("rdzv_endpoint", "").rpartition(":")[2]
    if given.nodes > 1 and port.isdigit() and port != given.around.environment.get("MASTER_PORT"):
        yield ContractFinding(
            "ranks",
            "note",
            f"the rendezvous is at port {port}, not at MASTER_PORT of the run",
            "a port that somebody else uses ends every attempt",
            "the variable that the script reads in `env` of the round, with a free port",
            **_at(first.place),
        )


def _misled(
    options: dict[str, str], other: dict[str, str], given: Given, *, is_c10d: bool
) -> Iterator[tuple[str, str]]:
    each, nodes = options.get("nproc_per_node", ""), options.get("nnodes", "")
    ranks, expected = whole_number(each), whole_number(nodes)
    if ranks is not None and ranks != given.gpus:
        yield (
            f"torchrun makes {count(ranks, 'rank')} per node",
            f"a node has {count(given.gpus, 'GPU')}",
        )
    if expected is not None and expected != given.nodes:
        yield f"torchrun waits for {count(expected, 'node')}", f"the system has {given.nodes}"
    if given.nodes == 1:
        return
    rank, theirs = options.get("node_rank", ""), other.get("node_rank", "")
    if not is_c10d and rank.isdigit() and rank == theirs:
        yield f"two nodes have node rank {rank}", "torchrun ends there, or waits for the others"
    address = other.get("master_addr", "")
    if is_c10d:
        address = other.get("rdzv_endpoint", "").rpartition(":")[0]
    master = given.around.environment.get("MASTER_ADDR", "")
    if address and is_known(address) and address != master:
        yield f"the rendezvous is at {address}", f"the first node is {master}"


def _options(start: Start) -> dict[str, str]:
    """Return torchrun's options: name, with underscores, -> value."""
    argv = list(start.words)
    options: dict[str, str] = {}
    while argv and not argv[0].endswith(".py"):
        word = argv.pop(0)
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        if not equals and argv and not argv[0].startswith("-"):
            value = argv[0]
        options[name.replace("-", "_")] = value
    return options


# ---- paths ----


def _paths(contract: Contract, given: Given) -> Iterator[ContractFinding]:
    made = {use.path for use in contract.trace.paths if use.how == "written"}
    seen: set[tuple[str, str]] = set()
    for use in contract.trace.paths:
        mount = given.around.mount_of(use.path)
        if mount is None:
            yield from _unprovided(contract, given, use)
            continue
        for finding in _of_mount(given, use, mount.place, mount.read_only, made, mount.holds):
            if (finding.kind, finding.what) not in seen:
                seen.add((finding.kind, finding.what))
                yield finding


def _of_mount(
    given: Given,
    use: PathUse,
    place: str,
    read_only: bool,
    made: Iterable[str],
    holds: tuple[str, ...] | None,
) -> Iterator[ContractFinding]:
    path = shown(use.path)
    if use.how in ("written", "deleted") and read_only:
        yield ContractFinding(
            "read-only path",
            "error",
            f"{path} is {use.how}, and {place} is mounted read-only",
            "the script fails there, or goes elsewhere",
            f"a mount of {place} with `written: true` in the round",
            **_at(use.place),
        )
    elif use.how == "written" and place not in given.writable:
        yield ContractFinding(
            "written path",
            "warning",
            f"the container's root writes below {place}",
            "root is nobody on storage with root_squash: the script fails there, or goes elsewhere",
            f"`written: true` for the mount of {place} in the round; "
            "it is then tested before a run",
            **_at(use.place),
        )
    elif use.how == "deleted" and use.path not in made and place not in given.writable:
        yield ContractFinding(
            "deleted path",
            "warning",
            f"{path} is deleted",
            "it is the host's: data that took hours to prepare",
            "orchestrator prepare mounts a folder of its own; keep a copy before another command",
            **_at(use.place),
        )
    elif (
        use.how in ("tested", "read")
        and holds is not None
        and place not in ("/results", "/orch")
        and (
            use.path not in made
            and not _is_promised(use.path, holds)
            and use.path.rstrip("/") != place
        )
    ):
        yield ContractFinding(
            "expected path",
            "warning",
            f"{path} is looked for, and no preparation makes it",
            "a start without it continues in another way, often with a download",
            "`data_tree` and the preparation of the workload, or another mount",
            **_at(use.place),
        )


def _is_promised(path: str, holds: tuple[str, ...]) -> bool:
    known = path.partition(shown("\ue000"))[0] if is_known(path) else path.split("\ue000")[0]
    return any(
        (promised + "/").startswith(known.rstrip("/") + "/")
        or promised.startswith(known)
        or known.startswith(promised + "/")
        for promised in holds
    )


def _unprovided(contract: Contract, given: Given, use: PathUse) -> Iterator[ContractFinding]:
    """Report a Python program's absolute path that neither the image nor a mount has."""
    if use.how != "read" or not contract.tree.complete or not use.place.file.endswith(".py"):
        return
    top = "/" + use.path.split("/")[1]
    if not contract.tree.exists(top) and not use.place.maybe:
        yield ContractFinding(
            "missing path",
            "warning",
            f"{use.path} is named, and neither the image nor a mount has {top}",
            "the program may look for its data or code there",
            "a mount in the round",
            **_at(use.place),
        )


def _user(contract: Contract, given: Given) -> Iterator[ContractFinding]:
    user = contract.tree.config.user
    if user not in ("", "0", "root", "root:root", "0:0"):
        yield ContractFinding(
            "user",
            "warning",
            f"the image runs as user {user!r}",
            "folders of the job are made for root in the container",
            "container.options of the site: --user=root, if the image allows it",
        )


def _platform(contract: Contract, given: Given) -> Iterator[ContractFinding]:
    architecture = contract.tree.config.architecture
    if architecture not in ("", "amd64", "x86_64"):
        yield ContractFinding(
            "platform",
            "error",
            f"the image is for {architecture}",
            "hosts of Instinct GPUs are amd64: no program of it starts there",
            "the image for linux/amd64: docker pull --platform linux/amd64",
        )
