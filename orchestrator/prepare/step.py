"""Run one step in a container of its own, whose life ends with ours.

The secret goes through the container's standard input: it is in no argument, in no output of
`docker inspect`, and in no file. The engine keeps no log of the container (log driver `none`). Our
log hides the secret.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.container.image import EngineError
from orchestrator.errors import InputError
from orchestrator.prepare.secret import Redactor, Secret

if TYPE_CHECKING:
    from docker import DockerClient

    from orchestrator.prepare.documents import StepPart
    from orchestrator.prepare.plan import Plan

STDOUT, STDERR = 1, 2
"""The engine's numbers of a container's output streams."""

# $1 is the step's text, $2 the name of the variable on the first line of standard input ("" without
# a secret). Standard input stays open while the container's owner lives; at its end everything in
# the container is killed.
LIFELINE = r"""
exec 3<&0 </dev/null
if [ -n "$2" ]; then IFS= read -r "$2" <&3 || exit 1; export "$2"; fi
{ while IFS= read -r _ <&3; do :; done; kill -KILL -1; } >/dev/null 2>&1 &
exec 3<&-
exec bash -euo pipefail -c "$1"
"""


def container_name(plan: Plan) -> str:
    """Return one name per data folder: the engine then refuses a second preparation of the same
    data."""
    where = hashlib.sha256(str(plan.own_folder).encode()).hexdigest()[:12]
    return f"orchestrator-prepare-{plan.workload}-{where}"


def run_step(
    client: DockerClient,
    image_id: str,
    plan: Plan,
    step: StepPart,
    text: str,
    secret: Secret | None,
    log: Path,
    tell: Callable[[bytes], None],
) -> int:
    """Run `text` and return its exit code. Its output goes to `log` and to `tell`, with the secret
    hidden.

    Raises EngineError if the container cannot run, InputError if the log cannot be written.
    """
    # One per stream: output of the other stream must not part a secret from its start.
    redactors = {STDOUT: Redactor(secret), STDERR: Redactor(secret)}
    made = _create(client, image_id, plan, step, text)
    try:
        with StepLog(log) as file:
            for stream, piece in _attached(client, made, secret):
                shown = redactors[stream].feed(piece)
                file.write(shown)
                tell(shown)
            for redactor in redactors.values():
                file.write(redactor.rest())
        return int(client.api.wait(made, timeout=60)["StatusCode"])
    finally:
        client.api.remove_container(made, force=True, v=True)


class StepLog:
    """A step's log. The SDK's network errors are OSErrors too; this class tells them apart."""

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
            hint=f"df -h {self.path.parent}",
        )


def _create(client: DockerClient, image_id: str, plan: Plan, step: StepPart, text: str) -> str:
    from docker.types import LogConfig

    api = client.api
    host = api.create_host_config(
        binds=[f"{folder}:{inside}" for folder, inside in plan.binds(step).items()],
        network_mode="host",
        ipc_mode="host",
        devices=[f"{device}:{device}:rwm" for device in present_devices(plan)],
        init=True,
        security_opt=list(plan.part.security_opt),
        log_config=LogConfig(type="none"),
    )
    name = container_name(plan)
    remove_leftover(client, name, plan.engine_command)
    command = ["-c", LIFELINE, "prepare", text, step.secret or ""]
    made = api.create_container(
        image_id,
        entrypoint=["bash"],
        command=command,
        stdin_open=True,
        working_dir=plan.workdir(step),
        name=name,
        host_config=host,
        labels={"orchestrator": "prepare", "orchestrator.workload": plan.workload},
    )
    return str(made["Id"])


def present_devices(plan: Plan) -> list[str]:
    """Return the published devices of this machine. A login node has no GPU, and most steps need
    none."""
    return [device for device in plan.part.devices if Path(device).exists()]


def remove_leftover(client: DockerClient, name: str, command: Sequence[str] = ("docker",)) -> None:
    """Remove the container of a dead preparation. Raises EngineError if it still runs."""
    from docker.errors import NotFound

    try:
        found = client.api.inspect_container(name)
    except NotFound:
        return
    if found["State"]["Running"]:
        raise EngineError(
            f"another process prepares the same data: container {name} runs",
            hint=f"wait for it, or end it: {shlex.join(command)} rm --force {name}",
        )
    client.api.remove_container(found["Id"], force=True, v=True)


def _attached(
    client: DockerClient, made: str, secret: Secret | None
) -> Iterator[tuple[int, bytes]]:
    """Start the container, send it the secret, and yield its output until it ends: stream number
    and bytes."""
    from docker.utils.socket import frames_iter

    connection = client.api.attach_socket(
        made, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
    )
    # The SDK's wrapper only reads; the socket below it can write.
    raw = getattr(connection, "_sock", connection)
    try:
        client.api.start(made)
        if secret is not None:
            raw.sendall(secret.reveal() + b"\n")
        raw.settimeout(None)
        yield from frames_iter(connection, tty=False)
    finally:
        connection.close()
        raw.close()


def command_line(plan: Plan, step: StepPart, *, again: bool = False) -> str:
    """Return the step as a command to read or type here; it does the same, but outlives our
    process."""
    words = [
        *plan.engine_command,
        "run",
        "--rm",
        "--interactive",
        "--init",
        "--network=host",
        "--ipc=host",
    ]
    words += ["--log-driver=none"]
    words += [f"--device={device}" for device in present_devices(plan)]
    words += [f"--security-opt={option}" for option in plan.part.security_opt]
    words += [f"--volume={folder}:{inside}" for folder, inside in plan.binds(step).items()]
    words += [f"--workdir={plan.workdir(step)}", "--entrypoint=bash", plan.image]
    before = f"IFS= read -r {step.secret}; export {step.secret}\n" if step.secret else ""
    line = (
        f"{shlex.join(words)} -euo pipefail -c {shlex.quote(before + plan.text(step, again=again))}"
    )
    return line + (f" <{step.secret.lower()}_file" if step.secret else "")


def missing_after(plan: Plan, step: StepPart) -> list[Path]:
    """Return the missing results of the step."""
    from orchestrator.prepare.tree import holds_something

    return [path for path in map(plan.host_path, step.leaves) if not holds_something(path)]


def secrets_needed(steps: Sequence[StepPart], found: Mapping[str, Secret]) -> list[str]:
    """Return the names of the secrets that `steps` need and nobody gave yet."""
    return [
        name
        for name in dict.fromkeys(step.secret for step in steps if step.secret)
        if name not in found
    ]
