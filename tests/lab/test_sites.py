"""Sites as they are: a private /tmp, storage on which root is nobody, users without rights, data that nobody may write.

Two runs of a published system of one node with the real engine, started with `bash run_with_docker.sh` as a person would.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from orchestrator.model import load_entry, load_site
from orchestrator.render import render_bundle, write_bundle

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

TOP = Path(__file__).resolve().parents[2]
SYSTEM, WORKLOAD, NEXP = "MI300X_01x08x32", "flux1", 2
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
PRIVATE_TMP = (
    "unshare",
    "--mount",
    "--propagation=private",
    "bash",
    "-c",
    'mount -t tmpfs none /tmp && exec "$@"',
    "-",
)
# What the training of a real image leaves: folders of root that nobody else may enter.
LEAVES = "umask 077; mkdir -p /results/checkpoints/deep; echo $SEED >/results/checkpoints/deep/seed; echo x >/results/.hidden\n"


class Place:
    """A folder on storage, a site file and its bundle."""

    def __init__(self, lab: Lab, folder: Path, owner: int = 0) -> None:
        self.lab, self.folder, self.owner = lab, folder, owner
        self.log_dir, self.bundle, self.code = (
            folder / "results",
            folder / "bundle",
            folder / "code",
        )
        shutil.copytree(
            TOP / "workloads/builtin", self.code, ignore=shutil.ignore_patterns("__pycache__")
        )
        script = self.code / "run_and_time.sh"
        script.write_text(
            script.read_text().replace("set -euo pipefail\n", f"set -euo pipefail\n({LEAVES})\n", 1)
        )

    def make(self, **container: Any) -> Place:
        site = yaml.safe_load(self.lab.run(TOP / "lab/site").stdout)
        site |= {
            "log_dir": str(self.log_dir),
            "scheduler": "local",
            "code": {WORKLOAD: str(self.code)},
        }
        site |= {"tunables": "off", "clear_caches": False} if self.owner else {}
        site["container"] |= {"command": ["docker", "-H", self.lab.env["DOCKER_HOST"]], **container}
        (self.folder / "site.yaml").write_text(yaml.safe_dump(site))
        entry = load_entry(SYSTEM, WORKLOAD, site=load_site(self.folder / "site.yaml"))
        write_bundle(render_bundle(entry, nexp=NEXP), self.bundle, replace_edited=True)
        return self

    def run(self, *prefix: str, **env: str) -> subprocess.CompletedProcess[str]:
        self.log_dir.mkdir(exist_ok=True)
        if self.owner:
            os.chown(self.log_dir, self.owner, self.owner)
            self.log_dir.chmod(0o700)
        return subprocess.run(
            [
                *prefix,
                "bash",
                "-c",
                'umask 077; exec bash "$0"',
                str(self.bundle / "run_with_docker.sh"),
            ],
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **env},
            cwd="/",
            text=True,
            capture_output=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )

    def results(self, prefix: Sequence[str] = ()) -> list[str]:
        listed = subprocess.run(
            [*prefix, "find", str(self.log_dir), "-path", "*/results/result_*.txt"],
            capture_output=True,
            text=True,
        )
        return listed.stdout.split()

    def kept(self) -> list[str]:
        """What the runs left in /results, and where it is now."""
        [root] = [path for path in self.log_dir.iterdir() if (path / "set.json").exists()]
        folders = [path for path in root.glob("runs/*/attempt_1/files/*") if path.is_dir()]
        seeds = {
            path.parents[1].name: (path / "checkpoints/deep/seed").read_text().strip()
            for path in folders
        }
        assert all((path / ".hidden").exists() for path in folders)
        return (
            sorted(seeds.values())
            if len(seeds) == len(folders)
            else [path.as_posix() for path in folders]
        )


@pytest.fixture
def place(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Place]:
    folder = lab.shared / f"sites-{os.getpid()}-{request.node.name.partition('@')[0]}"
    folder.mkdir()
    yield Place(lab, folder, NOBODY if "nobody" in request.node.name else 0)
    left = lab.run("docker", "ps", "--all", "--quiet", "--filter", "label=orchestrator.job").stdout
    jobs = {path.stem for path in folder.rglob("jobs/*.json")}
    shutil.rmtree(folder)
    assert left == ""
    # Others' jobs may have some of their own beside.
    assert [
        path for path in Path("/tmp").glob("orch-*-local-*") if path.name.endswith((*jobs,))
    ] == []


@pytest.fixture
def open_socket(lab: Lab) -> Iterator[None]:
    """Users may talk to the engine, as members of its group may elsewhere."""
    path = lab.docker_socket
    modes = {opened: opened.stat().st_mode & 0o7777 for opened in (path, lab.state)}
    path.chmod(0o666)
    lab.state.chmod(modes[lab.state] | 0o055)
    yield
    for opened, mode in modes.items():
        opened.chmod(mode)


def test_a_private_tmp_is_found_before_anything_runs(place: Place) -> None:
    ended = place.make().run(*PRIVATE_TMP)
    assert ended.returncode == 1
    assert "the engine does not see /tmp" in ended.stdout + ended.stderr
    assert "give the site a local container.channel_dir" in ended.stdout + ended.stderr
    assert place.results() == []
    assert not list(place.log_dir.glob("*/runs/*/attempt_*/node_0.log")), "no attempt was begun"


@pytest.mark.long
def test_with_a_folder_that_both_see_a_private_tmp_is_no_matter(place: Place) -> None:
    channels = place.folder / "channels"
    channels.mkdir()
    ended = place.make(channel_dir=str(channels)).run(*PRIVATE_TMP)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(place.results()) == NEXP
    assert len(set(place.kept())) == NEXP
    assert list(channels.iterdir()) == []


def test_as_nobody_with_umask_077_and_data_that_is_not_its_own(
    place: Place, open_socket: None
) -> None:
    """And what the site adds is in every container."""
    library = place.folder / "lib of the host, new"
    library.mkdir()
    (library / "libionic.so").write_text("library")
    (place.folder / "rocm.env").write_text("FROM_FILE=yes\nMBS=wrong\n")
    script = place.code / "run_and_time.sh"
    look = 'ls -d /opt/ionic/libionic.so; ! touch /opt/ionic/x; echo "told: $FROM_FILE $MBS"; ulimit -c; '
    script.write_text(
        script.read_text().replace("set -euo pipefail\n", f"set -euo pipefail\n{look}\n", 1)
    )
    place.make(
        mounts=[{"host": str(library), "container": "/opt/ionic"}],
        env_files=[str(place.folder / "rocm.env")],
        options=["--ulimit=core=77824"],
    )
    ended = place.run(*AS_NOBODY)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(place.results()) == NEXP
    assert len(set(place.kept())) == NEXP, "each run's files are its own, although root made them"
    [table] = place.log_dir.glob("*/preflight/*.tsv")
    assert "\tdata\tpass\t" in table.read_text()
    batch = load_entry(SYSTEM, WORKLOAD).env["MBS"]
    for log in place.log_dir.glob("*/runs/*/attempt_1/node_0.log"):
        lines = log.read_text().splitlines()
        assert {f"told: yes {batch}", "/opt/ionic/libionic.so", "76"} <= set(lines), lines
        assert "Read-only file system" in log.read_text()


@pytest.fixture
def refuses_root(place: Place) -> Iterator[Path]:
    """The log folder on a file system that nobody but its user may even look at, root included."""
    bindfs = shutil.which("bindfs")
    assert bindfs, "lab/up installs bindfs"
    behind, device, mount = place.folder / "behind", Path("/dev/fuse"), place.log_dir
    mode = device.stat().st_mode & 0o7777
    for folder in (behind, mount):
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
    device.chmod(0o666)
    try:
        subprocess.run(
            [*AS_NOBODY, bindfs, "--no-allow-other", str(behind), str(mount)], check=True
        )
    finally:
        device.chmod(mode)
    yield behind
    subprocess.run(["umount", mount], check=True)


@pytest.mark.long
def test_as_nobody_on_storage_that_refuses_root(
    place: Place, open_socket: None, refuses_root: Path
) -> None:
    place.make()
    place.log_dir = refuses_root  # where root may look
    ended = place.run(*AS_NOBODY)
    printed = ended.stdout + ended.stderr
    assert ended.returncode == 1
    assert "container.results: local" in printed, printed
    assert place.results() == []


def test_as_nobody_with_local_results_on_storage_that_refuses_root(
    place: Place, open_socket: None, refuses_root: Path
) -> None:
    place.make(results="local")
    place.log_dir = refuses_root
    ended = place.run(*AS_NOBODY)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(place.results()) == NEXP
    assert len(set(place.kept())) == NEXP
