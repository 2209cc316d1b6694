"""Every published entry, variable by variable, against what the catalogue composes."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.model import Catalogue, Entry, Site, load_entry
from orchestrator.model.documents import SystemRound
from orchestrator.published import find

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
FACTS: dict[str, Any] = json.loads(
    (HERE.parent / "data" / "facts_env.json").read_text(encoding="utf-8")
)
RULES: list[dict[str, Any]] = yaml.safe_load(
    (HERE / "differences.yaml").read_text(encoding="utf-8")
)
ENTRIES: list[dict[str, Any]] = FACTS["entries"]
CATALOGUE = Catalogue()


def published_env(fact: dict[str, Any]) -> dict[str, str]:
    """What ran: the published config, and over it what all logs of the entry say otherwise."""
    if "env" in fact:
        return dict(fact["env"])
    env = {**FACTS["profiles"][fact["profile"]], **fact.get("set", {}), **fact.get("logs", {})}
    return {name: value for name, value in env.items() if name not in fact.get("absent", ())}


@cache
def composed(number: int) -> Entry:
    fact = ENTRIES[number]
    site = Site(offline=False)  # published runs asked the network
    return load_entry(fact["system"], fact["workload"], round=fact["round"], site=site)


def allowed_by(identity: str, name: str, published: str | None, ours: str | None) -> int | None:
    """The number of the rule that allows the difference."""
    for number, rule in enumerate(RULES):
        if (
            name in rule["variables"]
            and re.fullmatch(rule.get("entries", ".*"), identity)
            and (result := re.fullmatch(rule["published"], published or "absent"))
            and (published is not None or "absent" in rule["published"].split("|"))
            and _composed_fits(rule["composed"], result, ours)
        ):
            return number
    return None


def _composed_fits(wanted: str, published: re.Match[str], ours: str | None) -> bool:
    if ours is None or wanted == "absent":
        return ours is None and wanted == "absent"
    if wanted == "in published":
        result = published if published.re.groups else re.search(r"([0-9]+)>$", published[0])
        return result is not None and result[1] == ours
    return re.fullmatch(wanted, ours) is not None


def compare(number: int) -> tuple[list[str], set[int]]:
    fact, entry = ENTRIES[number], composed(number)
    published, used, wrong = published_env(fact), set(), []
    ours = {name: str(value) for name, value in entry.whole_env.items()}
    for name in {*published, *ours}:
        if ours.get(name) == published.get(name):
            continue
        rule = allowed_by(fact["id"], name, published.get(name), ours.get(name))
        if rule is None:
            wrong.append(f"{name}: published {published.get(name)!r}, composed {ours.get(name)!r}")
        else:
            used.add(rule)
    return wrong, used


@pytest.mark.parametrize("number", range(len(ENTRIES)), ids=[fact["id"] for fact in ENTRIES])
def test_composed_environment_is_the_published_one(number: int) -> None:
    wrong, _ = compare(number)
    assert not wrong


@pytest.mark.parametrize("number", range(len(ENTRIES)), ids=[fact["id"] for fact in ENTRIES])
def test_batch_and_image_are_the_published_ones(number: int) -> None:
    fact, entry = ENTRIES[number], composed(number)
    assert (entry.micro_batch, entry.global_batch) == (fact["micro_batch"], fact["global_batch"])
    if ":" in fact["image"]:
        assert entry.image == fact["image"]
    elif "site" not in fact["image"] and "local" not in fact["image"]:
        assert entry.image.endswith("5.1") and "5.1" in fact["image"]


def test_every_rule_is_needed() -> None:
    used = set().union(*(compare(number)[1] for number in range(len(ENTRIES))))
    assert [rule["reason"] for number, rule in enumerate(RULES) if number not in used] == []


def test_the_catalogue_holds_the_published_entries_and_nothing_else() -> None:
    ours = {
        (system.name, workload, round_name)
        for system in Catalogue().systems()
        for workload, rounds in system.workloads.items()
        for round_name in rounds
    }
    published = {(fact["system"], fact["workload"], fact["round"]) for fact in ENTRIES}
    assert len(published) == len(ENTRIES) == 79
    # The 80th published entry has no environment to compare: it ran on the bare machine, without the AMD scripts.
    assert ours - published == {
        ("local_2x2x8", "builtin", "1.0"),
        ("tinybox_8xMI300X", "bert", "5.0"),
    }
    assert published - ours == set()


def test_no_site_name_stands_in_a_system_workload_or_fabric() -> None:
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "UCX_NET_DEVICES")
    for number in range(len(ENTRIES)):
        assert not set(names) & set(composed(number).whole_env)


def test_derived_names_are_those_of_the_published_config_files() -> None:
    entry = load_entry("MI355X_1x8x1", "llama31_8b", round="5.1")
    assert str(entry.env["DGXSYSTEM"]) == "MI355X_1x8x1_8b"
    assert entry.config_file == "config_MI355X_1x8x1_8b.sh"
    dell = load_entry("MI325X_08x08x32_Dell", "flux1")
    assert str(dell.env["CONFIG_FILENAME"]) == "config_MI325X_08x08x32.sh"


def test_decay_is_what_warm_up_leaves() -> None:
    for fact, number in ((fact, number) for number, fact in enumerate(ENTRIES)):
        env = composed(number).env
        if "PRIMUS_LR_DECAY_ITERS" in env:
            total, warm_up = (
                int(str(env["PRIMUS_TRAIN_ITERS"])),
                int(str(env["PRIMUS_LR_WARMUP_ITERS"])),
            )
            assert int(str(env["PRIMUS_LR_DECAY_ITERS"])) == total - warm_up, fact["id"]


def part(fact: dict[str, Any]) -> SystemRound:
    return CATALOGUE.system(fact["system"])[1].workloads[fact["workload"]][fact["round"]]


def test_what_is_not_known_is_said() -> None:
    """Where the variables are from stands in the descriptor, and what is not the published config has its note."""
    for fact in ENTRIES:
        assert part(fact).env_from == fact.get("known", "config"), fact["id"]
        if part(fact).env_from != "config" or part(fact).submitted == "unknown":
            assert re.search("assumed|not known", part(fact).note), fact["id"]
        assert part(fact).source and part(fact).submitter, fact["id"]
    assert Counter(part(fact).env_from for fact in ENTRIES) == {
        "config": 66,
        "logs": 7,
        "assumed": 6,
    }


def test_what_the_logs_say_otherwise_is_noted_where_it_changes_the_training() -> None:
    labels = {"MLPERF_SUBMISSION_ORG", "MLPERF_SUBMISSION_PLATFORM"}
    changed = [fact for fact in ENTRIES if set(fact.get("logs", {})) - labels]
    assert len(changed) == 4
    assert [fact["id"] for fact in changed if "logs" not in part(fact).note] == []


def test_a_time_limit_of_every_system_is_above_what_its_published_runs_took() -> None:
    for number, fact in enumerate(ENTRIES):
        for published_result in find(benchmark=fact["workload"], round=fact["round"]):
            if published_result.system == fact["system"] and published_result.slowest:
                assert composed(number).minutes_per_run > published_result.slowest, fact["id"]


def test_the_readme_counts_the_catalogue() -> None:
    systems = [one for one in CATALOGUE.systems() if one.workloads.keys() != {"builtin"}]
    configurations = [
        one for system in systems for rounds in system.workloads.values() for one in rounds.items()
    ]
    assert {name for name, _ in configurations} == {"5.0", "5.1", "6.0"}
    results = sum(one.submitted is True for _, one in configurations)
    pattern = r"([0-9]+) systems in ([0-9]+)\s+configurations, ([0-9]+) of them with results"
    message = re.search(pattern, README.read_text(encoding="utf-8"))
    assert message and [int(one) for one in message.groups()] == [
        len(systems),
        len(configurations),
        results,
    ]


def test_every_system_without_results_says_so() -> None:
    system = Catalogue().system("MI355X_08x08x32")[1]
    assert system.workloads["flux1"]["6.0"].submitted is False
    assert Catalogue().system("MI325X_08x08x32")[1].workloads["flux1"]["6.0"].submitted is True


def test_what_an_image_needs_of_a_host_goes_with_that_image() -> None:
    entries = [composed(number) for number in range(len(ENTRIES))]
    assert load_entry("MI325X_08x08x32", "flux1").requires == {"driver": "6.10.5"}
    assert load_entry("MI355X_1x8x1", "llama2_70b_lora", round="5.1").requires == {
        "gfx": "gfx942 gfx950"
    }
    for entry in entries:
        assert entry.gfx in entry.requires.get("gfx", entry.gfx).split(), (
            entry.system
        )  # what is published fits its image
    entry = load_entry("MI325X_08x08x32", "flux1")
    fabric = entry.documents.fabric.model_copy(update={"kind": "pollara"})
    on_pollara = replace(entry, documents=replace(entry.documents, fabric=fabric))
    assert on_pollara.requires == {"driver": "6.10.5", "nic_firmware": "1.117.5-a-77"}
    assert on_pollara.with_document("system", nodes=1).requires == {"driver": "6.10.5"}
    assert entry.with_document("mine", image="own/image:1").requires == {}
    two, one = (
        load_entry(name, "gpt_oss_20b")
        for name in ("MI355X_2x8x1_tp1pp1ep1_gbs64", "MI355X_1x8x1_Oracle")
    )
    assert (two.requires["nic_firmware"], "nic_firmware" in one.requires) == (
        "1.117.5-a-77",
        False,
    )
