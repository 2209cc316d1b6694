"""Are the nodes alike? The words are those that docs/network.md and docs/tuning.md promise and that people search for."""

from __future__ import annotations

import random
from itertools import product

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_parts import report, settings

from orchestrator.onnode.policy.judge import (
    Agreement,
    agree_on_facts,
    agree_on_image,
    agree_on_network,
    compare_facts,
)
from orchestrator.onnode.policy.reports import NodeReport

QUICK = hypothesis.settings(max_examples=40)
ALLOWED = "network.allow_differences: true in the site file starts the set all the same"


def ports(
    count: int = 8,
    *,
    name: str = "rdma{}",
    rate: str = "400",
    link: str = "Ethernet",
    gid: str = "3",
) -> str:
    return " ".join(f"{name.format(number)},{rate},{link},{gid}" for number in range(count))


def network(
    *summaries: str, troubles: dict[int, list[str]] | None = None, **changes: str
) -> Agreement:
    told = troubles or {}
    reports = {
        f"n{rank}": report(network=text, troubles=told.get(rank, []))
        for rank, text in enumerate(summaries)
    }
    return agree_on_network(reports, list(reports), settings(**changes))


# ---- image ----


def test_the_same_image() -> None:
    assert agree_on_image({"a": "sha256:1", "b": "sha256:1"}, ["a", "b"], "", "i") == Agreement(
        image="sha256:1"
    )


def test_another_image_than_most() -> None:
    found = agree_on_image(
        {"a": "sha256:1", "b": "sha256:2", "c": "sha256:2"},
        ["a", "b", "c"],
        "",
        "rocm/training:6.0",
    )
    assert (
        found.problem
        == "rocm/training:6.0 is sha256:1 on a and sha256:2 elsewhere (Docker's containerd image store "
        "gives pulled and loaded images different ids: pull it on all nodes, or load it on all)"
        and found.image == ""
    )
    assert found.differing == {"a": "rocm/training:6.0 is sha256:1 there and sha256:2 elsewhere"}


def test_the_image_of_the_set_counts_and_not_that_of_most() -> None:
    found = agree_on_image({"a": "2", "b": "2", "c": "1"}, ["a", "b", "c"], "1", "i")
    assert list(found.differing) == ["a", "b"] and found.problem.startswith(
        "i is 2 on a and 1 elsewhere (Docker's"
    )


def test_no_image_at_all_is_one_too() -> None:
    assert agree_on_image({}, ["a", "b"], "", "i").image == "none"
    assert (
        agree_on_image({"a": ""}, ["a", "b"], "1", "i").differing["b"]
        == "i is none there and 1 elsewhere"
    )


# ---- network ----


def test_alike() -> None:
    assert network(ports(), ports(), ports()) == Agreement(rdma_expected=True)


@pytest.mark.parametrize(
    ("others", "text"),
    [
        (
            ports(gid="1"),
            "rdma0,rdma1,rdma2,rdma3,rdma4,rdma5,rdma6,rdma7: GID index 1 instead of 3",
        ),
        (ports(7), "no rdma7"),
        (
            ports(2, name="bnxt_re{}"),
            "no rdma0 rdma1 rdma2 rdma3 rdma4 rdma5 rdma6 rdma7; but bnxt_re0 bnxt_re1",
        ),
        (
            ports(rate="200"),
            "rdma0,rdma1,rdma2,rdma3,rdma4,rdma5,rdma6,rdma7: Gb/s 200 instead of 400",
        ),
        (
            ports(link="InfiniBand").replace(",3", ",-"),
            ",".join(f"rdma{n}" for n in range(8)) + ": link layer InfiniBand instead of Ethernet",
        ),
        (ports(9), "but rdma8"),
        (
            ports(7) + " rdma7,200,Ethernet,1",
            "rdma7: Gb/s 200 instead of 400; rdma7: GID index 1 instead of 3",
        ),
    ],
    ids=["GID index", "fewer", "names", "rate", "link layer", "more", "one port"],
)
def test_in_what_a_node_differs(others: str, text: str) -> None:
    found = network(ports(), others)
    assert found.problem == f"network: node n1 (rank 1) is not like n0: {text} ({ALLOWED})"
    assert (
        found.differing == {"n1": f"network: {text}"}
        and found.rdma_expected
        and found.warnings == []
    )


def test_what_a_node_tells_itself_is_no_second_difference() -> None:
    assert network(ports(), ports(gid="-")) == Agreement(rdma_expected=True)
    found = network(ports(), ports(gid="-"), troubles={1: ["rdma0: no RoCE v2 address over IPv4"]})
    assert (
        found.problem
        == f"network: node n1 (rank 1): rdma0: no RoCE v2 address over IPv4 ({ALLOWED})"
    )


@pytest.mark.parametrize(
    "text",
    [
        "rdma5: the port is DOWN",
        "rdma0: no network interface",
        "7 RDMA devices for 8 GPUs, fewer than the fabric has: no rdma7",
    ],
)
def test_a_nodes_own_trouble(text: str) -> None:
    found = network(ports(), ports(), troubles={1: [text]})
    assert found.problem == f"network: node n1 (rank 1): {text} ({ALLOWED})"
    assert found.differing == {"n1": f"network: {text}"}


def test_some_without_rdma() -> None:
    found = network(ports(), "none", ports(), "none")
    text = "no RDMA device (/sys/class/infiniband)"
    assert (
        found.problem == f"network: {text} on n[1,3]; n0 has 8 ({ALLOWED})"
        and not found.rdma_expected
    )
    assert found.differing == {"n1": f"{text}, unlike n0", "n3": f"{text}, unlike n0"}


def test_nobody_with_rdma() -> None:
    found = network("none", "none")
    assert found == Agreement(
        warnings=[
            (
                "no node has an RDMA device (/sys/class/infiniband) although the fabric of MI325X_08x08x32 is broadcom_roce: "
                "RCCL will use TCP sockets, many times slower (network.rdma: off in the site file says that this is meant)"
            )
        ]
    )


@pytest.mark.parametrize("differences", ["stop", "allow"])
def test_required_means_required(differences: str) -> None:
    found = network("none", "none", network_rdma="required", network_differences=differences)
    text = "no node has an RDMA device (/sys/class/infiniband), and the site says network.rdma: required"
    assert (found.problem, found.differing, found.warnings) == (text, {}, [])


def test_the_site_may_allow_it() -> None:
    found = network(ports(gid="3"), ports(gid="1"), network_differences="allow")
    assert (found.problem, found.differing, found.rdma_expected) == ("", {}, True)
    assert found.warnings[0].startswith("network: node n1 (rank 1) is not like n0: rdma0,rdma1,")
    assert found.warnings[0].endswith("GID index 1 instead of 3 (allowed by the site)")


def test_a_port_down_that_the_site_allows() -> None:
    found = network(
        ports(), ports(), troubles={0: ["rdma5: the port is DOWN"]}, network_differences="allow"
    )
    assert found.warnings == [
        "network: node n0 (rank 0): rdma5: the port is DOWN (allowed by the site)"
    ]


@pytest.mark.parametrize("summaries", [("off", "off"), ("", ""), ("off", "")])
def test_off_means_off(summaries: tuple[str, str]) -> None:
    assert network(*summaries) == Agreement()


@pytest.mark.parametrize(("fabric", "count"), [("none", 3), ("broadcom_roce", 1)])
def test_without_a_fabric_or_others_there_is_nothing_to_compare(fabric: str, count: int) -> None:
    assert network(*[ports(number) for number in range(1, count + 1)], fabric=fabric) == Agreement()


def test_many_troubles_are_shortened() -> None:
    down = [f"rdma{number}: the port is DOWN" for number in range(8)]
    alike = network(ports(), ports(), troubles={0: down, 1: down})
    assert alike.problem.startswith("network: both nodes: rdma0: the port is DOWN; both nodes")
    less = [f"rdma{number}: the port is INIT" for number in range(8)]
    found = network(ports(), ports(), troubles={0: down, 1: less})
    assert found.problem.count("the port is DOWN") == 8
    assert (
        f"rdma7: the port is DOWN; and 8 more, see nodes/*/network.json ({ALLOWED})"
        in found.problem
    )
    assert found.differing["n1"].count("network: rdma") == 8


def test_most_decide_and_of_two_kinds_the_first() -> None:
    assert list(network(ports(7), ports(), ports()).differing) == ["n0"]
    assert list(network(ports(7), ports(), ports(), ports(7)).differing) == ["n1", "n2"]


@pytest.mark.parametrize(
    "torn", ["rdma0", "rdma0,", ",,,,", "unused", "rdma0,400,Ethernet,3,x,y", "- -,-", ", , ,"]
)
def test_a_torn_summary_is_only_different(torn: str) -> None:
    found = network(ports(), ports(), torn)
    assert set(found.differing) <= {"n2"} and found.rdma_expected


# ---- facts ----


def facts(*told: dict[str, str], **changes: str) -> Agreement:
    reports = {f"n{rank}": report(facts=one) for rank, one in enumerate(told)}
    return agree_on_facts(reports, list(reports), settings(**changes))


def test_the_same_facts() -> None:
    found = facts({"kernel": "6", "image": "1"}, {"image": "1", "kernel": "6"})
    assert found == Agreement(rows=[("*", "kernel", "6"), ("*", "image", "1")])


def test_nodes_that_differ() -> None:
    found = facts({"bios": "1.4", "rocm": "7"}, {"bios": "1.5", "rocm": "7"})
    text = "the nodes differ: node n1 (rank 1): bios is 1.5, elsewhere 1.4"
    assert (
        found.problem
        == f"{text} (tuning.allow_differences: true in the site file starts the set all the same)"
    )
    assert found.differing == {"n1": "bios is 1.5, elsewhere 1.4"} and found.warnings == []
    assert found.rows == [("*", "bios", "1.4"), ("n1", "bios", "1.5"), ("*", "rocm", "7")]
    allowed = facts(
        {"bios": "1.4", "rocm": "7"}, {"bios": "1.5", "rocm": "7"}, tuning_differences="allow"
    )
    assert (allowed.problem, allowed.differing, allowed.rows) == ("", {}, found.rows)
    assert allowed.warnings == [f"{text} (allowed by the site)"]


def test_what_a_node_does_not_tell() -> None:
    found = facts({"kernel": "6"}, {"kernel": "6", "rocm": "7"}, {"kernel": "6", "rocm": "7"})
    assert found.differing == {"n0": "rocm is -, elsewhere 7"}
    assert found.rows == [("*", "kernel", "6"), ("*", "rocm", "7"), ("n0", "rocm", "-")]


def test_a_node_without_the_image_is_a_matter_of_the_image() -> None:
    found = facts({"image": "-"}, {"image": "1"}, {"kernel": "6"})
    assert list(found.differing) == ["n2"] or "image" not in "".join(found.differing.values())
    assert ("*", "image", "1") in found.rows and all(
        one[1] != "image" for one in found.rows if one[0] != "*"
    )


def test_several_differences_of_a_node() -> None:
    found = facts({"a": "1", "b": "1"}, {"a": "2", "b": "2"}, {"a": "1", "b": "1"})
    assert found.differing == {"n1": "a is 2, elsewhere 1; b is 2, elsewhere 1"}


def test_many_differences_are_shortened() -> None:
    found = facts(
        {str(number): "1" for number in range(20)}, {str(number): "2" for number in range(20)}
    )
    assert found.problem.count("elsewhere 1") == 8 and "; and 12 more (tuning" in found.problem
    assert found.differing["n1"].count("elsewhere 1") == 20


def test_a_silent_node_has_no_facts() -> None:
    rows, different = compare_facts({"n0": report(facts={"kernel": "6"})}, ["n0", "n1"])
    assert rows == [("*", "kernel", "6"), ("n1", "kernel", "-")] and different == [
        ("n1", "kernel is -, elsewhere 6")
    ]
    assert compare_facts({}, ["n0", "n1"]) == ([], []) and compare_facts({}, []) == ([], [])


# ---- whatever was said ----

SUMMARIES = st.sampled_from(
    ["", "off", "none", "unused", ports(2), ports(2, gid="1"), ports(3)]
) | st.text(max_size=40)
# One draw for all facts of a node: what takes time here is drawing.
FACTS = [
    {name: value for name, value in zip(("kernel", "rocm", "image"), values, strict=True) if value}
    for values in product(("", "-", "1", "2"), repeat=3)
]
TROUBLES = ("rdma0: the port is DOWN", "x")
NODES = st.lists(
    st.tuples(
        SUMMARIES,
        st.sampled_from(FACTS),
        st.sampled_from(
            [
                [],
                *(
                    [one, *more]
                    for one in TROUBLES
                    for more in ([], *([other] for other in TROUBLES))
                ),
            ]
        ),
        st.sampled_from(["", "1", "2"]),
    ),
    min_size=1,
    max_size=6,
)
SITES = st.builds(
    lambda rdma, network, tuning: settings(
        network_rdma=rdma, network_differences=network, tuning_differences=tuning
    ),
    *(
        st.sampled_from(words)
        for words in (["preferred", "required"], ["stop", "allow"], ["stop", "allow"])
    ),
)


def said(nodes: list[tuple[str, dict[str, str], list[str], str]]) -> dict[str, NodeReport]:
    return {
        f"n{at}": report(network=one[0], facts=one[1], troubles=one[2], ready=one[3])
        for at, one in enumerate(nodes)
    }


@QUICK
@given(NODES, SITES)
def test_what_always_holds(
    nodes: list[tuple[str, dict[str, str], list[str], str]], on: object
) -> None:
    reports = said(nodes)
    names = list(reports)
    images = {name: one.image for name, one in reports.items()}
    for ask in (
        lambda: agree_on_image(images, names, "", "i"),
        lambda: agree_on_network(reports, names, on),  # type: ignore[arg-type]
        lambda: agree_on_facts(reports, names, on),  # type: ignore[arg-type]
    ):
        found = ask()
        assert found == ask()
        assert set(found.differing) <= set(names) and all(found.differing.values())
        # In no field are all of them unlike most.
        fields = [name for node, name, _ in found.rows if node != "*"]
        assert all(fields.count(name) < len(names) for name in fields)
        assert found.problem or not found.differing
        assert not set("".join([found.problem, *found.warnings])) & set("\t\n\x1f")


@QUICK
@given(NODES, st.randoms(use_true_random=True))
def test_who_differs_does_not_depend_on_the_order(
    nodes: list[tuple[str, dict[str, str], list[str], str]], chance: random.Random
) -> None:
    # So that there is a majority, of images too.
    usual = ("rdma0,400,Ethernet,3", {"kernel": "1", "image": "1"}, [], "1")
    reports = said([*nodes, *[usual] * (len(nodes) + 1)])
    names = list(reports)
    other = chance.sample(names, len(names))
    images = {name: one.image for name, one in reports.items()}
    assert (
        agree_on_image(images, names, "", "i").differing
        == agree_on_image(images, other, "", "i").differing
    )
    first, second = (agree_on_facts(reports, order, settings()) for order in (names, other))
    assert {node: sorted(text.split("; ")) for node, text in first.differing.items()} == {
        node: sorted(text.split("; ")) for node, text in second.differing.items()
    }
    assert sorted(first.rows) == sorted(second.rows)
    assert set(agree_on_network(reports, names, settings()).differing) == set(
        agree_on_network(reports, other, settings()).differing
    )
