"""What a second, real user puts in the way of this one: nothing of it is executed or written through."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from damaged_sets import full_set
from hostile_parts import call
from sites import write_site
from until import LIMIT_S

from orchestrator.container import spread, store
from orchestrator.container.image import Image
from orchestrator.errors import ExitCode, SetError, UsageError
from orchestrator.evidence.sets import is_set, set_folders
from orchestrator.evidence.watch import WatchAll
from orchestrator.model import load_entry
from orchestrator.onnode.agent.node import (
    close_hidden,
    hidden,
    keep_from_others,
    make_hidden,
)
from orchestrator.onnode.kernel.records import JobRecord
from orchestrator.preflight.bundle import temporary_bundle

TOP = Path(__file__).resolve().parents[2]
SETPRIV = shutil.which("setpriv") or ""
USER, GROUP = 4242, 4343
IMAGE = Image("sha256:" + "a" * 64, (), ("some/image:1",), 10)

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


def other(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a script as another user, in a group that this one has not."""
    user = [SETPRIV, f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups"]
    return subprocess.run(
        [*user, "sh", "-c", script, "sh", *map(str, words)],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@contextmanager
def another_user() -> Iterator[None]:
    """Be another user in this process, which can become root again."""
    group, groups = os.getgid(), os.getgroups()
    os.setgroups([])
    os.setresgid(GROUP, GROUP, 0)
    os.setresuid(USER, USER, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(group, group, group)
        os.setgroups(groups)


@contextmanager
def in_path(folder: str) -> Iterator[None]:
    sys.path.insert(0, str(TOP / folder))
    try:
        yield
    finally:
        sys.path.remove(str(TOP / folder))


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder in which that user, too, may write."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chown(folder, -1, GROUP)
        folder.chmod(0o2775)
        yield folder


def test_a_site_file_that_the_demo_finds(common: Path, place: Path) -> None:
    folder = common / "results"
    text = f"kind: site\nlog_dir: {folder}\nscheduler: local\npython: {common}/program\n"
    made = other('mkdir "$1" && printf %s "$2" >"$1/site.yaml"', folder, text)
    assert made.returncode == 0, made.stderr
    answer = call(["demo", "--dir", str(folder)])
    assert answer.code == ExitCode.BAD_INPUT and "can be changed by other users" in answer.err, (
        answer
    )


def test_a_dangling_link_that_the_demo_finds(common: Path, place: Path) -> None:
    folder, victim = common / "results", place / "victim"
    made = other('mkdir -m 777 "$1" && ln -s "$2" "$1/site.yaml"', folder, victim)
    assert made.returncode == 0, made.stderr
    assert call(["demo", "--dir", str(folder)]).code == ExitCode.BAD_INPUT
    assert not victim.exists()


def test_a_site_file_below_a_folder_of_the_group(common: Path, place: Path) -> None:
    """The file is this user's; whoever may write in its folder replaces it."""
    (common / "site.yaml").write_text(f"log_dir: {place}\n")
    os.chdir(common)
    answer = call(["status"])
    assert answer.code == ExitCode.BAD_INPUT and f"group {GROUP} may write" in answer.err, answer


def test_the_bundle_of_a_preflight_is_its_owners(common: Path, place: Path) -> None:
    site = place / "site.yaml"
    site.write_text(
        f"log_dir: {common}\nscheduler: local\ncontainer: {{engine: none}}\ntunables: 'off'\n"
    )
    entry = load_entry("local_2x2x8", "builtin", site=site)
    before = os.umask(0o002)
    try:
        with temporary_bundle(entry, common) as bundle:
            lib = bundle.folder / "bundle/lib"
            replaced = other('mv "$1" "$1.old" && mkdir "$1"', lib)
            assert replaced.returncode and lib.is_dir(), "another user changed the bundle"
            for path in (bundle.folder, *bundle.folder.rglob("*")):
                assert not path.stat().st_mode & 0o022, path
        assert os.umask(0o002) == 0o002
    finally:
        os.umask(before)


# ---- sets that only their owner may read ----


@pytest.fixture
def closed(common: Path) -> Path:
    """A set of root with the mode of umask 077, newer than a set that everybody may read."""
    common.chmod(0o755)
    shown = full_set(common / "sets", runs=1)
    shown.rename(shown.with_name("S-w-20260101-000000-0001"))
    closed = shown.with_name("S-w-20260102-000000-0002")
    shutil.copytree(shown.with_name("S-w-20260101-000000-0001"), closed)
    closed.chmod(0o700)
    write_site(common / "site.yaml", common / "sets")
    return closed


@pytest.mark.parametrize(
    "words",
    [["score"], ["score", "S-w-20260101"], ["nodes", "0001"]],
    ids=" ".join,
)
def test_anothers_set_hides_no_other(words: list[str], closed: Path, place: Path) -> None:
    place.chmod(0o777)
    site = ["--site", str(closed.parents[1] / "site.yaml")]
    shutil.move(closed, closed.parents[1] / "elsewhere")
    alone = call([*words, *site])
    shutil.move(closed.parents[1] / "elsewhere", closed)
    with another_user():
        answer = call([*words, *site])
    assert (answer.code, answer.out) == (alone.code, alone.out), answer


def test_anothers_set_is_named_as_unreadable(closed: Path, place: Path) -> None:
    site = ["--site", str(closed.parents[1] / "site.yaml")]
    with another_user():
        answers = [call(["score", name, *site]) for name in (closed.name, str(closed))]
        read = [root for root in set_folders(closed.parent) if is_set(root)]  # as `report --all`
    assert [answer.code for answer in answers] == [ExitCode.SET_STATE, ExitCode.BAD_INPUT]
    assert all(
        f"{closed}" in answer.err and "Permission denied" in answer.err for answer in answers
    )
    assert [root.name for root in read] == ["S-w-20260101-000000-0001"]


def test_a_log_directory_that_nobody_else_may_list(closed: Path, place: Path) -> None:
    log_dir, site = closed.parent, ["--site", str(closed.parents[1] / "site.yaml")]
    commands = (["status"], ["score"], ["export"], ["export", "--format", "prometheus"])
    for words in commands:
        assert call([*words, *site]).code is not None
    log_dir.chmod(0o711)
    with another_user():
        for words in commands:
            answer = call([*words, *site])
            assert answer.code == ExitCode.SET_STATE, answer
            assert f"{log_dir} cannot be read: Permission denied" in answer.err and not answer.out
        assert call(["status", str(log_dir / "S-w-20260101-000000-0001"), *site]).code == 0


def test_a_watch_outlives_a_log_directory_that_cannot_be_listed(closed: Path, place: Path) -> None:
    with in_path("tests/controller"):
        from controller_parts import write_set
    job = JobRecord(job_id="7", state="running", host="far", started_ms=1, run=1, attempt=1)
    write_set(closed.parent, "S-w-20260103-000000-0003", scheduler="local", job=job)
    watch = WatchAll(closed.parent)
    before = [picture.set_id for picture in watch.look()]
    closed.parent.chmod(0o711)
    with another_user():
        assert [picture.set_id for picture in watch.look()] == before != []
        with pytest.raises(SetError):
            WatchAll(closed.parent).look()


# ---- folders that runs write ----


def test_nobody_else_writes_into_the_results_of_a_node(common: Path) -> None:
    """Without an engine the run is this user's; everything in the folder becomes its output."""
    common.chmod(0o755)
    with in_path("tests/onnode"):
        from agent_parts import bench
    with bench(common) as one:
        agent = one.agent()
        agent.hear("ready")
        scratch = one.layout.node("n1") / "scratch"
        forged = other('echo forged >"$1/metrics.json"', scratch)
        assert forged.returncode and "Permission denied" in forged.stderr, forged
        agent.begin(1)
        agent.hear("exit")
    assert not (one.layout.attempt(1, 1) / "files").exists()


def test_nobody_else_writes_into_the_results_of_a_container(common: Path) -> None:
    """An agent with an engine: while its container runs, what is kept of the run, and afterwards."""
    common.chmod(0o755)
    with in_path("tests/onnode"):
        from contract_parts import Benches, Real
    benches = Benches(common)
    try:
        bench = benches.bench("container")
        scratch = bench.layout.node("n1") / "scratch"
        bench.plan(f"cd {scratch}/*/ && echo kept >metrics.json && chmod 666 metrics.json")
        real = Real(bench)
        real.start()
        real.agent.hear("ready")
        for script in ('ls "$1"', 'ls "$1/.name"', 'echo forged >"$1/metrics.json"'):
            assert "Permission denied" in other(script, scratch).stderr
        [place] = (path for path in scratch.iterdir() if path.name != ".name")
        real.agent.begin(1)
        assert real.agent.hear("exit")[1] == "0", real.agent.log(1)
        [kept] = bench.layout.attempt(1, 1).rglob("metrics.json")
        assert kept.stat().st_mode & 0o002
        assert "Permission denied" in other('echo forged >"$1"', kept).stderr
        assert other('echo forged >"$1/metrics.json"', place).returncode == 0  # as a container does
        real.agent.input.close()
        real.agent.end()
        assert "Permission denied" in other('echo late >"$1/more"', place).stderr
    finally:
        benches.close()


def test_only_containers_find_the_folder_that_they_write(common: Path) -> None:
    """Their root may be any user of the storage; other users do not know the name."""
    common.chmod(0o755)
    scratch = common / "scratch"
    place = make_hidden(str(scratch))
    assert place == make_hidden(str(scratch)) == hidden(str(scratch)) != str(scratch)
    elsewhere = make_hidden(str(common / "elsewhere"))
    assert len({Path(place).name, Path(elsewhere).name}) == 2, "a name that could be guessed"
    assert other('ls "$1"', scratch).returncode
    assert other('ls "$1/.name"', scratch).returncode
    assert other('echo forged >"$1/x"', scratch).returncode
    assert other('echo written >"$1/metrics.json"', place).returncode == 0  # as a container does
    close_hidden(str(scratch))
    assert other('echo late >"$1/more"', place).returncode
    kept = common / "files"
    kept.mkdir()
    keep_from_others(str(kept))
    shutil.move(f"{place}/metrics.json", kept)
    (kept / "metrics.json").chmod(0o666)
    assert other('echo forged >"$1"', kept / "metrics.json").returncode


def test_several_nodes_agree_on_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on storage without hard links."""
    monkeypatch.delattr(os, "link")
    with ThreadPoolExecutor(8) as pool:
        places = set(pool.map(lambda _: make_hidden(str(tmp_path / "shared")), range(40)))
    assert len(places) == 1 and len(os.listdir(tmp_path / "shared")) == 2


# ---- images ----


def pieces() -> list[bytes]:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        text = json.dumps([{"Config": IMAGE.id.removeprefix("sha256:")}]).encode()
        about = tarfile.TarInfo("manifest.json")
        about.size = len(text)
        tar.addfile(about, io.BytesIO(text))
    return [stream.getvalue()]


def test_a_link_planted_under_the_temporary_name_of_a_tar(common: Path, place: Path) -> None:
    victim = place / "victim"
    victim.write_text("mine")
    name = store.tar_name("some/image:1", IMAGE)
    for planted in (name, f"{name}.json"):
        made = other('ln -s "$1" "$2"', victim, common / f".{planted}.tmp.{os.getpid()}")
        assert made.returncode == 0, made.stderr
    store.save(common, "some/image:1", IMAGE, pieces())
    assert victim.read_text() == "mine"
    kept = store.stored(common, "some/image:1")
    assert kept is not None and not store.whose(kept)


def test_a_tar_of_another_user_needs_a_word(common: Path) -> None:
    kept = store.save(common, "some/image:1", IMAGE, pieces())
    for path in (kept.tar, kept.tar.with_name(kept.tar.name + ".json")):
        made = other('cp "$1" "$1.new" && mv -f "$1.new" "$1"', path)
        assert made.returncode == 0, made.stderr
    assert store.stored(common, "some/image:1") is None
    with pytest.raises(UsageError, match=f"belongs to user {USER}"):
        spread.tar_to_distribute(common, "some/image:1")
    assert spread.tar_to_distribute(common, "some/image:1", of_others=True).tar == kept.tar


# ---- one file that unpacks itself ----


def test_an_unpacked_zipapp_that_others_can_write(tmp_path: Path) -> None:
    with in_path("tools"):
        import zipapp as ours
    packages, cache = tmp_path / "packages", tmp_path / "cache"
    packages.mkdir()
    (packages / "mlperf_orchestrator.py").write_text("def main():\n    print('ours')\n")
    if not hasattr(ours, "made"):  # the standard library's was imported first
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location("zipapp_of_ours", TOP / "tools/zipapp.py")
        assert spec and spec.loader
        ours = module_from_spec(spec)
        spec.loader.exec_module(ours)
    ours.write(ours.made(packages), tmp_path / "x.pyz")

    def start() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-I", str(tmp_path / "x.pyz")],
            env={"XDG_CACHE_HOME": str(cache)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )

    assert start().stdout == start().stdout == "ours\n"
    top = cache / "orchestrator-pyz"
    [unpacked] = top.iterdir()
    for path, mode in ((unpacked, 0o777), (top, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        done = start()
        assert done.returncode == 2 and "everybody may write" in done.stderr, done.stderr
        path.chmod(before)
    assert start().stdout == "ours\n"
