"""Arguments shared by commands, and their types."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path

TYPE_CHECKING = False  # importing typing is slow
if TYPE_CHECKING:
    from argparse import _ArgumentGroup
    from collections.abc import Callable, Iterable
    from typing import Any

    Arguments = ArgumentParser | _ArgumentGroup

SITE_HELP = (
    "site file (default: $ORCHESTRATOR_SITE, then ./site.yaml, then "
    "~/.config/orchestrator/site.yaml)"
)
SET_HELP = "a set's folder, its id, a unique prefix or suffix of it, or its name"
MOST = 999_999_999
MOST_SPARES = 1000
MOST_SIDE_BY_SIDE = 999
MOST_LABEL = 60


def add_flag(parser: Arguments, names: str, help: str) -> None:
    """`names`: such as "-f --follow"."""
    parser.add_argument(*names.split(), action="store_true", help=help)


def add_option(parser: Arguments, names: str, metavar: str, help: str, **more: Any) -> None:
    parser.add_argument(*names.split(), metavar=metavar, help=help, **more)


def add_text(parser: Arguments, names: str, metavar: str, help: str) -> None:
    add_option(parser, names, metavar, help, default="")


def add_number(
    parser: Arguments, names: str, metavar: str, help: str, default: int | None = None
) -> None:
    add_option(parser, names, metavar, help, default=default, type=positive)


def add_choice(
    parser: Arguments, names: str, choices: Iterable[str], help: str, default: str | None = ""
) -> None:
    parser.add_argument(*names.split(), choices=choices, help=help, default=default)


def add_operands(
    parser: Arguments, name: str, metavar: str, nargs: str, help: str, default: Any = None
) -> None:
    """Add positional arguments. `nargs`: ?, * or +."""
    parser.add_argument(name, metavar=metavar, nargs=nargs, help=help, default=default)


def add_action(parser: ArgumentParser, actions: Iterable[str]) -> None:
    """Add the first word of a command with actions."""
    metavar = "|".join(actions)
    parser.add_argument("action", choices=tuple(actions), metavar=metavar, help="the action")


def add_site(parser: ArgumentParser) -> None:
    add_option(parser, "--site", "FILE", SITE_HELP)


def add_set(parser: ArgumentParser, default: str = "default: the newest set") -> None:
    """Add SET and --site."""
    add_operands(parser, "set", "SET", "?", f"{SET_HELP} ({default})", "")
    add_site(parser)


def add_set_and_json(parser: ArgumentParser) -> None:
    add_set(parser)
    add_json(parser)


def add_others(parser: ArgumentParser, risk: str = "the files of its bundle run as you") -> None:
    """Add --others, for commands that execute a set's files, or end its job."""
    add_flag(parser, "--others", f"SET may be another user's, or hold files of theirs: {risk}")


RULESET_HELP = (
    "round whose rules count, such as 6.0.0, or own: the workload's own, no MLPerf benchmark"
)


def add_rules(parser: ArgumentParser) -> None:
    add_text(
        parser,
        "--ruleset",
        "ROUND",
        f"{RULESET_HELP} (default: as in the set, else by the date of the runs)",
    )
    add_text(
        parser,
        "--workload",
        "NAME|FILE",
        "logs of a workload outside MLPerf: the document with its target and "
        "number of runs (default: as in the set)",
    )


def add_engine(parser: ArgumentParser) -> None:
    text = "local engine (default: the site's podman, else $DOCKER_HOST, else /var/run/docker.sock)"
    add_text(parser, "--engine", "ADDRESS", text)


def add_json(parser: ArgumentParser) -> None:
    add_flag(parser, "--json", "print JSON instead of text")


def add_system(parser: ArgumentParser, *, optional: bool = False) -> None:
    """Add SYSTEM, WORKLOAD, --round and --systems-dir, for finding.load_named(). `optional`: a
    missing SYSTEM is None."""
    many = "?" if optional else None
    text = "a name of `orchestrator systems`, its unique prefix, or a YAML file"
    parser.add_argument("system", metavar="SYSTEM", nargs=many, default=None, help=text)
    text = "a workload of that system; without it, the error lists them"
    add_operands(parser, "workload", "WORKLOAD", "?", text, "")
    add_option(parser, "--round", "R", "round, such as 6.0 (default: the newest the system has)")
    add_systems_dir(parser)


def add_systems_dir(parser: ArgumentParser, default: object = ()) -> None:
    """Add --systems-dir. `default`: argparse.SUPPRESS in an action."""
    parser.add_argument(
        "--systems-dir",
        metavar="DIR",
        action="append",
        type=Path,
        default=list(default) if isinstance(default, tuple) else default,
        help=(
            "a folder with descriptors of your own; searched before the site's systems_dirs; may "
            "be repeated"
        ),
    )


def add_entry(parser: ArgumentParser, spares: Callable[[str], object] | None = None) -> None:
    """Add the options of a new set. `spares`: another type for --spares."""
    add_system(parser)
    add_site(parser)
    add_number(parser, "--nexp", "N", "number of runs (default: as many as the rules require)")
    add_environment(parser, "wins over every document; ")
    add_override(parser)
    add_allocation(parser, spares)


def add_request(parser: ArgumentParser) -> None:
    """Add the options of a submitted set."""
    add_entry(parser)
    add_job(parser)
    add_label(parser)
    add_force(parser)
    add_json(parser)


def add_environment(parser: ArgumentParser, precedence: str = "") -> None:
    parser.add_argument(
        "--env",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=assignment,
        help=f"a variable of the runs; {precedence}may be repeated",
    )


def add_override(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--override",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=site_value,
        help=(
            "a key of the site file with another value for this command, such as partition=batch "
            "or "
            "data.flux1.DATADIR=/data/flux1; may be repeated"
        ),
    )


def add_allocation(
    parser: ArgumentParser, spares_type: Callable[[str], object] | None = None
) -> None:
    add_option(
        parser,
        "--spares",
        "K",
        "nodes to ask for beyond those of the system; one takes "
        "the place of a node that fails (default: the site's `spares`)",
        type=spares_type or spares,
    )
    add_option(
        parser,
        "--side-by-side",
        "K",
        "runs at once, each on its own nodes: asks for K times the nodes "
        "of the system (default: the site's `side_by_side`)",
        type=side_by_side,
    )
    add_text(
        parser,
        "--exclude",
        "NODES|@FILE",
        "nodes not to use, such as 'node[1-4,7]', in addition to the site's `exclude`; @FILE: one "
        "or more a line, as `orchestrator doctor` writes it",
    )
    parser.add_argument(
        "--sbatch",
        metavar="OPTION",
        action="append",
        default=[],
        type=sbatch_option,
        help=(
            "a further option for sbatch in one word (--sbatch=OPTION), in addition to the site's "
            "`sbatch`; may be repeated"
        ),
    )


def add_wait(parser: ArgumentParser) -> None:
    text = "wait until the job has ended; exit code 0 if every run is final"
    add_flag(parser, "--wait", text)


def add_interval(parser: ArgumentParser) -> None:
    add_option(
        parser,
        "--interval",
        "S",
        "seconds between two reads of the set's files (default: from the length of the runs)",
        type=seconds,
    )


def add_job(parser: ArgumentParser) -> None:
    """Add the options of a job's start, for finding.job_options()."""
    add_text(
        parser,
        "--dependency",
        "LIST",
        "as for sbatch, such as afterany:4711: start after other jobs",
    )
    add_text(parser, "--begin", "TIME", "as for sbatch, such as 22:00 or now+2hours")


def add_force(parser: ArgumentParser) -> None:
    add_flag(parser, "--force", "submit it despite a failed check")


def add_label(parser: ArgumentParser) -> None:
    add_option(
        parser,
        "--name",
        "TEXT",
        "a name for the set, such as 'new bios': commands show it, and take it as SET",
        dest="label",
        type=label,
    )


def label(text: str) -> str:
    if not text.strip() or len(text) > MOST_LABEL or not text.isprintable():
        raise ArgumentTypeError(f"{text!r} is not one line of 1 to {MOST_LABEL} characters")
    return text.strip()


def sbatch_option(text: str) -> str:
    from orchestrator.model.fields import sbatch_problem

    if problem := sbatch_problem(text):
        raise ArgumentTypeError(problem)
    return text


def time_limit(text: str) -> str:
    from orchestrator.scheduler.slurm_times import minutes_of

    try:
        minutes = minutes_of(text)
    except ValueError:
        minutes = 0
    if minutes == 0:  # to sbatch no limit
        raise ArgumentTypeError(f"{text!r} is not a time such as 480, 8:00:00 or 1-12")
    return text


def side_by_side(text: str) -> int:
    if positive(text) > MOST_SIDE_BY_SIDE:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MOST_SIDE_BY_SIDE}")
    return int(text)


def positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    if int(text) > MOST:
        raise ArgumentTypeError(f"{text!r} is above {MOST}")
    return int(text)


def split_command(text: str) -> list[str]:
    """Split a command, quoted as for a shell."""
    from shlex import split

    try:
        argv = split(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no command: {error}") from None
    if not argv:
        raise ArgumentTypeError(f"{text!r} is no command")
    return argv


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return value


def minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise ArgumentTypeError(f"{text!r} is not a time in minutes")
    return value


def assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or not name.isascii():
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def site_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not all(part.isprintable() and part for part in key.split(".")):
        raise ArgumentTypeError(f"{text!r} is not KEY=VALUE, such as container.pull=missing")
    return key, value


def spares(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > MOST_SPARES:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 0 to {MOST_SPARES}")
    return int(text)
