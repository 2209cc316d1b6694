"""A live view of a set until it ends: the whole screen on a terminal, otherwise one line per
change.

The screen shows the progress of the set and its runs, their expected ends, evaluations against the
target and samples per second as small curves, the published time to beat, the age of the last log
line, the nodes and the warnings. Keys: l logs, n nodes, w warnings, e explain, ? keys, q detach.
One summary stays on the terminal afterwards. --json prints an object per line for every change.
--all shows every active set of the site's log directory, until none is active.

q and Ctrl-C end the view, never the job. Exit code 0 if every run of the set is final, 5 if it
ended before that.

example:
  orchestrator watch                                 # the newest set
  orchestrator watch MI325X_08x08x32-flux1-20261121 --interval 10
  orchestrator watch --all
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator.cli.arguments import add_flag, add_interval, add_set_and_json
from orchestrator.cli.command import Command
from orchestrator.cli.finding import chosen_set, log_dir_of, need_site, scheduler_of
from orchestrator.cli.output import (
    is_terminal,
    note,
    print_closing,
    print_json,
    print_parts,
    screen,
)
from orchestrator.errors import ExitCode, UsageError
from orchestrator.words import MISSING, local_clock, local_time, quoted

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.cli.fullscreen import FullScreen
    from orchestrator.evidence.picture import SetPicture
    from orchestrator.evidence.sets import RunSet
    from orchestrator.views.parts import Part

VIEWS = {
    "l": ("logs", "the newest lines of the active run's log, else of the job's output"),
    "n": ("nodes", "per-node results: runs, times, excluded nodes"),
    "w": ("warnings", "all warnings and damaged files"),
    "e": ("explain", "why the set is in its state, with the evidence and the next command"),
    "?": ("keys", "this list"),
}
"""Key -> name and content of the view below the facts; the same key again shows the runs."""
DETACH = ("q", "detach", "leave the screen; the job keeps running")
LOG_BYTES = 32 * 1024
"""Read from a log's end."""
VOLATILE = ("elapsed_s", "left_s", "seconds", "silent_s", "quiet_s")
"""Members of a picture and its runs that change only with time."""


def add_arguments(parser: ArgumentParser) -> None:
    add_set_and_json(parser)
    add_interval(parser)
    add_flag(parser, "--all", "every running set, not a single one")


def run(args: Namespace) -> int:
    if args.all:
        return _all(args)
    run_set = chosen_set(args)
    try:
        if args.json:
            changes = Changes(as_json=True)
            for picture in _looks(run_set, args.interval)(time.sleep):
                changes.show(picture)
        else:
            picture = watch(run_set, args.interval, summary=True, site=args.site)
    except KeyboardInterrupt:
        come_back(run_set, args.site)
        return ExitCode.INTERRUPTED
    return ExitCode.OK if picture.state == "complete" else ExitCode.SET_STATE


def watch(
    run_set: RunSet,
    interval_s: float | None,
    *,
    out: TextIO | None = None,
    summary: bool = False,
    site: str | None = None,
) -> SetPicture:
    """Show the set until it ends; return its last picture. Without a terminal, lines go to `out`.
    `summary`: leave the last screen, else a line."""
    looks = _looks(run_set, interval_s)
    if is_terminal() and out is None:
        return _live(run_set, looks, summary, site)
    picture = _lines(looks(time.sleep), out or sys.stdout, site)
    if summary:
        from orchestrator.cli.closing import closing_lines

        print_closing(closing_lines(picture, site))
    return picture


def _looks(
    run_set: RunSet, interval_s: float | None
) -> Callable[[Callable[[float], None]], Iterator[SetPicture]]:
    from orchestrator.evidence.watch import Watch

    return Watch(run_set, scheduler_of(run_set), interval_s).pictures


def wait(run_set: RunSet, site: str | None) -> int:
    """Wait until the set ends, without output before. Return an exit code."""
    from orchestrator.cli.closing import end_lines, with_short_name

    try:
        *_, picture = _looks(run_set, None)(time.sleep)
    except KeyboardInterrupt:
        come_back(run_set, site)
        return ExitCode.INTERRUPTED
    score = f"orchestrator score {quoted(picture.root)}"
    score = with_short_name(score, picture.root, site)
    for line in end_lines(picture, site) or [f"complete: {picture.meaning}", f"  {score}"]:
        note(line)
    return ExitCode.OK if picture.state == "complete" else ExitCode.SET_STATE


def come_back(run_set: RunSet, site: str | None = None) -> None:
    from orchestrator.cli.closing import with_short_name

    root = run_set.layout.root
    watch, cancel = (
        with_short_name(f"orchestrator {name} {quoted(root)}", root, site)
        for name in ("watch", "cancel")
    )
    note(f"\ndetached; the job keeps running\n  reattach: {watch}\n  cancel: {cancel}")


# ---- lines and objects ----


def _lines(pictures: Iterator[SetPicture], out: TextIO, site: str | None) -> SetPicture:
    from orchestrator.cli.closing import closing_lines
    from orchestrator.evidence.state import QUEUED
    from orchestrator.views.sets import headline, left_text, unfit_facts
    from orchestrator.words import cell

    before = ""
    shown: set[tuple[str, str]] = set()
    for picture in pictures:
        for fact in unfit_facts(picture):
            if fact not in shown:
                print(f"{local_clock()}  {fact[0]} {cell(fact[1])}", file=out, flush=True)
            shown.add(fact)
        line = headline(picture)
        if line != before:
            left = left_text(picture)
            print(
                f"{local_clock()}  {cell(line)}" + (f"  {left}" if left else ""),
                file=out,
                flush=True,
            )
            before = line
            if picture.state in QUEUED:
                for text in closing_lines(picture, site):
                    print(cell(text), file=out, flush=True)
    return picture


class Changes:
    """Prints changed pictures: as JSON lines, or as named headlines."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._before: dict[str, Any] = {}

    def show(self, picture: SetPicture) -> None:
        from orchestrator.evidence.picture import as_json
        from orchestrator.views.sets import headline
        from orchestrator.words import cell

        document = as_json(picture) if self._as_json else {}
        lasting = _lasting(document) if self._as_json else cell(headline(picture))
        if self._before.get(str(picture.root)) == lasting:
            return
        self._before[str(picture.root)] = lasting
        if self._as_json:
            print_json("set", document, indent=None)
        else:
            print(f"{local_clock()}  {cell(picture.root.name)}  {lasting}", flush=True)


def _lasting(document: dict[str, Any]) -> dict[str, Any]:
    runs = [
        {name: value for name, value in run.items() if name not in VOLATILE}
        for run in document["runs"]
    ]
    return {name: value for name, value in document.items() if name not in VOLATILE} | {
        "runs": runs
    }


# ---- the screen ----


class View:
    """The screen, the last picture, and the view chosen by keys."""

    def __init__(self, full: FullScreen, draw: Callable[[View], list[str]], keys: str) -> None:
        self.full = full
        self.draw = draw
        self.keys = keys
        self.chosen = ""

    def show(self) -> None:
        from orchestrator.cli.frame import cropped

        width, height = self.full.size
        lines = self.draw(self)[: height - 1]
        lines += [""] * (height - 1 - len(lines))
        self.full.show([*lines, cropped(screen().paint(self.keys, "2"), width)])

    def pause(self, seconds: float) -> None:
        self.full.wait(seconds, self._on_key)

    def _on_key(self, key: str) -> None:
        if key in ("q", "\x04"):
            raise KeyboardInterrupt
        if key in VIEWS:
            self.chosen = "" if self.chosen == key else key
        self.show()


def _live(
    run_set: RunSet,
    looks: Callable[[Callable[[float], None]], Iterator[SetPicture]],
    summary: bool,
    site: str | None,
) -> SetPicture:
    from orchestrator.cli.frame import one_set
    from orchestrator.cli.fullscreen import full_screen

    last: list[SetPicture] = []
    waiting, explained = WaitReason(site), Explained(site)

    def draw(view: View) -> list[str]:
        below = _below(run_set, last[-1], view, explained)
        return one_set(last[-1], screen(), view.full.size[1] - 1, below, waiting.why(last[-1]))

    try:
        with full_screen() as full:
            view = View(full, draw, _keys())
            for picture in looks(view.pause):
                last[:] = [picture]
                view.show()
    finally:
        if last:
            _sum_up(last[-1], summary, site)
    return last[-1]


class WaitReason:
    """The fix for the reason why a set waits, computed anew only if the reason changes."""

    def __init__(self, site: str | None) -> None:
        self._site = site
        self._known: tuple[tuple[str, str], list[str]] = (("", ""), [])

    def why(self, picture: SetPicture) -> list[str]:
        from orchestrator.cli.closing import closing_lines
        from orchestrator.evidence.state import QUEUED

        key = (picture.state, picture.reason)
        if picture.state in QUEUED and key != self._known[0]:
            self._known = (key, closing_lines(picture, self._site))
        return self._known[1] if picture.state in QUEUED else []


class Explained:
    """The text of `explain`; reads logs again only if the progress changes."""

    def __init__(self, site: str | None) -> None:
        self._site = site
        self._known: tuple[tuple[object, ...], list[str]] = ((), [])

    def lines(self, picture: SetPicture, width: int) -> list[str]:
        from orchestrator.cli.closing import explained
        from orchestrator.cli.explain import explanation_lines

        key = (picture.state, picture.reason, picture.done, picture.attempts, width)
        if key != self._known[0]:
            lines = explanation_lines(picture, explained(picture, self._site), self._site, width)
            # Of a running set the next command is this one.
            shown = [line for line in lines if not line.startswith("  orchestrator watch ")]
            self._known = (key, shown)
        return self._known[1]


def _keys() -> str:
    """Return the line at the foot of the screen."""
    names = {key: name for key, (name, _) in VIEWS.items()} | {DETACH[0]: DETACH[1]}
    return "   ".join(f"{key} {name}" for key, name in names.items())


def _below(
    run_set: RunSet, picture: SetPicture, view: View, explained: Explained
) -> list[str] | None:
    """None: show the runs."""
    from orchestrator.views.terminal import lines

    if view.chosen == "e":
        from orchestrator.words import cell

        return list(map(cell, explained.lines(picture, view.full.size[0])))
    if view.chosen == "l":
        return _log_lines(run_set, picture, *view.full.size)
    parts = _parts_below(run_set, picture, view.chosen)
    return None if parts is None else lines(parts, screen())


def _parts_below(run_set: RunSet, picture: SetPicture, chosen: str) -> list[Part] | None:
    from orchestrator.views.parts import FactList, Sentences

    if chosen == "?":
        rows = [(key, f"{name}: {content}") for key, (name, content) in VIEWS.items()]
        return [FactList([*rows, (DETACH[0], f"{DETACH[1]}: {DETACH[2]}")])]
    if chosen == "n":
        from orchestrator.cli.nodes import history_table

        return [history_table(run_set.layout.root)]
    if chosen == "w":
        from orchestrator.views.sets import warning_facts

        warnings = warning_facts(picture)
        return [FactList(warnings) if warnings else Sentences(["nothing was warned of"])]
    return None


def _log_lines(run_set: RunSet, picture: SetPicture, width: int, height: int) -> list[str]:
    from orchestrator.evidence.progress import read_end
    from orchestrator.evidence.training_log import training_log
    from orchestrator.onnode.kernel.walk import FilesInside
    from orchestrator.words import cell

    if picture.going:
        path = training_log(run_set.layout, picture.current, picture.attempt)
    else:
        path = run_set.layout.job_output(picture.job_id)
    lines = read_end(path, FilesInside(run_set.layout.root), LOG_BYTES).splitlines()
    # The facts take part of the screen; the rest keeps its newest lines.
    name = _path_lines(path, run_set.layout.root, width)
    most = max(1, height - 13 - len(name))
    return [*name, *(cell(_telling(line)) for line in lines[-most:])]


def _path_lines(path: Path, root: Path, width: int) -> list[str]:
    """Return the whole path, to be copied; if too wide, the set's folder, in pieces, and the path
    in it."""
    from orchestrator.words import cell

    text, folder = cell(path), cell(f"{root}/")
    if len(text) <= width:
        return [text]
    pieces = [folder[start : start + width] for start in range(0, len(folder), width)]
    return [*pieces, cell(path.relative_to(root))]


def _telling(line: bytes) -> str:
    """Return time, key, value and metadata of an MLLOG line; other lines unchanged."""
    from orchestrator.onnode.kernel.mllog_tail import lines

    for record in lines(line):
        more = {k: v for k, v in record["metadata"].items() if k not in ("file", "lineno")}
        value = record.get("value")
        try:
            texts = [record["key"], *([] if value is None else [json.dumps(value)])]
            texts += [f"{name} {json.dumps(content)}" for name, content in more.items()]
        except RecursionError:
            break
        time_ms = local_time(record.get("time_ms"))
        return "  ".join(texts if time_ms == MISSING else [time_ms, *texts])
    return line.decode("utf-8", "replace")


def _sum_up(picture: SetPicture, whole: bool, site: str | None) -> None:
    from orchestrator.views.sets import headline
    from orchestrator.words import cell

    if not whole:
        print(cell(headline(picture)))
        return
    from orchestrator.cli.closing import set_parts

    print_parts(set_parts(picture, site))


# ---- several sets ----


def _all(args: Namespace) -> int:
    from orchestrator.evidence.watch import WatchAll

    if args.set:
        raise UsageError("--all is every running set: it takes no SET")
    looks = WatchAll(log_dir_of(need_site(args.site)), args.interval).pictures
    last: list[SetPicture] = []
    try:
        if args.json or not is_terminal():
            changes = Changes(args.json)
            for last in looks(time.sleep):
                for picture in last:
                    changes.show(picture)
        else:
            last = _live_all(looks)
    except KeyboardInterrupt:
        note("\ndetached; the jobs keep running\n  reattach: orchestrator watch --all")
        return ExitCode.INTERRUPTED
    if not last:
        note("no set is running; orchestrator status lists all")
    return (
        ExitCode.OK if all(picture.state == "complete" for picture in last) else ExitCode.SET_STATE
    )


def _live_all(
    looks: Callable[[Callable[[float], None]], Iterator[list[SetPicture]]],
) -> list[SetPicture]:
    from orchestrator.cli.frame import many_sets
    from orchestrator.cli.fullscreen import full_screen
    from orchestrator.views.sets import set_table

    last: list[SetPicture] = []
    try:
        with full_screen() as full:
            view = View(
                full, lambda view: many_sets(last, screen(), view.full.size[1] - 1), "q detach"
            )
            for pictures in looks(view.pause):
                last[:] = pictures
                view.show()
    finally:
        if last:
            print_parts([set_table(last)])
    return last


COMMAND = Command(
    "watch",
    __doc__,
    add_arguments,
    run,
    {ExitCode.OK: "every run of the set is final", ExitCode.SET_STATE: "the set ended before that"},
)
