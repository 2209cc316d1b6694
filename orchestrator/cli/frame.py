"""The live view: lines, computed only from pictures of sets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.views.parts import FactList, Heading, with_commands
from orchestrator.views.sets import (
    aside_text,
    bad_text,
    beat_text,
    elapsed_text,
    evaluation_text,
    image_fact,
    job_text,
    left_s,
    left_text,
    now_text,
    published,
    run_table,
    score_fact,
    set_table,
    size_text,
    state_facts,
    warning_facts,
)
from orchestrator.views.terminal import lines as part_lines
from orchestrator.words import MISSING, NARROWEST, Screen, cell, duration, rate, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.evidence.picture import RunPicture, SetPicture

BLOCKS = {"unicode": "▁▂▃▄▅▆▇█", "ascii": "_.-=+*#%", "": "_.-=+*#%"}
BARS = {"unicode": ("█", "░"), "ascii": ("#", "-"), "": ("#", "-")}
NAMES = len("rehearsal") + 2
"""Columns of the names of an active set's facts."""
SHORTEST = 4
"""Columns of the shortest bar or curve."""
_PARTS = re.compile(r"\x1b\[[0-9;]*m|.", re.DOTALL)


def cropped(line: str, width: int) -> str:
    """Cut a painted line to `width` columns, and end its colours."""
    parts = _PARTS.findall(line)
    if sum(width_of(part) for part in parts if len(part) == 1) <= width:
        return line
    out, room = [], width
    for part in parts:
        room -= 0 if len(part) > 1 else width_of(part)
        if room < 0:
            break
        out.append(part)
    return "".join(out) + ("\x1b[0m" if "\x1b" in line else "")


def bar(share: float, screen: Screen, width: int = 20) -> str:
    """Return a bar, filled to `share`."""
    full, empty = BARS[screen.signs]
    count = min(width, int(max(0.0, share) * width))
    return full * count + empty * (width - count)


def curve(values: Sequence[float], screen: Screen, width: int, also: float | None = None) -> str:
    """Draw the last values. `also`: a level to include, such as the target."""
    blocks = BLOCKS[screen.signs]
    shown = list(values)[-width:]
    if not shown:
        return ""
    scale = shown if also is None else [*shown, also]
    # Halves: the difference of two numbers may be more than a float holds.
    low = min(scale) / 2
    span = max(scale) / 2 - low
    top = len(blocks) - 1
    return "".join(
        blocks[round((value / 2 - low) / span * top) if span > 0 else top // 2] for value in shown
    )


def one_set(
    picture: SetPicture,
    screen: Screen,
    height: int,
    below: Sequence[str] | None = None,
    why: Sequence[str] = (),
) -> list[str]:
    """Return at most `height` lines: facts, `why` the set waits, and `below` or its runs."""
    width = screen.width or 80
    head = [
        line
        for part in (
            Heading(picture.root.name),
            FactList(_facts(picture, screen)),
            with_commands(why),
        )
        for line in part_lines([part], screen)
    ]
    if below is None:
        shown = _shown(picture, height - len(head) - 2)
        below = part_lines([run_table(shown)], screen) if shown else []
    lines = [*head, "", *below]
    return [cropped(line, width) for line in lines[:height]]


def _shown(picture: SetPicture, most: int) -> Sequence[RunPicture]:
    """Return `most` runs, up to the first waiting run."""
    if len(picture.runs) <= most:
        return picture.runs
    if most < 1:
        return ()
    last = next(
        (k for k, run in enumerate(picture.runs) if not run.done and run.state != "running"),
        len(picture.runs) - 1,
    )
    begin = max(0, min(last + 1, len(picture.runs)) - most)
    return picture.runs[begin : begin + most]


def _facts(picture: SetPicture, screen: Screen) -> list[tuple[str, str]]:
    from orchestrator.nodes.names import fold

    record = picture.record
    nexp = len(picture.runs)
    pairs = state_facts(picture, screen.sign)
    if nexp:
        bad = f", {bad_text(picture)}" if bad_text(picture) else ""
        pairs.append(
            ("runs", f"{bar(picture.done / nexp, screen)} {picture.done} of {nexp} done{bad}")
        )
    pairs += image_fact(picture)
    for run in picture.going:
        pairs += _run_facts(picture, run, screen)
    best = published(picture)
    if picture.score_so_far is not None or best:
        title, score = score_fact(picture)
        beat = "".join(f"; to beat {beat_text(entry)}" for entry in best[:1])
        pairs.append((title, score + beat))
    if picture.started_ms:
        left = left_text(picture)
        elapsed = elapsed_text(picture, " so far" if picture.live else "")
        pairs.append(("time", elapsed + (f"; {left}" if left else "")))
    if record is not None:
        nodes = list(dict.fromkeys(node for run in picture.going for node in run.nodes))
        names = f": {fold(nodes)}" if nodes else ""
        spares = f"; {len(picture.spares)} spare: {fold(picture.spares)}" if picture.spares else ""
        job = f"; job {job_text(picture)}" if picture.job_id else ""
        pairs.append(("nodes", f"{size_text(record)}{names}{spares}{job}"))
    for word, notes in (("excluded", picture.set_aside), ("blamed", picture.blamed)):
        if notes:
            more = f" (and {len(notes) - 1} before)" if len(notes) > 1 else ""
            pairs.append((word, aside_text(notes[-1]) + more))
    warnings = [text for _, text in warning_facts(picture)]
    if warnings:
        more = f" (and {len(warnings) - 1} more: w)" if len(warnings) > 1 else ""
        # Leave room for the number of the others.
        column = max(len(name) for name, _ in [*pairs, ("warning", "")]) + 2
        room = max(NARROWEST, (screen.width or 80) - column - len(more))
        text = cell(warnings[0])
        pairs.append(("warning", (text if len(text) <= room else f"{text[: room - 1]}…") + more))
    return pairs


def _run_facts(picture: SetPicture, run: RunPicture, screen: Screen) -> list[tuple[str, str]]:
    alone = len(picture.going) == 1
    spent = run.seconds or 0.0
    usual = picture.usual_s or (60 * best[0].minutes if (best := published(picture)) else None)
    again = f", attempt {run.attempt}" if run.attempt > 1 else ""
    mark = " !" if run.silence is not None and run.silence.cause else ""
    ending = again + (f"; {run.age}{mark}" if run.age else "")
    room = (screen.width or 80) - NAMES
    far = duration(spent)
    if usual and spent > usual:
        far += f", longer than the usual {duration(usual)}"  # a full bar would be an end
    elif usual:
        far = f"{far} of about {duration(usual)}"
        wide = max(SHORTEST, min(20, room - width_of(f" {far}{ending}")))
        far = f"{bar(spent / usual, screen, wide)} {far}"
    pairs = [(f"run {run.run}", f"{far}{ending}")]
    target = picture.record.target if picture.record else None
    shown: list[tuple[Sequence[float], float | None, str]] = []
    if run.evaluation:
        aim = "" if target is None else f", target {target:g}"
        shown.append((run.evaluations, target, f"{run.evaluation.value:.4g}{aim}"))
    if run.rates:
        shown.append((run.rates, None, f"{rate(run.rates[-1])} samples/s"))
    if not shown:
        return pairs
    left = room - sum(width_of(text) + 4 for *_, text in shown) + 3
    wide = min(20 if alone else 10, left // len(shown))
    texts = [f"{_curve(values, screen, wide, level)}{text}" for values, level, text in shown]
    return [*pairs, ("", "   ".join(texts))]


def _curve(values: Sequence[float], screen: Screen, width: int, also: float | None) -> str:
    """Return a curve and a blank; "" without room for it."""
    return f"{curve(values, screen, width, also)} " if values and width >= SHORTEST else ""


def many_sets(sets: Sequence[SetPicture], screen: Screen, height: int) -> list[str]:
    """Return at most `height` lines: a table, and progress."""
    width = screen.width or 80
    lines = part_lines([set_table(sets)], screen)
    going = [(picture, run) for picture in sets for run in picture.going]
    if going:
        progress = [
            (f"…{picture.root.name[-4:]}", _far(picture, run, screen)) for picture, run in going
        ]
        lines += ["", *part_lines([FactList(progress)], screen)]
    if len(lines) > height:
        lines = [*lines[: height - 1], f"and {len(lines) - height + 1} more lines"]
    return [cropped(line, width) for line in lines]


def _far(picture: SetPicture, run: RunPicture, screen: Screen) -> str:
    left = left_s(picture)
    until = f", {left_text(picture)}" if left is not None else ""
    texts = (now_text(picture), evaluation_text(picture))
    text = ", ".join(text for text in texts if text != MISSING)
    room = (screen.width or 80) - len("…0000  ") - width_of(f" {text}{until}")
    wide = max(SHORTEST, min(10, room))
    done = bar(picture.done / max(1, len(picture.runs)), screen, wide)
    target = picture.record.target if picture.record else None
    points = _curve(run.evaluations, screen, min(16, room - wide - 1), target)
    return f"{done} {text} {points}".rstrip() + until
