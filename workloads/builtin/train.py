"""Train the small network over all ranks of all nodes, one process per node.

Environment: SEED, MASTER_ADDR, MASTER_PORT, SLURM_NNODES, SLURM_NODEID and the variables in
README.md. Exit codes: 0 the run ended (its run_stop says how), 2 settings, 3 a peer was lost, 4 no
rendezvous, 5 the nodes disagree, 6 standard output is gone. Example: SEED=7 MASTER_ADDR=127.0.0.1
MASTER_PORT=29501 SLURM_NNODES=1 SLURM_NODEID=0 bash run_and_time.sh
"""

from __future__ import annotations

import os
import sys

from training.benchmarks import REAL_STEPS, Plan, benchmark_of
from training.environment import Environment
from training.exchange import Alone, Exchange, Leaf, Root
from training.failures import BadSettings, Failure
from training.faults import Faults
from training.mllog import Log
from training.network import EVAL_SAMPLES, SCALE, Shard, starting_point, whole

MAX_RANKS = 1024
NOT_A_NUMBER = float("nan")


class Training:
    """This node's share of one run."""

    def __init__(self, plan: Plan, node: int, seed: int, log: Log, faults: Faults) -> None:
        self.plan, self.node, self.seed, self.log, self.faults = plan, node, seed, log, faults
        self.shards: list[Shard] = []
        self.network = starting_point(seed)
        self.steps = 0
        # Faults are timed in shares of the length that a run may be expected to have.
        self.expected = REAL_STEPS if plan.stand_in else plan.steps_until(plan.max_samples) / 2

    def load(self) -> None:
        """This node's shards of the data. Part of the timed run: the rules let nobody touch data
        before run_start."""
        first = self.node * self.plan.ranks_per_node
        self.shards = [
            Shard(rank, self.plan.world, self.seed)
            for rank in range(first, first + self.plan.ranks_per_node)
        ]

    def share(self) -> float:
        return self.steps / self.expected

    def step(self, exchange: Exchange) -> bool:
        """One step of all ranks together; False when the training has diverged."""
        plan = self.plan
        self.faults.reach(self.share())
        gradients = [
            whole(self.network.gradient(shard.draw(plan.micro_batch))) for shard in self.shards
        ]
        poisoned = None in gradients or self.faults.wants("nan", self.share())
        total = exchange.total(None if poisoned else [sum(column) for column in zip(*gradients)])
        self.steps += 1
        if total is None:
            return False
        factor = 1.0 / (SCALE * plan.micro_batch * plan.world)
        self.network.step([value * factor for value in total], plan.learning_rate)
        return True

    def advance(self, exchange: Exchange, samples: int) -> bool:
        """Step until `samples` are reported; False when the training has diverged."""
        return all(self.step(exchange) for _ in range(self.plan.steps_until(samples) - self.steps))

    def evaluate(self, exchange: Exchange) -> float:
        """The mean squared error over the evaluation set, each rank on its shard, on the
        benchmark's scale."""
        losses = whole([self.network.loss(shard.eval) for shard in self.shards])
        total = exchange.total(None if losses is None else [sum(losses)])
        return NOT_A_NUMBER if total is None else self.plan.shown(total[0] / SCALE / EVAL_SAMPLES)

    def run(self, exchange: Exchange) -> None:
        """Blocks of training, each followed by an evaluation, until the target or the limit is
        met."""
        plan, log = self.plan, self.log
        started = log.start("run_start")
        self.load()
        status, samples, block_start = "aborted", 0, started
        evals = 0
        while status != "success" and samples < plan.max_samples:
            log.start("block_start", samples_count=samples)
            before = samples
            samples += plan.eval_every * (1 + (plan.skipped_evals if not evals else 0))
            healthy = self.advance(exchange, samples)
            evals += 1
            seconds = max(log.end("block_stop", samples_count=samples) - block_start, 1) / 1000
            log.event("tracked_stats", {"throughput": (samples - before) / seconds}, step=samples)
            log.start("eval_start", samples_count=samples)
            loss = self.evaluate(exchange) if healthy else NOT_A_NUMBER
            log.event("eval_accuracy", loss, samples_count=samples)
            block_start = log.end("eval_stop", samples_count=samples)
            if not healthy or loss != loss or self.faults.wants("abort", self.share()):
                break
            if loss <= plan.target:
                status = "success"
        log.end("run_stop", samples_count=samples, status=status)
        if plan.train_samples is None:
            log.event("train_samples", samples)


def meet(environment: Environment, plan: Plan, node: int, seed: int) -> Exchange:
    """The exchange with the other nodes, once all of them are there and agree."""
    if plan.nodes == 1:
        return Alone()
    address = environment.text("MASTER_ADDR")
    port = environment.integer("MASTER_PORT", high=65535)
    connect_s = environment.number("BUILTIN_CONNECT_TIMEOUT_S", default=60.0)
    exchange_s = environment.number("BUILTIN_EXCHANGE_TIMEOUT_S", default=600.0)
    settings = {"SEED": str(seed), **plan.agreement()}
    for variable in ("ORCH_RUN", "ORCH_ATTEMPT"):
        settings[variable] = environment.text(variable, default="not set")
    name = os.uname().nodename if environment.has("BUILTIN_RANKS_BY_NAME") else ""
    if node == 0:
        return Root(address, port, name, plan.nodes, settings, connect_s, exchange_s)
    return Leaf(address, port, name, node, settings, connect_s, exchange_s)


def train(environment: Environment) -> int:
    """One run from the environment to the exit code."""
    seed = environment.integer("SEED", low=0)
    nodes = environment.integer("SLURM_NNODES", high=MAX_RANKS)
    node = environment.integer("SLURM_NODEID", low=0, high=nodes - 1)
    ranks = environment.integer(
        "BUILTIN_RANKS_PER_NODE", "GPUS_PER_NODE", "DGXNGPU", high=MAX_RANKS
    )
    if nodes * ranks > MAX_RANKS:
        raise BadSettings(
            f"{nodes} nodes x {ranks} ranks: at most {MAX_RANKS} ranks share the data set"
        )
    log = Log(node == 0)
    numbered = not environment.has("BUILTIN_RANKS_BY_NAME")
    if numbered:
        log.start("init_start")
    plan = Plan(environment, benchmark_of(environment), nodes, ranks)
    faults = Faults(environment, node)
    faults.reach(-1.0)
    exchange: Exchange | None = None
    if not numbered:  # by the rendezvous, before any rank prints
        exchange = meet(environment, plan, node, seed)
        log = Log(exchange.number == 0)
        everyone = Log(environment.has("BUILTIN_ALL_RANKS_START"))
        for one in [everyone] * ranks if everyone.speaks else [log]:
            one.start("init_start")
    if plan.stand_in:
        log.line(
            f"stand-in for {plan.benchmark}: a small network trains in its place; nothing here is "
            "a result of it"
        )
    plan.describe(log, seed, "onprem")
    training = Training(plan, exchange.number if exchange else node, seed, log, faults)
    exchange = exchange or meet(environment, plan, node, seed)
    log.end("init_stop")
    training.run(exchange)
    return 1 if faults.wants("late-exit", 2.0) else 0


def main() -> int:
    try:
        return train(Environment(dict(os.environ)))
    except Failure as failure:
        node = os.environ.get("SLURM_NODEID", "?")
        print(f"builtin: node {node}: {failure}", file=sys.stderr)
        return failure.code


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Every record is flushed when it is written; freeing the data first would only make the node
    # end later.
    os._exit(code)
