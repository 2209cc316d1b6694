"""A node's GPUs (count, model, load, errors, links), from the driver's files in /sys, else from
amd-smi or rocm-smi."""

from __future__ import annotations

import functools
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable

from ..kernel.events import number
from ..kernel.plural import count
from ..kernel.system import first_line, lines, names
from .node import EngineState, Node, Rows, listed
from .tools import Smi, Values, by_gpu, tools_limit

Check = Callable[[Node, EngineState], Rows]
Verdict = tuple[str, str, str]
"""Verdict, text and remedy of a check."""
_MODELS = (
    "MI100 738c 738e, MI210 740f 7410, MI250X 7408, MI250 740c, MI300A 74a0, MI300X 74a1 74b5 74a9 "
    "74bd, "
    "MI308X 74a2 74b6 74a8 74bc, MI325X 74a5 74b9, MI350X 75a0 75b0, MI355X 75a3 75b3"
)
MODEL_OF_ID = {
    f"0x{device}": row.split()[0] for row in _MODELS.split(", ") for device in row.split()[1:]
}
"""By PCI device id, virtual functions included."""
_LATE = "run amd-smi on the node and check dmesg: the driver answers slowly"
_RESET = "reset the GPU (amd-smi reset --gpureset) or reboot"
_TOPOLOGY, _PROCESSES, _DRIVER = (
    "class/kfd/kfd/topology/nodes",
    "class/kfd/kfd/proc",
    "bus/pci/drivers/amdgpu",
)


def unreadable(node: Node) -> Verdict | None:
    """Without GPUs, or a source about them, return the verdict of all checks."""
    if not node.settings.gpu_model or not node.settings.gpus_per_node:
        return "skip", "the system has no GPUs", ""
    if (
        Smi(node).paths
        or names(f"{node.hardware_sys}/{_TOPOLOGY}")
        or os.path.exists(f"{node.hardware_sys}/{_DRIVER}")
    ):
        return None
    text = "cannot be checked: no amd-smi, rocm-smi or amdgpu driver"
    return "warn", text, "install the amdgpu driver and amd-smi, or take another partition"


def checks(node: Node) -> tuple[Check, ...]:
    """Return checks that share the tools' time and run in turn: tools that start together wait for
    each other in the driver."""
    until = time.monotonic() + tools_limit(node)

    def bound(check: Callable[[Node, Smi], Rows]) -> Check:
        @functools.wraps(check)
        def run(node: Node, engine: EngineState) -> Rows:
            return check(node, Smi(node, until))

        return run

    return tuple(map(bound, (identity, metrics, processes, links)))


def _noted(smi: Smi, verdict: str, text: str, remedy: str) -> Verdict:
    """If a tool was too slow, warn at best: its facts are unknown."""
    if not smi.late:
        return verdict, text, remedy
    return "fail" if verdict == "fail" else "warn", f"{text}; {smi.late}", remedy or _LATE


def _kfd_gpus(node: Node) -> list[str]:
    """Folders in the driver's topology; processors have GPU id 0."""
    topology = f"{node.hardware_sys}/{_TOPOLOGY}"
    folders = (f"{topology}/{name}" for name in names(topology))
    return [folder for folder in folders if first_line(f"{folder}/gpu_id") not in ("", "0")]


def _mib(value: str, unit: str) -> int | None:
    """The unit is attached or in `unit` (default: MiB); else None."""
    match = re.fullmatch(r"([0-9]{1,18})(?:\.([0-9])[0-9]*)?(?: .*?([^ ]*))?", value)
    if not match:
        return None
    whole, tenths, unit = int(match[1]), int(match[2] or 0), (match[3] or unit).upper()
    scaled = {
        "K": whole >> 10,
        "G": whole * 1024 + tenths * 102,
        "T": whole * 1048576 + tenths * 104857,
    }
    return whole >> 20 if unit == "B" else scaled.get(unit[:1], whole)


def gib(mib: int) -> str:
    return f"{mib // 1024}.{mib % 1024 * 10 // 1024}"


# ---- count and model ----------------------------------------------------------------------------

Identity = dict[int, dict[str, str]]
"""GPU -> name, id (0x74a1), target (gfx942), as far as known."""
_ROCM_IDS = ("device_id", "gpu_id", "card_model")


def identity(node: Node, smi: Smi) -> Rows:
    wanted = node.settings.gpus_per_node
    source, gpus = detect_gpus(node, smi)
    text, verdict, remedy = (
        f"{count(len(gpus), 'GPU')} ({source}), the system has {wanted}",
        "fail",
        "",
    )
    if len(gpus) == wanted:
        text, verdict = f"{count(wanted, 'GPU')} ({source})", "pass"
    elif not gpus:
        reason = smi.late or smi.problem[:160]
        text = f"no GPU, the system has {wanted}" + (f" ({reason})" if reason else "")
        remedy = "load the amdgpu driver (dmesg says why it does not), or reboot the node"
    elif len(gpus) > wanted:
        text, remedy = (
            f"{text}: the GPUs are split into partitions",
            "amd-smi set --compute-partition SPX",
        )
    else:
        remedy = "check dmesg for GPUs that fell off the bus; reboot or drain the node"
    # The driver's count stands without a tool.
    yield "gpu_count", verdict, text, remedy
    model = (
        _judge_model(node, gpus) if gpus else ("warn", "cannot be checked: no GPU was found", "")
    )
    yield ("gpu_model", *_noted(smi, *model))


def detect_gpus(node: Node, smi: Smi) -> tuple[str, Identity]:
    """Return the source and the GPUs; a tool is asked only about GPUs that MODEL_OF_ID lacks."""
    source, gpus = _driver_gpus(node)
    if gpus and all(about["id"] in MODEL_OF_ID for about in gpus.values()):
        return source, gpus
    amd, rocm = "amd-smi static", "rocm-smi --showproductname"
    reported = _tool_identity(smi.ask(f"{amd} --asic", amd, f"{rocm} --showid", rocm))
    return (smi.source, reported) if reported else (source, gpus)


def _driver_gpus(node: Node) -> tuple[str, Identity]:
    gpus: Identity = {}
    for gpu, folder in enumerate(_kfd_gpus(node)):
        properties = dict(
            pair for line in lines(f"{folder}/properties") if len(pair := line.split()) == 2
        )
        target, device = (
            number(properties.get(name, "")) or 0 for name in ("gfx_target_version", "device_id")
        )
        gfx = f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}" if target > 0 else ""
        gpus[gpu] = {"id": f"{device:#06x}", "target": gfx}
    if gpus:
        return "/sys/class/kfd", gpus
    for gpu, folder in enumerate(node.inventory().gpus):
        gpus[gpu] = {
            "id": first_line(f"{folder}/device"),
            "name": first_line(f"{folder}/product_name"),
        }
    return f"/sys/{_DRIVER}", gpus


def _tool_identity(values: Values) -> Identity:
    gpus: Identity = defaultdict(dict)
    for gpu, path, value, _ in by_gpu(values):
        about, key = gpus[gpu], path.rpartition("/")[2]
        is_id = path.endswith("/asic/device_id") or (path.startswith("/card") and key in _ROCM_IDS)
        if value in ("", "N/A"):
            continue
        if key in ("market_name", "card_series", "device_name"):
            about.setdefault("name", value)
        elif key in ("target_graphics_version", "gfx_version"):
            about["target"] = value.lower()
        elif is_id and value.startswith("0x"):
            about.setdefault("id", value.lower())
    return gpus


def _judge_model(node: Node, gpus: Identity) -> Verdict:
    wrong, unknown, shown, gfx = [], [], "", node.settings.gpu_gfx
    for gpu, about in sorted(gpus.items()):
        named, target = (
            re.search(r"MI[0-9]{3}[AX]?", about.get("name", "")),
            about.get("target", ""),
        )
        # The device id is the hardware's own; tables of names can be older than the GPU.
        model = MODEL_OF_ID.get(about.get("id", "")) or (named[0] if named else "")
        if (
            model.lower() != node.settings.gpu_model.lower()
            if model
            else target and gfx and target != gfx
        ):
            wrong.append(f"GPU {gpu}: {model or target}")
        elif not model and not target:
            unknown.append(gpu)
        shown = about.get("name") or model or target
    silent = listed([str(gpu) for gpu in unknown])
    if wrong:
        remedy = "take nodes of the declared kind (partition, constraint), or another SYSTEM"
        return "fail", f"{listed(wrong)}; the system has {node.settings.gpu_model}", remedy
    if 0 < len(unknown) < len(gpus):
        return (
            "fail",
            f"GPU {silent} does not report its model, the others do",
            f"check dmesg; {_RESET}",
        )
    if unknown:
        name = gpus[unknown[0]].get("name") or "no name"
        return "warn", f"cannot be determined for GPU {silent} ({name})", "install a newer amd-smi"
    return "pass", shown, ""


# ---- memory and errors --------------------------------------------------------------------------

Metrics = dict[str, dict[int, int]]
"""Quantity (total, used: MiB; ue, ce, de: counts) -> GPU -> value. Deferred errors (de) are bad
memory not yet read."""

_MEMORY = {
    **dict.fromkeys(("total_vram", "vram_total", "vram_total_memory_(b)"), "total"),
    **dict.fromkeys(("used_vram", "vram_used", "vram_total_used_memory_(b)"), "used"),
}
_ERRORS = {"total_correctable": "ce", "total_uncorrectable": "ue", "total_deferred": "de"}


def metrics(node: Node, smi: Smi) -> Rows:
    amounts = _driver_metrics(node)
    lacking = [name for name in ("used", "ue") if not amounts[name]]
    if lacking:
        for name, values in _tool_metrics(smi).items():
            amounts[name] = amounts[name] or values
    for check, judge, name in (
        ("gpu_memory", _judge_memory, "used"),
        ("gpu_errors", _judge_errors, "ue"),
    ):
        verdict = judge(node, amounts)
        yield (check, *(_noted(smi, *verdict) if name in lacking else verdict))


def _tool_metrics(smi: Smi) -> Metrics:
    amounts: Metrics = defaultdict(dict)
    values = smi.ask(
        "amd-smi metric --mem-usage --ecc", "amd-smi metric", "rocm-smi --showmeminfo vram"
    )
    for gpu, path, value, unit in by_gpu(values):
        key = path.rpartition("/")[2]
        if (
            key in _MEMORY
            and (mib := _mib(value, "B" if key.endswith("(b)") else unit)) is not None
        ):
            amounts[_MEMORY[key]][gpu] = mib
        what = _ERRORS.get(key.replace("_count", "")) if path.endswith(f"/ecc/{key}") else None
        if what and (count := number(value)) is not None and count >= 0:
            amounts[what][gpu] = count
    return amounts


def _driver_metrics(node: Node) -> Metrics:
    amounts: Metrics = defaultdict(dict)
    for gpu, folder in enumerate(node.inventory().gpus):
        for what in ("total", "used"):
            if (amount := number(first_line(f"{folder}/mem_info_vram_{what}"))) is not None:
                amounts[what][gpu] = amount >> 20
        # Each block has a file of counts: ue: 0, ce: 0, with newer drivers de: 0.
        blocks = [
            f"{folder}/ras/{name}" for name in names(f"{folder}/ras") if name.endswith("_err_count")
        ]
        for what, _, text in (line.partition(": ") for block in blocks for line in lines(block)):
            if what in ("ue", "ce", "de"):
                amounts[what][gpu] = amounts[what].get(gpu, 0) + (number(text.strip()) or 0)
    return amounts


def _silent(node: Node, amounts: dict[int, int]) -> str:
    wanted = range(node.settings.gpus_per_node)
    return (
        listed([str(gpu) for gpu in wanted if gpu not in amounts])
        if len(amounts) < len(wanted)
        else ""
    )


def _judge_memory(node: Node, amounts: Metrics) -> Verdict:
    busy, used = [], amounts["used"]
    if not used:
        text = "cannot be checked: neither a tool nor the driver reports the memory in use"
        return "warn", text, "check amd-smi metric --mem-usage"
    for gpu, mib in sorted(used.items()):
        total = amounts["total"].get(gpu, 0)
        # An idle MI300X uses 0.3 GiB of 192.
        if mib > min(1024, total // 50 if total else 1024):
            busy.append(f"GPU {gpu}: {gib(mib)} GiB of {gib(total)}")
    if busy:
        holding, _ = _users(node, _kfd_processes(node))
        who, first = (f" by {holding[0]}", "end that process; ") if holding else ("", "")
        return "fail", f"{listed(busy)} in use{who}", f"{first}without one: {_RESET}"
    if silent := _silent(node, used):
        # A silent GPU among answering GPUs is not idle.
        return (
            "fail",
            f"GPU {silent} does not report its memory in use, the others do",
            f"check dmesg; {_RESET}",
        )
    return "pass", f"idle, at most {gib(max(used.values()))} GiB in use", ""


def _judge_errors(node: Node, amounts: Metrics) -> Verdict:
    ue, ce, de = amounts["ue"], amounts["ce"], amounts["de"]
    if not ue and not ce:
        return "skip", "neither a tool nor the driver reports error counts", ""
    sums = {gpu: ce.get(gpu, 0) + de.get(gpu, 0) for gpu in {**ce, **de}}
    lost, corrected = (
        listed([f"GPU {gpu}: {n}" for gpu, n in sorted(counts.items()) if n])
        for counts in (ue, sums)
    )
    if lost:
        remedy = "drain the node; reset or replace the GPU (amd-smi bad-pages)"
        return "fail", f"uncorrectable errors since the driver was loaded: {lost}", remedy
    if corrected:
        return (
            "warn",
            f"corrected or deferred errors: {corrected}",
            "watch these GPUs (amd-smi metric --ecc-blocks)",
        )
    if ue and (silent := _silent(node, ue)):
        text = f"GPU {silent} reports no error counts, the others do"
        return "warn", text, "check dmesg; amd-smi metric --ecc"
    return "pass", "no errors counted", ""


# ---- processes ----------------------------------------------------------------------------------

GpuProcesses = dict[int, tuple[str, "int | None"]]
"""Pid -> name and memory in MiB, "" and None if unknown."""


def processes(node: Node, smi: Smi) -> Rows:
    by_pid = _kfd_processes(node)
    # If the driver hides its files: the tools read the same, and count some processes twice.
    if not os.path.isdir(f"{node.sys}/{_PROCESSES}"):
        values = smi.ask("amd-smi process", "rocm-smi --showpids")
        if not values and not ("rocm-smi" in smi.paths and "No JSON data" in smi.problem):
            text, remedy = (
                "the driver lists no processes",
                "load the amdgpu driver with kfd, or install amd-smi",
            )
            if smi.paths:
                text, remedy = (
                    smi.late or smi.problem or "the tool printed nothing",
                    "run amd-smi process on the node",
                )
            yield "gpu_processes", "warn", f"cannot be checked: {text}", remedy
            return
        by_pid = _amd_processes(values) or _rocm_processes(values)
    holding, opened = _users(node, by_pid)
    if holding:
        remedy = "end the process, or leave the node out while its job runs"
        yield "gpu_processes", "fail", f"in use by {listed(holding)}", remedy
    elif opened:
        text = f"opened without memory by {listed(opened)}"
        yield "gpu_processes", "warn", text, "fine for a monitor; end anything else"
    else:
        yield "gpu_processes", "pass", "no process on the GPUs", ""


def _kfd_processes(node: Node) -> GpuProcesses:
    by_pid: GpuProcesses = {}
    for pid in filter(re.compile("[0-9]{1,9}").fullmatch, names(f"{node.sys}/{_PROCESSES}")):
        folder = f"{node.sys}/{_PROCESSES}/{pid}"
        amounts = (
            number(first_line(f"{folder}/{name}")) or 0
            for name in names(folder)
            if name.startswith("vram_")
        )
        by_pid[int(pid)] = "", sum(amounts) >> 20
    return by_pid


def _amd_processes(values: Values) -> GpuProcesses:
    """Read process_list: each entry has the members, or a member process_info.

    A process is listed per GPU, by some versions with its memory on all GPUs: the largest counts.
    """
    entries: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for _, path, value, unit in by_gpu(values):
        if entry := re.fullmatch(
            r"(.*/process_list/[0-9]+)/(?:process_info/)?(.*)", path, re.DOTALL
        ):
            entries[entry[1]][entry[2]] = value, unit or "B"
    by_pid: GpuProcesses = {}
    for about in entries.values():
        (pid, _), (name, _) = about.get("pid", ("", "")), about.get("name", ("", ""))
        if re.fullmatch("[0-9]{1,9}", pid):
            keys = ("memory_usage/vram_mem", "vram_mem", "mem_usage", "mem")
            known = (_mib(*about[key]) for key in keys if key in about)
            sizes = [mib for mib in known if mib is not None][:1]
            before = by_pid.get(int(pid), ("", None))[1]
            largest = max(sizes if before is None else [*sizes, before], default=None)
            by_pid[int(pid)] = name, largest
    return by_pid


def _rocm_processes(values: Values) -> GpuProcesses:
    """Read members such as "PID28389": "llama-server, 1, 2353860608, 11011, 0": name, GPUs,
    bytes."""
    by_pid: GpuProcesses = {}
    for path, value in values:
        if pid := re.search(r"/pid([0-9]{1,9})$", path):
            name, _, amount = ([word.strip() for word in value.split(",")] + ["", ""])[:3]
            by_pid[int(pid[1])] = name, _mib(amount, "B")
    return by_pid


def _users(node: Node, by_pid: GpuProcesses) -> tuple[list[str], list[str]]:
    """Processes with GPU memory, and with only an open device, such as monitors."""
    holding, opened = [], []
    for pid, (name, mib) in by_pid.items():
        if name in ("", "N/A", "UNKNOWN"):
            name = first_line(f"{node.proc}/{pid}/comm") or "?"
        name = name.rpartition("/")[2]
        if mib is not None and mib < 16:
            opened.append(f"{name} (pid {pid})")
        else:
            holding.append(f"{name} (pid {pid}{'' if mib is None else f', {gib(mib)} GiB'})")
    return holding, opened


# ---- links --------------------------------------------------------------------------------------
# `xgmi_error` is unreadable on MI300 and later; `amd-smi xgmi` has the links' state, and the RAS
# counters their errors (gpu_errors).

Links = tuple[dict[int, int], list[str]]
"""GPU -> active links, and remarks on the others."""


def links(node: Node, smi: Smi) -> Rows:
    if node.settings.gpus_per_node == 1:
        yield "gpu_links", "skip", "one GPU: no links", ""
        return
    up, down = _tool_links(smi.ask("amd-smi xgmi --link-status", "amd-smi xgmi"))
    text = "links up on each of"
    if not up:
        up, down = _driver_links(node)
        text = "links, of unknown state, in the driver's topology on each of"
    if down:
        remedy = "reset the GPUs together or power-cycle the node; then have the board checked"
        verdict = "fail", listed(down), remedy
    elif up:
        verdict = "pass", f"{up[min(up)]} {text} {len(up)} GPUs", ""
    else:
        verdict = "skip", "neither a tool nor the driver reports links", ""
    yield ("gpu_links", *_noted(smi, *verdict))


def _tool_links(values: Values) -> Links:
    """Read `amd-smi xgmi`: U, D and X are up, down and disabled; links between the same GPUs are
    joined (U/U).

    A list by GPU contains SELF. In a list by port, ports may lead nowhere if enough others are up.
    """
    sections: dict[str, dict[int, str]] = defaultdict(lambda: defaultdict(str))
    gpus = {gpu for gpu, *_ in by_gpu(values)}
    for gpu, path, value, _ in by_gpu(values):
        if re.search(r"/link_status/[0-9]+$", path):
            sections[re.split(r"/[0-9]", path)[0]][gpu] += f" {value.upper()}"
    lists = [
        section for section in sections.values() if re.search("[UD]", "".join(section.values()))
    ]
    lists.sort(key=lambda section: "SELF" not in "".join(section.values()))  # the list by GPU
    up, down = {}, []
    for gpu, states in sorted(lists[0].items()) if lists else ():
        ups, downs = states.count("U"), states.count("D")
        if ups:  # missing on virtual functions and in some tools
            up[gpu] = ups
        if ups and downs and ("SELF" in states or ups < len(gpus) - 1):
            down.append(f"GPU {gpu}: {downs} of {count(ups + downs, 'link')} down")
    down += [
        f"GPU {gpu}: no link is up, other GPUs have theirs"
        for gpu in sorted(gpus)
        if up and gpu not in up
    ]
    return up, down


def _driver_links(node: Node) -> Links:
    """Count entries of type XGMI (11) in the topology: one per reached GPU."""
    up = {}
    for gpu, folder in enumerate(_kfd_gpus(node)):
        files = [f"{folder}/io_links/{name}/properties" for name in names(f"{folder}/io_links")]
        up[gpu] = sum("type 11" in lines(file) for file in files)
    most = max(up.values(), default=0)
    down = [
        f"GPU {gpu}: {n} of {count(most, 'link')} in the driver's topology"
        for gpu, n in up.items()
        if n != most
    ]
    return (up, down) if most else ({}, [])
