"""A step in a container that ends with this process.

The secret goes to standard input: no argument, file or `docker inspect` has it. The engine keeps no
log, and the step's log hides the secret.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.container.image import EngineError
from orchestrator.errors import InputError
from orchestrator.prepare.secret import Redactor, Secret
from orchestrator.words import quoted

if TYPE_CHECKING:
    from docker import DockerClient

    from orchestrator.prepare.documents import StepPart
    from orchestrator.prepare.plan import Plan

STDOUT = 1
STDERR = 2
"""Stream numbers of the engine."""

# $1 is the step's text, $2 the variable for the first line of standard input, "" without a secret.
# When this process ends, so does standard input, and the whole container is killed.
LIFELINE = r"""
exec 3<&0 </dev/null
if [ -n "$2" ]; then IFS= read -r "$2" <&3 || exit 1; export "$2"; fi
{ while IFS= read -r _ <&3; do :; done; kill -KILL -1; } >/dev/null 2>&1 &
exec 3<&-
exec bash -euo pipefail -c "$1"
"""


def container_name(plan: Plan) -> str:
    """Name the container after the data folder: the engine refuses a second."""
    digest = hashlib.sha256(str(plan.own_folder).encode()).hexdigest()[:12]
    return f"orchestrator-prepare-{plan.workload}-{digest}"


@dataclass(frozen=True)
class StepRunner:
    client: DockerClient
    image_id: str
    plan: Plan
    output: Callable[[bytes], None]

    def run(self, step: StepPart, text: str, secret: Secret | None) -> int:
        """Return the exit code. Raises EngineError, or InputError for an unwritable log."""
        # Per stream: output of the other must not split a secret.
        redactors = {STDOUT: Redactor(secret), STDERR: Redactor(secret)}
        container = self._create(step, text)
        try:
            with StepLog(self.plan.log_file(step)) as log:
                for stream, piece in self._attached(container, secret):
                    shown = redactors[stream].feed(piece)
                    log.write(shown)
                    self.output(shown)
                for redactor in redactors.values():
                    log.write(redactor.rest())
            return int(self.client.api.wait(container, timeout=60)["StatusCode"])
        finally:
            self.client.api.remove_container(container, force=True, v=True)

    def _create(self, step: StepPart, text: str) -> str:
        from docker.types import LogConfig

        plan = self.plan
        api = self.client.api
        host = api.create_host_config(
            binds=[f"{folder}:{inside}" for folder, inside in plan.binds(step)],
            network_mode="host",
            ipc_mode="host",
            devices=[f"{device}:{device}:rwm" for device in present_devices(plan)],
            init=True,
            security_opt=list(plan.part.security_opt),
            log_config=LogConfig(type="none"),
        )
        name = container_name(plan)
        self._remove_leftover(name)
        container = api.create_container(
            self.image_id,
            entrypoint=["bash"],
            command=["-c", LIFELINE, "prepare", text, step.secret or ""],
            environment=dict(plan.proxy),
            stdin_open=True,
            working_dir=plan.workdir(step),
            name=name,
            host_config=host,
            labels={"orchestrator": "prepare", "orchestrator.workload": plan.workload},
        )
        return str(container["Id"])

    def _remove_leftover(self, name: str) -> None:
        """Raises EngineError if the container is running."""
        from docker.errors import NotFound

        try:
            container = self.client.api.inspect_container(name)
        except NotFound:
            return
        if container["State"]["Running"]:
            remove = f"{shlex.join(self.plan.engine_command)} rm --force {quoted(name)}"
            raise EngineError(
                f"another process prepares the same data: container {name} runs",
                hint=f"wait for it, or end it: {remove}",
            )
        self.client.api.remove_container(container["Id"], force=True, v=True)

    def _attached(self, container: str, secret: Secret | None) -> Iterator[tuple[int, bytes]]:
        from docker.utils.socket import frames_iter

        streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        connection = self.client.api.attach_socket(container, params=streams)
        # The SDK's wrapper only reads; its inner socket also writes.
        raw = getattr(connection, "_sock", connection)
        try:
            self.client.api.start(container)
            if secret is not None:
                raw.sendall(secret.reveal() + b"\n")
            raw.settimeout(None)
            yield from frames_iter(connection, tty=False)
        finally:
            connection.close()
            raw.close()


class StepLog:
    """Raises InputError: errors of the SDK are OSErrors, too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.file = path.open("ab", buffering=0)
        except OSError as error:
            raise self._failed(error) from error

    def __enter__(self) -> StepLog:
        return self

    def __exit__(self, *exc: object) -> None:
        self.file.close()

    def write(self, piece: bytes) -> None:
        rest = memoryview(piece)
        try:
            while rest:
                rest = rest[self.file.write(rest) :]
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> InputError:
        return InputError(
            f"{self.path}: cannot be written: {error.strerror or error}",
            hint=f"df -h {quoted(self.path.parent)}",
        )


def present_devices(plan: Plan) -> list[str]:
    """A login node has no GPU."""
    return [device for device in plan.part.devices if Path(device).exists()]


def command_line(plan: Plan, step: StepPart, *, again: bool = False) -> str:
    """Return a shell command that does not end with this process."""
    engine = [
        *plan.engine_command,
        "run",
        "--rm",
        "--interactive",
        "--init",
        "--network=host",
        "--ipc=host",
        "--log-driver=none",
        *(f"--device={device}" for device in present_devices(plan)),
        *(f"--security-opt={option}" for option in plan.part.security_opt),
        *(f"--env={name}={value}" for name, value in plan.proxy.items()),
        *(f"--volume={folder}:{inside}" for folder, inside in plan.binds(step)),
        f"--workdir={plan.workdir(step)}",
        "--entrypoint=bash",
        plan.image,
    ]
    read_secret = f"IFS= read -r {step.secret}; export {step.secret}\n" if step.secret else ""
    text = shlex.quote(read_secret + plan.text(step, again=again))
    stdin = f" <{step.secret.lower()}_file" if step.secret else ""
    return f"{shlex.join(engine)} -euo pipefail -c {text}{stdin}"


def secrets_needed(steps: Sequence[StepPart]) -> list[str]:
    return list(dict.fromkeys(step.secret for step in steps if step.secret))
