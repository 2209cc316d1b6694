"""What ran inside, with real processes: packages, tokenizers and code that change between two runs of a set, or on one node."""

from __future__ import annotations

from typing import Any

import pytest
from bundle_parts import Bundles
from run_sets import Set
from sites import write_system

from orchestrator.cli import main
from orchestrator.evidence.ledger import verify
from orchestrator.mllog.score import score_dir
from orchestrator.onnode.set import ledger
from orchestrator.report.reading import read_report

UPGRADE = """
record=SITE/tool-1.0.dist-info
if [[ $me == 3.* && -d $record ]]; then
  mv $record SITE/tool-2.0.dist-info; echo tool/__init__.py,sha256=2,9 >SITE/tool-2.0.dist-info/RECORD
fi
"""


def made(bundles: Bundles, plan: str, *, nodes: int = 1, **more: Any) -> Bundles:
    site, hub = bundles.folder / "site", bundles.folder / "hf/hub/models--tiny/snapshots/1"
    (site / "tool-1.0.dist-info").mkdir(parents=True)
    (site / "tool-1.0.dist-info/RECORD").write_text("tool/__init__.py,sha256=1,9\n")
    hub.mkdir(parents=True)
    (hub / "tokenizer.json").write_text("{}")
    env = {"PYTHONPATH": str(site), "HF_HOME": str(bundles.folder / "hf")}
    write_system(bundles.folder / "systems", "inside", nodes=nodes, env=env)
    text = plan.replace("SITE", str(site)).replace("HUB", str(hub))
    return bundles.make(text.replace("CODE", str(bundles.code)), system="inside", **more)


def changes(one: Set) -> list[tuple[int, list[str]]]:
    return [
        (entry.data["run"], entry.data["texts"])
        for entry in ledger.read(one.root)[0]
        if entry.kind == "change"
    ]


def found(one: Set) -> list[str]:
    return [str(finding) for finding in score_dir(str(one.root)).differences]


def test_equal_runs_have_one_list_of_each_part(bundles: Bundles) -> None:
    code, out = made(bundles, "", nexp=2).run()
    assert code == 0, out
    one = bundles.set
    inside = [one.run(run)["inside"]["*"] for run in (1, 2)]
    assert inside[0] == inside[1] and inside[0].keys() >= {"packages", "code", "caches"}
    names = sorted(path.name for path in (one.root / "inside").iterdir())
    assert names == sorted(f"{part}-{sha}.tsv" for part, sha in inside[0].items())
    packages = (one.root / f"inside/packages-{inside[0]['packages']}.tsv").read_text()
    assert "\ntool\t1.0 " in f"\n{packages}"
    [code_list] = (one.root / "inside").glob("code-*")
    assert code_list.read_text().startswith("run_and_time.sh\t")
    assert one.json("runs/1/attempt_1/node_0.json")["inside"] == inside[0]
    assert (
        f"*\tinside.packages\t{inside[0]['packages']}\n"
        in (one.root / "runs/2/attempt_1/start.tsv").read_text()
    )
    assert changes(one) == found(one) == [] and "inside" not in str(one.job["warnings"])
    assert verify(one.root).problems == () and bundles.decisions_again() == []
    facts = dict(read_report(str(one.root)).facts)
    assert facts["inside the containers"].startswith("equal in all 2 runs: packages ")


def test_a_package_upgraded_between_two_runs(
    bundles: Bundles, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = made(bundles, UPGRADE, nexp=4).run()
    assert code == 0, out
    one = bundles.set
    [(run, [text])] = changes(one)  # run 4 is as run 3
    assert run == 3
    assert text.startswith(
        "run 3 is not the experiment of the other runs: packages of the containers: "
    )
    assert " on all nodes, " in text and "in runs 1 to 2: tool 1.0 " in text and "-> 2.0 " in text
    assert text in one.job["warnings"] and text in out
    [difference] = found(one)
    assert (
        difference.startswith("result_") and "tool " in difference and "runs 3 to 4" in difference
    )
    facts = dict(read_report(str(one.root)).facts)
    assert facts["inside the containers"] == "packages differ in all 4 runs: see the findings"
    assert main(["check", str(one.root)]) == 1
    assert "tool " in capsys.readouterr().out
    assert verify(one.root).problems == () and bundles.decisions_again() == []


def test_the_site_stops_a_set_that_changed(bundles: Bundles) -> None:
    code, out = made(bundles, UPGRADE, nexp=4, changes="stop").run()
    one = bundles.set
    assert (code, one.job["state"], one.results()) == (1, "paused", [1, 2, 3]), out
    assert "tool 1.0 " in one.job["reason"] and one.left_behind() == []


def test_a_tokenizer_that_changed(bundles: Bundles) -> None:
    code, out = made(bundles, "[[ $me != 2.* ]] || echo '{\"a\": 1}' >HUB/tokenizer.json").run()
    assert code == 0, out
    [(run, [text])] = changes(bundles.set)
    assert run == 2 and "caches of the containers: " in text
    assert "hub/models--tiny/snapshots/1/tokenizer.json " in text
    assert len(found(bundles.set)) == 1


def test_another_job_finds_other_code(bundles: Bundles) -> None:
    """Before a run: nothing has been lost."""
    loop = made(bundles, "[[ $me != 2.1.* ]] || hang", nexp=2).start()
    one = bundles.running(2, 1, "hanging")
    loop.signal(15)
    loop.end()
    (bundles.code / "model.py").write_text("layers = 2\n")
    bundles.bundle = one.root / "bundle"
    code, out = bundles.again(one)
    assert (code, one.job["state"], one.results()) == (1, "paused", [1]), out
    reason = one.job["reason"]
    assert reason.startswith("not the experiment of the runs that count: code of the containers: ")
    assert "model.py none -> " in reason and "--allow-changes` runs all the same" in reason
    code, out = bundles.again(one, CHANGES="flag")
    assert code == 0, out
    assert one.results() == [1, 2] and "model.py none -> " in changes(one)[0][1][0]
    assert one.left_behind() == []


def test_a_cache_that_the_first_run_fills_is_no_change(bundles: Bundles) -> None:
    """Each job's first container finds other caches than the one before."""
    plan = "echo '[]' >HUB/vocab.json; [[ $me != 2.1.* ]] || hang"
    loop = made(bundles, plan, nexp=2).start()
    one = bundles.running(2, 1, "hanging")
    loop.signal(15)
    loop.end()
    bundles.bundle = one.root / "bundle"
    code, out = bundles.again(one)
    assert code == 0, out
    assert changes(one) == found(one) == [] and one.results() == [1, 2]
