"""Changes of an image that follow rules: each rule is applied wherever it fits, in every image.

A change comes with a test of the findings that are new after it. Nobody chose the places.
`python tests/inspection/rule_changes.py` prints how many of them are named, rule by rule.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from standin_images import STAND_INS, make_root
from written_images import WRITTEN, write_root

from orchestrator.inspection.contract import Contract, contract_of
from orchestrator.inspection.findings import ContractFinding, findings
from orchestrator.inspection.given import Given, given_by
from orchestrator.inspection.sources import read_folder
from orchestrator.model import load_entry

Named = Callable[[ContractFinding], bool]


@dataclass(frozen=True)
class Change:
    """A change of one file of an image. `named` tells whether a finding names it."""

    rule: str
    file: str
    text: str
    named: Named
    line: str = ""
    """A line that is all of it. Others of its group may come with it."""
    group: str = ""


OF_SEVERAL_NODES = {"NODE_RANK", "NNODES", "MASTER_ADDR", "MASTER_PORT"} | {
    *("SLURM_NNODES", "SLURM_NODEID")
}


def _kinds(*kinds: str, word: str = "") -> Named:
    return lambda one: one.kind in kinds and word in one.what


def changes(root: Path, contract: Contract, given: Given) -> Iterator[Change]:
    """Yield all changes of an image by the rules below."""
    for path in contract.scripts:
        file = root / path.lstrip("/")
        if file.is_file() and path.endswith((".sh", "primus-cli", "llmboost")):
            text = file.read_text()
            for rule in (_renamed, _required, _downloads, _deleted):
                yield from rule(path, text, given)
            yield from _overwritten(path, text, given, contract)
    training = contract.training
    if training is not None and (root / training.place.file.lstrip("/")).is_file():
        path = training.place.file
        text = (root / path.lstrip("/")).read_text()
        yield from _of_the_training(path, text, contract)
    for path in contract.scripts:
        file = root / path.lstrip("/")
        if path.endswith(".py") and file.is_file():
            yield from _of_python(path, file.read_text(), given)


# ---- variables ----


def _renamed(path: str, text: str, given: Given) -> Iterator[Change]:
    """A variable of the bundle that a script reads gets another name there."""
    names = set(re.findall(r"\$\{?([A-Z][A-Z0-9_]+)", text)) & set(given.around.environment)
    for name in sorted(names - {"PATH", "PYTHONPATH", "SLURM_JOB_ID"}):
        if given.nodes == 1 and name in OF_SEVERAL_NODES:
            continue  # its default is right on one node
        if name == "GPUS_PER_NODE" and "GPUS_PER_NODE:-8}" in text:
            continue  # so is this one
        if re.search(rf"(?m)^\s*(export |: \S*)?{name}=|for {name} in|read.* {name}\b", text):
            continue  # the script sets it
        changed = re.sub(rf"(\$\{{?!?){name}\b", rf"\g<1>{name}_NEW", text)
        yield Change("a variable renamed", path, changed, _lost(name))


def _lost(name: str) -> Named:
    kinds = ("unset variable", "unread variable")
    return lambda one: (
        one.kind in ("ranks", "no training") or (one.kind in kinds and name in one.what)
    )


def _required(path: str, text: str, given: Given) -> Iterator[Change]:
    for line in (
        ': "${NEW_OPTION:?}"',
        '[ -n "$NEW_OPTION" ] || exit 3',
        'if [[ -z "${NEW_OPTION}" ]]; then echo >&2; exit 1; fi',
        "[ $NEW_OPTION -eq 1 ] && echo one",
        'test "$NEW_OPTION" || exit 2',
        "python3 --version $NEW_OPTION",
    ):
        named = _kinds("unset variable", word="NEW_OPTION")
        yield Change("a new variable", path, _inserted(text, line), named)


def _overwritten(path: str, text: str, given: Given, contract: Contract) -> Iterator[Change]:
    own = {one.name for one in contract.trace.assignments}
    known = [
        name
        for name in sorted(given.configured)
        if name not in given.unset | own and given.around.environment.get(name)
    ]
    for name in known[:: max(len(known) // 4, 1)]:
        for line in (f"export {name}=other", f"declare -x {name}=other", f"unset {name}"):
            named = _kinds("overwritten variable", word=f"{name} ")
            changed = _inserted(text, line)
            yield Change("a variable overwritten", path, changed, named, line, line.split()[0])


# ---- network and paths ----


def _downloads(path: str, text: str, given: Given) -> Iterator[Change]:
    for word, line in (
        ("einops", "pip install --upgrade einops"),
        ("requirements.txt", "python3 -m pip install -r requirements.txt"),
        ("git clone", "git clone https://example.org/x.git /tmp/x"),
        ("x.tar", "curl -sSL https://example.org/x.tar | tar -x"),
        ("x.sh", "bash <(curl -s https://example.org/x.sh)"),
        (
            "urlretrieve",
            "python3 -c 'import urllib.request; urllib.request.urlretrieve(\"https://example.org/x\")'",
        ),
        ("wget", "wget -q https://example.org/x"),
        ("gsutil", "[ -d /tmp/models ] || gsutil cp gs://bucket/x /tmp/models"),
        ("s5cmd", "timeout 60 s5cmd cp s3://bucket/x /tmp/x"),
        ("apt-get", "apt-get install -y jq"),
    ):
        named = _kinds("download", word=word)
        yield Change("a download added", path, _inserted(text, line), named, line)


def _deleted(path: str, text: str, given: Given) -> Iterator[Change]:
    for mount in given.around.mounts:
        if mount.place in ("/results", "/orch") or mount.place in given.writable:
            continue
        place = mount.place.rstrip("/")
        for line, kinds in (
            (f"rm -rf {place}/cache", ("deleted path", "read-only path")),
            (f"mkdir -p {place}/index", ("written path", "read-only path")),
            (f"echo x >{place}/marker", ("written path", "read-only path")),
            (f"cat {place}/vocabulary/merges.txt", ("expected path",)),
        ):
            if line.startswith("cat") and mount.holds is not None and place in mount.holds:
                continue  # the preparation promises the folder, not its parts
            rule = "a path of the host's data"
            named = _kinds(*kinds, word=place)
            yield Change(rule, path, _inserted(text, line), named, line, line.split()[0])


def _inserted(text: str, line: str) -> str:
    """Return the text with a line before its first command."""
    lines = text.splitlines(keepends=True)
    at = next(
        (n for n, one in enumerate(lines) if one.strip() and not one.startswith("#")), len(lines)
    )
    return "".join([*lines[:at], line + "\n", *lines[at:]])


# ---- the training ----


def _of_the_training(path: str, text: str, contract: Contract) -> Iterator[Change]:
    """The command that starts the training: its output, its exit code, its ranks, its program."""
    assert contract.training is not None
    line, is_hidden = contract.training.place.line, contract.training.err != "log"
    lines = text.splitlines(keepends=True)
    ends_early = re.search(r"(?m)^set -\w*e", text) is not None
    replaces = lines[line - 1].lstrip().startswith("exec")
    end = line - 1
    while end < len(lines) - 1 and lines[end].rstrip().endswith("\\"):
        end += 1
    command, rest = lines[end].rstrip("\n"), lines[end + 1 :]
    plain = not command.rstrip().endswith((")", "}", "'", ";")) and "|" not in command

    def with_end(new: str) -> str:
        return "".join([*lines[:end], new + "\n", *rest])

    if plain and not is_hidden:
        yield Change(
            "a redirect added", path, with_end(f"{command} 2>/dev/null"), _kinds("hidden errors")
        )
        yield Change(
            "a redirect added",
            path,
            with_end(f"{command} >/results/out.log 2>&1"),
            _kinds("hidden output"),
        )
    if plain:
        for tail in (" | grep -v MLLOG", " | tee /results/x >/dev/null", " >/dev/null"):
            yield Change(
                "a redirect added", path, with_end(command + tail), _kinds("hidden output")
            )
        if contract.exit.after_failure and not replaces:
            tails = [" || true", " || echo failed", " &\nwait"]
            tails += [] if ends_early else ["; true\nexit 0", " | cat\nexit 0"]
            for tail in tails:
                lost = with_end(command + tail)
                yield Change("an exit code lost", path, lost, _kinds("exit code"))
    for line_ in ("trap 'exit 0' EXIT", "exec 2>/dev/null"):
        if line_.startswith("trap") and (replaces or not contract.exit.after_failure):
            continue
        kind = "exit code" if line_.startswith("trap") else "hidden errors"
        rule = "an exit code lost" if kind == "exit code" else "a redirect added"
        if kind == "hidden errors" and is_hidden:
            continue
        yield Change(rule, path, _inserted(text, line_), _kinds(kind))
    for program in re.findall(r"[\w./-]+\.py\b|\./[\w/-]+", "".join(lines[line - 1 : end + 1])):
        moved = text.replace(
            program, program.replace("train", "pretrain").replace("./r", "./new/r")
        )
        if moved != text:
            yield Change("a path moved", path, moved, _kinds("missing program"))
    for launcher in re.findall(r"\btorchrun\b", "".join(lines[line - 1 : end + 1])):
        here = "".join(lines[line - 1 : end + 1])
        gone = here.replace(launcher, "torchrun_mx")
        yield Change("a path moved", path, text.replace(here, gone), _kinds("missing program"))
    yield Change("a path moved", path, text.replace("\n", "\r\n"), _kinds("missing program"))


# ---- Python ----


def _of_python(path: str, text: str, given: Given) -> Iterator[Change]:
    known = [name for name in sorted(given.configured) if given.around.environment.get(name)]
    for name in known[:: max(len(known) // 2, 1)]:
        line = f'import os; os.environ["{name}"] = "other"'
        yield Change(
            "a variable overwritten",
            path,
            _first(text, line),
            _kinds("overwritten variable", word=name),
            line,
        )
    yield Change(
        "a new variable",
        path,
        _first(text, 'import os; os.environ["NEW_OPTION"]'),
        _kinds("unset variable", word="NEW_OPTION"),
    )
    for word, line in (
        ("requests.get", "import requests; requests.get('https://example.org/x')"),
        ("hf_hub", "from huggingface_hub import hf_hub_download; hf_hub_download('a/b', 'c')"),
        ("hub.load", "import torch; torch.hub.load('a/b', 'c')"),
        (
            "from_pretrained",
            "from transformers import AutoTokenizer; AutoTokenizer.from_pretrained('a/b')",
        ),
    ):
        if "HF_HUB_OFFLINE" in given.around.environment and (
            "hf_hub" in line or "from_pre" in line
        ):
            continue  # switched off by the bundle
        named = _kinds("download", word=word)
        yield Change("a download added", path, _first(text, line), named, line)


def _first(text: str, line: str) -> str:
    """Return the program with a line behind its first imports."""
    lines = text.splitlines(keepends=True)
    at = max((n for n, one in enumerate(lines) if one.startswith(("import ", "from "))), default=-1)
    return "".join([*lines[: at + 1], line + "\n", *lines[at + 1 :]])


# ---- images ----

ON_TWO_NODES = "llama31-primus on two nodes"
IMAGES = (*STAND_INS, ON_TWO_NODES, *WRITTEN)


def make_image(name: str, folder: Path) -> tuple[Path, Given]:
    """Make the file system of an image below `folder`; return it and the bundle's side."""
    if name in WRITTEN:
        system, workload, round_ = WRITTEN[name].entry
        root = write_root(WRITTEN[name], folder)
    else:
        one = STAND_INS["llama31-primus" if name == ON_TWO_NODES else name]
        system = "MI350X_2x8x1" if name == ON_TWO_NODES else one.system
        workload, round_ = one.workload, one.round
        root = make_root(one, folder)
    return root, given_by(load_entry(system, workload, round=round_))


def inspected(root: Path, given: Given) -> tuple[Contract, list[ContractFinding]]:
    tree = read_folder(root, given.configured)
    contract = contract_of(tree, given.command, given.around, given.second)
    return contract, findings(contract, given)


def outcomes(root: Path, given: Given) -> list[tuple[Change, bool]]:
    """Make every change of an image; return which are named.

    The lines of a group come together. One that is not named then comes alone.
    """
    contract, before = inspected(root, given)
    old = {(one.kind, one.what) for one in before}
    groups: dict[tuple[str, ...], list[Change]] = {}
    for change in changes(root, contract, given):
        key = (change.rule, change.file, change.group) if change.line else (change.text,)
        groups.setdefault((*key, change.file), []).append(change)

    def new_after(file: Path, changed: str) -> list[ContractFinding]:
        text = file.read_bytes()
        assert text.decode() != changed, file
        file.write_bytes(changed.encode())
        try:
            return [one for one in inspected(root, given)[1] if (one.kind, one.what) not in old]
        finally:
            file.write_bytes(text)

    result = []
    for group in groups.values():
        file = root / group[0].file.lstrip("/")
        insert = _first if file.suffix == ".py" else _inserted
        several = insert(file.read_text(), "\n".join(change.line for change in group))
        new = new_after(file, several if len(group) > 1 else group[0].text)
        for change in group:
            named = any(map(change.named, new))
            if not named and len(group) > 1:
                named = any(map(change.named, new_after(file, change.text)))
            result.append((change, named))
    return result


def main() -> int:
    made, named = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        for number, name in enumerate(IMAGES):
            for change, is_named in outcomes(*make_image(name, Path(place, str(number)))):
                made[change.rule] += 1
                named[change.rule] += is_named
    for rule in made:
        print(f"{rule:28} {named[rule]:5} of {made[rule]:5} named")
    print(f"{len(IMAGES)} images: {named.total()} of {made.total()} changes are named")
    return 0


if __name__ == "__main__":
    sys.exit(main())
