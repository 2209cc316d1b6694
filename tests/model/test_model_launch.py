"""How runs are started, in documents: what wins, what is refused, and what is said of a command that cannot do it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import DescriptorError, RenderError
from orchestrator.model import Catalogue, Site, load_entry
from orchestrator.model.entry import Entry
from orchestrator.model.validation import validate_file
from orchestrator.render import render_bundle

SYSTEM = """\
kind: system
name: two
accelerator: MI300X
nodes: 2
gpus_per_node: 8
fabric: pollara
workloads:
  llama2_70b_lora:
    "5.1":
      micro_batch: 1
      global_batch: 8
      context_parallel: 2
      env: {MAX_STEPS: "1", LR: "1"}
      launch: LAUNCH
"""


def entry(folder: Path, launch: str, site: Site | None = None) -> Entry:
    (folder / "two.yaml").write_text(SYSTEM.replace("LAUNCH", launch))
    return load_entry(
        "two", "llama2_70b_lora", site=site or Site(log_dir=str(folder)), systems_dirs=[folder]
    )


def settings(one: Entry) -> list[str]:
    return render_bundle(one, nexp=1)["settings.sh"].decode().splitlines()


def test_a_command_that_cannot_start_so_many_nodes_is_told_and_refused(tmp_path: Path) -> None:
    one = entry(tmp_path, "{}")
    [warning] = [text for text in one.warnings if "at most" in text]
    assert warning.startswith(
        "`bash ./run_and_time.sh` of llama2_70b_lora in round 5.1 starts 1 node at most, and two has 2"
    )
    with pytest.raises(RenderError, match="starts 1 node"):
        render_bundle(one, nexp=1)


def test_validate_tells_it_as_well(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(SYSTEM.replace("LAUNCH", "{}"))
    _, [warning] = validate_file(Catalogue(), tmp_path / "two.yaml")
    assert "starts 1 node at most" in warning


def test_another_command_or_code_of_the_site_may_do_it(tmp_path: Path) -> None:
    site = Site(log_dir=str(tmp_path), code={"llama2_70b_lora": "/mine"})
    for one in (
        entry(tmp_path, "{}", site),
        entry(tmp_path, "{command: [bash, mine.sh]}"),
        entry(tmp_path, "{most_nodes: 2}"),
    ):
        assert not [text for text in one.warnings if "at most" in text]
        render_bundle(one, nexp=1)


def test_the_systems_keys_win_one_by_one(tmp_path: Path) -> None:
    one = entry(
        tmp_path,
        '{command: [run, "{node_rank}"], code_dir: /there, ranks: gpu, env: {A: "{nodes} it\'s"}, master: address}',
    )
    assert (one.command, one.code_dir, one.started) == (
        ("run", "{node_rank}"),
        "/there",
        "run {node_rank}, once per gpu",
    )
    lines = settings(one)
    for line in (
        "COMMAND=(run '{node_rank}')",
        "CODE_DIR=/there",
        "LAUNCH_RANKS=gpu",
        "LAUNCH_MASTER=address",
        "LAUNCH_HOSTS=0",
    ):
        assert line in lines
    assert "  'A\t{nodes} it'\"'\"'s'" in lines
    readme = render_bundle(one, nexp=1)["README"].decode()
    assert '    cd /there && run "$SLURM_NODEID"\n' in readme and "SLURM_NODEID, A:" in readme


def test_the_sites_rendezvous_wins_over_the_rounds(tmp_path: Path) -> None:
    def wanted(launch: str, **network: object) -> tuple[str, ...]:
        site = Site.model_validate({"log_dir": str(tmp_path), "network": network})
        lines = settings(entry(tmp_path, "{command: [run], " + launch + "}", site))
        return tuple(one for one in lines if one.startswith(("LAUNCH_MASTER", "LAUNCH_HOSTS")))

    assert wanted("ranks: node") == ("LAUNCH_MASTER=name", "LAUNCH_HOSTS=0")
    assert wanted("ranks: node", master="address", hosts=True) == (
        "LAUNCH_MASTER=address",
        "LAUNCH_HOSTS=1",
    )
    assert wanted("master: address, hosts: true", master="name", hosts=False) == (
        "LAUNCH_MASTER=name",
        "LAUNCH_HOSTS=0",
    )
    assert wanted("master: address, hosts: true") == ("LAUNCH_MASTER=address", "LAUNCH_HOSTS=1")


def test_without_a_word_of_the_system_the_rounds_holds() -> None:
    site = Site(log_dir="/sets")
    one = load_entry("MI325X_08x08x32", "flux1", site=site)
    assert one.launch.unset == ["LOCAL_WORLD_SIZE", "LOCAL_RANK", "SLURM_LOCALID"]
    assert one.started == "bash ./run_and_time.sh, once per node"
    oracle = load_entry("MI300X_64x08x16", "flux1", site=site).launch
    assert (oracle.master, oracle.hosts, oracle.unset) == ("address", True, one.launch.unset)


@pytest.mark.parametrize(
    ("launch", "arguments"),
    [
        ("{command: []}", "command"),
        (
            '{command: [run, "{node_rnak}"]}',
            "{node_rnak} is nothing of a run; accepted: node_rank, nodes",
        ),
        ('{env: {A: "{host}"}}', "{host} is nothing of a run"),
        ('{env: {SEED: "1"}}', "belongs to the loop"),
        ('{env: {HF_TOKEN: "x"}}', "looks like a secret"),
        ("{env: {A: 1}}", "A"),
        ("{ranks: task}", "ranks"),
        ("{unset: [not a name]}", "not a variable name"),
        ("{hosts: 'yes'}", "hosts"),
        ("{user: root}", "user: unknown key"),
    ],
)
def test_what_is_wrong_with_it_is_told_with_its_line(
    tmp_path: Path, launch: str, arguments: str
) -> None:
    with pytest.raises(DescriptorError) as caught:
        entry(tmp_path, launch)
    assert arguments in str(caught.value) and "two.yaml:14" in str(caught.value)
