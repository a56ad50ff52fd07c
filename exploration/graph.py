"""The graph of a small space as DOT and as JSON: what is held, what is queued, what leads where.

Hashes are letters. A state reads `- a | 2a`: the free blocks, head first, `-` for no hash; then
the held blocks, each with its references and its hash. Unreduced states also name the blocks.
"""

from __future__ import annotations

import json
from typing import Any

from poolproof.exploration.breadth_first import Space, reachable
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.scope import ALL_VERBS, ScopeError
from poolproof.exploration.state_space import StateSpace

__all__ = ["MOST_NODES", "as_dot", "as_json", "check_size", "described"]

MOST_NODES = 2_000
"""Beyond this nobody can look at a graph."""


def check_size(num_nodes: int, what: str = "graph") -> None:
    """Raises ScopeError for more states than a graph, or a page of them, is written for."""
    if num_nodes > MOST_NODES:
        raise ScopeError(
            f"the {what} would have {num_nodes:,} states and is written up to {MOST_NODES:,}; "
            "ask for fewer blocks, hashes or references"
        )


def described(space: Space, state: bytes) -> str:
    """A state in one short line."""
    if isinstance(space, OrbitSpace):
        queue, live = space.split(state)
        free = [_hash(label) for label in queue]
        held = [f"{count}{_hash(label)}" for count, label in map(space.parts, live)]
    else:
        assert isinstance(space, StateSpace)
        blocks, order = space.split(state)
        free = [f"{block}:{_hash(blocks[block][1])}" for block in order]
        held = [f"{b}:{count}{_hash(label)}" for b, (count, label) in enumerate(blocks) if count]
    return f"{' '.join(free)} | {' '.join(held)}".strip()


def as_json(space: Space) -> str:
    """Nodes with the number of states that each stands for, and edges with their verbs."""
    nodes, edges = _graph(space)
    document = {
        "format": "poolproof-graph",
        "version": 1,
        "scope": str(space.scope),
        "rules": space.scope.rules,
        "nodes": [
            {"id": number, "state": described(space, state), "states": space.size(state)}
            for state, number in nodes.items()
        ],
        "edges": [
            {"from": here, "to": there, "verb": ALL_VERBS[verb]} for here, there, verb in edges
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def as_dot(space: Space) -> str:
    """A directed graph for Graphviz; the fresh pool has a double border."""
    nodes, edges = _graph(space)
    lines = ["digraph pool {", "  node [shape=box, fontname=monospace];"]
    for state, number in nodes.items():
        border = "" if number else ", peripheries=2"
        lines.append(f'  s{number} [label="{described(space, state)}"{border}];')
    lines += [f'  s{here} -> s{there} [label="{ALL_VERBS[verb]}"];' for here, there, verb in edges]
    return "\n".join([*lines, "}"]) + "\n"


def _graph(space: Space) -> tuple[dict[bytes, int], list[Any]]:
    nodes = {state: number for number, state in enumerate(reachable(space))}
    edges = [
        (number, nodes[after], verb)
        for state, number in nodes.items()
        for verb, after in sorted(set(space.successors(state)[0]))
    ]
    return nodes, edges


def _hash(label: int) -> str:
    return "-abcdefghij"[label]
