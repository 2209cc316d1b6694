"""`orchestrator doctor`: a verdict per check, with what mends it. The node is this host; Slurm's programs are scripts."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import outputs
import pytest
from controller_parts import Commands, one_node

from orchestrator.errors import ExitCode
from orchestrator.model import Site, load_entry
from orchestrator.onnode.policy.verdict import Row
from orchestrator.published import of_set
from orchestrator.render import render_bundle
from orchestrator.runset.create import describe
from orchestrator.scheduler.slurm_site import Partition
from orchestrator.site.doctor import _with_command

Fake = Callable[[str, str], Path]


def rows(cli: Commands, *arguments: str | Path) -> dict[str, dict[str, Any]]:
    cli("doctor", *arguments, "--json")
    answer = outputs.checked(cli.out)
    assert answer["fit"] == (cli.code == ExitCode.OK)
    return {row["check"]: row for row in answer["checks"]}


def test_a_fit_site(cli: Commands, site: Path) -> None:
    answer = rows(cli, "--site", site)
    assert cli.code == ExitCode.OK
    assert (
        answer["site"]["verdict"],
        answer["slurm"]["verdict"],
        answer["log_dir"]["verdict"],
    ) == (
        "pass",
        "skip",
        "pass",
    )
    assert {"version", "engine", "clock", "free_space", "system"} <= set(answer)
    assert "gpu_count" not in answer
    answer = rows(cli, "local_2x2x8", "builtin", "--site", site)
    assert "system" not in answer and {"gpu_count", "rdma", "image", "data", "code"} <= set(answer)


def test_no_site_file(cli: Commands) -> None:
    answer = rows(cli)
    assert cli.code == ExitCode.NO_SCORE
    assert answer["site"]["verdict"] == "fail" and answer["site"]["remedy"] == "orchestrator init"


def test_what_is_wrong_with_the_file_is_told(cli: Commands, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("kind: site\nlog_dir: here\nscheduler: slrum\n")
    answer = rows(cli, "--site", path)
    assert (
        "'here' is not an absolute path" in answer["site"]["text"]
        and 'did you mean "slurm"' in answer["site"]["text"]
    )
    assert answer["site"]["remedy"] == f"orchestrator validate {path}"


def test_a_system_that_there_is_not_is_no_finding(cli: Commands, site: Path) -> None:
    assert cli("doctor", "MI999", "flux1", "--site", site).code == ExitCode.BAD_INPUT
    assert "MI999" in cli.err


def test_a_log_directory_that_is_missing(cli: Commands, site: Path) -> None:
    log_dir = next(
        line.split()[1] for line in site.read_text().splitlines() if line.startswith("log_dir")
    )
    site.write_text(site.read_text().replace(log_dir, f"{log_dir}/deeper"))
    answer = rows(cli, "--site", site)
    assert answer["log_dir"]["verdict"] == "fail" and answer["log_dir"]["remedy"].startswith(
        f"mkdir -p {log_dir}/deeper"
    )


def test_code_that_is_missing(cli: Commands, site: Path) -> None:
    site.write_text(f"{site.read_text()}code: {{builtin: /no/code}}\n")
    answer = rows(cli, "local_2x2x8", "builtin", "--site", site)
    assert (answer["code"]["verdict"], answer["code"]["text"]) == (
        "fail",
        "/no/code (`code` of the site file) is not here",
    )


@pytest.mark.parametrize(
    ("body", "partition", "message"),
    [
        (
            "echo 'sinfo: error: Unable to contact slurm controller' >&2; exit 1",
            "gpu",
            "Unable to contact slurm controller",
        ),
        (
            r"printf 'gpu\x1fup\x1f30\x1f1\x1f(null)\n'",
            "gpux",
            'there is no partition gpux; did you mean "gpu"?',
        ),
        (r"printf 'gpu\x1fdown\x1f30\x1f1\x1f(null)\n'", "gpu", "partition gpu is down"),
        ("echo what", "gpu", "sinfo's answer cannot be read: what"),
    ],
)
def test_slurms_own_words(
    fake: Fake, cli: Commands, tmp_path: Path, body: str, partition: str, message: str
) -> None:
    fake("sinfo", body)
    path = tmp_path / "slurm.yaml"
    path.write_text(f"kind: site\npartition: {partition}\nlog_dir: {tmp_path}\n")
    answer = rows(cli, "--site", path)
    assert cli.code == ExitCode.NO_SCORE
    assert (
        answer["slurm"]["verdict"] == "fail"
        and message in answer["slurm"]["text"]
        and answer["slurm"]["remedy"]
    )
    assert "engine" not in answer


def test_a_node_is_checked_through_slurm(fake: Fake, cli: Commands, tmp_path: Path) -> None:
    fake(
        "sinfo",
        r"""case "$*" in *--Node*) printf 'n1\x1fdown*\x1fgpu\x1fbad fan\nn2\x1fidle\x1fgpu\x1fnone\n' ;;
        *) printf 'gpu\x1fup\x1f30\x1f2\x1fgpu:8\n' ;; esac""",
    )
    calls = fake(
        "salloc",
        "echo 'salloc: error: Job submit/allocate failed: Requested partition configuration' >&2; exit 1",
    )
    path = tmp_path / "slurm.yaml"
    path.write_text(f"kind: site\npartition: gpu\nlog_dir: {tmp_path}\n")
    answer = rows(cli, "--site", path)
    assert "checking 1 of 2 nodes of partition gpu\n" in cli.err
    shown = "reachable; partition gpu: 2 nodes with 8 GPUs each (GRES), jobs of up to 30m"
    assert answer["slurm"]["text"] == shown
    assert "--nodelist=n2 " in calls.read_text()
    assert (
        answer["node"]["verdict"] == "fail"
        and "Requested partition configuration" in answer["node"]["text"]
    )


@pytest.fixture
def llama2(tmp_path: Path) -> Path:
    """A site with the data of llama2_70b_lora as AMD's guide leaves them."""
    for path in ("train.npy", "validation.npy", "packed_metadata.jsonl"):
        (tmp_path / "llama2/data").mkdir(parents=True, exist_ok=True)
        (tmp_path / "llama2/data" / path).touch()
    (tmp_path / "llama2/data/megatron_checkpoints/Llama-2-70b-hf/iter_0000000").mkdir(parents=True)
    (tmp_path / "sets").mkdir()
    path = tmp_path / "llama2.yaml"
    path.write_text(
        f"kind: site\nlog_dir: {tmp_path}/sets\nscheduler: local\n"
        f"data: {{llama2_70b_lora: {{DATADIR: {tmp_path}/llama2}}}}\n"
    )
    return path


def test_data_that_are_not_prepared(cli: Commands, llama2: Path) -> None:
    what = ("MI355X_1x8x1", "llama2_70b_lora", "--site", llama2)
    answer = rows(cli, *what)
    text = answer["prepared"]["text"]
    assert text.startswith("not there: ") and text.endswith("Llama-2-70b-hf/snapshots")
    assert answer["prepared"]["remedy"] == "orchestrator prepare llama2_70b_lora"
    assert "environment" not in answer, "offline runs need no token"
    (
        llama2.parent / "llama2/data/huggingface/hub/models--meta-llama--Llama-2-70b-hf/snapshots"
    ).mkdir(parents=True)
    assert "prepared" not in rows(cli, *what)


def test_data_that_no_key_names_are_named_and_not_downloaded(cli: Commands, site: Path) -> None:
    """They may exist. A download of terabytes to a likely place would not set the key."""
    remedy = rows(cli, "MI325X_08x08x32", "flux1", "--site", site)["data"]["remedy"]
    assert remedy.startswith("add to the site file the folder that has the data, or that `orch")
    assert remedy.endswith("data: {flux1: {DATADIR: " + f"{site.parent}/data/flux1" + "}}")
    assert cli("prepare", "flux1", "--check", "--site", site).code == ExitCode.BAD_INPUT
    assert "hint: add to the site file the folder" in cli.err
    given = ("--override", f"data.flux1.DATADIR={site.parent}/none")
    assert cli("prepare", "flux1", "--check", "--site", site, *given).code == ExitCode.NO_SCORE
    hint = f"hint: orchestrator prepare flux1 --site {site} --override data.flux1.DATADIR="
    assert hint in cli.err


def test_a_token_that_the_program_needs(
    cli: Commands, llama2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that ask the hub get the token by name, and its value is written nowhere."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    llama2.write_text(llama2.read_text() + "offline: false\n")
    what = ("MI355X_1x8x1", "llama2_70b_lora", "--site", llama2)
    answer = rows(cli, *what)
    assert answer["environment"]["text"].startswith("llama2_70b_lora needs HF_TOKEN for config and")
    assert answer["environment"]["remedy"].startswith("export HF_TOKEN=...")
    assert cli("submit", *what).code == ExitCode.BAD_INPUT
    assert "needs HF_TOKEN" in cli.err and not list((llama2.parent / "sets").iterdir())
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    answer = rows(cli, *what)
    assert "environment" not in answer and "prepared" not in answer, "the hub has what is missing"
    folder = llama2.parent / "bundle"
    assert cli("render", *what, "-o", folder).code == ExitCode.OK
    texts = {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert "PASS_ENV=(HF_TOKEN)" in texts["settings.sh"]
    assert not [name for name, text in texts.items() if "hf_secret" in text]
    assert "HF_HUB_OFFLINE" not in texts["config_MI355X_1x8x1.sh"]


CISCO = ("MI350X_2x8x1", "llama2_70b_lora", "--round", "6.0")
MANGO = ("MI300X_2x8x1", "llama2_70b_lora", "--round", "5.1")
MANGO_CONFIG = "/workspace/conf/config_MI300X_2x8x1.sh"


@pytest.mark.parametrize(
    ("system", "place", "given"),
    [
        (CISCO, "/workspace/code", "code: {llama2_70b_lora: /shared/cisco}"),
        (
            CISCO,
            "/workspace/code",
            "container: {mounts: [{host: /shared/cisco, container: /workspace}]}",
        ),
        (
            MANGO,
            MANGO_CONFIG,
            f"container: {{mounts: [{{host: /shared/mine.sh, container: {MANGO_CONFIG}}}]}}",
        ),
    ],
)
def test_what_the_published_runs_had_beside_their_image(
    cli: Commands, tmp_path: Path, system: tuple[str, ...], place: str, given: str
) -> None:
    (tmp_path / "sets").mkdir()
    site = tmp_path / "site.yaml"
    data = "data: {llama2_70b_lora: {DATADIR: /nowhere/data}}\n"
    text = f"kind: site\nlog_dir: {tmp_path}/sets\ntime_limit: 60\n{data}"
    site.write_text(text)
    what = (*system, "--site", site)

    def row() -> dict[str, Any] | None:
        return rows(cli, *what).get("prerequisite")

    missing = row()
    assert missing is not None and missing["verdict"] == "fail"
    assert f"the site mounts nothing at {place}" in missing["text"]
    for command, code in (
        (("submit", *what), ExitCode.BAD_INPUT),
        (("submit", *what, "--dry-run"), 0),
    ):
        assert cli(*command).code == code
        assert f"mounts nothing at {place}" in cli.err
        assert "acknowledged: [prerequisites]" in cli.err and "{" + "workload}" not in cli.err
    assert not list((tmp_path / "sets").iterdir())
    site.write_text(text + "acknowledged: [prerequisites]\n")
    assert row() is None and cli("submit", *what, "--dry-run").code == ExitCode.OK
    site.write_text(text + given + "\n")
    assert row() is None and cli("submit", *what, "--dry-run").code == ExitCode.OK


def test_a_set_without_its_prerequisites_is_not_compared_with_the_published_time() -> None:
    def published(site: Site) -> list[float]:
        entry = load_entry("MI350X_2x8x1", "llama2_70b_lora", round="6.0", site=site)
        record = describe(entry, nexp=10, bundle_sha256="")
        by_hand = render_bundle(entry, nexp=10)["settings.sh"].decode()
        assert all(shlex.quote(text) in by_hand for text in record.unmet)
        assert ("UNMET=()" in by_hand) is (not record.unmet)
        return [one.minutes for one in of_set(asdict(record))]

    site = Site(log_dir="/sets")
    code = {"llama2_70b_lora": "/shared/cisco"}
    assert published(site.model_copy(update={"code": code})) == [8.37]
    assert published(site.model_copy(update={"acknowledged": ["prerequisites"]})) == []


def test_a_config_to_mount_over_that_of_an_image(cli: Commands, tmp_path: Path) -> None:
    site, config = tmp_path / "site.yaml", tmp_path / "mine.sh"
    site.write_text(
        f"kind: site\nlog_dir: {tmp_path}\nnetwork: {{socket_ifname: [ens1, ens2], rdma: 'off'}}\n"
    )
    what = ("render", *MANGO, "--site", site, "--image-config", config)
    assert cli(*what).code == ExitCode.OK and "variables" in cli.err
    said = subprocess.run(
        ["env", "-i", "bash", "-c", f". {config}; env"], capture_output=True, text=True, check=True
    )
    found = dict(line.split("=", 1) for line in said.stdout.splitlines())
    entry = load_entry("MI300X_2x8x1", "llama2_70b_lora", round="5.1", site=site)
    assert found["NCCL_SOCKET_IFNAME"] == "ens1,ens2" and "SEED" not in found
    assert entry.whole_env.keys() <= found.keys() and found["CP"] == "2"
    assert cli(*what).code == ExitCode.BAD_INPUT and "name a new file" in cli.err


def test_a_log_directory_in_which_others_replace_sets(
    cli: Commands, site: Path, tmp_path: Path
) -> None:
    log_dir = tmp_path / "sets"
    assert "log_dir_mode" not in rows(cli, "--site", site)
    log_dir.chmod(0o777)
    row = rows(cli, "--site", site)["log_dir_mode"]
    assert row["verdict"] == "warn" and row["remedy"] == f"chmod +t {log_dir}"
    cli("submit", *one_node(tmp_path, site))
    assert cli.code == ExitCode.OK and f"chmod +t {log_dir}" in cli.err
    log_dir.chmod(0o1777)
    assert "log_dir_mode" not in rows(cli, "--site", site)


FLUX1_FOLDER = (
    "add to the site file the folder that has the data, or that `orchestrator prepare flux1` is to "
    "fill: data: {flux1: {DATADIR: /shared/data/flux1}}"
)


@pytest.mark.parametrize(
    ("check", "scheduler", "fix"),
    [
        ("clock", "local", "sudo chronyc makestep || sudo systemctl restart systemd-timesyncd"),
        ("gpu_processes", "slurm", "srun --partition=batch --nodelist=n1 bash -c 'sudo fuser -v /dev/kfd'"),
        ("gpu_errors", "slurm", "scontrol update nodename=n1 state=drain reason='GPU errors'"),
        ("gpu_errors", "local", "advice"),
        ("data", "slurm", "orchestrator prepare flux1 --check"),
        ("data", "unnamed", FLUX1_FOLDER),
        ("limits", "slurm", "advice"),
    ],
)  # fmt: skip
def test_problems_of_nodes_end_in_a_command(check: str, scheduler: str, fix: str) -> None:
    """What the node advises is part of the text then."""
    entry = load_entry("MI325X_08x08x32", "flux1", round=None, site=Site(log_dir="/shared/sets"))
    data = {} if scheduler == "unnamed" else {"flux1": {"DATADIR": "/shared/flux1"}}
    changed = {"scheduler": scheduler, "partition": "batch", "data": data}
    entry = replace(entry, site=entry.site.model_copy(update=changed))
    row = _with_command(Row("n1", check, "fail", 1, "it is wrong", "advice"), entry)
    assert row.remedy == fix and row.text == "it is wrong" + "; advice" * (fix != "advice")
    unchecked = Row("n1", check, "warn", 1, "cannot be checked: no amd-smi", "install it")
    for kept in (Row("n1", check, "pass", 1), unchecked):
        assert _with_command(kept, entry) == kept
    if fix.startswith("scontrol"):
        watched = Row("n1", check, "warn", 1, "corrected errors: GPU 1: 2", "watch these GPUs")
        assert _with_command(watched, entry) == watched


def test_the_time_limit_of_a_partition_is_said_as_a_person_would() -> None:
    known = Partition("batch", True, True, "infinite", 8, 8)
    assert known.description == "8 nodes with 8 GPUs each (GRES), no time limit"
    short = replace(known, limit="1-12:00:00", nodes=1, gpus=0)
    assert short.description == "1 node with no GPUs (GRES), jobs of up to 1d12h"
    assert replace(known, limit="odd").description.endswith("jobs of up to odd")
