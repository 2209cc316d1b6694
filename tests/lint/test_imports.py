"""What is imported when, and which part may know which: start-up time and layers as tests."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest
from direct_calls import Rule, direct_calls, with_a_world
from set_of_logs import MI355X, logs, plain_folder
from sources import nodes

import orchestrator
from orchestrator.cli import COMMANDS

PACKAGE = Path(orchestrator.__file__).resolve().parent
TYPES_ALONE = {"typing_extensions"}
"""For the type checker: types that `typing` has since 3.11."""
TOP = PACKAGE.parent

# `orchestrator --help` loads nothing of the standard library beyond what Python itself starts with, and this.
FREE_FOR_HELP = {"future__"}

LOADED = """
import json, sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
from orchestrator.cli import main
code = main(sys.argv[2:])
print(json.dumps([code, sorted(set(sys.modules) - before)]), file=sys.stderr)
"""


def python(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run `program` without site-packages: a third-party import fails instead of going unseen."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(TOP), *args],
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["nonsense"], []])
def test_the_command_line_itself_loads_nothing(argv: list[str]) -> None:
    done = python(LOADED, *argv)
    assert done.returncode == 0, done.stderr
    _, loaded = json.loads(done.stderr.splitlines()[-1])
    ours = {name for name in loaded if name.split(".")[0] == "orchestrator"}
    assert ours == {"orchestrator", "orchestrator.cli", "orchestrator.cli.index"}
    others = {name.split(".")[0].lstrip("_") for name in set(loaded) - ours}
    if argv != ["nonsense"]:  # which looks for a near name, with difflib
        assert others <= FREE_FOR_HELP
    assert others <= {name.lstrip("_") for name in sys.stdlib_module_names}


def test_a_completion_loads_nothing_but_where_its_file_is() -> None:
    done = python(LOADED, "completion", "bash")
    code, loaded = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    assert done.stdout == (TOP / "orchestrator/generated/shell/orchestrator.bash").read_text()
    ours = {name for name in loaded if name.split(".")[0] == "orchestrator"}
    assert ours == {
        "orchestrator",
        "orchestrator.cli",
        "orchestrator.cli.index",
        "orchestrator.resources",
    }
    assert not {"argparse", "json", "dataclasses"} & set(loaded)


def test_a_cold_score_loads_neither_typing_nor_dataclasses(tmp_path: Path) -> None:
    done = python(LOADED, "score", str(plain_folder(tmp_path / "logs", logs(MI355X))))
    code, loaded = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    assert not {"typing", "dataclasses", "inspect", "random", "textwrap"} & set(loaded)


RARE = {
    "render MI325X_08x08x32 flux1 -o -": {
        "orchestrator.scheduler.slurm_nodes",
        "orchestrator.scheduler.job",
        "orchestrator.onnode.kernel.records",
        "orchestrator.onnode.kernel.settings",
        "orchestrator.onnode.agent.container",
        "orchestrator.onnode.policy.reports",
        "difflib",
    },
    "status": {
        "orchestrator.onnode.kernel.holder",
        "orchestrator.onnode.kernel.waiting",
        "orchestrator.trust",
        "textwrap",
    },
}
"""Command -> what it can do without, on a site without a scheduler."""


@pytest.mark.parametrize("command", RARE)
def test_a_cold_command_leaves_out_what_only_others_need(command: str, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(f"kind: site\nscheduler: local\nlog_dir: {tmp_path / 'sets'}\n")
    (tmp_path / "sets").mkdir()
    argv = [*command.split(), "--site", str(site)]
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(TOP), *argv],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
    )
    code, loaded = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    assert not RARE[command] & set(loaded)


READERS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from orchestrator.onnode.kernel import files, records, world
from orchestrator.onnode.set import ledger, lease
print(json.dumps(sorted(sys.modules)))
"""


def test_who_only_reads_a_set_loads_no_processes_and_no_threads() -> None:
    """`status` and `score` import the world, too; subprocess alone would cost them 7 ms."""
    done = python(READERS)
    assert done.returncode == 0, done.stderr
    assert not {"subprocess", "threading", "selectors", "socket"} & set(json.loads(done.stdout))


HELP = """
import json, sys
sys.path.insert(0, sys.argv[1])
from orchestrator.cli import COMMANDS, main
said = {}
for name in COMMANDS:
    import contextlib, io
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            main([name, "--help"])
        except SystemExit as ended:
            said[name] = [ended.code, out.getvalue()]
print(json.dumps([said, sorted(sys.modules)]))
"""


@pytest.fixture(scope="module")
def helps() -> tuple[dict[str, tuple[int, str]], list[str]]:
    """What `--help` of every command says, and what was loaded for all of them; in a Python without packages."""
    done = python(HELP)
    assert done.returncode == 0, done.stderr
    said, loaded = json.loads(done.stdout)
    return said, loaded


def test_help_of_every_command_needs_no_package(
    helps: tuple[dict[str, tuple[int, str]], list[str]],
) -> None:
    said, loaded = helps
    assert set(said) == set(COMMANDS)
    assert {code for code, _ in said.values()} == {0}
    assert {name.split(".")[0] for name in loaded} <= sys.stdlib_module_names | {
        "orchestrator",
        "__main__",
    }


def test_the_index_has_every_command() -> None:
    declared = set()
    for path in sorted((PACKAGE / "cli").glob("*.py")):
        module = import_module(f"orchestrator.cli.{path.stem}")
        command = getattr(module, "COMMAND", None)
        if command is not None:
            assert command.name == path.stem
            first, *rest = module.__doc__.split("\n\n")
            listed = 1 if command.actions else 0
            assert command.help.split("\n\n")[:1] == [first]
            assert command.help.split("\n\n")[1 + listed :] == rest
            declared.add(command.name)
    assert declared == set(COMMANDS)
    verdicts = {
        name for name in COMMANDS if import_module(f"orchestrator.cli.{name}").COMMAND.verdict
    }
    assert verdicts == {
        "run",
        "watch",
        "score",
        "tune",
        "compare",
        "package",
        "demo",
        "rehearse",
        "doctor",
        "audit",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example(
    name: str, helps: tuple[dict[str, tuple[int, str]], list[str]]
) -> None:
    _, text = helps[0][name]
    assert text.startswith(f"usage: orchestrator {name} ")
    doc = (PACKAGE / "cli" / f"{name}.py").read_text()
    described = ast.get_docstring(ast.parse(doc)) or ""
    assert all(paragraph in text for paragraph in described.split("\n\n"))
    parts_of_it = re.split(r"^examples?:", described, flags=re.IGNORECASE | re.MULTILINE)
    assert len(parts_of_it) == 2, f"orchestrator {name} --help has no example"
    lines = [line for line in parts_of_it[1].splitlines() if line.strip()]
    assert lines and all(line.startswith("  ") for line in lines), (
        f"text after the example of {name}"
    )
    assert any(f"orchestrator {name}" in line for line in lines)


# ---- layers ----


def layers() -> dict[str, set[str]]:
    """folder -> what of ours it may import, from the table of docs/architecture.md."""
    rows = re.findall(
        r"^\| `orchestrator/(\w+)/` \|.*\| ([^|]*) \|$",
        (TOP / "docs/architecture.md").read_text(),
        re.MULTILINE,
    )
    return {
        folder: {"*"} if allowed == "everything" else set(re.findall(r"`([\w.]+)`", allowed))
        for folder, allowed in rows
    }


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import of a file, wherever it stands."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = absolute(path, node)
            yield node.lineno, module
            yield from (
                (node.lineno, f"{module}.{alias.name}")
                for alias in node.names
                if module == "orchestrator"
            )


def absolute(path: Path, node: ast.ImportFrom) -> str:
    """The module that a file imports from. Only onnode, which has another name in a bundle, names its own relatively."""
    package = path.relative_to(TOP).parent.parts
    relative = package[:2] == ("orchestrator", "onnode")
    ours = node.level or (node.module or "").split(".")[0] == "orchestrator"
    assert not ours or bool(node.level) == relative, (
        f"{path}:{node.lineno}: a relative import, or in onnode none"
    )
    assert not node.level or node.level < len(package), f"{path}:{node.lineno}: out of onnode"
    above = package[: len(package) - node.level + 1] if node.level else ()
    return ".".join((*above, *filter(None, (node.module,))))


def parts() -> list[str]:
    return sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def test_every_part_is_in_the_table() -> None:
    assert sorted(layers()) == parts()


@pytest.mark.parametrize("part", parts())
def test_a_part_imports_only_what_it_may(part: str) -> None:
    allowed = layers().get(part, set())
    # The errors, the words for tables and times, how files of others are opened, where the data
    # files are and how templates are compiled, know nothing of the rest; mllog goes without the last, and onnode without any of the others.
    without = {
        "mllog": {"errors", "frozen", "words", "onnode.kernel.regular"},
        "onnode": set[str](),
    }
    free = {part} | without.get(
        part,
        {
            "errors",
            "frozen",
            "words",
            "onnode.kernel.regular",
            "resources",
            "installation",
            "jinja",
            "lock",
            "lazy",
            "trust",
            "__version__",
        },
    )
    # Who may use a part may use what that part is made of: its types are in the signatures.
    reachable = set(allowed)
    for _ in layers():
        reachable |= {below for name in reachable for below in layers().get(name, set())}
    wrong = []
    for path in sorted((PACKAGE / part).rglob("*.py")):
        for line, module in imports(path):
            first, _, rest = module.partition(".")
            if first != "orchestrator" or not rest or "*" in allowed:
                continue
            names = {rest, rest.split(".")[0], ".".join(rest.split(".")[:2])}
            if not names & (free | reachable):
                wrong.append(f"{path.relative_to(TOP)}:{line}: {module}")
    assert wrong == [], f"docs/architecture.md lets {part} import {sorted(allowed)}"


def needed(path: Path, modules: set[str]) -> set[str]:
    """The modules of ours that a file imports, wherever and for whatever it does."""
    names: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names} & modules
        elif isinstance(node, ast.ImportFrom):
            # `from package import module` needs the module; what a package itself holds is in its __init__.
            module = absolute(path, node)
            names |= ({f"{module}.{alias.name}" for alias in node.names} & modules) or (
                {module} & modules
            )
    return names


def test_no_module_needs_itself() -> None:
    files = {
        ".".join(path.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    assert len(files) > 100
    needs = {name: needed(path, set(files)) for name, path in files.items()}
    needs["orchestrator"] = (
        set()
    )  # which everybody needs for its version, and which imports what it offers when asked
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as circle:
        pytest.fail(f"a circle of imports: {' <- '.join(circle.args[1])}")


def test_types_alone_are_not_imported_at_run_time() -> None:
    wrong = [
        f"{path.relative_to(TOP)}:{line}"
        for path in PACKAGE.rglob("*.py")
        for line, module in imports(path)
        if module in TYPES_ALONE and not path.read_text().splitlines()[line - 1].startswith(" ")
    ]
    assert wrong == []


@pytest.mark.parametrize("part", ["mllog", "onnode"])
def test_standard_library_only(part: str) -> None:
    wrong = [
        f"{path.name}:{line}: {module}"
        for path in (PACKAGE / part).rglob("*.py")
        for line, module in imports(path)
        if module.split(".")[0] not in sys.stdlib_module_names | {"orchestrator", *TYPES_ALONE}
    ]
    assert wrong == []


def test_third_parties_are_those_of_pyproject() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in project["dependencies"]}
    called = {"pyyaml": "yaml"}
    # Parts of another one's interface: pydantic's errors, and what docker raises when the engine does not answer.
    theirs = {"pydantic_core", "requests", *TYPES_ALONE}
    known = {called.get(name, name.replace("-", "_")) for name in declared} | theirs
    used: dict[str, str] = {}
    for path in PACKAGE.rglob("*.py"):
        for line, module in imports(path):
            used.setdefault(module.split(".")[0], f"{path.relative_to(TOP)}:{line}")
    assert {
        name: where
        for name, where in used.items()
        if name not in sys.stdlib_module_names | known | {"orchestrator"}
    } == {}
    floors = {"certifi", "cryptography", "idna", "pygments", "requests", "urllib3"}
    assert known - theirs - floors <= set(used), "declared, but never imported"
    assert floors <= declared


def test_no_shell_no_exit_in_libraries() -> None:
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in nodes(path):
            if (
                isinstance(node, ast.keyword)
                and node.arg == "shell"
                and getattr(node.value, "value", None) is not False
            ):
                wrong.append(f"{path.relative_to(TOP)}:{node.value.lineno}: shell=")
            if (
                isinstance(node, ast.Call)
                and path.name != "__main__.py"
                and ast.unparse(node.func) in ("sys.exit", "exit", "quit", "os.system")
            ):
                wrong.append(f"{path.relative_to(TOP)}:{node.lineno}: {ast.unparse(node.func)}")
            if isinstance(node, ast.Assert):
                wrong.append(f"{path.relative_to(TOP)}:{node.lineno}: assert")
    assert wrong == []


# Decisions must come out the same wherever and whenever they are made again.
IMPURE = {
    "os",
    "sys",
    "time",
    "datetime",
    "subprocess",
    "socket",
    "random",
    "pathlib",
    "signal",
    "selectors",
    "threading",
}


def test_policy_knows_no_clock_file_or_process() -> None:
    wrong = [
        f"{path.name}:{line}: {module}"
        for path in sorted((PACKAGE / "onnode" / "policy").glob("*.py"))
        for line, module in imports(path)
        if module.split(".")[0] in IMPURE
    ]
    assert wrong == []


BELOW = {
    "kernel": "",
    "policy": "kernel",
    "set": "kernel policy",
    "agent": "kernel",
    "loop": "kernel policy set",
    "measure": "",
}
"""Room of onnode -> the rooms that it may import from. The two programs meet in what the nodes answer, never in an import."""


def test_the_rooms_of_a_bundle_are_those_that_the_rules_name() -> None:
    rooms = {
        path.parent.relative_to(PACKAGE / "onnode").parts[:1]
        for path in (PACKAGE / "onnode").rglob("*.py")
    }
    assert {room[0] for room in rooms if room} == set(BELOW)


@pytest.mark.parametrize("room", BELOW)
def test_the_rooms_of_a_bundle_know_only_what_is_below(room: str) -> None:
    wrong = []
    for path in sorted((PACKAGE / "onnode" / room).rglob("*.py")):
        for line, module in imports(path):
            inside = (
                module.removeprefix("orchestrator.onnode.").split(".")[0]
                if "onnode." in module
                else ""
            )
            if inside in BELOW.keys() - {room, *BELOW[room].split()}:
                wrong.append(f"{path.relative_to(PACKAGE)}:{line}: {module}")
    assert wrong == []


SLURM_TEXT = re.compile(r"\b(srun|scontrol|squeue|sinfo|slurmd|slurmstepd|SLURMD?_\w+)\b")
"""Slurm's programs and variables. `sbatch` and `scancel` are words for people."""
NAMES_SLURM = {
    "kernel/jobs.py",  # variables, states and messages
    "kernel/events.py",  # why lines are short
    "kernel/beat.py",  # why a node needs a sign of life
    "loop/slurm.py",
    "agent/host.py",  # a remedy: slurmd's limits
}


def test_slurm_is_named_in_its_own_modules_alone() -> None:
    folder = PACKAGE / "onnode"
    wrong = [
        f"{name}: {match.group()}"
        for room in ("kernel", "policy", "set", "loop", "agent")
        for path in sorted((folder / room).glob("*.py"))
        for match in SLURM_TEXT.finditer(path.read_text())
        if (name := str(path.relative_to(folder))) not in NAMES_SLURM
    ]
    assert wrong == []


SLURM_CODE = re.compile(
    r"\b(srun|salloc|scontrol|squeue|sinfo|scancel|sacct|sacctmgr|slurmd|SLURMD?_\w+"
    r"|sbatch \w+\.sh|PENDING|COMPLETING|CANCELLED|TIMEOUT|NODE_FAIL|JobHeld\w+)\b"
)
"""Slurm's programs, variables and codes, in the strings of a module."""
USES_SLURM = {
    "causes/fields.py": {"srun", "salloc", "slurmd"},  # who speaks in a log
    "causes/forms.py": {"srun", "salloc", "slurmd"},
    "cli/tune.py": {"srun"},  # --via
}


def strings(path: Path) -> Iterator[str]:
    """The texts of a module's string literals, but for docstrings."""
    statements = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
    for node in nodes(path):
        if isinstance(node, ast.Constant) and id(node) not in statements:
            yield node.value if isinstance(node.value, str) else ""


def test_the_controller_uses_slurm_through_the_scheduler_package() -> None:
    uses: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        if name.split("/")[0] not in ("scheduler", "onnode", "simulation"):
            codes = {word for text in strings(path) for word in SLURM_CODE.findall(text)}
            uses |= {name: codes} if codes else {}
    assert uses == USES_SLURM


SLURM_NAME = re.compile(
    r"slurm|SLURM|Slurm|\b(?:srun|salloc|sbatch|scancel|scontrol|squeue|sinfo|sacct|sacctmgr"
    r"|PENDING|COMPLETING|CANCELLED|TIMEOUT|DEADLINE|NODE_FAIL|BOOT_FAIL|OUT_OF_MEMORY|PREEMPTED"
    r"|REQUEUE\w*|SUSPENDED|JobHeld\w+|JobLaunchFailure)\b"
)
"""Slurm's name, programs, variables and codes."""
READS_SLURM = {
    "events.py": ["slurm"],  # the source of the recorded event `lost`
    "replay.py": ["slurm"],  # reads a recorded answer again as the loop did
}


def test_readers_of_sets_name_no_scheduler() -> None:
    """`scheduler/kinds.py` and `scheduler/reasons.py` have the properties and causes that they use."""
    folder = PACKAGE / "evidence"
    names = {path.name: SLURM_NAME.findall(path.read_text()) for path in folder.glob("*.py")}
    assert {name: matches for name, matches in names.items() if matches} == READS_SLURM


# ---- the world ----

# The rest of these modules asks its world alone; docs/architecture.md says why.
RULES = {
    "onnode/loop": Rule(),
    "onnode/loop/host.py": None,  # the real world itself
    "onnode/loop/notify.py": None,  # a program of its own
    "onnode/loop/preflight.py": Rule(
        direct=frozenset({"orchestrator.onnode.kernel.records.write_bytes"})
    ),  # --tsv, --exclude-file
    "onnode/loop/deep.py": Rule(os=frozenset({"environ"})),
    "runset": Rule(reads=True, os=frozenset({"environ", "getuid"})),
}


def ruled() -> dict[Path, Rule]:
    """Module -> what it may ask the machine directly."""
    rules: dict[Path, Rule | None] = {}
    for name, rule in RULES.items():
        place = PACKAGE / name
        rules |= dict.fromkeys([place] if place.is_file() else sorted(place.glob("*.py")), rule)
    return {path: rule for path, rule in rules.items() if rule is not None}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(TOP).with_suffix("").parts)


def test_the_loop_and_the_commands_that_write_ask_their_world_alone() -> None:
    worlds, modules = with_a_world(PACKAGE), ruled()
    assert len(modules) > 15
    wrong = [
        f"{path.relative_to(TOP)}:{line}"
        for path, rule in modules.items()
        for line in direct_calls(path.read_bytes(), module_name(path), worlds, rule)
    ]
    assert wrong == [], (
        "clock, files, programs and chance come from the World that the function was given"
    )


HEAD = """
import os, signal
from pathlib import Path
from ..kernel import records, regular, settings
from ..kernel.events import EventLog
from ..kernel.files import HERE, Files
from ..kernel.records import write as write_record
from ..kernel.jobs import job_state
from ..kernel.walk import FilesInside, SetWalk
from ..kernel.world import THIS, World
from ..set import ledger
from ..set.lease import Lease
from ..set.folder import Folder
"""
PLANTED = [
    "import time", "import subprocess as sp", "from time import monotonic", "from os import unlink", "from shutil import rmtree",
    "import random", "import threading", "from urllib.request import urlopen",
    "os.getpid()", "os.environ", "os.urandom(8)", "os.path.exists('a')", "os.kill(1, 15)", "signal.signal(15, None)",
    "open('a')", "Path('a').open()", "Path('a').read_text()", "Path('a').write_bytes(b'')", "Path('a').mkdir()",
    "Path('a').unlink()", "Path('a').exists()", "Path('a').is_dir()", "Path('a').glob('*')", "Path('a').stat()",
    "Path('a').rename('b')", "Path('a').replace('b')", "Path('a').iterdir()", "Path('a').resolve()", "Path('a').symlink_to('b')",
    "records.write(1, 'a')", "records.read(int, 'a')", "write_record(1, 'a')", "records.write_bytes('a', b'')",
    "FilesInside('a')", "records.replace('a', b'')", "Lease('a', 1)", "EventLog('a')", "ledger.append('a', 1)",
    "ledger.read('a')", "regular.read_bytes('a')", "settings.load('a')", "job_state('1', 2)", "Folder(1, 2, '3')",
    "THIS.now()", "HERE.remove('a')", "records.read(int, 'a', HERE)", "Lease('a', 1, world=THIS)",
]  # fmt: skip
ALLOWED = [
    "os.path.join('a', 'b')", "os.strerror(1)", "signal.SIGTERM", "'a'.replace('b', 'c')", "Path('a').with_name('b').parent",
    "def f(world: World = THIS, files: Files = HERE) -> None: ...", "world.now()", "world.files.exists('a')",
    "files.rename('a', 'b')", "self.files.open('a')", "files.read_bytes('a')", "records.write(1, 'a', files=world.files)",
    "records.read(int, 'a', self.files)", "Lease('a', 1, world=world)", "EventLog('a', world)", "Folder(1, 2, '3', world)",
    "ledger.append('a', *said, world=world)", "job_state('1', 2, world.ask)", "SetWalk('a', files, print)",
    "records.write(1, 'a', **more)",
]  # fmt: skip


@pytest.mark.parametrize("line", PLANTED)
def test_a_planted_direct_call_is_found(line: str) -> None:
    calls = direct_calls(
        f"{HEAD}\n{line}\n", "orchestrator.onnode.loop.planted", with_a_world(PACKAGE), Rule()
    )
    assert [call.split(":")[0] for call in calls] == [str(HEAD.count("\n") + 2)] * len(
        calls
    ) and calls, calls


@pytest.mark.parametrize("line", ALLOWED)
def test_what_asks_a_world_is_no_direct_call(line: str) -> None:
    assert (
        direct_calls(
            f"{HEAD}\n{line}\n", "orchestrator.onnode.loop.planted", with_a_world(PACKAGE), Rule()
        )
        == []
    )
