"""mlperf-logging as the referee in tests: its own functions, called on a folder.

Only the reading of one file is remembered (by its bytes), and the loading of the rules; the decisions over a set are
made anew by the package's code every time.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import warnings
from collections.abc import Callable
from typing import Any

import yaml

with warnings.catch_warnings():
    # pandas and numpy warn about each other; that is not what these tests are about.
    warnings.simplefilter("ignore")
    from mlperf_logging.benchmark_meta import get_result_file_counts
    from mlperf_logging.compliance_checker import mlp_compliance
    from mlperf_logging.package_checker import seed_checker
    from mlperf_logging.rcp_checker import rcp_checker
    from mlperf_logging.result_summarizer import result_summarizer


class Remembered:
    """A function of (file, ...) whose outcome, return value or exception, is kept per content of the file."""

    def __init__(self, function: Callable[..., Any], skip: int = 0) -> None:
        self.function = function
        self.skip = skip
        self.known: dict[Any, tuple[Any, BaseException | None]] = {}

    def __call__(self, *args: Any) -> Any:
        with open(args[self.skip], "rb") as file:
            key = (hashlib.sha256(file.read()).digest(), *(arg for arg in args[self.skip + 1 :]))
        if key not in self.known:
            if len(self.known) > 4000:
                self.known.clear()
            try:
                self.known[key] = self.function(*args), None
            except Exception as error:  # whatever the package raises is its answer
                self.known[key] = None, error
        value, error = self.known[key]
        if error is not None:
            raise error
        return value.copy() if isinstance(value, list) else value


def _comply(path: str, ruleset: str) -> bool:
    # An exception in one file leaves the package's global queue of rule files filled.
    mlp_compliance.enqueued_configs.clear()
    checker = mlp_compliance.make_checker("training", ruleset, True, False)
    return bool(mlp_compliance.main(path, f"training_{ruleset}/common.yaml", checker)[0])


def _read_result_file(path: str, usage: str, ruleset: str) -> Any:
    mlp_compliance.enqueued_configs.clear()
    return _original_read(path, usage, ruleset)


_loaded: dict[str, Any] = {}


class _Yaml:
    BaseLoader = yaml.BaseLoader

    @staticmethod
    def load(stream: Any, Loader: Any) -> Any:
        if stream.name not in _loaded:
            _loaded[stream.name] = yaml.load(stream, Loader=Loader)
        return _loaded[stream.name]


_original_read = result_summarizer._read_result_file
comply = Remembered(_comply)
_checkers: dict[Any, Any] = {}
_make_checker = rcp_checker.RCP_Checker


def _rcp_checker(
    usage: str, ruleset: str, benchmark: str, verbose: bool, rcp_file: Any = None
) -> Any:
    if (ruleset, benchmark) not in _checkers:
        _checkers[ruleset, benchmark] = _make_checker(usage, ruleset, benchmark, verbose, rcp_file)
    return _checkers[ruleset, benchmark]


def remember() -> None:
    """Put the remembering versions in place of the package's functions of one file, for this process."""
    if mlp_compliance.yaml is _Yaml:
        return
    mlp_compliance.yaml = _Yaml
    result_summarizer._read_result_file = Remembered(_read_result_file)
    rcp_checker.read_submission_file = Remembered(rcp_checker.read_submission_file)
    rcp_checker.RCP_Checker = _rcp_checker
    read_seeds = Remembered(seed_checker.SeedChecker._get_seed_records, skip=1)
    seed_checker.SeedChecker._get_seed_records = lambda self, path: read_seeds(self, path)
    # The order of files in a folder is the file system's; sorted, the package's answers are the same every time.
    import glob

    for module in (rcp_checker, result_summarizer):
        module.glob = type(
            "glob",
            (),
            {"glob": staticmethod(lambda pattern, recursive=False: sorted(glob.glob(pattern)))},
        )


class Answer:
    """What the package says about a folder. `crash` is the traceback's last line, where it does not answer."""

    def __init__(self) -> None:
        self.crash = ""
        self.compliant: dict[str, bool | None] = {}
        self.seeds: bool | None = None
        self.rcp: tuple[bool, str, float] | None = None
        self.olympic_mean: float | None = None
        self.minutes: dict[str, float] = {}
        self.valid = False


def judge(folder: str, benchmark: str, ruleset: str, division: str = "closed") -> Answer:
    """The package checker's and the summarizer's decisions on one folder of result files."""
    answer = Answer()
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _judge(answer, folder, benchmark, ruleset, division)
    finally:
        logging.disable(logging.NOTSET)
    return answer


def _judge(answer: Answer, folder: str, benchmark: str, ruleset: str, division: str) -> None:
    files = sorted(os.path.join(folder, name) for name in os.listdir(folder))
    try:
        for path in files:
            answer.compliant[os.path.basename(path)] = None
            answer.compliant[os.path.basename(path)] = comply(path, ruleset)
        if division == "closed":
            answer.seeds = seed_checker.SeedChecker(ruleset).check_seeds(files)
            passed, message, factor = rcp_checker.check_directory(
                folder, "training", ruleset, False, False, rcp_pass="pruned_rcps"
            )
            answer.rcp = bool(passed), message, float(factor)
        full = result_summarizer._compute_strong_score_standalone(
            benchmark, "system", False, folder, "training", ruleset, return_full_scores=True
        )
        answer.minutes = {os.path.basename(path): minutes for path, minutes in full[0].items()}
        answer.olympic_mean = full[2]
    except Exception as error:  # the package ends with a traceback: no answer for this folder
        answer.crash = f"{type(error).__name__}: {error}"
        return
    bad = sum(not compliant for compliant in answer.compliant.values())
    answer.valid = (
        len(files) == get_result_file_counts("training").get(benchmark)
        and bad <= 1
        and answer.olympic_mean is not None
        and (
            division != "closed"
            or (bool(answer.seeds) and answer.rcp is not None and answer.rcp[0])
        )
    )
