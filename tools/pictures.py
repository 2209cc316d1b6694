"""Write docs/pictures/: a recording of the demo in a terminal, its report, and a rehearsal. `make
pictures`; needs Chromium.

The demo is really run, in a terminal of 90 x 26: what it draws is kept frame by frame, and one SVG
file shows the frames in turn, with neither script nor font of its own. It begins with the last
frame, which previews, paper and readers without motion show.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import struct
import sys
import tempfile
import termios
from html import escape
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "tests"))

from chromium import running  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.terminal_theme import TerminalTheme  # noqa: E402
from rich.text import Text  # noqa: E402

COLUMNS, LINES = 90, 26
MOST_FRAMES, FRAME_S, LAST_S = 14, 1.0, 6.0
"""A recording is as many frames of the real one, each shown so long."""
WIDE, HIGH = 8.4, 17
"""Pixels of one character."""
INK, PAPER = "#d8dee9", "#1b1f27"
THEME = TerminalTheme(
    (27, 31, 39),
    (216, 222, 233),
    [
        (60, 66, 79), (232, 104, 104), (126, 198, 134), (229, 192, 107),
        (110, 168, 254), (198, 146, 233), (92, 200, 207), (216, 222, 233),
    ],
)  # fmt: skip


def recorded(argv: list[str], folder: Path) -> list[str]:
    """Run a command in a terminal of its own; return what the screen showed, frame by frame, the
    last one after its end."""
    process, screen = pty.fork()
    if process == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        os.chdir(folder)
        os.environ |= {"TERM": "xterm-256color", "PYTHONPATH": str(TOP), "LC_ALL": "C.UTF-8"}
        os.execv(argv[0], argv)
    output = b""
    while True:
        try:
            more = os.read(screen, 1 << 16)
        except OSError:  # Linux says so when the other end is closed
            break
        if not more:
            break
        output += more
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    text = output.decode().replace("\r", "").replace(str(folder), "/home/you")
    if code:
        sys.exit(f"{' '.join(argv)} ended with {code}\n{text}")
    before, _, live = text.partition("\x1b[?1049h\x1b[?25l")
    live, _, after = live.partition("\x1b[?25h\x1b[?1049l")
    frames = [
        frame.removesuffix("\x1b[J").replace("\x1b[K", "") for frame in live.split("\x1b[H")[1:]
    ]
    return [before, *chosen(frames, MOST_FRAMES), "\n".join((before + after).splitlines()[:LINES])]


def chosen(frames: list[str], most: int) -> list[str]:
    """At most so many, evenly: the first and the last among them."""
    step = max(1.0, (len(frames) - 1) / (most - 1))
    return [frames[round(index * step)] for index in range(min(most, len(frames)))]


def line(text: str, row: int, console: Console) -> str:
    """One line of a terminal as SVG: each piece of one colour stands where its first character
    does."""
    out, column = [], 0
    for piece in Text.from_ansi(text).render(console):
        style, content = piece.style, piece.text.rstrip("\n")
        shown, width = content.strip(" "), len(content)
        if shown:
            begin = column + len(content) - len(content.lstrip(" "))
            look = ""
            if style and style.color:
                look += f' fill="{style.color.get_truecolor(THEME).hex}"'
            if style and style.dim:
                look += ' opacity=".65"'
            if style and style.bold:
                look += ' font-weight="bold"'
            place = f'x="{10 + begin * WIDE:.1f}" textLength="{len(shown) * WIDE:.1f}"'
            out.append(f"<tspan {place}{look}>{escape(shown, quote=False)}</tspan>")
        column += width
    return f'<text y="{42 + row * HIGH}">{"".join(out)}</text>' if out else ""


def animation(frames: list[str], title: str, high: int = LINES) -> str:
    """Return the frames as one SVG file, `high` lines each: the last frame first, then the
    others."""
    console = Console(force_terminal=True, color_system="truecolor", width=COLUMNS)
    whole = FRAME_S * (len(frames) - 1) + LAST_S
    width, height = round(20 + COLUMNS * WIDE), 36 + high * HIGH + 14
    styles, groups = [], []
    begin = 0.0
    for index, frame in enumerate([frames[-1], *frames[:-1]]):
        shown_s = FRAME_S if index else LAST_S
        first, after = 100 * begin / whole, 100 * (begin + shown_s) / whole
        begin += shown_s
        styles.append(
            f"@keyframes f{index}{{0%{{visibility:{'hidden' if index else 'visible'}}}"
            f"{first:.2f}%{{visibility:visible}}{after:.2f}%{{visibility:hidden}}}}"
            f"#f{index}{{animation:f{index} {whole:.1f}s step-end infinite}}"
        )
        lines = (line(text, row, console) for row, text in enumerate(frame.splitlines()[:high]))
        hidden = ' visibility="hidden"' if index else ""
        groups.append(f'<g id="f{index}"{hidden}>{"".join(lines)}</g>')
    shown = "\n".join(groups)
    circles = "".join(
        f'<circle cx="{18 + 18 * n}" cy="15" r="5" fill="{fill}"/>'
        for n, fill in enumerate(("#e86868", "#e5c06b", "#7ec686"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>@media (prefers-reduced-motion:no-preference){{{''.join(styles)}}}\n"
        "text{font:14px ui-monospace,'DejaVu Sans "
        "Mono',Menlo,Consolas,monospace;white-space:pre}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>{circles}\n'
        f'<g fill="{INK}">{shown}</g>\n</svg>\n'
    )


REHEARSED = ("MI325X_08x08x32", "flux1", "--spares", "1", "--fault", "node 3 dies in run 4")
SITE = """kind: site
partition: gpu
log_dir: /shared/results
data: {flux1: {DATADIR: /shared/flux1/data}}
acknowledged: [network.socket_ifname, network.ib_hca]
"""


def rehearsed(command: list[str], work: Path) -> list[str]:
    """Return a rehearsal until the end of its time line as frames, each with one line more than the
    one before."""
    (work / "site.yaml").write_text(SITE)
    whole = recorded([*command, "rehearse", *REHEARSED], work)[0]
    lines = [f"$ orchestrator rehearse {shlex.join(REHEARSED)}", *whole.splitlines()]
    first = next(
        number for number, line in enumerate(lines) if line.lstrip().startswith("\x1b[1mTIME")
    )
    last = next(number for number, line in enumerate(lines) if number > first and not line)
    return ["\n".join(lines[:count]) for count in (1, *range(first + 1, last + 1))]


def main() -> None:
    place = TOP / "docs/pictures"
    place.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        command = [sys.executable, "-m", "orchestrator"]
        frames = recorded([*command, "demo"], work)
        frames[0] = "$ orchestrator demo\n" + frames[0]
        frames[-1] = re.sub(r"\n\n+", "\n", "$ orchestrator demo\n" + frames[-1])
        (place / "demo.svg").write_text(
            animation(frames, "orchestrator demo: ten runs, live, and their score")
        )
        title = "orchestrator rehearse: a node dies in run 4 of a set, the spare takes its place"
        frames = rehearsed(command, work)
        (place / "rehearse.svg").write_text(animation(frames, title, frames[-1].count("\n") + 1))
        recorded(
            [*command, "report", "--site", "demo-results/site.yaml", "-o", "report.html"], work
        )
        with running(work / "profile") as browser:
            page = browser.page()
            page.look(1100, height=1010)
            page.open(work / "report.html")
            page.photograph(place / "report.png", whole=False)
    for path in sorted(place.iterdir()):
        size = path.stat().st_size
        print(f"{path.relative_to(TOP)} ({size / 1000:.0f} kB)")
        if size > 150_000:
            sys.exit(f"{path.name} is too large for a README")


if __name__ == "__main__":
    main()
