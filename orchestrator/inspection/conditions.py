"""Conditions of a script: [ ], [[ ]], (( )). None: only the run knows."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orchestrator.inspection import expansion
from orchestrator.inspection.flow import Exit
from orchestrator.inspection.interface import Answer, Walk
from orchestrator.inspection.patterns import cost, fits, search
from orchestrator.inspection.state import ShellState
from orchestrator.inspection.syntax import arguments_of, assigned_names, line_of, parse, text_of
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
    """Return the answer of [ ] or [[ ]]."""
    source = text_of(node)
    with walk.testing():
        if source.startswith("[[") or not (arguments := arguments_of(source[1:-1])):
            return (
                _expression(walk, shell, node.named_children[0]) if node.named_children else False
            )
        begin = len(walk.trace.reads)
        with walk.at_line(line_of(node)):
            operands = [word for part in arguments for word in expansion.fields(walk, shell, part)]
            try:
                return _Words(walk, shell, operands, node).answer()
            except ValueError:
                insist(walk, range(begin, len(walk.trace.reads)))
                return None


def _expression(walk: Walk, shell: ShellState, node: Node) -> Answer:
    """The grammar's tree has another precedence: `a =~ b && c =~ d` is cut at the last `=~`."""
    result: Answer = False
    for group in _split(_parts(node), ("||", "-o")):
        answer: Answer = True
        for term in _split(group, ("&&", "-a")):
            answer = _all(answer, _term(walk, shell, term))
            if answer is False:
                break
        result = negated(_all(negated(result), negated(answer)))
        if result is True:
            break
    return result


def _parts(node: Node) -> list[Node]:
    """Return operands and operators in their order."""
    if node.type == "binary_expression" and len(node.children) == 3:
        left, sign, right = node.children
        return [*_parts(left), sign, *_parts(right)]
    if node.type == "unary_expression":
        return [*node.children[:-1], *_parts(node.children[-1])]
    return [node]


def _split(parts: list[Node], signs: tuple[str, str]) -> list[list[Node]]:
    groups: list[list[Node]] = [[]]
    for part in parts:
        if text_of(part) in signs:
            groups.append([])
        else:
            groups[-1].append(part)
    return groups


def _term(walk: Walk, shell: ShellState, parts: list[Node]) -> Answer:
    if len(parts) > 1 and text_of(parts[0]) == "!":
        return negated(_term(walk, shell, parts[1:]))
    if len(parts) == 3:
        return _compare(walk, shell, parts[0], text_of(parts[1]), parts[2])
    if len(parts) == 2:
        sign, operand = text_of(parts[0]), expansion.text(walk, shell, parts[1])
        return _of_operand(walk, shell, sign, operand, parts[1])
    if len(parts) != 1:
        return None
    if parts[0].type == "parenthesized_expression":
        return _expression(walk, shell, parts[0].named_children[0])
    return _filled(expansion.text(walk, shell, parts[0]))


def _of_operand(walk: Walk, shell: ShellState, sign: str, value: str, node: Node) -> Answer:
    if sign in _PATHS:
        return walk.path_test(sign, value, node, shell)
    if sign in ("-n", "-z"):
        return negated(_filled(value)) if sign == "-z" else _filled(value)
    if sign == "-v" and re.fullmatch(r"\w+", value):
        return value in shell.variables
    return None


def _compare(walk: Walk, shell: ShellState, left: Node, sign: str, right: Node) -> Answer:
    mine = expansion.text(walk, shell, left)
    if sign in _NUMBERS:
        return _compared(sign, mine, expansion.text(walk, shell, right))
    if sign not in ("=", "==", "!=", "=~"):
        return _ordered(mine, sign, expansion.text(walk, shell, right))
    yours = expansion.pattern(walk, shell, right)
    if not is_known(mine + yours):
        return None if sign == "=~" else _differ(mine, yours, sign)
    if "nocasematch" in shell.options:
        return None
    if sign == "=~":
        walk.spend(cost(yours, mine) // expansion.STEP)
        return search(yours, mine)
    answer = fits(mine, yours)
    return negated(answer) if sign == "!=" else answer


def _ordered(left: str, sign: str, right: str) -> Answer:
    if not is_known(left + right) or sign.lstrip("\\") not in ("<", ">"):
        return None
    return left < right if sign.endswith("<") else left > right


def insist(walk: Walk, asked: range) -> None:
    """Mark reads of unset variables without a default as required."""
    for at in asked:
        read = walk.trace.reads[at]
        if not read.given and read.use != "default":
            walk.trace.reads[at] = Read(read.name, "required", False, read.place)


def of_words(walk: Walk, shell: ShellState, operands: Sequence[str], node: Node) -> Answer:
    """Return the answer of `test` or `[` as a plain command."""
    try:
        return _Words(walk, shell, list(operands), node).answer()
    except ValueError:
        return None


class _Words:
    """The operands of `test`, read as bash does. Raises ValueError where bash returns 2."""

    def __init__(self, walk: Walk, shell: ShellState, operands: list[str], node: Node) -> None:
        self._walk, self._shell, self._words, self._node = walk, shell, operands, node

    def answer(self) -> Answer:
        operands = self._words
        if len(operands) == 4 and operands[0] == "!":
            return negated(_Words(self._walk, self._shell, operands[1:], self._node).answer())
        if len(operands) == 3 and operands[1] in _JOINED | _COMPARED:
            if operands[1] in _JOINED:
                return self._joined(operands[1], _filled(operands[0]), _filled(operands[2]))
            return self._binary(*operands)
        if len(operands) < 2:
            return _filled(operands[0]) if operands else False
        answer = self._either()
        if self._words:
            raise ValueError(self._words[0])
        return answer

    def _take(self) -> str:
        if not self._words:
            raise ValueError("an operand is missing")
        word, *self._words = self._words
        return word

    def _joined(self, sign: str, left: Answer, right: Answer) -> Answer:
        if sign == "-a":
            return _all(left, right)
        return negated(_all(negated(left), negated(right)))

    def _either(self) -> Answer:
        answer = self._both()
        while self._words[:1] == ["-o"]:
            self._take()
            answer = self._joined("-o", answer, self._both())
        return answer

    def _both(self) -> Answer:
        answer = self._term()
        while self._words[:1] == ["-a"]:
            self._take()
            answer = self._joined("-a", answer, self._term())
        return answer

    def _term(self) -> Answer:
        word = self._take()
        if word == "!":
            return negated(self._term())
        if word == "(":
            answer = self._either()
            if self._take() != ")":
                raise ValueError("`)` is missing")
            return answer
        if len(self._words) > 1 and self._words[0] in _COMPARED:
            return self._binary(word, self._take(), self._take())
        if re.fullmatch("-[a-zA-Z]", word) and self._words:
            return _of_operand(self._walk, self._shell, word, self._take(), self._node)
        return _filled(word)

    def _binary(self, left: str, sign: str, right: str) -> Answer:
        if sign in _NUMBERS:
            for word in (left, right):
                if is_known(word) and not re.fullmatch(r"\s*[-+]?[0-9]+\s*", word):
                    raise ValueError(f"{word} is no number")
            return _compared(sign, left, right)
        if sign not in ("=", "==", "!="):
            return _ordered(left, sign, right)
        if not is_known(left + right):
            return _differ(left, expansion.plain(right), sign)
        return (left == right) is (sign != "!=")


_JOINED = {"-a", "-o"}
_COMPARED = {*_NUMBERS, "=", "==", "!=", "<", ">", "-nt", "-ot", "-ef"}


def _filled(word: str) -> Answer:
    """Return whether a word is not empty. A known part is enough."""
    return True if word.strip(UNKNOWN) else (None if word else False)


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


def evaluated(walk: Walk, shell: ShellState, text: str) -> int | None:
    """Return the value of an expression in a text, as `let` does; None if unknown."""
    if not is_known(text):
        return None
    if (number := _number(text)) is not None:
        return number
    root = parse(f"(({text}))")
    if len(root.named_children) == 1 and not root.has_error:
        return arithmetic(walk, shell, root.named_children[0])
    for name in re.findall(r"[A-Za-z_]\w*", text):
        shell.variables.set(name, UNKNOWN)
    return None


def arithmetic(walk: Walk, shell: ShellState, node: Node) -> int | None:
    """Return the value of (( )); None if unknown. Raises Exit under `set -u`."""
    if node.type in ("arithmetic_expansion", "parenthesized_expression", "compound_statement"):
        value: int | None = 0
        for child in node.named_children:
            value = arithmetic(walk, shell, child)
        return value
    if node.type == "number":
        return _number(text_of(node))
    if node.type in ("variable_name", "word", "subscript"):
        return _variable(walk, shell, node)
    if node.type in ("simple_expansion", "expansion", "string", "command_substitution"):
        return _number(expansion.text(walk, shell, node))
    if node.type == "binary_expression":
        return _calculated(walk, shell, node)
    if node.type in ("postfix_expression", "unary_expression"):
        return _stepped(walk, shell, node)
    if node.type == "ternary_expression" and len(node.named_children) == 3:
        condition, yes, no = node.named_children
        answer = arithmetic(walk, shell, condition)
        if answer is not None:
            return arithmetic(walk, shell, yes if answer else no)
    if node.type == "variable_assignment":
        name, right = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name and right and len(node.children) == 3 and node.children[1].type == "=":
            return _store(shell, name, arithmetic(walk, shell, right))
    forget(shell, node)
    return None


def _variable(walk: Walk, shell: ShellState, node: Node) -> int | None:
    text = text_of(node)
    name, _, rest = text.partition("[")
    if not name.isidentifier():
        return _number(text)
    value = expansion.value_of(shell, name)
    if value is None and "nounset" in shell.options and not walk.unread_source:
        raise Exit(1, "expansion")
    if rest:
        expansions = arguments_of(f"${{{text}}}")
        value = expansion.text(walk, shell, expansions[0]) if expansions else UNKNOWN
    elif isinstance(value, list):
        value = value[0] if value else ""
    elif isinstance(value, dict):
        value = value.get("0", "")
    return _number(value or "")


def _store(shell: ShellState, target: Node, value: int | None) -> int | None:
    """Set a variable; return its value."""
    name, bracket, _ = text_of(target).partition("[")
    shell.variables.set(name, UNKNOWN if value is None or bracket else str(value))
    return value


def forget(shell: ShellState, node: Node) -> None:
    """Make the variables unknown that a part of a script may set."""
    for name in assigned_names(node):
        shell.variables.set(name, UNKNOWN)


def _calculated(walk: Walk, shell: ShellState, node: Node) -> int | None:
    left_node, right_node = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left_node is None or right_node is None:
        return None
    sign = text_of(node.child_by_field_name("operator") or node.children[1])
    if sign == "=":
        return _store(shell, left_node, arithmetic(walk, shell, right_node))
    left = arithmetic(walk, shell, left_node)
    if sign in ("&&", "||"):
        if left is None:
            forget(shell, right_node)
            return None
        if bool(left) is (sign == "||"):
            return int(bool(left))
    right = arithmetic(walk, shell, right_node)
    if sign == "**" and left_node.type == "binary_expression":
        return None  # the grammar takes a**b**c for (a**b)**c
    updates = sign.endswith("=") and sign not in ("==", "!=", "<=", ">=")
    value: int | None = None
    if left is not None and right is not None:
        value = calculated(left, sign[:-1] if updates else sign, right)
    return _store(shell, left_node, value) if updates else value


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
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}


def calculated(left: int, sign: str, right: int) -> int | None:
    if sign in ("/", "%") and right == 0:
        return None
    if sign in ("**", "<<", ">>") and not 0 <= right < 64:
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
        forget(shell, operand)
        return None  # the grammar takes -1 + 2 for -(1 + 2)
    value = arithmetic(walk, shell, operand) if operand else None
    for sign, step in (("++", 1), ("--", -1)):
        if operand and (body.startswith(sign) or body.endswith(sign)):
            if not re.match(r"[A-Za-z_]\w*", text_of(operand)):
                return None
            after = _store(shell, operand, None if value is None else _of_64_bits(value + step))
            return after if body.startswith(sign) else value
    if value is None:
        return None
    signs = {"-": -value, "!": int(not value), "~": ~value, "+": value}
    return signs.get(body[:1])


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
