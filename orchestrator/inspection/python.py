"""Python programs of an image and their documents: variables, downloads, paths."""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from collections.abc import Iterator, Sequence

from orchestrator.inspection.trace import (
    UNKNOWN,
    Assignment,
    Download,
    PathUse,
    Place,
    PythonCommand,
    PythonText,
    Read,
    Trace,
    Undecided,
    Use,
    is_known,
)
from orchestrator.inspection.tree import ImageTree

MOST_MODULES = 400
"""Of one program: the code of a benchmark has 5 to 30."""

# ${oc.env:NAME,default} of OmegaConf, ${NAME:default} and ${NAME} of Primus.
_REFERENCE = re.compile(r"\$\{(oc\.env:)?([A-Z][A-Z0-9_]*)\s*([:,])?([^}]*)\}")
_DOCUMENTS = (".yaml", ".yml")
_VALUE = re.compile(r"\s*(?:- )?[\w.-]+:\s+['\"]?([\w./-]+)['\"]?\s*(?:#.*)?")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_FETCHING = {
    "snapshot_download": "HF_HUB_OFFLINE",
    "hf_hub_download": "HF_HUB_OFFLINE",
    "load_dataset": "HF_HUB_OFFLINE",
    "urlretrieve": "",
    "urlopen": "",
}
_FETCHING_OF = {
    "requests": {"get", "post"},
    "nltk": {"download"},
    "hub": {"load"},
    "wget": {"download"},
}
"""Module -> its functions that download."""

PERHAPS = ", unless that is a folder"
_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_ROOTS = re.compile(r"/[A-Za-z0-9_.-]+(/[^\s{}%*]*)?")
_SYSTEM = re.compile(r"/(proc|sys|dev|tmp|run|etc|usr|bin|opt|lib|var|root|home)(/|$)")


def follow(
    tree: ImageTree,
    trace: Trace,
    script: str,
    environment: dict[str, str],
    maybe: bool,
    argv: Sequence[str] = (),
    folders: Sequence[str] = (),
) -> None:
    """Read a script and its imports from its folder and `folders`; `argv` has its options."""
    pending = [script]
    seen: set[str] = set()
    roots = [posixpath.dirname(script), *folders]
    while pending and len(seen) < MOST_MODULES:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        text = tree.text(path)
        if text is None:
            continue
        trace.scripts.setdefault(path, f"imported by {script}")
        place = Place(path, 1, maybe)
        try:
            module = _parsed(text)
            if path == script:
                module = _WithArguments(module, argv).visit(module)
            read_module(module, place, trace, environment)
        except UNREADABLE:
            trace.undecided.append(Undecided("Python that cannot be parsed", place))
            continue
        pending.extend(_imports(tree, module, path, roots))


UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


def _parsed(text: str) -> ast.Module:
    """Return a program's tree, with constants that can be shown. Raises UNREADABLE."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes
        module: ast.Module = _Shown().visit(ast.parse(text))
    return module


class _Shown(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()  # half a surrogate
        elif isinstance(value, int) and value.bit_length() > 64:
            value = UNKNOWN
        return ast.copy_location(ast.Constant(value, kind=node.kind), node)


class _WithArguments(ast.NodeTransformer):
    """Replaces `args.NAME` by a known value from the program's start."""

    def __init__(self, module: ast.Module, argv: Sequence[str]) -> None:
        self._names = {"args"}
        self._values: dict[str, str] = {}
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and _called(node)[0] == "add_argument":
                self._add_default(node)
        for at, word in enumerate(argv):
            name, equals, value = word.partition("=")
            if name.startswith("--"):
                value = value if equals else next(iter(argv[at + 1 :]), "")
                self._values[name[2:].replace("-", "_")] = value

    def _add_default(self, node: ast.Call) -> None:
        default = next(
            (keyword.value for keyword in node.keywords if keyword.arg == "default"), None
        )
        if node.args and default is not None:
            name, value = _literal(node.args[0]), _literal(default)
            if is_known(name + value):
                self._values[name.lstrip("-").replace("-", "_")] = value

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        value = self._values.get(node.attr)
        if not isinstance(node.value, ast.Name) or node.value.id not in self._names or not value:
            return self.generic_visit(node)
        return ast.copy_location(ast.Constant(value, kind=OF_ARGUMENTS), node)


OF_ARGUMENTS = "of the arguments"


def _imports(tree: ImageTree, module: ast.Module, path: str, roots: list[str]) -> Iterator[str]:
    """Yield the files of imported modules next to the program."""
    for node in ast.walk(module):
        names: list[str] = []
        folders = roots
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names = [base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)]
            if node.level:
                folder = posixpath.dirname(path)
                for _ in range(node.level - 1):
                    folder = posixpath.dirname(folder)
                folders = [folder]
        for name in names:
            yield from module_files(tree, name, folders)


def module_files(tree: ImageTree, name: str, folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        place = posixpath.join(folder, *name.split(".")) if name else folder
        for file in (f"{place}.py", f"{place}/__init__.py"):
            if tree.exists(file):
                yield file


def read_text(given: PythonText, trace: Trace, environment: dict[str, str]) -> None:
    try:
        read_module(_parsed(given.text), given.place, trace, environment, is_text=True)
    except UNREADABLE:
        trace.undecided.append(Undecided("Python that cannot be parsed", given.place))


def read_module(
    module: ast.Module,
    origin: Place,
    trace: Trace,
    environment: dict[str, str],
    *,
    is_text: bool = False,
) -> None:
    """Read a module from the file of `origin`; `is_text`: from that line of a script."""
    guarded = {
        id(inner)
        for node in ast.walk(module)
        if isinstance(node, (ast.Try, ast.If, ast.IfExp, ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(node)
    }
    stored = {
        str(node.slice.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Subscript)
        and _is_environ(node.value)
        and isinstance(node.slice, ast.Constant)
        and not isinstance(node.ctx, ast.Load)
    }
    defaults = {
        id(argument)
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and _variable(node) is not None
        for argument in node.args
    }
    for node in ast.walk(module):
        if not hasattr(node, "lineno") or id(node) in defaults:
            continue
        line = origin.line if is_text else node.lineno
        place = Place(origin.file, line, origin.maybe or id(node) in guarded)
        if (stored_value := _stored(node)) is not None:
            trace.assignments.append(Assignment(*stored_value, True, place))
        read = _variable(node)
        if read is not None:
            name, use = read
            use = "default" if name in stored else use
            trace.reads.append(Read(name, use, name in environment, place))
        if isinstance(node, ast.Call):
            download = _download(node, environment)
            if download is not None:
                unsure = download[0].endswith(PERHAPS)
                where = place._replace(maybe=place.maybe or unsure)
                trace.downloads.append(Download(download[0], where, download[1]))
            if (command := _command(node, place)) is not None:
                trace.commands.append(command)
            for deleted in _deleted(node):
                trace.paths.append(PathUse(deleted, "deleted", place))
            if (how := _ranks(node)) is not None:
                trace.undecided.append(Undecided(f"{MAKES_RANKS}: {how}", place))
        is_given = isinstance(node, ast.Constant) and node.kind != OF_ARGUMENTS
        text = node.value if isinstance(node, ast.Constant) and is_given else ""
        if isinstance(text, str) and _ROOTS.fullmatch(text) and not _SYSTEM.match(text):
            trace.paths.append(PathUse(text, "read", place))


_RUNNING = {"run", "call", "check_call", "check_output", "Popen", "getoutput", "getstatusoutput"}
_DELETING = {"rmtree": "shutil", "remove": "os", "unlink": "os", "removedirs": "os"}


def _command(node: ast.Call, place: Place) -> PythonCommand | None:
    """Return the program that subprocess or os.system starts."""
    name, module = _called(node)
    is_system = module == "os" and name in ("system", "popen")
    if not node.args or not (is_system or (name in _RUNNING and module in ("subprocess", "sp"))):
        return None
    first = node.args[0]
    if isinstance(first, (ast.List, ast.Tuple)):
        return PythonCommand(tuple(_literal(element) for element in first.elts), place)
    for_shell = (
        is_system
        or name.startswith("get")
        or any(
            word.arg == "shell" and isinstance(word.value, ast.Constant) and word.value.value
            for word in node.keywords
        )
    )
    text = _literal(first)
    return PythonCommand(text if for_shell else (text,), place)


def _deleted(node: ast.Call) -> Iterator[str]:
    name, module = _called(node)
    if node.args and _DELETING.get(name) == module:
        path = _literal(node.args[0])
        if path.startswith("/"):
            yield path


def _called(node: ast.Call) -> tuple[str, str]:
    """Return a called function, and its module or object."""
    called = node.func
    if not isinstance(called, ast.Attribute):
        return getattr(called, "id", ""), ""
    owner = called.value
    return called.attr, owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")


def _literal(node: ast.AST) -> str:
    """Return a constant's or f-string's text; other parts are unknown."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_literal, node.values))
    if isinstance(node, ast.FormattedValue):
        return _literal(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _literal(node.left) + _literal(node.right)
    return UNKNOWN


MAKES_RANKS = "how the Python program makes its ranks"
_SPAWNING = {"spawn", "start_processes", "elastic_launch", "launch_agent"}


def _ranks(node: ast.Call) -> str | None:
    name = _called(node)[0]
    return f"{name}(…)" if name in _SPAWNING else None


def _stored(node: ast.AST) -> tuple[str, str] | None:
    """Return variable and value of `os.environ["NAME"] = ...`."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    target = node.targets[0]
    if (
        not isinstance(target, ast.Subscript)
        or not _is_environ(target.value)
        or not isinstance(target.slice, ast.Constant)
    ):
        return None
    reads = any(_variable(part) is not None for part in ast.walk(node.value))
    value = str(node.value.value) if isinstance(node.value, ast.Constant) else UNKNOWN
    return None if reads else (str(target.slice.value), value)


def _variable(node: ast.AST) -> tuple[str, Use] | None:
    """Return the variable that an expression reads, and how."""
    if (
        isinstance(node, ast.Subscript)
        and _is_environ(node.value)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.slice, ast.Constant)
    ):
        return str(node.slice.value), "required"
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func
        name = str(node.args[0].value)
        if isinstance(called, ast.Attribute):
            if called.attr == "get" and _is_environ(called.value):
                return name, "default"
            if called.attr == "getenv":
                return name, "default"
        if isinstance(called, ast.Name) and called.id == "getenv":
            return name, "default"
    return None


def _is_environ(node: ast.AST) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or (
        isinstance(node, ast.Name) and node.id == "environ"
    )


def _download(node: ast.Call, environment: dict[str, str]) -> tuple[str, str] | None:
    name = _called(node)[0]
    first = node.args[0] if node.args else None
    literal = (
        first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    )
    if any(word.arg == "local_files_only" for word in node.keywords):
        return None
    if name == "from_pretrained":
        if literal and not _NAME.fullmatch(literal):
            return None  # a folder
        if not literal:
            return f"from_pretrained(…){PERHAPS}", _switch("HF_HUB_OFFLINE", environment)
        return f"from_pretrained({literal!r})", _switch("HF_HUB_OFFLINE", environment)
    module = _called(node)[1]
    if name in _FETCHING_OF.get(module, ()):
        return f"{module}.{name}({literal!r})" if literal else f"{module}.{name}(…)", ""
    if name in _FETCHING:
        return f"{name}({literal!r})" if literal else f"{name}(…)", _switch(
            _FETCHING[name], environment
        )
    return None


def _switch(name: str, environment: dict[str, str]) -> str:
    return name if name and environment.get(name) not in (None, "", "0") else ""


def documents(tree: ImageTree, trace: Trace, folder: str, environment: dict[str, str]) -> None:
    for file in tree.below(folder):
        if file.path.endswith(_DOCUMENTS) and file.content is not None:
            document(tree, trace, file.path, environment, maybe=True)


def document(
    tree: ImageTree, trace: Trace, path: str, environment: dict[str, str], *, maybe: bool = False
) -> list[str]:
    """Read the variables in a YAML document; return its plain values."""
    text = tree.text(path)
    if text is None:
        return []
    trace.scripts.setdefault(tree.resolve(path), "a document of the program")
    values = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        if plain := _VALUE.fullmatch(line):
            values.append(plain[1])
        for match in _REFERENCE.finditer(line):
            use: Use = "default" if match[3] else "required"
            place = Place(path, number, maybe)
            trace.reads.append(Read(match[2], use, match[2] in environment, place))
    return values


def named(
    tree: ImageTree,
    trace: Trace,
    values: Sequence[str],
    environment: dict[str, str],
    folders: Sequence[str],
) -> None:
    """Read the modules, and documents with a unique file name, that a document's values name."""
    pending, seen = list(values), set[str]()
    while pending and len(seen) < MOST_MODULES:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.endswith(_DOCUMENTS):
            fitting = [file.path for file in tree if file.path.endswith(f"/{value.lstrip('./')}")]
            if len(fitting) == 1:
                pending += document(tree, trace, fitting[0], environment, maybe=True)
        elif _MODULE.fullmatch(value):
            for file in module_files(tree, value, folders):
                follow(tree, trace, file, environment, True, folders=folders)
