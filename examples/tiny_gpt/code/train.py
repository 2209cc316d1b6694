"""A small GPT in plain torch, trained on all GPUs of the job; a run takes about half a minute on
two GPUs.

The text is drawn from a Markov chain of second order: which letter follows depends on the two
before it, by a table that is the same for all runs. What is drawn, and where the weights start,
depends on the seed. The loss can fall to the chain's own entropy, about 1.0; the target is near it,
so a run converges when the model has learned the table, and how many samples that takes differs
from seed to seed.

Started by torchrun, see run_and_time.sh. Settings come from the environment, the log is MLLOG lines
of rank 0.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

LETTERS = 32
LENGTH = 64
FOLLOWERS = torch.tensor([0.6, 0.25, 0.1, 0.05])
"""How likely the four letters are that may follow two others."""
TABLE_SEED = 20_260_101
EVAL_SEED = 7
EVAL_SAMPLES = 512
STEPS_AT_ONCE = 64
"""Steps whose samples are drawn together."""


def mllog(kind: str, key: str, value: object = None, **metadata: object) -> None:
    """Print one record; of rank 0 only."""
    if dist.get_rank() == 0:
        caller = inspect.stack()[1]
        record = {
            "namespace": "",
            "time_ms": time.time_ns() // 1_000_000,
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": {"file": caller.filename, "lineno": caller.lineno, **metadata},
        }
        print(f":::MLLOG {json.dumps(record)}", flush=True)


class Chain:
    """The text: samples of LENGTH + 1 letters."""

    def __init__(self) -> None:
        source = torch.Generator().manual_seed(TABLE_SEED)
        order = torch.rand(LETTERS * LETTERS, LETTERS, generator=source).argsort(dim=1)
        self.followers = order[:, : len(FOLLOWERS)]
        self.limits = FOLLOWERS.cumsum(0)

    def draw(self, samples: int, source: torch.Generator) -> Tensor:
        """Return `samples` rows of letters."""
        rows = torch.randint(LETTERS, (samples, LENGTH + 1), generator=source)
        which = torch.bucketize(torch.rand(samples, LENGTH + 1, generator=source), self.limits)
        which.clamp_(max=len(FOLLOWERS) - 1)
        for place in range(2, LENGTH + 1):
            before = rows[:, place - 2] * LETTERS + rows[:, place - 1]
            rows[:, place] = self.followers[before, which[:, place]]
        return rows


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm and beside a short cut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        samples, length, width = x.shape
        parts = self.mix(self.first(x)).view(samples, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(samples, length, width))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    """From letters to the mean loss of guessing the next one."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, LETTERS, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        told, asked = rows[:, :-1], rows[:, 1:]
        x = self.letters(told) + self.places(torch.arange(LENGTH, device=rows.device))
        guess = self.head(self.norm(self.blocks(x)))
        # The first letters are pure chance: the second-order rule holds from the third on.
        return functional.cross_entropy(guess[:, 1:].flatten(0, 1), asked[:, 1:].flatten())


class Settings:
    """What the environment says. All ranks of a run must be told the same."""

    def __init__(self) -> None:
        self.seed = int(os.environ["SEED"])
        self.micro_batch = int(os.environ["TINY_MICRO_BATCH"])
        self.rate = float(os.environ["TINY_LR"])
        self.warmup = int(os.environ["TINY_WARMUP_STEPS"])
        self.target = float(os.environ["TINY_TARGET"])
        self.eval_every = int(os.environ["TINY_EVAL_EVERY_SAMPLES"])
        self.most = int(os.environ["TINY_MAX_SAMPLES"])
        self.width, self.layers, self.heads = (
            int(os.environ[f"TINY_{name}"]) for name in ("WIDTH", "LAYERS", "HEADS")
        )
        self.global_batch = self.micro_batch * dist.get_world_size()


def describe(settings: Settings) -> None:
    """Log what runs."""
    nodes = int(os.environ.get("SLURM_NNODES", "1"))
    values = {
        "submission_benchmark": "tiny_gpt",
        "submission_org": os.environ.get("TINY_ORG", "example"),
        "submission_platform": f"{nodes}x{os.environ.get('TINY_PLATFORM', 'unknown')}",
        "seed": settings.seed,
        "global_batch_size": settings.global_batch,
        "micro_batch_size": settings.micro_batch,
        "gradient_accumulation_steps": 1,
        "opt_name": "adamw",
        "opt_base_learning_rate": settings.rate,
        "opt_learning_rate_warmup_steps": settings.warmup,
        "eval_samples": EVAL_SAMPLES,
    }
    for key, value in values.items():
        mllog("POINT_IN_TIME", key, value)


def begin() -> torch.device:
    """Join the other ranks, over NCCL (RCCL) where there are GPUs for all of this node's ranks;
    return the device."""
    rank, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if torch.cuda.is_available() and torch.cuda.device_count() >= ranks:
        torch.cuda.set_device(rank)
        device = torch.device("cuda", rank)
        dist.init_process_group("nccl", device_id=device)
        return device
    dist.init_process_group("gloo")
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    return torch.device("cpu")


def loss_of(model: nn.Module, rows: Tensor) -> float:
    """Return the mean loss over the evaluation samples, each rank with its part of them."""
    model.eval()
    with torch.no_grad():
        total = model(rows)
    model.train()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def train(settings: Settings, device: torch.device) -> bool:
    """Train until the target is reached, which is returned, or the samples are used up."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(settings.seed)
    net = GPT(settings.width, settings.layers, settings.heads).to(device)
    model = DistributedDataParallel(
        net, device_ids=[device.index] if device.type == "cuda" else None
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.rate, fused=device.type == "cuda")
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / (settings.warmup + 1))
    )
    chain, source = Chain(), torch.Generator().manual_seed(settings.seed * 1009 + rank)
    exam = chain.draw(EVAL_SAMPLES, torch.Generator().manual_seed(EVAL_SEED))[rank::world].to(
        device
    )
    # The first use of every kernel is not training: nothing is learned from it.
    model(chain.draw(settings.micro_batch, torch.Generator().manual_seed(0)).to(device)).backward()
    optimizer.zero_grad(set_to_none=True)
    loss_of(net, exam)
    dist.barrier()
    mllog("INTERVAL_END", "init_stop")
    mllog("INTERVAL_START", "run_start")
    done, step, reached, loss, since = 0, 0, False, float("nan"), time.monotonic()
    mllog("INTERVAL_START", "block_start", samples_count=0)
    while not reached and done < settings.most:
        if step % STEPS_AT_ONCE == 0:
            drawn = (
                chain.draw(settings.micro_batch * STEPS_AT_ONCE, source)
                .to(device)
                .chunk(STEPS_AT_ONCE)
            )
        model(drawn[step % STEPS_AT_ONCE]).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        step, before, done = step + 1, done, done + settings.global_batch
        if done // settings.eval_every == before // settings.eval_every:
            continue
        mllog("INTERVAL_START", "eval_start", samples_count=done)
        loss = loss_of(net, exam)
        mllog("POINT_IN_TIME", "eval_accuracy", loss, samples_count=done)
        mllog("INTERVAL_END", "eval_stop", samples_count=done)
        rate = settings.eval_every / (time.monotonic() - since)
        mllog("POINT_IN_TIME", "tracked_stats", {"throughput": rate}, samples_count=done)
        reached, since = loss <= settings.target, time.monotonic()
    mllog("INTERVAL_END", "block_stop", samples_count=done)
    mllog(
        "INTERVAL_END", "run_stop", samples_count=done, status="success" if reached else "aborted"
    )
    return reached


def main() -> None:
    device = begin()
    mllog("INTERVAL_START", "init_start")
    settings = Settings()
    describe(settings)
    reached = train(settings, device)
    if dist.get_rank() == 0:
        print(
            f"{'the target is reached' if reached else 'the target was not reached'}, on "
            f"{device.type}",
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
