"""The model and its data: a network of one hidden layer that learns what a fixed teacher of the
same shape says.

Everything here is a function of (seed, rank, step) alone. No rank looks at which node it runs on,
so the same number of ranks gives the same numbers however they are spread over nodes.
"""

from __future__ import annotations

from math import isfinite, tanh
from operator import mul

# `random` costs 5 ms of start-up for distributions that nobody here draws from; this is the
# generator below it.
from _random import Random

INPUTS = 7
HIDDEN = 6
TRAIN_SAMPLES = 2048
EVAL_SAMPLES = 256
DATA_SEED = 20_250_601
NOISE = 0.2
START_SEED = 20_250_604
START_SPREAD = 0.03
MOMENTUM = 0.8

# Gradients and losses travel as whole numbers of 2^-36. Adding integers gives the same bits in any
# order and grouping,
# which sums of floats do not.
SCALE = float(1 << 36)
LIMIT = float(1 << 16)  # 2^52 per rank, so that 1024 ranks stay inside the 64 bits of a frame

Sample = tuple[list[float], float]
Layer = list[list[float]]


def uniform(random: Random, width: float) -> float:
    return (random.random() * 2.0 - 1.0) * width


class Network:
    """Weights of both layers. Layer rows have INPUTS + 1 members (the last one is the bias), the
    output HIDDEN + 1."""

    size = HIDDEN * (INPUTS + 1) + HIDDEN + 1

    def __init__(self, seed: int, width: float) -> None:
        """Random weights in -width .. width."""
        random = Random(seed)
        self.hidden: Layer = [
            [uniform(random, width) for _ in range(INPUTS + 1)] for _ in range(HIDDEN)
        ]
        self.output: list[float] = [uniform(random, width) for _ in range(HIDDEN + 1)]
        self.velocity: list[float] = [0.0] * self.size

    def perturb(self, seed: int, width: float) -> None:
        """Move every weight by a random amount in -width .. width."""
        random = Random(seed)
        self.hidden = [[w + uniform(random, width) for w in row] for row in self.hidden]
        self.output = [w + uniform(random, width) for w in self.output]

    def predict(self, inputs: list[float]) -> float:
        output = self.output
        return sum(
            [w * tanh(sum(map(mul, row, inputs))) for w, row in zip(output, self.hidden)],
            output[-1],
        )

    def loss(self, samples: list[Sample]) -> float:
        """Sum of the squared errors over `samples`."""
        predict = self.predict
        return sum([(predict(inputs) - wanted) ** 2 for inputs, wanted in samples])

    def gradient(self, samples: list[Sample]) -> list[float]:
        """Sum over `samples` of the gradient of half the squared error; `size` members, hidden rows
        first."""
        hidden, output = self.hidden, self.output
        rows = [[0.0] * (INPUTS + 1) for _ in range(HIDDEN)]
        last = [0.0] * (HIDDEN + 1)
        for inputs, wanted in samples:
            values = [tanh(sum(map(mul, row, inputs))) for row in hidden]
            values.append(1.0)
            error = sum(map(mul, output, values)) - wanted
            last = [g + error * v for g, v in zip(last, values)]
            for unit in range(HIDDEN):
                value = values[unit]
                delta = error * output[unit] * (1.0 - value * value)
                rows[unit] = [g + delta * x for g, x in zip(rows[unit], inputs)]
        return [g for row in rows for g in row] + last

    def step(self, gradient: list[float], learning_rate: float) -> None:
        """One step of momentum descent along the mean `gradient`."""
        self.velocity = velocity = [
            MOMENTUM * v - learning_rate * g for v, g in zip(self.velocity, gradient)
        ]
        width = INPUTS + 1
        for unit, row in enumerate(self.hidden):
            self.hidden[unit] = [w + v for w, v in zip(row, velocity[unit * width :])]
        self.output = [w + v for w, v in zip(self.output, velocity[HIDDEN * width :])]


def starting_point(seed: int) -> Network:
    """One fixed checkpoint, moved a little by the run's seed: runs differ, and none needs ten times
    as long."""
    network = Network(START_SEED, 0.5)
    network.perturb(seed, START_SPREAD)
    return network


def sample(teacher: Network, index: int) -> Sample:
    """Sample number `index` of the fixed data set; evaluation samples follow the training
    samples."""
    random = Random(DATA_SEED + 1 + index)
    inputs = [uniform(random, 1.7) for _ in range(INPUTS)]
    inputs.append(1.0)
    return inputs, teacher.predict(inputs) + uniform(random, NOISE)


class Shard:
    """What one rank owns: every world-th training and evaluation sample, and the order it draws
    them in."""

    def __init__(self, rank: int, world: int, seed: int) -> None:
        teacher = Network(DATA_SEED, 1.2)
        self.train = [sample(teacher, index) for index in range(rank, TRAIN_SAMPLES, world)]
        total = TRAIN_SAMPLES + EVAL_SAMPLES
        self.eval = [sample(teacher, index) for index in range(TRAIN_SAMPLES + rank, total, world)]
        self.random = Random(seed * 1_000_003 + rank)

    def draw(self, count: int) -> list[Sample]:
        """`count` training samples, with repetition."""
        train, random = self.train, self.random.random
        size = len(train)
        return [train[int(random() * size)] for _ in range(count)]


def whole(values: list[float]) -> list[int] | None:
    """The values as integers of 1/SCALE, or None when one is not finite or too large: the training
    has diverged."""
    if not all([isfinite(value) and -LIMIT < value < LIMIT for value in values]):
        return None
    return [int(value * SCALE) for value in values]
