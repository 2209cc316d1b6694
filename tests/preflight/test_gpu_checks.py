"""GPUs of a node: what the tools of several versions and the driver say, and each verdict on it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from preflight_parts import FIXTURES, Node, recorded, repeated
from until import LIMIT_S

from orchestrator.onnode.agent import gpu
from orchestrator.onnode.agent.tools import by_gpu, read_json
from orchestrator.onnode.kernel.system import amd_gpus, ask
from orchestrator.onnode.policy.verdict import Row

GPU_ROWS = ("gpu_count", "gpu_model", "gpu_memory", "gpu_processes", "gpu_errors", "gpu_links")
STATIC = recorded("amd-smi-rocm6.4/static.json")[0]
METRIC = recorded("amd-smi-rocm6.4/metric.json")[0]
IDLE = [{"gpu": 0, "process_list": [{"process_info": "No running processes detected"}]}]


def links(states: dict[int, list[str]] | None = None) -> dict[str, Any]:
    answer = recorded("amd-smi-rocm7.2/xgmi.json")
    for entry in answer["link_status"]:
        entry["link_status"] = (states or {}).get(entry["gpu"], entry["link_status"])
    return answer


def healthy(node: Node, **commands: Any) -> None:
    node.amd_smi(
        **{
            "static": repeated(STATIC),
            "metric": {"gpu_data": repeated(METRIC)},
            "process": IDLE,
            "xgmi": links(),
        }
        | commands
    )


def verdicts(node: Node) -> dict[str, str]:
    rows = node.check().rows
    return {name: rows[name].verdict for name in GPU_ROWS}


ALL_PASS = dict.fromkeys(GPU_ROWS, "pass")


# ---- versions of the tools ----


@pytest.mark.parametrize(
    ("version", "model", "target", "name", "idle"),
    [
        ("rocm6.1", "MI300X", "gfx942", "MI300X-O", "0.2 GiB"),
        ("rocm6.4", "MI300X", "gfx942", "AMD Instinct MI300X VF", "0.2 GiB"),
        ("rocm7.2", "R9700", "gfx1201", "AMD Radeon AI PRO R9700", "0.1 GiB"),
    ],
)
def test_every_version_of_amd_smi(
    node: Node, version: str, model: str, target: str, name: str, idle: str
) -> None:
    files = {file.stem: file for file in (FIXTURES / f"amd-smi-{version}").iterdir()}
    node.amd_smi(**{command: files[command].read_text() for command in ("static", "metric")})
    rows = node.check(GPUS_PER_NODE=1, GPU_MODEL=model, GPU_GFX=target).rows
    assert rows["gpu_count"].line == "pass: 1 GPU (amd-smi)"
    assert rows["gpu_model"].line == f"pass: {name}"
    assert rows["gpu_memory"].line == f"pass: idle, at most {idle} in use"
    assert rows["gpu_errors"].line == "pass: no errors counted"


@pytest.mark.parametrize(
    ("version", "gpus", "device", "target", "model"),
    [
        ("rocm5.7", 4, "MI100", "gfx908", "Arcturus GL-XL [Instinct MI100]"),
        ("rocm6.0", 4, "MI100", "gfx908", "Arcturus GL-XL [Instinct MI100]"),
        ("rocm7", 1, "RX7900", "gfx1100", "Radeon RX 7900 XT"),
    ],
)
def test_every_version_of_rocm_smi(
    node: Node, version: str, gpus: int, device: str, target: str, model: str
) -> None:
    node.rocm_smi(version, processes='echo "WARNING: No JSON data to report"')
    rows = node.check(GPUS_PER_NODE=gpus, GPU_MODEL=device, GPU_GFX=target).rows
    assert rows["gpu_count"].line == f"pass: {gpus} GPU{'s' if gpus > 1 else ''} (rocm-smi)"
    assert rows["gpu_model"].line == f"pass: {model}"
    assert rows["gpu_memory"].line == "pass: idle, at most 0.0 GiB in use"
    assert rows["gpu_processes"].verdict == "pass"
    # Its JSON has no error counts in any version.
    assert rows["gpu_errors"].verdict == "skip"


def test_a_rocm_smi_without_names_leaves_the_model_open(node: Node) -> None:
    node.rocm_smi("rocm4.3")
    rows = node.check(GPUS_PER_NODE=1).rows
    assert rows["gpu_model"].line == "warn: cannot be determined for GPU 0 (0x1002)"
    assert rows["gpu_memory"].line == "fail: GPU 0: 1.5 GiB of 11.9 in use"


@pytest.mark.parametrize(
    ("version", "processes"),
    [
        ("rocm6.1", ["python (pid 4242, 2.0 GiB)"]),
        ("rocm6.4", ["sleep (pid 2266127, 1.8 GiB)"]),
        ("rocm7.2", ["python3.12 (pid 1883505, 27.4 GiB)", "python3.12 (pid 1883506, 26.9 GiB)"]),
    ],
)
def test_processes_of_amd_smi_are_named_once(
    node: Node, version: str, processes: list[str]
) -> None:
    node.write("proc/2266127/comm", "sleep\n")
    healthy(node, process=(FIXTURES / f"amd-smi-{version}/process.json").read_text())
    row = node.check().rows["gpu_processes"]
    assert row.verdict == "fail" and "end the process" in row.remedy
    assert sorted(row.text.removeprefix("in use by ").split("), ")) == sorted(
        ", ".join(processes).split("), ")
    )


def test_processes_of_rocm_smi(node: Node) -> None:
    node.rocm_smi("rocm5.7", processes=f"cat {FIXTURES}/rocm-smi-pids.json")
    row = node.check().rows["gpu_processes"]
    assert row.line == "fail: in use by llama-server (pid 28389, 2.1 GiB)"


def test_link_states_by_port(node: Node) -> None:
    healthy(node, xgmi=repeated(recorded("amd-smi-rocm6.4/xgmi.json")[0]))
    assert node.check().rows["gpu_links"].text == "7 links up on each of 8 GPUs"


# ---- each check fails ----


def test_a_healthy_node_passes(node: Node) -> None:
    healthy(node)
    assert verdicts(node) == ALL_PASS


MI325X = {"device_id": "0x74a5", "market_name": "AMD Radeon Graphics"}
PARTITIONS = "the GPUs are split into partitions"


def errors(count: str) -> dict[str, Any]:
    return {"metric": repeated(METRIC, ecc={5: {count: 2}})}


def links_of_gpu_2(*states: str) -> dict[str, Any]:
    return {"xgmi": links({2: list(states)})}


@pytest.mark.parametrize(
    ("commands", "check", "line", "remedy"),
    [
        ({"static": repeated(STATIC, 7)}, "gpu_count",
         "fail: 7 GPUs (amd-smi), the system has 8", "dmesg"),
        ({"static": repeated(STATIC, 64)}, "gpu_count", PARTITIONS, "SPX"),
        ({"static": repeated(STATIC, 15)}, "gpu_count", PARTITIONS, "SPX"),
        ({"static": repeated(STATIC, asic={3: MI325X})}, "gpu_model",
         "fail: GPU 3: MI325X; the system has MI300X", "partition"),
        (errors("total_uncorrectable_count"), "gpu_errors",
         "fail: uncorrectable errors since the driver was loaded: GPU 5: 2", ""),
        (errors("total_correctable_count"), "gpu_errors",
         "warn: corrected or deferred errors: GPU 5: 2", ""),
        (errors("total_deferred_count"), "gpu_errors",
         "warn: corrected or deferred errors: GPU 5: 2", ""),
        (links_of_gpu_2("U", "U", "SELF", "D", "U", "U", "U", "U"), "gpu_links",
         "fail: GPU 2: 1 of 7 links down", "power-cycle"),
        (links_of_gpu_2("U/U", "U/D", "SELF", *["U/U"] * 5), "gpu_links",
         "fail: GPU 2: 1 of 14 links down", "power-cycle"),
        (links_of_gpu_2("N/A", "N/A", "SELF", *["N/A"] * 5), "gpu_links",
         "fail: GPU 2: no link is up, other GPUs have theirs", "power-cycle"),
    ],
)  # fmt: skip
def test_a_wrong_gpu(
    node: Node, commands: dict[str, Any], check: str, line: str, remedy: str
) -> None:
    healthy(node, **commands)
    row = node.check().rows[check]
    assert row.line.endswith(line) and row.verdict != "pass"
    assert row.remedy and remedy in row.remedy


def test_a_name_from_an_old_table_does_not_matter(node: Node) -> None:
    healthy(node, static=repeated(STATIC, asic={3: MI325X}))
    assert "GPU 3" not in node.check(GPU_MODEL="MI325X").rows["gpu_model"].text.split(";")[0]


def test_memory_in_use(node: Node) -> None:
    busy = repeated(METRIC, mem_usage={2: {"used_vram": {"value": 61.5, "unit": "GB"}}})
    healthy(node, metric={"cpu_data": [], "gpu_data": busy})
    node.kfd_process(4711, "python3", 66 << 30)
    rows = node.check().rows
    process = "in use by python3 (pid 4711, 66.0 GiB)"
    assert rows["gpu_memory"].line == f"fail: GPU 2: 61.4 GiB of 191.6 {process}"
    assert rows["gpu_memory"].remedy.startswith("end that process")
    assert rows["gpu_processes"].line == f"fail: {process}"


def test_a_monitor_with_the_device_open_is_a_warning(node: Node) -> None:
    healthy(node)
    node.kfd_process(812, "metrics-exporter", 0)
    row = node.check().rows["gpu_processes"]
    assert row.line == "warn: opened without memory by metrics-exporter (pid 812)"


def test_a_port_that_leads_nowhere_is_no_link_down(node: Node) -> None:
    states = ["U"] * 7 + ["D"]
    xgmi = [{"gpu": number, "bdf": "", "link_status": states} for number in range(8)]
    node.amd_smi(static=repeated(STATIC), xgmi=xgmi)
    assert node.check().rows["gpu_links"].verdict == "pass"


# ---- without a tool ----


def test_the_driver_alone(node: Node) -> None:
    node.driver()
    rows = node.check().rows
    assert {name: rows[name].verdict for name in GPU_ROWS} == ALL_PASS
    assert rows["gpu_count"].text == "8 GPUs (/sys/class/kfd)"
    assert rows["gpu_model"].text == "MI300X"


def test_the_driver_without_its_topology(node: Node) -> None:
    node.driver()
    (node.top / "sys/class/kfd").rename(node.top / "kfd")
    rows = node.check().rows
    assert rows["gpu_count"].text == "8 GPUs (/sys/bus/pci/drivers/amdgpu)"
    assert rows["gpu_model"].verdict == "pass"


def test_problems_that_the_driver_alone_shows(node: Node) -> None:
    node.driver(device=0x75A3)
    device = "sys/bus/pci/drivers/amdgpu/0000:07:00.0"
    node.write(f"{device}/mem_info_vram_used", f"{9 << 30}\n")
    node.write(f"{device}/ras/xgmi_wafl_err_count", "ue: 4\nce: 1\n")
    (node.top / "sys/class/kfd/kfd/topology/nodes/4/io_links/6/properties").write_text("type 2\n")
    rows = node.check().rows
    assert rows["gpu_count"].verdict == rows["gpu_processes"].verdict == "pass"
    assert rows["gpu_model"].line.startswith("fail: GPU 0: MI355X, GPU 1: MI355X")
    assert "and 2 more" in rows["gpu_model"].text
    assert rows["gpu_memory"].line == "fail: GPU 2: 9.0 GiB of 191.9 in use"
    assert rows["gpu_errors"].verdict == "fail" and rows["gpu_errors"].text.endswith("GPU 2: 4")
    assert rows["gpu_links"].line == "fail: GPU 2: 6 of 7 links in the driver's topology"


NO_MODULE = "echo \"ModuleNotFoundError: No module named 'amdsmi'\" >&2; exit 1"


@pytest.mark.parametrize("script", [NO_MODULE, "exec yes"])
def test_a_tool_that_fails_or_never_ends_leaves_it_to_the_driver(node: Node, script: str) -> None:
    node.driver()
    node.tool("amd-smi", script)
    assert verdicts(node) == ALL_PASS


def test_a_slow_tool_excludes_no_healthy_node(node: Node) -> None:
    """As amd-smi was on MI350X, and on machines with many GPUs: a minute for an answer."""
    node.driver(device=0x7777)
    for file in (node.top / "sys/bus/pci/drivers/amdgpu").glob("*/ras/*"):
        file.unlink()
    node.tool("amd-smi", f"echo $1 >>{node.top}/asked; exec sleep 10000")
    rows = node.check(PREFLIGHT_CHECK_S=6).rows
    late = "amd-smi did not answer within 3 s"
    assert (node.top / "asked").read_text() == "static\n"  # and is not asked again
    assert rows["gpu_count"].line == "pass: 8 GPUs (/sys/class/kfd)"
    assert rows["gpu_model"].line == f"warn: gfx942; {late}"
    assert rows["gpu_links"].verdict == "warn"
    assert rows["gpu_memory"].verdict == rows["gpu_processes"].verdict == "pass"
    unknown = f"neither a tool nor the driver reports error counts; {late}"
    assert rows["gpu_errors"].line == f"warn: {unknown}"
    assert all(rows[name].remedy for name in GPU_ROWS if rows[name].verdict == "warn")


def test_tools_run_one_after_the_other_and_only_for_what_the_driver_lacks(node: Node) -> None:
    healthy(node)
    tool = node.top / "bin/amd-smi"
    running, asked = node.top / "running", node.top / "asked"
    tool.write_text(
        tool.read_text().replace(
            "case",
            f"mkdir {running} || exit 1; trap 'rmdir {running}' EXIT; echo $1 >>{asked}\ncase",
            1,
        )
    )
    assert verdicts(node) == ALL_PASS
    assert asked.read_text().split() == ["static", "metric", "process", "xgmi"]
    asked.unlink()
    node.driver()
    assert verdicts(node) == ALL_PASS
    assert asked.read_text().split() == ["xgmi"]


def test_a_tool_without_gpus(node: Node) -> None:
    error = "ERROR: Unable to detect any GPU devices, check amdgpu version and module status"
    node.tool("amd-smi", f'echo "{error}" >&2; exit 255')
    rows = node.check().rows
    assert rows["gpu_count"].line == f"fail: no GPU, the system has 8 ({error})"
    assert {rows[name].verdict for name in GPU_ROWS} <= {"fail", "warn", "skip"}


def test_neither_tool_nor_driver(node: Node) -> None:
    rows = node.check().rows
    assert {rows[name].line for name in GPU_ROWS} == {
        "warn: cannot be checked: no amd-smi, rocm-smi or amdgpu driver"
    }
    assert all(Row("n1", name, "warn", 1, rows[name].text).unchecked for name in GPU_ROWS)


def test_a_system_without_gpus(node: Node) -> None:
    for _ in range(2):
        rows = node.check(GPU_MODEL="").rows
        assert {rows[name].line for name in GPU_ROWS} == {"skip: the system has no GPUs"}
        healthy(node)  # more GPUs than the system needs are not checked


def test_gpus_of_the_driver_are_numbered_by_pci_address(node: Node) -> None:
    node.driver()
    for device in ("0000:0a:00.0", "0001:05:00.0", "0000:1b:00.0", "10000:01:00.0"):
        node.write(f"sys/bus/pci/drivers/amdgpu/{device}/device", "0x74a1\n")
    node.write("sys/bus/pci/drivers/amdgpu/module/version", "6.10.5\n")
    addresses = [os.path.basename(folder) for folder in amd_gpus(str(node.top / "sys"))]
    assert addresses == [
        *(f"0000:{bus:02x}:00.0" for bus in (5, 6, 7, 8, 9, 10, 11, 12, 27)),
        "0001:05:00.0",
        "10000:01:00.0",
    ]


# ---- JSON ----


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (
            r'{"a": {"b c": [1, -2.5, null, true]}}',
            {"/a/b_c/0": "1", "/a/b_c/1": "-2.5", "/a/b_c/2": "null", "/a/b_c/3": "true"},
        ),
        ('[{"x":"a, b: {c} [d]"},{"y":{}},[]]', {"/0/x": "a, b: {c} [d]"}),
        (
            r'{"q": "say \"hi\"", "r": "back\\", "s": 1}',
            {"/q": 'say "hi"', "/r": "back\\", "/s": "1"},
        ),
        ('WARNING: [x]\nnone\n[{"a": 1}]\n[{"a": 2}]\n\nLegend:\n  * = Current\n', {"/0/a": "2"}),
        ("Traceback (most recent call last):\n  File x", {}),
        ("", {}),
        ('{"cut": [1, {"b": "un', {}),
        ('{"cut": [1,\n{"b": 2}\n[{"a": 3}]', {"/b": "2", "/0/a": "3"}),
        ('[{"a": 1}] [{"b": 2}]', {"/0/a": "1", "/0/b": "2"}),
        ("[" * 100_000, {}),
        ('{"big": ' + "9" * 5000 + ', "nan": NaN}', {"/big": "9" * 5000, "/nan": "NaN"}),
    ],
)
def test_json(text: str, values: dict[str, str]) -> None:
    assert dict(read_json(text)) == values


def test_json_of_the_fixtures_is_what_python_reads() -> None:

    def flat(value: Any, path: str = "") -> dict[str, str]:
        if isinstance(value, dict):
            return {
                k: v
                for key, one in value.items()
                for k, v in flat(
                    one, f"{path}/{key.lower().replace(' ', '_').replace('/', '_')}"
                ).items()
            }
        if isinstance(value, list):
            return {
                k: v for at, one in enumerate(value) for k, v in flat(one, f"{path}/{at}").items()
            }
        return {path: value if isinstance(value, str) else json.dumps(value)}

    for file in sorted(FIXTURES.rglob("*.json")):
        assert dict(read_json(file.read_text())) == flat(
            recorded(str(file.relative_to(FIXTURES)))
        ), file


# ---- a GPU that has fallen silent ----


def test_a_gpu_that_tells_nothing_beside_others_that_do(node: Node) -> None:
    silent = {3: {"device_id": "N/A", "market_name": "N/A", "target_graphics_version": "N/A"}}
    healthy(
        node,
        static=repeated(STATIC, asic=silent),
        metric=repeated(
            METRIC,
            mem_usage={3: {"used_vram": "N/A", "total_vram": "N/A"}},
            ecc={3: dict.fromkeys(METRIC["ecc"], "N/A")},
        ),
    )
    rows = node.check().rows
    assert rows["gpu_model"].line == "fail: GPU 3 does not report its model, the others do"
    assert rows["gpu_memory"].line == "fail: GPU 3 does not report its memory in use, the others do"
    assert rows["gpu_errors"].verdict == "warn"


def test_text_before_the_json_is_ignored(node: Node) -> None:
    node.rocm_smi("rocm5.7")
    without = node.check(GPUS_PER_NODE=1).rows["gpu_count"].text
    for text in ("[WARNING] low power state", "{not json"):
        node.rocm_smi("rocm5.7", before=text)
        assert node.check(GPUS_PER_NODE=1).rows["gpu_count"].text == without


# ---- anything at all ----

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["N/A", "0x74a1", "U", "D", "SELF", "12 GB", "-3", "9" * 5000, "1 ", "\udc80\x1f\t"]
    )
)
WORDS = """gpu gpu_data asic device_id market_name target_graphics_version mem_usage used_vram
total_vram value unit ecc system total_uncorrectable_count total_correctable process_list
process_info pid name mem_usage vram_mem link_status card0 pid12"""
KEYS = st.text(max_size=4) | st.sampled_from(WORDS.split())
TREES = st.recursive(
    SCALARS,
    lambda one: st.lists(one, max_size=4) | st.dictionaries(KEYS, one, max_size=5),
    max_leaves=20,
)
ENTRIES = st.lists(
    st.tuples(st.integers(0, 9), st.dictionaries(KEYS, TREES, max_size=4)), min_size=1, max_size=4
).map(lambda some: [{"gpu": number, **members} for number, members in some])
DOCUMENTS = (ENTRIES | TREES).map(lambda tree: json.dumps(tree).encode())
OUTPUTS = (
    DOCUMENTS
    | st.binary(max_size=40)
    | st.tuples(DOCUMENTS, st.integers(0, 200)).map(lambda cut: cut[0][: cut[1]])
)


def told_rows(node: Node, output: bytes, tool: str) -> list[tuple[str, str, str, str]]:
    """What the GPU checks tell, in this process, of a tool that prints this."""
    (node.top / "output").write_bytes(output)
    node.tool(tool, f"exec cat {node.top}/output")
    with node.environment():
        real = node.real()
        return [row for check in gpu.checks(real) for row in check(real, node.engine)]


@settings(max_examples=25)
@given(output=OUTPUTS, tool=st.sampled_from(["amd-smi", "rocm-smi"]), has_driver=st.booleans())
@example(output=b"[" * 200_000, tool="amd-smi", has_driver=False)
@example(
    output=b'[{"gpu": 1, "mem_usage": {"used_vram": {"value": 1e999, "unit": 3}}}]',
    tool="amd-smi",
    has_driver=True,
)
def test_whatever_a_tool_prints_every_check_has_its_row(
    tmp_path_factory: pytest.TempPathFactory, output: bytes, tool: str, has_driver: bool
) -> None:
    node = Node(tmp_path_factory.mktemp("node") / "host")
    if has_driver:
        node.driver(gpus=1)
    rows = told_rows(node, output, tool)
    assert sorted(name for name, *_ in rows) == sorted(GPU_ROWS)
    assert {verdict for _, verdict, _, _ in rows} <= {"pass", "warn", "fail", "skip"}


@given(
    st.text(alphabet='[]{}",:\\ \n10ae.-', max_size=60)
    | OUTPUTS.map(lambda raw: raw.decode("utf-8", "replace"))
)
def test_any_text_gives_values_or_none(text: str) -> None:
    values = read_json(text)
    assert all(path.startswith("/") and isinstance(value, str) for path, value in values)
    assert all(number >= 0 for number, *_ in by_gpu(values))


# What is killed is not awaited for long.
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_child_that_a_tool_leaves_behind_holds_nobody_up(tmp_path: Path) -> None:
    script = f"sleep 10000 & echo $! >{tmp_path}/pid; echo said"
    status, text = ask(["bash", "-c", script], LIMIT_S)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # it was still there
    assert (status, text) == (0, "said\n")
    assert ask(["sleep", "10000"], 0.1) == (-9, "")
    assert ask(["/no/such/program"], 1)[0] == 127
