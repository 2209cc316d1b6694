"""Sets of several people: a member of the site's group goes on with another's set, nobody else can, and none changes what runs."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from bundle_parts import Bundles
from users import GID, GROUP, MEMBER, OTHERS, OWNER, PYTHON, STRANGER, needs_root

from orchestrator.evidence.ledger import verify
from orchestrator.onnode.set import ledger
from orchestrator.onnode.set.new import umask_for


@pytest.fixture
def bundles(open_bundles: Bundles) -> Bundles:
    return open_bundles


def test_umasks() -> None:
    assert umask_for("", 0o002) == 0o022 and umask_for("", 0o077) == 0o077
    assert umask_for("mlperf", 0o077) == 0o007 and umask_for("mlperf", 0o022) == 0o002


class People:
    """Starts the bundle as different users."""

    def __init__(self, bundles: Bundles) -> None:
        self.bundles = bundles
        os.chown(bundles.log_dir, OWNER, GID)
        bundles.log_dir.chmod(0o2775)
        (bundles.folder / "tmp").chmod(0o1777)

    def run(self, user: int, group: int, umask: int = 0o022, **more: str) -> tuple[int, str]:
        who = ["setpriv", f"--reuid={user}", f"--regid={OTHERS}", f"--groups={group}"]
        environment = self.bundles.environment(
            PYTHON=PYTHON, TMPDIR=str(self.bundles.folder / "tmp"), **more
        )
        argv = [
            "bash",
            "-c",
            f"umask {umask:03o}; exec bash {self.bundles.bundle}/run_with_docker.sh",
        ]
        done = subprocess.run(
            [*who, *argv], env=environment, cwd="/", capture_output=True, text=True
        )
        return done.returncode, done.stderr


@pytest.fixture
def people(bundles: Bundles) -> People:
    return People(bundles)


def within(root: Path) -> list[Path]:
    """The set's folder and all in it but scratch folders, where runs of any user of a container write (sticky)."""
    return [
        root,
        *(path for path in root.rglob("*") if not path.is_symlink() and path.name != "scratch"),
    ]


def writable(root: Path) -> dict[str, str]:
    """Files and folders of a set that a group can write, as `ls -l` shows their modes."""
    return {
        str(one): stat.filemode(one.stat().st_mode)
        for one in within(root)
        if one.stat().st_mode & 0o020
    }


@needs_root
def test_a_member_goes_on_with_anothers_set(bundles: Bundles, people: People) -> None:
    strict, loose = 0o077, 0o002
    bundles.make("[[ $me != 2.1.* ]] || exit 3", shared_group=GROUP, limits={"attempts": 1})
    code, said = people.run(OWNER, GID, strict)
    assert code == 1, said
    one = bundles.set
    assert one.outcomes(1) == ["success"] and one.outcomes(2) == ["infrastructure"], said
    for path in filter(Path.is_dir, within(one.root)):
        about, inside = path.stat(), (one.root / "bundle") in (path, *path.parents)
        assert about.st_gid == GID or not inside, path
        assert bool(about.st_mode & 0o020) is not inside and not about.st_mode & 0o002, path
        assert inside or about.st_mode & stat.S_ISGID, path
    assert (one.root / ledger.NAME).stat().st_mode & 0o060 == 0o060
    assert not [name for name in writable(one.root) if "/bundle" in name]

    named = {"ORCH_SET_DIR": str(one.root)}
    code, said = people.run(STRANGER, OTHERS, loose, **named)
    assert code == 1 and "Permission denied" in said and one.outcomes(2) == ["infrastructure"]
    code, said = people.run(MEMBER, GID, loose, **named)
    assert code == 0, said
    assert one.outcomes(2) == ["infrastructure", "success"] and one.results() == [1, 2]
    code, said = people.run(OWNER, GID, strict, **named)  # and the owner with what the member wrote
    assert code == 0, said
    assert [str(problem) for problem in verify(one.root).problems] == [] and one.left_behind() == []


@needs_root
def test_without_a_group_only_the_owner_writes(bundles: Bundles, people: People) -> None:
    bundles.make(nexp=1)
    for path in (bundles.bundle, *bundles.bundle.rglob("*")):
        path.chmod(path.stat().st_mode | 0o020)  # as a umask of 002 leaves it
    code, said = people.run(OWNER, GID, 0o002)
    assert code == 0, said
    assert writable(bundles.set.root) == {}
    assert people.run(MEMBER, GID, 0o002, ORCH_SET_DIR=str(bundles.set.root))[0] == 1


def test_a_group_that_is_not_there(bundles: Bundles) -> None:
    code, said = bundles.make(nexp=1, shared_group="no_such_group").run()
    assert code == 1 and "there is no group no_such_group on" in said
