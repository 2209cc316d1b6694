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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

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

    def forward(self, inputs: Sequence[list[float]]) -> tuple[list[list[float]], list[float]]:
        """Return the values of the hidden units, a list for each, and the predictions.

        Unrolled for INPUTS = 7 and HIDDEN = 6, since a run spends most of its time here: three
        times as fast as loops.
        """
        units = [
            [
                tanh(a * p + b * q + c * r + d * s + e * t + f * u + g * v + bias)
                for p, q, r, s, t, u, v, _ in inputs
            ]
            for a, b, c, d, e, f, g, bias in self.hidden
        ]
        a, b, c, d, e, f, bias = self.output
        return units, [
            a * p + b * q + c * r + d * s + e * t + f * u + bias for p, q, r, s, t, u in zip(*units)
        ]

    def loss(self, samples: list[Sample]) -> float:
        """Sum of the squared errors over `samples`."""
        _, predictions = self.forward([inputs for inputs, _ in samples])
        return sum([(value - wanted) ** 2 for value, (_, wanted) in zip(predictions, samples)])

    def gradient(self, samples: list[Sample]) -> list[float]:
        """Sum over `samples` of the gradient of half the squared error; `size` members, hidden rows
        first."""
        inputs = [values for values, _ in samples]
        units, predictions = self.forward(inputs)
        errors = [value - wanted for value, (_, wanted) in zip(predictions, samples)]
        rows: list[float] = []
        for weight, values in zip(self.output, units):
            a = b = c = d = e = f = g = bias = 0.0
            for error, value, (p, q, r, s, t, u, v, _) in zip(errors, values, inputs):
                delta = error * weight * (1.0 - value * value)
                a += delta * p
                b += delta * q
                c += delta * r
                d += delta * s
                e += delta * t
                f += delta * u
                g += delta * v
                bias += delta
            rows += (a, b, c, d, e, f, g, bias)
        return rows + [sum(map(mul, errors, values)) for values in units] + [sum(errors)]

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


def samples_of(teacher: Network, indices: range) -> list[Sample]:
    """Return these samples of the fixed data set; evaluation samples follow the training
    samples."""
    drawn = []
    for index in indices:
        random = Random(DATA_SEED + 1 + index)
        inputs = [uniform(random, 1.7) for _ in range(INPUTS)]
        drawn.append(([*inputs, 1.0], uniform(random, NOISE)))
    _, predictions = teacher.forward([inputs for inputs, _ in drawn])
    return [(inputs, value + noise) for value, (inputs, noise) in zip(predictions, drawn)]


class Shard:
    """What one rank owns: every world-th training and evaluation sample, and the order it draws
    them in."""

    def __init__(self, rank: int, world: int, seed: int) -> None:
        teacher = Network(DATA_SEED, 1.2)
        total = TRAIN_SAMPLES + EVAL_SAMPLES
        self.train = samples_of(teacher, range(rank, TRAIN_SAMPLES, world))
        self.eval = samples_of(teacher, range(TRAIN_SAMPLES + rank, total, world))
        self.random = Random(seed * 1_000_003 + rank)

    def draw(self, count: int) -> list[Sample]:
        """`count` training samples, with repetition."""
        train, random = self.train, self.random.random
        size = len(train)
        return [train[int(random() * size)] for _ in range(count)]


def whole(values: list[float]) -> list[int] | None:
    """The values as integers of 1/SCALE, or None when one is not finite or too large: the training
    has diverged."""
    # A NaN or an infinity among the values makes their sum NaN or infinite.
    if not isfinite(sum(values)) or not -LIMIT < min(values) <= max(values) < LIMIT:
        return None
    return [int(value * SCALE) for value in values]
