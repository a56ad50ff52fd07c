"""A counterexample as a table: what the pool or the list held before the step, and after it.

One row a fact, with values as plain text; rows that no step can change are said once. Blocks are
numbers, hashes letters, references r0, r1, chains c0, c1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from poolproof.exploration.proof.concrete_state import ConcreteStep
from poolproof.exploration.proof.model import State

__all__ = ["StepTable", "step_table"]


@dataclass(frozen=True)
class StepTable:
    """A step in words, the rows of (what, before, after), and what does not hold after it."""

    step: str
    rows: tuple[tuple[str, str, str], ...]
    broken: tuple[str, ...]


def step_table(step: ConcreteStep) -> StepTable:
    """The table of a step."""
    describe = _queue_facts if "next" in step.model.fields else _pool_facts
    before, after = dict(describe(step, step.before)), dict(describe(step, step.after))
    rows = tuple((what, before.get(what, "-"), after.get(what, "-")) for what in before | after)
    return StepTable(_in_words(step), rows, step.broken)


def _in_words(step: ConcreteStep) -> str:
    named = zip(step.action.parameters.items(), step.parameters, strict=True)
    shown = [
        f"{name} {_value(sort, value, step.before)}" for (name, sort), value in named
    ]  # fmt: skip
    return f"{step.action.name}({', '.join(shown)})"


def _value(sort: str, value: Any, state: State) -> str:
    if sort == "Hash":
        return chr(ord("A") + value)
    if sort == "Node":
        names = {state.head: "head", state.tail: "tail", state.nil: "none"}
        return names.get(value, str(value))
    prefix = {"Reference": "r", "Chain": "c"}.get(sort, "")
    return f"{prefix}{value}"


def _pool_facts(step: ConcreteStep, s: State) -> Iterator[tuple[str, str]]:
    blocks = step.logic.domains["Block"]
    yield "profile", _profile(s)
    line = [str(s.at(place)) for place in range(s.first, s.end)]
    yield "free queue", " ".join(line) or "-"
    yield "num_free", str(s.num_free)
    entries = [
        f"{_value('Hash', h, s)}->{b}"
        for h in step.logic.domains["Hash"]
        for b in blocks
        if s.indexed(h, b)
    ]
    yield "index", " ".join(entries) or "-"
    for block in blocks:
        yield f"block {block}", ", ".join(_block(step, s, block))
    for reference in step.logic.domains["Reference"]:
        if s.live(reference):
            yield f"reference r{reference}", ", ".join(_reference(step, s, reference))
    for name in ("revived", "new", "admitted"):
        if name in step.model.fields:
            yield name, str(getattr(s, name))


def _profile(s: State) -> str:
    eviction = "lifo" if s.lifo else "unhashed-first" if s.unhashed_first else "lru"
    duplicates = "first" if s.keep_first else "last" if s.keep_last else "kept"
    recache = "forbidden" if s.recache_forbidden else "replace"
    return f"eviction={eviction} duplicates={duplicates} recache={recache}"


def _block(step: ConcreteStep, s: State, block: int) -> Iterator[str]:
    yield f"count {s.count(block)}"
    if s.null(block):
        yield "null"
    yield f"queued, place {s.index(block)}" if s.queued(block) else "not queued"
    if s.hashed(block):
        yield f"hash {_value('Hash', s.hash(block), s)}"
    if "kv" in step.model.fields:
        yield f"KV of c{s.kv(block)}{' in full' if s.full(block) else ''}"


def _reference(step: ConcreteStep, s: State, reference: int) -> Iterator[str]:
    yield f"on block {s.on(reference)}"
    yield f"place {s.place(reference)} in line"
    if "wants" in step.model.fields:
        yield f"reads c{s.wants(reference)}" if s.reads(reference) else "reads nothing"


def _queue_facts(step: ConcreteStep, s: State) -> Iterator[tuple[str, str]]:
    def name(node: int) -> str:
        return _value("Node", node, s)

    yield "line of nodes", " ".join(name(s.at(i)) for i in range(s.first - 1, s.end + 1))
    yield "length", str(s.length)
    if "batch" in step.model.fields:
        yield "batch", " ".join(name(s.batch(i)) for i in range(s.total)) or "-"
        yield "done", f"{s.done} of {s.total}"
        yield "cursor", name(s.cursor)
    for node in step.logic.domains["Node"]:
        if node != s.nil:
            where = (
                "" if node in (s.head, s.tail) else "queued: " if s.member(node) else "outside: "
            )
            links = f"{where}{name(s.previous(node))} <- {name(node)} -> {name(s.next(node))}"
            yield f"node {name(node)}", links
