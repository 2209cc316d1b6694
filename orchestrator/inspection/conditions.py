"""Conditions of a script: [ ], [[ ]], (( )). None: only the run knows."""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orchestrator.inspection import expansion
from orchestrator.inspection.interface import Answer, Walk
from orchestrator.inspection.patterns import search
from orchestrator.inspection.state import ShellState
from orchestrator.inspection.syntax import text_of
from orchestrator.inspection.trace import UNKNOWN, Read, is_known

if TYPE_CHECKING:
    from tree_sitter import Node

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}
_PATHS = {"-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h", "-a"}


def negated(answer: Answer) -> Answer:
    return None if answer is None else not answer


def _all(left: Answer, right: Answer) -> Answer:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def test(walk: Walk, shell: ShellState, node: Node) -> Answer:
    body = [child for child in node.children if child.type not in ("[", "]", "[[", "]]")]
    single = bool(node.children) and node.children[0].type == "["
    with walk.testing():
        return _expression(walk, shell, body[0], single=single) if body else False


def _expression(walk: Walk, shell: ShellState, node: Node, *, single: bool) -> Answer:
    if node.type == "parenthesized_expression":
        return _expression(walk, shell, node.named_children[0], single=single)
    if node.type == "unary_expression":
        return _unary(walk, shell, node, single=single)
    if node.type == "binary_expression":
        return _binary(walk, shell, node, single=single)
    value = expansion.text(walk, shell, node)
    return bool(value) if is_known(value) else None


def _unary(walk: Walk, shell: ShellState, node: Node, *, single: bool) -> Answer:
    sign, operand = text_of(node.children[0]), node.children[-1]
    if sign == "!":
        return negated(_expression(walk, shell, operand, single=single))
    return _of_operand(walk, shell, sign, expansion.text(walk, shell, operand), node)


def _of_operand(walk: Walk, shell: ShellState, sign: str, value: str, node: Node) -> Answer:
    if sign in _PATHS:
        return walk.path_test(sign, value, node, shell)
    if sign in ("-n", "-z"):
        # A known part makes the whole not empty.
        empty = None if value.strip(UNKNOWN) == "" and value else not value
        return empty if sign == "-z" else negated(empty)
    if sign == "-v":
        return value in shell.variables if is_known(value) else None
    return None


def _binary(walk: Walk, shell: ShellState, node: Node, *, single: bool) -> Answer:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    sign = text_of(node.child_by_field_name("operator") or node.children[1])
    if left is None or right is None:
        return None
    if sign in ("&&", "-a"):
        answer = _expression(walk, shell, left, single=single)
        return (
            False
            if answer is False
            else _all(answer, _expression(walk, shell, right, single=single))
        )
    if sign in ("||", "-o"):
        answer = _expression(walk, shell, left, single=single)
        if answer is True:
            return True
        other = _expression(walk, shell, right, single=single)
        return negated(_all(negated(answer), negated(other)))
    if left.type == "unary_expression" and text_of(left.children[0]) == "!":
        # `[ ! $A = b ]` negates the whole.
        return negated(_compare(walk, shell, left.children[-1], sign, right, single=single))
    return _compare(walk, shell, left, sign, right, single=single)


def _compare(
    walk: Walk, shell: ShellState, left: Node, sign: str, right: Node, *, single: bool
) -> Answer:
    begin = len(walk.trace.reads)
    mine = expansion.text(walk, shell, left)
    yours = expansion.text(walk, shell, right)
    if single and not mine and left.type in ("simple_expansion", "expansion"):
        insist(walk, range(begin, len(walk.trace.reads)))
        return None  # `[ = x ]`: a syntax error of test, status 2
    if sign in _NUMBERS:
        return _compared(sign, mine, yours)
    if sign == "=~":
        return search(yours, mine) if is_known(mine + yours) else None
    if not is_known(mine + yours):
        return _differ(mine, yours, sign)
    if sign in ("=", "=="):
        return mine == yours or (not single and fnmatch.fnmatchcase(mine, yours))
    if sign == "!=":
        return mine != yours and (single or not fnmatch.fnmatchcase(mine, yours))
    return mine < yours if sign in ("<", "\\<") else mine > yours


def insist(walk: Walk, asked: range) -> None:
    """Mark reads of unset variables without a default as required."""
    for at in asked:
        read = walk.trace.reads[at]
        if not read.given and read.use != "default":
            walk.trace.reads[at] = Read(read.name, "required", False, read.place)


def of_words(walk: Walk, shell: ShellState, operands: Sequence[str], node: Node) -> Answer:
    """Return the answer of `test` or `[` as a plain command."""
    if operands[:1] == ["!"]:
        return negated(of_words(walk, shell, operands[1:], node))
    if len(operands) == 1:
        return bool(operands[0]) if is_known(operands[0]) else None
    if len(operands) == 2:
        return _of_operand(walk, shell, operands[0], operands[1], node)
    if len(operands) != 3:
        return None if operands else False
    left, sign, right = operands
    if sign in _NUMBERS:
        return _compared(sign, left, right)
    if not is_known(left + right) or sign not in ("=", "==", "!="):
        return None
    return (left == right) is (sign != "!=")


def _compared(sign: str, left: str, right: str) -> Answer:
    mine, yours = _number(left), _number(right)
    return None if mine is None or yours is None else _NUMBERS[sign](mine, yours)


def _number(text: str) -> int | None:
    if not text.strip():
        return 0
    return int(text) if re.fullmatch(r"\s*[-+]?(0|[1-9][0-9]{0,17})\s*", text) else None


def _differ(mine: str, yours: str, sign: str) -> Answer:
    """Compare two values by their known start alone."""
    begin = mine.partition(UNKNOWN)[0], yours.partition(UNKNOWN)[0]
    shortest = min(map(len, begin))
    if "*" in yours or begin[0][:shortest] == begin[1][:shortest]:
        return None
    return sign == "!="


def arithmetic(walk: Walk, shell: ShellState, node: Node) -> int | None:
    if node.type in ("arithmetic_expansion", "parenthesized_expression", "compound_statement"):
        value: int | None = 0
        for child in node.named_children:
            value = arithmetic(walk, shell, child)
        return value
    if node.type == "number":
        return _number(text_of(node))
    if node.type in ("variable_name", "word"):
        value_text = expansion.value_of(shell, text_of(node))
        return _number(value_text) if isinstance(value_text, str) else 0
    if node.type in ("simple_expansion", "expansion", "string", "command_substitution"):
        return _number(expansion.text(walk, shell, node))
    if node.type == "binary_expression":
        return _calculated(walk, shell, node)
    if node.type in ("postfix_expression", "unary_expression"):
        return _stepped(walk, shell, node)
    if node.type == "variable_assignment":
        name, right = node.child_by_field_name("name"), node.child_by_field_name("value")
        value = arithmetic(walk, shell, right) if right else None
        if name:
            shell.variables.set(text_of(name), UNKNOWN if value is None else str(value))
        return value
    return None


def _calculated(walk: Walk, shell: ShellState, node: Node) -> int | None:
    left_node, right_node = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left_node is None or right_node is None:
        return None
    sign = text_of(node.child_by_field_name("operator") or node.children[1])
    right = arithmetic(walk, shell, right_node)
    left = arithmetic(walk, shell, left_node)
    value: int | None = None
    if left is not None and right is not None:
        value = calculated(left, sign.removesuffix("=") if sign in _UPDATES else sign, right)
    if sign == "=":
        value = right
    if sign == "=" or sign in _UPDATES:
        shell.variables.set(text_of(left_node), UNKNOWN if value is None else str(value))
    return value


_UPDATES = {"+=", "-=", "*=", "/=", "%="}


_CALCULATE: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "**": operator.pow,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "&&": lambda left, right: bool(left and right),
    "||": lambda left, right: bool(left or right),
}


def calculated(left: int, sign: str, right: int) -> int | None:
    if sign in ("/", "%") and right == 0:
        return None
    if sign == "**" and not 0 <= right < 64:
        return None
    if sign in ("/", "%"):
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if sign == "/" else left - right * quotient
    calculate = _CALCULATE.get(sign)
    return None if calculate is None else _of_64_bits(int(calculate(left, right)))


def _of_64_bits(value: int) -> int | None:
    """Return a number that bash can hold, else None."""
    return value if -(1 << 63) <= value < 1 << 63 else None


def _stepped(walk: Walk, shell: ShellState, node: Node) -> int | None:
    body = text_of(node)
    operand = next((child for child in node.named_children if child.type != "test_operator"), None)
    if operand is not None and operand.type == "binary_expression":
        return None  # the grammar takes -1 + 2 for -(1 + 2)
    value = arithmetic(walk, shell, operand) if operand else None
    for sign, step in (("++", 1), ("--", -1)):
        if sign in body and operand:
            shell.variables.set(text_of(operand), UNKNOWN if value is None else str(value + step))
            before = body.startswith(sign)
            return None if value is None else value + step * before
    if value is None:
        return None
    return -value if body.startswith("-") else int(not value) if body.startswith("!") else value


def plain_number(text: str) -> int | None:
    """Return a product or sum of plain numbers, else None."""
    total: int | None = 0
    for term in text.split("+"):
        product: int | None = 1
        for factor in term.split("*"):
            number = _number(factor) if factor.strip() else None
            if number is None or product is None:
                return None
            product = _of_64_bits(product * number)
        if product is None or total is None:
            return None
        total = _of_64_bits(total + product)
    return total
