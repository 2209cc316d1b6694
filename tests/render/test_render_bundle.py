"""What is in a bundle, and that the same inputs give the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from render_parts import NEXP, an_entry
from until import LIMIT_S

import orchestrator
from orchestrator.errors import RenderError
from orchestrator.model import load_entry
from orchestrator.onnode.kernel.program import needs
from orchestrator.render import manifest_hash, render_bundle, write_bundle
from orchestrator.render.bundle import is_carried
from orchestrator.render.files import read_bundle
from orchestrator.resources import data_dir

TOP = Path(orchestrator.__file__).resolve().parent.parent
SITE = "log_dir: /shared/results\ndata: {flux1: {DATADIR: /data/flux}}\npass_env: [HF_TOKEN]\n"
WHAT = ("MI325X_08x08x32", "flux1", "--env", "ZETA=1", "--env", "ALPHA=2", "--nexp", "10")


def render(out: Path, site: Path, *, cwd: Path, top: Path = TOP, **env: str) -> dict[str, bytes]:
    """The bundle that a process of its own writes."""
    subprocess.run(
        [sys.executable, "-m", "orchestrator", "render", *WHAT, "--site", site, "-o", out],
        cwd=cwd,
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(top), "PYTHONDONTWRITEBYTECODE": "1", **env},
    )
    return read_bundle(out)


def copy_of_the_checkout(place: Path) -> Path:
    tomllib = pytest.importorskip("tomllib")
    packed = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]["force-include"]
    for name in ("orchestrator", *packed):
        if (TOP / name).is_dir():
            shutil.copytree(TOP / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "workloads/builtin/__pycache__").mkdir()
    (place / "workloads/builtin/__pycache__/train.cpython-311.pyc").write_bytes(b"\0")
    return place


def test_same_inputs_same_bytes(tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site.yaml", tmp_path / "other/place"
    site.write_text(SITE)
    elsewhere.mkdir(parents=True)
    shutil.copy(site, elsewhere)
    first = render(tmp_path / "a", site, cwd=tmp_path, PYTHONHASHSEED="0", LC_ALL="C", TZ="UTC")
    second = render(
        tmp_path / "b c",
        elsewhere / "site.yaml",
        cwd=Path("/"),
        top=copy_of_the_checkout(tmp_path / "copy"),
        PYTHONHASHSEED="1",
        LC_ALL="C.UTF-8",
        TZ="Asia/Tokyo",
        HF_TOKEN="secret-of-mine",
    )
    assert first == second
    assert manifest_hash(first) == manifest_hash(second)
    assert not [name for name, content in second.items() if b"secret-of-mine" in content]


def test_another_input_gives_another_bundle() -> None:
    first = render_bundle(an_entry(), nexp=10)
    assert manifest_hash(render_bundle(an_entry(), nexp=9)) != manifest_hash(first)
    assert manifest_hash(render_bundle(an_entry(qos="high"), nexp=10)) != manifest_hash(first)


def test_the_manifest_tells_every_file_and_no_place(tmp_path: Path) -> None:
    site = tmp_path / "mine.yaml"
    site.write_text(SITE)
    files = render_bundle(load_entry("MI325X_08x08x32", "flux1", site=site), nexp=NEXP)
    manifest = json.loads(files["manifest.json"])
    assert (
        manifest["orchestrator"],
        manifest["system"],
        manifest["workload"],
        manifest["round"],
        manifest["nexp"],
    ) == (orchestrator.__version__, "MI325X_08x08x32", "flux1", "6.0", NEXP)
    assert manifest["outputs"] == {
        name: hashlib.sha256(content).hexdigest()
        for name, content in files.items()
        if name != "manifest.json"
    }
    inputs = {
        **{
            f"systems/{name}": data_dir("systems") / name
            for name in (
                "MI325X_08x08x32.yaml",
                "shared/hosts.yaml",
                "shared/fabrics.yaml",
                "shared/accelerators.yaml",
            )
        },
        "workloads/flux1.yaml": data_dir("workloads") / "flux1.yaml",
        "mine.yaml": site,
        **{f"templates/{path.name}": path for path in data_dir("templates").glob("*.j2")},
    }
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in inputs.items()}
    assert {name: manifest["inputs"].get(name) for name in inputs} == hashes
    others = {
        name: hashlib.sha256((TOP / name).read_bytes()).hexdigest()
        for name in manifest["inputs"]
        if name not in inputs
    }
    assert manifest["inputs"] == hashes | others
    assert str(tmp_path).encode() not in b"".join(files.values())
    assert str(TOP).encode() not in b"".join(files.values())


def test_the_origins_tell_who_set_each_variable(tmp_path: Path) -> None:
    site = tmp_path / "mine.yaml"
    site.write_text(f"{SITE}env: {{EXTRA: 'x'}}\n")
    given = {"BY_HAND": "1"}
    entry = load_entry("MI325X_08x08x32", "flux1", site=site, env=given)
    content = render_bundle(entry, nexp=NEXP)["origins.tsv"].decode()
    header, *rows = [line.split("\t") for line in content.splitlines()]
    assert header == ["variable", "layer", "file", "line", "source"]
    assert [row[0] for row in rows] == sorted(entry.whole_env)
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["BY_HAND"] == ["command line", "", "", ""]
    line = 1 + site.read_text().splitlines().index("env: {EXTRA: 'x'}")
    assert by_name["EXTRA"] == ["site", "mine.yaml", str(line), ""]
    assert {(row[1], row[2].split("/")[0]) for row in rows} >= {
        ("workload", "workloads"),
        ("fabric", "systems"),
    }
    for name, (layer, file, line_number, _) in by_name.items():
        if layer in ("workload", "system", "fabric"):
            assert name in (TOP / file).read_text().splitlines()[int(line_number) - 1]
    assert str(tmp_path) not in content and "\t/" not in content


def test_documents_of_the_same_name_are_all_in_the_manifest(tmp_path: Path) -> None:
    own, site = tmp_path / "own", tmp_path / "site/MI325X_08x08x32.yaml"
    own.mkdir()
    site.parent.mkdir()
    site.write_text(f"{SITE}systems_dirs: [{own}]\n")
    shutil.copy(data_dir("systems") / "MI325X_08x08x32.yaml", own)
    entry = load_entry("MI325X_08x08x32", "flux1", site=site)
    inputs = json.loads(render_bundle(entry, nexp=NEXP)["manifest.json"])["inputs"]
    for path in entry.files:
        assert hashlib.sha256(Path(path).read_bytes()).hexdigest() in inputs.values(), path


def test_the_code_of_the_built_in_workload_comes_along() -> None:
    files = render_bundle(an_entry("local_2x2x8", "builtin"), nexp=1)
    code = {name for name in files if name.startswith("code/")}
    assert {"code/run_and_time.sh", "code/train.py"} <= code
    assert not [name for name in files if "__pycache__" in name or name.endswith(".pyc")]


def test_the_secret_of_a_site_is_passed_by_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret_0123")
    files = render_bundle(an_entry(pass_env=["HF_TOKEN"]), nexp=1)
    assert b"PASS_ENV=(HF_TOKEN)" in files["settings.sh"]
    assert not [name for name, content in files.items() if b"hf_secret_0123" in content]


def test_nothing_grows_with_the_nodes() -> None:
    small_entry = an_entry()
    many = {
        n: render_bundle(small_entry.with_document("system", nodes=n), nexp=NEXP)
        for n in (2, 8, 64)
    }
    sizes = {
        n: {name: len(content) for name, content in files.items()} for n, files in many.items()
    }
    assert sizes[8] == sizes[2]
    # One more digit, where the number itself stands.
    assert {name for name in sizes[2] if sizes[64][name] != sizes[2][name]} == {
        "README",
        "job.sh",
        "settings.sh",
        "workload.json",
    }
    assert sizes[64]["job.sh"] - sizes[2]["job.sh"] == 1


@pytest.mark.parametrize("nexp", [0, -1, 10_000])
def test_a_number_of_runs_that_is_none(nexp: int) -> None:
    with pytest.raises(RenderError, match="1 to 9999"):
        render_bundle(an_entry(), nexp=nexp)


def test_a_site_without_log_dir() -> None:
    with pytest.raises(RenderError, match="log_dir") as error:
        render_bundle(an_entry(log_dir=None), nexp=1)
    assert "log_dir: /shared/results" in error.value.hint


def test_what_the_site_asks_for_is_in_the_job() -> None:
    job = render_bundle(
        an_entry(
            partition="mi325",
            account="a",
            qos="q",
            reservation="r",
            constraint="x&y",
            exclude=["n1", "n[3-4]"],
            nodelist=["n2"],
            time_limit="1-00:00:00",
            sbatch=["--mem=0", "--comment='two words'"],
        ),
        nexp=10,
    )["job.sh"].decode()
    for line in (
        "--partition=mi325",
        "--account=a",
        "--qos=q",
        "--reservation=r",
        "--constraint=x&y",
        "--exclude=n1,n[3-4]",
        "--nodelist=n2",
        "--time=1-00:00:00",
        "--mem=0",
        "--comment='two words'",
        "--gres=gpu:8",
        "--nodes=8",
    ):
        assert f"\n#SBATCH {line}\n" in job
    head = job.split("\nset -euo pipefail")[0].splitlines()
    # Slurm stops reading options at the first line that is neither empty nor a comment.
    assert all(line.startswith("#") for line in head)


def test_the_time_limit_follows_the_number_of_runs() -> None:
    for nexp in (1, 10):
        assert (
            f"\n#SBATCH --time={(nexp + 1) * 127}\n"
            in render_bundle(an_entry(), nexp=nexp)["job.sh"].decode()
        )


def test_privileged_only_where_the_site_asks() -> None:
    assert b"--privileged" not in render_bundle(an_entry(), nexp=1)["settings.sh"]
    assert (
        b"\n  --privileged\n"
        in render_bundle(an_entry(container={"privileged": True}), nexp=1)["settings.sh"]
    )


def test_the_site_says_how_nodes_are_checked_and_how_many_wait() -> None:
    plain = render_bundle(an_entry(), nexp=1)
    assert b"\n#SBATCH --nodes=8\n" in plain["job.sh"]
    wanted = {
        "run": False,
        "check_seconds": 7,
        "skip": ["clock"],
        "warn": ["gpu_links", "limits"],
        "deep_gbps": 312.5,
    }
    files = render_bundle(an_entry(spares=2, preflight=wanted), nexp=1)
    assert b"\n#SBATCH --nodes=10\n" in files["job.sh"]
    for line in (
        "GPU_MODEL=MI325X",
        "GPU_GFX=gfx942",
        "use PREFLIGHT_RUN 0",
        "use PREFLIGHT_CHECK_S 7",
        "PREFLIGHT_SKIP=(clock)",
        "PREFLIGHT_WARN=(gpu_links limits)",
        "use PREFLIGHT_CLOCK_S 2",
        "use PREFLIGHT_DEEP 0",
        "use PREFLIGHT_DEEP_GBPS 312.5",
        "use SPARES 2",
        "NNODES=8",
    ):
        assert f"\n{line}\n".encode() in files["settings.sh"], line
    host_only = render_bundle(an_entry("local_2x2x8", "builtin"), nexp=1)["settings.sh"]
    assert b"\nGPU_MODEL=''\nGPU_GFX=''\n" in host_only


def test_the_proxy_of_the_site_reaches_runs_and_nodes() -> None:
    proxy = {"http": "http://proxy.example:3128/", "no_proxy": "localhost, .cluster"}
    entry = an_entry("MI355X_1x8x1", "llama2_70b_lora", container={"proxy": proxy})
    files = render_bundle(entry, nexp=1)
    address, direct = "http://proxy.example:3128", "localhost,127.0.0.1,::1,.cluster"
    wanted = {"http_proxy": address, "https_proxy": address, "no_proxy": direct}
    for name, value in wanted.items():
        for spelled in (name, name.upper()):
            assert f"\nexport {spelled}={value}\n".encode() in files[entry.config_file]
            assert f"  {spelled}={value}\n".encode() in files["settings.sh"]
    plain = render_bundle(an_entry("MI355X_1x8x1", "llama2_70b_lora"), nexp=1)
    assert b"_proxy" not in plain[entry.config_file].lower()
    assert b"\nPROXY=(\n)\n" in plain["settings.sh"]
    own = an_entry(
        container={"proxy": proxy}, env={"https_proxy": "http://other:1", "no_proxy": None}
    )
    assert str(own.env["https_proxy"]) == "http://other:1" and "no_proxy" not in own.env


def test_hosts_that_runs_reach_while_they_start() -> None:
    llama2 = ("MI355X_1x8x1", "llama2_70b_lora")
    packages, hub = ["pypi.org", "files.pythonhosted.org"], "huggingface.co"
    assert [part.host for part in an_entry(*llama2).reaches] == packages
    online = an_entry(*llama2, offline=False)
    assert [part.host for part in online.reaches] == [*packages, hub]
    settings = render_bundle(online, nexp=1)["settings.sh"].decode()
    listed = settings.partition("\nREACHES=(\n")[2].partition("\n)\n")[0]
    assert listed.splitlines()[-1].startswith(f"  '{hub}\tconfig and tokenizer")
    assert online.with_document("mine", image="own/image:1").reaches == ()
    assert an_entry().reaches == ()


def test_what_the_site_asks_slurm_for() -> None:
    job = render_bundle(an_entry(), nexp=1)["job.sh"].decode()
    assert "\n#SBATCH --exclusive\n#SBATCH --mem=0\n#SBATCH --gres=gpu:8\n" in job
    job = render_bundle(an_entry(exclusive=False, gpu_request="gpus-per-node"), nexp=1)[
        "job.sh"
    ].decode()
    assert "--exclusive" not in job and "--mem" not in job
    assert "\n#SBATCH --gpus-per-node=8\n" in job
    assert (
        "gpu"
        not in render_bundle(an_entry(gpu_request="none"), nexp=1)["job.sh"]
        .decode()
        .split("\nset -eu")[0]
        .lower()
    )


def test_what_the_site_adds_to_containers() -> None:
    container = {
        "mounts": [
            {"host": "/usr/lib/libibverbs"},
            {"host": "/nvme", "container": "/scratch", "read_only": False},
        ],
        "options": ["--ulimit=core=0"],
        "env_files": ["/etc/rocm.env"],
        "channel_dir": "/var/tmp",
        "results": "local",
    }
    settings = render_bundle(an_entry(container=container), nexp=1)["settings.sh"].decode()
    assert "\n  --env-file=/etc/rocm.env\n  --ulimit=core=0\n)" in settings
    assert (
        "\n  '/usr/lib/libibverbs\t/usr/lib/libibverbs\tro'\n  '/nvme\t/scratch\trw'\n)" in settings
    )
    assert "\nuse ORCH_CHANNELS /var/tmp\n" in settings and "\nRESULTS=local\n" in settings


def test_rdma_devices_are_not_asked_for_where_rdma_is_off() -> None:
    assert b"--device=/dev/infiniband" in render_bundle(an_entry(), nexp=1)["settings.sh"]
    assert (
        b"/dev/infiniband"
        not in render_bundle(an_entry(network={"rdma": "off"}), nexp=1)["settings.sh"]
    )


def test_lib_is_without_what_its_bundle_cannot_use() -> None:
    def lib(**site: object) -> set[str]:
        return {
            name[4:] for name in render_bundle(an_entry(**site), nexp=1) if name.startswith("lib/")
        }

    plain, deep, on_host = lib(), lib(preflight={"deep": True}), lib(container={"engine": "none"})
    assert deep - plain >= {"loop/deep.py", "measure/__main__.py"} and plain < deep
    wanted = needs("docker", deep=True, notifies=False, scratch=False)
    assert all(is_carried(name, wanted) for name in deep - plain)
    notifying = lib(notify={"mail": ["ops@example.org"]})
    assert notifying - plain == {"loop/notice.py", "loop/notify.py"} and plain < notifying
    assert lib(container={"scratch": "/mnt/local"}) - plain == {"agent/scratch.py"}
    assert "agent/look.py" not in deep
    in_containers = {"agent/container.py", "agent/engine.py", "agent/pull.py"}
    assert (plain - on_host, on_host - plain) == (in_containers, {"agent/reaper.py"})


@pytest.mark.parametrize(
    ("script", "env", "edit", "status"),
    [
        (["preflight.sh", "--deep"], {}, "", 3),
        (["run_with_docker.sh"], {"PREFLIGHT_DEEP": "1"}, "", 1),
        (["run_with_docker.sh"], {}, "ENGINE=docker\nENGINE_COMMAND=(docker)\n", 1),
    ],
)
def test_a_bundle_without_it_says_how_to_have_it(
    tmp_path: Path, script: list[str], env: dict[str, str], edit: str, status: int
) -> None:
    entry = an_entry("local_2x2x8", "builtin", log_dir=str(tmp_path), container={"engine": "none"})
    write_bundle(render_bundle(entry, nexp=1), tmp_path / "bundle")
    with (tmp_path / "bundle/settings.sh").open("a") as settings:
        settings.write(edit)
    done = subprocess.run(
        ["bash", *script],
        cwd=tmp_path / "bundle",
        env={**os.environ, "ALLOW_MANY_ON_ONE_HOST": "1", **env},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == status and "this bundle was rendered without lib/" in done.stderr, (
        done.stderr
    )
    assert ("`container: {engine: docker}`" if edit else "`preflight: {deep: true}`") in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle"]


OLD_PYTHON = """#!/bin/bash
# The first three words are options of Python.
exec {python} "${{@:1:3}}" -c '
import runpy, sys
sys.version_info = (3, 6)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
' "${{@:4}}"
"""


@pytest.mark.parametrize(
    ("python", "message"),
    [("old", "is Python 3.6; the bundle needs 3.9 or newer"), ("missing", "is missing on")],
)
@pytest.mark.parametrize(
    ("script", "status"),
    [("preflight.sh", 3), ("run_with_docker.sh", 1), ("run_with_docker_slurm.sh", 1)],
)
def test_an_unfit_interpreter_is_named(
    tmp_path: Path, python: str, message: str, script: str, status: int
) -> None:
    write_bundle(render_bundle(an_entry(log_dir=str(tmp_path)), nexp=1), tmp_path / "bundle")
    old = tmp_path / "old"
    old.write_text(OLD_PYTHON.format(python=sys.executable))
    old.chmod(0o755)
    done = subprocess.run(
        ["bash", script],
        cwd=tmp_path / "bundle",
        env={**os.environ, "PYTHON": str(tmp_path / python)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr and "install python3" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "old"]
