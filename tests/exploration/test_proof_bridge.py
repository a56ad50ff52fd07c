"""What is proved is what runs: abstract pool and list against specification and real links."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("z3", reason="needs z3-solver (make proof)")

from poolproof.contract.profile import Profile
from poolproof.exploration.proof import pool_bridge
from poolproof.exploration.proof.all_models import MODELS
from poolproof.exploration.proof.pool_bridge import (
    BridgeError,
    PoolScope,
    compare_pool,
    profiles,
)
from poolproof.exploration.proof.pool_model import POOL
from poolproof.exploration.proof.proof_run import compare_with_what_runs
from poolproof.exploration.proof.queue_bridge import compare_queue
from poolproof.impl.free_queue import FreeQueue

SMALL = PoolScope(2, 1, 2)


def altered(model, name, *, without=(), guard=None):
    action = model.action(name)

    def effect(logic, s, *parameters):
        changes = action.effect(logic, s, *parameters)
        return {field: value for field, value in changes.items() if field not in without}

    changed = replace(action, effect=effect, guard=guard or action.guard)
    actions = tuple(changed if a is action else a for a in model.actions)
    return replace(model, actions=actions)


class QueuesBackwards(FreeQueue):
    def __init__(self, num_blocks):
        super().__init__(num_blocks)
        blocks = [self.popleft() for _ in range(num_blocks)]
        self.append_n(blocks[::-1])


def test_a_queue_that_starts_otherwise_is_refused():
    with pytest.raises(BridgeError, match="a new queue is"):
        compare_queue(2, QueuesBackwards)


@pytest.mark.parametrize("has_null", [False, True])
def test_the_pool_agrees_in_every_profile(has_null):
    scope = PoolScope(2, 2, 2, has_null)
    compared = [compare_pool(scope, profile) for profile in profiles(has_null)]
    assert len(compared) == 18
    assert min(compared) > 100


@pytest.mark.parametrize(
    ("eviction", "duplicates"), [("lru", "kept"), ("unhashed-first", "first"), ("lifo", "last")]
)
def test_the_pool_agrees_with_three_blocks_two_hashes_two_references(eviction, duplicates):
    profile = Profile(eviction=eviction, duplicates=duplicates)
    assert compare_pool(PoolScope(3, 2, 2), profile) > 10_000


@pytest.mark.deep
@pytest.mark.parametrize("profile", list(profiles(False)), ids=str)
def test_the_pool_agrees_with_three_blocks_in_every_profile(profile):
    assert compare_pool(PoolScope(3, 2, 2), profile) > 10_000


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("allocate", {"without": ["indexed", "hashed"]}),
        ("touch", {"without": ["at", "index", "end", "num_free", "queued"]}),
        ("free", {"without": ["holder"]}),
        ("cache", {"guard": lambda logic, s, *_: False}),
        ("evict", {"guard": lambda logic, s, b: s.hashed(b)}),
        ("reset", {"guard": lambda logic, s: True}),
        ("lookup", {"guard": lambda logic, s, h, b: s.hashed(b)}),
    ],
)
def test_a_model_that_differs_from_the_specification_is_refused(name, changes):
    wrong = altered(POOL, name, **changes)
    with pytest.raises(BridgeError):
        compare_pool(PoolScope(2, 2, 2), Profile(), wrong)


def test_a_model_whose_invariants_are_too_strong_is_refused():
    never_cached = {"I4 never": lambda logic, s: logic.every("Block", lambda b: not s.hashed(b))}
    wrong = replace(POOL, invariants={**POOL.invariants, **never_cached})
    with pytest.raises(BridgeError, match=r"breaks .*I4 never"):
        compare_pool(SMALL, Profile(), wrong)


def test_a_model_that_starts_elsewhere_is_refused():
    wrong = replace(POOL, initial=lambda logic, s: s.end < 0)
    with pytest.raises(BridgeError, match="no initial state"):
        compare_pool(SMALL, Profile(), wrong)


def test_a_specification_that_is_wrong_is_refused(monkeypatch):
    class KeepsHash(pool_bridge.DictPool):
        def _drop_keys(self, block_id):
            self.keys[block_id].clear()

    monkeypatch.setattr(pool_bridge, "DictPool", KeepsHash)
    with pytest.raises(BridgeError, match="index and hashes of the specification differ"):
        compare_pool(SMALL, Profile())


def test_states_that_are_left_out_are_missed(monkeypatch):
    every = pool_bridge._all_facts

    def only_unheld(*arguments):
        return (facts for facts in every(*arguments) if not any(facts[0]))

    monkeypatch.setattr(pool_bridge, "_all_facts", only_unheld)
    with pytest.raises(BridgeError, match="out of scope"):
        compare_pool(SMALL, Profile())


@pytest.mark.parametrize("num_blocks", [0, 1, 2, 3])
def test_the_list_agrees_with_real_links(num_blocks):
    assert compare_queue(num_blocks, FreeQueue) > 0


@pytest.mark.deep
def test_the_list_agrees_with_real_links_of_four_blocks():
    assert compare_queue(4, FreeQueue) > 1000


class KeepsLinks(FreeQueue):
    def unlink(self, block_id):
        super().unlink(block_id)
        self.next[block_id] = self.tail


class Backwards(FreeQueue):
    def prepend_n(self, block_ids):
        super().prepend_n(list(block_ids)[::-1])


@pytest.mark.parametrize("wrong", [KeepsLinks, Backwards])
def test_links_that_differ_are_refused(wrong):
    with pytest.raises(BridgeError):
        compare_queue(3, wrong)


@pytest.mark.parametrize(
    ("model", "action", "without"),
    [
        ("queue", "remove", ["previous"]),
        ("popleft_n", "body", ["previous"]),
        ("append_n", "body", ["cursor"]),
        ("prepend_n", "rest", ["length"]),
    ],
)
def test_a_list_model_that_differs_is_refused(model, action, without):
    wrong = {**MODELS, model: altered(MODELS[model], action, without=without)}
    with pytest.raises(BridgeError):
        compare_queue(3, FreeQueue, wrong)


def test_a_loop_that_cannot_start_is_refused():
    never = replace(MODELS["append_n"], initial=lambda logic, s: False)
    with pytest.raises(BridgeError, match="append_n cannot start"):
        compare_queue(2, FreeQueue, {**MODELS, "append_n": never})


def test_a_model_that_orders_otherwise_is_refused(monkeypatch):
    from poolproof.exploration.proof import queue_bridge

    class Reversed(queue_bridge.DictQueue):
        def append_n(self, block_ids):
            super().append_n(block_ids[::-1])

    monkeypatch.setattr(queue_bridge, "DictQueue", Reversed)
    with pytest.raises(BridgeError, match="the specification has"):
        compare_queue(2, FreeQueue)


def test_a_difference_is_part_of_the_run():
    assert compare_with_what_runs(FreeQueue).difference == ""
    assert "links" in compare_with_what_runs(Backwards).difference
