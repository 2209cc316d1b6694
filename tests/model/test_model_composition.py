"""Composition: layers and their order, what the site adds, where each value comes from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from until import LIMIT_S

import orchestrator.model
from orchestrator.errors import DescriptorError, UsageError
from orchestrator.model import Catalogue, Entry, Minutes, Site, Text, Unique, load_entry, load_site
from orchestrator.model.entry import Logged, fact_of
from orchestrator.model.values import NETWORK_NAMES, REFS
from orchestrator.render.job_time import job_time
from orchestrator.render.sources import network_values
from orchestrator.resources import data_dir

WORKLOAD = """\
kind: workload
name: tiny
benchmark: tiny
metric: loss
target: 1.5
runs_required: 3
code_dir: /workspace/code
command: [bash, run.sh]
mounts:
  - {variable: DATADIR, subpath: data, container: /data}
  - {variable: DATADIR, container: /all, read_only: true}
rounds:
  "6.0":
    ruleset: "6.0.0"
    image: registry/tiny:6
    minutes_per_run: 30
    source: round six
    container: {caps: [SYS_PTRACE], ulimits: {nofile: "1024:1024"}}
    env:
      SHARED: workload
      CHANGED: workload
      REMOVED: workload
      NODES: {ref: nodes}
      BATCH: {ref: global_batch}
      PER_RUN: {ref: minutes_per_run}
      LIMIT: {minutes: {fixed: 5, per_run: 35}}
      NAME: {unique: "tiny-"}
      NCCL_IB_GID_INDEX: "9"
  "10.0":
    ruleset: "10.0.0"
    image: registry/tiny:10
    minutes_per_run: 20
"""

SYSTEM = """\
kind: system
name: mine
accelerator: MI300X
nodes: 2
gpus_per_node: 8
fabric: {title: ours, kind: broadcom, devices: [/dev/infiniband], env: {NCCL_IB_GID_INDEX: "3", NCCL_PXN_DISABLE: "0"}}
workloads:
  tiny:
    "6.0":
      micro_batch: 2
      global_batch: 64
      accumulation: 2
      source: my paper
      container: {caps: [SYS_ADMIN]}
      env:
        CHANGED: system
        REMOVED: null
        OWN: system
    "10.0":
      stack: "6.0"
      micro_batch: 2
      global_batch: 16
      accumulation: 1
      context_parallel: 2
      minutes_per_run: 45
      published_as: theirs
      whole_env: true
      env: {ONLY: {ref: system}, FILE: {ref: config_file}}
"""

SITE = """\
kind: site
name: here
log_dir: /shared/results
systems_dirs: [FOLDER]
data:
  tiny: {DATADIR: /data/tiny/}
code:
  tiny: /shared/code
network:
  socket_ifname: eno0
  ib_hca: [rdma0, rdma1]
  gid_index: 1
  env: {NCCL_IB_TC: "104"}
container: {engine: podman, privileged: true, devices: [/dev/extra], command: [sudo, -n, podman]}
env: {OWN: site, NCCL_PXN_DISABLE: "1"}
pass_env: [HF_TOKEN]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "tiny.yaml").write_text(WORKLOAD, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(SYSTEM, encoding="utf-8")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "site.yaml").write_text(
        SITE.replace("FOLDER", str(tmp_path)), encoding="utf-8"
    )
    return tmp_path


@pytest.fixture
def entry(folder: Path) -> Entry:
    return load_entry(
        "mine", "tiny", round="6.0", site=folder / "site" / "site.yaml", env={"USER_SAYS": "a=b c"}
    )


def test_later_layers_win(entry: Entry) -> None:
    env = {name: str(value) for name, value in entry.whole_env.items()}
    assert env["SHARED"] == "workload"
    assert env["CHANGED"] == "system"
    assert env["OWN"] == "site"
    assert env["USER_SAYS"] == "a=b c"
    assert "REMOVED" not in env
    assert entry.removed["REMOVED"].layer == "system"


def test_the_network_has_its_own_environment(entry: Entry) -> None:
    assert {name: str(value) for name, value in entry.rccl_env.items()} == {
        "NCCL_IB_GID_INDEX": "1",
        "NCCL_PXN_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": "eno0",
        "GLOO_SOCKET_IFNAME": "eno0",
        "NCCL_IB_HCA": "rdma0,rdma1",
        "NCCL_IB_TC": "104",
    }
    assert not set(entry.env) & set(entry.rccl_env)


def test_forms_of_values(entry: Entry) -> None:
    assert entry.env["NODES"] == Text("2")
    assert entry.env["BATCH"] == Text("64")
    assert entry.env["PER_RUN"] == Text("30")
    assert entry.env["LIMIT"] == Minutes(5, 35)
    assert entry.env["NAME"] == Unique("tiny-")


def test_origins_name_file_line_and_source(entry: Entry, folder: Path) -> None:
    shared, changed = entry.origins["SHARED"], entry.origins["CHANGED"]
    assert (shared.layer, shared.file, shared.source) == (
        "workload",
        str(folder / "workloads" / "tiny.yaml"),
        "round six",
    )
    assert WORKLOAD.splitlines()[shared.line - 1].strip() == "SHARED: workload"
    assert (changed.layer, SYSTEM.splitlines()[changed.line - 1].strip()) == (
        "system",
        "CHANGED: system",
    )
    assert (
        entry.origins["NCCL_SOCKET_IFNAME"].line
        == SITE.splitlines().index("  socket_ifname: eno0") + 1
    )
    assert entry.origins["USER_SAYS"].layer == "command line"
    assert set(entry.origins) == set(entry.whole_env)


def test_mounts_and_container(entry: Entry) -> None:
    assert [(mount.host, mount.container, mount.read_only) for mount in entry.mounts] == [
        ("/data/tiny/data", "/data", False),
        ("/data/tiny/", "/all", True),
    ]
    container = entry.container
    assert (container.engine, container.command, container.privileged) == (
        "podman",
        ("sudo", "-n", "podman"),
        True,
    )
    assert container.devices == ("/dev/kfd", "/dev/dri", "/dev/infiniband", "/dev/extra")
    assert container.caps == ("SYS_ADMIN", "IPC_LOCK")
    assert dict(container.ulimits) == {"nofile": "1024:1024", "memlock": "-1:-1"}
    assert (entry.code_path, entry.pass_env) == ("/shared/code", ("HF_TOKEN",))


def test_without_a_site_the_mounts_are_left_to_the_environment(folder: Path) -> None:
    entry = load_entry("mine", "tiny", round="6.0", systems_dirs=[folder])
    assert [mount.host for mount in entry.mounts] == [None, None]
    assert not entry.container.privileged
    assert "NCCL_SOCKET_IFNAME" not in entry.whole_env


def test_newest_round_stack_and_whole_env(folder: Path) -> None:
    entry = load_entry("mine", "tiny", systems_dirs=[folder])
    assert (entry.round, entry.ruleset, entry.image) == ("10.0", "10.0.0", "registry/tiny:6")
    assert {name: str(value) for name, value in entry.env.items()} == {
        "ONLY": "theirs",
        "FILE": "config_theirs.sh",
        **SHOWN,
    }
    assert entry.config_file == "config_theirs.sh"
    assert entry.minutes_per_run == 45
    assert job_time(entry).minutes(10) == 11 * 50


SHOWN = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET",
    "NCCL_DEBUG_FILE": "/results/nccl_%h_%p.log",
}


def rccl_log(
    system: str, workload: str, given: dict[str, str] | None = None, **site: object
) -> dict[str, str]:
    entry = load_entry(system, workload, site=Site.model_validate(site), env=given)
    return {
        name: str(value) for name, value in entry.whole_env.items() if name.startswith("NCCL_DEBUG")
    }


def test_quiet_runs_over_rdma_name_their_network_in_files() -> None:
    assert rccl_log("MI325X_08x08x32", "flux1") == SHOWN
    assert rccl_log("MI300X_64x08x16", "flux1") == SHOWN, "Oracle's own file, and WARN before"
    origin = load_entry("MI325X_08x08x32", "flux1").origins["NCCL_DEBUG"]
    assert str(origin) == "transport"


def test_rccl_s_log_is_as_published_where_nothing_is_to_be_shown() -> None:
    quiet = {"NCCL_DEBUG": "VERSION"}
    assert rccl_log("MI325X_08x08x32", "flux1", network={"rdma": "off"}) == quiet
    bare = {"engine": "none"}  # there is no /results
    assert rccl_log("MI325X_08x08x32", "flux1", container=bare) == quiet
    assert "NCCL_DEBUG_FILE" not in rccl_log("MI355X_01x08x64", "flux1"), "one node"


@pytest.mark.parametrize(
    ("given", "site", "found"),
    [
        ({"NCCL_DEBUG": "WARN"}, {}, {"NCCL_DEBUG": "WARN"}),
        ({"NCCL_DEBUG": "TRACE"}, {}, {"NCCL_DEBUG": "TRACE"}),
        ({"NCCL_DEBUG_FILE": "/mine"}, {}, {"NCCL_DEBUG": "VERSION", "NCCL_DEBUG_FILE": "/mine"}),
        ({}, {"env": {"NCCL_DEBUG": "WARN"}}, {"NCCL_DEBUG": "WARN"}),
        ({}, {"network": {"env": {"NCCL_DEBUG": "WARN"}}}, {"NCCL_DEBUG": "WARN"}),
        ({}, {"env": {"NCCL_DEBUG": None}}, {}),
        ({}, {"pass_env": ["NCCL_DEBUG"]}, {"NCCL_DEBUG": "VERSION"}),
    ],
)
def test_rccl_s_log_of_user_and_site_wins(
    given: dict[str, str], site: dict[str, object], found: dict[str, str]
) -> None:
    assert rccl_log("MI325X_08x08x32", "flux1", given, **site) == found


def test_a_reference_to_what_is_not_given_names_the_place(folder: Path) -> None:
    path = folder / "mine.yaml"
    path.write_text(SYSTEM.replace("      global_batch: 64\n", ""), encoding="utf-8")
    with pytest.raises(
        DescriptorError, match=r"mine\.yaml:9: workloads\.tiny\.6\.0\.global_batch: .* required"
    ):
        load_entry("mine", "tiny", round="6.0", systems_dirs=[folder])


def test_paths_instead_of_names(folder: Path) -> None:
    entry = load_entry(
        str(folder / "mine.yaml"),
        str(folder / "workloads" / "tiny.yaml"),
        round="6.0",
        systems_dirs=[folder],
    )
    assert entry.system == "mine"


def test_one_folder_hides_the_package(folder: Path) -> None:
    text = (
        (folder / "mine.yaml")
        .read_text(encoding="utf-8")
        .replace("name: mine", "name: MI355X_1x8x1")
    )
    (folder / "MI355X_1x8x1.yaml").write_text(
        text.replace("nodes: 2", "nodes: 1")
        .replace("MI300X", "MI355X")
        .replace("64", "32")
        .replace("16", "8"),
        encoding="utf-8",
    )
    assert set(Catalogue([folder]).system("MI355X_1x8x1")[1].workloads) == {"tiny"}


def test_a_site_may_be_given_read(folder: Path) -> None:
    site = load_site(folder / "site" / "site.yaml")
    entry = load_entry("mine", "tiny", round="6.0", site=site, systems_dirs=[folder])
    assert entry.site is site
    assert entry.origins["OWN"].line == 0


def test_wrong_data_of_a_given_site(folder: Path) -> None:
    site = Site(log_dir="/x", data={"tiny": {"DATADIRR": "/x"}})
    with pytest.raises(DescriptorError, match='did you mean "DATADIR"'):
        load_entry("mine", "tiny", site=site, systems_dirs=[folder])


def test_warnings(folder: Path) -> None:
    site = Site(log_dir="/x")
    assert load_entry("mine", "tiny", site=site, systems_dirs=[folder]).warnings == ()
    path = folder / "poor.yaml"
    path.write_text("kind: site\nlog_dir: /x\n", encoding="utf-8")
    warnings = load_entry("mine", "tiny", site=path, systems_dirs=[folder]).warnings
    assert [
        part
        for part in ("network.socket_ifname", "network.ib_hca", "data.tiny.DATADIR")
        if any(part in warning for warning in warnings)
    ] == ["network.socket_ifname", "network.ib_hca", "data.tiny.DATADIR"]
    assert load_entry("MI300X_64x08x16", "flux1").warnings == (), "the name is not the user's"
    mine = (data_dir("systems") / "MI300X_64x08x16.yaml").read_text(encoding="utf-8")
    copy = mine.replace("name: MI300X_64x08x16", "name: MI300X_64x08x99")
    (folder / "MI300X_64x08x99.yaml").write_text(copy, encoding="utf-8")
    [warning] = load_entry("MI300X_64x08x99", "flux1", systems_dirs=[folder]).warnings
    assert "the name is only a label" in warning


@pytest.mark.parametrize("part", ["network: {env: NAMES}", "env: NAMES"])
def test_null_in_the_site_file_also_stops_detection(tmp_path: Path, part: str) -> None:
    path = tmp_path / "site.yaml"
    nulls = ", ".join(f"{name}: null" for name in NETWORK_NAMES)
    path.write_text("kind: site\nlog_dir: /x\n" + part.replace("NAMES", f"{{{nulls}}}"))
    entry = load_entry("MI325X_08x08x32", "flux1", site=path)
    assert network_values(entry)["network_removed"] == list(NETWORK_NAMES)
    assert not set(NETWORK_NAMES) & (set(entry.whole_env) | set(entry.origins))
    assert not [warning for warning in entry.warnings if "detect" in warning]


def test_a_single_node_gets_no_network_names(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        SITE.replace("  tiny: {DATADIR: /data/tiny/}", "  flux1: {DATADIR: /d}")
        .replace("code:\n  tiny: /shared/code\n", "")
        .replace("systems_dirs: [FOLDER]\n", ""),
        encoding="utf-8",
    )
    names = load_entry("MI355X_01x08x64", "flux1", site=path).whole_env
    assert "NCCL_SOCKET_IFNAME" not in names
    assert load_entry("MI355X_02x08x64", "flux1", site=path).whole_env["NCCL_IB_HCA"] == Text(
        "rdma0,rdma1"
    )


def printed_by(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
        cwd=Path(__file__).parents[2],
        env=environment or None,
    )
    return done.stdout


def test_the_same_documents_give_the_same_entry(folder: Path) -> None:
    first, second = (
        load_entry("mine", "tiny", round="6.0", site=folder / "site" / "site.yaml")
        for _ in range(2)
    )
    assert first == second
    assert list(first.whole_env) == list(second.whole_env)
    program = (
        "import sys; from orchestrator.model import load_entry; "
        "e = load_entry('MI325X_08x08x32', 'flux1'); print(list(e.whole_env.items()), e.container)"
    )
    assert len({printed_by(program, PYTHONHASHSEED=seed) for seed in ("1", "2")}) == 1


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = (
        "import sys, orchestrator.model, orchestrator.cli.systems\n"
        "from orchestrator.model import EnvValue, Entry\n"
        "print([name for name in ('pydantic', 'yaml', 'jinja2', 'rich') if name in sys.modules])"
    )
    assert printed_by(program).strip() == "[]"


def test_every_reference_is_a_fact_of_the_entry() -> None:
    entry = load_entry("MI325X_08x08x32", "flux1")
    assert {name: _resolved(entry, name) for name in ("nodes", "micro_batch")} == {
        "nodes": "8",
        "micro_batch": "32",
    }
    assert [name for name in REFS if not _resolved(entry, name)] == []
    everything = entry.facts(lambda fact: True)
    assert list(everything)[:3] == ["system", "title", "workload"] and len(everything) > 25
    assert set(entry.facts(lambda fact: fact.compared)) < set(everything)


def _resolved(entry: Entry, name: str) -> str:
    return fact_of(entry, name)


def test_an_entry_with_another_document_says_other_facts() -> None:
    entry = load_entry("MI325X_08x08x32", "flux1")
    changed = entry.with_document("system", nodes=1).with_document("mine", micro_batch=16)
    assert (changed.nodes, changed.ranks, changed.micro_batch) == (1, 8, 16)
    assert (entry.nodes, entry.ranks, entry.micro_batch) == (8, 64, 32)


def test_every_public_name_exists() -> None:
    assert orchestrator.model.__all__ == sorted(orchestrator.model._HOMES)
    assert [
        name for name in orchestrator.model.__all__ if not hasattr(orchestrator.model, name)
    ] == []
    with pytest.raises(AttributeError, match="no attribute 'System2'"):
        _ = orchestrator.model.System2


def test_an_unknown_name_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        Catalogue().workload("nothing like it")


def test_what_logs_should_say_is_the_workload_s_and_then_the_round_s(folder: Path) -> None:
    path = folder / "workloads/tiny.yaml"
    here = "logged:\n  batch: {ref: global_batch, env: BATCH}\n  place: {env: SITE, form: '{nodes}x{}'}\n  gone: {env: LR}\n"
    of_the_round = "    logged: {gone: null, name: {ref: system}, seed: {env: SEED}}\n    minutes_per_run: 30\n"
    path.write_text(
        WORKLOAD.replace("rounds:", f"{here}rounds:").replace(
            "    minutes_per_run: 30\n", of_the_round
        )
    )
    entry = load_entry("mine", "tiny", round="10.0", systems_dirs=[folder])
    assert entry.logged == (  # of the stack's round, as its code is what runs
        Logged("batch", "BATCH", "global_batch", "16", "{}"),
        Logged("place", "SITE", "", "", "2x{}"),
        Logged("name", "", "system", "theirs", "{}"),
        Logged("seed", "SEED", "", "", "{}"),
    )
