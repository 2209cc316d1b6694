"""The stand-in images with a real torchrun (lab/standins): each does what its published implementation does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from until import LIMIT_S, until

from orchestrator import load_entry, render_bundle
from orchestrator.mllog.compliance import check_log
from orchestrator.mllog.reader import read_log
from orchestrator.mllog.rules import rules

if TYPE_CHECKING:
    from labs import Lab

pytestmark = [pytest.mark.lab, pytest.mark.long]

TOP = Path(__file__).resolve().parents[2]
NODES = ("node9", "node10")
# As if a cluster of one machine had GPUs: one rank for each node, and the network that it has.
HERE = {"STANDIN_RANKS": "1", "GLOO_SOCKET_IFNAME": "lo", "STANDIN_ENVIRONMENT": "/results"}
SITE = """
log_dir: /nowhere
data: {flux1: {DATADIR: /d}, llama2_70b_lora: {DATADIR: /d}, llama31_8b: {DATADIR: /d, MODEL: /m}}
"""


class Bench:
    """Starts containers of the two nodes, and reads what they left."""

    def __init__(self, lab: Lab, root: Path) -> None:
        self.lab, self.root = lab, root
        self.port = 29600
        (root / "site.yaml").write_text(SITE)
        (root / "data/megatron_checkpoints/Llama-2-70b-hf").mkdir(parents=True)
        (root / "data/huggingface/hub/models--meta-llama--Llama-2-70b-hf").mkdir(parents=True)

    def config(self, system: str, workload: str, version: str) -> dict[str, str]:
        """The environment that the descriptor's config gives to a run."""
        entry = load_entry(system, workload, round=version, site=self.root / "site.yaml")
        folder = self.root / "bundle"
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in render_bundle(entry, nexp=1).items():
            if name.endswith(".sh"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
        script = '. "$1" && env -0'
        argv = [
            "env",
            "-i",
            "PATH=/usr/bin:/bin",
            "bash",
            "-c",
            script,
            "_",
            folder / entry.config_file,
        ]
        assignments = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split(
            "\0"
        )
        given = dict(word.split("=", 1) for word in assignments if word)
        return {
            name: value
            for name, value in given.items()
            if name not in ("PATH", "PWD", "SHLVL", "_")
        }

    def start(
        self,
        image: str,
        node: str,
        env: Mapping[str, str],
        *command: str,
        task: str = "",
        index: Path | None = None,
    ) -> subprocess.Popen[str]:
        """Start the image's command on a node as a bundle does: host network, host UTS; /results is the node's own."""
        results = self.results(node)
        results.mkdir(exist_ok=True)
        (self.root / "data").mkdir(exist_ok=True)
        options = [
            "--network=host",
            "--uts=host",
            "--ipc=host",
            f"--label=orchestrator.node={node}",
        ]
        options += [f"--volume={results}:/results", f"--volume={self.root / 'data'}:/data"]
        options += [f"--volume={index}:/results/data_index"] if index else []
        options += [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
        argv = [
            "docker",
            "run",
            "--rm",
            *options,
            image,
            *(command or ("bash", "./run_and_time.sh")),
        ]
        with open(self.log(node, task), "w", encoding="utf-8") as out:
            return subprocess.Popen(
                argv,
                env=self.lab.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                text=True,
                cwd=self.root,
            )

    def log(self, node: str, task: str = "") -> Path:
        return self.root / f"{node}{task}.log"

    def results(self, node: str) -> Path:
        return self.root / f"results-{node}"

    def on_both(self, image: str, env: Mapping[str, str], *command: str) -> list[int]:
        """The exit codes of the image's command on node9 (number 0 of Slurm) and node10; `%k` in it is the number."""
        self.port += 1
        started = []
        for k, node in enumerate(NODES):
            variables = {
                "MASTER_ADDR": "node9",
                "MASTER_PORT": str(self.port),
                "SLURM_NNODES": "2",
                "SLURM_NODEID": str(k),
            }
            argv = [word.replace("%k", str(k)) for word in command]
            started.append(
                self.start(image, node, {**env, **variables, "NODE_RANK": str(k), **HERE}, *argv)
            )
        return [process.wait(LIMIT_S) for process in started]

    def alone(self, image: str, env: Mapping[str, str], **more: Any) -> int:
        return self.start(image, "node9", {**env, **HERE, "STANDIN_RANKS": "2"}, **more).wait(
            LIMIT_S
        )

    def reached(self, node: str, rank: int) -> dict[str, Any]:
        """What one rank's process told of itself."""
        training: dict[str, Any] = json.loads(
            (self.results(node) / f"environment.{node}.{rank}.json").read_text()
        )
        return training

    def keys(self, node: str) -> list[str]:
        return [
            record.key
            for record in read_log(str(self.log(node)), full=True).entries
            if hasattr(record, "key")
        ]

    def clean(self) -> None:
        for node in NODES:
            shutil.rmtree(self.results(node), ignore_errors=True)


@pytest.fixture
def bench(standins: Lab) -> Iterator[Bench]:
    root = Path(tempfile.mkdtemp(prefix="standins-", dir=standins.shared))
    yield Bench(standins, root)
    shutil.rmtree(root)


def findings(log: Path, ruleset: str, *, cleared: bool = False) -> list[str]:
    """What our compliance checker says of a log; `cleared`: the launcher adds the record that the caches were dropped."""
    if cleared:
        record = '{"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "cache_clear", "value": true, "metadata": {}}'
        log.write_text(f":::MLLOG {record}\n{log.read_text()}")
    return [str(finding) for finding in check_log(read_log(str(log)), rules(ruleset)).findings]


def same(reached: Mapping[str, str], config: Mapping[str, str]) -> bool:
    """Whether all of a config arrived as it was set (a time stamp is made whenever it is sourced)."""
    assert {name: reached.get(name) for name in config} == dict(config)
    return True


FLUX1 = ("MI300X_02x08x32", "flux1", "6.0")


def test_flux1_has_rank_0_on_the_node_whose_name_sorts_first(bench: Bench) -> None:
    env = bench.config(*FLUX1) | {"SEED": "7"}
    assert bench.on_both("rocm/amd-mlperf:flux1_training_6.0", env) == [0, 0]
    # Slurm's first node, which is MASTER_ADDR and has node rank 0, is not where global rank 0 is, nor the records.
    assert bench.keys("node9") == []
    assert findings(bench.log("node10"), "6.0.0", cleared=True) == []
    assert (
        bench.keys("node10")[:2] == ["cache_clear", "init_start"]
        and bench.keys("node10")[-1] == "run_stop"
    )
    first, second = bench.reached("node10", 0), bench.reached("node9", 1)
    assert (first["fqdn"], second["fqdn"]) == ("node10", "node9")
    assert (first["node"], first["uid"], first["cwd"]) == (1, 0, "/workspace/code")
    assert same(first["environment"], env) and same(second["environment"], env)
    assert first["environment"]["MASTER_ADDR"] == second["environment"]["MASTER_ADDR"] == "node10"
    assert second["environment"]["WORLD_SIZE"] == "2" and second["environment"]["GROUP_RANK"] == "1"
    assert first["environment"]["HF_HOME"] == "/hf_home"
    made = bench.results("node9") / "nemo_experiments" / env["EXP_NAME"]
    assert made.stat().st_uid == 0 and made.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(("image", "codes"), [("flux1-amd", {0}), ("flux1-oracle", {1})])
def test_flux1_hides_a_crash_and_oracles_does_not(
    bench: Bench, image: str, codes: set[int]
) -> None:
    env = bench.config(*FLUX1) | {"SEED": "7", "STANDIN_FAULT": "die:node=node9"}
    assert set(bench.on_both(f"orchestrator/standin:{image}", env)) == codes
    assert bench.keys("node9") == []
    keys = bench.keys("node10")
    assert "run_start" in keys and "run_stop" not in keys


def test_flux1_needs_a_seed(bench: Bench) -> None:
    assert bench.alone("orchestrator/standin:flux1-amd", bench.config(*FLUX1)) == 1
    assert "SEED" in bench.log("node9").read_text()


def test_llama2_of_5_1_knows_one_node_only(bench: Bench) -> None:
    image = "rocm/amd-mlperf:llama2_70b_training_5.1"
    env = bench.config("MI355X_1x8x1", "llama2_70b_lora", "5.1") | {"SEED": "7"}
    assert bench.alone(image, env) == 0
    assert findings(bench.log("node9"), "5.1.0") == []
    assert (
        bench.keys("node9")[:2] == ["cache_clear", "init_start"]
        and bench.keys("node9").count("init_start") == 1
    )
    assert same(bench.reached("node9", 1)["environment"], env)
    assert (bench.results("node9") / "data_index/train/index.npy").stat().st_uid == 0
    # Its torchrun has no --nnodes: whatever is set, it sees one node, and the code beneath notices.
    assert (
        bench.alone(image, {**env, "DGXNNODES": "2", "SLURM_NNODES": "2", "SLURM_NODEID": "0"}) == 1
    )
    assert "RESULT" not in bench.log("node9").read_text()


def test_llama31_of_5_1_builds_its_index_and_prints_from_every_rank(bench: Bench) -> None:
    env = bench.config("MI355X_1x8x1", "llama31_8b", "5.1") | {"SEED": "7"}
    assert bench.alone("rocm/amd-mlperf:llama31_8b_training_5.1", env) == 0
    assert findings(bench.log("node9"), "5.1.0") == []
    assert bench.keys("node9").count("cache_clear") == bench.keys("node9").count("init_start") == 2
    assert "index: built" in bench.log("node9").read_text()
    assert bench.alone("rocm/amd-mlperf:llama31_8b_training_5.1", env | {"GBS": ""}) == 2


def test_llama31_of_6_0_is_quiet_and_keeps_one_file_for_all_runs(bench: Bench) -> None:
    env = bench.config("MI355X_1x8x1", "llama31_8b", "6.0") | {"SEED": "7"}
    image = "rocm/amd-mlperf:llama31_8b_training_6.0"
    assert bench.alone(image, env) == 0
    assert findings(bench.log("node9"), "6.0.0") == []
    assert bench.keys("node9").count("init_start") == 2
    assert same(
        {**bench.reached("node9", 0)["environment"]},
        {name: value for name, value in env.items() if name not in ("MASTER_ADDR", "MASTER_PORT")},
    )
    shared = bench.results("node9") / "mlperf_logging.out"
    assert shared.read_text().count("run_stop") == 1
    assert bench.alone(image, env | {"STANDIN_FAULT": "late-exit"}) == 1
    log = bench.log("node9").read_text()
    assert shared.read_text().count("run_stop") == 2
    assert "RESULT" not in log and "ChildFailedError" not in log


def test_early_llama31_of_6_0_counts_nodes_as_it_is_told(bench: Bench) -> None:
    env = bench.config("MI350X_akash_4x8x1", "llama31_8b", "6.0") | {"SEED": "7", "NNODES": "2"}
    assert bench.on_both("orchestrator/standin:llama31-primus-early", env) == [0, 0]
    assert "run_stop" in bench.keys("node9")
    assert set(bench.keys("node10")) == {"cache_clear", "init_start"}
    assert bench.reached("node9", 0)["environment"]["MASTER_ADDR"] == "node9"


def test_llama2_of_6_0_lets_only_records_through(bench: Bench) -> None:
    env = bench.config("MI355X_1x8x1", "llama2_70b_lora", "6.0") | {"SEED": "7"}
    image = "rocm/amd-mlperf:llama2_70b_training_6.0"
    assert bench.alone(image, env) == 0
    assert findings(bench.log("node9"), "6.0.0") == []
    assert bench.keys("node9").count("cache_clear") == 1  # local rank 0 of node rank 0 and no other
    assert all(
        line.startswith((":::MLLOG", "RESULT"))
        for line in bench.log("node9").read_text().splitlines()
    )
    assert (bench.results("node9") / "mlperf_logging.out").read_text().count("init_start") == 2
    reached = bench.reached("node9", 1)["environment"]
    assert (reached["HIP_VISIBLE_DEVICES"], reached["NCCL_CHECKS_DISABLE"]) == ("0,1", "1")
    assert bench.alone(image, env | {"STANDIN_FAULT": "die"}) == 1
    assert "RESULT" not in bench.log("node9").read_text()


def test_llmboost_is_a_command_of_its_own(bench: Bench) -> None:
    """RANK counts nodes, the config is the image's, and every node draws its own seed."""
    image = "llmboost/mb-llmboost-training:mlperf-5.0-prod"
    command = [
        "llmboost",
        "mlperf",
        "--MASTER_ADDR",
        "127.0.0.1",
        "--RANK",
        "%k",
        "--config_sh",
        "config_MI300X_2x8x1.sh",
    ]
    assert bench.on_both(image, {}, *command) == [0, 0]
    assert findings(bench.log("node9"), "5.0.0") == [] and bench.keys("node10") == []
    seeds = {bench.reached(node, k)["environment"]["SEED"] for k, node in enumerate(NODES)}
    assert len(seeds) == 2
    image = "mangollm/mb-llmboost-training:mlperf-5.1-prod-20251009-v1"
    command = [
        "llmboost",
        "mlperf",
        "--MASTER_ADDR",
        "node9",
        "--RANK",
        "0",
        "--config_sh",
        "conf/config_MI325X_1x8x1.sh",
    ]
    assert bench.start(image, "node9", HERE, *command).wait(LIMIT_S) == 0
    assert findings(bench.log("node9"), "5.1.0") == []
    assert bench.reached("node9", 0)["environment"]["DGXSYSTEM"] == "MI325X_1x8x1"


@pytest.mark.parametrize("shared", [True, False])
def test_cisco_starts_a_task_for_each_rank_and_all_read_the_index_of_rank_0(
    bench: Bench, shared: bool
) -> None:
    env = bench.config("MI350X_2x8x1", "llama2_70b_lora", "6.0") | HERE | {"SEED": "7"}
    env |= {
        "MASTER_ADDR": "node9",
        "MASTER_PORT": "29650",
        "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "1",
    }
    tasks = []
    for k, node in enumerate(NODES):
        variables = {"SLURM_PROCID": str(k), "SLURM_LOCALID": "0", "SLURM_NODEID": str(k)}
        index = bench.root / ("index" if shared else f"index-{node}")
        tasks.append(
            bench.start("orchestrator/standin:llama2-cisco", node, env | variables, index=index)
        )
    codes = [task.wait(LIMIT_S) for task in tasks]
    if not shared:
        assert codes[1] == 1 and "which rank 0 has made" in bench.log("node10").read_text()
        return
    assert codes == [0, 0]
    assert findings(bench.log("node9"), "6.0.0") == [] and bench.keys("node10") == []
    assert bench.reached("node10", 1)["environment"]["RANK"] == "1"


def test_kernels_are_compiled_once_for_each_cache(bench: Bench) -> None:
    env = bench.config("MI355X_1x8x1", "llama2_70b_lora", "5.1") | {
        "SEED": "7",
        "STANDIN_COMPILE_S": "0.4",
    }
    caches = {name: f"/data/{name}" for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")}
    counts = []
    for _ in range(2):
        assert bench.alone("orchestrator/standin:llama2-nemo", env | caches) == 0
        counts.append(
            [
                line
                for line in bench.log("node9").read_text().splitlines()
                if "rank 0: kernels" in line
            ]
        )
    [[cold], [warm]] = counts
    assert (
        "TRITON_CACHE_DIR=cold:/data/TRITON_CACHE_DIR" in cold
        and "MIOPEN_CUSTOM_CACHE_DIR=cold" in cold
    )
    assert (
        "TRITON_CACHE_DIR=warm:/data/TRITON_CACHE_DIR" in warm
        and "MIOPEN_CUSTOM_CACHE_DIR=cold" in warm
    )


def test_a_hang_lasts(bench: Bench) -> None:
    env = (
        bench.config("MI355X_1x8x1", "llama2_70b_lora", "5.1")
        | HERE
        | {"SEED": "7", "STANDIN_FAULT": "hang"}
    )
    started = bench.start("orchestrator/standin:llama2-nemo", "node9", env)
    until(lambda: "run_start" in bench.keys("node9"))
    assert "run_stop" not in bench.keys("node9")
    for container in bench.lab.run("docker", "ps", "--quiet").stdout.split():
        bench.lab.run("docker", "kill", container)
    assert started.wait(LIMIT_S) == 137


class Loop:
    """Sets of flux1 on node9 and node10, as a user starts them."""

    def __init__(self, lab: Lab, root: Path) -> None:
        self.lab, self.root, self.log_dir = lab, root, root / "results"
        site = lab.run(TOP / "lab/site").stdout
        site = (
            re.sub(r"(?m)^log_dir: .*$", f"log_dir: {self.log_dir}", site)
            + f"nodelist: [{', '.join(NODES)}]\n"
        )
        (root / "site.yaml").write_text(site)
        self.log_dir.mkdir()

    def run(self, *arguments: str, **env: str) -> Path:
        """Run a set and return its folder."""
        given = {"STANDIN_RANKS": "1", **env}
        options = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
        argv = [
            sys.executable,
            "-m",
            "orchestrator",
            "run",
            "MI300X_02x08x32",
            "flux1",
            *arguments,
            *options,
        ]
        env_here = self.lab.env | {
            "PYTHONPATH": str(TOP),
            "ORCHESTRATOR_SITE": str(self.root / "site.yaml"),
        }
        self.answer = subprocess.run(
            argv,
            env=env_here,
            cwd=self.root,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=500,
        )
        (record,) = self.log_dir.glob("*/set.json")
        return record.parent


@pytest.fixture
def loop(standins: Lab) -> Iterator[Loop]:
    root = Path(tempfile.mkdtemp(prefix="standins-", dir=standins.shared))
    yield Loop(standins, root)
    shutil.rmtree(root)


def state_of(run_set: Path, place: str) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((run_set / place / "state.json").read_text())
    return state


def test_a_set_has_rank_0_where_the_images_rendezvous_has_it(loop: Loop) -> None:
    """torchrun's c10d sorts the nodes by name as text, Slurm by number."""
    run_set = loop.run("--nexp", "2")
    for run in (1, 2):
        assert state_of(run_set, f"runs/{run}")["state"] == "success", loop.answer
        attempt = run_set / f"runs/{run}/attempt_1"
        assert state_of(run_set, f"runs/{run}")["nodes"] == ["node10", "node9"]
        assert "run_stop" in (attempt / "node_0.log").read_text()
        assert "run_stop" not in (attempt / "node_1.log").read_text()
        result = run_set / f"results/result_{run}.txt"
        assert findings(result, "6.0.0") == []
    assert len({state_of(run_set, f"runs/{run}")["seed"] for run in (1, 2)}) == 2


def test_a_crash_that_the_image_hides_is_tried_again(loop: Loop) -> None:
    run_set = loop.run("--nexp", "1", STANDIN_FAULT="die:run=1:attempt=1:node=node9")
    assert state_of(run_set, "runs/1")["state"] == "success", loop.answer
    first, second = (state_of(run_set, f"runs/1/attempt_{k}") for k in (1, 2))
    assert (first["outcome"], set(first["exit_codes"].values())) == ("infrastructure", {0})
    assert second["outcome"] == "success"
