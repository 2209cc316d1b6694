"""Which nodes the search names, with a simulated measurement: a group is as fast as its slowest member."""

from __future__ import annotations

import random
import subprocess

import pytest
from deep_parts import Bundle, Outcome

# Replaces the step and the measurement. RATE holds MB/s per node; noise in per cent; BROKEN nodes fail every all-reduce.
SIMULATION = r"""
declare -A RATE=()
for one in $RATES; do RATE[${one%%=*}]=${one#*=}; done
RANDOM=$SEED
deep_open() { sleep 60 >/dev/null 2>&1 & DEEP_PID=$!; }
deep_close() { kill "$DEEP_PID"; }
deep_hear_ready() {
  local node
  for node in "${DEEP_NODES[@]}"; do DEEP_GPUS[$node]=$GPUS DEEP_TESTS[$node]=1; done
}
ROUNDS=0
deep_round() {
  local name=$1 index node way=${DEEP_ROUND_WAY:-$DEEP_WAY}
  shift
  DEEP_GROUPS=("$@") DEEP_MBPS=() DEEP_WHY=() DEEP_SIZES=() DEEP_TIMES=() DEEP_WRONG=()
  ROUNDS=$((ROUNDS + 1))
  for index in "${!DEEP_GROUPS[@]}"; do
    DEEP_MBPS[index]=99999999 DEEP_WHY[index]="" DEEP_SIZES[index]=1048576 DEEP_TIMES[index]=1000 DEEP_WRONG[index]=0
    for node in ${DEEP_GROUPS[index]}; do
      # Alone a node does not use the network.
      (($# == ${#DEEP_NODES[@]} || RATE[$node] >= DEEP_MBPS[index])) || DEEP_MBPS[index]=${RATE[$node]}
      [[ " $BROKEN " != *" $node "* || $name == alone* ]] || DEEP_WHY[index]="$node: no answer"
    done
    ((DEEP_MBPS[index] < 99999999)) || DEEP_MBPS[index]=300000
    DEEP_MBPS[index]=$((DEEP_MBPS[index] * (100 - NOISE + RANDOM % (2 * NOISE + 1)) / 100))
    deep_record "$name" "$way" "$index"
  done
}
"""


def search(
    bundle: Bundle, rates: dict[str, int], *, gpus: int = 0, noise: int = 2, seed: int = 1, broken: str = ""
) -> Outcome:
    return bundle.step(
        *rates,
        hook=SIMULATION,
        RATES=" ".join(f"{node}={rate}" for node, rate in rates.items()),
        GPUS=str(gpus),
        NOISE=str(noise),
        SEED=str(seed),
        BROKEN=broken,
    )


def nodes(count: int, rate: int) -> dict[str, int]:
    return {f"n{number}": rate for number in range(count)}


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 8, 13, 33, 64])
@pytest.mark.parametrize(("gpus", "slow_rate", "noise"), [(8, 250_000, 2), (0, 4_000, 15)], ids=["rdma", "tcp"])
def test_one_slow_node_is_named(bundle: Bundle, count: int, gpus: int, slow_rate: int, noise: int) -> None:
    rates = nodes(count, 350_000 if gpus else 12_000)
    slow = random.Random(count).choice(list(rates))
    rates[slow] = slow_rate

    found = search(bundle, rates, gpus=gpus, noise=noise, seed=count)

    assert found.slow == [slow]
    assert found.status == 1
    assert set(found.verdicts()) == set(rates)
    assert found.rows[slow][0] == "fail"
    assert "GB/s at best, others" in found.rows[slow][2]
    assert {verdict for node, verdict in found.verdicts().items() if node != slow} == {"pass"}
    assert f"over {count - 1} node" in found.summary


@pytest.mark.parametrize("seed", range(12))
def test_two_slow_nodes_are_named(bundle: Bundle, seed: int) -> None:
    chance = random.Random(seed)
    rates = nodes(chance.choice([4, 5, 6, 7, 8, 9, 16, 40, 64]), 12_000)
    slow = sorted(chance.sample(list(rates), 2))
    for node in slow:
        rates[node] = chance.choice([600, 3_000, 4_500])

    assert sorted(search(bundle, rates, noise=12, seed=seed).slow) == slow


@pytest.mark.parametrize("pair", ["n0 n1", "n0 n2", "n0 n3", "n1 n2", "n1 n3", "n2 n3"])
def test_two_of_four(bundle: Bundle, pair: str) -> None:
    rates = nodes(4, 12_000) | dict.fromkeys(pair.split(), 2_000)

    assert sorted(search(bundle, rates).slow) == pair.split()


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 17, 64])
@pytest.mark.parametrize(("gpus", "rate", "noise"), [(8, 350_000, 5), (0, 1_100, 30)], ids=["rdma", "tcp"])
def test_noise_names_nobody(bundle: Bundle, count: int, gpus: int, rate: int, noise: int) -> None:
    found = search(bundle, nodes(count, rate), gpus=gpus, noise=noise, seed=count)

    assert found.slow == []
    assert found.status == 0
    assert set(found.verdicts().values()) == {"pass"}


def test_many_nodes_take_few_rounds(bundle: Bundle) -> None:
    rates = nodes(64, 12_000) | {"n7": 900, "n40": 900}

    found = search(bundle, rates)

    assert list(dict.fromkeys(line["round"] for line in found.table)) == ["all", "pairs1", "pairs2", "confirm", "rest"]
    for name in ("pairs1", "pairs2", "confirm"):
        measured = [node for line in found.table if line["round"] == name for node in line["nodes"].split(",")]
        assert len(measured) == len(set(measured)), "nobody is in two groups of a round"


def test_a_node_with_which_nothing_works_is_named(bundle: Bundle) -> None:
    found = search(bundle, nodes(8, 12_000), broken="n3")

    assert found.slow == ["n3"]
    assert found.rows["n3"][2] == "no all-reduce with it succeeds: n3: no answer"
    assert found.rows["n0"][2].startswith("bus bandwidth 1")


def test_nothing_works_at_all(bundle: Bundle) -> None:
    everywhere = nodes(4, 12_000)
    found = search(bundle, everywhere, broken=" ".join(everywhere))

    assert found.status == 1
    assert {text for _, _, text, _ in found.rows.values()} == {"the all-reduce over 4 nodes failed: n3: no answer"}


def test_the_fabric_is_the_reference(bundle: Bundle) -> None:
    bundle.settings(FABRIC_GBPS="400", FABRIC_DEVICES="8")

    good = search(bundle, nodes(8, 330_000), gpus=8, noise=1)
    poor = search(bundle, nodes(8, 200_000), gpus=8, noise=1)

    assert "% of 400.0 GB/s" not in good.summary
    assert set(good.verdicts().values()) == {"pass"}
    assert "% of 400.0 (8 NICs of 400 Gb/s)" in good.summary
    assert set(poor.verdicts().values()) == {"warn"}
    assert poor.status == 0
    assert "the halves alone reach" in poor.summary
    assert "look at the switches" in poor.rows["n0"][3]


@pytest.mark.parametrize(
    ("given", "shown"), [("350", "350.0"), ("42.5", "42.5"), ("0.75", "0.750"), ("1.2345", "1.234")]
)
def test_the_site_gives_the_reference(bundle: Bundle, given: str, shown: str) -> None:
    bundle.settings(PREFLIGHT_DEEP_GBPS=given)

    assert f" % of {shown} (deep_gbps of the site)" in search(bundle, nodes(2, 12_000)).summary


def test_a_slow_node_can_be_a_warning(bundle: Bundle) -> None:
    bundle.settings(PREFLIGHT_WARN="(clock deep)")

    found = search(bundle, nodes(5, 12_000) | {"n2": 500})

    assert found.status == 0
    assert found.verdicts() == {"n0": "pass", "n1": "pass", "n2": "warn", "n3": "pass", "n4": "pass"}


def test_one_node_without_gpus_is_skipped(bundle: Bundle) -> None:
    found = search(bundle, nodes(1, 12_000))

    assert found.status == 2
    assert found.verdicts() == {"n0": "skip"}
    assert "nothing to measure" in found.rows["n0"][2]


def test_one_node_by_itself(bundle: Bundle) -> None:
    found = search(bundle, nodes(1, 12_000), gpus=8, noise=1)

    assert found.status == 0
    assert "over 1 node (" in found.summary
    assert [line["way"] for line in found.table] == ["rccl-tests"]


def test_scripts_are_clean() -> None:
    from orchestrator.resources import data_dir

    folder = data_dir("templates")
    names = sorted(path.relative_to(folder) for path in (folder / "lib").glob("deep*.sh"))
    subprocess.run(["shellcheck", "-x", *names], cwd=folder, check=True)
