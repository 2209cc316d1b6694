"""The GPUs of a node: how many, which, idle, sound, linked. Told by amd-smi, else rocm-smi, else the driver's files in /sys."""

from __future__ import annotations

import functools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..events import number
from .node import Node, first_line, listed
from .tools import Smi, Values, entries, pairs

if TYPE_CHECKING:
    from .checks import Rows
    from .container import EngineState

_MODELS = {
    "MI100": "738c 738e",
    "MI210": "740f 7410",
    "MI250X": "7408",
    "MI250": "740c",
    "MI300A": "74a0",
    "MI300X": "74a1 74b5 74a9 74bd",
    "MI308X": "74a2 74b6 74a8 74bc",
    "MI325X": "74a5 74b9",
    "MI350X": "75a0 75b0",
    "MI355X": "75a3 75b3",
}
MODEL_OF_ID = {f"0x{one}": model for model, ids in _MODELS.items() for one in ids.split()}
"""PCI device ids; virtual functions have ids of their own."""
RESET = "reset the GPU (amd-smi reset --gpureset) or reboot"
XGMI = "11"


def _told_of(*names: str) -> Callable[[Callable[[Node, Smi], Rows]], Callable[[Node, EngineState], Rows]]:
    """Make a check of the function: where there are no GPUs, or nothing tells of them, the rows of these names say so."""

    def of(check: Callable[[Node, Smi], Rows]) -> Callable[[Node, EngineState], Rows]:
        @functools.wraps(check)
        def rows(node: Node, engine: EngineState) -> Rows:
            smi = Smi(node)
            if not node.settings.gpu_model or not node.settings.gpus_per_node:
                yield from ((name, "skip", "the system has no GPUs", "") for name in names)
            elif smi.amd or smi.rocm or _kfd_nodes(node, gpus=False) or os.path.exists(_pci(node)):
                yield from check(node, smi)
            else:
                text = "cannot be checked: no amd-smi, rocm-smi or amdgpu driver"
                remedy = "install the amdgpu driver and amd-smi, or take another partition"
                yield from ((name, "warn", text, remedy) for name in names)

        return rows

    return of


# ---- where they are told of ------------------------------------------------------------------------------------------


def _by_gpu(values: Values) -> Iterator[tuple[int, str, str, str]]:
    """Yield (GPU, path, value, unit): `gpu` is the first member of an entry of amd-smi, rocm-smi has the number in its key.

    A number with its unit beside it has the path without /value; the unit is "" where there is none.
    """
    gpu = None
    for at, (path, value) in enumerate(values):
        if card := re.match(r"/card([0-9]{1,6})/", path):
            gpu = int(card[1])
        elif re.fullmatch(r"(/[a-z_]+)?(/[0-9]+)+/gpu", path) and (given := number(value, 6)) is not None:
            gpu = given
        if gpu is not None:
            yield gpu, path[:-6] if path.endswith("/value") else path, value, _unit(values, at)


def _unit(values: Values, at: int) -> str:
    path, beside = values[at][0], values[at + 1] if at + 1 < len(values) else ("", "")
    return beside[1] if path.endswith("/value") and beside[0] == path[:-5] + "unit" else ""


def _mib(value: str, unit: str) -> int | None:
    """Return a number with its unit behind it or beside it in MiB, None when it is none; without a unit it is MiB."""
    words = value.split(" ")
    found = re.fullmatch(r"([0-9]{1,18})(?:\.([0-9])[0-9]*)?", words[0])
    if not found:
        return None
    whole, tenths = int(found[1]), int(found[2] or 0)
    letter = (words[-1] if len(words) > 1 else unit)[:2].upper()
    if letter == "B":
        return whole >> 20
    scaled = {"K": whole >> 10, "G": whole * 1024 + tenths * 102, "T": whole * 1048576 + tenths * 104857}
    return scaled.get(letter[:1], whole)


def _gib(mib: int) -> str:
    return f"{mib // 1024}.{mib % 1024 * 10 // 1024}"


def _pci(node: Node) -> str:
    return f"{node.sys}/bus/pci/drivers/amdgpu"


def _pci_devices(node: Node) -> list[str]:
    return [f"{_pci(node)}/{name}" for name in entries(_pci(node)) if re.fullmatch(r"[^:]*:[^:]*:[^:]*\..*", name)]


def _kfd_nodes(node: Node, *, gpus: bool = True) -> list[str]:
    """Return the nodes of the driver's topology; processors have the GPU id 0."""
    top = f"{node.sys}/class/kfd/kfd/topology/nodes"
    return [f"{top}/{name}" for name in entries(top) if not gpus or first_line(f"{top}/{name}/gpu_id") not in ("", "0")]


# ---- count and model -------------------------------------------------------------------------------------------------

Identity = dict[int, dict[str, str]]
"""By GPU: name, id (0x74a1), target (gfx942), as far as they are told."""


def _read_identity(node: Node, smi: Smi) -> tuple[str, Identity]:
    source, values = "amd-smi", smi.ask_amd("static --asic", "static")
    if not values:
        source, values = "rocm-smi", smi.ask_rocm("--showproductname --showid", "--showproductname")
    if found := _identity(values):
        return source, found
    if nodes := _kfd_nodes(node):
        return "/sys/class/kfd", {gpu: _topology_identity(folder) for gpu, folder in enumerate(nodes)}
    devices = enumerate(_pci_devices(node))
    files = {"id": "device", "name": "product_name"}
    return _pci(node).replace(node.sys, "/sys", 1), {
        gpu: {what: first_line(f"{folder}/{file}") for what, file in files.items()} for gpu, folder in devices
    }


def _identity(values: Values) -> Identity:
    found: Identity = {}
    for gpu, path, value, _ in _by_gpu(values):
        about, key = found.setdefault(gpu, {}), path.rpartition("/")[2]
        if value in ("", "N/A"):
            continue
        if key in ("market_name", "card_series", "device_name"):
            about.setdefault("name", value)
        elif path.endswith("/asic/device_id") or (
            path.startswith("/card") and key in ("device_id", "gpu_id", "card_model")
        ):
            if value.startswith("0x"):
                about.setdefault("id", value.lower())
        elif key in ("target_graphics_version", "gfx_version"):
            about["target"] = value.lower()
    return found


def _topology_identity(folder: str) -> dict[str, str]:
    told = {name: number(value) for name, value in pairs(f"{folder}/properties")}
    device, target = told.get("device_id"), told.get("gfx_target_version")
    about = {} if device is None else {"id": f"{device:#06x}"}
    if target:
        about["target"] = f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}"
    return about


@_told_of("gpu_count", "gpu_model")
def identity(node: Node, smi: Smi) -> Rows:
    source, gpus = _read_identity(node, smi)
    found, wanted = len(gpus), node.settings.gpus_per_node
    text = f"{found} GPUs ({source}), the system has {wanted}"
    if found == wanted:
        yield "gpu_count", "pass", f"{found} GPUs ({source})", ""
    elif not found:
        words = f" ({smi.problem[:160]})" if smi.problem else ""
        remedy = "load the amdgpu driver (dmesg says why it does not), or reboot the node"
        yield "gpu_count", "fail", f"no GPU, the system has {wanted}{words}", remedy
    elif found > wanted:
        yield (
            "gpu_count",
            "fail",
            f"{text}: the GPUs are split into partitions",
            "amd-smi set --compute-partition SPX",
        )
    else:
        yield "gpu_count", "fail", text, "look at dmesg for GPUs that fell off the bus; reboot or drain the node"
    yield ("gpu_model", *(_judge_model(node, gpus) if found else ("warn", "cannot be checked: no GPU was found", "")))


def _model(about: dict[str, str]) -> str:
    """Return the model; the device id is the hardware's own word, names come from tables that can be older than the GPU."""
    name = re.search(r"MI[0-9]{3}[AX]?", about.get("name", ""))
    return MODEL_OF_ID.get(about.get("id", "")) or (name[0] if name else "")


def _judge_model(node: Node, gpus: Identity) -> tuple[str, str, str]:
    wrong, unknown, shown = [], [], ""
    for gpu, about in sorted(gpus.items()):
        model, target, wanted = _model(about), about.get("target", ""), node.settings.gpu_gfx
        if model and model.lower() != node.settings.gpu_model.lower():
            wrong.append(f"GPU {gpu}: {model}")
        elif not model and target and wanted and target != wanted:
            wrong.append(f"GPU {gpu}: {target}")
        elif not model and not target:
            unknown.append(gpu)
        shown = about.get("name") or model or target
    silent = listed([str(gpu) for gpu in unknown])
    if wrong:
        text = f"{listed(wrong)}; the system has {node.settings.gpu_model}"
        return "fail", text, "take nodes of the declared kind (partition, constraint), or another SYSTEM"
    if 0 < len(unknown) < len(gpus):
        return "fail", f"GPU {silent} does not tell what it is, the others do", f"look at dmesg; {RESET}"
    if unknown:
        name = gpus[unknown[0]].get("name") or "no name"
        return "warn", f"cannot be told for GPU {silent} ({name})", "install a newer amd-smi"
    return "pass", shown, ""


# ---- memory and errors -----------------------------------------------------------------------------------------------

Metrics = dict[str, dict[int, int]]
"""By what (total, used: MiB; ue, ce, de: counts) and GPU. Deferred errors (de) are bad memory that nobody has read yet."""

_MEMORY = {"total_vram": "total", "vram_total": "total", "used_vram": "used", "vram_used": "used"}
_MEMORY_ROCM = {"vram_total_memory_(b)": "total", "vram_total_used_memory_(b)": "used"}
_ERRORS = {"total_correctable": "ce", "total_uncorrectable": "ue", "total_deferred": "de"}


def _read_metrics(node: Node, smi: Smi) -> Metrics:
    values = smi.ask_amd("metric --mem-usage --ecc", "metric") or smi.ask_rocm("--showmeminfo vram")
    metrics, devices = _metrics(values), _pci_devices(node)
    if not metrics["used"]:
        for what in ("total", "used"):
            told = {gpu: number(first_line(f"{folder}/mem_info_vram_{what}")) for gpu, folder in enumerate(devices)}
            metrics[what].update((gpu, value >> 20) for gpu, value in told.items() if value is not None)
    if not metrics["ue"]:
        for gpu, folder in enumerate(devices):
            _count_errors(f"{folder}/ras", gpu, metrics)
    return metrics


def _metrics(values: Values) -> Metrics:
    metrics: Metrics = {what: {} for what in ("total", "used", "ue", "ce", "de")}
    for gpu, path, value, unit in _by_gpu(values):
        key = path.rpartition("/")[2]
        if key in _MEMORY and (mib := _mib(value, unit)) is not None:
            metrics[_MEMORY[key]][gpu] = mib
        elif path.startswith("/card") and key in _MEMORY_ROCM and (mib := _mib(value, "B")) is not None:
            metrics[_MEMORY_ROCM[key]][gpu] = mib
        elif "/ecc/total_" in path and (what := _ERRORS.get(key[:-6] if key.endswith("_count") else key)):
            if (count := number(value)) is not None and count >= 0:
                metrics[what][gpu] = count
    return metrics


def _count_errors(folder: str, gpu: int, metrics: Metrics) -> None:
    """Add up the counts of each block of a GPU, as the driver has them: ue: 0, ce: 0, newer ones also de: 0."""
    for name in entries(folder):
        for word, value in pairs(f"{folder}/{name}") if name.endswith("_err_count") else ():
            count = number(value)
            if count is not None and word in ("ue:", "ce:", "de:"):
                metrics[word[:2]][gpu] = metrics[word[:2]].get(gpu, 0) + count


@_told_of("gpu_memory", "gpu_errors")
def metrics(node: Node, smi: Smi) -> Rows:
    told = _read_metrics(node, smi)
    yield ("gpu_memory", *_judge_memory(node, told))
    yield ("gpu_errors", *_judge_errors(node, told))


def _silent(node: Node, told: dict[int, int]) -> str:
    """Return the GPUs of the system that are not among those that tell."""
    wanted = range(node.settings.gpus_per_node)
    return listed([str(gpu) for gpu in wanted if gpu not in told]) if len(told) < len(wanted) else ""


def _judge_memory(node: Node, told: Metrics) -> tuple[str, str, str]:
    busy, used, total = [], told["used"], told["total"]
    if not used:
        text = "cannot be checked: neither a tool nor the driver tells the memory in use"
        return "warn", text, "look at amd-smi metric --mem-usage"
    for gpu, mib in sorted(used.items()):
        # An idle MI300X has 0.3 GiB of its 192 in use; 2 % where that is less than a GiB.
        of = total.get(gpu, 0)
        if mib > (min(1024, of // 50) if of else 1024):
            busy.append(f"GPU {gpu}: {_gib(mib)} GiB of {_gib(of)}")
    if busy:
        processes, _ = _kfd_processes(node)
        who, first = (f" by {processes[0]}", "end that process; ") if processes else ("", "")
        return "fail", f"{listed(busy)} in use{who}", f"{first}without one: {RESET}"
    if silent := _silent(node, used):
        # A GPU that has fallen silent beside others that answer is no idle one.
        text = f"GPU {silent} does not tell its memory in use, the others do"
        return "fail", text, f"look at dmesg; {RESET}"
    return "pass", f"idle, at most {_gib(max(used.values()))} GiB in use", ""


def _judge_errors(node: Node, told: Metrics) -> tuple[str, str, str]:
    ue, ce, de = told["ue"], told["ce"], told["de"]
    if not ue and not ce:
        return "skip", "neither a tool nor the driver tells error counts", ""
    lost = [f"GPU {gpu}: {count}" for gpu, count in sorted(ue.items()) if count]
    sums = {gpu: ce.get(gpu, 0) + de.get(gpu, 0) for gpu in sorted({*ce, *de})}
    corrected = [f"GPU {gpu}: {count}" for gpu, count in sums.items() if count]
    if lost:
        text = f"uncorrectable errors since the driver was loaded: {listed(lost)}"
        return "fail", text, "drain the node; reset or replace the GPU (amd-smi bad-pages)"
    if corrected:
        text = f"corrected or deferred errors: {listed(corrected)}"
        return "warn", text, "watch these GPUs (amd-smi metric --ecc-blocks)"
    if ue and (silent := _silent(node, ue)):
        text = f"GPU {silent} does not tell its error counts, the others do"
        return "warn", text, "look at dmesg; amd-smi metric --ecc"
    return "pass", "no errors counted", ""


# ---- processes -------------------------------------------------------------------------------------------------------

Users = tuple[list[str], list[str]]
"""Processes that hold GPU memory, and those that only have the device open, as monitors do."""


def _kfd_processes(node: Node) -> Users:
    """Return what the driver lists, in whatever container it is."""
    top, memory = f"{node.sys}/class/kfd/kfd/proc", {}
    for pid in entries(top):
        files = [f"{top}/{pid}/{name}" for name in entries(f"{top}/{pid}") if name.startswith("vram_")]
        if number(pid) is not None:
            memory[pid] = sum(number(first_line(file)) or 0 for file in files) >> 20
    return _users(node, {}, memory)


def _users(node: Node, names: dict[str, str], memory: dict[str, int | None] | dict[str, int]) -> Users:
    """Return the processes of `memory` (MiB, by pid; None where it is not told) in words."""
    holding, opened = [], []
    for pid, mib in memory.items():
        name = names.get(pid, "")
        if name in ("", "N/A", "UNKNOWN"):
            name = first_line(f"{node.proc}/{pid}/comm") or "?"
        name = name.rpartition("/")[2]
        if mib is not None and mib < 16:
            opened.append(f"{name} (pid {pid})")
        else:
            holding.append(f"{name} (pid {pid}{'' if mib is None else f', {_gib(mib)} GiB'})")
    return holding, opened


@_told_of("gpu_processes")
def processes(node: Node, smi: Smi) -> Rows:
    holding, opened = _kfd_processes(node)
    # The tools read the same files, and count some processes twice; they are asked where the driver keeps them from us.
    if not os.path.isdir(f"{node.sys}/class/kfd/kfd/proc"):
        if values := smi.ask_amd("process"):
            holding, opened = _amd_processes(node, values)
        elif values := smi.ask_rocm("--showpids"):
            holding, opened = _rocm_processes(node, values)
        elif not smi.amd and not smi.rocm:
            text = "cannot be checked: the driver lists no processes"
            yield "gpu_processes", "warn", text, "load the amdgpu driver with kfd, or install amd-smi"
            return
        elif not smi.rocm or "No JSON data" not in smi.problem:
            text = f"cannot be checked: {smi.problem or 'the tool printed nothing'}"
            yield "gpu_processes", "warn", text, "run amd-smi process on the node"
            return
    if holding:
        remedy = "end the process, or leave the node out while its job runs"
        yield "gpu_processes", "fail", f"in use by {listed(holding)}", remedy
    elif opened:
        text = f"opened without memory by {listed(opened)}"
        yield "gpu_processes", "warn", text, "fine for a monitor; end anything else"
    else:
        yield "gpu_processes", "pass", "no process on the GPUs", ""


def _amd_processes(node: Node, values: Values) -> Users:
    """Return the entries of process_list, each with its members or with one member process_info that has them.

    A process is listed once for each GPU, by some versions with its memory on all of them each time: the largest counts.
    """
    told: dict[str, dict[str, str]] = defaultdict(dict)
    for at, (path, value) in enumerate(values):
        if found := re.fullmatch(r"(.*/process_list/[0-9]+)/(?:process_info/)?(.*?)(/value)?", path, re.DOTALL):
            told[found[1]][found[2]] = f"{value} {_unit(values, at) or 'B'}" if found[3] else value
    names: dict[str, str] = {}
    memory: dict[str, int | None] = {}
    for entry in told.values():
        pid = entry.get("pid", "")
        if (number(pid) or -1) < 0:
            continue
        names[pid] = entry.get("name", "")
        amounts = (_mib(entry.get(key, ""), "B") for key in ("memory_usage/vram_mem", "vram_mem", "mem_usage", "mem"))
        mib = next((amount for amount in amounts if amount is not None), None)
        memory[pid] = max((one for one in (mib, memory.get(pid)) if one is not None), default=None)
    return _users(node, names, memory)


def _rocm_processes(node: Node, values: Values) -> Users:
    """Return the members "PID28389": "llama-server, 1, 2353860608, 11011, 0": name, GPUs, bytes."""
    names: dict[str, str] = {}
    memory: dict[str, int | None] = {}
    for path, value in values:
        if found := re.search(r"/pid([0-9]{1,9})$", path):
            words = [word.strip() for word in value.split(",")]
            names[found[1]] = words[0]
            memory[found[1]] = _mib(words[2], "B") if len(words) > 2 else None
    return _users(node, names, memory)


# ---- links -----------------------------------------------------------------------------------------------------------
# `xgmi_error` of the driver cannot be read on MI300 and later, and amd-smi has no word on it there; the state of the links is
# told by `amd-smi xgmi`, their errors by the RAS counters (gpu_errors).

Links = tuple[dict[int, int], list[str]]
"""How many links are up on each GPU that tells, and what to say of the others."""


@_told_of("gpu_links")
def links(node: Node, smi: Smi) -> Rows:
    if node.settings.gpus_per_node == 1:
        yield "gpu_links", "skip", "one GPU: no links", ""
        return
    up, down = _links(smi.ask_amd("xgmi --link-status", "xgmi"))
    if not up:
        up, down = _driver_links(node)
    if down:
        remedy = "reset the GPUs together or power-cycle the node; then have the board looked at"
        yield "gpu_links", "fail", listed(down), remedy
    elif up:
        yield "gpu_links", "pass", f"{up[min(up)]} links up on each of {len(up)} GPUs", ""
    else:
        yield "gpu_links", "skip", "neither a tool nor the driver tells about links", ""


def _links(values: Values) -> Links:
    """Read `amd-smi xgmi`. U, D and X are up, down and disabled; several links between the same two GPUs are joined (U/U).

    A list by GPU has SELF in it. A list by port can have a port that leads nowhere; there it counts whether enough others are up.
    """
    sections: dict[str, dict[int, list[str]]] = {}
    gpus = set()
    for gpu, path, value, _ in _by_gpu(values):
        gpus.add(gpu)
        if re.search(r"/link_status/[0-9]+$", path):
            section = sections.setdefault(re.split(r"/[0-9]", path)[0], {})
            section.setdefault(gpu, []).extend(value.upper().split("/"))
    telling = [one for one in sections.values() if any(word[:1] in ("U", "D") for words in one.values() for word in words)]
    # The list by GPU, where there is one.
    telling.sort(key=lambda one: not any("SELF" in words for words in one.values()))
    up, down = {}, []
    for gpu, words in sorted(telling[0].items()) if telling else ():
        states = [word[:1] for word in words]
        ups, downs = states.count("U"), states.count("D")
        if not ups:
            continue  # no link at all that is up: a virtual function, or a tool that cannot tell
        up[gpu] = ups
        if downs and ("SELF" in words or ups < len(gpus) - 1):
            down.append(f"GPU {gpu}: {downs} of {ups + downs} links down")
    if up:
        down += [f"GPU {gpu}: no link is up, other GPUs have theirs" for gpu in sorted(gpus) if gpu not in up]
    return up, down


def _driver_links(node: Node) -> Links:
    """Count the entries of type XGMI in the topology, one for each GPU that a GPU reaches; equal GPUs have equally many."""
    up = {}
    for gpu, folder in enumerate(_kfd_nodes(node)):
        files = (f"{folder}/io_links/{name}/properties" for name in entries(f"{folder}/io_links"))
        up[gpu] = sum(["type", XGMI] in list(pairs(file)) for file in files)
    most = max(up.values(), default=0)
    down = [f"GPU {gpu}: {n} of {most} links in the driver's topology" for gpu, n in up.items() if n != most]
    return (up, down) if most else ({}, [])
