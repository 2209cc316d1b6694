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

from orchestrator.cli import preflight
from orchestrator.cli.doctor import summary, verdict
from orchestrator.container.image_nodes import nodes_with
from orchestrator.errors import ExitCode, Fix, SetError
from orchestrator.model import Site, load_entry
from orchestrator.model.prerequisites import UnmetNeed
from orchestrator.nodes.names import NamedNode
from orchestrator.onnode.policy.check_names import CHECKS
from orchestrator.onnode.policy.verdict import NodeVerdict, Row, Verdicts
from orchestrator.published import of_set
from orchestrator.render import render_bundle
from orchestrator.runset.create import describe
from orchestrator.scheduler.slurm_site import Partition
from orchestrator.site.remedies import (
    DRIVER,
    FIX_ON_NODE,
    ON_NODE,
    Remedies,
    on_this_host,
    over_ssh,
    through_slurm,
)
from orchestrator.words import PIPE

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
    remedy = f"${{EDITOR:-vi}} +2 {path}"
    assert answer["site"]["remedy"] == remedy, "`validate` would print the same again"
    for words in (("submit", "local_2x2x8", "builtin"), ("validate", path)):
        cli(*words, *(() if path in words else ("--site", path)))
        assert cli.err.splitlines()[-1] == f"  {remedy}"


def test_the_last_line_opens_the_place_of_the_first_problem(cli: Commands, tmp_path: Path) -> None:
    path = tmp_path / "z.yaml"
    path.write_text("kind: site\nscheduler: slurm\n\nunknown: 1\n")
    for words in (
        ["submit", "local_2x2x8", "builtin", "--site", path],
        ["validate", path],
        ["validate", tmp_path / "missing.yaml", path],
    ):
        said = cli(*words).err.splitlines()
        assert said[0].startswith(
            f"orchestrator {words[0]}: {path}:1: log_dir: this key is required"
        )
        assert f"{path}:4: unknown: unknown key" in cli.err
        assert said[-1] == f"  ${{EDITOR:-vi}} +1 {path}"


def test_an_unknown_key_with_a_near_one_lists_no_others(cli: Commands, site: Path) -> None:
    site.write_text(f"{site.read_text()}partiton: x\n")
    line = site.read_text().count("\n")
    text = rows(cli, "--site", site)["site"]["text"]
    assert text == f'{site}:{line}: partiton: unknown key; did you mean "partition"?'


def test_the_fix_of_a_named_site_file_that_is_missing_ends_it(
    cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`init` alone writes ./site.yaml, and the variable would still name the other file."""
    monkeypatch.chdir(tmp_path)
    missing = tmp_path / "other/mine.yaml"
    monkeypatch.setenv("ORCHESTRATOR_SITE", str(missing))
    row = rows(cli)["site"]
    assert (row["verdict"], row["remedy"]) == ("fail", f"orchestrator init -o {missing}")
    assert cli("ls").err.splitlines()[1:] == [
        "  hint: the command below writes it; without it: unset ORCHESTRATOR_SITE",
        f"  {row['remedy']}",
    ]
    cli(*row["remedy"].split()[1:], "--scheduler", "local", "--log-dir", tmp_path / "sets")
    assert cli("ls").code == ExitCode.OK, cli.err
    # A near name is taken for a slip.
    mistyped = missing.with_name("mien.yaml")
    assert cli("ls", "--site", mistyped).err.splitlines()[-1] == (
        f"  orchestrator ls --site {missing}"
    )
    monkeypatch.setenv("ORCHESTRATOR_SITE", str(mistyped))
    assert rows(cli)["site"]["remedy"] == f"export ORCHESTRATOR_SITE={missing}"


def test_a_system_that_there_is_not_is_no_finding(cli: Commands, site: Path) -> None:
    assert cli("doctor", "MI999", "flux1", "--site", site).code == ExitCode.BAD_INPUT
    assert "MI999" in cli.err


@pytest.mark.parametrize("words", [(), ("flux1",), ("--all-nodes",), ("flux1", "--all-nodes")])
def test_an_empty_system_is_not_a_missing_one(
    cli: Commands, site: Path, words: tuple[str, ...]
) -> None:
    """In a script with an unset variable hosts alone would be checked, and called fit."""
    assert cli("doctor", "", *words, "--site", site).code == ExitCode.BAD_INPUT
    assert "there is no system ''" in cli.err


def test_a_system_without_a_workload(cli: Commands, site: Path) -> None:
    for command, *more in (
        ["submit", "--nexp", "1"],
        ["images", "inspect"],
        ["images", "build"],
        ["doctor"],
        ["doctor", "--all-nodes"],
    ):
        assert cli(command, *more, "foo", "--site", site).code == ExitCode.BAD_INPUT
        assert "there is no system 'foo'" in cli.err
        typed = (command, *more, "local_2x2x8", "--site", str(site))
        assert cli(*typed).code == ExitCode.BAD_INPUT
        assert "local_2x2x8: which WORKLOAD? it has: builtin\n" in cli.err
        pasted = cli.err.splitlines()[-1].split()[1:]
        assert pasted == [*typed, "builtin"]
    assert cli(*pasted).code != ExitCode.BAD_INPUT, cli.err


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
    assert answer["slurm"]["verdict"] == "fail" and message in answer["slurm"]["text"]
    commands = ("scontrol ", f"orchestrator config --set partition=gpu --site {path}")
    assert answer["slurm"]["remedy"].startswith(commands)
    assert "engine" not in answer


@pytest.mark.parametrize("partition", ["", "partition: gpu\n"])
def test_a_cluster_without_partitions(
    fake: Fake, cli: Commands, tmp_path: Path, partition: str
) -> None:
    fake("sinfo", "true")
    path = tmp_path / "slurm.yaml"
    path.write_text(f"kind: site\n{partition}log_dir: {tmp_path}\n")
    row = rows(cli, "--site", path)["slurm"]
    assert row["verdict"] == "fail" and row["text"].endswith((" known: none", " has none"))


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


@pytest.mark.parametrize(
    ("keys", "node"),
    [
        ("exclude: [n1]", "n2"),
        ("nodelist: [n2]", "n2"),
        ("exclude: ['n[1-2]']", ""),
        ("exclude: ['n[1-2]']\nreservation: mlperf", "n3"),
    ],
)
def test_the_checked_node_is_one_that_the_site_uses(
    fake: Fake, cli: Commands, tmp_path: Path, keys: str, node: str
) -> None:
    fake(
        "sinfo",
        r"""case "$*" in
        *--nodes=n2*) printf 'n2\x1fidle\x1fgpu\x1fnone\n' ;;
        *--Node*) printf '%s\x1fgpu\x1fnone\n' n1$'\x1f'idle n2$'\x1f'idle n3$'\x1f'reserved ;;
        *) printf 'gpu\x1fup\x1f30\x1f3\x1fgpu:8\n' ;; esac""",
    )
    calls = fake("salloc", "echo 'salloc: error: Job submit/allocate failed: x' >&2; exit 1")
    path = tmp_path / "slurm.yaml"
    path.write_text(f"kind: site\npartition: gpu\nlog_dir: {tmp_path}\n{keys}\n")
    row = rows(cli, "--site", path)["node"]
    if node:
        assert f"--nodelist={node} " in calls.read_text()
    else:
        assert row["text"].startswith("no node is idle") and not calls.exists()


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


def test_data_that_are_not_prepared(cli: Commands, llama2: Path, tmp_path: Path) -> None:
    what = ("MI355X_1x8x1", "llama2_70b_lora", "--site", llama2)
    answer = rows(cli, *what)
    text = answer["prepared"]["text"]
    assert text.startswith("not there: ") and text.endswith("Llama-2-70b-hf/snapshots")
    remedy = f"orchestrator prepare llama2_70b_lora --site {llama2}"
    assert answer["prepared"]["remedy"] == remedy
    # The warning of `submit` checks the folders that were typed.
    given = f"data.llama2_70b_lora.DATADIR={tmp_path}/empty"
    (tmp_path / "empty").mkdir()
    cli("submit", *what, "--nexp", "1", "--override", given, "--override", "limits.attempts=1")
    [warning] = [line for line in cli.err.splitlines() if "not there: " in line]
    assert warning.endswith(f"{remedy} --override {given} --override limits.attempts=1 --check")
    command = shlex.split(warning[warning.index("orchestrator prepare") :])[1:]
    assert cli(*command).code == ExitCode.NO_SCORE and f"{tmp_path}/empty/" in cli.out
    assert "environment" not in answer, "offline runs need no token"
    (
        llama2.parent / "llama2/data/huggingface/hub/models--meta-llama--Llama-2-70b-hf/snapshots"
    ).mkdir(parents=True)
    assert "prepared" not in rows(cli, *what)


def test_a_mistyped_data_folder_ends_in_the_one_that_is_there(cli: Commands, llama2: Path) -> None:
    """A preparation, or its check, would lead to a download into the mistyped folder."""
    llama2.write_text(llama2.read_text().replace("/llama2}", "/lama2}"))
    what = ("MI355X_1x8x1", "llama2_70b_lora", "--site", str(llama2))
    assert cli("submit", *what).code == ExitCode.BAD_INPUT
    right = f"data.llama2_70b_lora.DATADIR={llama2.parent}/llama2"
    assert cli.err.splitlines()[-1].endswith(f" --override {right}")
    cli("doctor", *what, "--json")
    checks = [row for row in outputs.checked(cli.out)["checks"] if row["check"] == "data"]
    setting = f"orchestrator config --set {right} --site {llama2}"
    fix = f"{setting} && orchestrator doctor {' '.join(what)}"
    assert [row["remedy"] for row in checks] == [fix, fix], "it mends the site file, starts no job"
    assert cli(*setting.split()[1:]).code == ExitCode.OK, cli.err
    assert fix not in [row["remedy"] for row in rows(cli, *what).values()]


def test_data_that_no_key_names_are_named_and_not_downloaded(cli: Commands, site: Path) -> None:
    """They may exist. A download of terabytes to a likely place would not set the key."""
    remedy = rows(cli, "MI300X_02x08x32", "flux1", "--site", site)["data"]["remedy"]
    asking = f"orchestrator config --set data.flux1.DATADIR --site {site} && orchestrator"
    assert remedy == f"{asking} doctor MI300X_02x08x32 flux1 --site {site}"
    assert cli("prepare", "flux1", "--check", "--site", site).code == ExitCode.BAD_INPUT
    assert cli.err.endswith(f"\n  {asking} prepare flux1 --check --site {site}\n")
    (site.parent / "data/flux1").mkdir(parents=True)
    cli("prepare", "flux1", "--site", site)
    assert cli.err.endswith(f"\n  {asking} prepare flux1 --site {site}\n"), "a guess is not filled"
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
    assert answer["environment"]["remedy"] == "read -rs HF_TOKEN && export HF_TOKEN"
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
        hinted = "acknowledged: [prerequisites]" in cli.err
        assert hinted is (code != 0) and "{" + "workload}" not in cli.err
    assert not list((tmp_path / "sets").iterdir())
    site.write_text(text + "acknowledged: [prerequisites]\n")
    assert row() is None and cli("submit", *what, "--dry-run").code == ExitCode.OK
    site.write_text(text + given + "\n")
    assert row() is None and cli("submit", *what, "--dry-run").code == ExitCode.OK


def test_the_command_that_mounts_a_prerequisite(cli: Commands, tmp_path: Path) -> None:
    (tmp_path / "sets").mkdir()
    site, config = tmp_path / "site.yaml", tmp_path / Path(MANGO_CONFIG).name
    site.write_text(
        f"kind: site\nlog_dir: {tmp_path}/sets\ntime_limit: 60\n"
        "data: {llama2_70b_lora: {DATADIR: /nowhere/data}}\n"
        "container: {mounts: [{host: /usr/lib/libibverbs, read_only: false}]}\n"
    )

    def ends(*words: object) -> list[list[str]]:
        """Return the commands of the last line without `orchestrator`."""
        assert cli(*words).code == ExitCode.BAD_INPUT
        commands = cli.err.splitlines()[-1].split(" && ")
        return [shlex.split(command)[1:] for command in commands]

    # Of code only the user knows the place: the command asks for it, as for data.
    typed = ("submit", *CISCO, "--site", str(site))
    asking = ["config", "--set", "code.llama2_70b_lora", "--site", str(site)]
    assert ends(*typed) == [asking, [*typed]]
    advice = rows(cli, *typed[1:])["prerequisite"]
    assert "copy Cisco/benchmarks" in advice["text"]
    assert advice["remedy"].endswith(shlex.join(["orchestrator", "doctor", *typed[1:]]))
    # A config is written, and mounted with what the site mounts.
    typed = ("submit", *MANGO, "--site", str(site), "--dry-run")
    write, mount = ends(*typed[:-1])
    assert cli(*write).code == ExitCode.OK and config.is_file()
    assert mount[: len(typed) - 1] == [*typed[:-1]]
    assert cli(*mount, "--dry-run").code == ExitCode.OK
    assert "libibverbs" in mount[-1]
    # It is written once.
    assert ends(*typed[:-1]) == [mount]
    setting, again = rows(cli, *typed[1:-1])["prerequisite"]["remedy"].split(" && ")
    assert again == shlex.join(["orchestrator", "doctor", *typed[1:-1]])
    assert cli(*shlex.split(setting)[1:]).code == ExitCode.OK, cli.err
    assert "prerequisite" not in rows(cli, *typed[1:-1])
    assert "libibverbs" in site.read_text() and str(config) in site.read_text()


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


ASK = "orchestrator config --set data.flux1.DATADIR && orchestrator doctor MI325X_08x08x32 flux1"
ON_N1 = "srun --partition=batch --nodelist=n1 bash -c '{}'"
LIMITED = "locked memory is limited to 64 KiB, RDMA needs unlimited"


@pytest.mark.parametrize(
    ("check", "site", "text", "fix"),
    [
        ("clock", "local", "", "sudo chronyc makestep || sudo systemctl restart systemd-timesyncd"),
        ("gpu_processes", "slurm", "", ON_N1.format("sudo fuser -v /dev/kfd")),
        ("gpu_errors", "slurm", "", "scontrol update nodename=n1 state=drain reason='GPU errors'"),
        ("gpu_errors", "local", "", "amd-smi metric --ecc-blocks"),
        ("gpu_count", "slurm", "cannot be checked: no amd-smi", ON_N1.format("lspci -d 1002:; sudo modprobe amdgpu")),
        ("gpu_count", "local", "64 GPUs: the GPUs are split into partitions", "sudo amd-smi set --compute-partition SPX"),
        ("data", "slurm", "", "orchestrator prepare flux1 --check"),
        ("data", "unnamed", "DATADIR is not set", ASK),
        ("limits", "slurm", LIMITED, "orchestrator config --set 'container.options=[--cap-add=X, --ulimit=memlock=-1]'"),
        ("limits", "bare", LIMITED, ON_N1.format('grep -E "locked memory|open files" /proc/self/limits')),
        ("versions", "local", "", "grep -s . /sys/module/amdgpu/version /opt/rocm/.info/version /sys/class/infiniband/*/fw_ver; uname -r"),
        ("engine", "local", "", "docker info || sudo systemctl start docker"),
        ("engine", "slurm", "docker maps users (userns-remap): ...", "orchestrator config --set 'container.options=[--cap-add=X, --userns=host]'"),
        ("engine", "slurm", "... of the job: it is private to jobs", "orchestrator config --set container.channel_dir=/var/tmp"),
        ("free_space", "bare", "", ON_N1.format("df -h")),
        ("log_dir", "slurm", "", ON_N1.format("ls -ld /shared/sets; df -h /shared/sets")),
        ("reach", "local", "hosts not reached: huggingface.co (tokenizer): no answer", "curl --head --max-time 5 https://huggingface.co"),
    ],
)  # fmt: skip
def test_problems_of_nodes_end_in_a_command(check: str, site: str, text: str, fix: str) -> None:
    """What the node advises is part of the text then."""
    remedies = of_site(site)
    row = remedies.with_command(Row("n1", check, "fail", 1, text or "it is wrong", "advice"))
    assert row.remedy == fix
    looks = ("gpu_processes", "versions", "free_space", "log_dir", "reach")
    shows = fix.startswith(("amd-smi metric", "orchestrator prepare")) or site == "bare"
    assert row.shows is (check in looks or shows)
    label = "check" if row.shows else "fix"
    assert f"        {label}: {fix}" in summary([row], PIPE)
    if site != "unnamed":
        assert row.text == f"{text or 'it is wrong'}; advice"
    passed = Row("n1", check, "pass", 1)
    assert remedies.with_command(passed) == passed


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_that_fails_ends_in_a_command(check: str) -> None:
    hosts = "hosts not reached: huggingface.co (tokenizer): no answer"
    row = of_site("slurm").with_command(Row("n1", check, "fail", 1, hosts, "advice"))
    assert row.remedy not in ("", "advice")


def test_an_image_that_no_registry_has_is_built_first() -> None:
    entry = load_entry("MI355X_1x8x1_Oracle", "gpt_oss_20b", site=Site(log_dir="/shared/sets"))
    names = ["MI355X_1x8x1_Oracle", "gpt_oss_20b", "--site", "a.yaml"]
    remedies = Remedies(entry, names, on_this_host)
    steps = remedies.with_command(Row("n1", "image", "fail", 1, "missing", "advice")).remedy
    assert [step.split()[2] for step in steps.split(" && ")] == ["build", "pull", "distribute"]
    assert all(step.endswith(" ".join(names)) for step in steps.split(" && "))


def of_site(kind: str) -> Remedies:
    """Remedies at a site with Slurm, `local`, `bare` (without containers), or `unnamed` data."""
    entry = load_entry("MI325X_08x08x32", "flux1", round=None, site=Site(log_dir="/shared/sets"))
    site = entry.site.model_copy(
        update={
            "scheduler": "local" if kind == "local" else "slurm",
            "data": {} if kind == "unnamed" else {"flux1": {"DATADIR": "/shared/flux1"}},
            "container": entry.site.container.model_copy(update={"options": ["--cap-add=X"]}),
        }
    )
    container = replace(entry.container, engine="none") if kind == "bare" else entry.container
    run_on = on_this_host if kind == "local" else through_slurm("batch")
    names = ["MI325X_08x08x32", "flux1"]
    return Remedies(replace(entry, site=site, container=container), names, run_on)


def test_advice_that_is_no_command_is_no_fix() -> None:
    remedies = of_site("local")
    row = Row("n1", "free_space", "warn", 1, "cannot be checked: no size", "look at the mount")
    need = UnmetNeed("prerequisite", "it needs a file", "mount it", stops=True)
    found = remedies.with_command(row)
    for text, command in ((found.text, found.remedy), remedies.of_need(need)):
        assert command == "" and text.endswith(("; look at the mount", "; mount it"))


def test_without_a_system_the_command_lists_them(cli: Commands, site: Path) -> None:
    command = rows(cli, "--site", site)["system"]["remedy"]
    assert cli(*shlex.split(command)[1:]).code == ExitCode.OK and "MI325X_08x08x32" in cli.out
    cli("doctor", "--site", site)
    assert f"        check: {command}" in cli.out.splitlines()


def test_the_checks_of_a_node_have_a_command_each() -> None:
    remedies = of_site("local")
    assert not {
        check
        for check in CHECKS
        if "advice"
        in remedies.with_command(Row("n1", check, "fail", 1, "h (x): y", "advice")).remedy
    }


@pytest.mark.parametrize("command", [*ON_NODE.values(), *FIX_ON_NODE.values(), DRIVER])
def test_a_shell_takes_the_commands_for_nodes(command: str) -> None:
    command = command.format(engine="docker", log_dir="/sets")
    subprocess.run(["bash", "-n", "-c", command], check=True)


def test_a_problem_of_this_host_has_no_command_for_a_node(
    cli: Commands, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise SetError("no space left", hint="make room", fix=Fix("df -h /sets"))

    fake("sinfo", r"printf 'gpu\x1fup\x1f30\x1f2\x1fgpu:8\n'")
    monkeypatch.setattr("orchestrator.site.doctor.temporary_bundle", full)
    site = tmp_path / "slurm.yaml"
    site.write_text(f"kind: site\npartition: gpu\nlog_dir: {tmp_path}\n")
    row = rows(cli, "--site", site)["log_dir"]
    assert (row["text"], row["remedy"]) == ("no space left; make room", "df -h /sets")


def test_a_node_on_which_nothing_was_measured_is_not_drained() -> None:
    unchecked = Row("n1", "gpu_errors", "fail", 1, "cannot be checked: no amd-smi (unlike node n2)")
    assert "modprobe amdgpu" in of_site("slurm").with_command(unchecked).remedy
    watched = Row("n1", "gpu_errors", "warn", 1, "corrected errors: GPU 1: 2", "watch these GPUs")
    assert "scontrol" not in of_site("slurm").with_command(watched).remedy


def test_several_nodes_have_one_command() -> None:
    row, nodes = Row("n1", "root", "fail", 1, "no root", "sudo"), ["n1", "n2", "n3"]
    shown = of_site("slurm").with_command(row, nodes).remedy
    assert shown == "srun --partition=batch --nodes=3 --nodelist='n[1-3]' bash -c 'sudo -n -l'"
    hosts = [NamedNode("n1", "ssh://me@10.0.0.9:2222"), NamedNode("n2")]
    by_ssh = of_site("slurm")._replace(run_on=over_ssh(hosts, "my config"))
    assert by_ssh.with_command(row, nodes[:2]).remedy == (
        "ssh -F 'my config' ssh://me@10.0.0.9:2222 'sudo -n -l'"
    )


UNSET = Row("here", "data", "fail", 0, "the site file names no folder", "orchestrator config")


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ([UNSET], "not ready: 1 problem (data)"),
        (
            [UNSET, *(replace(UNSET, node=f"n{number}") for number in range(1, 9))],
            "not ready: 1 problem (data)",
        ),
        (
            [UNSET, replace(UNSET, text="n1 lacks a folder"), replace(UNSET, verdict="warn")],
            "not ready: 2 problems (data), 1 warning",
        ),
    ],
)
def test_problems_are_counted_not_rows(rows: list[Row], shown: str) -> None:
    assert verdict(rows) == shown
    lines = list(summary(rows, PIPE))
    fixes = [line for line in lines if "fix:" in line]
    assert len(fixes) == len({row.verdict for row in rows}), "a fix stands once"
    assert "fail  data: the site file names no folder" in lines, "of this host, whatever nodes say"


def test_an_unset_folder_is_one_problem_of_this_host_and_its_nodes(
    cli: Commands, site: Path
) -> None:
    cli("doctor", "MI300X_02x08x32", "flux1", "--site", site)
    assert cli.out.count("names no folder for data.flux1.DATADIR") == 1
    assert cli.out.count("fix: orchestrator config --set data.flux1.DATADIR --site ") == 1
    assert "DATADIR is not set" not in cli.out


def test_the_time_limit_of_a_partition_is_said_as_a_person_would() -> None:
    known = Partition("batch", True, True, "infinite", 8, 8)
    assert known.description == "8 nodes with 8 GPUs each (GRES), no time limit"
    short = known._replace(limit="1-12:00:00", nodes=1, gpus=0)
    assert short.description == "1 node with no GPUs (GRES), jobs of up to 1d12h"
    assert known._replace(limit="odd").description.endswith("jobs of up to odd")


def test_submit_learns_which_nodes_have_the_image(
    cli: Commands, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Row("n1", "image", "pass", 1), Row("n2", "image", "fail", 1)]
    verdicts = Verdicts(tuple(NodeVerdict(row.node, (row,)) for row in found))
    monkeypatch.setattr(preflight, "_check", lambda *_: (verdicts, on_this_host))
    asked = ("doctor", "MI325X_08x08x32", "flux1", "--all-nodes", "--site", site)
    assert cli(*asked).code == ExitCode.NO_SCORE, cli.err
    entry = load_entry("MI325X_08x08x32", "flux1", site=site)
    folder = Path(str(entry.site.log_dir)).parent / "images"
    assert nodes_with(folder, entry.image) == ["n1"]
