"""The bundle of a set: its files, the value, place and source of each variable, later edits."""

from __future__ import annotations

import errno
import hashlib
import os
import re

from orchestrator.evidence.files import is_inside
from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.kernel.regular import MAX_BYTES, read_bytes
from orchestrator.onnode.kernel.settings_file import declared, shown

LARGEST = 1 << 20
"""The most bytes read of a script or a table."""
MOST_BYTES = 256 << 20
"""The most bytes read of a bundle; ours have less than one MB besides the benchmark's code."""
_EXPORT = re.compile(r"^\s*export ([A-Za-z_]\w*)=")


def files(evidence: SetEvidence) -> dict[str, bytes]:
    """Return path in the bundle -> content, in order. Links, byte code, special files and content
    beyond MOST_BYTES are excluded; a bundle that is a link out of the set is empty. All but byte
    code is a finding."""
    contents: dict[str, bytes] = {}
    bundle, left = evidence.layout.bundle, MOST_BYTES
    if os.path.lexists(bundle) and not is_inside(bundle, evidence.layout.root):
        evidence.findings.add(bundle, "is a link out of the set; nothing behind it is taken")
        return contents
    for folder, folders, names in os.walk(bundle):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for path in (os.path.join(folder, name) for name in sorted(names)):
            try:
                content = read_bytes(path, min(MAX_BYTES, left), follow=False)
            except OSError as error:
                why = (
                    "is a link"
                    if error.errno == errno.ELOOP
                    else f"cannot be read: {error.strerror or error}"
                )
                evidence.findings.add(path, f"{why}; it is left out")
                continue
            contents[os.path.relpath(path, bundle)] = content
            left -= len(content)
    return dict(sorted(contents.items()))


def unpacked(archive: bytes, names: set[str]) -> dict[str, bytes]:
    """Return the named files of a bundle's archive as far as it is sound, at most MOST_BYTES."""
    import io
    import tarfile
    import zlib

    contents: dict[str, bytes] = {}
    try:
        content = zlib.decompressobj(31).decompress(archive, MOST_BYTES)  # 31: a gzip header
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for member in tar:
                # A sparse file can be longer than the archive; a link can point to itself.
                named = member.name in names and member.isreg() and not member.issparse()
                if named and (file := tar.extractfile(member)):
                    contents[member.name] = file.read()
    except (OSError, LookupError, ValueError, RecursionError, zlib.error, tarfile.TarError):
        pass
    return contents


def _scripts(evidence: SetEvidence) -> list[str]:
    """Return the files that set variables, in order."""
    names = evidence.findings.names(evidence.layout.bundle)
    return [name for name in names if name.startswith("config_") and name.endswith(".sh")] + [
        "rccl_env.sh"
    ]


def evaluated(evidence: SetEvidence) -> dict[str, str]:
    """Return the values in a set's environment.sh; {} without the file."""
    content = evidence.findings.walk.content(evidence.layout.environment, MAX_BYTES)
    return {name: shown(value) for name, value in declared(content).items()}


def places(evidence: SetEvidence) -> dict[str, str]:
    """Return name -> `file:line` that sets it last."""
    lines = {}
    for name in _scripts(evidence):
        text = evidence.findings.text(evidence.layout.bundle / name, LARGEST)
        for number, line in enumerate(text.splitlines(), 1):
            if match := _EXPORT.match(line):
                lines[match.group(1)] = f"{name}:{number}"
    return lines


def origins(evidence: SetEvidence) -> dict[str, str]:
    """Return name -> `layer: file:line` of its document; {} if the bundle has no origins."""
    lines = evidence.findings.text(evidence.layout.bundle / "origins.tsv", LARGEST).splitlines()
    rows = [cells for line in lines[1:] if len(cells := line.split("\t")) == 5]
    return {
        name: f"{layer}: {file}:{line}" if line else layer for name, layer, file, line, _ in rows
    }


def edited(evidence: SetEvidence) -> list[str]:
    """Return the variable-setting files that differ from the manifest."""
    made = evidence.findings.json(evidence.layout.bundle / "manifest.json").get("outputs")
    known = made if isinstance(made, dict) else {}
    hashes = {name: _sha256(evidence, name) for name in _scripts(evidence) if name in known}
    return [name for name, sha256 in hashes.items() if sha256 and sha256 != known[name]]


def _sha256(evidence: SetEvidence, name: str) -> str:
    """Return a file's hash, "" if unreadable: `places` has noted that."""
    try:
        content = evidence.findings.inside.read_bytes(evidence.layout.bundle / name)
        return hashlib.sha256(content).hexdigest()
    except OSError:
        return ""
