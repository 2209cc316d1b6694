"""The simulated agent held against the real one: the same orders and mishaps for both, and the same words from both.

A line is a step and, behind the arrow, the words that come next; `contract_parts.py` says what each step does on either
side (`MISHAPS`), which fields differ (`DIFFERS`, `TEXTS`) and which words may come at any time (`ANY_TIME`). The end of its
input is the last step of a script that has not seen `left`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from contract_parts import Benches, Model, Real, parsed, play

READY = {
    "plain": "start -> network NETWORK; facts FACTS; ready none",
    "checks": "start -> network NETWORK; facts FACTS; ready none",
    "two nodes": "start -> network NETWORK; host NAME ''; facts FACTS; ready none",
    "tuned": "start -> network NETWORK; facts FACTS; ready none",
    "container": "start -> network NETWORK; facts FACTS; ready IMAGE",
}
"""What `ready` stands for as the first step."""
SEEDS = range(5)
"""The model's times are drawn: its words must not depend on them."""

HANGS = """ready
            prepare 1.1             -> prepared 1.1 MS - -
            go 1.1 hangs
            1.1 is up
"""
SCRIPTS = {
    "plain": {
        "nothing to do": """
            ready
            ping 1                  -> pong 1
        """,
        "a folder that cannot be made": """
            its folder is a file
            start                   -> failed storage cannot write to SET/nodes/n1: File exists; left
        """,
        "orders before it is ready wait": """
            start
            prepare 1.1
            ping 1
            all is obeyed           -> network NETWORK; facts FACTS; ready none; prepared 1.1 MS - -; pong 1
            stop 1.1                -> exit 1.1 143 MS MS ''
        """,
        # ---- chosen or not
        "chosen at once": """
            the loop chooses
            start                   -> network NETWORK; facts FACTS; waits
            use n2 n1               -> ready none
            prepare 1.1             -> prepared 1.1 MS - -
            stop 1.1                -> exit 1.1 143 MS MS ''
        """,
        "a spare, and what it does not heed": """
            the loop chooses
            start                   -> network NETWORK; facts FACTS; waits
            prepare 1.1
            pull n1
            use n2
            use
            line {"do": "use"}
            line {"do": "use", "nodes": "n1"}
            all is obeyed
            ping 1                  -> pong 1
            use n1                  -> ready none
            go 1.1
            all is obeyed
        """,
        "a spare that nobody wants": """
            the loop chooses
            start                   -> network NETWORK; facts FACTS; waits
            its input ends          -> left
        """,
        "passed over later": """
            ready
            use n1 n2
            all is obeyed
            use n2                  -> left
        """,
        "passed over during a run": """
            ready, and 1.1 hangs
            use n2
            prepare 2.1             -> exit 1.1 143 MS MS ''; left
        """,
        # ---- how runs end
        "runs that end by themselves": """
            ready
            prepare 1.1             -> prepared 1.1 MS - -
            go 1.1 succeeds         -> exit 1.1 0 MS MS success
            prepare 2.1             -> prepared 2.1 MS - -
            go 2.1 misses its target -> exit 2.1 0 MS MS aborted
            prepare 3.1             -> prepared 3.1 MS - -
            go 3.1 prints nothing   -> exit 3.1 0 MS MS ''
            prepare 4.1             -> prepared 4.1 MS - -
            go 4.1 exits with 7     -> exit 4.1 7 MS MS ''
            prepare 4.2             -> prepared 4.2 MS - -
            go 4.2 is killed        -> exit 4.2 137 MS MS ''
            prepare 5.1             -> prepared 5.1 MS - -
            go 5.1 fails after run_stop -> exit 5.1 1 MS MS success
            prepare 6.1             -> prepared 6.1 MS - -
            go 6.1 prints too much  -> exit 6.1 0 MS MS success
            prepare 7.1             -> prepared 7.1 MS - -
            go 7.1 tells of its network
                                    -> transport 7.1 1 1 Using network Socket; exit 7.1 0 MS MS success
        """,
        "the content of its container": """
            ready
            prepare 1.1             -> prepared 1.1 MS - -
            go 1.1 succeeds         -> inside 1.1; exit 1.1 0 MS MS success
            prepare 2.1             -> prepared 2.1 MS - -
            go 2.1 exits with 7     -> exit 2.1 7 MS MS ''
        """,
        "stopped": """
            ready, and 1.1 hangs
            stop 1.1
            stop 1.1                -> exit 1.1 143 MS MS ''
            stop 1.1
            go 1.1
            all is obeyed
        """,
        "stopped at once": """
            ready
            prepare 1.1
            go 1.1 hangs
            stop 1.1                -> prepared 1.1 MS - -; exit 1.1 143 MS MS ''
        """,
        "stopped after run_stop": """
            ready
            prepare 1.1             -> prepared 1.1 MS - -
            go 1.1 hangs after run_stop
            1.1 is up
            stop 1.1                -> exit 1.1 143 MS MS success
        """,
        "stopped, and ignores TERM": """
            ready
            prepare 1.1             -> prepared 1.1 MS - -
            go 1.1 ignores TERM
            1.1 is up
            stop 1.1                -> exit 1.1 143 MS MS ''
            prepare 1.2             -> prepared 1.2 MS - -
            go 1.2 succeeds         -> exit 1.2 0 MS MS success
        """,
        "stopped before it goes": """
            ready
            prepare 1.1             -> prepared 1.1 MS - -
            stop 1.1                -> exit 1.1 143 MS MS ''
            go 1.1
            all is obeyed
            ping 1                  -> pong 1
        """,
        # ---- orders that are not as usual
        "another run while one is at work": """
            ready, and 1.1 hangs
            prepare 1.2             -> exit 1.1 143 MS MS ''; prepared 1.2 MS - -
            go 1.1
            stop 1.1
            all is obeyed
            prepare 2.1             -> exit 1.2 143 MS MS ''; prepared 2.1 MS - -
            stop 2.1                -> exit 2.1 143 MS MS ''
        """,
        "everything twice": """
            ready
            prepare 1.1             -> prepared 1.1 MS - -
            prepare 1.1             -> exit 1.1 143 MS MS ''; prepared 1.1 MS - -
            go 1.1 hangs
            go 1.1
            1.1 is up
            evidence 1.1
            evidence 1.1            -> evidence 1.1 DOING; evidence 1.1 DOING
            stop 1.1
            stop 1.1                -> exit 1.1 143 MS MS ''
        """,
        "orders for another run": """
            ready
            go 1.1
            stop 1.1
            evidence 1.1
            prepare 1.1             -> prepared 1.1 MS - -
            go 1.1 hangs
            1.1 is up
            go 2.1
            stop 1.2
            evidence 2.1
            prepare 2.1 for n2 n3
            all is obeyed
            ping 1                  -> pong 1 1.1 MS 0 MS 0
            stop 1.1                -> exit 1.1 143 MS MS ''
        """,
        "lines that are no orders": """
            ready, and 1.1 hangs
            line no json
            line {"do": "stop", "id": "1.1"
            line ["stop", "1.1"]
            line null
            line {}
            line {"do": 7, "id": "1.1"}
            line {"do": ["stop"], "id": "1.1"}
            line {"do": "dance", "id": "1.1"}
            line {"do": "stop"}
            line {"do": "stop", "id": ["1.1"]}
            line {"do": "evidence", "id": 1.1}
            line {"do": "pull", "nodes": ["n1"]}
            line {"do": "use", "nodes": ["n1"]}
            line {"do": "prepare", "nodes": ["n1"]}
            line {"do": "prepare", "nodes": ["n1"], "id": "2.1", "run": "2", "attempt": 1, "seed": 1, "port": 1, "master": "n1"}
            line {"do": "prepare", "nodes": "n1", "id": "2.1", "run": 2, "attempt": 1, "seed": 1, "port": 1, "master": "n1"}
            line {"do": "prepare", "nodes": null, "id": "2.1", "run": 2, "attempt": 1, "seed": 1, "port": 1, "master": "n1"}
            line {"do": "prepare", "nodes": ["n1"], "id": "2.1", "run": true, "attempt": 1, "seed": 1, "port": 1, "master": "n1"}
            all is obeyed
            ping 1                  -> pong 1 1.1 MS 0 MS 0
            stop 1.1                -> exit 1.1 143 MS MS ''
        """,
        "a rank that is not the first": """
            ready
            prepare 1.1 for n3 n1 n2 -> prepared 1.1 MS - -
            go 1.1 succeeds         -> exit 1.1 0 MS MS success
        """,
        "pulses": """
            ready
            ping 1                  -> pong 1
            prepare 1.1             -> prepared 1.1 MS - -
            ping 2                  -> pong 2 1.1 MS 0 MS 0
            go 1.1 hangs after run_start
            1.1 is up
            ping 3                  -> pong 3 1.1 MS 1 MS 0
            stop 1.1                -> exit 1.1 143 MS MS ''
            ping 4                  -> pong 4
            prepare 1.2             -> prepared 1.2 MS - -
            go 1.2 succeeds         -> exit 1.2 0 MS MS success
            ping 5                  -> pong 5
        """,
        "the end of the job is announced": """
            ready
            end
            prepare 1.1             -> prepared 1.1 MS - -
            stop 1.1                -> exit 1.1 143 MS MS ''
        """,
        # ---- evidence
        "evidence of a hang": """
            ready
            evidence 1.1
            prepare 1.1             -> prepared 1.1 MS - -
            evidence 1.1            -> evidence 1.1 DOING
            go 1.1 hangs
            1.1 is up
            evidence 1.1            -> evidence 1.1 DOING
            stop 1.1                -> exit 1.1 143 MS MS ''
            evidence 1.1
            all is obeyed
        """,
        "evidence comes before the next order": """
            ready, and 1.1 hangs
            evidence 1.1
            prepare 1.2             -> evidence 1.1 DOING; exit 1.1 143 MS MS ''; prepared 1.2 MS - -
            stop 1.2                -> exit 1.2 143 MS MS ''
        """,
        "a stop does not wait for evidence": """
            it is hard to look into
            ready, and 1.1 hangs
            evidence 1.1
            it looks into 1.1
            stop 1.1                -> exit 1.1 143 MS MS ''
            it has looked           -> evidence 1.1 DOING
            prepare 1.2             -> prepared 1.2 MS - -
            stop 1.2                -> exit 1.2 143 MS MS ''
        """,
        "nobody waits for evidence": """
            it is hard to look into
            ready, and 1.1 hangs
            evidence 1.1
            it looks into 1.1
            its input ends          -> exit 1.1 143 MS MS ''; left
        """,
        "evidence of a run that ends meanwhile": """
            it is hard to look into
            ready, and 1.1 hangs
            evidence 1.1
            it looks into 1.1
            its training is killed  -> exit 1.1 137 MS MS ''
            stop 1.1
            it has looked           -> evidence 1.1 DOING
            prepare 1.2             -> prepared 1.2 MS - -
            stop 1.2                -> exit 1.2 143 MS MS ''
        """,
        "evidence comes first though nothing starts runs any more": """
            it is hard to look into
            ready, and 1.1 hangs
            evidence 1.1
            it looks into 1.1
            its place ends
            it has looked           -> evidence 1.1 DOING; exit 1.1 125 MS MS ''
                                    -> gone the process that starts its runs was ended; left
        """,
        # ---- storage
        "the attempt has no folder": """
            ready
            prepare 1.1 without a folder
                                    -> failed storage SET/runs/1/attempt_1/node_0.log: No such file or directory; left
        """,
        "the disk of a log is full": """
            ready
            the log of 1.1 is on a full disk
            prepare 1.1             -> prepared 1.1 MS - -
            go 1.1 hangs after run_stop
                                    -> failed storage cannot write to SET/runs/1/attempt_1/node_0.log: No space left on device
                                    -> exit 1.1 143 MS MS ''; left
        """,
        # ---- its end
        "the input ends during a run": """
            ready, and 1.1 hangs
            its input ends          -> exit 1.1 143 MS MS ''; left
        """,
        "the input ends before a run goes": """
            ready
            prepare 1.1             -> prepared 1.1 MS - -
            its input ends          -> exit 1.1 143 MS MS ''; left
        """,
        "TERM twice during a run that ignores it": """
            ready
            prepare 1.1             -> prepared 1.1 MS - -
            go 1.1 ignores TERM
            1.1 is up
            TERM
            TERM                    -> exit 1.1 143 MS MS ''; left
        """,
        "the input ends while a run makes way for the next": """
            ready
            prepare 1.1             -> prepared 1.1 MS - -
            go 1.1 ignores TERM
            1.1 is up
            STOP
            prepare 1.2
            its input ends
            CONT                    -> exit 1.1 143 MS MS ''; left
        """,
        "TERM while it stands still": """
            ready
            prepare 1.1             -> prepared 1.1 MS - -
            STOP
            TERM
            CONT                    -> exit 1.1 143 MS MS ''; left
        """,
        "TERM without a run": """
            ready
            TERM                    -> left
        """,
        "killed": """
            ready, and 1.1 hangs
            KILL
        """,
        "stood still": """
            ready
            STOP
            prepare 1.1
            go 1.1 succeeds
            CONT                    -> prepared 1.1 MS - -; exit 1.1 0 MS MS success
        """,
        "nothing starts runs any more": """
            ready, and 1.1 hangs
            its place ends          -> exit 1.1 125 MS MS ''; gone the process that starts its runs was ended; left
        """,
        "nothing starts runs any more, and there is none": """
            ready
            its place ends          -> gone the process that starts its runs was ended; left
        """,
    },
    "checks": {
        "checked and chosen": """
            the loop chooses
            a marker is on shared storage
            start                   -> network NETWORK; facts FACTS; checked MS; waits
            ping 1                  -> check rdma skip; check clock skip; check log_dir pass
            use n1                  -> ready none
        """,
        "checked while it is used": """
            ready
            ping 1                  -> checked MS; pong 1
        """,
    },
    "tuned": {
        "caches are dropped": """
            ready
            prepare 1.1 clear       -> prepared 1.1 MS KIB KIB
            go 1.1 succeeds         -> exit 1.1 0 MS MS success
        """,
        "a setting does not hold": """
            ready
            a setting is changed
            prepare 1.1             -> refused 1.1 watchdog wanted 0, found 1
            go 1.1
            stop 1.1
            all is obeyed
            the setting is put right
            prepare 1.2             -> prepared 1.2 MS - -
            go 1.2 succeeds         -> exit 1.2 0 MS MS success
        """,
        "a setting does not hold for the run after one at work": """
            ready, and 1.1 hangs
            a setting is changed
            prepare 1.2             -> exit 1.1 143 MS MS ''; refused 1.2 watchdog wanted 0, found 1
        """,
        "facts are told when they change": """
            ready
            an optional setting is changed
            prepare 1.1             -> facts FACTS; prepared 1.1 MS - -
            prepare 1.2             -> exit 1.1 143 MS MS ''; prepared 1.2 MS - -
            stop 1.2                -> exit 1.2 143 MS MS ''
        """,
        "caches that stay": """
            ready
            its caches stay
            prepare 1.1 clear       -> kept 1.1 cannot drop caches: TEXT
            go 1.1
            stop 1.1
            prepare 1.2             -> prepared 1.2 MS - -
            stop 1.2                -> exit 1.2 143 MS MS ''
        """,
        "a setting cannot be set": """
            a setting cannot be set
            start                   -> network NETWORK; failed tunables tunables: TEXT; left
        """,
        "chosen, and tuned after that": """
            the loop chooses
            start                   -> network NETWORK; facts FACTS; waits
            use n1                  -> facts FACTS; ready none
        """,
        "settings that are not put back": """
            ready
            its settings cannot be put back
            its input ends          -> revert-failed TEXT; left
        """,
    },
    "two nodes": {
        "they tell their names": """
            ready
            prepare 1.1 for n2 n1   -> prepared 1.1 MS - -
            go 1.1 succeeds         -> exit 1.1 0 MS MS success
        """,
        "not before they are chosen": """
            the loop chooses
            start                   -> network NETWORK; facts FACTS; waits
            use n1 n2               -> host NAME ''; ready none
        """,
    },
    "container": {
        "runs in a container": """
            ready
            prepare 1.1             -> prepared 1.1 MS - -
            go 1.1 succeeds         -> exit 1.1 0 MS MS success
            prepare 2.1             -> prepared 2.1 MS - -
            go 2.1 exits with 7     -> exit 2.1 7 MS MS ''
            prepare 2.2             -> prepared 2.2 MS - -
            stop 2.2                -> exit 2.2 143 MS MS ''
            prepare 2.3             -> prepared 2.3 MS - -
            go 2.3 hangs after run_stop
            2.3 is up
            stop 2.3                -> exit 2.3 143 MS MS success
        """,
        "the container does not start": """
            its engine is broken
            start                   -> network NETWORK; failed container the container ended at once: no space left on device; left
        """,
        "the container ends": """
            ready
            its place ends          -> gone its container ended: WORDS; left
        """,
        "the container ends before a run goes": """
            ready
            prepare 1.1             -> prepared 1.1 MS - -
            its place ends          -> exit 1.1 125 MS MS ''; gone its container ended: WORDS; left
        """,
        "the container ends during a run": """
            ready, and 1.1 hangs
            its place ends          -> exit 1.1 125 MS MS ''; gone its container ended: WORDS; left
        """,
        "the input ends while the container starts": """
            its engine takes long
            start                   -> network NETWORK
            its input ends          -> left
        """,
        "TERM while the container starts": """
            its engine takes long
            start                   -> network NETWORK
            prepare 1.1
            TERM                    -> left
        """,
        "orders wait while the container starts": """
            its engine takes long
            start                   -> network NETWORK
            prepare 1.1
            use n2
            ping 1                  -> pong 1
            its engine goes on      -> facts FACTS; ready IMAGE; prepared 1.1 MS - -; exit 1.1 143 MS MS ''; left
        """,
        "the tag of its image moves": """
            ready
            the tag of its image moves
            prepare 1.1             -> prepared 1.1 MS - -
            go 1.1 succeeds         -> exit 1.1 0 MS MS success
        """,
        "the tag of its image moves before it is chosen": """
            the loop chooses
            start                   -> network NETWORK; facts FACTS; waits
            the tag of its image moves
            use n1                  -> ready IMAGE
        """,
        "an image is pulled": """
            it lacks the image
            start                   -> lacks
            pull n2
            use n1
            prepare 1.1
            all is obeyed
            pull n1                 -> pulled IMAGE; network NETWORK; facts FACTS; ready IMAGE
        """,
        "an image is pulled by one that is chosen": """
            it lacks the image
            its engine takes long
            the loop chooses
            start                   -> lacks
            use n1
            pull n1
            use n1
            its engine goes on      -> pulled IMAGE; network NETWORK; facts FACTS; waits; ready IMAGE
        """,
        "a pull that fails": """
            it lacks the image
            its engine is broken
            start                   -> lacks
            pull n1                 -> failed image cannot pull IMAGE: no space left on device; left
        """,
        "TERM during a pull": """
            it lacks the image
            its engine takes long
            start                   -> lacks
            pull n1
            TERM                    -> left
        """,
        "the input ends before a pull": """
            it lacks the image
            start                   -> lacks
            its input ends          -> left
        """,
    },
    "without pull": {
        "the input ends during the checks": """
            its engine takes long
            the loop chooses
            start                   -> network NETWORK; facts FACTS
            its input ends          -> left
        """,
        "TERM during the checks": """
            its engine takes long
            the loop chooses
            start                   -> network NETWORK; facts FACTS
            TERM                    -> left
        """,
        "chosen during the checks": """
            its engine takes long
            the loop chooses
            start                   -> network NETWORK; facts FACTS
            use n2
            use n1
            its engine goes on      -> checked MS; waits; ready IMAGE
        """,
        "an image is missing": """
            it lacks the image
            the loop chooses
            start                   -> network NETWORK; facts FACTS; checked MS; waits
            ping 1                  -> check image warn
            use n1                  -> failed image image IMAGE is not on this node; left
        """,
    },
}


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benches]:
    made = Benches(tmp_path_factory.mktemp("contract"))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("site", "name"), [(site, name) for site, scripts in SCRIPTS.items() for name in scripts]
)
def test_both_say_the_same(benches: Benches, site: str, name: str) -> None:
    text = SCRIPTS[site][name].replace("ready, and 1.1 hangs\n", HANGS, 1)
    script = parsed(text.replace("ready\n", f"{READY.get(site)}\n", 1))
    words = [word for step, expected in script for word in expected]
    if "left" not in words and "KILL" not in dict(script):
        script.append(("its input ends", ["left"]))
    told = [line for step, expected in script for line in (f"    {step}", *expected)]
    checks = set[str]()
    for seed in SEEDS:
        model, checks = play(Model(benches.bench(site), seed), script)
        assert model == told, f"the simulated agent, seed {seed}"
    real, real_checks = play(Real(benches.bench(site)), script)
    assert real == told, "the real agent"
    assert real_checks == checks, "the checks that each has told of"
