"""What of a target is mutated where others beside its class are targets by themselves."""

from poolproof.power.modules import prepare
from poolproof.targets.load import load_target


def names_of(target):
    return [source.module for source in prepare(lambda: load_target(target), ()).sources]


def test_of_our_engine_the_scheduler_and_its_host_memory_are_mutated():
    assert names_of("impl-engine") == ["poolproof.impl.engine", "poolproof.impl.offloading"]


def test_of_a_manager_it_is_all_that_it_is_made_of():
    assert "poolproof.impl.free_queue" in names_of("impl-manager")
