"""What ends an attempt that goes on: hangs by the run's own rhythm, who stands out, sockets where RDMA is required."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_parts import settings

from orchestrator.onnode.kernel.events import NetworkUse, Pulse
from orchestrator.onnode.policy.hang import (
    on_sockets,
    silence,
    stands_out,
    unwanted_sockets,
)
from orchestrator.onnode.policy.outcome import AttemptFacts, decide

LIMITS = settings(hang_multiple=3, hang_s=1200, hang_start_s=5400)
FOUR = ("a", "b", "c", "d")
WAITS = "in all_reduce (distributed_c10d.py) < step (train.py)"


def quiet(
    seconds: float,
    *,
    interval: float = 0,
    began: bool = True,
    stopped: bool = False,
    **others: float,
) -> str:
    """Whether a run hangs whose first node is quiet for so long, and `others` as long as they say."""
    rest = int(began), int(1000 * interval), int(stopped)
    pulses = {"a": Pulse(int(1000 * seconds), *rest)}
    pulses.update((node, Pulse(int(1000 * one), 0, 0, 0)) for node, one in others.items())
    return silence(pulses, LIMITS).verdict


@pytest.mark.parametrize(
    ("seconds", "interval", "hangs"),
    [
        (3599, 0, False),  # no evaluation yet
        (3600, 0, True),
        (2400, 0, False),  # a first evaluation after 40 minutes, and no line before it
        (3000, 2400, False),
        (7199, 2400, False),
        (7200, 2400, True),
        (599, 30, False),  # a quick rhythm does not make a pause a hang
        (600, 30, True),
        (661, 220, True),
        (659, 220, False),
    ],
)
def test_a_multiple_of_the_runs_own_rhythm(seconds: float, interval: float, hangs: bool) -> None:
    assert bool(quiet(seconds, interval=interval)) is hangs


# From the logs of published entries: the longest pause between two MLLOG records before and after run_start, the time to the first
# evaluation, and the longest between two. Even where a program prints nothing else, it is not ended.
@pytest.mark.parametrize(
    ("before", "pause", "first", "later"),
    [(1190, 550, 575, 161), (7, 504, 517, 509), (366, 773, 806, 223)],
)
def test_published_runs_are_not_ended(
    before: float, pause: float, first: float, later: float
) -> None:
    assert not quiet(before, began=False)
    assert not quiet(max(pause, first))
    assert not quiet(max(pause, later), interval=first)


def test_compilation_has_a_limit_of_its_own() -> None:
    assert not quiet(5399, began=False)
    assert "(limit 5400 s: before run_start)" in quiet(5400, began=False)


def test_the_sentence_says_how_long_and_why() -> None:
    assert quiet(7300, interval=2400) == (
        "hung: no output of any node for 7300 s (limit 7200 s: its evaluations came 2400 s apart at most)"
    )
    assert "(limit 600 s: after run_stop)" in quiet(601, stopped=True)


@given(st.floats(0, 1e6), st.floats(0, 1e5), st.floats(0, 599))
def test_one_line_anywhere_is_a_sign_of_life(seconds: float, interval: float, other: float) -> None:
    assert not quiet(seconds, interval=interval, b=other)


def test_zero_switches_it_off() -> None:
    assert (
        silence(
            {"a": Pulse(10**9, 1, 1000, 0)}, settings(hang_multiple=0, hang_s=1, hang_start_s=1)
        ).verdict
        == ""
    )


PULSES = st.builds(
    Pulse,
    st.integers(0, 10**7),
    st.integers(0, 1),
    st.integers(0, 10**6) | st.just(0),
    st.integers(0, 1),
)


@given(st.dictionaries(st.sampled_from(FOUR), PULSES, min_size=1))
def test_the_pulse_of_the_whole_run_gives_the_verdict_of_its_nodes(
    pulses: dict[str, Pulse],
) -> None:
    """That pulse alone is on record, and the decision is made of it again."""
    run = silence(pulses, LIMITS)
    assert silence({"": run.pulse}, LIMITS) == run
    assert silence(pulses, LIMITS).verdict == run.verdict
    assert run.is_long or not run.hangs


def test_no_limit_applies_before_every_node_has_sent_a_pulse() -> None:
    assert silence({"a": Pulse(10**9, 1, 1000, 0)}, LIMITS, unheard=1).limit_ms == 0
    assert silence({}, LIMITS, unheard=4) == (Pulse(0, 0, 0, 0), 0, 4)


@pytest.mark.parametrize(
    ("doing", "node"),
    [
        ({"a": WAITS, "b": WAITS, "c": "in read (loader.py)", "d": WAITS}, "c"),
        ({"a": "in x (p.py)", "b": "in x (p.py)", "c": "in y (p.py)", "d": "in x (p.py)"}, "c"),
        ({"a": "", "b": "stopped: state T", "c": "", "d": WAITS}, "b"),
        ({"a": WAITS, "b": WAITS, "c": WAITS, "d": "gone: none of its processes is left"}, "d"),
        ({"a": "in x (p.py)", "b": "in y (p.py)", "c": "in z (p.py)", "d": "in x (p.py)"}, ""),
        ({"a": WAITS, "b": "in read (p.py)", "c": "in read (p.py)", "d": WAITS}, ""),
        ({"a": WAITS, "b": WAITS, "c": WAITS, "d": ""}, ""),
        ({"a": WAITS, "b": WAITS, "c": "gone: none"}, ""),  # d did not answer
        (dict.fromkeys(FOUR, WAITS), ""),
        ({}, ""),
    ],
)
def test_who_does_something_else_stands_out(doing: dict[str, str], node: str) -> None:
    assert stands_out(FOUR, {}, doing)[0] == node


@pytest.mark.parametrize(
    ("seconds", "node"),
    [
        ((100, 100, 130, 101), "c"),
        ((100, 100, 104, 101), ""),
        ((100, 3000, 3001, 3030), ""),  # only the first one logs
        ((100, 3000, 3000, 3000), ""),
    ],
)
def test_whose_output_ended_before_all_others_stands_out(
    seconds: tuple[int, ...], node: str
) -> None:
    assert (
        stands_out(FOUR, {one: 1000 * each for one, each in zip(FOUR, seconds, strict=True)}, {})[0]
        == node
    )


def test_of_two_nodes_the_age_of_their_output_tells_nothing() -> None:
    assert stands_out(("a", "b"), {"a": 100, "b": 100_000}, {}) == ("", "")
    assert stands_out(("a", "b"), {}, {"a": WAITS, "b": "in read (loader.py)"})[0] == "b"


def test_what_became_of_a_run_that_hung() -> None:
    killed = dict.fromkeys(FOUR, 143)
    found = decide(
        AttemptFacts(
            2,
            FOUR,
            killed,
            cut_short="hung: so",
            doing={**dict.fromkeys(FOUR, WAITS), "c": "in read (x.py)"},
        )
    )
    assert (found.outcome, found.clean) == ("infrastructure", False)
    assert found.reason == "node c (rank 2) stands out: in read (x.py); hung: so"
    assert found.blamed == (("c", "hung", "run 2 hung there: in read (x.py)"),)
    alike = decide(
        AttemptFacts(2, FOUR, killed, cut_short="hung: so", doing=dict.fromkeys(FOUR, WAITS))
    )
    assert (alike.reason, alike.blamed) == (f"hung: so; all 4 nodes: {WAITS}", ())
    ended_well = decide(AttemptFacts(2, FOUR, killed, {"a": "success"}, cut_short="hung: so"))
    assert (ended_well.outcome, ended_well.rank) == ("success", 0)
    assert ended_well.reason.endswith("; hung: so")


@pytest.mark.parametrize(("nodes", "blamed"), [(["c"], ["c"]), (["a", "b", "c"], [])])
def test_a_few_nodes_without_rdma_are_to_blame(nodes: list[str], blamed: list[str]) -> None:
    found = decide(
        AttemptFacts(1, FOUR, dict.fromkeys(FOUR, 143), cut_short="over sockets", sockets=nodes)
    )
    assert (found.outcome, found.reason) == ("infrastructure", "over sockets")
    assert [(node, kind) for node, kind, _ in found.blamed] == [
        (node, "network") for node in blamed
    ]


def test_sockets_matter_where_rdma_is_required() -> None:
    told = {"a": NetworkUse(8, 0, ""), "b": NetworkUse(6, 2, "Using network Socket")}
    assert on_sockets(told) == "b, 2 of 8 processes: Using network Socket"
    assert "network.rdma: required (b, 2 of 8" in unwanted_sockets(
        told, settings(network_rdma="required")
    )
    assert unwanted_sockets(told, settings(network_rdma="preferred")) == ""
    assert unwanted_sockets({"a": told["a"]}, settings(network_rdma="required")) == ""


@pytest.mark.parametrize(
    ("seconds", "interval", "odd"),
    [
        (59, 5, False),
        (60, 5, True),
        (89, 30, False),
        (90, 30, True),
        (299, 200, False),
        (300, 200, True),  # half of the limit, before three times the rhythm
        (899, 0, False),  # a quarter of the limit without a rhythm
        (900, 0, True),
    ],
)
def test_evidence_is_gathered_early(seconds: float, interval: float, odd: bool) -> None:
    pulse = Pulse(int(1000 * seconds), 1, int(1000 * interval), 0)
    assert silence({"a": pulse}, LIMITS).is_odd is odd
    assert not silence({"a": pulse}, settings(hang_multiple=0)).is_odd


STOPPED = "stopped: rank 5 does not run (state T)"


def test_the_evidence_explains_a_run_that_ended_by_itself() -> None:
    """NCCL's watchdog ends all processes before the hang's limit."""
    doing = {node: STOPPED if node == "c" else WAITS for node in FOUR}
    exits = dict.fromkeys(FOUR, 134)
    found = decide(AttemptFacts(2, FOUR, exits, doing=doing))
    ended = "all 4 nodes exited 134 (killed by signal 6)"
    assert found.reason == f"node c (rank 2) stands out: {STOPPED}; {ended}"
    assert found.blamed == (("c", "hung", f"run 2 hung there: {STOPPED}"),)
    alike = decide(AttemptFacts(2, FOUR, exits, doing=dict.fromkeys(FOUR, WAITS)))
    assert (alike.reason, alike.blamed) == (ended, ())


def test_ranks_have_other_numbers_on_every_node() -> None:
    texts = {
        node: f"rank {8 * at} in log (x.py); 7 ranks in step (t.py)" for at, node in enumerate(FOUR)
    }
    assert stands_out(FOUR, {}, texts) == ("", "")
    texts["b"] = "rank 13 in spin (x.py); 7 ranks in step (t.py)"
    assert stands_out(FOUR, {}, texts) == ("b", texts["b"])


def test_a_run_that_was_stopped_has_no_errors_of_being_stopped() -> None:
    errors = {"a": "SignalException: Process 526 got signal: 15", "b": "KeyError: 'x'"}
    cut = AttemptFacts(2, ("a", "b"), {"a": 143, "b": 143}, cut_short="hung: so", errors=errors)
    assert decide(cut).reason == "hung: so; b: KeyError: 'x'"


def test_a_single_node_is_named_and_not_blamed() -> None:
    one = AttemptFacts(2, ("a",), {"a": 1}, doing={"a": STOPPED})
    assert decide(one).reason == f"node a (rank 0): {STOPPED}; node a (rank 0) exited 1"
    cut = AttemptFacts(2, ("a",), {"a": 143}, cut_short="hung: so", doing={"a": STOPPED})
    assert decide(cut).reason == f"node a (rank 0): {STOPPED}; hung: so"
    assert decide(one).blamed == decide(cut).blamed == ()
