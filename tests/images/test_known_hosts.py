"""The keys of one host out of known_hosts files: the same as paramiko finds, which reads them all."""

from __future__ import annotations

from pathlib import Path

import pytest
from paramiko import HostKeys

from orchestrator.nodes.known_hosts import KnownHosts

KEYS = [
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB8eHRwbGhkYFxYVFBMSERAPDg0MCwoJCAcGBQQDAgEA",
]
HASHED = HostKeys.hash_host("[10.0.0.7]:2222")
LINES = [
    "# a comment",
    "",
    "   ",
    f"node1,10.0.0.1 {KEYS[0]} root@somewhere",
    f"node1 {KEYS[1]}",  # of one type the first one counts
    f"\tnode2\t{KEYS[1]}  ",
    f"[node3]:2222 {KEYS[0]}",
    f"{HASHED} {KEYS[1]}",
    f"@revoked node5 {KEYS[0]}",
    f"@cert-authority *.cluster {KEYS[0]}",
    f"|1|broken {KEYS[0]}",
    "node4 ssh-ed25519 no-key-at-all",
    "node4 ssh-unheard-of AAAA",
    "node4",
    "node4 ssh-ed25519",
    f"node4 {KEYS[0]}",
    f"\udcff\udcfe {KEYS[0]}",
]
NAMES = [
    "node1",
    "node2",
    "node3",
    "[node3]:2222",
    "node4",
    "node5",
    "10.0.0.1",
    "10.0.0.7",
    "[10.0.0.7]:2222",
    "NODE1",
    "*",
    "",
    HASHED,
]


def found(known: KnownHosts, name: str) -> dict[str, str]:
    keys = HostKeys()
    known.add_to(keys, name)
    return {kind: key.get_base64() for kind, key in (keys.lookup(name) or {}).items()}


@pytest.mark.parametrize("name", NAMES[:-2])
def test_the_same_keys_as_paramiko_finds(tmp_path: Path, name: str) -> None:
    path = tmp_path / "known_hosts"
    # paramiko gives up the whole file at one of the others.
    readable = [line for line in LINES if not line.startswith(("|1|broken", "\udcff", "@")) and "no-key" not in line]
    path.write_text("\n".join(readable) + "\n")
    theirs = HostKeys(str(path)).lookup(name)
    assert found(KnownHosts([path]), name) == {kind: key.get_base64() for kind, key in (theirs or {}).items()}


def test_broken_lines_are_no_keys_and_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_bytes("\n".join(LINES).encode("utf-8", "surrogateescape"))
    known = KnownHosts([path, path])
    assert {name for name in NAMES if found(known, name)} == {
        "node1",
        "node2",
        "[node3]:2222",
        "node4",
        "10.0.0.1",
        "[10.0.0.7]:2222",
    }
    assert found(known, "node1") == {"ssh-ed25519": KEYS[0].split()[1]}


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        KnownHosts([tmp_path / "nothing"])
