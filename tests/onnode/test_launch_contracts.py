"""What reaches the program that each published implementation starts: command, folder, and every variable that is not of its config.

A program that prints its environment stands for the training; the agent, the bundle and the descriptors are the real ones.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_parts import Bench
from sites import local_site
from until import until

from orchestrator.model import Site, load_entry
from orchestrator.onnode.agent.launch import RunRequest, filled
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.program import read
from orchestrator.onnode.kernel.settings_file import declared, evaluate_config, load
from orchestrator.render import render_bundle, write_bundle

TELL = "import json, os, sys; print('TOLD', json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]), flush=True)"
OF_THE_SHELL = {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE", "PATH", "HOME"}


class Contract(Bench):
    """Agents of one entry of the catalogue on nodes n0, n1, ..., without a container."""

    def __init__(self, folder: Path, system: str, workload: str, round_name: str) -> None:
        self.folder, self.agents = folder, []
        self.layout = Layout(folder / "sets" / "one")
        self.code, self.bundle, self.channels = (
            folder / "code",
            folder / "bundle",
            folder / "channels",
        )
        self.programs = folder / "programs"
        for one in (self.layout.root, self.code / "src", self.programs, self.channels):
            one.mkdir(parents=True)
        more = {
            "preflight": {"run": False},
            "network": {"rdma": "off"},
            "code": {workload: str(self.code)},
        }
        site = Site(**local_site(folder / "sets", **more))
        self.entry = load_entry(system, workload, round=round_name, site=site)
        write_bundle(render_bundle(self.entry, nexp=1), self.bundle)
        files = read(self.bundle).files
        self.layout.environment.write_bytes(evaluate_config(files, load(files, {}), 1))
        self.config = declared(self.layout.environment.read_bytes())
        (self.code / "tell.py").write_text(TELL)
        (self.code / "src/train.py").write_text(TELL)
        (self.code / "run_and_time.sh").write_text("python3 tell.py run_and_time.sh\n")
        command = self.programs / "llmboost"
        command.write_text(
            f'#!/bin/bash\nexec python3 {shlex.quote(str(self.code))}/tell.py "$@"\n'
        )
        command.chmod(command.stat().st_mode | stat.S_IXUSR)

    def started(self, rank: int, master: str = "n0") -> list[tuple[list[str], dict[str, str]]]:
        """Return the arguments of each process that node `rank` starts, and its variables that are not of the config."""
        nodes = [f"n{number}" for number in range(self.entry.nodes)]
        agent = self.agent(name=nodes[rank], PATH=f"{self.programs}:{os.environ['PATH']}")
        agent.hear("ready")
        (self.layout.run(1) / "attempt_1").mkdir(parents=True, exist_ok=True)
        agent.begin(
            1, nodes=nodes, seed=77, port=12345, master=master, hosts=["10.9.8.7 n0.example n0"]
        )
        assert agent.hear("exit")[1] == "0", agent.log(1, rank=rank)
        told = []
        self.error_files = []
        for line in agent.log(1, rank=rank).decode().splitlines():
            if line.startswith("TOLD "):
                argv, folder, environment = json.loads(line[5:])
                assert folder == str(self.code)
                self.error_files.append(environment.pop("TORCHELASTIC_ERROR_FILE"))
                told.append((argv, self.without_config(environment)))
        return told

    def without_config(self, environment: dict[str, str]) -> dict[str, str]:
        """Return what the config does not give, or not so; all that it gives must have arrived."""
        assert not self.config.keys() - environment.keys()
        return {
            name: value
            for name, value in environment.items()
            if name not in OF_THE_SHELL and self.config.get(name) != value
        }


@pytest.fixture
def contract(tmp_path: Path) -> Iterator[Any]:
    made: list[Contract] = []

    def make(*words: str) -> Contract:
        made.append(Contract(tmp_path, *words))
        return made[-1]

    yield make
    for one in made:
        one.close()


def of_a_run(nodes: int, rank: int, master: str = "n0") -> dict[str, str]:
    """What every run has: the seed, the place of the node, where the nodes meet."""
    own = {"NODE_RANK": str(rank)} if nodes > 1 else {}
    return {
        "SEED": "77",
        "MASTER_ADDR": master,
        "MASTER_PORT": "12345",
        "SLURM_NNODES": str(nodes),
        "SLURM_NODEID": str(rank),
        "SLURM_JOB_ID": "7",
        "ORCH_RUN": "1",
        "ORCH_ATTEMPT": "1",
        **own,
    }


SCRIPT = ["run_and_time.sh"]
MANY = ["--MASTER_ADDR", "n0", "--RANK"]


@pytest.mark.parametrize(
    ("system", "workload", "round_name", "rank", "arguments", "more"),
    [
        ("MI325X_08x08x32", "flux1", "6.0", 5, SCRIPT, {}),
        pytest.param("MI300X_64x08x16", "flux1", "6.0", 63, SCRIPT, {}, marks=pytest.mark.long),
        ("MI300X_1x8x1", "llama2_70b_lora", "5.0", 0, SCRIPT, {}),
        pytest.param(
            "MI355X_1x8x1", "llama2_70b_lora", "5.1", 0, SCRIPT, {}, marks=pytest.mark.long
        ),
        pytest.param("MI355X_1x8x1", "llama31_8b", "5.1", 0, SCRIPT, {}, marks=pytest.mark.long),
        pytest.param(
            "MI355X_1x8x1", "llama2_70b_lora", "6.0", 0, SCRIPT, {}, marks=pytest.mark.long
        ),
        ("MI350X_akash_4x8x1", "llama31_8b", "6.0", 3, SCRIPT, {}),
        pytest.param("MI350X_2x8x1", "llama31_8b", "6.0", 1, SCRIPT, {}, marks=pytest.mark.long),
        ("tinybox_8xMI300X", "bert", "5.0", 0, SCRIPT, {}),
        (
            *("MI300X_1x8x1_MangoBoost", "llama2_70b_lora", "5.0", 0),
            *(["mlperf", "--config_sh", "config_MI300X_1x8x1.sh"], {}),
        ),
        (
            *("MI300X_2x8x1", "llama2_70b_lora", "5.0", 1),
            *(["mlperf", *MANY, "1", "--config_sh", "config_MI300X_2x8x1.sh"], {}),
        ),
        (
            *("MI300X_4x8x1", "llama2_70b_lora", "5.0", 3),
            *(["mlperf", *MANY, "3", "--config_sh", "config_MI300X_4x8x1.sh"], {}),
        ),
        (
            *("MI325X_1x8x1_MangoBoost", "llama2_70b_lora", "5.1", 0),
            ["mlperf", *MANY, "0", "--config_sh", "conf/config_MI325X_1x8x1.sh"],
            {"DGXSYSTEM": "MI325X", "WORLD_SIZE": "1", "RANK": "0"},
        ),
        (
            *("MI300X_2x8x1", "llama2_70b_lora", "5.1", 1),
            ["mlperf", *MANY, "1", "--config_sh", "conf/config_MI300X_2x8x1.sh"],
            {"DGXSYSTEM": "MI300X", "WORLD_SIZE": "2", "RANK": "1"},
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_one_launcher_per_node(
    contract: Any,
    system: str,
    workload: str,
    round_name: str,
    rank: int,
    arguments: list[str],
    more: dict[str, str],
) -> None:
    one = contract(system, workload, round_name)
    own = {
        name: value
        for name, value in of_a_run(one.entry.nodes, rank).items()
        if one.config.get(name) != value
    }
    assert one.started(rank) == [(arguments, {**own, **more})]
    # Without a container it is the host's own; labs of other tests may be changing it.
    assert "10.9.8.7" not in Path("/etc/hosts").read_text()


@pytest.mark.parametrize("rank", [0, 1])
def test_one_process_per_gpu_has_the_variables_of_slurms_tasks(contract: Any, rank: int) -> None:
    one = contract("MI350X_2x8x1", "llama2_70b_lora", "6.0")
    told = sorted(one.started(rank), key=lambda process: int(process[1]["LOCAL_RANK"]))
    assert told == [
        (
            [],
            {
                **of_a_run(2, rank),
                "NCCL_NET_GDR_LEVEL": "0",
                "NCCL_IB_GDR_LEVEL": "0",
                "RANK": str(8 * rank + local),
                "LOCAL_RANK": str(local),
                "WORLD_SIZE": "16",
                "LOCAL_WORLD_SIZE": "8",
                "SLURM_PROCID": str(8 * rank + local),
                "SLURM_LOCALID": str(local),
                "SLURM_NTASKS": "16",
                "SLURM_NTASKS_PER_NODE": "8",
            },
        )
        for local in range(8)
    ]


@pytest.mark.parametrize(
    ("system", "workload", "said"),
    [
        ("MI300X_64x08x16", "flux1", [["n1.example", "127.0.0.1"]]),
        ("MI325X_08x08x32", "flux1", [["n1.example", ""]]),
        ("MI300X_1x8x1", "llama2_70b_lora", []),
    ],
)
def test_a_node_of_several_tells_its_name_and_where_it_is_wanted_its_address(
    contract: Any, system: str, workload: str, said: list[list[str]]
) -> None:
    agent = contract(system, workload, "5.0" if "1x8" in system else "6.0").agent(
        MASTER_ADDR="127.0.0.1", ORCH_HOST_NAME="%n.example"
    )
    agent.hear("ready")
    assert [fields for word, fields in agent.words if word == "host"] == said


def test_what_the_scripts_need_of_their_configs_is_there(contract: Any) -> None:
    """The last-round script for one node starts its processes from these, its descriptor gives them."""
    one = contract("MI355X_1x8x1", "llama2_70b_lora", "6.0")
    assert {name: one.config.get(name) for name in ("GPUS_PER_NODE", "NNODES")} == {
        "GPUS_PER_NODE": "8",
        "NNODES": "1",
    }


@pytest.mark.parametrize("name", ["LOCAL_WORLD_SIZE", "LOCAL_RANK", "SLURM_LOCALID"])
def test_what_would_change_the_way_of_starting_is_unset(contract: Any, name: str) -> None:
    one = contract("MI325X_08x08x32", "flux1", "6.0")
    with open(one.layout.environment, "a") as file:
        file.write(f'declare -x {name}="8"\n')
    [(_, environment)] = one.started(0)
    assert name not in environment


def test_a_run_fills_in_all_that_a_document_may_name() -> None:
    from orchestrator.model.values import RUN_REFS

    request = RunRequest("1.1", ["a", "b"], 1, 1, 5, 12345, "10.0.0.1")
    text = " ".join("{" + name + "}" for name in RUN_REFS)
    assert (
        filled(f"{text} {{other}} ${{HOME}}", request, 1, 8)
        == "1 2 8 16 10.0.0.1 12345 {other} ${HOME}"
    )


@pytest.mark.parametrize(
    ("system", "round_name", "names"),
    [
        ("MI355X_1x8x1", "5.1", ["elastic_error.json"]),
        ("MI350X_2x8x1", "6.0", [f"elastic_error_{local}.json" for local in range(8)]),
    ],
)
def test_each_launcher_or_process_has_a_file_for_its_error(
    contract: Any, system: str, round_name: str, names: list[str]
) -> None:
    one = contract(system, "llama2_70b_lora", round_name)
    one.started(0)
    folder = one.layout.root / "nodes/n0/scratch"
    assert sorted(one.error_files) == [str(folder / name) for name in names]


def test_the_seed_is_the_orders_for_every_style(contract: Any) -> None:
    one = contract("MI350X_2x8x1", "llama2_70b_lora", "6.0")
    assert {environment["SEED"] for _, environment in one.started(1)} == {"77"}
    until(lambda: not list(one.channels.glob("*/script.*")))
