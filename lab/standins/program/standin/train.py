"""One rank of one run, from the environment of torchrun (or of one Slurm task) to the exit code."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from training.benchmarks import REAL_BATCH, REAL_STEPS, REAL_TARGET, Plan
from training.environment import Environment
from training.failures import BadSettings, Failure
from training.mllog import Log

from standin import knobs
from standin.contracts import CONTRACTS, Contract

# The model crosses this evaluation loss after about REAL_STEPS steps; Plan shows it as the
# benchmark's target.
CROSSED = 0.049
TRAIN, EVAL, INPUTS, HIDDEN, RATE = 2048, 256, 7, 16, 0.0012


class TwoLogs(Log):
    """Records on standard output and, where the implementation keeps one, at the end of a file that
    all ranks and runs share."""

    def __init__(self, speaks: bool, file: str) -> None:
        super().__init__(speaks)
        self.file = file

    def line(self, text: str) -> None:
        super().line(text)
        if self.speaks and self.file and text.startswith(":::MLLOG"):
            with open(self.file, "a", encoding="utf-8") as out:
                out.write(text + "\n")


def data() -> tuple[Tensor, Tensor]:
    """Inputs and values of a fixed teacher with some noise: the same on every node."""
    dice = torch.Generator().manual_seed(20)
    inputs = torch.randn(TRAIN + EVAL, INPUTS, generator=dice)
    inner, outer = torch.randn(INPUTS, 4, generator=dice), torch.randn(4, 1, generator=dice)
    values = torch.tanh(inputs @ inner * 0.5) @ outer * 0.3
    return inputs, values + 0.15 * torch.randn(values.shape, generator=dice)


class Training:
    """This rank's share of one run."""

    def __init__(self, plan: Plan, rank: int, world: int, seed: int, log: Log) -> None:
        self.plan, self.rank, self.world, self.log = plan, rank, world, log
        self.faults = knobs.faults()
        self.dice = torch.Generator().manual_seed(seed * 1000 + rank)
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        torch.manual_seed(seed)
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.02 * torch.randn(weight.shape)
        for weight in model.parameters():
            dist.broadcast(weight.detach(), 0)  # seeds may differ from node to node
        self.model = model
        self.weights = list(model.parameters())
        self.momenta = [torch.zeros_like(weight) for weight in self.weights]
        self.inputs, self.values = data()
        self.batch = max(1, REAL_BATCH // world)
        self.steps = 0

    def share(self) -> float:
        return self.steps / REAL_STEPS

    def step(self) -> None:
        self.faults.reach(self.share())
        picked = torch.randint(TRAIN, (self.batch,), generator=self.dice)
        loss = (self.model(self.inputs[picked]) - self.values[picked]).pow(2).mean()
        if self.faults.wants("nan", self.share()):
            loss = loss * float("nan")
        gradients = torch.autograd.grad(loss, self.weights)
        # By hand what DistributedDataParallel and SGD do: both import the compiler, which takes
        # every rank two seconds.
        flat = torch.cat([gradient.flatten() for gradient in gradients]) / self.world
        dist.all_reduce(flat)
        start = 0
        with torch.no_grad():
            for weight, momentum in zip(self.weights, self.momenta, strict=True):
                momentum.mul_(0.9).add_(flat[start : start + weight.numel()].view_as(weight))
                weight.sub_(momentum, alpha=RATE)
                start += weight.numel()
        self.steps += 1

    def evaluate(self) -> float:
        """The loss over the evaluation set, each rank on its part, on the benchmark's scale."""
        mine = slice(TRAIN + self.rank, None, self.world)
        with torch.no_grad():
            total = (self.model(self.inputs[mine]) - self.values[mine]).pow(2).sum()
        dist.all_reduce(total)
        return self.plan.shown(float(total) / EVAL * REAL_TARGET / CROSSED)

    def run(self) -> None:
        """Blocks of training, each followed by an evaluation, until the target or the limit is
        met."""
        plan, log = self.plan, self.log
        block = log.start("run_start")
        status, samples = "aborted", 0
        while status != "success" and samples < plan.max_samples:
            log.start("block_start", samples_count=samples)
            before = samples
            samples += plan.eval_every * (1 + (0 if samples else plan.skipped_evals))
            while self.steps < plan.steps_until(samples):
                self.step()
            passed = max(log.end("block_stop", samples_count=samples) - block, 1) / 1000
            log.event("tracked_stats", {"throughput": (samples - before) / passed}, step=samples)
            log.start("eval_start", samples_count=samples)
            loss = self.evaluate()
            log.event("eval_accuracy", loss, samples_count=samples)
            block = log.end("eval_stop", samples_count=samples)
            # Every rank has the same sum before it, so all of them decide alike.
            if loss != loss or self.faults.wants("abort", self.share()):
                break
            if loss <= plan.target:
                status = "success"
        log.end("run_stop", samples_count=samples, status=status)
        if plan.train_samples is None:
            log.event("train_samples", samples)


def early_records(contract: Contract, log: Log) -> None:
    if contract.cache_clear:
        log.event("cache_clear", None)
    log.record(contract.init_start, "init_start", None, {})


def make_folders(contract: Contract) -> None:
    for one in contract.folders:
        folder = Path("/results", one.format_map({"EXP_NAME": "flux1", **os.environ}))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{os.uname().nodename}.txt").write_text("made by a run, as root\n")


def read_index(contract: Contract, rank: int) -> None:
    """Have rank 0 make the index, and all read it."""
    files = [Path("/results", one, "index.npy") for one in contract.index]
    for file in files if rank == 0 else ():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"made by rank 0 on {os.uname().nodename}, as root\n")
    if files:
        dist.barrier()
    for file in files:
        if not file.exists():
            raise Failure(
                f"rank {rank} has no {file}, which rank 0 has made: /results is not the same folder"
            )


def train(contract: Contract) -> int:
    variables = dict(os.environ)
    for own, ours in contract.renamed.items():
        if own in variables:
            variables[ours] = variables[own]
    if contract.renamed:
        variables["PRIMUS_MIN_LR"] = str(float(variables["PRIMUS_LR"]) / 10)
    environment = Environment(variables)
    rank, world, local, ranks = (
        environment.integer(name, low=0)
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    seed = environment.integer("SEED", low=0)
    knobs.tell_environment(rank)
    nodes = world // ranks
    if contract.nodes and environment.integer(contract.nodes, default=1) != nodes:
        said = environment.integer(contract.nodes)
        raise BadSettings(
            f"{contract.nodes}={said}, but {world} ranks with {ranks} on each node are {nodes} "
            "nodes"
        )
    # Fewer ranks than the system has GPUs are a rehearsal's; the log shows the system that the
    # environment describes.
    plan = Plan(environment, contract.benchmark, nodes, environment.integer(contract.gpus))
    file = environment.text("MLLOG_OUTPUT_FILE", default="")
    log = TwoLogs(rank == 0, file)
    early_records(contract, log if contract.early == "first" else TwoLogs(True, file))
    if rank == 0:
        print(
            f"stand-in for {plan.benchmark}: a small network trains; nothing here is a result of "
            "it",
            flush=True,
        )
    knobs.faults().reach(-1.0)
    knobs.compile_kernels(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if local == 0:
        make_folders(contract)
    read_index(contract, rank)
    time.sleep(knobs.seconds("STANDIN_START_S"))
    training = Training(plan, rank, world, seed, log)
    plan.describe(log, seed, contract.status)
    log.end("init_stop")
    try:
        training.run()
    except RuntimeError as reason:
        # RCCL's ranks wait in a collective until its time-out where gloo's hear of a lost peer at
        # once.
        print(f"stand-in: rank {rank}: {str(reason).splitlines()[0]}", file=sys.stderr, flush=True)
        time.sleep(knobs.seconds("STANDIN_COLLECTIVE_S"))
        return 1
    # Without destroy_process_group: gloo can wait for ever in it when the other end is gone
    # already.
    return 1 if training.faults.wants("late-exit", 2.0) else 0


def main(name: str) -> None:
    try:
        code = train(CONTRACTS[name])
    except Failure as failure:
        print(f"stand-in: {failure}", file=sys.stderr)
        code = failure.code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
