"""Bugs in what owners do with blocks, and in admission."""

from __future__ import annotations

from poolproof.exploration.proof.logic import Logic, Term, Truth
from poolproof.exploration.proof.model import Changes, State
from poolproof.exploration.proof.planted import Planted
from poolproof.exploration.proof.planted_in_pool import but, instead, without
from poolproof.exploration.proof.pool_model import POOL

__all__ = ["CONTENT_BUGS"]


def _written_while_shared(logic: Logic, s: State, reference: Term, *_rest: Term) -> Truth:
    return logic.holds_all(s.live(reference), logic.negated(s.hashed(s.on(reference))))


def _written_while_cached(logic: Logic, s: State, reference: Term, *_rest: Term) -> Truth:
    return logic.holds_all(s.live(reference), logic.same(s.count(s.on(reference)), 1))


def _cached_early(logic: Logic, s: State, block: Term) -> Truth:
    return POOL.action("cache").guard(logic, s, block, s.name_of(s.kv(block)))


def _under_another_hash(logic: Logic, s: State, block: Term) -> Changes:
    """The hash leaves out a part of what the KV depends on."""
    return POOL.action("cache").effect(logic, s, block, s.name_of(s.chain_of(s.hash(block))))


def _hit_on_any(logic: Logic, s: State, chain: Term, block: Term, reference: Term) -> Truth:
    return POOL.action("touch").guard(logic, s, block, reference)


def _counts_new_only(logic: Logic, s: State, revived: Term, new: Term) -> Changes:
    return {"admitted": new <= s.num_free}


def _counts_all_as_new(logic: Logic, s: State, revived: Term, new: Term) -> Changes:
    return {"admitted": revived + new + 1 <= s.num_free}


def _anything(logic: Logic, s: State, *_parameters: Term) -> Truth:
    return True


CONTENT_BUGS = (
    Planted(
        "C1", "content", "write", "DATA", "a shared block is written to without a copy",
        "atlas#1193", guard=_written_while_shared,
    ),
    Planted(
        "C2", "content", "write", "I3", "a cached block is written to again", "vllm#49377",
        guard=_written_while_cached,
    ),
    Planted(
        "C3", "content", "cache", "I3", "a block is cached before it is full", "vllm#29387",
        guard=_cached_early,
    ),
    Planted(
        "C4", "content", "cache", "IDX", "the key leaves something out", "vllm#3264",
        alter=instead(_under_another_hash),
    ),
    Planted(
        "C5", "content", "allocate", "I3", "a recycled block keeps its hash", "nano-vllm#163",
        alter=without("hashed", "indexed"),
    ),
    Planted(
        "C6", "content", "hit", "DATA", "a hit is not compared with what was asked for",
        "openvino.genai#3722", guard=_hit_on_any,
    ),
    Planted(
        "C7", "content", "share", "DATA", "a fork does not hold what its parent holds",
        "tvm#16666", alter=without("wants"),
    ),
    Planted(
        "M1", "admission", "ask", "ADM", "revived hits are not counted", "vllm#11565",
        alter=but(_counts_new_only),
    ),
    Planted(
        "M2", "admission", "ask", "ADM", "one block too many is wanted", "vllm#19031",
        alter=but(_counts_all_as_new),
    ),
    Planted(
        "M3", "admission", "ask", "ADM", "a negative number of blocks is asked for", "vllm#52707",
        guard=_anything,
    ),
    Planted(
        "M4", "admission", "take", "ADM", "the counter misses an allocation",
        alter=without("num_free"),
    ),
)  # fmt: skip
