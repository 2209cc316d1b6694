"""A job that is longer than its partition allows is told before a set is made, with the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from controller_parts import Commands

from orchestrator.errors import ExitCode
from orchestrator.scheduler.slurm_times import minutes_of

Fake = Callable[[str, str], Path]
WHAT = ("MI325X_08x08x32", "flux1")  # 127 minutes a run: ten need 11 x 127 = 1397


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("infinite", None),
        ("UNLIMITED", None),
        ("30", 30),
        ("30:00", 30),
        ("0:30", 1),
        ("1:00:00", 60),
        ("1:00:01", 61),
        ("2-00:00:00", 2880),
        ("1-12", 2160),
        ("1-12:30", 2190),
    ],
)
def test_slurms_times(text: str, minutes: int | None) -> None:
    assert minutes_of(text) == minutes


@pytest.mark.parametrize("text", ["", "n/a", "1:2:3:4", "1d", "-5"])
def test_other_words_are_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        minutes_of(text)


@pytest.fixture
def submit(cli: Commands, fake: Fake, tmp_path: Path) -> Callable[..., Commands]:
    """`submit(sinfo's lines, *words, site=...)`, to a Slurm that takes every job."""
    (tmp_path / "sets").mkdir()
    fake("squeue", "true")
    fake("sbatch", "echo 17")

    def run(lines: str, *arguments: str, site: str = "partition: gpu\n") -> Commands:
        script = lines.removeprefix("SCRIPT") if lines[:6] == "SCRIPT" else f"printf '{lines}'"
        fake("sinfo", lines if lines.startswith("exit") else script)
        path = tmp_path / "site.yaml"
        path.write_text(
            f"kind: site\nlog_dir: {tmp_path}/sets\ndata: {{flux1: {{DATADIR: /data}}}}\n{site}"
        )
        return cli("submit", *WHAT, "--site", path, *arguments)

    return run


def test_too_long_a_job_is_refused_with_the_way_out(
    submit: Callable[..., Commands], fake: Fake, tmp_path: Path
) -> None:
    asked = fake("sbatch", "echo 17")
    for arguments in ((), ("--nexp", "10")):
        done = submit(r"gpu\x1f12:00:00\ngpu\x1f12:00:00\n", *arguments)
        assert done.code == ExitCode.BAD_INPUT
        assert (
            "partition gpu allows a job 12h at most, and 10 runs of flux1 need 23h17m" in done.err
        )
        assert (
            '`time_limit: "720"` in the site file: the job does the runs that fit (surely 4 of 10)'
            in done.err
        )
        assert "`orchestrator resume` does the others" in done.err
    assert list((tmp_path / "sets").iterdir()) == [] and not asked.exists()
    assert "--format=%N" not in (tmp_path / "bin/sinfo.calls").read_text()  # too long already
    # The dry run shows what would be asked, and warns.
    shown = submit(r"gpu\x1f12:00:00\n", "--dry-run")
    assert shown.code == ExitCode.OK and "sbatch --parsable" in shown.out
    assert "warning: partition gpu allows a job 12h at most" in shown.err
    assert list((tmp_path / "sets").iterdir()) == []
    # So does the submission that insists.
    forced = submit(r"gpu\x1f12:00:00\n", "--force")
    assert forced.code == ExitCode.OK and "--override time_limit=720" in forced.err
    assert "--force" not in forced.err, "what fixes it needs none"
    # The way out is one.
    assert (
        submit(r"gpu\x1f12:00:00\n", site='partition: gpu\ntime_limit: "720"\n').code == ExitCode.OK
    )
    assert submit(r"gpu\x1f12:00:00\n", "--nexp", "4").code == ExitCode.OK


def test_where_not_one_run_fits(submit: Callable[..., Commands]) -> None:
    assert "even one run may need more; name a partition" in submit(r"gpu\x1f2:00:00\n").err
    assert "1 run of flux1 needs 4h14m" in submit(r"gpu\x1f2:00:00\n", "--nexp", "1").err


def test_runs_side_by_side_need_less(submit: Callable[..., Commands]) -> None:
    """Ten runs, two at a time: 6 x 127 = 762 minutes."""
    site = "partition: gpu\nside_by_side: 2\n"
    assert submit(r"gpu\x1f12:42:00\n", site=site).code == ExitCode.OK
    done = submit(r"gpu\x1f12:41:00\n", site=site)
    assert (
        done.code == ExitCode.BAD_INPUT
        and "need 12h42m (6 x 127 min, one run in reserve)" in done.err
    )
    assert "surely 8 of 10" in done.err


def test_the_sites_own_limit_is_named(submit: Callable[..., Commands]) -> None:
    done = submit(r"gpu\x1f1-00:00:00\n", site="partition: gpu\ntime_limit: 2-00\n")
    assert done.code == ExitCode.BAD_INPUT and "the site's time_limit asks for 2d" in done.err


@pytest.mark.parametrize(
    ("lines", "site"),
    [
        ("exit 1", "partition: gpu\n"),
        (r"gpu\x1fsoon\n", "partition: gpu\n"),
        ("", "partition: gpu\n"),
        (r"gpu\x1finfinite\n", "partition: gpu\n"),
        (r"a\x1f1:00:00\nb\x1f3-00:00:00\n", "partition: 'a,b'\n"),
        (r"gpu\x1f1:00:00\nall*\x1finfinite\n", ""),
        (r"gpu\x1f1:00:00\n", "partition: gpu\nqos: long\n"),
        (r"gpu\x1f1:00:00\n", "partition: gpu\nsbatch: ['--qos=long']\n"),
    ],
    ids=[
        "no answer",
        "unclear",
        "no such",
        "no limit",
        "one of two",
        "the default",
        "a QOS",
        "an option",
    ],
)
def test_no_word_of_slurm_or_another_word_is_no_refusal(
    submit: Callable[..., Commands], lines: str, site: str
) -> None:
    done = submit(lines, site=site)
    assert done.code == ExitCode.OK, done.err


@pytest.mark.parametrize(
    ("nodes", "site", "words", "said"),
    [
        (7, "", (), "asks for 8 nodes (8 nodes for the runs), and the partition has 7\n"),
        (8, "", (), ""),
        (8, "", ("--exclude", "n3"), "the partition has 7 without the excluded n3\n"),
        (9, "exclude: [n3]\n", ("--exclude", "n[4-5],other"), "6 without the excluded n[3-5]\n"),
        (9, "spares: 2\n", (), "for 10 nodes (8 nodes for the runs, 2 spares), and the"),
        (15, "side_by_side: 2\n", (), "for 16 nodes (16 nodes for the runs), and the"),
    ],
)
def test_too_few_nodes_are_refused(
    submit: Callable[..., Commands],
    fake: Fake,
    nodes: int,
    site: str,
    words: tuple[str, ...],
    said: str,
) -> None:
    """As `sinfo` lists the partition's nodes; drained ones may come back."""
    listed = "".join(f"n{k}\x1fdrained\x1fgpu\x1fbad fan\n" for k in range(1, nodes + 1))
    answers = (
        f"case $* in *--Node*) printf '%s' '{listed}';; *) printf 'gpu\\x1finfinite\\n';; esac"
    )
    done = submit(f"SCRIPT{answers}", *words, site=f"partition: gpu\n{site}")
    assert (done.code == ExitCode.BAD_INPUT) == bool(said), done.err
    assert said in done.err
    for word in ("--spares", "--side-by-side", "exclude"):
        mentioned = word.lstrip("-").replace("-", "_") in site or (
            word == "exclude" and bool(words)
        )
        hint = done.err.partition("hint:")[2].partition("\n")[0]
        assert (word in hint) == (bool(said) and mentioned)


def test_the_default_partition_counts_where_none_is_named(submit: Callable[..., Commands]) -> None:
    assert (
        "partition all allows a job 1h at most"
        in submit(r"gpu\x1finfinite\nall*\x1f1:00:00\n", site="").err
    )
