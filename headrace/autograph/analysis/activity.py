"""Activity: the variables that a piece of code reads and writes.

Only names of the function itself count. The body of a nested function counts by its free variables: a statement that
uses a local function also reads the free variables of it, and writes those that it declares `nonlocal`, because it may
call the function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any, Final

# Methods that change the length of a list: in a graph the name of the list becomes that of a tensor list.
GROWING: Final = frozenset(("append", "extend", "insert", "pop", "remove", "clear"))
# Methods that change an object of Python.
CHANGING: Final = GROWING | frozenset("sort reverse update setdefault popitem add discard appendleft popleft".split())
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Activity:
    """Reads and writes of the nodes of one function.

    Args:
      body: the statements of the function.
      aliases: for each name, the names that may be bound to its object, itself included.

    Attributes:
      captured: the names that nested functions use of this one.
    """

    def __init__(self, body: Iterable[ast.stmt], aliases: Mapping[str, frozenset[str]]) -> None:
        self._aliases = aliases
        self._memo: dict[int, tuple[frozenset[str], frozenset[str]]] = {}
        self._functions: dict[str, tuple[set[str], set[str]]] = {}
        self._kept: list[ast.AST] = []  # nodes in the memo, so that their ids stay theirs
        self.captured: set[str] = set()
        for node in body:
            self._find_functions(node)

    def _find_functions(self, node: ast.AST) -> None:
        if isinstance(node, _SCOPES):
            reads, writes = free_names(node)
            self.captured |= reads | writes
            body = [node.body] if isinstance(node, ast.Lambda) else node.body
            writes = writes | (_grown(*body) & reads)  # a list that the function lengthens
            if not isinstance(node, ast.Lambda):
                self._add(node.name, reads, writes)
            return
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            reads, writes = free_names(node.value)
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self._add(target.id, reads, writes)
        for child in ast.iter_child_nodes(node):
            self._find_functions(child)

    def _add(self, name: str, reads: set[str], writes: set[str]) -> None:
        known = self._functions.setdefault(name, (set(), set()))
        known[0].update(reads)
        known[1].update(writes)

    def reads(self, *nodes: Any) -> frozenset[str]:
        """Returns the names that the nodes may read."""
        return frozenset().union(*(self.of(n)[0] for n in nodes))

    def writes(self, *nodes: Any) -> frozenset[str]:
        """Returns the names that the nodes may assign or delete."""
        return frozenset().union(*(self.of(n)[1] for n in nodes))

    def of(self, node: Any) -> tuple[frozenset[str], frozenset[str]]:
        """Returns the names that a node, or a list of nodes, may read and write."""
        if node is None:
            return frozenset(), frozenset()
        if isinstance(node, (list, tuple)):
            return self.reads(*node), self.writes(*node)
        found = self._memo.get(id(node))
        if found is None:
            reads, writes = direct(node)
            writes |= _grown(node)
            for name in _with_assigned_elements(node):
                writes |= self._aliases.get(name, frozenset((name,)))
            todo = [n for n in reads if n in self._functions]
            seen = set(todo)
            while todo:
                more_reads, more_writes = self._functions[todo.pop()]
                reads |= more_reads
                writes |= more_writes
                new = [n for n in more_reads if n in self._functions and n not in seen]
                seen.update(new)
                todo += new
            found = self._memo[id(node)] = frozenset(reads), frozenset(writes)
            self._kept.append(node)
        return found


def direct(node: ast.AST) -> tuple[set[str], set[str]]:
    """Returns the names that a node reads and writes, without calls of local functions."""
    reads: set[str] = set()
    writes: set[str] = set()
    _visit(node, reads, writes)
    return reads, writes


def _grown(*nodes: ast.AST) -> set[str]:
    """Returns the names of the lists that a node may lengthen or shorten."""
    return {
        inner.func.value.id
        for node in nodes
        for inner in own_nodes(node)
        if isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and inner.func.attr in GROWING
        and isinstance(inner.func.value, ast.Name)
    }


def _with_assigned_elements(node: ast.AST) -> set[str]:
    """Returns the names whose elements a node may assign."""
    out: set[str] = set()
    for inner in own_nodes(node):
        if isinstance(inner, ast.Subscript) and not isinstance(inner.ctx, ast.Load):
            holder: ast.expr = inner
            while isinstance(holder, ast.Subscript):
                holder = holder.value
            if isinstance(holder, ast.Name):
                out.add(holder.id)
    return out


def _visit(node: ast.AST, reads: set[str], writes: set[str]) -> None:
    if isinstance(node, ast.Name):
        (reads if isinstance(node.ctx, ast.Load) else writes).add(node.id)
        return
    if isinstance(node, _SCOPES):
        inner_reads, _ = free_names(node)
        if isinstance(node, ast.Lambda):
            reads |= inner_reads
        else:
            reads |= inner_reads - {node.name}  # a recursive function is bound before it reads itself
            writes.add(node.name)
            for decorator in node.decorator_list:
                _visit(decorator, reads, writes)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                _visit(default, reads, writes)
        return
    if isinstance(node, ast.ClassDef):
        inner: tuple[set[str], set[str]] = (set(), set())
        for child in ast.iter_child_nodes(node):
            _visit(child, *inner)
        reads |= inner[0]
        writes.add(node.name)
        return
    if isinstance(node, _COMPREHENSIONS):
        _comprehension(node, reads, writes)
        return
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        reads.add(node.target.id)
    elif isinstance(node, ast.ExceptHandler) and node.name:
        writes.add(node.name)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        writes.update((a.asname or a.name).split(".")[0] for a in node.names)
    elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
        writes.add(node.name)
    elif isinstance(node, ast.MatchMapping) and node.rest:
        writes.add(node.rest)
    for child in ast.iter_child_nodes(node):
        _visit(child, reads, writes)


def _comprehension(node: Any, reads: set[str], writes: set[str]) -> None:
    inner_reads: set[str] = set()
    inner_writes: set[str] = set()
    for child in ast.iter_child_nodes(node):
        _visit(child, inner_reads, inner_writes)
    targets: set[str] = set()
    for generator in node.generators:
        _visit(generator.target, set(), targets)
    reads |= inner_reads - targets
    writes |= inner_writes - targets  # by :=


def free_names(node: Any) -> tuple[set[str], set[str]]:
    """Returns the names that a nested function reads and writes of the functions around it."""
    reads: set[str] = set()
    writes: set[str] = set()
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    for child in body:
        _visit(child, reads, writes)
    declared: set[str] = set()
    for child in body:
        for inner in own_nodes(child):
            if isinstance(inner, ast.Nonlocal):
                declared.update(inner.names)
            elif isinstance(inner, _SCOPES):
                declared |= free_names(inner)[1] - writes
    own = writes - declared
    own |= {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
    return reads - own, declared


def own_nodes(node: ast.AST) -> Iterable[ast.AST]:
    """Yields a node and those below it, nested functions and classes without their insides."""
    yield node
    if isinstance(node, (*_SCOPES, ast.ClassDef)):
        return
    for child in ast.iter_child_nodes(node):
        yield from own_nodes(child)
