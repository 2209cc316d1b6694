"""From an installed mlperf-logging to the data that scoring evaluates: rules and reference points.

The package's compliance rules are Python expressions inside YAML. They become the vocabulary of
rules.py: nothing is passed to `eval`, and other expressions are refused, so a changed package
cannot slip through.
"""

from __future__ import annotations

import ast
import json
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

LICENCE = (
    "Apache License 2.0, https://github.com/mlcommons/logging; facts taken over in another form"
)
CALLS = {"is_integer", "abs", "int", "max", "min", "math.ceil", "math.floor"}
COMPARE = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
ARITHMETIC = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitOr: "|",
}
RULE_PARTS = {"NAME", "REQ", "PRE", "CHECK", "POST", "FIRST_CHECK", "ATLEAST_ONE_CHECK"}


class Untranslatable(Exception):
    """The package uses an expression outside the rule vocabulary."""


def expression(node: ast.expr) -> Any:
    """Translate a Python expression into the rule vocabulary."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=elements):
            return ["list", *map(expression, elements)]
        case ast.Compare(left=left, ops=ops, comparators=rights):
            chain: list[Any] = ["cmp", expression(left)]
            for op, right in zip(ops, rights, strict=True):
                chain += [COMPARE[type(op)], expression(right)]
            return chain
        case ast.BoolOp(op=op, values=values):
            return ["and" if isinstance(op, ast.And) else "or", *map(expression, values)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ["not", expression(operand)]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            return [ARITHMETIC[type(op)], expression(left), expression(right)]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ["if", expression(test), expression(body), expression(orelse)]
        case ast.Call(func=func, args=args, keywords=[]):
            return call(ast.unparse(func), args)
        case ast.Subscript() | ast.Name() | ast.Attribute():
            return reference(node)
    raise Untranslatable(ast.unparse(node))


def call(name: str, args: list[ast.expr]) -> Any:
    if name == "s.get" and len(args) == 1 and isinstance(args[0], ast.Constant):
        return ["state.get", args[0].value]
    if name not in CALLS:
        raise Untranslatable(name)
    return ["call", name, *map(expression, args)]


def reference(node: ast.expr) -> Any:
    """Translate a name: of the record (`v`), its members, or the state's variables."""
    known = {
        "v": ["record"],
        "v['value']": ["value"],
        "v['metadata']": ["metadata"],
        "ll.timestamp": ["time"],
    }
    text = ast.unparse(node)
    if text in known:
        return known[text]
    match node:
        case ast.Subscript(value=ast.Name(id="s"), slice=ast.Constant(value=name)):
            return ["state", name]
        case ast.Subscript(value=value, slice=index):
            return ["item", expression(value), expression(index)]
    raise Untranslatable(text)


def condition(text: str) -> list[Any]:
    """Return [the referee's own text, the translated expression]."""
    return [text.strip(), expression(ast.parse(text.strip(), mode="eval").body)]


def statements(text: str) -> list[Any]:
    """Translate assignments, `enqueue_config` and `if` blocks."""
    if text.strip().startswith("from dataclasses import replace\nagg_eval_lines = {}"):
        # The only procedure of the package (stable_diffusion, 5.0.0); rules.py has it by this name.
        return [["aggregate_eval_accuracy"]]
    return [statement(node) for node in ast.parse(text.strip()).body]


def statement(node: ast.stmt) -> Any:
    match node:
        case ast.Assign(
            targets=[ast.Subscript(value=ast.Name(id="s"), slice=ast.Constant(value=name))],
            value=value,
        ):
            return ["set", name, expression(value)]
        case ast.AugAssign(
            target=ast.Subscript(value=ast.Name(id="s"), slice=ast.Constant(value=name)),
            op=op,
            value=value,
        ):
            return ["set", name, [ARITHMETIC[type(op)], ["state", name], expression(value)]]
        case ast.If(test=test, body=body, orelse=[]):
            return ["when", expression(test), [statement(child) for child in body]]
        case ast.Expr(value=ast.Call(func=ast.Name(id="enqueue_config"), args=[argument])):
            return ["config", config_pattern(argument)]
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name(id="s"), attr="update"),
                args=[ast.Dict() as values],
            )
        ):
            return [
                "update",
                {
                    key.value: expression(value)
                    for key, value in zip(values.keys, values.values, strict=True)
                    if isinstance(key, ast.Constant)
                },
            ]
    raise Untranslatable(ast.unparse(node))


def config_pattern(argument: ast.expr) -> str:
    """Return `closed_{}` for 'training_6.0.0/closed_{}.yaml'.format(v['value'])."""
    match argument:
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str() as pattern), attr="format"),
            args=[value],
        ):
            if ast.unparse(value) == "v['value']":
                return pattern.split("/", 1)[1].removesuffix(".yaml")
    raise Untranslatable(ast.unparse(argument))


def key_rule(raw: dict[str, Any]) -> dict[str, Any]:
    if unknown := set(raw) - RULE_PARTS:
        raise Untranslatable(f"{raw['NAME']}: {sorted(unknown)}")
    checks = raw.get("CHECK", [])
    rule: dict[str, Any] = {"required": raw.get("REQ", "")}
    rule["before"] = statements(raw["PRE"]) if "PRE" in raw else []
    rule["checks"] = [
        condition(text) for text in (checks if isinstance(checks, list) else [checks])
    ]
    rule["after"] = statements(raw["POST"]) if "POST" in raw else []
    rule["first"] = condition(raw["FIRST_CHECK"]) if "FIRST_CHECK" in raw else None
    rule["any"] = condition(raw["ATLEAST_ONE_CHECK"]) if "ATLEAST_ONE_CHECK" in raw else None
    return {name: value for name, value in rule.items() if value}


def config(path: Path) -> dict[str, Any]:
    """Translate a YAML file: its first statements, and the rules per key."""
    yaml = import_module("yaml")  # of those that mlperf-logging itself needs
    begin: list[Any] = []
    keys: dict[str, Any] = {}
    loader = yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader
    for entry in yaml.load(path.read_text(encoding="utf-8"), Loader=loader) or []:
        ((kind, body),) = entry.items()
        if kind == "BEGIN":
            begin += statements(body["CODE"])
        elif kind == "KEY" and body["NAME"] not in keys:
            keys[body["NAME"]] = key_rule(body)
        else:
            raise Untranslatable(f"{path.name}: {kind} {body.get('NAME', '')}")
    return {"begin": begin, "keys": keys}


def rules(package: Path, ruleset: str) -> dict[str, Any]:
    meta = _module("benchmark_meta")
    benchmarks = meta.get_allowed_benchmarks("training", ruleset)
    counts = meta.get_result_file_counts("training")
    folder = package / "compliance_checker" / f"training_{ruleset}"
    return {
        **stamp(ruleset),
        "benchmarks": {name: counts[name] for name in sorted(benchmarks)},
        "configs": {path.stem: config(path) for path in sorted(folder.glob("*.yaml"))},
    }


def reference_points(package: Path, ruleset: str) -> dict[str, Any]:
    """Return, per benchmark, [[batch size, [samples or epochs of every reference run]], ...],
    sorted by batch size."""
    tables: dict[str, list[Any]] = {}
    for path in sorted((package / "rcp_checker" / f"training_{ruleset}").glob("rcps_*.json")):
        name = path.stem.removeprefix("rcps_")
        # The checker's own choice; "Epochs to converge" of LLMs are samples.
        unit = (
            "samples to converge" if name in ("llama2_70b_lora", "flux1") else "Epochs to converge"
        )
        points = json.loads(path.read_text(encoding="utf-8")).values()
        tables[name] = sorted([point["BS"], sorted(point[unit])] for point in points)
    return {
        **stamp(ruleset),
        "submission_runs": submission_runs(tables),
        "t95": quantiles(tables),
        "tables": tables,
    }


def submission_runs(tables: dict[str, list[Any]]) -> dict[str, int]:
    runs = _module("rcp_checker.rcp_checker").submission_runs
    return {name: runs["training"][name] for name in tables}


def quantiles(tables: dict[str, list[Any]]) -> dict[str, float]:
    """Return the 0.95 quantile of Student's t for all degrees of freedom of the tables."""
    t = import_module("scipy.stats").t
    runs = submission_runs(tables)
    degrees = set()
    for name, points in tables.items():
        rejected = 4 if name == "unet3d" else 1
        degrees |= {len(samples) - 2 * rejected + runs[name] - 4 for _, samples in points}
        degrees.add(2 * runs[name] + runs[name] - 4)
    return {str(df): round(float(t.ppf(0.95, df)), 12) for df in sorted(degrees)}


def stamp(ruleset: str) -> dict[str, str]:
    return {
        "source": f"mlperf-logging {version('mlperf-logging')}",
        "licence": LICENCE,
        "round": ruleset,
    }


def _module(name: str) -> Any:
    return import_module(f"mlperf_logging.{name}")
