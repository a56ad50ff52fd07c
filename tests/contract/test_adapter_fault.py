"""An adapter that does not fit is told from a target that raises."""

from __future__ import annotations

import pytest

from poolproof.contract.adapter_fault import HandedOver, adapters_fault


class Manager:
    blocks = ()

    def allocate(self, seq, num_cached):
        return seq, num_cached

    def reads(self, seq):
        return seq.priority

    def measures(self, seq):
        return len(seq)

    def stumbles(self):
        return self.no_such_thing


class HandedRequest(HandedOver):
    tokens = ()


def in_module(name: str, source: str):
    """A function `call(manager)` as if it stood in that module."""
    scope = {"__name__": name}
    exec(f"def call(manager, request=None):\n    return {source}\n", scope)  # noqa: S102 -- ours
    return scope["call"]


def fault_of(name, source, request=None):
    with pytest.raises((TypeError, AttributeError, ValueError)) as raised:
        in_module(name, source)(Manager(), request)
    return adapters_fault(raised.value)


ADAPTER = "poolproof.targets.some_manager"


def test_a_call_that_does_not_bind_is_the_adapters_fault():
    found = fault_of(ADAPTER, "manager.allocate(1)")
    assert found.startswith("call() of some_manager.py (line 2): ")
    assert "allocate() missing 1 required positional argument: 'num_cached'" in found


def test_an_attribute_that_the_engine_lacks_is_the_adapters_fault():
    assert "no attribute 'free_ids'" in fault_of(ADAPTER, "manager.free_ids")


def test_an_attribute_that_a_stand_in_lacks_is_the_adapters_fault():
    found = fault_of(ADAPTER, "manager.reads(request)", HandedRequest())
    assert found.startswith("reads(), line ")
    assert "'HandedRequest' object has no attribute 'priority'" in found


def test_a_stand_in_that_cannot_be_measured_is_the_adapters_fault():
    found = fault_of(ADAPTER, "manager.measures(request)", HandedRequest())
    assert "'HandedRequest' has no len()" in found


def test_what_the_engine_stumbles_over_itself_is_its_own():
    assert fault_of(ADAPTER, "manager.stumbles()") is None
    assert fault_of(ADAPTER, "manager.reads(request)", 3) is None


def test_other_errors_of_an_adapter_are_not_judged_here():
    assert fault_of(ADAPTER, "int('x')") is None


@pytest.mark.parametrize("name", ["poolproof.targets.paired", "poolproof.impl.pool", "mine"])
def test_modules_that_know_no_shape_are_no_adapters(name):
    assert fault_of(name, "manager.allocate(1)") is None


def test_an_error_that_was_never_raised_is_nobodys_fault():
    assert adapters_fault(TypeError("fresh")) is None
