"""What bash's `declare -px` prints, read back: against a real bash, with any bytes."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.onnode.kernel.settings_file import declared as parse
from orchestrator.onnode.kernel.settings_file import fingerprint, shown, unique_names

VALUES = st.lists(
    st.binary(max_size=40).map(lambda value: value.replace(b"\0", b"")), min_size=1, max_size=12
)
HARD = st.lists(
    st.sampled_from(
        [
            b"\n",
            b'"',
            b"'",
            b"\\",
            b"$",
            b"`",
            b"\x01",
            b"\x7f",
            b"\xff",
            "ü€".encode(),
            b'declare -x Z="1"',
            b"$'",
            b"(a)",
        ]
    ),
    max_size=12,
).map(b"".join)


def declared(values: dict[str, bytes], locale: str) -> bytes:
    """What a bash prints that has these values in its environment."""
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", "export -n PWD SHLVL OLDPWD _ LC_ALL; declare -px"],
        env={
            b"LC_ALL": locale.encode(),
            **{name.encode(): value for name, value in values.items()},
        },
        check=True,
        capture_output=True,
    )
    return done.stdout


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@settings(max_examples=40)
@given(values=st.one_of(VALUES, st.lists(HARD, min_size=1, max_size=12)))
def test_every_value_comes_back_as_it_was(locale: str, values: list[bytes]) -> None:
    given_values = {f"V_{number}": value for number, value in enumerate(values)}
    found = parse(declared(given_values, locale))
    assert {
        name: value.encode("utf-8", "surrogateescape") for name, value in found.items()
    } == given_values
    for value in found.values():
        shown(value).encode()


def test_what_is_no_variable_of_a_process_is_left_out() -> None:
    """As bash 5 prints exported arrays, integers, read-only values and names without a value."""
    shell = r"""
        export PATH= BARE; declare -ix NUMBER=7; declare -rx FIXED='a"b'; export ARRAY=('x' $'y\ndeclare -x FALSE="1"' ')')
        declare -Ax MAP=([k]='v) "'); export AFTER=$'tab\there'; declare -px"""
    done = subprocess.run(
        ["/usr/bin/env", "-i", "bash", "--norc", "-c", shell],
        check=True,
        capture_output=True,
    )
    assert b"FALSE" in done.stdout and b"BARE" in done.stdout
    found = {
        name: value
        for name, value in parse(done.stdout).items()
        if name not in ("PWD", "SHLVL", "OLDPWD", "_")
    }
    assert found == {"PATH": "", "NUMBER": "7", "FIXED": 'a"b', "AFTER": "tab\there"}


def test_both_quotings() -> None:
    text = "declare -x A=\"x\\\"y\\$z\\\\\"\ndeclare -x B=$'a\\n\\x41\\101\\''\n"
    text += 'declare -x C\ndeclare -x D="two\nlines"\nrm -rf /\n'
    assert parse(text.encode()) == {"A": 'x"y$z\\', "B": "a\nAA'", "D": "two\nlines"}


def test_line_ends_inside_of_quotes_as_an_old_bash_prints_them() -> None:
    assert parse(b'declare -x A="one\ndeclare -x B=\\"2\\"\n"\nrm -rf /\ndeclare -x C="3"\n') == {
        "A": 'one\ndeclare -x B="2"\n',
        "C": "3",
    }


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_any_text_is_read(text: str) -> None:
    for start in ("", 'declare -x A="', "declare -x A=$'", "declare -ax A=("):
        for name, value in parse((start + text).encode()).items():
            assert name.isidentifier() and len(value) <= len(text) + 1


def test_long_and_torn_input_takes_no_time() -> None:
    for text in (
        'declare -x A="' + "\\x" * 500_000,
        "declare -ax A=(" + '[0]="" ' * 100_000,
        "declare -x A=$'" * 50_000,
    ):
        assert parse(text.encode()) == {}


def environment(**values: str) -> bytes:
    return "".join(f'declare -x {name}="{value}"\n' for name, value in values.items()).encode()


def test_the_fingerprint_passes_over_time_stamps_alone() -> None:
    first, later = (
        environment(LR="0.1", EXP="a-17", AT="18"),
        environment(AT="20", EXP="a-19", LR="0.1"),
    )
    unique = unique_names(first, environment(LR="0.1", EXP="a-", AT=""))
    assert unique == {"EXP", "AT"} and fingerprint(first, unique) == fingerprint(later, unique)
    others = [environment(LR="0.2", EXP="a-17", AT="18"), environment(EXP="a-17", AT="18")]
    others += [
        environment(LR="0.1", EXP="a-17", AT="18", MORE=""),
        environment(LR="0.1", EXP="a-17", AT="18", L="R"),
    ]
    assert len({fingerprint(one, unique) for one in [first, *others]}) == 5
