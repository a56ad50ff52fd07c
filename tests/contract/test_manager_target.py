"""What a manager can do, and what is said of one that lacks a method."""

import pytest

from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.contract.target import TargetError


class Least:
    def admit(self, seq_id, tokens, *, extra_keys=None): ...
    def append(self, seq_id, tokens): ...
    def step(self, batch): ...
    def finish(self, seq_id): ...
    def block_table(self, seq_id, group=0): ...


def test_the_least_manager_has_the_required_verbs():
    can = manager_capabilities_of(Least())
    assert can.level == "manager"
    assert can.verbs == {"admit", "append_tokens", "step", "finish"}
    assert can.observers == frozenset()


def test_resuming_needs_a_preemption():
    class Preempting(Least):
        def preempt(self, seq_id): ...

    assert {"preempt", "resume"} <= manager_capabilities_of(Preempting()).verbs


@pytest.mark.parametrize("name", ["admit", "append", "step", "finish", "block_table"])
def test_a_missing_method_is_named(name):
    lacking = type("Lacking", (Least,), {name: None})
    with pytest.raises(TargetError, match=rf"Lacking lacks {name}\(\)"):
        manager_capabilities_of(lacking())


@pytest.mark.parametrize(
    ("there", "missing"),
    [("swap_out", "swap_in"), ("draft", "accept"), ("load", "loaded")],
)
def test_half_of_a_pair_is_refused(there, missing):
    half = type("Half", (Least,), {there: lambda self, seq_id: None})
    with pytest.raises(TargetError, match=missing):
        manager_capabilities_of(half())


def test_observers_are_what_can_be_called():
    class Seen(Least):
        ref_count = 3

        def num_free(self): ...
        def is_cached(self, block_id): ...

    assert manager_capabilities_of(Seen()).observers == {"num_free", "is_cached"}
