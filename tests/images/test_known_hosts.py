"""Host keys from known_hosts files: as paramiko and ssh-keygen read them."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from pathlib import Path
from threading import Event

import pytest
from paramiko import HostKeys
from programs import need
from until import LIMIT_S

from orchestrator.errors import UsageError
from orchestrator.nodes.known_hosts import KRL_MAGIC, KnownHosts
from orchestrator.nodes.names import NamedNode
from orchestrator.nodes.ssh import Ssh
from orchestrator.nodes.transport import NodeCommand

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
NAMES = ["node1", "node2", "node3", "[node3]:2222", "node4", "node5", "10.0.0.1", "10.0.0.7",
         "[10.0.0.7]:2222", "NODE1", "*", "", HASHED]  # fmt: skip


def keys_of(known: KnownHosts, name: str) -> dict[str, str]:
    keys = HostKeys()
    known.add_to(keys, name)
    return {kind: key.get_base64() for kind, key in (keys.lookup(name) or {}).items()}


@pytest.mark.parametrize("name", NAMES[:-2])
def test_the_same_keys_as_paramiko_finds(tmp_path: Path, name: str) -> None:
    path = tmp_path / "known_hosts"
    # At one of the others paramiko skips the rest of the file.
    broken = ("|1|broken", "\udcff", "@", "node4 ssh-ed25519 no-key")
    path.write_text("".join(f"{line}\n" for line in LINES if not line.startswith(broken)))
    theirs = HostKeys(str(path)).lookup(name) or {}
    assert keys_of(KnownHosts([path]), name) == {
        kind: key.get_base64() for kind, key in theirs.items()
    }


def test_broken_lines_are_no_keys_and_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_bytes("\n".join(LINES).encode("utf-8", "surrogateescape"))
    known = KnownHosts([path, path])
    hosts = {"node1", "node2", "[node3]:2222", "node4", "10.0.0.1", "[10.0.0.7]:2222"}
    assert {name for name in NAMES if keys_of(known, name)} == hosts
    assert keys_of(known, "node1") == {"ssh-ed25519": KEYS[0].split()[1]}


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        KnownHosts([tmp_path / "nothing"])


BLOBS = [key.split()[1] for key in KEYS]


@pytest.mark.parametrize(
    ("lines", "name", "wanted"),
    [
        (["*.cluster {0}"], "n1.cluster", [0]),
        (["*.cluster {0}"], "n1.other", []),
        (["*.cluster,!bad.cluster {0}"], "bad.cluster", []),
        (["*.cluster,!bad.cluster {0}"], "n1.cluster", [0]),
        (["!n1 {0}"], "n2", []),
        (["n? {0}"], "n1", [0]),
        (["n? {0}"], "n12", []),
        (["[*]:2222 {0}"], "[n1]:2222", [0]),
        (["* {0}"], "n1", [0]),
        (["n.1 {0}"], "nx1", []),
        (["@revoked * {0}", "n1 {0}"], "n1", []),
        (["n1 {0}", "@revoked n1 {0}"], "n1", []),
        (["@revoked n2 {0}", "n1 {0}"], "n1", [0]),
        (["@revoked * {0}", "n1 {1}"], "n1", [1]),
        ([f"@revoked {HASHED} {{0}}", "[10.0.0.7]:2222 {0}"], "[10.0.0.7]:2222", []),
        (["@revoked", "@revoked *", "@revoked * ssh-ed25519 ====", "n1 {0}"], "n1", [0]),
        (["@cert-authority * {0}"], "n1", []),
        (["@cert-authority * {0}", "n1 {0}"], "n1", [0]),
        (["@unheard-of n1 {0}"], "n1", []),
    ],
)
def test_lines_mean_what_they_mean_to_ssh(
    tmp_path: Path, lines: list[str], name: str, wanted: list[int]
) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("".join(line.format(*KEYS) + "\n" for line in lines))
    assert list(keys_of(KnownHosts([path]), name).values()) == [BLOBS[number] for number in wanted]


def test_ssh_keygen_finds_the_same_lines(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(
        f"*.cluster,!bad.cluster {KEYS[0]}\nn? {KEYS[1]}\n{HASHED} {KEYS[1]}\n[*]:2222 {KEYS[0]}\n"
    )
    for name in ("n1.cluster", "bad.cluster", "n1", "n12", "[10.0.0.7]:2222", "[x]:2222", "x"):
        argv = [need("ssh-keygen", package="openssh-client"), "-F", name, "-f", path]
        theirs = subprocess.run(argv, capture_output=True, text=True).stdout
        keys = {line.split()[2] for line in theirs.splitlines() if not line.startswith("#")}
        ours = set(keys_of(KnownHosts([path]), name).values())
        assert ours <= keys and bool(ours) == bool(keys)


FINGERPRINT = base64.b64encode(hashlib.sha256(base64.b64decode(BLOBS[0])).digest()).decode()


@pytest.mark.parametrize(
    "spec", ["", KEYS[0], f"sha1: {KEYS[0]}", f"hash: SHA256:{FINGERPRINT.rstrip('=')}"],
    ids=["keys", "list of keys", "SHA-1", "SHA-256"],
)  # fmt: skip
def test_revoked_host_keys(tmp_path: Path, spec: str) -> None:
    """RevokedHostKeys is a file of keys, or a key revocation list made by ssh-keygen."""
    known = tmp_path / "known_hosts"
    revoked = tmp_path / "revoked"
    known.write_text(f"n1 {KEYS[0]}\nn2 {KEYS[1]}\n")
    revoked.write_text(f"# stolen\n\n{KEYS[0]} somebody\n")
    if spec:
        (tmp_path / "spec").write_text(f"{spec}\n")
        argv = [need("ssh-keygen", package="openssh-client"), "-kf", revoked, tmp_path / "spec"]
        subprocess.run(argv, check=True, capture_output=True)
    hosts = KnownHosts([known], revoked)
    keys = HostKeys()
    assert hosts.add_to(keys, "n1") and not keys.lookup("n1")
    assert keys_of(hosts, "n2") == {"ssh-ed25519": BLOBS[1]}


@pytest.mark.parametrize(
    "content", [b"what is this", b"SSHKRL\n\0", b"SSHKRL\n\0" + bytes(28) + b"\xff" * 9, b"a b c"]
)
def test_a_malformed_revocation_list_trusts_no_host(tmp_path: Path, content: bytes) -> None:
    need("ssh-keygen", package="openssh-client")
    (tmp_path / "known_hosts").write_text(f"n1 {KEYS[0]}\n")
    (tmp_path / "revoked").write_bytes(content)
    for revoked in (tmp_path / "revoked", tmp_path / "nothing"):
        keys = HostKeys()
        with pytest.raises(OSError):
            KnownHosts([tmp_path / "known_hosts"], revoked).add_to(keys, "n1")
        assert not keys


def test_a_revocation_list_without_ssh_keygen_trusts_no_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "known_hosts").write_text(f"n1 {KEYS[0]}\n")
    (tmp_path / "revoked").write_bytes(KRL_MAGIC)
    monkeypatch.setenv("PATH", str(tmp_path))
    keys = HostKeys()
    with pytest.raises(UsageError, match="ssh-keygen.* cannot run"):
        KnownHosts([tmp_path / "known_hosts"], tmp_path / "revoked").add_to(keys, "n1")
    assert not keys


def test_a_revoked_host_is_refused_with_that_reason(tmp_path: Path) -> None:
    """Before any connection: nothing listens at that port."""
    known = tmp_path / "known_hosts"
    config = tmp_path / "config"
    options = f"Host *\n  UserKnownHostsFile {known}\n  GlobalKnownHostsFile none\n"

    def problem() -> str:
        node = NamedNode("n1", "ssh://127.0.0.1:1")
        command = NodeCommand(["true"], timeout_s=LIMIT_S)
        return Ssh(config_file=str(config)).run(node, command, Event()).problem

    known.write_text(f"@revoked * {KEYS[0]}\n[127.0.0.1]:1 {KEYS[0]}\n")
    config.write_text(options)
    assert "its host key is revoked" in problem()
    known.write_text(f"[127.0.0.1]:1 {KEYS[0]}\n")
    config.write_text(f"{options}  RevokedHostKeys /nowhere/revoked\n")
    assert "No such file" in problem() and "revoked" in problem()
