"""The prefixes of loggers, launchers and Slurm: stamps, hosts, ranks, processes, levels."""

from __future__ import annotations

import re

_MONTHS = "xxxjanfebmaraprmayjunjulaugsepoctnovdec"
_STAMP = re.compile(
    r"(?:\b\d{4}-(\d\d)-(\d\d)[T ]|\b[IWEF](\d\d)(\d\d) |\b([A-Z][a-z][a-z]) {1,2}(\d{1,2}) )"
    r"(\d\d):(\d\d):(\d\d(?:[.,]\d{1,6})?)"
)
_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|CRITICAL)"
_DATE_TIME = r"(?:\d{4}[-/])?\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_HOST = r"(?=[\w.-]{0,80}\d)[A-Za-z\d][\w.-]{0,80}"
_OF_HOST = (
    rf"{_HOST}:(?= {{3,}}\S| Traceback \(| (?:The above|During handling) "
    r"| (?:\w{1,40}\.){0,12}\w{0,60}(?:Error|Exception)\b| ?\[(?:rank|default)? {0,8}\d"
    rf"| {_LEVEL}\b| {_DATE_TIME})"
)
"""A host before a line of a traceback, or before another prefix: before other lines, a name with a
colon may be part of the message."""
_PREFIXES = re.compile(
    r"\[?(?:rank ?|default)?\d{1,6}\]?:"  # torchrun, srun --label, DeepSpeed
    r"|\[[a-z]\w{0,40}\d(?:\|\d{1,6})?\]:"  # torchrun with a role
    r"|\[\d{1,3},\d{1,6}\](?:<std\w+>)?:"  # mpirun
    rf"|\[{_DATE_TIME}\] \[\d{{1,10}}\.(?:\d{{1,4}}|batch|extern|interactive)\]"  # slurmd: its step
    rf"|\[{_DATE_TIME}(?: [A-Z]{{1,3}}\d{{1,4}}){{0,4}}\]"  # SGLang adds its ranks: TP0 PP1
    rf"|\[?{_DATE_TIME}\]?(?: -| \|)?"
    rf"|\[?\d\d:\d\d:\d\d(?:[.,]\d{{1,6}})?\]"
    rf"|\[?{_LEVEL}\]?(?= \d\d[-/]\d\d |\s*[\[|]|: | - | \d{{4}}-)(?: \||:| -)?"
    r"|\| \w{1,30} \|"
    r"|std(?:err|out)(?: \||:)"
    r"|\[(?:[A-Za-z_]\w{0,40}\.){1,6}\w{1,40}(?::\d{1,6}(?::\w{1,60})?)?\](?: >>>)?"
    rf"|[\w./-]{{1,60}} - {_LEVEL} - |{_LEVEL}:[\w.]{{1,80}}:"
    rf"|{_LEVEL}: (?:[a-z_]\w{{0,40}}\.){{2,8}}\w{{1,60}}:(?=\S)"
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} {1,6}\d{1,8} [\w./-]{1,120}:\d{1,6}\]"
    r"|(?:\w[^|%\n]{0,40}: *)?\d{1,3}%\|[^|\n]{0,120}\| *\S{1,20}/\S{1,20} \[[^\]\n]{1,80}\]"  # tqdm
    r"|\(raylet\)|\[PG ID [^\]\n]{1,60}\]"
    r"|\[MainThread\]"
    r"|: [IWEF] [\w./-]{1,120}:\d{1,6}\]"  # XLA, behind its stamp
    r"|\w{1,40}\.py:\d{1,6}\]"
    r"|\([A-Za-z]\w{0,40} (?:pid|rank)=\d{1,9}[^)]{0,60}\)"
    r"|\w[\w-]{0,40} {1,8}\|\||[a-z][\w-]{0,40} {1,8}\|"  # task logs, docker compose
    r"|\[Rank \d{1,6}\]"
    r"|\[[EF]\d{3,4} \d\d:\d\d:\d\d[.\d]{0,10} [\w.]{1,60}:\d{1,6}\]"  # glog
    rf"|{_LEVEL}: {{3,10}}"
    r"|>>>"
    rf"|{_OF_HOST}"  # pdsh, DeepSpeed
)
_PROCESS = re.compile(
    rf"^\s*{_HOST}(?=: )|pid=\d+|rank ?\d+|default\d+|^\s*\[?\d+\]?:"
    r"|\[[a-z]\w{0,40}\d[|\d]{0,7}\]:"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_MOST_PREFIXES = 8


def without_prefixes(text: str) -> str:
    """Return a line without its prefixes, with the indentation behind them, less one space."""
    text = _COLOUR.sub("", text)
    for _ in range(_MOST_PREFIXES):
        bare = text.lstrip() if text[:1] == " " else text
        prefix = _PREFIXES.match(bare)
        if prefix is None or not prefix.end():
            break
        text = bare[prefix.end() :].removeprefix(" ")
    return text


def stream_of(text: str, bare: str) -> str:
    """Return a line's prefixes without times: lines of one process have the same."""
    prefix = text[: len(text) - len(bare)]
    return " ".join(name.strip(" []:") for name in _PROCESS.findall(prefix))


def seconds_of(text: str) -> float | None:
    """Return the seconds from a year's start to a line's stamp; None without a stamp."""
    stamp = _STAMP.search(text[:200])
    if stamp is None:
        return None
    month_name, month, day = stamp[5], stamp[1] or stamp[3], stamp[2] or stamp[4] or stamp[6]
    months = _MONTHS.find(month_name.lower()) // 3 if month_name else int(month)
    days = months * 31 + int(day)
    hours, minutes = int(stamp[7]), int(stamp[8])
    return days * 86400.0 + hours * 3600 + minutes * 60 + float(stamp[9].replace(",", "."))
