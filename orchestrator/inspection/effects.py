"""Effects of programs of every system: downloads, paths, output."""

from __future__ import annotations

import posixpath
import re

from orchestrator.inspection import choices
from orchestrator.inspection.conditions import calculated
from orchestrator.inspection.interface import Walk
from orchestrator.inspection.patterns import fits
from orchestrator.inspection.state import ShellState
from orchestrator.inspection.trace import (
    UNKNOWN,
    Download,
    Place,
    Undecided,
    is_known,
    whole_number,
)

_FULL = {"-f", "-e", "-m"}
_PIP = re.compile(r"(uv )?pip(3(\.\d+)?)?")

# ---- downloads ----

_FETCHERS = {
    **dict.fromkeys(("s3cmd", "s5cmd", "mc", "az", "gcloud", "oras", "modelscope", "npm"), ""),
    **dict.fromkeys(("wget2", "axel", "scp", "sftp", "cargo", "go", "poetry", "apk"), ""),
    "wget": "",
    "curl": "",
    "huggingface-cli": "HF_HUB_OFFLINE",
    "hf": "HF_HUB_OFFLINE",
    "rclone": "",
    "aria2c": "",
    "gsutil": "",
    "conda": "",
    "mamba": "",
    "apt": "",
    "apt-get": "",
    "dnf": "",
    "yum": "",
    "gdown": "",
    "kaggle": "",
}
_LOCAL_ONLY = {"clean", "autoremove", "remove", "activate", "config", "env", "version", "list"}


def look_for_downloads(walk: Walk, shell: ShellState, argv: list[str], place: Place) -> None:
    name = posixpath.basename(argv[0])
    rest = argv[1:]
    if name == "uv" and rest[:1] == ["pip"]:
        name, rest = "pip", rest[1:]
    what = " ".join([name, *rest])[:200]
    if name == "uv" and rest[:1] in (["sync"], ["run"], ["add"], ["tool"]):
        walk.trace.downloads.append(Download(what, place))
    if name == "rsync" and any(":" in argument for argument in rest):
        walk.trace.downloads.append(Download(what, place))
    if _PIP.fullmatch(name):
        if rest[:1] in (["install"], ["download"]) and "--no-index" not in rest:
            walk.trace.downloads.append(Download(what, place, _switch(shell, "PIP_NO_INDEX")))
    elif (
        name == "git" and any(action in rest for action in ("clone", "fetch", "pull", "submodule"))
    ) or (name == "aws" and "s3" in rest):
        walk.trace.downloads.append(Download(what, place))
    elif name in _FETCHERS and not set(rest[:1]) & _LOCAL_ONLY:
        if name in ("curl", "wget") and any(
            "localhost" in argument or "127.0.0.1" in argument for argument in rest
        ):
            return
        walk.trace.downloads.append(Download(what, place, _switch(shell, _FETCHERS[name])))


def _switch(shell: ShellState, name: str) -> str:
    """Return a variable that switches downloads off, else ""."""
    return name if shell.variables.scalar(name) not in (None, "0", "") else ""


# ---- paths ----

_WRITING = {"mkdir", "touch", "tee", "install"}
_TWO_ENDED = {"cp", "mv", "ln", "rsync"}
_READING = {"cat", "head", "tail", "ls", "grep", "egrep", "sed", "awk", "find", "tar", "jq"}


def look_for_paths(walk: Walk, shell: ShellState, name: str, argv: list[str], place: Place) -> None:
    arguments = [word for word in argv[1:] if not word.startswith("-")]
    paths = [walk.absolute(shell, argument) for argument in arguments]
    if name in _WRITING:
        for path in paths:
            walk.use_path("written", path, place)
            walk.make(path)
    elif name in ("rm", "rmdir", "unlink", "shred"):
        for path in paths:
            walk.use_path("deleted", path, place)
    elif name == "find" and ("-delete" in argv or {"rm", "unlink"} & set(argv)):
        for argument in argv[1:]:
            if argument.startswith(("-", "(", "!")):
                break
            walk.use_path("deleted", walk.absolute(shell, argument), place)
    elif name in _TWO_ENDED and len(paths) > 1:
        for path in paths[:-1]:
            walk.use_path("deleted" if name == "mv" else "read", path, place)
        into = arguments[-1].endswith("/")  # its former content is not made
        for path in paths[:-1] if into else [""]:
            made = posixpath.join(paths[-1], posixpath.basename(path)) if path else paths[-1]
            walk.use_path("written", made, place)
            walk.make(made)
    elif name in _READING:
        for argument, path in zip(arguments, paths, strict=True):
            if argument.startswith("/"):
                walk.use_path("read", path, place)
    elif name in ("chmod", "chown"):
        for path in paths[1:]:
            walk.use_path("written", path, place)


MOST_COPIED = 20
"""Files of one copy: more are a tree of data."""


def look_for_copies(
    walk: Walk, shell: ShellState, name: str, argv: list[str], place: Place
) -> None:
    """Make the files of cp, mv, ln and tee, as far as their text is known."""
    arguments = [word for word in argv[1:] if not word.startswith("-")]
    paths = [walk.absolute(shell, argument) for argument in arguments]
    if name == "chmod":
        walk.allow(*paths[1:])
    elif name == "tee" and shell.streams.stdin is not None:
        for path in paths:
            walk.make(path, "".join(f"{line}\n" for line in shell.streams.stdin))
    elif name in ("cp", "mv", "ln", "install") and 1 < len(paths) <= MOST_COPIED:
        into = walk.tree.is_folder(paths[-1])
        for path in paths[:-1]:
            end = posixpath.join(paths[-1], posixpath.basename(path)) if into else paths[-1]
            if (text := walk.tree.text(path)) is not None:
                walk.make(end, text)
    elif name in ("sed", "patch") and ("-i" in argv or name == "patch"):
        for path in paths:
            if walk.tree.text(path) is not None:
                what = f"{path} is changed by `{name}` before it is used"
                walk.trace.undecided.append(Undecided(what, place))


def status_of_making(walk: Walk, shell: ShellState, argv: list[str]) -> int | None:
    """Return the status of mkdir or touch: root may write everywhere but in read-only mounts."""
    paths = [walk.absolute(shell, word) for word in argv[1:] if not word.startswith("-")]
    mounts = [walk.around.mount_of(path) for path in paths]
    if any(mount is not None and mount.read_only for mount in mounts):
        return 1
    return 0 if paths and all(path[0] == "/" for path in paths) else None


# ---- output ----


def output(walk: Walk, shell: ShellState, name: str, argv: list[str]) -> str:
    """Return a program's output, as far as the files decide it."""
    arguments = [word for word in argv[1:] if not word.startswith("-")]
    options = [word for word in argv[1:] if word.startswith("-") and word != "--"]
    if name in ("dirname", "basename", "realpath", "readlink") and arguments:
        is_link = name == "readlink"
        if (options != []) is not is_link and not (
            name == "realpath" and _FULL.issuperset(options)
        ):
            return UNKNOWN
        if (is_link and not _FULL.issuperset(options)) or len(arguments) > 1 + (name == "basename"):
            return UNKNOWN
        return _path_part(walk, shell, name, arguments) + "\n"
    if name == "expr" and all(map(is_known, argv)):
        total = _sum(argv[1:])
        return UNKNOWN if total is None else f"{total}\n"
    if name == "sed" and len(argv) == 2 and shell.streams.stdin is not None:
        edited = [_edited(argv[1], line) for line in shell.streams.stdin]
        return UNKNOWN if None in edited else "".join(f"{line}\n" for line in edited)
    if name == "find":
        return _listing(walk, shell, argv[1:])
    if name in ("sort", "tee", "cat") and (name == "tee" or not arguments):
        lines = shell.streams.stdin
        if lines is not None and name == "sort":
            lines = _sorted(lines, "".join(options))
        elif options and name == "cat":
            lines = None
        return UNKNOWN if lines is None else "".join(f"{line}\n" for line in lines)
    if name in (
        "mkdir",
        "touch",
        "rm",
        "rmdir",
        "cp",
        "mv",
        "ln",
        "chmod",
        "chown",
        "sleep",
        "sync",
    ):
        return ""
    return _sequence(argv[1:]) if name == "seq" else UNKNOWN


def _sorted(lines: list[str], options: str) -> list[str] | None:
    letters = set(options) - {"-"}
    numbers = [whole_number(line) for line in lines]
    if (
        letters - set("nru")
        or not all(map(is_known, lines))
        or ("n" in letters and None in numbers)
    ):
        return None
    if "n" in letters:
        lines = sorted(lines, key=lambda line: (int(line), line))
    return sorted(
        set(lines) if "u" in letters else lines,
        key=None if "n" not in letters else int,
        reverse="r" in letters,
    )


def _sequence(arguments: list[str]) -> str:
    """Return the output of `seq [-s SEPARATOR] [FIRST [STEP]] LAST`."""
    separator = "\n"
    while arguments and arguments[0].startswith("-") and not re.match(r"-[0-9]", arguments[0]):
        option, *arguments = arguments
        if not option.startswith("-s") or (option == "-s" and not arguments):
            return UNKNOWN
        separator = option[2:] or arguments.pop(0)
    numbers = [number for word in arguments if (number := whole_number(word)) is not None]
    if not 0 < len(numbers) == len(arguments) <= 3 or "\\" in separator:
        return UNKNOWN
    first, last = numbers[0] if len(numbers) > 1 else 1, numbers[-1]
    step = numbers[1] if len(numbers) == 3 else 1
    if not step or abs(last - first) >= 10_000:
        return UNKNOWN
    texts = map(str, range(first, last + (1 if step > 0 else -1), step))
    joined = separator.join(texts)
    return f"{joined}\n" if joined else ""


def _path_part(walk: Walk, shell: ShellState, name: str, arguments: list[str]) -> str:
    path = arguments[0]
    if name == "basename":
        base = posixpath.basename(path.rstrip("/")) or path[:1]
        return base.removesuffix(arguments[1]) if len(arguments) > 1 else base
    if name == "dirname":
        return posixpath.dirname(path.rstrip("/") or path[:1]) or "."
    full = walk.absolute(shell, path)
    return walk.tree.resolve(full) if is_known(full) else full


def _edited(program: str, line: str) -> str | None:
    """Apply `s/TEXT//`, perhaps with ^ and $; None for other programs."""
    match = re.fullmatch(r"s/(\^?)((?:\\\.|\w)+)(\$?)//", program, re.ASCII)
    if match is None:
        return None
    start, text, end = match[1], match[2].replace("\\.", "."), match[3]
    if start and end:
        return "" if line == text else line
    if start:
        return line.removeprefix(text)
    return line.removesuffix(text) if end else line.replace(text, "", 1)


def _sum(terms: list[str]) -> int | None:
    """Return the value of `expr`; None for operators other than + - * / %."""
    if len(terms) % 2 == 0 or not all(re.fullmatch(r"-?\d{1,18}", number) for number in terms[::2]):
        return None
    total, term, sign = 0, int(terms[0]), 1
    for operator, number in zip(terms[1::2], map(int, terms[2::2]), strict=True):
        if operator in ("+", "-"):
            total, term, sign = total + sign * term, number, 1 if operator == "+" else -1
            continue
        value = calculated(term, operator, number) if operator in ("*", "/", "%") else None
        if value is None:
            return None
        term = value
    return total + sign * term


def _listing(walk: Walk, shell: ShellState, arguments: list[str]) -> str:
    """Return the output of `find DIR [-maxdepth N] [-type f|d] [-name P [-o -name P]]`."""
    folders = []
    while arguments and not arguments[0].startswith(("-", "(", "!")):
        folders.append(arguments[0])
        arguments = arguments[1:]
    names, depth, kind = [], 99, ""
    rest = [argument for argument in arguments if argument not in ("(", ")", "-o")]
    if arguments.count("-name") - arguments.count("-o") > 1 or arguments[-1:] == ["-print0"]:
        return UNKNOWN
    while len(rest) >= 2 and rest[0] in ("-maxdepth", "-type", "-name"):
        option, value = rest[0], rest[1]
        rest = rest[2:]
        if option == "-name":
            names.append(value)
        elif option == "-maxdepth" and (number := whole_number(value)) is not None:
            depth = number
        elif option == "-type":
            kind = value
    if rest or not folders or kind not in ("", "f") or not (names or kind):
        return UNKNOWN
    lines = []
    for folder in folders:
        top = walk.absolute(shell, folder)
        if walk.around.mount_of(top) is not None:
            return UNKNOWN
        if not is_known(top) and (by_document := choices.folder_by_document(walk, shell, top)):
            folder = top = by_document
        if not is_known(top):
            pattern = posixpath.join(top, *[name for name in names if len(names) == 1] or "*")
            return pattern.replace("*", UNKNOWN)
        for file in walk.tree.below(top):
            below = posixpath.relpath(file.path, walk.tree.resolve(top))
            matches = not names or any(fits(posixpath.basename(below), name) for name in names)
            if matches and below.count("/") < depth and (file.kind == "file" or not kind):
                lines.append(posixpath.join(folder, below))
    return "".join(f"{line}\n" for line in lines)
