"""A real sshd on some loopback addresses, and connections to it that are cut."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from types import TracebackType

from ports import free_port
from programs import need

SSHD = which("sshd", path="/usr/sbin:/usr/bin")


@dataclass(frozen=True)
class SshServer:
    """`folder` holds its keys; `config` is for the client, who is root there."""

    folder: Path
    addresses: tuple[str, ...]
    port: int

    @property
    def config(self) -> Path:
        return self.folder / "ssh_config"

    def trust(self, port: int) -> None:
        """Have clients know its key at another port of its addresses too."""
        key = (self.folder / "host.key.pub").read_text()
        with (self.folder / "known_hosts").open("a") as file:
            file.writelines(f"[{address}]:{port} {key}" for address in self.addresses)


@contextlib.contextmanager
def serving(folder: Path, addresses: Sequence[str]) -> Iterator[SshServer]:
    """Run an sshd that listens on `addresses` and lets root in with the key of `config`. Needs root and `SSHD`."""
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # and stays: other processes serve, too
    server = SshServer(folder, tuple(addresses), free_port("0.0.0.0"))
    for name in ("host", "user"):
        subprocess.run(
            [
                need("ssh-keygen", package="openssh-client"),
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-f",
                folder / f"{name}.key",
            ],
            check=True,
        )
    server.trust(server.port)
    server.config.write_text(
        f"Host *\n  IdentityFile {folder}/user.key\n  UserKnownHostsFile {folder}/known_hosts\n"
    )
    (folder / "sshd_config").write_text(
        "\n".join(
            [
                *(f"ListenAddress {address}:{server.port}" for address in addresses),
                f"HostKey {folder}/host.key",
                f"AuthorizedKeysFile {folder}/user.key.pub",
                "StrictModes no",
                "UsePAM no",
                "PasswordAuthentication no",
                "KbdInteractiveAuthentication no",
                "PidFile none",
                "MaxStartups 100",
                f"SetEnv HOME={folder}",
                "",
            ]
        )
    )
    process = subprocess.Popen(
        [str(SSHD), "-D", "-e", "-f", folder / "sshd_config"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for _ in addresses:
            assert "Server listening" in process.stderr.readline()
        yield server
    finally:
        process.terminate()
        process.stderr.close()
        process.wait()


class Cut:
    """A way to `server` at `address` that is reset after so many bytes of each connection, counted in both directions."""

    def __init__(self, server: SshServer, address: str, after_bytes: int) -> None:
        self._to, self._left = (address, server.port), after_bytes
        self._listener = socket.create_server((address, free_port(address)))
        self.port: int = self._listener.getsockname()[1]
        server.trust(self.port)

    def __enter__(self) -> Cut:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                far = socket.create_connection(self._to)
                left = [self._left]
                for ways in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(*ways, left), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, left: list[int]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(min(max(left[0], 1), 1 << 14)):
                left[0] -= len(data)
                if left[0] < 0:
                    break
                target.sendall(data)
        for side in (source, target):
            with contextlib.suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                side.shutdown(socket.SHUT_RDWR)
                side.close()
