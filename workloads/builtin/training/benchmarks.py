"""What each benchmark's environment says and what its log has to hold.

`builtin` reports its own samples and its own loss. The others are stand-ins: the same small
training runs, and its progress and its loss are shown on the scale of the benchmark whose
environment it was given. The README describes both scales; the fixed hyper-parameters are those
that the closed division demands (mlperf-logging 4.1.68, ruleset 6.0.0).
"""

from __future__ import annotations

from training.environment import Environment
from training.failures import BadSettings
from training.mllog import Log, Scalar

BUILTIN = "builtin"

# A stand-in crosses REAL_TARGET after about REAL_STEPS steps of REAL_BATCH samples at REAL_RATE, 5
# % more or less.
REAL_STEPS = 80
REAL_BATCH = 192
REAL_RATE = 0.05
REAL_TARGET = 0.0862

# Reference convergence points of ruleset 6.0.0: global batch -> mean samples to converge. They only
# set the pace here.
REFERENCE = {
    "flux1": {512: 7_223_524, 1024: 8_490_553, 2048: 10_296_434, 4096: 15_379_115},
    "llama31_8b": {16: 161_109, 32: 178_859, 64: 226_645, 96: 278_640, 128: 344_747},
    "llama2_70b_lora": {8: 3_179, 16: 4_032, 32: 6_037, 128: 11_264},
}
# Factor of the straight line from the real loss to the benchmark's; chosen so that the curve starts
# where published
# curves start.
SLOPE = {"flux1": 0.26, "llama31_8b": 9.0, "llama2_70b_lora": 0.43}
ANCHOR = {"flux1": 0.586, "llama31_8b": 3.3, "llama2_70b_lora": 0.925}

Keys = dict[str, Scalar]


class Plan:
    """One run: what is really trained, and how it is shown."""

    def __init__(
        self, environment: Environment, benchmark: str, nodes: int, ranks_per_node: int
    ) -> None:
        self.environment = environment
        self.benchmark = benchmark
        self.nodes = nodes
        self.ranks_per_node = ranks_per_node
        self.world = nodes * ranks_per_node
        self.stand_in = benchmark != BUILTIN
        self.division = "closed" if self.stand_in else "open"
        self.keys: Keys = {}
        self.train_samples: int | None = (
            None  # None: logged at the end, as the published logs of llama31_8b do
        )
        self.skipped_evals = 0
        {
            BUILTIN: self.read_builtin,
            "flux1": self.read_flux1,
            "llama31_8b": self.read_llama31_8b,
            "llama2_70b_lora": self.read_llama2_70b_lora,
        }[benchmark]()
        # Evaluations stand where a step ends.
        self.eval_every = -(-self.eval_interval // self.global_batch) * self.global_batch
        self.samples_per_step = self.pace()

    def read_builtin(self) -> None:
        env = self.environment
        self.micro_batch = env.integer("BUILTIN_MICRO_BATCH", default=8, high=4096)
        self.learning_rate = env.number("BUILTIN_LR", default=0.03)
        self.global_batch = self.micro_batch * self.world
        self.target = env.number("BUILTIN_TARGET", default=0.045)
        self.eval_interval = env.integer(
            "BUILTIN_EVAL_EVERY_SAMPLES", default=16 * self.global_batch
        )
        self.max_samples = env.integer("BUILTIN_MAX_SAMPLES", default=640 * self.global_batch)
        self.train_samples, self.eval_samples = 2048, 256
        self.org = env.text("BUILTIN_ORG", default="local")
        self.platform = env.text("BUILTIN_PLATFORM", default=f"{self.nodes}x{self.ranks_per_node}")
        self.keys = {
            "gradient_accumulation_steps": 1,
            "opt_name": "sgd",
            "opt_base_learning_rate": self.learning_rate,
            "micro_batch_size": self.micro_batch,
        }

    def read_flux1(self) -> None:
        env = self.environment
        self.global_batch = env.integer("BATCHSIZE")
        micro = env.integer("MBS")
        self.target = env.number("TARGET_ACCURACY", default=0.586)
        self.eval_interval = env.integer("VAL_CHECK_INTERVAL", default=262_144)
        self.train_samples, self.eval_samples = 1_099_776, 29_696
        self.keys = {
            "evaluation_frequency": self.eval_interval,
            "gradient_accumulation_steps": self.accumulation(micro, self.world),
            "opt_name": "adamw",
            "opt_adamw_beta_1": 0.9,
            "opt_adamw_beta_2": 0.95,
            "opt_adamw_epsilon": 1e-08,
            "opt_adamw_weight_decay": 0.1,
            "opt_gradient_clip_norm": 1.0,
            "opt_base_learning_rate": env.number("LEARNING_RATE"),
            "opt_learning_rate_warmup_steps": env.integer("WARMUP_STEPS", default=0, low=0),
            "opt_learning_rate_training_steps": env.integer("MAX_STEPS", default=-1, low=-1),
        }
        self.publish(micro, env.integer("MAX_STEPS", default=-1, low=-1))
        self.platform = f"{self.nodes}x{self.platform}"

    def read_llama31_8b(self) -> None:
        env = self.environment
        self.global_batch = env.integer("PRIMUS_GLOBAL_BATCH_SIZE")
        micro = env.integer("PRIMUS_MICRO_BATCH_SIZE")
        self.target = env.number("TARGET_EVAL_LOSS", "MLLOG_TARGET_EVAL_LOSS", default=3.3)
        self.eval_interval = env.integer("EVAL_SAMPLES_INTERVAL", default=12_288)
        self.eval_samples = 1024
        steps = env.integer("PRIMUS_TRAIN_ITERS", default=1_200_000)
        warmup = env.integer("PRIMUS_LR_WARMUP_ITERS", default=0, low=0)
        self.keys = {
            "max_sequence_length": 8192,
            "gradient_accumulation_steps": self.accumulation(micro, self.world),
            "opt_name": "adamw",
            "opt_adamw_beta_1": 0.9,
            "opt_adamw_beta_2": 0.95,
            "opt_adamw_epsilon": 1e-05,
            "opt_adamw_weight_decay": 0.1,
            "opt_gradient_clip_norm": 1.0,
            "opt_base_learning_rate": env.number("PRIMUS_LR"),
            # Several published configs leave it to the image's own, a tenth.
            "opt_end_learning_rate": env.number(
                "PRIMUS_MIN_LR", default=env.number("PRIMUS_LR") / 10
            ),
            "opt_learning_rate_warmup_steps": warmup,
            "opt_learning_rate_decay_steps": steps - warmup,
            "opt_learning_rate_decay_schedule": "cosine with linear warmup",
            "max_steps": steps,
        }
        self.publish(micro, steps)

    def read_llama2_70b_lora(self) -> None:
        env = self.environment
        micro = env.integer("MBS", default=1)
        split = (
            env.integer("TP", default=1)
            * env.integer("PP", default=1)
            * env.integer("CP", default=1)
        )
        if self.world % split:
            raise BadSettings(f"TP x PP x CP = {split} does not divide {self.world} ranks")
        self.global_batch = env.integer("MINIBS", default=micro) * (self.world // split)
        self.target = env.number("MLLOG_TARGET_EVAL_LOSS", default=0.925)
        self.eval_interval = env.integer("VAL_CHECK_INTERVAL", default=384)
        self.skipped_evals = env.integer("SKIP_EVALS", default=3, low=0)
        self.train_samples, self.eval_samples = 3901, 173
        steps = env.integer("MAX_STEPS", default=1024)
        self.keys = {
            "gradient_accumulation_steps": self.accumulation(micro, self.world // split),
            "opt_gradient_clip_norm": 0.3,
            "opt_adamw_weight_decay": 0.0001,
            "opt_base_learning_rate": env.number("LR"),
            "opt_learning_rate_training_steps": steps,
            "opt_learning_rate_warmup_factor": 0.0,
            "lora_rank": 16,
            "lora_alpha": 32,
        }
        self.publish(micro, steps)

    def accumulation(self, micro: int, data_parallel: int) -> int:
        """Global batch = micro batch x data-parallel ranks x accumulation, or BadSettings."""
        steps, rest = divmod(self.global_batch, micro * data_parallel)
        if rest or not steps:
            raise BadSettings(
                f"global batch {self.global_batch} is not a multiple of {micro} x {data_parallel} "
                "ranks"
            )
        return steps

    def publish(self, micro: int, steps: int) -> None:
        """What all stand-ins share: the real training, the limit, and the optional keys that name
        the submission."""
        env = self.environment
        self.micro_batch = max(1, REAL_BATCH // self.world)
        self.learning_rate = REAL_RATE
        # Twice the reference is far outside of what any seed needs; a run beyond it will not
        # converge.
        limit = int(2 * self.reference())
        self.max_samples = env.integer(
            "BUILTIN_MAX_SAMPLES",
            default=min(limit, steps * self.global_batch) if steps > 0 else limit,
        )
        self.org = env.text(
            "MLLOG_SUBMISSION_ORG", "MLPERF_SUBMISSION_ORG", default="SUBMISSION_ORG_PLACEHOLDER"
        )
        self.platform = env.text(
            "MLLOG_SUBMISSION_PLATFORM", "MLPERF_SUBMISSION_PLATFORM", default="stand-in"
        )
        self.keys["micro_batch_size"] = micro
        for name in ("TENSOR", "PIPELINE", "CONTEXT", "EXPERT"):
            if env.has(f"MLLOG_{name}_PARALLELISM"):
                self.keys[f"{name.lower()}_parallelism"] = env.integer(f"MLLOG_{name}_PARALLELISM")
        if env.has("MLLOG_CONFIG_FILENAME") or env.has("CONFIG_FILENAME"):
            self.keys["config_filename"] = env.text("MLLOG_CONFIG_FILENAME", "CONFIG_FILENAME")

    def reference(self) -> float:
        """Mean samples to converge at this batch size: a table point, or the straight line between
        or beyond two."""
        points = sorted(REFERENCE[self.benchmark].items())
        above = next(
            (i for i, (batch, _) in enumerate(points) if batch >= self.global_batch),
            len(points) - 1,
        )
        (low, low_mean), (high, high_mean) = points[max(above, 1) - 1], points[max(above, 1)]
        mean = low_mean + (high_mean - low_mean) * (self.global_batch - low) / (high - low)
        return max(mean, points[0][1] / 2)

    def pace(self) -> float:
        """Reported samples that one real step stands for."""
        if not self.stand_in:
            return float(self.global_batch)
        # An evaluation sees the crossing half an interval late on the average; a quarter of it is
        # taken back, so that
        # sets land a little on the slow side of the reference mean.
        return (self.reference() - self.eval_every / 4) / REAL_STEPS

    def steps_until(self, samples: int) -> int:
        """Real steps done when `samples` are reported."""
        return round(samples / self.samples_per_step)

    def shown(self, loss: float) -> float:
        """The real evaluation loss on the benchmark's scale: a rising straight line through
        (REAL_TARGET, ANCHOR)."""
        if not self.stand_in:
            return loss
        return ANCHOR[self.benchmark] + SLOPE[self.benchmark] * (loss - REAL_TARGET)

    def describe(self, log: Log, seed: int, status: str) -> None:
        """The records between init_start and init_stop; `status` is that of the submission."""
        if self.stand_in:
            log.event("submission_benchmark", self.benchmark, stand_in=True)
        else:
            log.event("submission_benchmark", self.benchmark)
        log.event("submission_org", self.org)
        log.event("submission_division", self.division)
        log.event("submission_status", status)
        log.event("submission_platform", self.platform)
        log.event("seed", seed)
        log.event("target_accuracy", self.target)
        log.event("global_batch_size", self.global_batch)
        if self.train_samples is not None:
            log.event("train_samples", self.train_samples)
        log.event("eval_samples", self.eval_samples)
        for key, value in self.keys.items():
            log.event(key, value)

    def agreement(self) -> dict[str, str]:
        """What all nodes of a run must have been started with, by the name of the setting."""
        return {
            "benchmark": self.benchmark,
            "nodes": str(self.nodes),
            "ranks per node": str(self.ranks_per_node),
            "micro batch": str(self.micro_batch),
            "global batch": str(self.global_batch),
            "learning rate": repr(self.learning_rate),
            "target": repr(self.target),
            "evaluation interval": str(self.eval_every),
            "sample limit": str(self.max_samples),
        }


def benchmark_of(environment: Environment) -> str:
    """The benchmark whose descriptor made this environment."""
    name = environment.text("BUILTIN_BENCHMARK", "MLLOG_SUBMISSION_BENCHMARK", default="")
    if not name and environment.has("PRIMUS_GLOBAL_BATCH_SIZE"):
        name = "llama31_8b"
    if not name and environment.has("BATCHSIZE", "MBS", "TARGET_ACCURACY"):
        name = "flux1"
    name = name or BUILTIN
    if name not in (BUILTIN, *REFERENCE):
        raise BadSettings(
            f"no stand-in for benchmark {name!r}; known are {', '.join((BUILTIN, *REFERENCE))}"
        )
    return name
