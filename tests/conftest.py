"""The one-machine cluster (lab/) for tests, and which tests may run beside each other.

A test that needs the cluster carries the marker `lab` and takes the fixture `lab`. With `lab/with --late` the first of
them starts it. Else, if it is not up, they skip, all with the same line; with CI=true they fail instead, because there a
skipped test would go unseen.

Tests run in random order (the seed is printed at the end) and, with `-n 2 --dist loadgroup`, side by side. What there is
only once on a machine, the lab and the machine's own settings, has one worker: the group "lab". All else is spread.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from labs import Lab, lab_at, lab_state
from machine import await_free_settings, knobs

TESTS = Path(__file__).resolve().parent
TOP = TESTS.parent
STARTS_LAB = os.environ.get("ORCHESTRATOR_LAB_LATE") == "yes"
"""The first test that needs the lab starts it while others run; `lab/with --late` removes it."""

FOLDER_NUMBERS = count()

# A shell starts what it puts in the background with SIGINT and SIGQUIT ignored, nohup does so with SIGHUP, and children
# inherit it: commands that tests interrupt would not notice. (A child's other signals are put back by subprocess.)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())

# `lab/with` names the lab to every test, but only those that take the fixture `lab` may use it: another test's job would
# run beside tests that count jobs. Nor may a test reach the Slurm of a real cluster.
os.environ["SLURM_CONF"] = os.devnull  # Slurm waits a minute for a file that is missing
os.environ.pop("DOCKER_HOST", None)

# On a busy machine an example may take any time: neither that nor a slow drawing of examples is a failure.
hypothesis_settings.register_profile(
    "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("tests")

# pyenv's python3 is a bash script, which takes five times as long as the interpreter that it starts; sets start dozens.
PYTHON3 = shutil.which("python3")
if PYTHON3 and Path(PYTHON3).read_bytes()[:2] == b"#!":
    os.environ["PATH"] = f"{Path(sys.executable).resolve().parent}{os.pathsep}{os.environ['PATH']}"

# In memory, making and removing a folder takes a tenth of the processor time that ext4 takes, and tests make 100,000.
MEMORY, ENOUGH = Path("/dev/shm"), 8 << 30
if (
    os.access(MEMORY, os.W_OK | os.X_OK)
    and shutil.disk_usage(MEMORY).free >= ENOUGH
    and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

TESTER = Path.home()


@pytest.fixture(scope="module")
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A HOME for what a module's programs write: caches, compiled templates, rustup's settings because pip asks for rustc.

    The settings of pip and uv are the tester's: they may name the only index that this machine reaches. So are their caches, if
    PIP_CACHE_DIR and UV_CACHE_DIR name them: a second run then downloads nothing again.
    """
    home = tmp_path_factory.mktemp("home")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or TESTER / ".config")
    places = {".config/pip": config / "pip", ".config/uv": config / "uv"}
    places |= {name: TESTER / name for name in (".pip", ".netrc")}
    (home / ".config").mkdir()
    for name, place in places.items():
        if place.exists():
            (home / name).symlink_to(place)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("XDG_")]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        yield home


@cache
def lab_problem() -> str:
    """Start the lab if `lab/with --late` asks for it. Return why it cannot be used, "" if it can."""
    if not _lab_error("status", "--quiet"):
        return ""
    if not STARTS_LAB:
        return f"no one-machine cluster at {lab_state()}: `make lab` starts one (as root on Debian)"
    return _lab_error("up")


def _lab_error(name: str, *arguments: str) -> str:
    """Call a program of lab/; return why it failed."""
    argv = [TOP / "lab" / name, *arguments]
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return "" if done.returncode == 0 else f"lab/{name} failed: {done.stderr[-2000:]}"


def require_lab() -> None:
    problem = lab_problem()
    if problem and (STARTS_LAB or os.environ.get("CI") == "true"):
        pytest.fail(f"{problem}; its tests may not be skipped here", pytrace=False)
    if problem:
        pytest.skip(problem)


@pytest.fixture(autouse=True)
def host_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test that has the machine to itself leaves its settings as they were, so the next one cannot be blamed for them.

    Where it killed a whole job, the watchdog of the settings puts them back when the lease is over.
    """
    if not needs_whole_machine(request.node):
        yield
        return
    await_free_settings()
    before = knobs()
    yield
    await_free_settings()
    assert knobs() == before


# Files with tests that run whole sets, agents or a browser, build the wheel, check every bundle, read the whole package, need scipy or
# start programs hundreds of times: not for `make unit`.
WHOLE = (
    "bundle/",
    "builtin/",
    "faults/",
    "hostile/",
    "images/test_images_pull.py",
    "inspection/test_rule_changes.py",
    "lab/",
    "compare/",
    "controller/test_asking.py",
    "controller/test_automatic_user.py",
    "controller/test_doctor.py",
    "controller/test_init.py",
    "controller/test_killed_submit.py",
    "controller/test_more_runs.py",
    "controller/test_outputs.py",
    "controller/test_preflight.py",
    "controller/test_real_sets.py",
    "controller/test_surface.py",
    "controller/test_tables.py",
    "controller/test_trust.py",
    "deep/test_deep_nodes.py",
    "deep/test_deep_torch.py",
    "docs/test_docs_blocks.py",
    "docs/test_docs_site.py",
    "evidence/test_lines.py",
    "evidence/test_damaged_sets.py",
    "evidence/test_explain.py",
    "evidence/test_lines.py",
    "evidence/test_old_sets.py",
    "importing/test_import_catalogue.py",
    "importing/test_import_rendered.py",
    "mllog/test_mllog_differential.py",
    "mllog/test_mllog_installed.py",
    "mllog/test_mllog_published.py",
    "mllog/test_mllog_sets.py",
    "model/test_listing.py",
    "onnode/test_agent_",
    "onnode/test_launch_",
    "network/test_network_detection.py",
    "network/test_network_junk.py",
    "network/test_network_sets.py",
    "network/test_rdma_check.py",
    "preflight/",
    "prepare/test_prepare_steps.py",
    "render/test_compiled_templates.py",
    "render/test_render_catalogue.py",
    "render/test_render_quoting.py",
    "report/test_report_browser.py",
    "report/test_report_pictures.py",
    "simulation/test_mutations.py",
    "simulation/test_rehearse.py",
    "simulation/test_seeded_sets.py",
    "simulation/test_sets_",
    "simulation/test_training_referee.py",
    "submission/test_package.py",
    "test_api.py",
    "test_benchmarks.py",
    "test_errors.py",
    "test_wheel.py",
    "test_zipapp.py",
    "tuning/test_revert_trials.py",
    "tuning/test_tunables_",
    "tuning/test_tune_hosts.py",
    "tuning/test_tuning_sets.py",
)

# Files whose tests share something that takes seconds to make: one worker makes it once.
TOGETHER = (
    "bundle/test_bundle_loop.py",
    "controller/test_more_runs.py",
    "controller/test_outputs.py",
    "controller/test_tables.py",
    "controller/test_trust.py",
    "docs/test_docs_blocks.py",
    "docs/test_docs_site.py",
    "faults/test_reality.py",
    "render/test_render_catalogue.py",
    "report/test_report_browser.py",
    "report/test_report_pictures.py",
    "test_wheel.py",
    "test_zipapp.py",
)
REFEREE = (
    "mllog/test_mllog_differential.py",
    "mllog/test_mllog_sets.py",
    "simulation/test_training_referee.py",
)
"""Files that ask the official referee, whose pandas and scipy one worker imports once."""
LINT = "lint/"
"""Tests of the sources alone, in one process that reads them once: `make check` names their folder."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what `make unit` leaves out: the official referee alone takes seconds."""
    place = collection_path.relative_to(TESTS).as_posix()
    if place.startswith(LINT) and are_all(config):
        return True
    if config.getoption("markexpr") != "unit" or not collection_path.is_file():
        return None
    return place.startswith(WHOLE) or None


def are_all(config: pytest.Config) -> bool:
    """Return whether the command line names no tests."""
    asked = {config.invocation_params.dir / argument for argument in config.args}
    return asked == {TESTS}


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have each worker import another share of the test files before all of them: what pytest makes of a file's assertions is kept.

    In a fresh clone every worker would do that work for every file, which is a fifth of the processor time of `make unit`.
    Tests named on the command line need no others.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or not are_all(session.config):
        return
    files = [
        path
        for path in sorted(TESTS.rglob("test_*.py"))
        if not pytest_ignore_collect(path, session.config)
    ]
    for path in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        with suppress(Exception):  # which collecting the file shows
            import_module(path.stem)


def pytest_collection_finish() -> None:
    """Exempt modules and tests from garbage collection: they live until the end."""
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:  # before -m chooses and xdist reads the groups
    place = item.path.relative_to(TESTS).as_posix()
    if needs_whole_machine(item):
        item.add_marker(pytest.mark.xdist_group("lab"))
    elif place in TOGETHER:
        item.add_marker(pytest.mark.xdist_group(place))
    elif place in REFEREE:
        item.add_marker(pytest.mark.xdist_group("referee"))
    elif place.startswith(LINT):
        item.add_marker(pytest.mark.xdist_group(LINT))
    if not (
        needs_whole_machine(item) or item.get_closest_marker("long") or place.startswith(WHOLE)
    ):
        item.add_marker(pytest.mark.unit)


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Leave out what is `long` unless it is asked for, and begin the longest queue first; stable, so its order stays the random one."""
    if not config.getoption("markexpr"):
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    items.sort(key=needs_whole_machine, reverse=True)


def needs_whole_machine(item: pytest.Item) -> bool:
    """Return whether `item` uses what a machine has once: the lab, or its settings."""
    return bool(item.get_closest_marker("lab") or item.get_closest_marker("host"))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    seed = config.getoption("randomly_seed", None)
    if isinstance(seed, int) and config.getoption("randomly_reorganize", False):
        terminalreporter.write_line(f"order and random numbers: -p randomly --randomly-seed={seed}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("lab"):
        require_lab()
        lab_at(lab_state()).free()


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """After a test that failed, give its jobs' nodes back to the others; after any other, empty its folder.

    All tests leave hundred thousands of files, which pytest would remove one after the other at the end of a later run. The
    folder itself stays, so that its name is not used again.
    """
    report = yield
    item.stash[FAILED] = report.failed or item.stash.get(FAILED, False)
    if report.when != "teardown":
        return report
    if not item.stash[FAILED]:
        empty(getattr(item, "funcargs", {}).get("tmp_path"))
    elif item.get_closest_marker("lab") and not lab_problem():
        lab_at(lab_state()).end_all()
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """After a green run, remove the folders of all tests: they may lie in memory."""
    option, factory = session.config.option, session.config._tmp_path_factory
    is_worker = hasattr(session.config, "workerinput")
    if exitstatus == pytest.ExitCode.OK and option.basetemp is None and not is_worker:
        shutil.rmtree(factory.getbasetemp(), ignore_errors=True)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for this test. pytest's own fixture scans the folders of all earlier tests for a free number."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.mktemp(f"{name}{next(FOLDER_NUMBERS)}", numbered=False)


def empty(folder: Path | None) -> None:
    """Remove everything in a folder that can be removed."""
    for path in folder.iterdir() if folder is not None and folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The running one-machine cluster."""
    require_lab()
    return lab_at(lab_state())


@pytest.fixture(scope="session")
def podman(lab: Lab) -> str:
    """The command that calls the lab's podman; the first test that needs one adds it to the lab."""
    return lab.run(TOP / "lab/podman", timeout=600).stdout.strip()


@contextmanager
def lab_beside(name: str) -> Iterator[Callable[..., Lab]]:
    """A function that starts a cluster of its own beside the first one, with these settings of lab/up; it is removed in the end."""
    require_lab()
    state = Path(f"{lab_state()}-{name}")
    env = {
        name: value for name, value in os.environ.items() if name not in ("LAB_PORT", "SLURM_CONF")
    }
    env["ORCHESTRATOR_LAB"] = str(state)

    def command(name: str, **more: str) -> None:
        argv = [TOP / "lab" / name]
        done = subprocess.run(
            argv,
            env=env | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr

    def start(**settings: str) -> Lab:
        command("up", **settings)
        return lab_at(state)

    try:
        yield start
    finally:
        command("down")


@pytest.fixture(scope="session")
def standins() -> Iterator[Lab]:
    """A cluster of node6 to node15, whose names sort another way than their numbers, with the images of lab/standins under the real
    names."""
    with lab_beside("torch") as start:
        yield start(LAB_NODES="10", LAB_PREFIX="node", LAB_FIRST="6", LAB_IMAGE="torch")
