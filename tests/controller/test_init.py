"""`orchestrator init`: a site file from what Slurm and one node tell. Slurm's programs are scripts; the node is this host."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from controller_parts import Commands
from until import LIMIT_S

from orchestrator.errors import ExitCode, InputError
from orchestrator.model import Site, load_site
from orchestrator.model.schema import DOCUMENTS, descriptions, json_schema
from orchestrator.model.sites import site_of
from orchestrator.model.source import read
from orchestrator.site import site_file
from orchestrator.site.find import SiteDraft, _engine
from orchestrator.site.look import NodeLook
from orchestrator.site.site_file import site_text, write_site

Fake = Callable[[str, str], Path]
TOP = Path(__file__).resolve().parents[2]
SINFO = r"""
case "$*" in
  *--Node*) printf 'n%d\x1fidle\x1fgpu\x1fnone\n' 1 2 ;;
  *) printf 'cpu*\x1fup\x1finfinite\x1f4\x1f(null)\n'
     printf 'gpu\x1fup\x1f2-00:00:00\x1f7\x1fgpu:mi325x:8(S:0-1)\ngpu\x1fup\x1f2-00:00:00\x1f1\x1fgpu:mi325x:4\n' ;;
esac
"""
SRUN = 'while [[ $1 == --* ]]; do shift; done; SLURMD_NODENAME=n1 exec "$@"'
SCONTROL = r"""printf 'ReservationName=%s StartTime=1 Users=%s Accounts=(null) State=ACTIVE\n' mine "$(id -un)" theirs no-such-user"""


@pytest.fixture
def cluster(fake: Fake) -> Fake:
    """Two partitions, three accounts, a reservation, and nodes that are this host."""
    fake("sinfo", SINFO)
    fake("srun", SRUN)
    fake("scontrol", SCONTROL)
    fake(
        "sacctmgr",
        'case "$*" in *DefaultAccount*) echo mlperf ;; *) printf "mlperf\\nother\\nmlperf\\n" ;; esac',
    )
    fake("docker", "echo 'permission denied while trying to connect' >&2; exit 1")
    fake("podman", "echo ok")
    return fake


def test_what_slurm_and_a_node_tell_is_in_the_file(
    cluster: Fake, cli: Commands, tmp_path: Path
) -> None:
    sets = tmp_path / "sets"
    assert cli("init", "--yes", "--log-dir", sets).code == ExitCode.OK, cli.err
    assert cli.out == "site.yaml\n"
    site = load_site("site.yaml")
    assert (site.scheduler, site.partition, site.gpu_request, site.log_dir) == (
        "slurm",
        "gpu",
        "gres",
        str(sets),
    )
    assert (site.account, site.container.engine, site.container.command) == (
        "mlperf",
        "podman",
        None,
    )
    text = Path("site.yaml").read_text()
    for answer in (
        "gpu: 8 nodes with 8 GPUs each (GRES), jobs of up to 2d.",
        "cpu: 4 nodes with no GPUs (GRES), no time limit",
        "Partition gpu allows 2-00:00:00 at most.",
        "Yours are mlperf; other.",
        "Active for you: mine.",
        "`podman` answers on n1.",
        "n1 wrote to it.",
    ):
        assert answer in text, answer
    assert list(sets.iterdir()) == []
    assert cli("systems", "validate", "site.yaml").code == ExitCode.OK


@pytest.mark.parametrize(
    ("installed", "reason"), [(True, "sudo asks for a password"), (False, "sudo is not installed")]
)
def test_why_a_user_without_root_tunes_nothing(installed: bool, reason: str) -> None:
    report = {"node": "n1", "root": False, "sudo": False, "sudo_installed": installed}
    draft = SiteDraft()
    _engine(draft, NodeLook(report | {"engines": []}))
    assert draft.values["tunables"] == "off" and draft.values["clear_caches"] is False
    assert f"n1: this user is not root, and {reason}; nothing is tuned" in draft.notes[-1]


def test_an_answer_ends_no_line_of_the_file(cluster: Fake, cli: Commands) -> None:
    """YAML ends a line at five characters, and everything behind one in a comment would be a key."""
    rare, usual = (
        "".join(f"{end}python: PROGRAM{end}#" for end in ends)
        for ends in ("\u2028\u2029\x85", "\n\r")
    )
    cluster("docker", f"printf '%s\\n' 'no{rare}' >&2; exit 1")
    cluster("podman", f"printf '%s\\n' 'no{usual}' >&2; exit 1")
    draft = SiteDraft({"kind": "site", "log_dir": "/x"})
    draft.remark("partition", f"MI300X{rare}{usual}")
    write_site(Path("direct.yaml"), draft)
    assert cli("init", "--yes", "--log-dir", Path.cwd() / "sets").code == ExitCode.OK, cli.err
    for name in ("direct.yaml", "site.yaml"):
        assert load_site(name).python == Site(log_dir="/x").python
        assert len(yaml.safe_load(Path(name).read_text())) == len(read(Path(name)).data)


def test_a_file_that_says_something_else_is_not_kept(
    cli: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_file, "clean", lambda text: text)
    draft = SiteDraft({"kind": "site", "log_dir": "/x"})
    draft.remark("partition", "MI300X\u2028python: PROGRAM\u2028#")
    with pytest.raises(InputError, match="would change python"):
        write_site(Path("site.yaml"), draft)
    assert os.listdir() == []


def test_srun_asks_for_what_sbatch_will(cluster: Fake, cli: Commands, tmp_path: Path) -> None:
    calls = cluster("srun", SRUN)
    assert (
        cli("init", "--yes", "--log-dir", tmp_path / "sets", "--account", "other").code
        == ExitCode.OK
    ), cli.err
    arguments = calls.read_text().splitlines()[0]  # what runs follows by value
    assert arguments.startswith(
        "--job-name=orch-init --nodes=1 --ntasks=1 --immediate=15 --time=2 --quiet --partition=gpu --account=other "
    )
    assert load_site("site.yaml").account == "other"


def test_every_commented_key_can_be_uncommented(cli: Commands) -> None:
    """Each stands with its default or an example, so that the whole file is valid, too, and has every key that there is."""
    text = site_text({"kind": "site", "log_dir": "/x"}, {}, name="s.yaml", schema="s.json")
    Path("all.yaml").write_text(re.sub(r"(?m)^#( *)(?=[a-z_]+:(?: |$))", lambda one: one[1], text))
    document = read(Path("all.yaml"))
    site_of(document, [])
    site = DOCUMENTS["site"]
    assert set(document.data) == set(site.model_fields)
    sections = {
        name: field.annotation
        for name, field in site.model_fields.items()
        if isinstance(document.data[name], dict)
    }
    for name, part in sections.items():
        if name not in ("data", "code", "env"):
            assert set(document.data[name]) == set(part.model_fields), name  # type: ignore[union-attr]


def test_a_file_that_is_there_stays(cli: Commands) -> None:
    Path("site.yaml").write_text("kind: site\nlog_dir: /old\n")
    assert cli("init", "--yes", "--scheduler", "local").code == ExitCode.BAD_INPUT
    assert "site.yaml is there already" in cli.err and "--force" in cli.err
    assert Path("site.yaml").read_text() == "kind: site\nlog_dir: /old\n" and os.listdir() == [
        "site.yaml"
    ]
    assert cli("init", "--yes", "--scheduler", "local", "--force").code == ExitCode.OK
    assert load_site("site.yaml").log_dir == str(Path.cwd() / "results")
    assert sorted(os.listdir()) == ["results", "site.schema.json", "site.yaml"]


def test_without_slurm_it_is_this_host(
    fake: Fake, cli: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    only = tmp_path / "only"
    only.mkdir()
    for name in ("bash", "python3", "env", "ip", "getent"):
        if result := subprocess.run(
            ["bash", "-c", f"command -v {name}"], capture_output=True, text=True
        ).stdout.strip():
            (only / name).symlink_to(result)
    monkeypatch.setenv("PATH", str(only))
    answer = cli.json("init")
    assert (
        answer["values"]["scheduler"] == "local"
        and answer["node"] == os.uname().nodename.split(".")[0]
    )
    assert (
        answer["values"]["container"] == {"engine": "none"} and "partition" not in answer["values"]
    )
    assert load_site(answer["site"]).container.engine == "none"


def test_slurm_that_does_not_answer_is_not_taken_for_none(fake: Fake, cli: Commands) -> None:
    fake(
        "sinfo",
        "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1",
    )
    assert cli("init", "--yes").code == ExitCode.UNKNOWN
    assert "Unable to contact slurm controller" in cli.err and "--scheduler local" in cli.err
    assert os.listdir() == []


def test_a_folder_that_nodes_do_not_see_is_not_taken(
    cluster: Fake, cli: Commands, tmp_path: Path
) -> None:
    """The node sees nothing below the first folder; the home directory's is tried next."""
    cluster("srun", f'case "$*" in *{Path.cwd()}*) exit 96 ;; esac; {SRUN}')
    home = tmp_path / "home"
    home.mkdir()
    code = "import sys; from orchestrator.cli import main; sys.exit(main(['init', '--yes']))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HOME": str(home), "PYTHONPATH": str(TOP)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert load_site("site.yaml").log_dir == str(home / "mlperf-results")
    assert not Path("results").exists()
    assert (
        cli("init", "--yes", "--force", "--log-dir", Path.cwd() / "only").code == ExitCode.SET_STATE
    )
    assert "the node does not see" in cli.err


def test_a_node_that_nobody_gives_leaves_a_file_that_says_so(
    cluster: Fake, cli: Commands, tmp_path: Path
) -> None:
    cluster(
        "srun",
        "echo 'srun: error: Unable to allocate resources: Requested nodes are busy' >&2; exit 1",
    )
    assert cli("init", "--yes", "--log-dir", tmp_path / "sets").code == ExitCode.OK
    assert "no node was checked" in cli.err and "Requested nodes are busy" in cli.err
    assert load_site("site.yaml").partition == "gpu"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--partition", "gpx"], 'did you mean "gpu"?'),
        (["--log-dir", "here"], "--log-dir: 'here' is not an absolute path"),
        (["--log-dir", "{here}/a/../b"], "/a/../b' goes through '..'"),
        (["--log-dir", "{here}/a\\b"], "holds a backslash"),
        (["--name", "my site"], "--name: 'my site' is not a name"),
        (["--account", "a\tb", "--log-dir", "{here}"], "--account: 'a\\tb' holds a line break"),
        (["--data", "flux1=/a:b"], "--data flux1.DATADIR: '/a:b' holds a `:`"),
    ],
)
def test_wishes_that_cannot_be(
    cluster: Fake, cli: Commands, arguments: list[str], message: str
) -> None:
    arguments = [argument.format(here=Path.cwd()) for argument in arguments]
    assert cli("init", "--yes", *arguments).code == ExitCode.BAD_INPUT
    assert message in cli.err and ".trial" not in cli.err and os.listdir() == []


def test_a_folder_with_a_name_that_slurm_cannot_take(cluster: Fake, cli: Commands) -> None:
    Path("a\\b").mkdir()
    os.chdir("a\\b")
    assert cli("init", "--yes").code == ExitCode.BAD_INPUT
    assert "--log-dir: " in cli.err and "holds a backslash" in cli.err and os.listdir() == []


def test_who_is_not_root_is_told_what_the_sets_lack() -> None:
    draft = SiteDraft()
    engines = [{"name": "docker", "command": ["docker"], "said": ""}]
    _engine(draft, NodeLook({"node": "n1", "root": False, "sudo": False, "engines": engines}))
    assert (draft.values["tunables"], draft.values["clear_caches"]) == ("off", False)
    assert "lack `cache_clear`, which the rules require: a set has no valid score" in draft.notes[0]


def test_it_asks_on_a_terminal(cluster: Fake, tmp_path: Path) -> None:
    master, slave = pty.openpty()
    code = "import sys; from orchestrator.cli import main; sys.exit(main(['init']))"
    asking = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "PYTHONPATH": str(TOP)},
    )
    os.close(slave)
    os.write(master, f"cpu\nother\n{tmp_path}/asked\nflux1\n{tmp_path}/flux\n".encode())
    message = b""
    while True:
        try:
            if not (piece := os.read(master, 4096)):
                break
        except OSError:  # its other side is closed
            break
        message += piece
    os.close(master)
    assert asking.wait(LIMIT_S) == 0, message
    site = load_site("site.yaml")
    assert (site.partition, site.account, site.log_dir) == ("cpu", "other", f"{tmp_path}/asked")
    assert site.data == {"flux1": {"DATADIR": f"{tmp_path}/flux"}}
    assert site.gpu_request == "none"
    assert "partition (gpu, cpu) [gpu]:" in message.decode()


# ---- one source for schema, page and file ----


def test_every_key_of_a_site_has_a_description() -> None:
    schema = json_schema("site")
    for part in (schema, *schema["$defs"].values()):
        assert all(about.get("description") for about in part["properties"].values()), part["title"]
    assert schema["required"] == ["log_dir"]
    assert descriptions(DOCUMENTS["site"])["account"].startswith("The account that is charged")


def test_editors_find_the_schema(cli: Commands) -> None:
    assert cli("init", "--yes", "--scheduler", "local", "-o", "deep/my.yaml").code == ExitCode.OK, (
        cli.err
    )
    first = Path("deep/my.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=my.schema.json"
    assert json.loads(Path("deep/my.schema.json").read_text()) == json_schema("site")
    assert set(yaml.safe_load(Path("deep/my.yaml").read_text())) <= set(
        json_schema("site")["properties"]
    )
