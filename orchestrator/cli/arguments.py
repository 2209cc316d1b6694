"""Arguments shared by commands, and the types of their values."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SITE_HELP = (
    "site file (default: $ORCHESTRATOR_SITE, then ./site.yaml, then "
    "~/.config/orchestrator/site.yaml)"
)
MOST = 999_999_999
MOST_SPARES = 1000
MOST_SIDE_BY_SIDE = 999


def add_site(parser: ArgumentParser) -> None:
    parser.add_argument("--site", metavar="FILE", help=SITE_HELP)


def add_set(parser: ArgumentParser) -> None:
    """Add SET and --site, for commands about an existing set."""
    parser.add_argument(
        "set",
        metavar="SET",
        nargs="?",
        default="",
        help="a set's folder, its id, or the beginning or end of it (default: the newest set)",
    )
    add_site(parser)


def add_others(parser: ArgumentParser) -> None:
    """Add --others, for commands that execute files of a set, or end its job."""
    parser.add_argument(
        "--others",
        action="store_true",
        help=(
            "SET may be another user's, or hold files of theirs: what is in its bundle runs as you"
        ),
    )


RULESET_HELP = (
    "round whose rules count, such as 6.0.0, or own: the workload's own, no MLPerf benchmark"
)


def add_rules(parser: ArgumentParser) -> None:
    """Add the options that select the rules for logs."""
    parser.add_argument(
        "--ruleset",
        metavar="ROUND",
        default="",
        help=f"{RULESET_HELP} (default: what the set says, else by the date of the runs)",
    )
    parser.add_argument(
        "--workload",
        metavar="NAME|FILE",
        default="",
        help="logs of a workload that is no MLPerf benchmark: the document with its target and number of runs "
        "(default: what the set says)",
    )


def add_engine(parser: ArgumentParser) -> None:
    text = "local engine (default: the site's podman, else $DOCKER_HOST, else /var/run/docker.sock)"
    parser.add_argument("--engine", metavar="ADDRESS", default="", help=text)


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_system(parser: ArgumentParser, *, optional: bool = False) -> None:
    """Add SYSTEM, WORKLOAD, --round and --systems-dir, as finding.load_named() takes them.
    `optional`: "" without them."""
    many = "?" if optional else None
    text = "a name of `orchestrator systems`, the beginning of one, or a YAML file"
    parser.add_argument("system", metavar="SYSTEM", nargs=many, default="", help=text)
    parser.add_argument(
        "workload", metavar="WORKLOAD", nargs=many, default="", help="a workload of that system"
    )
    parser.add_argument(
        "--round", metavar="R", help="round, such as 6.0 (default: the newest the system has)"
    )
    add_systems_dir(parser)


def add_systems_dir(parser: ArgumentParser, default: object = ()) -> None:
    """Add --systems-dir, for every command that reads the catalogue. `default`:
    argparse.SUPPRESS in an action."""
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
    """Add the options of a new set. `spares`: another type of --spares."""
    add_system(parser)
    add_site(parser)
    parser.add_argument(
        "--nexp",
        metavar="N",
        type=positive,
        help="number of runs (default: what the rules require)",
    )
    parser.add_argument(
        "--env",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=assignment,
        help="a variable of the runs; wins over every document; may be repeated",
    )
    add_allocation(parser, spares)


def add_allocation(
    parser: ArgumentParser, spares_type: Callable[[str], object] | None = None
) -> None:
    parser.add_argument(
        "--spares",
        metavar="K",
        type=spares_type or spares,
        help="nodes to ask for beyond those of the system; one takes "
        "the place of a node that fails (default: the site's `spares`)",
    )
    parser.add_argument(
        "--side-by-side",
        metavar="K",
        type=side_by_side,
        help="runs that go on at once, each on nodes of its own: asks for K times the nodes of the system "
        "(default: the site's `side_by_side`)",
    )
    parser.add_argument(
        "--exclude",
        metavar="NODES|@FILE",
        default="",
        help="nodes not to use, such as node[1-4,7], beside the site's `exclude`; @FILE: one or more a line, "
        "as `orchestrator preflight` writes it",
    )

    parser.add_argument(
        "--sbatch",
        metavar="OPTION",
        action="append",
        default=[],
        type=sbatch_option,
        help=(
            "a further option for sbatch in one word (--sbatch=OPTION), beside the site's "
            "`sbatch`; may be repeated"
        ),
    )


def add_job(parser: ArgumentParser) -> None:
    """Add the options for the start of a job, as finding.job_words() takes them."""
    parser.add_argument(
        "--dependency",
        metavar="LIST",
        default="",
        help="as for sbatch, such as afterany:4711: start after other jobs",
    )
    parser.add_argument(
        "--begin", metavar="TIME", default="", help="as for sbatch, such as 22:00 or now+2hours"
    )


def sbatch_option(text: str) -> str:
    from orchestrator.model.fields import sbatch_problem

    if problem := sbatch_problem(text):
        raise ArgumentTypeError(problem)
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


def words(text: str) -> list[str]:
    """Split a command in one argument, quoted as for a shell."""
    from shlex import split

    try:
        found = split(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no command: {error}") from None
    if not found:
        raise ArgumentTypeError(f"{text!r} is no command")
    return found


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return value


def assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or not name.isascii():
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def spares(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > MOST_SPARES:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 0 to {MOST_SPARES}")
    return int(text)
