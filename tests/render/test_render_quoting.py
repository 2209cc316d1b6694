"""Every value goes through one filter; real bash reads back what went in, byte for byte."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from render_parts import (
    ANY,
    LINE,
    NASTY,
    PATH,
    an_entry,
    assert_environment,
    bash,
    pairs,
    rendered,
    with_site,
    zero_separated,
)

from orchestrator.errors import RenderError
from orchestrator.model import Minutes, Mount, Origin, Text, Unique, quoting
from orchestrator.onnode.agent.executor import Executor
from orchestrator.onnode.agent.launch import RunRequest, preamble, start
from orchestrator.onnode.agent.node import Node
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.program import read
from orchestrator.onnode.kernel.settings_file import evaluate_config, load
from orchestrator.render import bundle as rendering
from orchestrator.render import render_bundle

ENTRY = an_entry("local_2x2x8", "builtin", container={"engine": "none"})
REAL_BASH = settings(
    max_examples=25,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],  # in place of the profile's
)
SOURCE = 'cd /; . "$1"; env -0'


def environment_of(values: dict[str, Text]) -> object:
    return dataclasses.replace(
        ENTRY,
        env={**ENTRY.env, **values},
        rccl_env={"NCCL_X": next(iter(values.values()), Text(""))},
        origins={**ENTRY.origins, "NCCL_X": Origin("fabric", "fabrics.yaml", 1)},
    )


def read_config(entry: object, folder: Path) -> dict[str, str]:
    bundle = rendered(entry, folder)  # type: ignore[arg-type]
    result = pairs(zero_separated(bash(SOURCE, bundle / ENTRY.config_file)))
    result.pop("PATH")
    return result


def test_every_nasty_value_in_the_config(tmp_path: Path) -> None:
    entry = environment_of({f"V{i}": Text(text) for i, text in enumerate(NASTY)})
    assert_environment(read_config(entry, tmp_path), entry, nexp=1)  # type: ignore[arg-type]
    assert not (tmp_path / "pwned").exists()


@REAL_BASH
@given(st.lists(ANY, max_size=20))
def test_any_value_in_the_config(values: list[str]) -> None:
    entry = environment_of({f"V{i}": Text(text) for i, text in enumerate(values)})
    with TemporaryDirectory() as folder:
        assert_environment(read_config(entry, Path(folder)), entry, nexp=1)  # type: ignore[arg-type]


@given(ANY)
@settings(REAL_BASH, max_examples=10)
def test_the_text_before_a_time_stamp(prefix: str) -> None:
    entry = dataclasses.replace(ENTRY, env={"A": Unique(prefix), "B": Minutes(5, 205)}, rccl_env={})
    with TemporaryDirectory() as folder:
        assert_environment(read_config(entry, Path(folder)), entry, nexp=1)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """A command line argument that is not UTF-8 reaches Python with surrogates; the run sees its bytes."""
    text = os.fsdecode(b"caf\xe9 \xff")
    entry = dataclasses.replace(ENTRY, env={"V": Text(text)}, rccl_env={})
    assert read_config(entry, tmp_path) == {"V": text}


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(RenderError, match="surrogate"):
        render_bundle(dataclasses.replace(ENTRY, env={"V": Text("\ud800")}), nexp=1)


def test_a_nul_byte_is_refused() -> None:
    with pytest.raises(RenderError, match="NUL"):
        render_bundle(dataclasses.replace(ENTRY, env={"V": Text("a\0b")}), nexp=1)


READ_SETTINGS = r"""
BUNDLE=${1%/*}
. "$1"
show() { printf '%s\0' "$#" "$@"; }
show "$LOGDIR" "$CONT" "$CODE_SOURCE" "$CODE_DIR" "$BENCHMARK" "$METRIC" "$DATADIR"
show "${COMMAND[@]}"
show "${SUDO[@]}"
show "${ENGINE_COMMAND[@]}"
show "${CONTAINER_OPTIONS[@]}"
for mount in "${MOUNTS[@]}"; do
  IFS=$'\t' read -r variable below target mode <<<"$mount"
  show "$variable" "$below" "$target" "$mode"
done
"""


def groups(texts: list[str]) -> list[list[str]]:
    """Split at the counts that `show` prints."""
    result, at = [], 0
    while at < len(texts):
        end = at + 1 + int(texts[at])
        result.append(texts[at + 1 : end])
        at = end
    return result


@REAL_BASH
@given(
    scalars=st.lists(ANY, min_size=6, max_size=6),
    data=ANY,
    command=st.lists(ANY, min_size=1, max_size=5),
    sudo=st.lists(ANY, max_size=3),
    engine=st.lists(ANY, min_size=1, max_size=3),
    mount=st.tuples(LINE, PATH),
    options=st.lists(LINE, max_size=3),
)
def test_any_value_in_the_settings(
    scalars: list[str],
    data: str,
    command: list[str],
    sudo: list[str],
    engine: list[str],
    mount: tuple[str, str],
    options: list[str],
) -> None:
    log_dir, image, code_path, code_dir, benchmark, metric = scalars
    image = image or "an image"  # without one, an engine is refused
    below, target = mount
    log_dir = log_dir or "/x"  # a site without one is refused
    entry = dataclasses.replace(
        with_site(
            an_entry(),
            log_dir=log_dir,
            sudo=sudo,
            data={"flux1": {"DATADIR": data}},
            code={"flux1": code_path},
        )
        .with_document(
            "workload", code_dir=code_dir, benchmark=benchmark, metric=metric, command=command
        )
        .with_document("mine", image=image),
        mounts=(
            Mount("DATADIR", below, None, target, True),
            Mount("CKPT", "", None, target, False),
        ),
    )
    entry = dataclasses.replace(
        entry,
        container=dataclasses.replace(
            entry.container, command=tuple(engine), security_opt=tuple(options), shm_size="16g"
        ),
    )
    with TemporaryDirectory() as folder:
        bundle = rendered(entry, Path(folder))
        result = groups(zero_separated(bash(READ_SETTINGS, bundle / "settings.sh")))
    # `read` with a tab as separator takes blanks at the ends of a field as they are.
    assert result == [
        [log_dir, image, code_path, code_dir, benchmark, metric, data],
        command,
        sudo,
        engine,
        rendering._container_options(entry),
        ["DATADIR", below, target, "ro"],
        ["CKPT", ".", target, "rw"],
    ]


def test_the_callers_value_wins_only_where_documented(tmp_path: Path) -> None:
    bundle = rendered(with_site(an_entry(), data={"flux1": {"DATADIR": "/data"}}), tmp_path)
    mine = {
        "PATH": os.environ["PATH"],
        "LOGDIR": "/a b",
        "CONT": "x:1",
        "DATADIR": "/d'",
        "SYSTEM": "no",
        "ENGINE": "no",
        "COMMAND": "no",
    }
    result = zero_separated(
        bash(
            '. "$1"; printf "%s\\0" "$LOGDIR" "$CONT" "$DATADIR" "$SYSTEM" "$ENGINE" "${COMMAND[@]}"',
            bundle / "settings.sh",
            env=mine,
        )
    )
    assert result == [
        "/a b",
        "x:1",
        "/d'",
        "MI325X_08x08x32",
        "docker",
        "bash",
        "./run_and_time.sh",
    ]


# The way of a value into a run, without the set around it: config -> environment.sh -> script of the run -> program.
PROGRAM = r"""printf '%s\0' "$#" "$@"; exec env -0"""
OF_THE_RUN = {
    "TORCHELASTIC_ERROR_FILE",
    "SEED",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_JOB_ID",
    "ORCH_RUN",
    "ORCH_ATTEMPT",
    "PATH",
}


def run(bundle: Path, folder: Path) -> bytes:
    """What a run's program prints when a node starts it."""
    path = {"PATH": f"{os.environ['PATH']}:/nowhere"}
    program = read(bundle)
    answer = load(program.files, {**path, "NEXP": "7"})
    node = Node(
        "n", answer, program, Layout(folder), "1", "", "/sys", "/proc", "/dev", "/run", str(folder)
    )
    inside = folder / "inside"
    inside.mkdir()
    (inside / "environment.sh").write_bytes(evaluate_config(program.files, answer, 7))
    executor = Executor(str(inside), str(inside))
    request = RunRequest("1.1", ["n"], 1, 1, 5, 1, "h")
    script = preamble(node, request, 0, executor, []) + start(request, 0, answer)
    (inside / "script").write_bytes(script.encode("utf-8", "surrogateescape"))
    subprocess.run(["bash", inside / "script"], env=path, check=True, stdin=subprocess.DEVNULL)
    return (inside / "out.1.1").read_bytes()


def arrive(
    values: dict[str, str], arguments: list[str], folder: Path
) -> tuple[list[str], dict[str, str]]:
    """The arguments and the environment that a run's program sees."""
    entry = dataclasses.replace(
        ENTRY,
        env={name: Text(text) for name, text in values.items()},
        rccl_env={},
    ).with_document("workload", command=["bash", "-c", PROGRAM, "program", *arguments])
    texts = zero_separated(run(rendered(entry, folder / "bundle"), folder))
    count = 1 + int(texts[0])
    result = pairs(texts[count:])
    assert set(result) == OF_THE_RUN | set(values)
    return texts[1:count], {name: result[name] for name in values}


def test_every_nasty_value_reaches_the_program(tmp_path: Path) -> None:
    values = {f"V{i}": text for i, text in enumerate(NASTY)}
    assert arrive(values, list(NASTY), tmp_path) == (list(NASTY), values)


@settings(REAL_BASH, max_examples=12)
@given(st.lists(ANY, min_size=1, max_size=12))
def test_any_value_reaches_the_program(arguments: list[str]) -> None:
    values = {f"V{i}": text for i, text in enumerate(arguments)}
    with TemporaryDirectory() as folder:
        assert arrive(values, arguments, Path(folder)) == (arguments, values)


# ---- refusals ----


@pytest.mark.parametrize(
    "template",
    [
        "{{ value }}",
        "x={{ value ~ 'b' }}",
        "{{ (value | q) ~ value }}",
        "{{ flag }}",
        "{{ none }}",
        "{{ 1.5 }}",
    ],
)
def test_a_template_that_forgets_the_filter_is_refused(template: str, tmp_path: Path) -> None:
    (tmp_path / "x.j2").write_text(template)
    with pytest.raises(RenderError, match="no quoting filter"):
        rendering._render(
            rendering._environment(tmp_path), "x.j2", {"value": "a", "flag": True, "none": None}
        )


def test_a_missing_value_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.j2").write_text("{{ entry.nothing | q }}")
    with pytest.raises(RenderError, match=r"templates/x\.j2: .*nothing"):
        rendering._render(rendering._environment(tmp_path), "x.j2", {"entry": ENTRY})


def test_whole_numbers_and_quoted_values_pass() -> None:
    assert quoting.only_quoted(8) == 8
    assert quoting.only_quoted(quoting.quote("a b")) == "'a b'"
    with pytest.raises(RenderError):
        quoting.only_quoted(True)


@pytest.mark.parametrize(
    "text", ["a\nscancel --me", "a\rb", "a\x1b[2Kb", "a\tb", "\x7f", "a\u2028b"]
)
def test_sbatch_lines_refuse_control_characters(text: str) -> None:
    with pytest.raises(RenderError, match="control characters"):
        quoting.sbatch_value(text)
    with pytest.raises(RenderError, match="control characters"):
        render_bundle(with_site(ENTRY, partition=text), nexp=1)


@given(ANY)
def test_a_comment_stays_one_line(text: str) -> None:
    assert quoting.comment(text).isprintable()
    assert len(quoting.comment(text).splitlines()) <= 1


@pytest.mark.parametrize("text", ["", "1a", "a b", "a=b", "a-b", "a\n", "\u00e9", "$(x)"])
def test_what_is_no_variable_name_is_refused(text: str) -> None:
    with pytest.raises(RenderError, match="not a variable name"):
        quoting.name(text)
