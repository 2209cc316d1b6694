"""Reading a config without running it: as bash would, or not at all."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from until import LIMIT_S, until

from orchestrator.errors import InputError, UsageError
from orchestrator.importing.evaluate import MOST_FILES, ConfigEnvironment, evaluate
from orchestrator.importing.execution import executed
from orchestrator.inspection import syntax
from orchestrator.model.values import Minutes, Text, Unique

READ = r"""
export PLAIN=1 TWO="a b" THREE='$PLAIN "x"' FOUR=a\ b
export EMPTY=
HIDDEN=7
export LATER=${HIDDEN}x"${PLAIN}"
LATE=yes; export LATE
: "${SET_BY_DEFAULT:=expandable_segments:False,threshold:0.8}"
export SET_BY_DEFAULT
export DEFAULT=${NOWHERE:--1} KEPT=${PLAIN:-2} WITH_BLANKS="${NOWHERE:-x y}" UNSET_ONLY=${EMPTY-5}
export WORDS=${NAME:-flux-train-$HIDDEN} SPACED="$PLAIN  $HIDDEN "
export SUM=$((5 + ${PLAIN:-3} * (HIDDEN + $PLAIN))) PART=$((12288 / HIDDEN)) REST=$(((-7) % 3))
export BY_EXPR=$(expr $HIDDEN + $HIDDEN / 2) QUOTED_EXPR=$(expr $HIDDEN \* 3)
export SYSTEM=$(basename $(readlink -f ${BASH_SOURCE[0]}) | sed 's/^config_//' | sed 's/\.sh$//' )
export FILE=$(basename "${BASH_SOURCE[0]}") FOLDER=$(basename $(dirname "./x/y"))
export ONE=a && export ANOTHER=b; export THIRD=c
export GONE=1
unset GONE
source $(dirname ${BASH_SOURCE[0]})/config_common.sh
export AFTER=$COMMON SHORT=${FILE%.sh} SHORTER=${FILE%%_*} TAIL=${FILE#*_} LAST=${SYSTEM##*x}
. "${BASH_SOURCE[0]%/*}/config_common.sh"
echo "loaded"
"""
COMMON = """
export COMMON='of all'
export CALLER=$(basename $(readlink -f ${BASH_SOURCE[1]}) | sed 's/^config_//' | sed 's/\\.sh$//' )
"""


def config(folder: Path, text: str, name: str = "config_MI355X_1x8x1.sh", **more: str) -> Path:
    for file, content in {name: text, **more}.items():
        (folder / file.replace("__", ".")).write_text(content)
    return folder / name


def env(evaluation: ConfigEnvironment) -> dict[str, str]:
    return {name: str(value) for name, value in evaluation.env.items()}


def test_what_is_read_is_what_bash_gives(tmp_path: Path) -> None:
    path = config(tmp_path, READ, config_common__sh=COMMON)
    read = evaluate(path)
    assert not read.run
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    bash, _ = executed(path.name, files, {"NEXP": "1"})
    assert env(read) == {name: value for name, value in bash.items() if name != "NEXP"}
    assert env(read)["SPACED"] == "1  7 " and env(read)["CALLER"] == "MI355X_1x8x1"


@pytest.mark.parametrize(
    "line",
    [
        "if [ -n \"$X\" ]; then export Y=1; fi",
        "export X=$(curl -s https://example.org)",
        "export X=`date`",
        "export X=$(cat /etc/hostname)",
        "eval export X=1",
        "export X=1 | tee log",
        "export X=${Y//a/b}",
        "export X=(1 2)",
        "export X+=1",
        "X=1 command",
        "export X=$((1 << 2))",
        "export X=$(( -1 + 2 ))",
        "export X=$1",
        "export X=${Y:?must be set}",
        "function f { :; }",
        "for x in a; do export X=$x; done",
        "rm -rf /nowhere",
        "export -n X",
        "declare -x X=1",
        "export X=1 &",
        "export X=$'a'",
        "source /etc/profile",
        "export X=1 || true",
        "export X='",
        "export X=$HOME",
        "export X=$(readlink -f ${BASH_SOURCE[0]})",
        "X[0]=1",
        "cat <<EOF\nx\nEOF",
        'export X=$(date "")',
        "export X=$((" + "(" * 1500 + "1" + ")" * 1500 + "))",
        "export X=$((" + " * ".join(["99999"] * 300) + "))",
    ],
)  # fmt: skip
def test_what_is_not_plain_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = config(tmp_path, f"export A=1\n{line}\n")
    with pytest.raises(UsageError) as refused:
        evaluate(path)
    assert "cannot be read without executing it: config_MI355X_1x8x1.sh:" in refused.value.message
    assert "--execute" in refused.value.hint


COMPUTED = """
export WALLTIME_MINUTES=50
export WALLTIME=$(( 5 + ${NEXP:-1} * WALLTIME_MINUTES ))
export NEXP=1
export EXP_NAME=${EXP_NAME:-flux-train-$(date +%y%m%d%H%M%S%N)}
export SEED=$RANDOM
"""


@pytest.mark.parametrize("execute", [False, True])
def test_values_that_are_computed_at_every_start(tmp_path: Path, execute: bool) -> None:
    text = COMPUTED + ("export X=$(printf 1)\n" if execute else "")
    result = evaluate(config(tmp_path, text), execute=execute)
    assert result.run == execute
    assert result.env["WALLTIME"] == Minutes(5, 50)
    assert result.env["EXP_NAME"] == Unique("flux-train-")
    assert result.env["WALLTIME_MINUTES"] == Text("50")
    assert result.chance == ("SEED",) and "NEXP" not in result.env


def test_a_missing_common_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no config_common.sh next to the config"):
        evaluate(config(tmp_path, "source $(dirname ${BASH_SOURCE[0]})/config_common.sh\n"))


def test_a_common_file_is_read_among_many_other_files(tmp_path: Path) -> None:
    for number in range(MOST_FILES):
        (tmp_path / f"a{number}.txt").touch()
    path = config(tmp_path, "source ./config_common.sh\n", config_common__sh="export A=1\n")
    assert env(evaluate(path)) == {"A": "1"}


@pytest.mark.parametrize("execute", [False, True])
@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_lines_that_end_with_cr_lf_are_refused_by_name(
    tmp_path: Path, end: bytes, execute: bool
) -> None:
    path = config(tmp_path, "")
    path.write_bytes(b"export A=1" + end)
    with pytest.raises(InputError, match=f"^{path.name}: its lines end with CR LF") as refused:
        evaluate(path, execute=execute)
    command = refused.value.hint.removeprefix("in its folder: ")
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert env(evaluate(path, execute=execute)) == {"A": "1"}


@pytest.mark.parametrize("how", ["", "test 1 && "])
def test_a_sourced_file_with_cr_lf_is_refused_by_name(tmp_path: Path, how: str) -> None:
    path = config(tmp_path, f"{how}source ./config_common.sh\n")
    (tmp_path / "config_common.sh").write_bytes(b"export A=1\r\n")
    (tmp_path / "config_other.sh").write_bytes(b"export A=1\r\n")
    with pytest.raises(InputError, match=r"config_common\.sh: its lines end with CR LF"):
        evaluate(path, execute=bool(how))


def test_files_that_source_each_other_end(tmp_path: Path) -> None:
    path = config(
        tmp_path, "source ./config_b.sh\n", config_b__sh="source ./config_MI355X_1x8x1.sh\n"
    )
    with pytest.raises(InputError, match="sources itself"):
        evaluate(path)


def test_nothing_of_the_caller_reaches_an_executed_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret-of-mine")
    monkeypatch.setenv("LR", "1")
    text = 'export T="x${HF_TOKEN}" LR=${LR:-2}; export H=$(cd; ls -A | wc -l); echo noise; echo more >&2\n'
    result = evaluate(config(tmp_path, text), execute=True)
    assert env(result) == {"T": "x", "LR": "2", "H": "0"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("source $(dirname ${BASH_SOURCE[0]})/../common.sh", r"line 3: \./\.\./common\.sh: No such"),
        ("source /workspace/llm/config_common.sh", "/workspace/llm/config_common.sh: No such file"),
        ("export N=$(no-such-program | wc -l)", "no-such-program: command not found"),
        ("if true; then", "syntax error"),
        ("source ./nowhere.sh; exit 3", "exit code 3 .*: ./nowhere.sh: No such file"),
    ],
)  # fmt: skip
def test_what_bash_cannot_execute_is_refused_with_its_message(
    tmp_path: Path, line: str, expected: str
) -> None:
    path = config(tmp_path, f"test 1\nexport A=1\n{line}\nexport B=2\n")
    with pytest.raises(InputError, match=expected) as refused:
        evaluate(path, execute=True)
    assert str(tmp_path.parent) not in refused.value.message


def test_what_programs_write_to_standard_error_is_kept(tmp_path: Path) -> None:
    text = "export A=$(cat nowhere) LC_ALL=xx_XX.UTF-8\nprintf 'a\\e[31m%0999d' >&2\n"
    errors = evaluate(config(tmp_path, text), execute=True).errors
    assert errors.startswith("cat: nowhere: No such file or directory; ")
    assert "a\\x1b[31m" in errors and errors.isprintable() and len(errors) == 400


TIMES = r"""
export A=$(date +%Y%m%d%H%M%S) B=x-$(date '+%F %T') C=$(/bin/date) D=$(bash -c 'date +%s')
export E=$(printf '%(%s)T' -1) F=$EPOCHSECONDS
printf -v G 'run-%s-%(%Y%m%d)T' 1 -1; export G
export H=$(( $(date +%s) % 100 )) I=/x/$(date +%Y)/y J=$(date +%S | md5sum) K=$SECONDS
export L=$(printf '%s-%03d' a 7)
"""


def test_times_of_an_executed_config_are_no_fixed_texts(tmp_path: Path) -> None:
    result = evaluate(config(tmp_path, TIMES), execute=True)
    unique = {name: value.prefix for name, value in result.env.items() if isinstance(value, Unique)}
    assert unique == {"A": "", "B": "x-", "C": "", "D": "", "E": "", "F": "", "G": "run-1-"}
    assert result.chance == ("H", "I", "J", "K") and result.env["L"] == Text("a-007")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export A=1; exit 3\n", "ended its shell with exit code"),
        ("export A=$(head -c 1500000 /dev/zero | tr '\\0' x)\n", "larger|exit code"),
        ("export A=1\nexport B=$(kill -9 $$)\n", "ended its shell with exit code -9"),
    ],
)  # fmt: skip
def test_an_executed_config_that_gives_no_environment(
    tmp_path: Path, text: str, expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        evaluate(config(tmp_path, text), execute=True)


def test_an_executed_config_ends_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "pid"
    text = f"sleep 1000 &\necho $! >{mark}\nwait\n"
    seconds = 1
    while not (mark.exists() and mark.read_text()):  # ended before it had started anything
        monkeypatch.setattr("orchestrator.importing.execution.SECONDS", seconds)
        with pytest.raises(InputError, match=f"did not end within {seconds} s"):
            evaluate(config(tmp_path, text), execute=True)
        seconds *= 2
        assert seconds < LIMIT_S
    pid = int(mark.read_text())
    until(lambda: not Path(f"/proc/{pid}/stat").exists() or _is_zombie(pid))


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z"
    except OSError:
        return True


def test_the_parser_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syntax._parser.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "tree_sitter_bash", None)
    path = config(tmp_path, "export A=1\n")
    with pytest.raises(UsageError, match="the shell parser is not installed"):
        evaluate(path)
    assert env(evaluate(path, execute=True)) == {"A": "1"}
    assert os.listdir(tmp_path) == [path.name]
