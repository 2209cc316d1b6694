"""Everything in the catalogue renders for every engine, into scripts that bash and shellcheck accept."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from programs import need
from render_parts import (
    ENGINES,
    NEXP,
    an_entry,
    assert_environment,
    pairs,
    put,
    triples,
    zero_separated,
)

from orchestrator.errors import RenderError
from orchestrator.model import Entry
from orchestrator.render import render_bundle

Bundles = Mapping[tuple[str, str, str, str], tuple[Entry, dict[str, bytes]]]


@pytest.fixture(
    scope="module",
    params=["some", *(pytest.param(of, marks=pytest.mark.long) for of in ("all", "every engine"))],
)
def bundles(request: pytest.FixtureRequest) -> Bundles:
    """(system, workload, round, engine) -> entry and files: for the first of each workload and round, or for everything there is;
    with one engine after the other, or with every engine."""
    chosen = {}
    first = {triple[1:]: triple for triple in reversed(triples())}
    known = list(first.values()) if request.param == "some" else triples()
    for number, triple in enumerate(known):
        every = request.param == "every engine"
        engines = ENGINES if every else (ENGINES[number % len(ENGINES)],)
        if not an_entry(*triple[:2], round=triple[2]).image:  # published without an image
            engines = ("none",)
        for engine in engines:
            container = {"engine": engine}
            chosen[(*triple, engine)] = an_entry(
                *triple[:2], round=triple[2], container=container, sudo=["sudo", "-n"]
            )
    return {key: (entry, render_bundle(entry, nexp=NEXP)) for key, entry in chosen.items()}


def test_without_an_image_an_engine_is_refused() -> None:
    with pytest.raises(RenderError, match="without a container image") as refused:
        render_bundle(an_entry("tinybox_8xMI300X", "bert"), nexp=NEXP)
    assert "engine: none" in refused.value.hint


@pytest.fixture(scope="module")
def scripts(bundles: Bundles, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every script of every bundle, the same content only once."""
    folder, seen, paths = tmp_path_factory.mktemp("scripts"), set(), []
    for key, (_, files) in bundles.items():
        for name, content in files.items():
            if name.endswith(".sh") and (name, content) not in seen:
                seen.add((name, content))
                paths.append(folder / "-".join(key) / name)
                put({name: content}, folder / "-".join(key))
    return paths


def test_every_bundle_has_the_promised_files(
    bundles: Bundles, request: pytest.FixtureRequest
) -> None:
    number = len({key[:3] for key in bundles})
    assert number == len(triples()) > 50 or "some" in request.node.name
    assert number >= len({triple[1:] for triple in triples()}) > 8
    assert {key[3] for key in bundles} == set(ENGINES)
    for entry, files in bundles.values():
        assert {
            "job.sh",
            "run_with_docker.sh",
            "run_with_docker_slurm.sh",
            "runtime_tunables.sh",
            "rccl_env.sh",
            "settings.sh",
            "manifest.json",
            "origins.tsv",
            "README",
            "lib/loop/job.py",
            entry.config_file,
        } <= set(files)
        assert f"config_{entry.published_as}.sh" in files


def test_bash_reads_every_script(scripts: list[Path]) -> None:
    # `bash -n` reads one script per process; a function body around each would hide an early end of file.
    check = 'status=0; for file in "$@"; do "$BASH" -n "$file" || status=1; done; exit $status'
    done = subprocess.run(
        ["bash", "-c", check, "_", *scripts], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def with_new_lines(scripts: list[Path]) -> list[Path]:
    """The scripts that have a line of code which no earlier script of that name has.

    What is rendered are flat lists of assignments, so a line that was clean once is clean everywhere: a third is left.
    """
    seen: dict[str, set[str]] = {}
    chosen = []
    for path in scripts:
        known = seen.setdefault("config" if path.name.startswith("config_") else path.name, set())
        lines = {
            line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")
        }
        if not lines <= known:
            known |= lines
            chosen.append(path)
    return chosen


@pytest.mark.long  # `make check` runs it for some
def test_shellcheck_is_clean(scripts: list[Path], bundles: Bundles, tmp_path: Path) -> None:
    need("shellcheck")
    whole = put(next(iter(bundles.values()))[1], tmp_path)
    without_values = ("run_with_docker.sh", "run_with_docker_slurm.sh", "preflight.sh")
    alone = [
        path
        for path in with_new_lines(scripts)
        if path.parent.name != "lib" and path.name not in without_values
    ]
    # One bundle as a whole, following what sources what; of the others the files with values in them.
    jobs = [
        (whole, sorted(path.relative_to(whole) for path in whole.rglob("*.sh"))),
        (None, alone[::2]),
        (None, alone[1::2]),
    ]
    running = [
        subprocess.Popen(
            ["shellcheck", "-x", *paths], cwd=folder, stdout=subprocess.PIPE, text=True
        )
        for folder, paths in jobs
    ]
    assert [process.communicate()[0] for process in running] == ["", "", ""]
    assert [process.returncode for process in running] == [0, 0, 0]


def test_sourcing_the_config_gives_exactly_the_environment(
    bundles: Bundles, tmp_path: Path
) -> None:
    wanted = {key[:3]: value for key, value in bundles.items()}
    folders = {
        key: put(
            {
                name: content
                for name, content in files.items()
                if name in (entry.config_file, "rccl_env.sh")
            },
            tmp_path / "-".join(key),
        )
        / entry.config_file
        for key, (entry, files) in wanted.items()
    }
    # PATH is for `env` and `date`; a marker tells the configs apart.
    script = """for file in "$@"; do
        env -i PATH="$PATH" NEXP=3 bash --noprofile --norc -euc '. "$1"; env -0' _ "$file" || exit
        printf 'END=\\0'
    done"""
    done = subprocess.run(
        ["bash", "-c", script, "_", *folders.values()], capture_output=True, check=True
    )
    assert done.stderr == b""
    parts: list[list[str]] = [[]]
    for text in zero_separated(done.stdout):
        parts.append([]) if text == "END=" else parts[-1].append(text)
    for (entry, _), texts in zip(wanted.values(), parts[:-1], strict=True):
        result = pairs(texts)
        assert result.pop("NEXP") == "3" and result.pop("PATH")
        assert_environment(result, entry, nexp=3)
