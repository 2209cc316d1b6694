"""The ten commonest first failures on a real cluster: what was typed, the last lines, and the fix pasted into a shell.

Every command that shows the failure ends in at most three lines, and the last of them is a command that works. Those that show the
set say the same three. The table at the end of the test's output has them all (`pytest -s`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from command_line import call
from run_sets import Set
from until import until

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab
TOP = Path(__file__).resolve().parents[2]
IMAGE = "rocm/amd-mlperf:flux1_training_6.0"
SYSTEM = "MI300X_02x08x32"
ONE = f"orchestrator submit {SYSTEM} flux1 --nexp 1"
ALL = "orchestrator submit MI325X_08x08x32 flux1 --nexp 1"
"""On all nodes of the lab; its jobs are cancelled."""
HERE = "orchestrator run MI300X_01x08x32 flux1 --nexp 1 --site local.yaml"
"""On this host alone: Slurm keeps the groups of a user for ten minutes."""
PLAIN = re.compile(r"[\w ./:=,@%+-]+")
"""A line of one command that bash splits at its spaces and leaves as it is: it needs no bash, and no process."""
NOBODY = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--init-groups"),
    # The checkout may be in a private folder, such as /root.
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)


class Shell:
    """A folder with a site file, and a shell in it that knows `orchestrator`."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.table: list[tuple[str, list[str], str, str]] = []
        self.job = ""
        """The newest job."""
        bin_ = folder / "bin"
        bin_.mkdir()
        # For every user: the one of the virtual environment may lie in a folder of root's.
        python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
        (bin_ / "orchestrator").write_text(f'#!/bin/sh\nexec {python} -m orchestrator "$@"\n')
        # The lab is the machine of root, who needs none.
        (bin_ / "sudo").write_text(
            '#!/bin/sh\nif [ "$(id -u)" != 0 ]; then echo "sudo: a password is required" >&2; exit 1; fi\nexec "$@"\n'
        )
        for program in bin_.iterdir():
            program.chmod(0o755)
        self.env = {
            **lab.env,
            "HOME": str(folder),
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "PYTHONPATH": f"{TOP}:{sysconfig.get_path('purelib')}",
        }

    def __call__(self, command: str, prefix: tuple[str, ...] = ()) -> tuple[int, list[str]]:
        """Run a line as it is typed; return its exit code and its lines, standard error last."""
        program, *arguments = command.split()
        if program == "orchestrator" and not prefix and PLAIN.fullmatch(command):
            done = call(arguments, self.env, cwd=self.folder)
        else:
            done = subprocess.run(
                [*prefix, "bash", "-c", command],
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=300,
            )
        text = done.stdout + done.stderr
        assert "Traceback" not in text, text
        for self.job in re.findall(r"(?m)^job  (\d+)$", text):
            pass
        return done.returncode, text.rstrip("\n").split("\n")

    def last_lines(self, typed: str, prefix: tuple[str, ...] = ()) -> tuple[int, list[str]]:
        """Type a command that fails, and return its last lines: from its message or reason on."""
        code, lines = self(typed, prefix)
        start = max(
            (
                number
                for number, line in enumerate(lines)
                if re.match(r"orchestrator \w+: |why: |\S+ is \w+: |warning: the job will", line)
            ),
            default=0,
        )
        # Of `explain` the evidence between its sentence and the fix does not count.
        closing = [line for line in lines[start:] if not re.match(r"  (\S+:-?\d+|squeue): ", line)]
        return code, closing

    def failure(
        self,
        typed: str,
        cause: str,
        *,
        code: int = 2,
        prefix: tuple[str, ...] = (),
        pasted_by: tuple[str, ...] | None = None,
        shown: Callable[[], str] | None = None,
    ) -> list[str]:
        """Type, look at the last lines, paste the last of them; return what that printed.

        `shown`: asks before the fix for the command of those that show the set.
        """
        said, lines = self.last_lines(typed, prefix)
        assert said == code, lines
        assert len(lines) <= 3 and re.search(cause, " ".join(lines)), lines
        fix = lines[-1]
        assert fix.startswith("  ") and "hint:" not in fix, lines
        assert shown is None or shown() == fix
        done, result = self(fix, prefix if pasted_by is None else pasted_by)
        assert done == 0, (fix, result)
        self.table.append((typed, lines, fix.strip(), result[0]))
        return result

    def alike(
        self,
        cause: str,
        prefix: tuple[str, ...] = (),
        *,
        site: str = "site.yaml",
        results: str = "results",
        waits: bool = False,
    ) -> str:
        """Return the command in which all that show the newest set end, after the same sentence and fix.

        `waits`: the set's job waits, so `watch` is left after its first picture.
        """
        option = "" if site == "site.yaml" else f" --site {site}"
        watch = f"orchestrator watch{option}"
        closings = set()
        for typed in (
            f"orchestrator status $(ls -td {results}/*-* | head -1){option}",
            f"orchestrator status{option}",
            f"sed '/^  /q' <(exec {watch} 2>&1); kill $!" if waits else watch,
            f"orchestrator explain{option}",
        ):
            _, lines = self.last_lines(typed, prefix)
            assert len(lines) <= 3 and re.search(cause, " ".join(lines)), (typed, lines)
            assert lines[-1].startswith("  "), (typed, lines)
            sentence = re.sub(
                r"why: |\S+ (?:is \w+|failed|ended at its time limit): ", "", lines[0], count=1
            )
            if waits:  # Slurm's own words, which change while the job waits
                sentence = re.sub(r" \(.*\)$", "", sentence)
            closings.add((sentence, *lines[1:]))
        assert len(closings) == 1, closings
        [(*_, command)] = closings
        return command

    def insist(self, typed: str) -> None:
        """Submit with --force what is refused; the warning is the refusal's sentence and command."""
        _, refused = self.last_lines(typed)
        message = refused[0].removeprefix("orchestrator submit: ")
        code, lines = self(f"{typed} --force")
        warned = lines.index(f"warning: {message}")
        assert lines[warned + 1] == refused[-1], lines
        assert code == 0 and any(line.startswith("job  ") for line in lines), lines

    def write(self, name: str, change: Callable[[dict[str, object]], object]) -> None:
        site = yaml.safe_load(self.lab.run(TOP / "lab/site").stdout)
        site["log_dir"] = str(self.folder / "results")
        change(site)
        (self.folder / name).write_text(yaml.safe_dump(site))

    def wait(self, state: str = "complete") -> None:
        """Wait until the newest set is in a state; while its job lives, ask nothing."""
        until(lambda: self.lab.has_ended(self.job))
        self.lab.free()
        until(lambda: self("orchestrator status")[1][1].split()[1] == state)

    def cancel(self) -> None:
        """End the newest job, mostly before it starts: other tests run sets like it to their end.

        A started job writes until its end: its set would stay the newest after the next is made.
        """
        self.lab.run("scancel", self.job)
        until(lambda: self.job not in self.lab.queue())


@pytest.fixture(scope="module")
def shell(lab: Lab) -> Iterator[Shell]:
    folder = lab.shared / f"failures-{os.getpid()}"
    (folder / "results").mkdir(parents=True)
    made = Shell(lab, folder)
    made.write("site.yaml", lambda site: None)
    os.environ.pop("ORCHESTRATOR_SITE", None)
    yield made
    print("\n| typed | lines seen | fix pasted | result |\n|---|---|---|---|")
    for typed, lines, fix, result in made.table:
        cells = (f"`{typed}`", "<br>".join(map(str.strip, lines)), f"`{fix}`", result)
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    shutil.rmtree(folder)


# ---- known before the job ----


def test_data_not_set(shell: Shell) -> None:
    shell.write("unset.yaml", lambda site: site["data"].pop("flux1"))  # type: ignore[attr-defined]
    typed = f"{ONE} --site unset.yaml"
    result = shell.failure(typed, "names no folder for data.flux1.DATADIR")
    assert result[0].startswith("set  ") and result[1].startswith("job  ")
    shell.cancel()
    # The dry run shows the request all the same; and who insists learns it from the nodes.
    code, lines = shell(f"{typed} --dry-run")
    assert code == 0 and any("sbatch --parsable" in line for line in lines), lines
    assert any(line.startswith("warning: the site file names no folder") for line in lines)
    shell.insist(typed)
    shell.wait("failed")
    fix = shell.alike("both nodes: the site file names no folder")
    assert shell(fix)[0] == 0
    shell.wait()


@pytest.mark.long
def test_data_not_set_and_no_folder_near(shell: Shell) -> None:
    """The data are where only the user knows: the command asks, and the site file keeps the answer."""
    shell.write("asks.yaml", lambda site: site.pop("data"))
    typed = f"{ONE} --site asks.yaml"
    code, lines = shell.last_lines(typed)
    assert code == 2 and len(lines) == 3, lines
    assert "names no folder for data.flux1.DATADIR" in lines[0]
    asking = "orchestrator config --set data.flux1.DATADIR --site asks.yaml"
    assert lines[-1] == f"  {asking} && {typed}"
    answer = shell.lab.shared / "data/flux1"
    done, result = shell(f"{{ {lines[-1]}; }} <<<{answer}")
    assert done == 0 and any(line.startswith("job  ") for line in result), result
    shell.table.append((typed, lines, lines[-1].strip(), result[0]))
    shell.cancel()
    site = yaml.safe_load((shell.folder / "asks.yaml").read_text())
    assert site["data"] == {"flux1": {"DATADIR": str(answer)}}
    # Nothing is asked again. Without an answer nothing is set, and nothing submitted.
    assert shell(f"{typed} --dry-run")[0] == 0
    code, result = shell(f"{asking} && {typed}")
    assert code == 2 and "no value was given" in " ".join(result), result
    # The nodes' failure of a set that was submitted all the same ends in the same command.
    shell.write("asks.yaml", lambda site: site.pop("data"))
    shell.insist(typed)
    shell.wait("failed")
    fix = shell.alike("the site file names no folder", site="asks.yaml")
    assert fix.startswith(f"  {asking} && orchestrator submit ")


def test_data_folder_missing(shell: Shell) -> None:
    data = shell.lab.shared / "data"
    typed = f"{ONE} --override data.flux1.DATADIR={data}/flux"
    shell.failure(typed, f'{data}/flux .* does not exist; did you mean "{data}/flux1"')
    shell.cancel()
    shell.insist(typed)
    shell.wait("failed")
    assert shell(shell.alike("both nodes: a folder of the data does not exist"))[0] == 0
    shell.cancel()


def test_wrong_partition(shell: Shell) -> None:
    typed = f"{ONE} --override partition=bach"
    shell.failure(typed, 'no partition bach; did you mean "batch"')
    shell.cancel()
    # Slurm itself refuses it to who insists: no set stays to be shown.
    before = os.listdir(shell.folder / "results")
    shell.failure(f"{typed} --force", "Slurm refused the job: .*[Ii]nvalid partition", code=3)
    assert os.listdir(shell.folder / "results") == before


@pytest.mark.long
def test_too_few_nodes_left(shell: Shell) -> None:
    first = shell.lab.nodes[0]
    shell.failure(f"{ALL} --exclude {first}", f"the partition has 7 without the excluded {first}")
    shell.cancel()
    # The job that nobody can start: Slurm's reason, while it still knows the job.
    shell.insist(f"{ALL} --exclude {first}")
    shell.wait("lost")
    assert shell(shell.alike("no node has the requested resources"))[0] == 0
    shell.cancel()


@pytest.mark.long
def test_time_limit_of_the_partition(shell: Shell) -> None:
    short = "scontrol create partition=short nodes=ALL maxtime=60"
    assert shell(short)[0] == 0
    try:
        typed = f"{ONE} --override partition=short"
        result = shell.failure(typed, "partition short allows a job 1h at most")
        assert result[1].startswith("job  ")
        shell.cancel()
        shell.insist(typed)
        fix = shell.alike("more nodes or time than the partition allows", waits=True)
        done, result = shell(fix)
        assert done == 0 and any("short" in line for line in result), result
    finally:
        shell("orchestrator cancel; scontrol delete partition=short")


def test_drained_node(shell: Shell) -> None:
    node = shell.lab.nodes[2]
    assert shell(f"scontrol update nodename={node} state=drain reason='bad fan'")[0] == 0
    try:
        code, lines = shell.last_lines(ALL)
        assert code == 0 and f"7 can be used now ({node} is drained: bad fan)" in lines[0], lines
        shown = f"  sinfo --list-reasons --nodes={node}"
        assert lines[-1] == shown, "nothing that undoes the drain"
        until(lambda: "drained" in shell("orchestrator explain")[1][0])
        assert shell.alike("down, drained or reserved", waits=True) == lines[-1]
        done, result = shell(lines[-1])
        assert done == 0 and any("bad fan" in line for line in result), result
        shell.table.append((ALL, lines, lines[-1].strip(), result[-1]))
    finally:
        shell.cancel()
        assert shell(f"scontrol update nodename={node} state=resume")[0] == 0


# ---- known by the nodes ----


def test_image_missing(shell: Shell) -> None:
    """All nodes of the lab have one engine; the tar on shared storage has the image."""
    engine = "docker"
    assert shell(f"orchestrator images pull {SYSTEM} flux1")[0] == 0
    shell(f"{engine} tag {IMAGE} kept:1 && {engine} rmi {IMAGE}")
    try:
        code, lines = shell.last_lines(ONE.replace("submit", "run"))
        assert code == 1 and "both nodes: the image is not on the node" in lines[0], lines
        assert lines[-1] == shell.alike("both nodes: the image is not on the node")
        assert "images distribute" in lines[-1] and len(lines) == 3
        done, result = shell(lines[-1])
        assert done == 0, result
        shell.wait()
        shell.table.append((ONE, lines, lines[-1].strip(), result[-1]))
    finally:
        shell(f"{engine} tag kept:1 {IMAGE}; {engine} rmi kept:1")


@contextmanager
def users_place(shell: Shell, name: str) -> Iterator[None]:
    """A folder of results for an ordinary user, on this host alone."""
    results = shell.folder / name
    results.mkdir()
    os.chown(results, 65534, 65534)

    def change(site: dict[str, object]) -> None:
        site |= {"scheduler": "local", "log_dir": str(results)}

    shell.write("local.yaml", change)
    yield


@contextmanager
def membership(shell: Shell, user: str, group: str) -> Iterator[None]:
    """Take a user out of a group of the machine in the end; if this process is killed, lab/down or the next test does."""
    record = shell.lab.state / "members"
    leave = f"gpasswd --delete {user} {group}"
    if record.exists():
        shell(leave)
    assert group not in shell(f"id -nG {user}")[1][0].split()
    record.write_text(f"{group} {user}\n")
    try:
        yield
    finally:
        shell(leave)
        record.unlink()


def test_not_in_the_docker_group_then_without_sudo(shell: Shell) -> None:
    """An ordinary user: the engine's socket belongs to root and its group."""
    refused, rootless = "this user may not use the container engine", "host settings need root"

    def shown(cause: str) -> str:
        return shell.alike(cause, NOBODY, site="local.yaml", results="of-a-user")

    with users_place(shell, "of-a-user"), membership(shell, "nobody", "docker"):
        shell.failure(
            HERE, refused, code=1, prefix=NOBODY, pasted_by=(), shown=lambda: shown(refused)
        )
        # Now the engine answers, and host settings need root.
        result = shell.failure(HERE, rootless, code=1, prefix=NOBODY, shown=lambda: shown(rootless))
        assert result[0].startswith("set  "), result
        run_set = Set(Path(result[0].split()[1]))
        until(lambda: any(job["ended_ms"] for job in run_set.jobs()))
        assert "complete" in shell("orchestrator status --site local.yaml", NOBODY)[1][1]


def test_full_disk(shell: Shell) -> None:
    """The file system of the sets is full before the set is made, and when its nodes check it."""
    small = shell.folder / "small"
    small.mkdir()
    assert shell(f"mount -t tmpfs -o size=2m none {small}")[0] == 0
    try:
        shell.write("small.yaml", lambda site: site.update(log_dir=str(small)))
        shell("head -c 4m /dev/zero >small/filler")
        typed = f"{ONE} --site small.yaml"
        result = shell.failure(typed, "No space left on device", code=5)
        assert any("filler" in line for line in result), result
        _, refused = shell.last_lines(typed)
        shell("rm small/*")
        # There is room for the set, and for no run.
        code, lines = shell(f"{typed} --wait")
        assert code == 5 and any(line.startswith("job  ") for line in lines), lines
        fix = shell.alike("both nodes: a file system is full", site="small.yaml", results="small")
        assert fix == refused[-1]
        done, result = shell(fix)
        assert done == 0 and any("flux1" in line for line in result), result
    finally:
        shell.lab.free()  # the job's output is open until the job is over
        assert shell(f"umount {small}")[0] == 0


# ---- what the fixes rely on ----


def test_images_and_settings_are_reached_through_slurm(shell: Shell) -> None:
    """Idle nodes, lent for the time of the command: no SSH, and no job that stays."""
    first, second = shell.lab.nodes[:2]
    code, lines = shell("orchestrator images check MI325X_08x08x32 flux1")
    assert code == 0 and lines[-1].startswith(f"{IMAGE}: all 8 nodes have "), lines
    shell.lab.free()  # Slurm shows those of a job that just ended as in use for a moment
    code, lines = shell(f"orchestrator tune status --nodes {first},{second}")
    assert code == 0 and "(2 hosts)" in lines[0], lines
    assert shell("squeue --noheader --states=PD,R")[1] == [""]
    shell.lab.free()
    assert shell(f"scontrol update nodename={second} state=drain reason='bad fan'")[0] == 0
    try:
        code, lines = shell(
            f"orchestrator images check MI325X_08x08x32 flux1 --nodes {first},{second}"
        )
        assert code == 4 and any("drained: bad fan" in line for line in lines), lines
    finally:
        assert shell(f"scontrol update nodename={second} state=resume")[0] == 0


def test_the_lab_brings_back_a_stand_in_that_was_removed(shell: Shell) -> None:
    other = "rocm/amd-mlperf:llama31_8b_training_6.0"
    assert shell(f"docker rmi {other}")[0] == 0
    assert shell(f"{TOP}/lab/image")[0] == 0
    assert shell(f"docker image inspect {other}")[0] == 0
