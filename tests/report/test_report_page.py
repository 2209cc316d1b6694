"""The page, the text formats and the arithmetic of reports, on published sets and on set folders made of them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
import shutil
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import own_logs
import pytest
import set_of_logs as sets

from orchestrator.cli import main
from orchestrator.evidence.nodes import NodeGroup
from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.set import ledger
from orchestrator.report.document import document
from orchestrator.report.environment import read_environment
from orchestrator.report.markdown import markdown
from orchestrator.report.page import page
from orchestrator.report.reading import extremes, read_report, thinned
from orchestrator.report.rows import samples
from orchestrator.report.sections import FAILED_SETTINGS
from orchestrator.report.spreadsheet import spreadsheet
from orchestrator.report.summary import summary
from orchestrator.report.working import working
from orchestrator.words import train_time

LIMIT = 1_500_000
PUBLISHED = [sets.MI355X, sets.MI350X, sets.MI325X, sets.NVIDIA, sets.DELL]
_VOID = {"meta", "rect", "circle", "line", "path", "polyline", "polygon"}


class Structure(HTMLParser):
    """Checks that elements are closed in order, and keeps what tests ask about."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _VOID, f"<{tag}/> is not an empty element"
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.seen if name == tag]


def structure(text: str) -> Structure:
    parsed = Structure()
    parsed.feed(text)
    parsed.close()
    assert parsed.open == []
    return parsed


@pytest.fixture(scope="module")
def whole_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sets.make_set(tmp_path_factory.mktemp("sets"), sets.logs(sets.MI355X))


@pytest.fixture
def own_set(whole_set: Path, tmp_path: Path) -> Path:
    """A copy of `whole_set`, for a test that changes it."""
    return Path(shutil.copytree(whole_set, tmp_path / whole_set.name))


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.parent.name)
def test_published_sets(folder: Path) -> None:
    report = read_report(str(folder))
    text = page(report)
    parsed = structure(text)
    assert f"{report.score.minutes:.3f}" in parsed.text and "✓ valid score" in parsed.text
    charts = [one["id"] for one in parsed.named("svg") if str(one.get("class")).startswith("chart")]
    assert {
        f"chart-{name}" for name in ("times", "convergence", "samples", "throughput", "timeline")
    } <= set(charts)
    assert len(text.encode()) < LIMIT


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.parent.name)
def test_the_arithmetic_can_be_followed(folder: Path) -> None:
    """Every `expression = number` of the steps holds, and the last one is the score."""
    report = read_report(str(folder))
    checked = 0
    for step in report.steps:
        for line in step.lines:
            match = re.fullmatch(
                r"(?:run \S+: )?([-+−×/√()0-9.e ,max]+) = ([-0-9.e+]+)(?: min| \(t at.*)?", line
            )
            if match:
                expression = match[1].replace("−", "-").replace("×", "*").replace("√", "root")
                value = eval(
                    expression, {"root": lambda x: x**0.5, "max": max, "__builtins__": {}}
                )  # our own output, digits only
                assert value == pytest.approx(
                    float(match[2]), rel=2e-9, abs=1e-4 if "√" in line else 1e-9
                ), line
                checked += 1
    assert checked >= 12
    assert report.steps[-1].value == report.score.minutes
    assert report.steps[-1].lines[-1].endswith(f": {train_time(report.score.minutes)}")


def test_the_chart_of_samples_leaves_out_the_runs_that_the_arithmetic_drops(
    tmp_path: Path,
) -> None:
    """The seventh run was aborted: it takes the place of the largest, and no other is dropped there."""
    contents = sets.logs(sets.NVIDIA)
    contents[6] = contents[6].replace(b'"status": "success"', b'"status": "aborted"')
    report = read_report(str(sets.plain_folder(tmp_path / "logs", contents)))
    [step] = [step for step in report.steps if step.title.startswith("Samples to converge: sort")]
    [smallest, *_, aborted] = re.findall(r"(\S+) \[run (\d+)\]", step.lines[0])
    assert aborted == ("converged", "6") and len(step.lines[1].split(" + ")) == 8
    marks = re.findall(r"run (\d+): [^<>]* samples(, left out of the mean)?<", str(samples(report)))
    assert len({label for label, _ in marks}) == 9, "both widths of the chart have these runs"
    assert {label for label, left_out in marks if left_out} == {smallest[1]}


def test_a_path_with_brackets_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with working("reading br/run[/old][bold]"):
        pass
    assert "reading br/run[/old][bold]" in sys.stderr.getvalue()


def test_everything_of_a_set_is_shown(whole_set: Path) -> None:
    parsed = structure(page(read_report(str(whole_set))))
    for expected in (
        "10.18",
        "node-b",
        "▲ +30.0 s",
        "✗ 137",
        "node-b: the container was killed",
        "thp_enabled",
        "madvise",
        "✗ failed",
        "NCCL_DEBUG",
        "config_MI355X_1x8x1.sh:2",
        sets.DIGEST,
        "rocm/amd-mlperf:test",
        "Late most often: node-b",
        "dropped: fastest",
        "dropped: slowest",
        "11 attempts, 1 of them lost to the infrastructure",
        "3d18h between result_7.txt and result_8.txt",
        "7 → 83d18h",
    ):
        assert expected in parsed.text, expected


def test_the_page_can_be_used_without_eyes_or_mouse(whole_set: Path) -> None:
    parsed = structure(page(read_report(str(whole_set))))
    assert parsed.named("html")[0]["lang"] == "en"
    assert parsed.seen[[name for name, _ in parsed.seen].index("a")][1]["href"] == "#content"
    ids = [attributes["id"] for _, attributes in parsed.seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    for chart in parsed.named("svg"):
        if str(chart.get("class")).startswith("chart"):
            assert all(name in ids for name in str(chart["aria-labelledby"]).split())
        else:
            assert chart["aria-hidden"] == "true"
    marks = [one for one in parsed.named("g") if str(one.get("class")).startswith("mark")]
    assert len(marks) > 40 and all(one["tabindex"] == "0" and one["aria-label"] for one in marks)
    assert len(parsed.named("caption")) == len(parsed.named("table")) and all(
        one.get("scope") for one in parsed.named("th")
    )
    assert len(parsed.named("h1")) == 1
    for link in parsed.named("a"):
        assert str(link["href"]).removeprefix("#") in ids


def test_nothing_is_fetched_and_nothing_runs(whole_set: Path) -> None:
    text = page(read_report(str(whole_set)))
    assert "default-src 'none'" in text
    assert not re.search(r"<script|<link|<img|<iframe|\son\w+=|https?://|@import|url\((?!#)", text)


def test_the_same_set_gives_the_same_bytes(whole_set: Path) -> None:
    assert page(read_report(str(whole_set))) == page(read_report(str(whole_set)))


HOSTILE = "</title></svg><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u202eevil\x00"


def test_hostile_values_stay_text(tmp_path: Path) -> None:
    contents = sets.logs(sets.MI355X)
    evil = json.dumps(HOSTILE).encode()
    contents[0] = contents[0].replace(b'"status": "success"', b'"status": ' + evil)
    contents[1] = re.sub(
        rb'"key": "seed", "value": \d+', lambda _: b'"key": "seed", "value": ' + evil, contents[1]
    )
    contents[2] = (
        contents[2].replace(b'"llama2_70b_lora"', b'"\\ud800' + evil[1:])
        + b"\xff\xfe\r\r:::MLLOG {\xff\n"
    )
    root = sets.make_set(tmp_path, contents)
    (root / "environment.sh").write_bytes(b'declare -x EVIL="<script>alert(4)</script>\xff"\n')
    (root / "nodes/node-a/tunables.tsv").write_text("<b>knob\t|`1`\t2\t3\tfailed\n")
    described = json.loads((root / "set.json").read_text())
    (root / "set.json").write_text(
        json.dumps(
            {**described, "metric": HOSTILE, "image": HOSTILE, "system": "=cmd()", "nodes": [1]}
        )
    )
    report = read_report(str(root))
    text = page(report)
    parsed = structure(text)
    text.encode("utf-8")
    assert not parsed.named("script") and not parsed.named("img")
    assert "<b>knob" in parsed.text
    assert "\u202e" not in text and "\x00" not in text
    assert all(not name.startswith("on") for _, attributes in parsed.seen for name in attributes)
    pasted = markdown(report)
    assert "<script" not in pasted.replace("\\<script", "") and "\\<script" in pasted
    assert spreadsheet([report]) and document(report)["runs"][1]["seed"] == HOSTILE


def test_formats(whole_set: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(whole_set), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert (
        len(rows) == 10
        and float(rows[0]["minutes"]) > 9
        and {row["use"] for row in rows} == {"counted", "fastest", "slowest"}
    )
    for name in ("samples", "run_start_ms", "run_stop_ms", "evaluations", "valid"):
        assert rows[0][name].isdecimal(), name
    assert not [name for name, value in rows[0].items() if " " in value and name != "started_utc"]
    assert main(["report", str(whole_set), "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (
        data["score"]["valid"]
        and len(data["attempts"]) == 11
        and data["environment"][0]["name"] == "LR"
    )
    assert data["attempts"][3]["nodes"][1]["slow"] is True
    assert main(["report", str(whole_set), "--format", "md"]) == 0
    pasted = capsys.readouterr().out
    assert (
        pasted.startswith("# llama2\\_70b\\_lora on MI355X")
        and "Late most often: " in pasted
        and "`nmi_watchdog`" in pasted
    )


def test_who_set_a_variable_is_read_from_the_bundle(tmp_path: Path) -> None:
    root = sets.make_set(tmp_path, sets.logs(sets.MI355X)[:1])
    _, note = read_environment(SetEvidence(root))
    assert "not recorded" in note
    config = next((root / "bundle").glob("config_*.sh"))
    (root / "bundle/origins.tsv").write_text(
        "variable\tlayer\tfile\tline\tsource\nLR\tsystem\tsystems/x.yaml\t7\ta page\nTEXT\tcommand line\t\t\t\ntorn"
    )
    made = {config.name: hashlib.sha256(config.read_bytes()).hexdigest()}
    (root / "bundle/manifest.json").write_text(json.dumps({"outputs": made}))
    variables, note = read_environment(SetEvidence(root))
    assert note == ""
    assert {one.name: one.origin for one in variables} == {
        "LR": "system: systems/x.yaml:7",
        "TEXT": "command line",
        "NCCL_DEBUG": "",
    }
    config.write_text(f"{config.read_text()}export LR=1\n")
    assert config.name in read_environment(SetEvidence(root))[1]


def test_unfinished_and_damaged_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = sets.make_set(tmp_path, sets.logs(sets.MI355X)[:4])
    (root / "runs/3/attempt_1/state.json").write_text('{"run": "x"')
    (root / "runs/3/attempt_1/node_0.json").write_text("[]")
    (root / "environment.sh").unlink()
    out = tmp_path / "report.html"
    assert main(["report", str(root), "-o", str(out)]) == 0
    assert "no valid score yet" in capsys.readouterr().out
    parsed = structure(out.read_text())
    assert (
        "Forecast" in parsed.text
        and "attempt_1/state.json" in parsed.text
        and "no environment.sh yet" in parsed.text
    )
    for run in range(1, 5):
        (root / f"runs/{run}/result_{run}.txt").unlink()
        (root / f"runs/{run}/state.json").unlink()
    assert main(["report", str(root), "-o", str(out)]) == 0
    assert "No run has ended yet." in structure(out.read_text()).text


def test_bad_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "missing")]) == 2
    assert main(["report", str(sets.MI355X), "-o", str(tmp_path / "no/such/folder.html")]) == 2
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / "empty")]) == 2
    text = capsys.readouterr().err
    assert text.count("hint:") == 3 and "Traceback" not in text
    assert list(tmp_path.iterdir()) == [tmp_path / "empty"]


def test_size_is_bounded(tmp_path: Path) -> None:
    """30 runs with 400 evaluations each, 100 nodes and 3,000 variables."""
    contents = []
    for number, log in enumerate(sets.logs(sets.MI355X) * 3):
        stop = log.index(b"run_stop")
        line = log.rindex(b"\n", 0, stop) + 1
        start = int(re.search(rb'"time_ms": (\d+)[^\n]*"run_start"', log)[1])  # type: ignore[index]
        more = "".join(
            f':::MLLOG {{"namespace": "", "time_ms": {start + 100 * k}, "event_type": "POINT_IN_TIME", '
            f'"key": "eval_accuracy", '
            f'"value": {2 - k / 9000 + number / 100}, "metadata": {{"samples_count": {k}}}}}\n'
            for k in range(400)
        )
        contents.append(log[:line] + more.encode() + log[line:])
    root = sets.make_set(
        tmp_path, contents, nodes=tuple(f"node{index:03}" for index in range(100)), nexp=30
    )
    (root / "environment.sh").write_text(
        "".join(f'declare -x V{index}="{"x" * 300}"\n' for index in range(3000))
    )
    report = read_report(str(root))
    text = page(report)
    structure(text)
    assert len(report.runs) == 30 and len(text.encode()) < LIMIT


def test_thinning_keeps_ends_and_dips() -> None:
    points = [(float(index), 5.0) for index in range(10_000)]
    points[7777] = (7777.0, 1.0)
    assert (7777.0, 1.0) in extremes(points) and len(extremes(points)) <= 240
    few = thinned(list(range(10_000)), 48)
    assert len(few) == 48 and few[0] == 0 and few[-1] == 9999


def test_the_settings_of_the_nodes_are_those_of_the_runs(whole_set: Path) -> None:
    """What `revert` put back is not what the runs had."""
    told = {(one.knob, one.before): one for one in read_report(str(whole_set)).tunables}
    first = told["thp_enabled", "madvise"]
    assert (first.wanted, first.after, first.state, first.nodes) == (
        "always",
        "always",
        "ok",
        ("node-a",),
    )
    assert told["nmi_watchdog", "1"].state == "failed" and len(told) == 3
    text = page(read_report(str(whole_set)))
    assert "before the job" in text and "during it" in text and FAILED_SETTINGS in text


def test_a_pause_between_two_jobs_is_named(whole_set: Path) -> None:
    report = read_report(str(whole_set))
    jobs = {attempt.job_id for attempt in report.attempts}
    named = "with the time between two jobs of the set."
    assert (named in page(report)) == (len(jobs) > 1)
    first, *others = report.attempts
    later = replace(report, attempts=(replace(first, job_id="later"), *others))
    assert named in page(later)


def test_runs_side_by_side_have_no_gaps(tmp_path: Path) -> None:
    """The next start belongs to other nodes."""
    apart = read_report(
        str(own_logs.own_set(tmp_path / "a", [own_logs.own_log(k) for k in range(4)]))
    )
    assert [(gap.after, gap.before) for gap in apart.gaps] == [("1", "2"), ("2", "3"), ("3", "4")]
    assert [round(60 * gap.minutes) for gap in apart.gaps] == [70, 70, 70]
    logs = [own_logs.own_log(0, 3), *map(own_logs.own_log, (1, 2, 3))]
    beside = read_report(str(own_logs.own_set(tmp_path / "b", logs)))
    assert beside.gaps == () and "gaps" not in {item["kind"] for item in beside.score.why}
    assert "gaps" in {item["kind"] for item in apart.score.why}


def test_the_summary_names_the_times_of_the_table(whole_set: Path) -> None:
    report = read_report(str(whole_set))
    times = [run.minutes for run in report.runs if run.use == "counted" and run.minutes]
    unit = report.unit
    span = f"runs between {unit.text(min(times))} and {unit.full(max(times))}"
    assert f"{span}. " in summary(replace(report, scale=1.0))
    scaled = summary(replace(report, scale=1.008))
    assert f"{span}, times the normalisation factor 1.008000. " in scaled


def test_the_nodes_are_shown_with_who_was_set_aside_and_their_bandwidth(
    own_set: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aside = {
        "node": "node-c",
        "reason": f"check gpu_count: 7 of 8 GPUs {HOSTILE}",
        "run": 2,
        "attempt": 1,
        "time_ms": 1777000000000,
    }
    (own_set / "jobs/900.json").write_text(
        json.dumps(
            {
                "job_id": "900",
                "state": "complete",
                "started_ms": 5,
                "nodes": ["node-a", "node-b"],
                "spares": ["node-d"],
                "set_aside": [aside],
            }
        )
    )
    (own_set / "preflight").mkdir()
    (own_set / "preflight/900.tsv").write_text(
        "node\tcheck\tverdict\tms\ttext\tremedy\nnode-a\tengine\tpass\t1\t\t\nnode-c\tgpu_count\tfail\t1\t7 of 8\tdmesg\n"
    )
    (own_set / "preflight/deep-900.tsv").write_text(
        "round\tnodes\tway\tbytes\tseconds\tbusbw_gbps\twrong\tnote\nall\tnode-a,node-b,node-d\trccl\t1\t1\t90.5\t0\t\n"
        "pairs\tnode-a,node-b\trccl\t1\t1\t91.25\t0\t\npairs\tnode-a,node-d\trccl\t1\t1\t310.0\t0\t\n"
    )
    report = read_report(str(own_set))
    parsed = structure(page(report))
    for expected in (
        "Excluded nodes",
        "run 2, attempt 1",
        "7 of 8 GPUs",
        "What each node did",
        "fail: gpu_count: 7 of 8; dmesg (node-c)",
        "node-b reached 91.2 GB/s in the bandwidth test, good nodes 310.0 GB/s",
        "node-a,node-b,node-d",
        "90.5",
    ):
        assert expected in parsed.text, expected
    assert not parsed.named("script") and not parsed.named("img")
    pasted = markdown(report)
    assert (
        "Excluded nodes" in pasted
        and "in the bandwidth test, good nodes" in pasted
        and "<script" not in pasted.replace("\\<script", "")
    )
    assert main(["report", str(own_set), "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    told = {one["node"]: one for one in data["nodes"]}
    assert told["node-c"]["set_aside"][0]["run"] == 2 and told["node-b"]["bandwidth_gbps"] == 91.25
    assert told["node-a"]["good"] == 10 and len(data["bandwidth"]) == 3


def test_runs_on_different_nodes_have_times_per_group(whole_set: Path) -> None:
    report = read_report(str(whole_set))
    assert "per group of nodes" not in page(report) + markdown(report)
    groups = (
        NodeGroup(("n1",), (1, 3), (107.0, 108.0)),
        NodeGroup(("<n2>",), (2,), (110.0,)),
    )
    report = replace(report, groups=groups)
    assert document(report)["groups"][0] == {
        "nodes": ["n1"],
        "runs": [1, 3],
        "minutes": [107.0, 108.0],
        "mean": 107.5,
    }
    assert "| n1 | 1, 3 | 107.500 min | 107.000 min | 108.000 min | 0.992 |" in markdown(report)
    text = page(report)
    structure(text)
    assert "Time to train per group of nodes" in text and "110.000" in text and "<n2>" not in text


def test_a_workload_with_rules_of_its_own_is_never_taken_for_mlperf(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = own_logs.own_set(
        tmp_path / "set", [own_logs.own_log(index, 0.5 + index / 100) for index in range(5)]
    )
    report = read_report(str(folder))
    text = structure(page(report)).text
    assert "Not an MLPerf result · " in text
    assert " · the workload's own rules, not MLPerf's (set.json) · batch size " in text
    assert (
        "MLPerf Training" not in text
        and "this is no MLPerf result" in text
        and "division" not in text
    )
    assert (
        "validation loss ≤ 1.5" in text
        and "Score by the workload's own rules: the olympic mean" in text
    )
    assert "reference mean" not in text and report.steps[-1].value == report.score.minutes
    assert report.steps[-1].lines == ("rounded at the very end: 31.200 s",)
    for kind, words in (
        ("md", "the workload's own rules, not MLPerf's"),
        ("csv", ",own,"),
        ("json", '"round": "own"'),
    ):
        assert main(["report", str(folder), "--format", kind]) == 0
        assert words in capsys.readouterr().out.replace("\\", "")


def test_what_the_logs_say_otherwise_has_a_table_of_its_own(tmp_path: Path) -> None:
    entries = [
        {"key": "opt_base_learning_rate", "env": "LR", "fact": "", "value": "", "form": "{}"}
    ]
    logs = [own_logs.own_log(index, opt_base_learning_rate=0.5) for index in range(4)]
    report = read_report(str(own_logs.own_set(tmp_path / "set", logs, entries=entries)))
    said = "logged is 0.5, and the environment says LR=1e-3 (in 4 of 4 runs)"
    text = structure(page(report)).text
    assert text.count(said) == 1 and "Where logs are not as described" in text
    assert "| `opt_base_learning_rate` | logged is 0.5" in markdown(report)
    assert document(report)["score"]["differences"][0]["message"] == said


def test_the_published_result_stands_beside_the_score(whole_set: Path, tmp_path: Path) -> None:
    report = read_report(str(whole_set))
    [one] = report.published
    assert (one.submitter, one.round, one.minutes) == ("AMD", "5.1", 10.18)
    parsed = structure(page(report))
    assert "equal to the published 10.18 min (AMD, round 5.1)" in parsed.text
    assert "published 10.18 min, AMD, round 5.1" in parsed.text
    assert (
        sum(one.get("class") == "published" for one in parsed.named("line")) == 3
    )  # two charts and the legend
    assert (
        "the published 10.18 min" in markdown(report)
        and document(report)["published"][0]["minutes"] == 10.18
    )
    # Plain logs in a submission's tree are known by their folder; a GPU's name alone means many systems.
    assert [one.minutes for one in read_report(str(sets.MI350X)).published] == [122.93]
    assert (
        read_report(
            str(sets.plain_folder(tmp_path / "MI355X/llama2_70b_lora", sets.logs(sets.MI355X)))
        ).published
        == ()
    )
    # Before there is a score nothing is compared, and what is far away does not squeeze the dots.
    unfinished = read_report(str(sets.make_set(tmp_path / "part", sets.logs(sets.MI325X)[:4])))
    text = structure(page(unfinished)).text
    assert "published: 10.18 min (AMD, round 5.1)" in text and "than the published" not in text
    assert "AMD, round 5.1: too far away to be drawn" in text


def test_the_interval_is_that_of_the_mean(whole_set: Path) -> None:
    """Against the formula with Student's t at 7 degrees of freedom from a printed table, 2.364624."""
    report = read_report(str(whole_set))
    assert report.mean and report.score.minutes
    minutes = sorted(run.minutes * report.score.factor for run in report.score.runs)
    winsorised = [minutes[1], *minutes[1:9], minutes[8]]
    centre = sum(winsorised) / 10
    error = (sum((one - centre) ** 2 for one in winsorised) / (8 * 7)) ** 0.5
    low, high = report.mean.around()
    assert report.mean.mean == pytest.approx(report.score.minutes)
    assert math.log(high / low) / 2 == pytest.approx(2.364624 * error / report.mean.mean, rel=1e-6)
    assert math.sqrt(low * high) == pytest.approx(report.mean.mean)


def test_a_title_is_short_and_reasons_are_a_list(tmp_path: Path) -> None:
    """The title names a tab of a browser; the batch size stands once."""
    root = sets.make_set(tmp_path, sets.logs(sets.MI355X)[:3])
    report = read_report(str(root))
    reasons = (
        "3 of 10 runs finished",
        "the seeds repeat",
        "bad runs: " + "name, " * 60 + "z",
    )
    report = replace(report, score=report.score.replace(reasons=reasons), steps=())
    text, pasted = page(report), markdown(report)
    title = text.partition("<title>")[2].partition("</title>")[0]
    assert title == f"{report.title}: no valid score yet"
    for reason in reasons:
        assert f"<li>{reason}</li>" in text and f"\n- {reason}" in pasted
    assert pasted.count("· batch size") == 1 and "batch size:" not in pasted
    assert structure(text).text.count("· batch size") == 1 and "<dt>batch size" not in text


def test_times_have_the_unit_of_their_size(tmp_path: Path) -> None:
    folder = own_logs.own_set(
        tmp_path / "set", [own_logs.own_log(index, 0.5 + index / 100) for index in range(5)]
    )
    report = read_report(str(folder))
    text = structure(page(report)).text
    assert (
        "31.200seconds" in text
        and "olympic mean31.200 s" in text
        and "| ✓ success | 30.000 s |" in markdown(report)
    )


def test_what_a_check_said_stands_over_the_nodes(own_set: Path) -> None:
    (own_set / "preflight").mkdir()
    (own_set / "preflight/7.tsv").write_text(
        "node\tcheck\tverdict\tms\ttext\tremedy\nnode-a\tengine\tpass\t1\t\t\n"
        f"node-b\tgpu_count\twarn\t1\t7 of 8 {HOSTILE}\tdmesg\n"
    )
    parsed = structure(page(read_report(str(own_set))))
    assert "warn: gpu_count: 7 of 8" in parsed.text and "pass: " not in parsed.text
    assert (
        len([one for one in parsed.named("tr") if one.get("class") == "under"]) == 1
    )  # the lost attempt's reason
    assert not parsed.named("script") and not parsed.named("img")


def test_a_warning_stands_once_with_its_nodes_and_logs_folded(own_set: Path) -> None:
    """Of twelve nodes, in two jobs and all runs."""
    names = [f"node{number}" for number in range(1, 13)]
    (own_set / "preflight").mkdir()
    for job, nodes in (("8", names), ("9", names[:3])):
        aside = [
            {
                "node": node,
                "reason": "7 of 8 GPUs",
                "run": 2,
                "attempt": 1,
                "time_ms": 1777000000000,
            }
            for node in nodes[2:8]
        ]
        members = {"job_id": job, "state": "paused", "started_ms": 5, "nodes": nodes}
        if job == "8":
            members["set_aside"] = aside
        (own_set / f"jobs/{job}.json").write_text(json.dumps(members))
        rows = [f"{node}\tgpu_count\twarn\t1\tno driver\tinstall it" for node in nodes]
        rows += [f"{node}\tclock\twarn\t1\toff by 2 s\t" for node in nodes[1:5]]
        table = "\n".join(("node\tcheck\tverdict\tms\ttext\tremedy", *rows, ""))
        (own_set / f"preflight/{job}.tsv").write_text(table)
    report = read_report(str(own_set), ruleset="6.1.0")
    [finding] = [one for one in report.score.runs[0].findings if one.key == "config_filename"]
    everywhere = [one for one in report.score.findings if one.message == finding.message]
    assert len(everywhere) == len(report.score.runs) == 10
    for text in (structure(page(report)).text, markdown(report).replace("\\", "")):
        assert text.count("no driver") == text.count("off by 2 s") == 1
        assert "warn: gpu_count: no driver; install it (node[1-12])" in text
        assert "warn: clock: off by 2 s (node[2-5])" in text
        assert text.count("7 of 8 GPUs") == 1 and "node[3-8]" in text
        assert text.count(finding.message) == 1
        assert f"{finding.place} and 9 other places" in text


def test_an_index_of_all_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_dir = tmp_path / "sets"
    whole = sets.make_set(log_dir, sets.logs(sets.MI355X))
    part = sets.make_set(tmp_path / "part", sets.logs(sets.MI355X)[:4])
    shutil.move(part, log_dir / 'x" onerror=1 <b>#?')
    own_logs.own_set(log_dir / "own", [own_logs.own_log(index, 0.5) for index in range(5)])
    (log_dir / "damaged").mkdir()
    (log_dir / "damaged/set.json").write_text("{")
    (log_dir / "no-set").mkdir()
    out = tmp_path / "reports"
    assert main(["report", "--all", str(log_dir), "-o", str(out)]) == 0
    assert "4 sets" in capsys.readouterr().out
    text = (out / "index.html").read_text()
    parsed = structure(text)
    links = [str(one["href"]) for one in parsed.named("a")]
    files = [unquote(link) for link in links if not link.startswith("#")]
    assert (
        sorted(files) == sorted(path.name for path in out.iterdir() if path.name != "index.html")
        and len(files) == 3
    )
    assert all(link.removeprefix("#") in text for link in links) and not any(
        "onerror" in one for _, one in parsed.seen
    )
    assert (
        f"{whole.name}.html" in files and "damaged: " in parsed.text and "no-set" not in parsed.text
    )
    assert "tiny_gpt on box (no MLPerf benchmark)" in parsed.text
    for words in (
        "the published 10.18 min (AMD, round 5.1)",
        "+0.0 %",
        "(10.4",
        "4 of 10",
        "4 of 10 runs finished",
        "10.18 min",
    ):
        assert words in parsed.text, words
    charts = [one for one in parsed.named("svg") if str(one.get("class")).startswith("chart")]
    assert len(charts) == 4 and not re.search(r"<script|<link|<img|https?://", text)
    assert main(["report", "--all", str(log_dir), "--format", "csv"]) == 2
    assert main(["report", "--all", str(tmp_path / "nothing")]) == 2
    assert main(["report", "--all", str(log_dir), "-o", str(log_dir / "damaged/set.json/x")]) == 2


def test_the_head_of_the_ledger_is_in_every_form_of_it(
    own_set: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = ledger.append(own_set, ("note", {"text": "x"}), ("note", {"text": "y"}))
    report = read_report(str(own_set))
    assert ("ledger", head) in report.facts
    assert (
        head in page(report) and head in markdown(report) and head in json.dumps(document(report))
    )
    assert main(["ledger", "verify", str(own_set), "--head", head]) in (0, 1)
    assert f"no record is {head}" not in capsys.readouterr().out
    with open(own_set / ledger.NAME, "ab") as file:
        file.write(b'{"n":3')  # a crash: the head is that of the last whole record
    assert ("ledger", head) in read_report(str(own_set)).facts
