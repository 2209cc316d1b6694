"""The line comes first: it is found without causes, in any order of signs, of any rank, and never in logs of good runs."""

from __future__ import annotations

import dataclasses
import gzip
import os
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import failures
import pytest
import real_logs
from rank_failures import ECHOES, FAILURES

from orchestrator.causes import cause, fields, forms, lines, prefixes, reading
from orchestrator.causes.cause import END
from orchestrator.causes.first import Ended, first_cause
from orchestrator.causes.reading import symptoms
from orchestrator.causes.tables import CAUSES
from orchestrator.evidence.explanation import Explanation
from orchestrator.onnode.policy import trouble

if sys.version_info >= (3, 11):
    from re import _constants as sre  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_constants as sre
    import sre_parse as parser

PUBLISHED = Path(__file__).resolve().parents[1] / "data/mllog"
LABELLED = [
    case
    for path in sorted(failures.FOLDER.glob("unseen_*.txt"))
    for case in failures.cases(path.stem)
]


def use_causes(monkeypatch: pytest.MonkeyPatch, causes: tuple[cause.Cause, ...]) -> None:
    monkeypatch.setattr(lines, "CAUSES", causes)
    for cached in (lines._all_signs, lines._signs, lines._index, lines._likely, lines.meaning):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def all_causes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    use_causes(monkeypatch, CAUSES)


CASES = [*LABELLED, *failures.cases("writing")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sets of CASES by their numbers."""
    place = tmp_path_factory.mktemp("cases")
    for number, case in enumerate(CASES):
        failures.make_set(place / str(number), case)
    return place


@pytest.fixture(scope="module")
def usual(folder: Path) -> list[Explanation]:
    """The explanations of CASES with all causes."""
    return explained(folder)


def explained(folder: Path, cases: Sequence[failures.Case] = CASES) -> list[Explanation]:
    return [failures.of_set(folder / str(number), case) for number, case in enumerate(cases)]


def hits(explanations: list[Explanation]) -> tuple[int, int]:
    """Return how many deciding lines are quoted, and how many first."""
    pairs = zip(explanations[: len(LABELLED)], LABELLED, strict=True)
    found = [real_logs.hits(one, case.line) for one, case in pairs]
    return sum(hit for hit, _ in found), sum(first for _, first in found)


def test_the_deciding_line_is_quoted(usual: list[Explanation]) -> None:
    quoted, first = hits(usual)
    assert len(LABELLED) >= 160
    assert quoted >= 0.93 * len(LABELLED)
    assert first >= 0.9 * len(LABELLED)


@pytest.mark.long
def test_without_any_cause_the_line_is_found_as_often(
    folder: Path, usual: list[Explanation], monkeypatch: pytest.MonkeyPatch
) -> None:
    quoted, first = hits(usual)
    use_causes(monkeypatch, ())
    without, first_without = hits(explained(folder, LABELLED))
    assert without >= 0.97 * quoted
    assert first_without >= 0.97 * first


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_order_of_signs_changes_no_answer(
    folder: Path, usual: list[Explanation], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    order = random.Random(seed)
    shuffled = []
    for row in CAUSES:
        signs = row.signs
        order.shuffle(signs)
        shuffled.append(dataclasses.replace(row, told_by=" | ".join(signs)))
    order.shuffle(shuffled)
    use_causes(monkeypatch, tuple(shuffled))
    assert [one.cause for one in explained(folder)] == [one.cause for one in usual]


def test_an_error_of_unknown_meaning_at_the_start_of_logs_changes_few_answers(
    usual: list[Explanation], tmp_path: Path
) -> None:
    remark = "error: XDG_RUNTIME_DIR not set in the environment.\n"
    same = [
        failures.explained(
            tmp_path / str(number),
            dataclasses.replace(
                case, nodes={rank: (end, remark + log) for rank, (end, log) in case.nodes.items()}
            ),
        ).cause
        == usual[number].cause
        for number, case in enumerate(LABELLED)
    ]
    # Some logs only show that a peer is gone: there the error may be the cause.
    assert sum(same) >= 0.92 * len(LABELLED)


def published_logs() -> list[Path]:
    """Return published logs of good runs; more of them in the folder that PUBLISHED_LOGS names."""
    folders = [PUBLISHED, *map(Path, filter(None, [os.environ.get("PUBLISHED_LOGS")]))]
    return [
        path
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.name.endswith((".txt", ".txt.gz", ".log", ".out"))
    ]


def test_no_sign_is_in_a_log_of_a_good_run() -> None:
    logs = published_logs()
    said = []
    for path in logs:
        text = path.read_bytes()
        text = gzip.decompress(text) if path.suffix == ".gz" else text
        said += [
            (path.name, symptom.text)
            for symptom in symptoms(text)
            if symptom.grade <= END or symptom.cause
        ]
    assert len(logs) >= 20
    # One of them was cancelled at its limit after its last result.
    assert [text for _, text in said if "DUE TO TIME LIMIT" not in text] == []


def patterns() -> Iterator[tuple[str, str]]:
    for module in (forms, fields, prefixes, reading, lines):
        for name, value in vars(module).items():
            found = value if isinstance(value, (list, tuple)) else [value]
            for item in found:
                for one in item if isinstance(item, tuple) else (item,):
                    if isinstance(one, re.Pattern):
                        text = one.pattern
                        yield name, text if isinstance(text, str) else text.decode()


def unbounded_in_unbounded(tree: object, is_inside: bool = False) -> bool:
    """Return whether a repetition without a limit has another one in it."""
    for operation, argument in tree:  # type: ignore[attr-defined]
        if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            _, most, body = argument
            is_open = most == sre.MAXREPEAT
            if (is_open and is_inside) or unbounded_in_unbounded(body, is_inside or is_open):
                return True
        elif operation is sre.SUBPATTERN:
            if unbounded_in_unbounded(argument[3], is_inside):
                return True
        elif operation is sre.BRANCH and any(
            unbounded_in_unbounded(branch, is_inside) for branch in argument[1]
        ):
            return True
    return False


def test_no_expression_can_backtrack_for_ever() -> None:
    found = [*patterns(), ("_HARMLESS", trouble._HARMLESS.pattern)]
    assert len(found) > 40
    assert [name for name, text in found if unbounded_in_unbounded(parser.parse(text))] == []
    assert unbounded_in_unbounded(parser.parse("(?:a+b?)+c"))


def test_a_line_of_any_length_is_cut_before_it_is_compared() -> None:
    log = b"x" * 3_000_000 + b" OSError: [Errno 28] No space left on device\nbye\n"
    assert symptoms(log) == []
    [symptom] = symptoms(b"OSError: [Errno 28] No space left on device " + b"x" * 3_000_000)
    assert symptom.cause == "disk_full"
    assert len(symptom.text + symptom.rest) <= reading.MOST_COMPARED


# ---- the first rank of several nodes

STEP = " iteration {at}/ 5000 | lm loss: 7.1 | grad norm: 1.0 |"


def group(seed: int) -> tuple[str, str, dict[str, bytes], dict[str, Ended]]:
    """Return (the first node, how it ended, the logs, the ends) of a run of several nodes."""
    chance = random.Random(seed)
    kind = sorted(FAILURES)[seed % len(FAILURES)]
    nodes = [f"n{rank}" for rank in range(chance.randint(2, 9))]
    first = chance.choice(nodes)
    has_stamps, skew = chance.random() < 0.5, chance.uniform(-4, 4)
    logs, ends = {}, {}
    for rank, node in enumerate(nodes):
        steps = [STEP.format(at=at) for at in range(chance.randint(2, 60))]
        lasted = 60_000 if node == first else 60_000 + chance.randint(200, 9_000)
        second = 20 + (skew if node == first else chance.uniform(6, 9))
        stamp = f"2026-11-24 10:00:{second:06.3f} " if has_stamps else ""
        if node == first:
            (end, code), times = FAILURES[kind], 1
        else:
            end, times = chance.choice(ECHOES), chance.choice((1, 1, 30))
            code = chance.choice((1, 134, 143))
        line = f"{stamp}[rank{rank}]: {end.format(rank=rank)}"
        logs[node] = "\n".join([*steps, *([line] * times if end else []), ""]).encode()
        ends[node] = Ended(code, lasted)
    lost = chance.choice([node for node in nodes if node != first])
    if seed % 3 == 0 and len(nodes) > 2:
        del logs[lost]
    return first, kind, logs, ends


def test_the_first_rank_is_found() -> None:
    missed = []
    for seed in range(90):
        first, kind, logs, ends = group(seed)
        found = first_cause({node: symptoms(log) for node, log in logs.items()}, ends)
        if found is None or found[0] != first:
            missed.append((seed, kind, first, found and (found[0], found[1].text)))
    assert len(missed) <= 4, missed


@pytest.mark.parametrize("seed", range(12))
def test_a_first_rank_without_a_log_is_not_blamed_on_another(seed: int) -> None:
    first, _, logs, ends = group(seed)
    del logs[first]
    found = first_cause({node: symptoms(log) for node, log in logs.items()}, ends)
    assert found is not None and (found[0], found[1].cause) == (first, "log_missing")


def test_the_node_without_a_last_word_is_first_if_all_others_only_lost_a_node() -> None:
    """All exit with 0, as images do that hide how their program ended."""
    lost = symptoms(b"RuntimeError: Connection closed by peer [10.0.0.7]:4411\n")
    logs = {"n0": lost, "n1": symptoms(b"step 4\n"), "n2": lost}
    ends = {node: Ended(0, 1000) for node in logs}
    for known, end in ((ends, "exit code 0"), ({}, "no exit code")):
        found = first_cause(logs, known)
        assert found is not None
        assert (found[0], found[1].text) == ("n1", f"{end}, without a last word")


def test_a_missing_log_is_reported_with_its_node(tmp_path: Path) -> None:
    lost = "[rank8]: RuntimeError: Connection closed by peer [10.0.0.7]:4411\n"
    case = failures.Case("x", "", {0: ({"exit": 1, "s": 60}, ""), 1: ({"exit": 1, "s": 70}, lost)})
    (tmp_path / "a").mkdir()
    failures.make_set(tmp_path / "a", case)
    (tmp_path / "a/runs/1/attempt_1/node_0.log").unlink()
    said = failures.of_set(tmp_path / "a", case)
    assert (said.cause, said.sentence) == (
        "log_missing",
        "n0: this node ended first, and its log is missing",
    )
    assert said.evidence[0].text == "n0: exit code 1, and its log is missing"
