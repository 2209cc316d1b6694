"""The built wheel, alone in a clean environment: everything it needs is inside."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from processes import captured
from programs import oldest
from until import LIMIT_S

TOP = Path(__file__).resolve().parent.parent
DATA = ("templates", "systems", "workloads", "docs")
TESTER = Path.home()

pytestmark = pytest.mark.usefixtures("own_home")


def has_network() -> bool:
    """Whether pip reaches its index: a proxy counts, and so does an index of one's own."""
    if any(os.environ.get(name) for name in ("PIP_INDEX_URL", "HTTPS_PROXY", "https_proxy")):
        return True
    configured = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True
    ).stdout
    if "index-url" in configured or "find-links" in configured:
        return True
    try:
        socket.create_connection(("pypi.org", 443), timeout=5).close()
    except OSError:
        return False
    return True


def run(
    *argv: str | Path, cwd: Path, check: bool = True, timeout: float = LIMIT_S
) -> subprocess.CompletedProcess[str]:
    """Run without anything that could lead back to the checkout."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "ORCHESTRATOR", "VIRTUAL_ENV"))
    }
    done = captured(argv, env, cwd=cwd, limit_s=timeout)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(own_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.environ.get("CI") != "true" and not has_network():
        pytest.skip("building the wheel needs a package index")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, TOP, cwd=folder)
    [path] = folder.glob("*.whl")
    return path


def install(place: Path, *arguments: str | Path, **settings: str) -> Path:
    """A clean environment with what these words name, made unless it exists: the folder of its programs."""
    if not place.exists():
        venv.create(place, with_pip=False)
    env = {**os.environ, "PYTHON": sys.executable, "INTO": str(place / "bin/python"), **settings}
    subprocess.run(
        [TOP / "tools/install", *arguments], env=env, check=True, stdin=subprocess.DEVNULL
    )
    return place / "bin"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a clean environment with nothing but the wheel."""
    return install(tmp_path_factory.mktemp("clean") / "venv", wheel)


def small_package(folder: Path, version: str) -> None:
    """Put a wheel into a folder."""
    folder.mkdir(parents=True)
    info = f"small-{version}.dist-info"
    with zipfile.ZipFile(folder / f"small-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("small.py", "")
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: small\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.mark.parametrize(
    ("setting", "installer"),
    [pytest.param("timeout = 20", "uv", marks=pytest.mark.long), ("proxy =", "pip")],
)
def test_a_package_is_installed_as_the_settings_of_pip_say(
    setting: str, installer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_package(tmp_path / "simple/small", "1.0")
    small_package(tmp_path / "a folder", "2.0")
    small_package(tmp_path / "other", "3.0")
    page = tmp_path / "simple/small/index.html"
    page.write_text('<a href="small-1.0-py3-none-any.whl">small-1.0-py3-none-any.whl</a>')
    (tmp_path / "limits").write_text("small<3\n")
    settings = (
        f"[global]\nindex-url = {(tmp_path / 'simple').as_uri()}\nfind-links =\n",
        f"  {tmp_path / 'other'}\n  {(tmp_path / 'a folder').as_uri()}\n",
        f"{setting}\n[install]\nconstraint = {tmp_path / 'limits'}\n",
    )
    (tmp_path / "pip.conf").write_text("".join(settings))
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    programs = install(tmp_path / "venv", "small")
    [info] = programs.parent.glob("lib/python*/site-packages/small-*.dist-info")
    assert (info.name, (info / "INSTALLER").read_text().strip()) == (
        "small-2.0.dist-info",
        installer,
    )


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    place = tmp_path / "an empty folder"
    place.mkdir()
    return place


def test_programs_write_in_a_home_of_their_own(own_home: Path, empty: Path) -> None:
    assert Path.home() == own_home != TESTER
    uv = Path(sys.executable).with_name("uv")
    kept = os.environ.get("UV_CACHE_DIR", str(own_home / ".cache/uv"))
    assert run(uv, "cache", "dir", cwd=empty).stdout.strip() == kept


def test_programs_have_the_settings_of_the_tester(
    own_home: Path, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (sys.executable, "-m", "pip", "config", "list")
    here = run(*asked, cwd=empty).stdout
    monkeypatch.setenv("HOME", str(TESTER))
    assert here == run(*asked, cwd=empty).stdout


def test_what_is_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = run("git", "-C", TOP, "ls-files", *DATA, cwd=TOP, check=False)
    wanted = (
        tracked.stdout.split()
        if tracked.returncode == 0
        else [
            str(path.relative_to(TOP))
            for kind in DATA
            for path in (TOP / kind).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        ]
    )
    assert len(wanted) > 60
    missing = [
        name
        for name in wanted
        if f"orchestrator/_data/{name}" not in names and (TOP / name).exists()
    ]
    assert missing == []
    assert {"orchestrator/cli/render.py", "orchestrator/mllog/data/rules-6.0.0.json"} <= names
    assert [
        name for name in names if "__pycache__" in name or name.endswith((".pyc", ".orig", "~"))
    ] == []
    tops = {name.split("/")[0] for name in names}
    kinds = sorted(re.sub(r"^mlperf_orchestrator-.+(?=\.)", "", top) for top in tops)
    assert kinds == [".data", ".dist-info", "mlperf_orchestrator.py", "orchestrator"], (
        "only ours and its metadata"
    )
    shared = {name.partition(".data/data/")[2] for name in names if ".data/data/" in name}
    assert {
        "share/man/man1/orchestrator.1",
        "share/bash-completion/completions/orchestrator",
    } <= shared
    assert [name for name in names if name.endswith("licenses/LICENSE")]


def test_the_commands_start(installed: Path, empty: Path) -> None:
    assert run(installed / "orchestrator", "--help", cwd=empty).stdout.startswith(
        "usage: orchestrator"
    )
    assert re.fullmatch(
        r"orchestrator \d+\.\d+\S*\n",
        run(installed / "orchestrator", "--version", cwd=empty).stdout,
    )
    assert "MI325X_08x08x32" in run(installed / "orchestrator", "systems", cwd=empty).stdout
    where = run(
        installed / "python", "-c", "import orchestrator; print(orchestrator.__file__)", cwd=empty
    ).stdout
    assert where.startswith(str(installed.parent))


@pytest.mark.long
def test_pip_installs_where_its_settings_name_an_index(wheel: Path, tmp_path: Path) -> None:
    """Here none at all; uv would not know of it. More settings follow than a pipe holds."""
    programs = install(
        tmp_path / "venv", "--no-deps", wheel, PIP_NO_INDEX="1", PIP_UNKNOWN="x" * 100_000
    )
    [said] = (programs.parent / "lib").glob("python*/site-packages/*.dist-info/INSTALLER")
    assert said.read_text() == "pip\n"
    assert run(programs / "orchestrator", "--version", cwd=tmp_path).stdout.startswith(
        "orchestrator "
    )


def test_the_documents_are_in_it(installed: Path, empty: Path) -> None:
    for argv in (["docs", "troubleshooting"], ["docs", "how-a-set-runs"], ["completion", "bash"]):
        assert len(run(installed / "orchestrator", *argv, cwd=empty).stdout) > 1000
    assert (installed.parent / "share/man/man1/orchestrator.1").is_file()


def test_another_package_of_the_same_name_is_noticed(installed: Path, empty: Path) -> None:
    """A folder on PYTHONPATH wins over what is installed; what another distribution of the name leaves of ours, too."""
    (empty / "orchestrator").mkdir()
    (empty / "orchestrator/__init__.py").write_text("")
    program = "import mlperf_orchestrator, sys; sys.exit(mlperf_orchestrator.main())"
    done = run(installed / "python", "-c", program, cwd=empty, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"another package called orchestrator: {empty}/orchestrator/__init__.py" in done.stderr


def test_render_from_an_empty_folder(installed: Path, empty: Path) -> None:
    (empty / "site.yaml").write_text("log_dir: /shared/results\ndata: {flux1: {DATADIR: /data}}\n")
    run(
        installed / "orchestrator",
        "render",
        "MI325X_08x08x32",
        "flux1",
        "--nexp",
        "10",
        "-o",
        "bundle",
        cwd=empty,
    )
    here = run(
        sys.executable,
        "-m",
        "orchestrator",
        "render",
        "MI325X_08x08x32",
        "flux1",
        "--nexp",
        "10",
        "--site",
        empty / "site.yaml",
        "-o",
        empty / "from checkout",
        cwd=TOP,
    )
    assert "bundle" in here.stdout
    assert run("diff", "-r", "bundle", "from checkout", cwd=empty).stdout == ""
    run("bash", "-n", "bundle/job.sh", cwd=empty)


def test_the_demo(installed: Path, empty: Path) -> None:
    done = run(installed / "orchestrator", "demo", "--nexp", "1", cwd=empty, check=False)
    # One run is no valid score, but it ran.
    assert done.returncode == 1, done.stderr
    # Its next steps can be pasted as they are, although nothing of it is on PATH.
    steps = [line.strip() for line in done.stdout.partition("look around:\n")[2].splitlines()]
    assert f"{installed}/orchestrator status" in steps
    ended = run("bash", "-ec", "\n".join(steps), cwd=empty)
    assert "local_2x2x8-builtin-" in ended.stdout and (empty / "report.html").is_file()
    assert len(list(empty.glob("demo-results/*/results/result_1.txt"))) == 1


@pytest.mark.long
def test_the_demo_of_uvx(
    wheel: Path, empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvx keeps the command in its cache: the next steps name uvx, as nothing is on PATH."""
    uvx = Path(sys.executable).with_name("uvx")
    # uv reads neither pip's configuration nor the certificates that pip trusts.
    run(sys.executable, "-m", "pip", "download", "--dest", tmp_path / "all", wheel, cwd=empty)
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "all"))
    done = run(uvx, "--from", wheel, "orchestrator", "demo", "--nexp", "1", cwd=empty, check=False)
    assert done.returncode == 1, done.stderr
    steps = [line.strip() for line in done.stdout.partition("look around:\n")[2].splitlines()]
    assert f"uvx --from file://{wheel} orchestrator status" in steps
    monkeypatch.setenv("PATH", f"{uvx.parent}{os.pathsep}{os.defpath}")
    ended = run("bash", "-ec", "\n".join(steps), cwd=empty)
    assert "local_2x2x8-builtin-" in ended.stdout and (empty / "report.html").is_file()


@pytest.mark.long
def test_the_command_on_python_310(wheel: Path, tmp_path: Path) -> None:
    """Ubuntu 22.04's version: the wheel installs there, scores, renders and runs a set."""
    python = oldest("3.10")
    subprocess.run([python, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    programs = install(tmp_path / "venv", wheel)
    ended = run(programs / "python", "-c", "import sys; print(sys.version_info[:2])", cwd=tmp_path)
    assert ended.stdout.strip() == "(3, 10)"
    command = programs / "orchestrator"
    for logs in sorted({path.parent for path in (TOP / "tests/data/mllog").rglob("result_*.txt*")})[
        :4
    ]:
        here = run(sys.executable, "-m", "orchestrator", "score", logs, cwd=TOP, check=False)
        there = run(command, "score", logs, cwd=tmp_path, check=False)
        assert (there.returncode, there.stdout, there.stderr) == (
            here.returncode,
            here.stdout,
            here.stderr,
        )
    done = run(command, "demo", "--nexp", "1", cwd=tmp_path, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert len(list(tmp_path.glob("demo-results/*/results/result_1.txt"))) == 1
