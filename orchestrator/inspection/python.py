"""Python programs of an image and the documents they read: variables, downloads, paths."""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from collections.abc import Iterator

from orchestrator.inspection.trace import Download, PathUse, Place, Read, Trace, Undecided, Use
from orchestrator.inspection.tree import ImageTree

MOST_MODULES = 400
"""Of one program: the code of a benchmark has 5 to 30."""

# ${oc.env:NAME,default} of OmegaConf, ${NAME:default} and ${NAME} of Primus.
_REFERENCE = re.compile(r"\$\{(oc\.env:)?([A-Z][A-Z0-9_]*)\s*([:,])?([^}]*)\}")
_DOCUMENTS = (".yaml", ".yml")
_FETCHING = {
    "snapshot_download": "HF_HUB_OFFLINE",
    "hf_hub_download": "HF_HUB_OFFLINE",
    "load_dataset": "HF_HUB_OFFLINE",
    "urlretrieve": "",
    "urlopen": "",
}
_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_ROOTS = re.compile(r"/[A-Za-z0-9_.-]+(/[^\s{}%*]*)?")
_SYSTEM = re.compile(r"/(proc|sys|dev|tmp|run|etc|usr|bin|opt|lib|var|root|home)(/|$)")


def follow(
    tree: ImageTree, trace: Trace, script: str, environment: dict[str, str], maybe: bool
) -> None:
    """Read a Python script, the modules beside it that it imports, and its documents."""
    pending = [script]
    seen: set[str] = set()
    roots = [posixpath.dirname(script)]
    while pending and len(seen) < MOST_MODULES:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        text = tree.text(path)
        if text is None:
            continue
        trace.scripts.setdefault(path, f"imported by {script}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of odd escapes in the image's code
                module = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            trace.undecided.append(Undecided("Python that cannot be parsed", Place(path, 1, maybe)))
            continue
        _read(module, path, trace, environment, maybe)
        pending.extend(_imports(tree, module, path, roots))


def _imports(tree: ImageTree, module: ast.Module, path: str, roots: list[str]) -> Iterator[str]:
    """Yield the files of imported modules that lie beside the program."""
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
            for folder in folders:
                place = posixpath.join(folder, *name.split(".")) if name else folder
                for file in (f"{place}.py", f"{place}/__init__.py"):
                    if tree.exists(file):
                        yield file


def _read(
    module: ast.Module, path: str, trace: Trace, environment: dict[str, str], maybe: bool
) -> None:
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
        place = Place(path, node.lineno, maybe or id(node) in guarded)
        read = _variable(node)
        if read is not None:
            name, use = read
            use = "default" if name in stored else use
            trace.reads.append(Read(name, use, name in environment, place))
        if isinstance(node, ast.Call):
            download = _download(node, environment)
            if download is not None:
                trace.downloads.append(Download(download[0], place, download[1]))
        text = node.value if isinstance(node, ast.Constant) else ""
        if isinstance(text, str) and _ROOTS.fullmatch(text) and not _SYSTEM.match(text):
            trace.paths.append(PathUse(text, "read", place))


def _variable(node: ast.AST) -> tuple[str, Use] | None:
    """Return the variable that an expression reads, and whether it can be missing."""
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
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    first = node.args[0] if node.args else None
    literal = (
        first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    )
    if any(word.arg == "local_files_only" for word in node.keywords):
        return None
    if name == "from_pretrained":
        if not _NAME.fullmatch(literal):
            return None  # a folder, or a name that only the run knows
        return f"from_pretrained({literal!r})", _switch("HF_HUB_OFFLINE", environment)
    if name in _FETCHING:
        return f"{name}({literal!r})" if literal else f"{name}(…)", _switch(
            _FETCHING[name], environment
        )
    return None


def _switch(name: str, environment: dict[str, str]) -> str:
    return name if name and environment.get(name) not in (None, "", "0") else ""


def documents(tree: ImageTree, trace: Trace, folder: str, environment: dict[str, str]) -> None:
    """Read the variables that the YAML documents below a folder refer to."""
    for file in tree.below(folder):
        if file.path.endswith(_DOCUMENTS) and file.content is not None:
            document(tree, trace, file.path, environment, maybe=True)


def document(
    tree: ImageTree, trace: Trace, path: str, environment: dict[str, str], *, maybe: bool = False
) -> None:
    """Read the variables that one YAML document refers to."""
    text = tree.text(path)
    if text is None:
        return
    trace.scripts.setdefault(tree.resolve(path), "a document of the program")
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        for match in _REFERENCE.finditer(line):
            use: Use = "default" if match[3] else "required"
            place = Place(path, number, maybe)
            trace.reads.append(Read(match[2], use, match[2] in environment, place))
