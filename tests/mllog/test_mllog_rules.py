"""The rule data, the reference points and single rules, against the package they come from."""

from __future__ import annotations

import importlib.util
import itertools
import json
import logging
import math
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from orchestrator.errors import InputError
from orchestrator.mllog import rcp
from orchestrator.mllog.compliance import check_log
from orchestrator.mllog.olympic import olympic_mean
from orchestrator.mllog.reader import read_log
from orchestrator.mllog.rules import Context, expression, rules
from orchestrator.mllog.seeds import RunSeeds, check_seeds
from orchestrator.mllog.shipped import ROUNDS

ROOT = Path(__file__).resolve().parents[2]


def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "build_rule_data", ROOT / "tools" / "build_rule_data.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_data_files_are_what_the_pinned_package_gives() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = builder().build()
    assert {path.name for path in (ROOT / "orchestrator" / "mllog" / "data").glob("*.json")} == set(
        built
    )
    for name, text in built.items():
        assert (ROOT / "orchestrator" / "mllog" / "data" / name).read_text(
            encoding="utf-8"
        ) == text, name
        assert "mlperf-logging 4.1.68" in text and "Apache License 2.0" in text


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "v['value'].lower()",
        "[x for x in v]",
        "open('x')",
        "v ** w",
        "lambda: 1",
        "f'{v}'",
    ],
)
def test_an_expression_outside_the_vocabulary_stops_the_builder(text: str) -> None:
    module = builder()
    with pytest.raises(module.Untranslatable):
        module.condition(text)


@pytest.mark.parametrize(
    "text",
    [
        "v['value'] == 16",
        "(v['value'] <= 0.925) and v['value'] > 0.0",
        "'epoch_num' in v['metadata']",
        "v['metadata']['n'] % 4 == 0",
        "('a' in v['metadata']) | ('n' in v['metadata'])",
        "v['value'] in ['x', 'y']",
        "0.0 <= v['value'] <= 1.0",
        "not v['value']",
        "v['metadata']['n'] > 0 if 'n' in v['metadata'] else True",
        "abs(v['value'] - 2) < 1e-9",
        "v['value'] * 1152 == s['b'] * 8e-5",
        "s.get('c') is not None and s['b'] <= v['value']",
        "is_integer(v['value']) and v['value'] >= 1",
        "v['value'] == math.ceil(7 / s['b'])",
    ],
)
def test_a_translated_expression_gives_what_python_gives(text: str) -> None:
    from mlperf_logging.compliance_checker.mlp_compliance import is_integer

    ours = expression(builder().condition(text)[1])
    state = {"s": {"b": 8}, "is_integer": is_integer, "math": math}
    for value in (None, 0, 1, 2, 16, 0.5, 0.925, -1, "x", "", True, [], {}, float("nan"), 10**400):
        for metadata in (
            {},
            {"n": 4},
            {"n": 0, "a": 1},
            {"n": None},
            None,
            "epoch_num",
            ["n"],
            {"epoch_num": 1},
        ):
            context = Context()
            context.state = {"b": 8}
            context.record = type("R", (), {"value": value, "metadata": metadata, "time": 1.0})
            names = {"v": {"value": value, "metadata": metadata}}
            assert outcome(ours, context) == outcome(eval, text, state, names), (value, metadata)


def outcome(call: Any, *arguments: Any) -> Any:
    try:
        return bool(call(*arguments))
    except Exception as error:  # the kind of failure is part of what is compared
        return type(error)


@pytest.mark.parametrize("ruleset", ROUNDS)
def test_every_reference_point_and_limit(ruleset: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlperf_logging.rcp_checker.rcp_checker import RCP_Checker
    logging.disable(logging.CRITICAL)
    names = json.loads(
        (ROOT / "orchestrator" / "mllog" / "data" / f"rcp-{ruleset}.json").read_text(
            encoding="utf-8"
        )
    )["tables"]
    for name in names:
        ours, theirs = rcp.table(ruleset, name), RCP_Checker("training", ruleset, name, False)
        assert ours is not None
        for point, record in zip(ours.points, theirs.rcp_data.values(), strict=True):
            assert_same(point, record)
        pruned = list(theirs.pruned_rcp_data.values())
        assert [point.batch_size for point in ours.pruned] == [record["BS"] for record in pruned]
        for low, high in itertools.pairwise(pruned):
            step = max(1, (high["BS"] - low["BS"]) // 7)
            for size in range(low["BS"] + 1, high["BS"], step):
                assert_same(ours.point(size)[0], theirs._create_interp_rcp(size, low, high)[1])
    logging.disable(logging.NOTSET)


def assert_same(point: Any, record: Any) -> None:
    assert (point.mean, point.stdev, point.limit) == pytest.approx(
        (record["RCP Mean"], record["RCP Stdev"], record["Min Epochs"]), rel=1e-11
    )


def test_no_table_and_no_round() -> None:
    assert rcp.table("5.0.0", "flux1") is None
    with pytest.raises(InputError, match="no rules for round '4.1.0'"):
        rcp.table("4.1.0", "llama2_70b_lora")
    with pytest.raises(InputError, match="no rules for round '4.1.0'"):
        rules("4.1.0")


def test_batch_sizes_below_and_above_the_table() -> None:
    table = rcp.table("6.0.0", "llama2_70b_lora")
    assert table is not None
    below = table.check(4, [3200] * 10)
    assert (
        below.passed
        and below.message == "RCP not found but slower convergence on smaller batch size"
    )
    assert table.check(4, [100] * 10).message == "Missing RCP, please submit RCP with BS = 4"
    above = table.check(256, [3200] * 10)
    assert not above.passed and above.message == "Missing RCP, please submit RCP with BS = 256"
    # 32 is pruned away: the line between 16 and 128 counts there.
    assert table.check(32, [5500] * 10).message == "RCP Interpolation"
    assert table.check("8", [3200] * 10).refused
    assert table.check(8, None).message == "Insufficient convergence"


def test_olympic_means() -> None:
    ten = [float(value) for value in range(1, 11)]
    assert olympic_mean(ten, 0, 1) == 5.5
    assert olympic_mean(ten[:9], 1, 1) == sum(ten[1:9]) / 8
    assert olympic_mean(ten[:8], 2, 1) is None
    assert olympic_mean([1.0, 2.0], 0, 1) is None
    assert olympic_mean([float(value) for value in range(40)], 0, 4) == 19.5


LINE = ':::MLLOG {"time_ms": %d, "event_type": "POINT_IN_TIME", "key": "%s", "value": %s, "metadata": %s}\n'


def log(path: Path, *records: tuple[str, Any, dict[str, Any]]) -> str:
    path.write_text(
        "".join(
            LINE % (1000 + index, key, json.dumps(value), json.dumps(metadata))
            for index, (key, value, metadata) in enumerate(records)
        ),
        encoding="utf-8",
    )
    return str(path)


@pytest.mark.parametrize(
    ("key", "value", "metadata", "ruleset", "words"),
    [
        ("lora_rank", 8, {}, "6.0.0", "the value is 8 and must be 16"),
        ("opt_adamw_beta_2", 0.99, {}, "6.0.0", ""),
        (
            "eval_accuracy",
            0.95,
            {"samples_count": 3},
            "6.0.0",
            "none of 1 evaluation meets the target (value <= 0.925 and value > 0.0)",
        ),
        ("eval_accuracy", 0.92, {}, "6.0.0", "its metadata has no `samples_count`"),
        ("init_stop", None, {}, "6.0.0", "there is no `init_start` before it"),
        ("train_samples", "", {}, "6.0.0", "the value is empty"),
        ("tensor_parallelism", 0, {}, "6.1.0", "the value is 0 and must be at least 1"),
        ("tensor_parallelism", "x", {}, "6.1.0", "cannot be applied to 'x'"),
        ("lowest_numerical_precision_in_linear", "fp7", {}, "6.0.0", "must be one of fp64, fp32"),
        ("submission_org", "", {}, "5.1.0", "the value is empty"),
    ],
)
def test_findings_in_words(
    key: str, value: Any, metadata: dict[str, Any], ruleset: str, words: str, tmp_path: Path
) -> None:
    path = log(
        tmp_path / "result_0.txt",
        ("submission_division", "closed", {}),
        ("submission_benchmark", "llama2_70b_lora", {}),
        (key, value, metadata),
    )
    findings = [
        finding
        for finding in check_log(read_log(path), rules(ruleset)).findings
        if finding.key == key and finding.line == 3
    ]
    if words:
        assert any(words in finding.message for finding in findings), [
            str(finding) for finding in findings
        ]
    else:
        assert not findings


def test_a_rule_that_needs_an_earlier_record_says_so(tmp_path: Path) -> None:
    path = log(
        tmp_path / "result_0.txt",
        ("submission_division", "closed", {}),
        ("submission_benchmark", "llama31_8b", {}),
        ("opt_learning_rate_decay_steps", 1199872, {}),
        ("opt_learning_rate_warmup_steps", 128, {}),
    )
    messages = [
        finding.message
        for finding in check_log(read_log(path), rules("6.0.0")).findings
        if finding.line == 3
    ]
    assert any(
        "needs `opt_learning_rate_warmup_steps`, which is not logged before" in message
        for message in messages
    )


def test_an_unknown_division_and_benchmark_are_fatal(tmp_path: Path) -> None:
    one = check_log(
        read_log(log(tmp_path / "a.txt", ("submission_division", "ajar", {}))), rules("6.0.0")
    )
    assert one.fatal and any(
        "`ajar`" in finding.message and finding.line == 1 for finding in one.findings
    )
    two = check_log(
        read_log(
            log(
                tmp_path / "b.txt",
                ("submission_division", "closed", {}),
                ("submission_benchmark", "doom", {}),
            )
        ),
        rules("6.0.0"),
    )
    assert two.fatal and any(
        "`doom`" in finding.message and finding.line == 2 for finding in two.findings
    )


@pytest.mark.parametrize("division", ["closed", "open"])
def test_a_benchmark_named_like_the_common_rules_is_fatal(division: str, tmp_path: Path) -> None:
    """mlperf-logging requests these rules for it again and again."""
    checked = check_log(
        read_log(
            log(
                tmp_path / "result_0.txt",
                ("submission_division", division, {}),
                ("submission_benchmark", "common", {}),
            )
        ),
        rules("6.0.0"),
    )
    fatal = [finding for finding in checked.findings if finding.severity == "fatal"]
    assert [(finding.line, finding.key) for finding in fatal] == [(2, "submission_benchmark")]
    assert "the benchmark is `common`, with which mlperf-logging never ends" in fatal[0].message


def test_repeated_seeds_of_a_log_are_counted_after_the_tenth(tmp_path: Path) -> None:
    seeds = [("seed", 7, {"file": "a.py", "lineno": 3})] * 3000
    run = RunSeeds("result_0.txt", read_log(log(tmp_path / "result_0.txt", *seeds)))
    once, *unique = check_seeds([run])
    assert (once.rule, once.line, once.severity) == ("once", 2, "warning")
    assert [(finding.rule, finding.line) for finding in unique] == [
        ("unique", line) for line in range(2, 12)
    ]
    assert "(and in more lines)" in unique[-1].message
    assert "more lines" not in unique[-2].message


def test_a_later_config_withdraws_what_an_earlier_one_found(tmp_path: Path) -> None:
    """llama2_70b_lora asks for gradient_accumulation_steps without a limit, which takes back the common `> 0`."""
    for benchmark, wrong in (("llama2_70b_lora", False), ("flux1", True)):
        path = log(
            tmp_path / "result_0.txt",
            ("submission_division", "closed", {}),
            ("submission_benchmark", benchmark, {}),
            ("gradient_accumulation_steps", 0, {}),
        )
        findings = check_log(read_log(path), rules("6.0.0")).findings
        assert (
            any(
                finding.key == "gradient_accumulation_steps" and finding.line == 3
                for finding in findings
            )
            is wrong
        )
