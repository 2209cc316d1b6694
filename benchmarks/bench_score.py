"""How fast the scoring is, against mlperf-logging and against the least that the machine could do. Prints ratios.

    pip install -e '.[test]' && python benchmarks/bench_score.py

Everything is measured in one run on one machine, best of several repetitions each:

  score      the whole score of a set against mlperf-logging on the same bytes, both warm in one process, in turns.
             mlperf-logging does what a submitter runs: compliance of every file, seed check, RCP test, score.
             Its import is not counted.
  noisy      reading a log with one record per 150 lines of console text against a bare bytes.find of the token
  memory     peak memory of a process that scores many sets, and of one that reads the noisy log
  cold       `orchestrator score` as a command against `python -c pass`, same interpreter

The llama31_8b set of 4 MB is the published MI350X set with training statistics put between its records, one every few
steps, in the form in which other submitters log them; its score must not change by that.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import logging
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data" / "mllog"
sys.path[:0] = [str(ROOT)]
TOKEN = b":::MLLOG "
MIB = 1 << 20


def best(function: Callable[[], object], repetitions: int) -> float:
    times = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def unpack(source: Path, target: Path) -> Path:
    target.mkdir(parents=True)
    for path in sorted(source.glob("*.gz")):
        (target / path.name.removesuffix(".gz")).write_bytes(gzip.decompress(path.read_bytes()))
    return target


def dense(source: Path, target: Path, size: int) -> Path:
    """A copy of a set with statistics between the records until a file has `size` bytes."""
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        lines = path.read_bytes().splitlines(keepends=True)
        begin = next(index for index, line in enumerate(lines) if b'"block_start"' in line)
        number = (size - sum(map(len, lines))) // 250
        each = number // (len(lines) - begin)
        out = lines[:begin]
        for index, line in enumerate(lines[begin:]):
            out += [statistic(index * each + step) for step in range(each)] if TOKEN in line else []
            out.append(line)
        (target / path.name).write_bytes(b"".join(out))
    return target


def statistic(step: int) -> bytes:
    loss = 1.0 + 7.123456789012345 / (1 + step / 100)
    return (
        b':::MLLOG {"namespace": "", "time_ms": %d, "event_type": "POINT_IN_TIME", "key": "tracked_stats", '
        b'"value": {"train_loss": %r}, "metadata": {"file": "/usr/local/lib/python3.12/dist-packages/logging.py", '
        b'"lineno": 104, "samples_count": %d, '
        b'"lr": %r, "step": %d}}\n'
    ) % (1759966714694 + step * 997, loss, step * 32, 0.001 / (1 + step / 1000), step)


def noisy(source: Path, target: Path, size: int) -> Path:
    """A log of `size` bytes: one record per 150 lines of console text, the records of `source` again and again."""
    lines = source.read_bytes().splitlines(keepends=True)
    text = (
        b"".join(line for line in lines if TOKEN not in line)[:20000]
        or b"some console text\n" * 900
    )
    middle = [line for line in lines if b'"train_loss"' in line or b'"tracked_stats"' in line] or [
        statistic(1)
    ]
    console = text.splitlines(keepends=True)
    console = (console * (150 // len(console) + 1))[:150]
    piece = b"".join(b"".join(console) + line for line in middle)
    with target.open("wb") as file:
        file.write(b"".join(line for line in lines if TOKEN in line))
        while file.tell() < size:
            file.write(piece)
    return target


def referee(folder: Path, benchmark: str, ruleset: str) -> object:
    from mlperf_logging.compliance_checker import mlp_compliance
    from mlperf_logging.package_checker.seed_checker import SeedChecker
    from mlperf_logging.rcp_checker import rcp_checker
    from mlperf_logging.result_summarizer import result_summarizer

    files = sorted(str(path) for path in folder.glob("result_*.txt"))
    with contextlib.redirect_stdout(io.StringIO()):
        for path in files:
            checker = mlp_compliance.make_checker("training", ruleset, True, False)
            mlp_compliance.main(path, f"training_{ruleset}/common.yaml", checker)
        SeedChecker(ruleset).check_seeds(files)
        rcp = rcp_checker.check_directory(
            str(folder), "training", ruleset, False, False, rcp_pass="pruned_rcps"
        )
        score = result_summarizer._compute_strong_score_standalone(
            benchmark, "system", False, str(folder), "training", ruleset
        )
    return score[0] * rcp[2]


def compare_scores(work: Path) -> None:
    from orchestrator.mllog.score import score_dir

    sets = [
        ("v5.0/AMD/MI300X_EPYC_9575F_pytorch/llama2_70b_lora", "5.0.0"),
        ("v5.1/AMD/MI325X_EPYC_9575F_pytorch_llama2_70b/llama2_70b_lora", "5.1.0"),
        ("v5.1/AMD/MI355X_EPYC_9575F_pytorch/llama2_70b_lora", "5.1.0"),
        ("v5.1/AMD/MI350X_EPYC_9575F_pytorch/llama31_8b", "5.1.0"),
        ("v5.0/MangoBoost/MI300X-LLMBoost-GPUBoost-4node/llama2_70b_lora", "5.0.0"),
        ("v5.1/MangoBoost/MI300X-LLMBoost-GPUBoost-2node/llama2_70b_lora", "5.1.0"),
        ("v5.1/NVIDIA/theia_ngpu72_ngc25.09_nemo/flux1", "5.1.0"),
        ("v5.0/Dell/9xXE9712x4GB200/llama2_70b_lora", "5.0.0"),
    ]
    folders = [
        (unpack(DATA / name, work / str(index)), name, ruleset)
        for index, (name, ruleset) in enumerate(sets)
    ]
    folders.insert(
        4,
        (
            dense(folders[3][0], work / "dense", 4 * MIB // 10),
            "the same with statistics, 4 MB, llama31_8b",
            "5.1.0",
        ),
    )
    print(
        "score of a set                                                          bytes    ours ms  referee ms  ratio"
    )
    for folder, name, ruleset in folders:
        benchmark = name.rsplit("/", 1)[-1] if "/" in name else "llama31_8b"
        ours = theirs = math.inf
        for _ in range(3):
            ours = min(ours, best(partial(score_dir, str(folder), ruleset=ruleset), 6))
            theirs = min(theirs, best(partial(referee, folder, benchmark, ruleset), 1))
        score = score_dir(str(folder), ruleset=ruleset)
        agree = abs((score.minutes or 0) - float(referee(folder, benchmark, ruleset))) < 1e-9
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(
            f"{name[:66]:66} {size:10d} {ours * 1e3:9.2f} {theirs * 1e3:11.1f} {theirs / ours:6.0f}x"
            f"{'' if agree else '  SCORES DIFFER'}"
        )


def compare_noisy(work: Path, size: int) -> Path:
    from orchestrator.mllog.reader import read_log

    path = noisy(work / "5" / "result_0.txt", work / "noisy.log", size)

    def find() -> None:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(MIB):
                position = chunk.find(TOKEN)
                while position >= 0:
                    position = chunk.find(TOKEN, position + 1)

    bare, ours = best(find, 4), best(lambda: read_log(str(path)), 4)
    size = path.stat().st_size
    print(
        f"\nnoisy log of {size / MIB:.0f} MiB: {size / ours / 1e9:.2f} GB/s, bytes.find of the token (same reads) "
        f"{size / bare / 1e9:.2f} GB/s: {bare / ours:.2f} of it"
    )
    return path


def peak(code: str) -> float:
    """Peak resident memory in MiB of a Python process that runs `code`."""
    watch = f"{code}\nprint(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    out = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n{watch}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(out.stdout.split()[-1]) / 1024


def compare_memory(work: Path, log: Path) -> None:
    sets = [str(work / str(index)) for index in range(8)] + [str(work / "dense")]
    nothing = peak("pass")
    scoring = peak(
        f"from orchestrator.mllog.score import score_dir\nfor folder in {sets * 5!r}: score_dir(folder)"
    )
    reading = peak(f"from orchestrator.mllog.reader import read_log\nread_log({str(log)!r})")
    print(
        f"\npeak memory: {scoring:.1f} MiB for {5 * len(sets)} sets, {reading:.1f} MiB for the noisy log "
        f"({nothing:.1f} MiB is Python itself)"
    )


def compare_cold(work: Path, repetitions: int) -> None:
    # As installed: with byte code (pip compiles what it installs; a checkout may forbid it).
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONPYCACHEPREFIX": str(work / "byte-code"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    commands = {
        "pass": [sys.executable, "-c", "pass"],
        "score": [
            sys.executable,
            "-c",
            "from orchestrator.cli import main; import sys; sys.exit(main())",
            "score",
            str(work / "2"),
            "--ruleset",
            "5.1.0",
        ],
    }
    for argv in commands.values():
        subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repetitions):
        for name, argv in commands.items():
            begin = time.perf_counter()
            subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - begin)
    bare, cold = (statistics.median(times[name]) for name in ("pass", "score"))
    print(
        f"\ncold: orchestrator score {cold * 1e3:.1f} ms, python -c pass {bare * 1e3:.1f} ms: {cold / bare:.2f}x "
        f"(medians; best against best {min(times['score']) / min(times['pass']):.2f}x)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--noisy-mib",
        type=int,
        default=256,
        help="size of the noisy log (default 256; 1024 shows the memory claim)",
    )
    parser.add_argument("--cold-runs", type=int, default=25)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="bench-score-") as folder:
        work = Path(folder)
        compare_scores(work)
        compare_memory(work, compare_noisy(work, args.noisy_mib * MIB))
        compare_cold(work, args.cold_runs)


if __name__ == "__main__":
    main()
