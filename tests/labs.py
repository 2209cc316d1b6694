"""What a running one-machine cluster (lab/) is to tests and to the fault campaign."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from until import until

TOP = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Lab:
    """A running one-machine cluster."""

    state: Path
    """The folder that holds all of it; `lab/down` removes it."""
    shared: Path
    """What stands for shared storage: the same folder on every node."""
    env: dict[str, str]
    """The environment for commands that are to talk to it: SLURM_CONF, DOCKER_HOST, nothing of an outer job."""
    docker_socket: Path
    nodes: tuple[str, ...]

    def run(
        self, *argv: str | Path, timeout: float = 300, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in `env` from the shared folder; its output is text. Raises CalledProcessError unless `check=False`."""
        return subprocess.run(
            argv,
            env=self.env,
            cwd=self.shared,
            timeout=timeout,
            check=check,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )

    def orchestrator(
        self, folder: Path, *arguments: str | Path, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Call the command line in `folder`, which has a site.yaml, with more variables."""
        from command_line import call  # imports the package

        site = str(folder / "site.yaml")
        return call(arguments, self.env | {"ORCHESTRATOR_SITE": site} | env, cwd=folder)

    def free(self) -> None:
        """Wait until the jobs of earlier tests are over and every node is idle.

        A node that Slurm planned for a waiting job stays `planned` after that job, until Slurm plans again: at most once a
        second, and never while a job completes. And Slurm drains a node whose step ended without its daemon's notice.
        """
        until(self._is_free, lambda: self.run("sinfo", "--Node", "--long").stdout)

    def _is_free(self) -> bool:
        nodes = self.run("sinfo", "--noheader", "--Node", "--format=%N %T %E").stdout.splitlines()
        for name, _, reason in (line.split(maxsplit=2) for line in nodes):
            if reason == "Kill task failed":
                self.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)
        idle = all(line.split()[1] == "idle" for line in nodes)
        return idle and not self.queue()

    def queue(self) -> list[str]:
        """Return the jobs that wait, run or complete."""
        return self.run("squeue", "--noheader", "--format=%i").stdout.split()

    def has_ended(self, job: str) -> bool:
        """Return whether Slurm has written the line of an ended job: cheaper than a question to it."""
        ended = self.state / "slurm/jobcomp.log"
        return ended.exists() and f"JobId={job} " in ended.read_text()

    def end_all(self) -> None:
        """Cancel all jobs and have every node back, after a test that may have left both."""
        nodes = f"nodename={','.join(self.nodes)}"
        self.run("scancel", "--user=root", check=False)
        self.run("scontrol", "update", nodes, "state=resume", check=False)
        subprocess.run(
            [TOP / "lab/up"],
            env={name: value for name, value in self.env.items() if name != "SLURM_CONF"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )

    def batch(
        self, *argv: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> int:
        """Submit a batch job, wait for its end and return its exit status. `sbatch --wait` looks only every ten seconds."""
        command: list[str | Path] = ["sbatch", "--parsable", *argv]
        job = subprocess.run(
            command,
            env=env or self.env,
            cwd=cwd or self.shared,
            check=True,
            text=True,
            capture_output=True,
        ).stdout.strip()

        def exit_code() -> str:
            shown = self.run("scontrol", "--oneliner", "show", "job", job).stdout
            about = dict(word.split("=", 1) for word in shown.split() if "=" in word)
            over = about["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
            return about["ExitCode"] if over else ""

        until(lambda: self.has_ended(job))
        return int(until(exit_code).split(":")[0])


def lab_state() -> Path:
    """Where lab/up keeps (or would keep) its state."""
    return Path(os.environ.get("ORCHESTRATOR_LAB", "/var/tmp/orchestrator-lab"))


def lab_at(state: Path) -> Lab:
    """Describe the lab that was started at `state`."""
    settings = dict(line.split("=", 1) for line in (state / "settings").read_text().splitlines())
    socket = state / "docker.sock"
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "SBATCH_", "DOCKER_"))
    }
    env |= {
        "ORCHESTRATOR_LAB": str(state),
        "SLURM_CONF": str(state / "slurm/slurm.conf"),
        "DOCKER_HOST": f"unix://{socket}",
    }
    first = int(settings["LAB_FIRST"])
    names = tuple(
        f"{settings['LAB_PREFIX']}{k}" for k in range(first, first + int(settings["LAB_NODES"]))
    )
    return Lab(state, state / "shared", env, socket, names)
