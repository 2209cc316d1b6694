"""What a walk says of a script, against what bash does with it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from script_lines import EXACT, PARTLY
from script_snippets import OUTPUTS, SNIPPETS

from orchestrator.inspection.patterns import search
from orchestrator.inspection.run_container import RunContainer
from orchestrator.inspection.sources import read_folder
from orchestrator.inspection.trace import UNKNOWN, Start, Trace
from orchestrator.inspection.walk import ScriptWalk

GIVEN = {"NNODES": "2", "MODE": "slow"}
ARGUMENTS = ["-n", "7", "rest"]
PROGRAM = r"""#!/bin/bash
printf "%s\n" "$@" "" >>"$RECORD"
printf "%s\t%s\t%s\n" "$*" "$(readlink /proc/$$/fd/1)" "$(readlink /proc/$$/fd/2)" >>"$RECORD.outputs"
exit "$STATUS"
"""


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "torchrun"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return folder


def _by_bash(script: Path, bin_folder: Path, status: int) -> tuple[int, list[str]]:
    record = script.parent / f"record.{status}"
    record.touch()
    env = {
        "PATH": f"{bin_folder}:/usr/bin:/bin",
        # As in a container, whoever runs the tests.
        "HOME": "/root",
        "RECORD": str(record),
        "STATUS": str(status),
        **GIVEN,
    }
    done = subprocess.run(
        ["bash", str(script), *ARGUMENTS],
        env=env,
        cwd=script.parent,
        capture_output=True,
        timeout=60,
    )
    return done.returncode, record.read_text().split("\n")[:-2] if record.stat().st_size else []


def _walked(script: Path, status: int) -> tuple[int | None, Trace]:
    """Walk the script twice: once to find the training, once with its status."""
    tree = read_folder(script.parent.parent)
    tree.complete = False
    around = RunContainer(GIVEN, cwd="/code")
    words = ["bash", "/code/run.sh", *ARGUMENTS]
    first = ScriptWalk(tree, around)
    first.run(list(words))
    places = {(one.place.file, one.place.line): status for one in first.trace.starts}
    second = ScriptWalk(tree, around, places)
    return second.run(list(words)), second.trace


@pytest.mark.parametrize("status", [0, 7])
@pytest.mark.parametrize("name", SNIPPETS)
def test_a_walk_ends_as_bash_does(name: str, status: int, tmp_path: Path, bin_folder: Path) -> None:
    script = tmp_path / "code" / "run.sh"
    script.parent.mkdir()
    script.write_text(SNIPPETS[name])
    code, arguments = _by_bash(script, bin_folder, status)
    walked, trace = _walked(script, status)

    assert walked == code
    assert not trace.undecided
    sure = [one for one in trace.starts if not one.place.maybe]
    assert len(sure) == 1
    own = [word.replace(str(tmp_path), "") for word in arguments]
    assert list(sure[0].words[1:]) == own


def _compared(
    line: str, tmp_path: Path, bin_folder: Path
) -> tuple[int, list[str], int | None, Trace]:
    """Return status and words of the trainings by bash, then the walk's status and trace."""
    script = tmp_path / "code" / "run.sh"
    script.parent.mkdir()
    script.write_text(line + "\n")
    code, words = _by_bash(script, bin_folder, 7)
    for path in script.parent.iterdir():
        if path != script and path.is_file():
            path.unlink()
    walked, trace = _walked(script, 7)
    return code, [word.replace(str(tmp_path), "") for word in words], walked, trace


def _words(starts: Iterable[Start]) -> list[str]:
    return [word for start in starts for word in (*start.words[1:], "")][:-1]


@pytest.mark.parametrize("line", EXACT)
def test_a_walk_of_a_line_knows_what_bash_does(line: str, tmp_path: Path, bin_folder: Path) -> None:
    code, words, walked, trace = _compared(line, tmp_path, bin_folder)
    assert (walked, _words(trace.starts)) == (code, words)
    assert not trace.undecided and not any(one.place.maybe for one in trace.starts)


@pytest.mark.parametrize("line", PARTLY)
def test_a_walk_of_a_line_knows_nothing_that_bash_does_not_do(
    line: str, tmp_path: Path, bin_folder: Path
) -> None:
    code, words, walked, trace = _compared(line, tmp_path, bin_folder)
    assert walked in (code, None)
    sure = _words(one for one in trace.starts if not one.place.maybe)
    perhaps = [_words([one]) for one in trace.starts if one.place.maybe]
    known = "\0".join(sure)
    pattern = ".*".join(map(re.escape, known.split(UNKNOWN)))
    assert UNKNOWN in known or perhaps or walked is None
    if sure or not perhaps:
        assert re.fullmatch(pattern, "\0".join(words), re.DOTALL)
    else:
        started = [start.split("\0") for start in "\0".join(words).split("\0\0")]
        assert all(start in perhaps for start in started)


@pytest.mark.parametrize("name", OUTPUTS)
def test_output_goes_where_bash_sends_it(name: str, tmp_path: Path, bin_folder: Path) -> None:
    script = tmp_path / "code" / "run.sh"
    script.parent.mkdir()
    script.write_text(OUTPUTS[name])
    code, _ = _by_bash(script, bin_folder, 0)
    by_bash = [
        [re.sub(r"^pipe:.*", "log", word).replace(str(tmp_path), "") for word in line.split("\t")]
        for line in (script.parent / "record.0.outputs").read_text().splitlines()
    ]
    for file in script.parent.iterdir():
        if file != script:
            file.unlink()
    walked, trace = _walked(script, 0)

    assert walked == code
    assert [[" ".join(one.words[1:]), one.out, one.err] for one in trace.starts] == by_bash


def _trace(tmp_path: Path, text: str, **given: str) -> Trace:
    script = tmp_path / "run.sh"
    script.write_text(text)
    tree = read_folder(tmp_path)
    walk = ScriptWalk(tree, RunContainer(given, cwd="/"))
    walk.run(["bash", "/run.sh"])
    return walk.trace


def test_an_unknown_condition_walks_both_branches(tmp_path: Path) -> None:
    text = 'if [ "$(date +%H)" -gt 12 ]; then pip install late; else pip install early; fi\n'
    found = _trace(tmp_path, text).downloads
    assert [(one.what, one.place.maybe) for one in found] == [
        ("pip install late", True),
        ("pip install early", True),
    ]


@pytest.mark.parametrize(
    ("text", "use"),
    [
        ('echo "${SEED:?not set}"\n', "required"),
        ("set -u\necho $SEED\n", "required"),
        ('if [[ -z "$SEED" ]]; then exit 1; fi\n', "required"),
        ("[ $SEED -gt 0 ] && echo\n", "required"),
        ('[ -n "$SEED" ] || exit 1\n', "required"),
        ("echo $SEED\n", "plain"),
        ("echo ${SEED:-1}\n", "default"),
        ('if [[ "$SEED" == 1 ]]; then echo; fi\n', "test"),
    ],
)
def test_reads_of_an_unset_variable(text: str, use: str, tmp_path: Path) -> None:
    reads = [one for one in _trace(tmp_path, text).reads if one.name == "SEED"]
    assert {(one.use, one.given) for one in reads} == {(use, False)}
    assert all(one.given for one in _trace(tmp_path, text, SEED="1").reads if one.name == "SEED")


@pytest.mark.parametrize(
    ("text", "out", "err"),
    [
        ("torchrun a\n", "log", "log"),
        ("torchrun a 2>/dev/null\n", "log", "/dev/null"),
        ("torchrun a 2>&1 | tee /x\n", "| tee /x", "| tee /x"),
        ("torchrun a >/out 2>&1\n", "/out", "/out"),
        ("exec 2>/dev/null\ntorchrun a\n", "log", "/dev/null"),
        ("torchrun a &>/both\n", "/both", "/both"),
        ("{ torchrun a; } 2>/e\n", "log", "/e"),
        ("f() { torchrun a; }\nf 2>/dev/null | grep x\n", "| grep x", "/dev/null"),
        ("exec > >(tee /log) 2>&1\ntorchrun a\n", "| tee /log", "| tee /log"),
    ],
)
def test_where_output_goes(text: str, out: str, err: str, tmp_path: Path) -> None:
    (start,) = [one for one in _trace(tmp_path, text).starts if one.words[0] == "torchrun"]
    assert (start.out, start.err) == (out, err)


@pytest.mark.parametrize(
    "text",
    [
        "while true; do :; done\n",
        "f() { f; }\nf\n",
        "x() { :; }; " * 2000 + "\n",
        "((((\n",
        'a="' + "$(" * 300 + ")" * 300 + '"\n',
        "for i in $(seq 1 9999); do for j in $(seq 1 9999); do :; done; done\n",
        ": ${x:=$(cat /dev/zero)}\n",
        "case $1 in a) ;;\n",
        "\x00\x01\x02",
        "x=xx\nfor i in $(seq 40); do x=$x$x; y+=$x; done\n",
        'x=xx\nfor i in $(seq 40); do x="$x $x"; done\n',
        "x=xx\nfor i in $(seq 40); do x=$(echo $x$x; echo $x); done\n",
        "x=xx\nfor i in $(seq 40); do x=${x//x/$x}; done\n",
        'x=(x)\nfor i in $(seq 40); do x=("${x[@]}" "${x[@]}"); set -- "$@" "$@" a; done\n',
        f"x={'a' * 40}b\n[[ $x =~ ^(a+)+$ ]]\n[[ $x =~ ^(a|a)*$ ]]\n",
        f"x={'a' * 4000}b\n[[ $x =~ a*a*a*a*c ]]\necho ${{x%%*a*b*c}}\n",
        f"x={'a' * 4000}\nfor i in $(seq 200); do y=${{x%%*b*c*d}} z=${{x//*a/$i}}; done\n",
        f"x={'a' * 4000}\nfor i in $(seq 200); do [[ $i$x == *b*c*d || $i$x =~ a*a*b ]]; done\n",
        "exit ²\n",
        "exit --5\n",
        "shift ²\n",
        "a=(1)\necho ${a[²]} ${a:²} ${@:²}\nwait ²\nseq ²\na[²]=3\n",
        f"exit {'9' * 5000}\n",
        "find . -maxdepth ²\n",
    ],
)
def test_odd_scripts_end(text: str, tmp_path: Path) -> None:
    _trace(tmp_path, text)


@pytest.mark.parametrize(
    "sum_",
    ["((9**63)**63)**63", "*".join(["99999"] * 300), "2**62+2**62"],
    ids=["powers", "a product", "a sum"],
)
def test_numbers_that_bash_cannot_hold_are_unknown(sum_: str, tmp_path: Path) -> None:
    text = f'a=$(({sum_}))\nb="$(({sum_}))"\nc=$((2**62+(2**62-1)))\n'
    values = {one.name: one.value for one in _trace(tmp_path, text).assignments}
    assert values == {"a": UNKNOWN, "b": UNKNOWN, "c": str((1 << 63) - 1)}


@pytest.mark.parametrize(
    ("text", "pattern", "answer"),
    [
        ("7.2.2", r"^[0-9]+(\.[0-9]+)*$", True),
        ("MI355X", "^MI3.*X$", True),
        ("x" * 4000, "y.*z", False),
        ("a" * 40, "^(a+)+$", None),
        ("a" * 12, "^(a?){30}b", None),
        ("a" * 30, "a?" * 30 + "a" * 31, None),
        ("a" * 40, "(a|a)" * 40 + "b", None),
        ("x out of memory", "error|fail|memory|killed|abort|hip|rccl|nan", True),
        ("a" * 4000, "a*a*a*a*b", None),
        ("a", "a{99999999999}", None),
        ("a", "(", None),
        ("8", "^[[:digit:]]+$", True),
        ("a8", "^[[:nothing:]]+$", None),
        ("[", "[[]", True),
        ("10x5", r"^[0-9]+\.[0-9]+$", False),
        ("a\n", "^a$", False),
        ("a", "(?=a)", None),
        ("\\", r"^[\.]$", True),
    ],
)
def test_a_pattern_is_searched_if_that_ends_soon(
    text: str, pattern: str, answer: bool | None
) -> None:
    assert search(pattern, text) is answer
