"""What became of an attempt, and whose fault it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.onnode.policy.outcome import (
    AttemptFacts,
    Outcome,
    blame,
    decide,
    result_rank,
)

FOUR = ("a", "b", "c", "d")
OK = dict.fromkeys(FOUR, 0)


def outcome(exits: dict[str, int], stops: dict[str, str] | None = None, **more: object) -> Outcome:
    return decide(AttemptFacts(2, FOUR, exits, stops or {}, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "end"),
    [
        ("success", ("success", "success", "")),
        ("aborted", ("not_converged", "failed", "run_stop says aborted")),
    ],
)
def test_a_run_that_stops_is_a_result_whether_it_reached_its_target_or_not(
    status: str, end: tuple[str, ...]
) -> None:
    found = outcome(OK, {"a": status})
    assert (found.outcome, found.state, found.reason) == end
    assert found.rank == 0 and found.clean and found.codes == OK


def test_run_stop_alone_proves_a_good_run() -> None:
    found = outcome(OK)
    assert (found.outcome, found.reason, found.rank) == ("infrastructure", "no run_stop", None)


def test_images_that_exit_0_when_they_crash_are_no_success() -> None:
    found = outcome({**OK, "c": 0}, {})
    assert found.outcome == "infrastructure" and found.blamed == ()


@pytest.mark.parametrize(("node", "rank"), [("a", 0), ("b", 1), ("d", 3)])
def test_the_result_is_the_log_with_the_run_stop_wherever_it_is(node: str, rank: int) -> None:
    assert outcome(OK, {node: "success"}).rank == rank


def test_success_outweighs_an_abort_of_another_node() -> None:
    assert outcome(OK, {"a": "aborted", "c": "success"}).rank == 2


def test_of_equals_the_lowest_rank_is_the_result() -> None:
    assert result_rank(AttemptFacts(1, FOUR, OK, {"d": "success", "b": "success"})) == 1


def test_what_went_wrong_after_a_good_run_is_told() -> None:
    found = outcome({**OK, "b": 3}, {"a": "success"})
    assert (found.outcome, found.reason, found.clean) == (
        "success",
        "after run_stop: node b (rank 1) exited 3",
        False,
    )


@pytest.mark.parametrize("timed_out", [0, 60])
def test_containers_of_ranks_that_were_stopped_are_not_used_again(timed_out: int) -> None:
    found = outcome({**OK, "b": 143}, {"a": "success"}, timed_out=timed_out)
    text = "after run_stop: node b (rank 1) exited 143"
    assert (found.outcome, found.reason, found.clean) == ("success", text, False)


def test_a_remark_stands_behind_it() -> None:
    found = outcome({**OK, "b": 3}, {"a": "success"}, remark="RCCL used TCP sockets")
    assert found.reason == "after run_stop: node b (rank 1) exited 3; RCCL used TCP sockets"
    assert (
        outcome(OK, {"a": "success"}, remark="RCCL used TCP sockets").reason
        == "RCCL used TCP sockets"
    )


def test_the_time_limit_blames_nobody() -> None:
    found = outcome({"a": 143, "b": 143, "c": 143}, timed_out=60)
    assert found.reason == (
        "no run_stop within 60 s (run time-out); node d (rank 3) did not end, the other 3 were stopped"
    )
    assert found.blamed == ()


def test_a_set_that_is_ending_interrupts_its_run() -> None:
    found = outcome(dict.fromkeys(FOUR, 143), ending="ended by a signal")
    assert (found.outcome, found.reason, found.rank) == ("interrupted", "ended by a signal", None)


def test_a_good_run_counts_also_when_the_set_is_ending() -> None:
    assert outcome(OK, {"a": "success"}, ending="ended by a signal").outcome == "success"


def test_the_gate_names_the_node() -> None:
    found = outcome({}, gate={"b": "before run 2: knob"}, gate_problem="node b (rank 1): knob")
    assert (found.outcome, found.reason, found.codes) == (
        "infrastructure",
        "node b (rank 1): knob",
        {},
    )
    assert found.blamed == (("b", "gate", "before run 2: knob"),)


def test_a_set_that_ends_at_the_gate_blames_nobody() -> None:
    found = outcome({}, gate_problem="ended by a signal", ending="ended by a signal")
    assert (found.outcome, found.blamed) == ("interrupted", ())


def test_a_container_that_ended_is_blamed_before_anything_else() -> None:
    found = outcome({"a": 143, "b": 125, "c": 7})
    assert found.blamed == (("b", "container", "its container ended in run 2"),)
    assert found.silent == ()


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"exits": {"a": 143, "b": 125, "c": 143, "d": 143}}, "container"),
        ({"exits": {"a": 143, "c": 143, "d": 143}}, "silent"),
        ({"exits": {"a": 143, "b": 137, "c": 143, "d": 143}}, "exit"),
        ({"exits": {"a": 143, "b": 1, "c": 143, "d": 143}, "errors": {"b": "SignalException: 15"}}, "exit"),
        ({"exits": {"a": 143, "b": 0, "c": 143, "d": 143}}, "exit"),
        ({"exits": {}, "gate": {"b": "it let go"}, "gate_problem": "node b: it let go"}, "gate"),
    ],
)  # fmt: skip
def test_the_scheduler_alone_knows_whose_fault_its_own_ends_are(
    facts: dict[str, Any], kind: str
) -> None:
    answered, unanswered = outcome(**facts), outcome(**facts, unanswered=True)
    assert [one[:2] for one in answered.blamed] == [("b", kind)]
    assert unanswered == replace(answered, blamed=())


@pytest.mark.parametrize(
    "facts",
    [
        {"exits": {"a": 143, "b": 1, "c": 143, "d": 143}, "errors": {"b": "HIP error: out of memory"}},
        {"exits": {}, "gate": {"b": "a knob"}, "failed": {"b": "a knob"}, "gate_problem": "a knob"},
        {"exits": {"a": 143, "c": 143, "d": 143}, "protocol_errors": {"b": "it sends too much"}},
    ],
)  # fmt: skip
def test_a_node_with_a_fault_of_its_own_is_blamed_without_the_scheduler(
    facts: dict[str, Any],
) -> None:
    found = outcome(**facts, unanswered=True)
    assert [one[0] for one in found.blamed] == ["b"] and found == outcome(**facts)


def test_a_node_that_breaks_the_protocol_is_blamed_for_that() -> None:
    found = outcome({"a": 143, "b": 143, "d": 143}, protocol_errors={"c": "it sends too much"})
    assert found.blamed == (("c", "protocol", "in run 2 it sends too much"),)
    assert found.reason == (
        "node c (rank 2) was given up: it sends too much, the other 3 were stopped"
    )


def test_a_silent_node_is_blamed_and_not_waited_for() -> None:
    found = outcome({"a": 143, "b": 143, "d": 9})
    assert found.blamed == (("c", "silent", "it went silent in run 2"),)
    assert found.silent == ("c",)


def test_a_node_that_says_why_it_failed_gets_nobody_blamed() -> None:
    """Not the first one to end either: it had nothing left to do."""
    found = outcome(
        {"a": 0, "b": 143, "c": 143, "d": 143},
        failed={"c": "cannot write to node_2.log: No space left"},
    )
    assert (
        found.blamed == ()
        and "node c (rank 2) failed: cannot write to node_2.log: No space left" in found.reason
    )


def test_a_node_that_failed_by_itself_is_blamed() -> None:
    found = outcome({"a": 143, "b": 9, "c": 143, "d": 143})
    assert found.blamed == (("b", "exit", "run 2 died there (its exit code was not 0)"),)


def test_when_most_fail_by_themselves_it_is_the_program() -> None:
    assert outcome({"a": 1, "b": 1, "c": 1, "d": 143}).blamed == ()
    assert outcome(dict.fromkeys(FOUR, 1)).blamed == ()


def test_half_of_them_may_be_blamed() -> None:
    assert len(outcome({"a": 1, "b": 1, "c": 143, "d": 143}).blamed) == 2


def test_nobody_is_blamed_when_all_went_silent() -> None:
    assert outcome({}).blamed == ()


def test_one_node_alone_is_not_blamed_for_its_program() -> None:
    assert blame(1, ("a",), {"a": 1}) == ((), ())


def test_one_node_is_blamed_for_its_container() -> None:
    assert blame(1, ("a",), {"a": 125})[0] == (("a", "container", "its container ended in run 1"),)


MANY = tuple(f"n{number}" for number in range(64))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (
            {"exits": dict.fromkeys(MANY, 143) | {"n3": 9}},
            "node n3 (rank 3) exited 9, the other 63 were stopped",
        ),
        (
            {
                "exits": {node: 143 for node in MANY if node != "n3"},
                "silent_ms": {"n3": 1_800_000},
            },
            "node n3 (rank 3) went silent 30 min into the run, the other 63 were stopped",
        ),
        (
            {
                "exits": {node: 143 for node in MANY if node != "n3"} | {"n40": 7},
                "silent_ms": {"n3": 45_000},
                "lasted": {"n40": 44_000},
            },
            "node n40 (rank 40) exited 7, node n3 (rank 3) went silent in the first minute, the other 62 were stopped",
        ),
        (
            {"exits": dict.fromkeys(MANY, 143) | {"n5": 0, "n9": 0}, "lasted": {"n9": 5}},
            "nodes n[5,9] ended without a result, the other 62 were stopped",
        ),
        ({"exits": dict.fromkeys(MANY, 1)}, "all 64 nodes exited 1"),
        (
            {"exits": {node: 1 + rank % 7 for rank, node in enumerate(MANY)}},
            (
                "nodes n[0,7,14,21,28,35,42,49,56,63] exited 1, "
                "nodes n[1,8,15,22,29,36,43,50,57] exited 2, "
                "nodes n[2,9,16,23,30,37,44,51,58] exited 3, "
                "4 more ended otherwise"
            ),
        ),
        (
            {"exits": dict.fromkeys(MANY, 143), "protocol_errors": {"n3": "it sends too much"}},
            "node n3 (rank 3) was given up: it sends too much, the other 63 were stopped",
        ),
    ],
)
def test_the_reason_begins_with_the_culprit(facts: dict[str, Any], reason: str) -> None:
    assert decide(AttemptFacts(1, MANY, **facts)).reason == reason


def test_the_error_of_the_culprit_is_the_first() -> None:
    exits, errors = {"a": 1, "b": 1}, {"a": "ConnectionError: peer", "b": "KeyError: 'x'"}
    found = outcome({**HUNG, **exits}, errors=errors, lasted={"a": 9_000, "b": 5_000})
    assert found.reason == (
        "nodes b,a exited 1, the other 2 were stopped; b: KeyError: 'x'; a: ConnectionError: peer"
    )


CODES = st.dictionaries(st.sampled_from(FOUR), st.integers(0, 255), max_size=4)
STATUS = st.sampled_from(["", "success", "aborted", "x" * 50])


@given(
    CODES,
    st.dictionaries(st.sampled_from(FOUR), STATUS),
    st.sampled_from([0, 60]),
    st.sampled_from(["", "signal"]),
)
def test_a_result_only_with_a_run_stop(
    codes: dict[str, int], stops: dict[str, str], timed_out: int, ending: str
) -> None:
    found = decide(AttemptFacts(1, FOUR, codes, stops, timed_out=timed_out, ending=ending))
    assert (found.outcome == "success") == ("success" in stops.values())
    assert (found.rank is not None) <= any(stops.values())
    assert set(found.codes) == set(FOUR)
    assert {node for node, _, _ in found.blamed} <= set(FOUR) and len(found.blamed) <= 2
    assert found == decide(AttemptFacts(1, FOUR, codes, stops, timed_out=timed_out, ending=ending))


# ---- images that hide the exit code, and the last words of logs ----

HUNG = {"a": 143, "b": 143, "c": 143, "d": 143}


def test_the_node_that_ended_first_is_blamed_although_it_exited_0() -> None:
    found = outcome({**HUNG, "c": 0}, lasted={"a": 90_000, "c": 5_000})
    assert found.outcome == "infrastructure"
    assert found.reason == "node c (rank 2) ended without a result, the other 3 were stopped"
    assert found.blamed == (("c", "exit", "run 2 ended there first, without run_stop"),)


def test_of_several_that_exited_0_the_first_with_an_error_is_blamed() -> None:
    errors, lasted = {"d": "RuntimeError: HIP error"}, {"b": 4_000, "c": 6_000, "d": 5_000}
    assert outcome({"a": 143, "b": 0, "c": 0, "d": 0}, lasted=lasted).blamed[0][0] == "b"
    found = outcome({"a": 143, "b": 0, "c": 0, "d": 0}, lasted=lasted, errors=errors)
    assert found.blamed == (
        ("d", "exit", "run 2 ended there first, without run_stop: RuntimeError: HIP error"),
    )
    assert "d: RuntimeError: HIP error" in found.reason


def test_when_all_exited_0_only_the_last_words_of_a_few_tell_who_it_was() -> None:
    assert outcome(OK).blamed == ()
    assert outcome(OK, errors={"b": "KeyError: 1"}).blamed[0][0] == "b"
    differing = {node: f"KeyError: '{node}'" for node in FOUR}
    assert outcome(OK, errors=differing).blamed == ()


@pytest.mark.parametrize("codes", [OK, {**HUNG, "c": 1}, {**HUNG, "c": 0}, dict.fromkeys(FOUR, 1)])
def test_what_all_say_in_the_end_is_the_programs_fault_and_said_once(codes: dict[str, int]) -> None:
    found = outcome(codes, errors=dict.fromkeys(FOUR, "ModuleNotFoundError: No module named 'x'"))
    assert (found.blamed, found.reason) == (
        (),
        "all 4 nodes: ModuleNotFoundError: No module named 'x'",
    )


def test_the_only_node_without_a_last_word_is_named_if_the_others_lost_it() -> None:
    """All exit with 0, as images do that hide how their program ended."""
    lost = "RuntimeError: Connection closed by peer [10.0.0.7]:4411"
    errors = dict.fromkeys("abd", lost)
    reason = decide(AttemptFacts(2, FOUR, dict.fromkeys(FOUR, 0), errors=errors)).reason
    assert reason == f"node c (rank 2) ended without a last word; a, b, d: {lost}"
    errors["d"] = "run.sh: line 8: 41 Killed python3"
    reason = decide(AttemptFacts(2, FOUR, dict.fromkeys(FOUR, 0), errors=errors)).reason
    assert reason == f"d: {errors['d']}; a, b: {lost}"


def test_the_last_words_stand_behind_the_reason() -> None:
    assert outcome({**HUNG, "b": 9}, errors={"b": "KeyError: 1"}).blamed == (
        ("b", "exit", "run 2 died there (its exit code was not 0): KeyError: 1"),
    )
    one = decide(AttemptFacts(2, ("a",), {"a": 1}, errors={"a": "KeyError: 1"}, lasted={"a": 900}))
    assert one.reason == "node a (rank 0) exited 1; KeyError: 1"
    late = outcome(HUNG, timed_out=60, errors={"a": "OSError"})
    assert late.reason == "no run_stop within 60 s (run time-out); a: OSError"


def test_a_program_that_refuses_its_settings_does_so_alike_and_at_once() -> None:
    refused, soon = dict.fromkeys(FOUR, 2), dict.fromkeys(FOUR, 900)
    assert outcome(refused, lasted=soon).refused
    assert outcome({**refused, "d": 143}, lasted=soon).refused
    alike = {node: f"error: rank {rank}: no" for rank, node in enumerate(FOUR)}
    assert outcome(refused, lasted=soon, errors=alike).refused
    assert not outcome(refused, lasted=soon, errors={**alike, "d": "error: yes"}).refused
    assert not outcome(refused, lasted=soon, started=True).refused
    assert not outcome(refused, lasted=soon, failed={"a": "its storage"}).refused
    assert not outcome(refused, lasted=dict.fromkeys(FOUR, 90_000)).refused
    assert not outcome({**refused, "a": 1}, lasted=soon).refused
    assert not outcome({"a": 2, **dict.fromkeys("bcd", 143)}, lasted=soon).refused


def way(codes: dict[str, int], stops: dict[str, str] | None = None, **more: object) -> str:
    return outcome(
        codes, stops, **{"lasted": {"a": 59_000, "b": 58_000, "c": 70_000, "d": 70_000}, **more}
    ).way


def test_the_first_that_ended_by_itself_tells_how_an_attempt_died() -> None:
    assert way(dict.fromkeys(FOUR, 1)) == "exit 1"
    assert (
        way({**HUNG, "a": 9}, errors={"a": "KeyError: 'a'", "b": "ended with the others"})
        == "KeyError: 'a'"
    )
    assert way(OK, errors={"a": "secondary", "b": "first"}) == "first"


@pytest.mark.parametrize(("a", "b"), [(444, 445), (444, 443)])
def test_ends_of_a_moment_count_in_any_order(a: int, b: int) -> None:
    """A killed node and its peer, whose end and its notice of it differ by a millisecond."""
    lasted = {"a": a, "b": b}
    peer_lost = {"b": "node 1 (127.0.0.1:35314) was lost at exchange 635"}
    codes = {**HUNG, "a": 9, "b": 3}
    assert way(codes, lasted=lasted, errors=peer_lost).startswith("node 0 (0.0.0.0:0) was lost")
    assert way(codes, lasted=lasted) == "exit 9"
    echo = {"a": "RuntimeError: own", "b": "Connection reset by peer"}
    assert way(codes, lasted=lasted, errors=echo) == "RuntimeError: own"


def test_what_took_longer_or_was_ended_died_in_no_way() -> None:
    assert way(OK, lasted=dict.fromkeys(FOUR, 61_000)) == way(OK, lasted={}) == ""
    assert way({**HUNG, "d": 9}) == way(HUNG) == ""
    assert way(OK, {"a": "success"}) == way(OK, {"a": "aborted"}) == ""
    assert way(OK, timed_out=60) == way(OK, ending="signal") == ""


@given(CODES, st.dictionaries(st.sampled_from(FOUR), st.sampled_from(["", "E", "F"])))
def test_at_most_half_is_blamed_and_never_who_was_ended_by_us(
    codes: dict[str, int], errors: dict[str, str]
) -> None:
    found = decide(AttemptFacts(1, FOUR, codes, {}, errors=errors))
    assert len(found.blamed) <= 2
    assert not [node for node, _, _ in found.blamed if found.codes[node] == 143]


def test_the_first_cause_stands_before_all_else() -> None:
    told = outcome(
        {**OK, "b": 9}, cause="b: a file system is full", errors={"b": "OSError: no space"}
    )
    assert told.reason == "b: a file system is full; node b (rank 1) exited 9; b: OSError: no space"
    assert outcome(OK, timed_out=60, cause="b: a GPU is gone from the bus").reason.startswith(
        "b: a GPU is gone"
    )


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (137, "exited 137 (killed by signal 9)"),
        (139, "exited 139 (killed by signal 11)"),
        (130, "exited 130"),
        (9, "exited 9"),
    ],
)
def test_an_exit_code_of_a_signal_is_explained(code: int, text: str) -> None:
    exits = {"a": 143, "b": code, "c": 143, "d": 143}
    assert outcome(exits=exits).reason == f"node b (rank 1) {text}, the other 3 were stopped"
