"""Comparing sets: the statistics against scipy and against chance, the ratios, what differs, the verdicts."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace
from pathlib import Path

import outputs
import pytest
import set_of_logs as sets
from own_logs import own_log, own_set

from orchestrator.cli import main
from orchestrator.compare.comparison import compare, verdict
from orchestrator.compare.parts import (
    comparison_parts,
    difference_tables,
    verdict_lines,
    verdicts,
)
from orchestrator.compare.sides import Side, find_side
from orchestrator.mllog.score import score_dir
from orchestrator.mllog.student import cdf, quantile
from orchestrator.mllog.trimmed import Interval, interval, runs_to_settle, trimmed
from orchestrator.views.parts import Cell
from orchestrator.views.terminal import lines
from orchestrator.words import Screen


def test_quantiles_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for p, df in itertools.product(
        (0.005, 0.3, 0.6, 0.9, 0.975, 0.9995), (1, 2.5, 7, 13.9, 100, 10_000)
    ):
        assert quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-8)
        assert cdf(quantile(p, df), df) == pytest.approx(p, abs=1e-9)


def test_the_test_is_yuens() -> None:
    stats = pytest.importorskip("scipy.stats")
    chance = random.Random(5)
    a, b = ([chance.gauss(100, 0.4) for _ in range(10)] for _ in range(2))
    mine = interval(trimmed(a), trimmed(b))  # type: ignore[arg-type]
    theirs = stats.ttest_ind(a, b, equal_var=False, trim=0.1)
    # On logarithms, and with small errors a relative difference is one of logarithms.
    assert mine is not None and mine.p == pytest.approx(theirs.pvalue, rel=0.02)


def test_the_interval_holds_what_it_promises() -> None:
    """95 % of the intervals hold the true ratio, for equal and for unequal spreads."""
    chance, held, rounds = random.Random(1), 0, 400
    for _ in range(rounds):
        a = trimmed([chance.gauss(100, 3) for _ in range(10)])
        b = trimmed([chance.gauss(105, 6) for _ in range(10)])
        found = interval(a, b)  # type: ignore[arg-type]
        held += found is not None and found.low <= 1.05 <= found.high
    assert 0.915 <= held / rounds <= 0.985


def test_a_bad_run_stands_at_the_slow_end() -> None:
    times = [float(value) for value in range(1, 11)]
    assert trimmed(times).mean == 5.5  # type: ignore[union-attr]
    assert trimmed(times[:9], failed=1).mean == sum(range(2, 10)) / 8  # type: ignore[union-attr]
    assert trimmed(times, failed=2) is None and trimmed([1.0, 2.0, 3.0]) is None


@pytest.mark.parametrize(
    ("ratio", "low", "high", "expected"),
    [
        (1.002, 0.995, 1.009, "equal"),
        (1.002, 0.98, 1.03, "near"),
        (1.05, 1.02, 1.08, "apart"),
        (1.05, 0.99, 1.11, "unsure"),
        (0.9, 0.8, 0.95, "apart"),
    ],
)
def test_verdicts(ratio: float, low: float, high: float, expected: str) -> None:
    assert verdict(ratio, Interval(ratio, low, high, 0.5, 10)) == expected


@pytest.mark.parametrize("size", [1e-200, 1e-300, 1e150])
def test_means_whose_squares_no_float_holds_have_an_interval(size: float) -> None:
    mean = trimmed([size] * 10)
    assert interval(mean, mean) == Interval(1.0, 1.0, 1.0, 1.0, float("inf"))  # type: ignore[arg-type]


def test_a_spread_beyond_every_float_has_an_interval() -> None:
    wide = trimmed([-5, -5, 5.001, 5.001])
    found = interval(wide, wide)  # type: ignore[arg-type]
    assert found is not None and found.low < 1e-300 and found.high > 1e300


def test_verdict_without_an_interval() -> None:
    assert (
        verdict(1.001, None) == "near_unknown"
        and verdict(1.2, None) == "apart_unknown"
        and verdict(None, None) == "none"
    )


def test_why_there_is_no_interval(tmp_path: Path) -> None:
    logs = sets.logs(sets.MI355X)
    short, other = (side(sets.make_set(tmp_path / f"{k}", logs[k : k + 3])) for k in (0, 3))
    why = "3 successful runs, at least 4 are needed"
    assert verdict_lines(compare(other, short))[1] == f"no interval: A and B: {why}"
    assert verdict_lines(compare(side(sets.MI355X), short))[1] == f"no interval: B: {why}"
    third = replace(short, name="c")
    *_, verdict_of_c = verdicts([compare(other, other), compare(side(sets.MI355X), third)])
    assert verdict_of_c.under[0] == f"no interval: C: {why}", "C's problem is not B's"
    failed = replace(short, runs=10, failed=2)
    why = "more runs failed (2) than a score leaves out (1)"
    assert verdict_lines(compare(side(sets.MI355X), failed))[1] == f"no interval: B: {why}"


def test_ratios_are_those_of_the_scores() -> None:
    one, other = score_dir(str(sets.MI325X)), score_dir(str(sets.MI355X))
    found = compare(side(sets.MI325X), side(sets.MI355X))
    assert found.score_ratio == other.minutes / one.minutes  # type: ignore[operator]
    assert found.interval is not None and found.interval.ratio == pytest.approx(
        found.score_ratio, rel=1e-12
    )
    assert found.interval.low < found.score_ratio < found.interval.high  # type: ignore[operator]
    means = [
        score.rcp.submission_mean
        for score in (one, other)
        if score.rcp and score.rcp.submission_mean
    ]
    assert found.samples_ratio == pytest.approx(means[1] / means[0])
    assert found.throughput_ratio is not None and found.throughput_ratio > 1.9
    assert found.verdict == "apart"


def test_an_own_set_is_faster_or_slower_and_only_a_published_time_is_reproduced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = own_set(tmp_path / "slow", [own_log(index, 0.5 + index / 100) for index in range(10)])
    fast = own_set(tmp_path / "fast", [own_log(index, 0.1 + index / 500) for index in range(10)])
    assert compare(side(slow), side(fast)).outcome == "faster"
    assert compare(side(fast), side(slow)).outcome == "slower"
    assert compare(side(fast), side(fast)).outcome == "the same within 1 %"
    published = find_side("5.1/llama2_70b_lora/MI355X_1x8x1")
    assert published is not None
    assert compare(published, side(sets.MI355X)).outcome == "reproduced"
    assert compare(published, side(sets.MI325X)).outcome == "not reproduced"
    page = tmp_path / "page.html"
    assert main(["compare", str(slow), str(fast), "-o", str(page)]) == 0
    assert "in seconds of the score" in page.read_text()
    assert 'class="word">faster: ' in page.read_text()


def test_a_difference_within_the_spread_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def spread(name: str, factor: float) -> Path:
        times = [factor * (0.4 + index / 50) for index in range(10)]
        return own_set(tmp_path / name, [own_log(index, time) for index, time in enumerate(times)])

    a, b, c = spread("a", 1.0), spread("b", 1.03), spread("c", 0.97)
    assert main(["compare", str(a), str(b)]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"no sure difference: B is 3\.0 % slower, within the spread of the runs "
        r"\(\S+ \w+ against \S+ \w+\)",
        first,
    ), first
    assert second.startswith("not sure: ")
    assert main(["compare", str(a), str(b), "--json"]) == 0
    assert outputs.checked(capsys.readouterr().out)["verdict"] == "unsure"
    assert main(["compare", str(a), str(b), str(c), "--format", "html", "-o", "-"]) == 0
    page = capsys.readouterr().out
    assert "B: no sure difference: B is 3.0 % slower" in page
    assert "C: no sure difference: C is 3.0 % faster" in page
    assert main(["compare", str(a), str(b), "--format", "html", "-o", "-"]) == 0
    page = capsys.readouterr().out
    assert 'class="word">no sure difference: ' in page and 'class="big"' not in page


def test_the_certainty_is_in_the_first_words() -> None:
    def words(minutes: list[float], other: list[float], kind: str = "set") -> str:
        a, b = (
            replace(
                side(sets.MI355X),
                times=trimmed(times),
                minutes=tuple(times),
                score=sum(times) / len(times),
            )
            for times in (minutes, other)
        )
        return compare(replace(a, kind=kind), b).outcome

    wide, close = [8.0, 9.0, 11.0, 12.0], [9.99, 10.0, 10.01, 10.02]
    assert words(wide, [one * 1.001 for one in wide]) == "the same within 1 %, but not surely"
    assert words(wide, [one * 1.1 for one in wide], "published") == "no sure difference"
    assert words(close, [one * 1.1 for one in close], "published") == "not reproduced"
    assert words(close[:3], [11.0, 11.1, 11.2]) == "slower, certainty unknown"
    assert words(wide[:3], wide[:3], "published") == "reproduced", "the same logs"


def test_few_runs_give_a_rough_estimate() -> None:
    spreads = trimmed([1.0, 1.1, 1.3, 1.6]), trimmed([1.2, 1.5, 1.6, 2.0])
    a, b = (
        replace(side(sets.MI355X), times=times, score=times.mean, minutes=(), runs=4)
        for times in spreads
        if times
    )
    lines = verdict_lines(compare(a, b))
    assert lines[1] == "not sure: the 95 % interval includes equal times (within 1 %)"
    assert re.fullmatch(
        "about [0-9]+ more runs? of each would settle it, if mean and spread stay as they are; "
        "with only 4 runs both still move a lot",
        lines[2],
    ), lines
    a, b = replace(a, runs=10), replace(b, runs=10)
    assert verdict_lines(compare(a, b))[2].endswith("stay as they are")


def test_a_set_equals_itself(tmp_path: Path) -> None:
    root = sets.make_set(tmp_path, sets.logs(sets.MI355X))
    found = compare(side(sets.MI355X), side(root))
    assert (
        found.score_ratio == 1.0
        and found.within_1_percent
        and found.interval is not None
        and found.interval.p == 1.0
    )
    assert not [one for one in found.differences if one.kind != "setting"]


def test_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contents = sets.logs(sets.MI355X)
    a = sets.make_set(tmp_path / "a", contents)
    b = sets.make_set(
        tmp_path / "b",
        [
            content.replace(b'"lora_alpha", "value": 32', b'"lora_alpha", "value": 16')
            for content in contents
        ],
    )
    (b / "environment.sh").write_text(
        'declare -x LR="0.0005"\ndeclare -x TEXT=$\'a\\tb\'\ndeclare -x NEW="1"\n'
    )
    (b / "nodes/node-a/tunables.tsv").write_text("thp_enabled\talways\tmadvise\tnever\tfailed\n")
    assert main(["compare", str(a), str(b), "--json"]) == 0
    found = {
        (one["kind"], one["name"]): (one["a"], one["b"])
        for one in outputs.checked(capsys.readouterr().out)["differences"]
    }
    assert found["environment", "LR"] == ("0.0004", "0.0005") and found["environment", "NEW"] == (
        "",
        "1",
    )
    assert (
        found["environment", "NCCL_DEBUG"] == ("VERSION", "")
        and ("environment", "TEXT") not in found
    )
    assert found["tunable", "thp_enabled"] == ("always", "always, never (failed)")
    assert found["setting", "lora_alpha"] == ("32", "16")
    assert main(["compare", str(a), str(b), str(sets.MI325X)]) == 0
    text = capsys.readouterr().out
    assert (
        "\nENVIRONMENT THAT DIFFERS " in text
        and "Welch t interval for trimmed means" in text
        and "B / A" in text
    )


def test_differing_values_are_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a narrow terminal too: values often differ at their ends."""
    contents = sets.logs(sets.MI355X)
    a, b = (sets.make_set(tmp_path / name, contents) for name in "ab")
    values = [f"/{'long/' * 30}{name} --flag={name}" for name in "ab"]
    for root, value in zip((a, b), values, strict=True):
        (root / "environment.sh").write_text(f'declare -x EXTRA="{value}"\n')
    assert main(["compare", str(a), str(b)]) == 0
    assert f"EXTRA  {values[0]}  {values[1]}" in re.sub("  +", "  ", capsys.readouterr().out)
    parts = comparison_parts([compare(side(a), side(b))])
    shown = lines(parts, Screen(60))
    first = shown.index(next(line for line in shown if line.startswith("EXTRA")))
    columns = [line.ljust(60) for line in shown[first : first + 15]]
    for value, place in zip(values, _columns(shown[first - 1]), strict=True):
        folded = "".join(line[place].strip() for line in columns)
        assert folded.startswith(value.replace(" ", "")), folded
    assert max(map(len, shown[first:])) <= 60


def _columns(header: str) -> list[slice]:
    """The places of the columns A and B."""
    a, b = header.index(" A ") + 1, header.index(" B") + 1
    return [slice(a, b), slice(b, None)]


def test_page_and_terminal_show_the_same_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = sets.logs(sets.MI355X)
    a, b = (sets.make_set(tmp_path / name, contents) for name in "ab")
    (b / "environment.sh").write_text('declare -x LR="0.0005"\n')
    comparison = compare(side(a), side(b))
    [table] = difference_tables(comparison)
    assert table.caption == "Environment that differs" and len(table.rows) > 1
    assert main(["compare", str(a), str(b), "--format", "html", "-o", "-"]) == 0
    html = capsys.readouterr().out
    assert main(["compare", str(a), str(b)]) == 0
    text = capsys.readouterr().out
    assert "\nENVIRONMENT THAT DIFFERS" in text and "<caption>Environment that differs</c" in html
    for row in table.rows:
        values = [str(cell.value) for cell in row if isinstance(cell, Cell)]
        assert "  ".join(values).replace("\t", " ") in re.sub("  +", "  ", text)
        assert "</td><td>".join(f"<code>{value}</code>" for value in values[1:]) in html
    for line in verdict_lines(comparison):
        assert line in text and line in html


def test_published_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = sets.make_set(tmp_path, sets.logs(sets.MI355X))
    assert main(["compare", "6.0-0037", "6.0/flux1/MI325X_08x08x32", "--json"]) == 0
    found = outputs.checked(capsys.readouterr().out)
    assert (
        found["a"]["score_minutes"] == 92.36
        and found["score_ratio"] == 1.0
        and found["confidence"]["p"] == 1.0
    )
    assert main(["compare", "6.0/flux1/MI325X_08x08x32", str(root)]) == 2
    assert "different benchmarks" in capsys.readouterr().err


def test_sets_without_a_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = sets.plain_folder(tmp_path / "short", sets.logs(sets.MI355X)[:5])
    assert main(["compare", str(sets.MI355X), str(short)]) == 1
    text = capsys.readouterr().out
    assert re.match(r"\w+, certainty unknown: means [0-9.]+ min against 10\.[0-9]+ min ", text)
    assert "(mean)" in text and "no valid score (5 of 10 runs finished" in text
    silent = sets.plain_folder(tmp_path / "silent", [b"nothing\n"] * 3)
    assert main(["compare", str(sets.MI355X), str(silent)]) == 1
    assert "cannot be compared" in capsys.readouterr().out


def test_only_a_valid_score_reproduces_a_published_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def halved(match: re.Match[bytes]) -> bytes:
        return match[1] + b"%d" % (int(match[2]) // 2)

    count = rb'("samples_count": |"key": "train_samples", "value": )([0-9]+)'
    contents = [re.sub(count, halved, content) for content in sets.logs(sets.MI355X)]
    fast = sets.plain_folder(tmp_path / "fast", contents)
    score = score_dir(str(fast), ruleset="5.1.0")
    assert score.rcp and not score.rcp.passed and score.minutes is None
    published, page = "5.1/llama2_70b_lora/MI355X_1x8x1", tmp_path / "page.html"
    assert main(["compare", published, str(fast), "--ruleset", "5.1"]) == 1
    first, why, *others = capsys.readouterr().out.splitlines()
    entry = find_side(published)
    assert entry and entry.mean and score.olympic_mean
    means = f"{score.olympic_mean:.3f} min against {entry.mean:.2f} min"
    assert first.startswith(f"no verdict without two valid scores: means {means} (")
    assert why == "no interval: only one side has a valid score"
    assert any(re.match(r"B / A +[0-9.]+ \(means\)", line) for line in others)
    assert main(["compare", published, str(fast), "--ruleset", "5.1", "-o", str(page)]) == 1
    text = page.read_text()
    assert 'class="verdict bad"' in text and 'class="big"' not in text
    # Sets of one's own are still compared, by their means.
    assert main(["compare", str(fast), str(fast), "--ruleset", "5.1"]) == 1
    assert f"the same within 1 %: means {score.olympic_mean:.3f} min" in capsys.readouterr().out


def test_rules_of_ones_own_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = own_set(tmp_path / "a", [own_log(index, 0.5 + index / 100) for index in range(5)])
    b = own_set(tmp_path / "b", [own_log(index, 1 + index / 50) for index in range(5)], target=1.45)
    assert main(["compare", str(a), str(a)]) == 0
    assert (
        "note: both are scored by their workload's own rules: these are no MLPerf"
        in capsys.readouterr().out
    )
    assert main(["compare", str(a), str(b), "--json"]) == 0
    found = outputs.checked(capsys.readouterr().out)
    assert found["score_ratio"] == pytest.approx(2.0) and found["a"]["ruleset"] == "own"
    assert "different targets: validation loss ≤ 1.5 and validation loss ≤ 1.45" in " ".join(
        found["notes"]
    )
    assert main(["compare", str(a), str(sets.MI355X)]) == 2
    assert "different benchmarks" in capsys.readouterr().err


def test_bad_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_side("no-such-thing") is None
    assert main(["compare", str(sets.MI355X)]) == 2
    assert main(["compare", "no-such-thing", str(sets.MI355X)]) == 2
    text = capsys.readouterr().err
    assert text.count("hint:") == 2 and "neither a folder nor a published entry" in text


def side(folder: Path) -> Side:
    found = find_side(str(folder))
    assert found is not None
    return found


def test_the_first_lines_say_what_one_came_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "5.1/llama2_70b_lora/MI355X_1x8x1", str(sets.MI355X)]) == 0
    first, sure, *_ = capsys.readouterr().out.splitlines()
    assert first == "reproduced: 10.185 min against 10.18 min (+0.05 %)"
    assert sure == "the times are the same, run for run: these seem to be the same logs"
    assert main(["compare", str(sets.MI325X), str(sets.MI355X)]) == 0
    first, sure, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("faster: 10.185 min against 21.") and sure.startswith(
        "sure of the times, not of the cause: "
    )
    assert main(["compare", str(sets.MI355X), str(sets.MI355X)]) == 0
    first, same, third, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("the same within 1 %: ") and third.startswith("B takes 100.00 %")
    assert same == "the times are the same, run for run: these seem to be the same logs"


@pytest.mark.parametrize("both", [True, False])
def test_how_many_runs_would_settle_it(both: bool) -> None:
    times = [10 + step / 50 for step in range(10)]
    a, b = trimmed(times), trimmed([one * 1.001 for one in times])
    assert a is not None and b is not None
    a = a if both else a.replace(error2=a.error2 / 50)  # a side that has said all it can
    needed = runs_to_settle(a, b, 0.005, both=both)
    assert needed is not None and needed > 0
    # The mean of so many runs with the same spread: n values drawn evenly from the same range.
    count = 10 + needed
    more = trimmed([1.001 * (10 + 0.18 * step / (count - 1)) for step in range(count)])
    assert more is not None and more.error2 == pytest.approx(b.error2 * (10 / count), rel=0.25)
    assert runs_to_settle(a, a, 0.5, both=both) == 0
    assert runs_to_settle(a.replace(error2=4.0), b, 0.01, both=False) is None


def test_a_comparison_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = sets.make_set(tmp_path / "a", sets.logs(sets.MI355X))
    b = sets.make_set(tmp_path / "b", sets.logs(sets.MI355X), nodes=("node-c",))
    (b / "environment.sh").write_text('declare -x LR="<script>alert(1)</script>"\n')
    published = "5.1/llama2_70b_lora/MI355X_1x8x1"
    out = tmp_path / "x.html"
    assert main(["compare", str(a), str(b), "-o", str(out)]) == 0
    assert f"written: {out}" in capsys.readouterr().out
    text = out.read_text()
    for words in (
        "llama2_70b_lora: B against A",
        "+0.0 %",
        "the same within 1 %: 10.185 min against 10.185 min",
        "A dot per run, in minutes of the score",
        "Environment that differs",
        "&lt;script&gt;alert(1)",
        "Welch t interval",
        'id="chart-runs"',
        'id="chart-ratios-narrow"',
    ):
        assert words in text, words
    assert "<script" not in text and "<h3>" not in text and "default-src 'none'" in text
    # A dot per run, in minutes of the score: as they are read, times the factor.
    told = re.findall(r'aria-label="B: a run of ([0-9.]+) min"', text)
    score = score_dir(str(b))
    assert told == 2 * [f"{run.minutes * score.factor:.3f}" for run in score.runs]
    assert (
        main(["compare", published, str(a), str(sets.MI325X), "--format", "html", "-o", "-"]) == 0
    )
    several = capsys.readouterr().out
    assert "llama2_70b_lora: B, C against A" in several and "C: not reproduced: 21.0" in several
    assert '<div class="verdict bad">' in several
    assert '<div class="word good">B: ' in several and '<div class="word bad">C: ' in several
    names = [published, str(a), str(sets.MI325X)]
    assert main(["compare", *names, "-o", str(tmp_path / "y.html")]) == 0
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("B: reproduced: ") and second.startswith("C: not reproduced: ")
    assert main(["compare", published, str(a), "-o", str(tmp_path / "x.txt")]) == 0
    capsys.readouterr()
    assert main(["compare", published, str(a)]) == 0
    assert (tmp_path / "x.txt").read_text() == capsys.readouterr().out


def test_page_and_terminal_compare_several_sides_in_one_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["5.1/llama2_70b_lora/MI355X_1x8x1", str(sets.MI355X), str(sets.MI325X)]
    assert main(["compare", *names]) == 0
    text = capsys.readouterr().out
    assert main(["compare", *names, "--format", "html", "-o", "-"]) == 0
    html = capsys.readouterr().out
    assert text.count("SIDE  ") == html.count("<caption>What is compared</caption>") == 1
    assert [line[:5] for line in text.splitlines() if " / A " in line] == ["B / A", "C / A"]
    for row in (
        ("B", "10.185 min", "5.2084", "3168", "10", "logs, round 5.1.0"),
        ("C / A", "2.0677"),
    ):
        assert "  ".join(row) in re.sub("  +", "  ", text)
        first, *others = (value.replace("3168", "3\u202f168") for value in row)
        assert f'<th scope="row">{first}</th><td class="num">{others[0]}</td>' in html
        assert all(f">{value}</td>" in html for value in others)
    assert text.startswith("B: reproduced: ") and "\nC: not reproduced: " in text
    assert "C takes 206.68 % of A's time" in text and "C takes 206.68 % of A&#39;s time" in html
