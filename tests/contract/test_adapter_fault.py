"""An adapter that does not fit is told from a target that raises."""

from __future__ import annotations

import pytest

from poolproof.contract.adapter_fault import HandedOver, adapters_fault
from poolproof.targets.engine_sources import BlankModule, import_from_source, stub_module
from poolproof.targets.torch_stand_in import torch_stand_in


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
    with pytest.raises(Exception) as raised:
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
    assert fault_of(ADAPTER, "{}['x']") is None


@pytest.mark.parametrize("answer", ["(1, 2, 3)", "(1,)"])
def test_an_answer_that_cannot_be_unpacked_is_the_adapters_fault(answer):
    source = f"[a for a, b in [{answer}]]"
    assert "values to unpack" in fault_of(ADAPTER, source)
    assert fault_of("some_engine", source) is None


def raise_(error):
    raise error


def test_what_a_stand_in_cannot_do_is_the_adapters_fault():
    torch = torch_stand_in()
    assert "unsqueeze(3)" in fault_of("some_engine", "request.unsqueeze(3)", torch.arange(3))
    assert "no attribute 'scatter'" in fault_of(
        "some_engine", "request.scatter(0)", torch.arange(3)
    )
    with pytest.raises(NotImplementedError) as raised:
        in_module("some_engine", "request(NotImplementedError('later'))")(None, raise_)
    assert adapters_fault(raised.value) is None


def test_a_blank_that_is_asked_to_decide_is_the_adapters_fault():
    blank = BlankModule("heavyweight")
    assert "'_Nothing'" in fault_of("some_engine", "request.size + 1", blank)
    assert "no attribute 'unknown'" in fault_of(
        "some_engine", "request.unknown", stub_module("stub")
    )


def test_a_class_of_the_engine_that_derives_from_a_blank_is_its_own():
    cls = type("EngineConfig", (BlankModule("heavyweight").Config,), {})
    assert fault_of("some_engine", "1 + manager.blocks", cls()) is None
    assert fault_of("some_engine", "len(request)", cls()) is None


def test_a_module_that_is_imported_late_and_is_not_there_is_the_adapters_fault(tmp_path):
    (tmp_path / "enginex").mkdir()
    (tmp_path / "enginex" / "late.py").write_text(
        "def own():\n    import enginex.kernels\ndef other():\n    import no_such_library\n"
    )
    late = import_from_source(tmp_path, "enginex", ("late",), {})["late"]
    with pytest.raises(ImportError) as raised:
        late.own()
    assert adapters_fault(raised.value) == (
        "an import of the engine: No module named 'enginex.kernels'"
    )
    with pytest.raises(ImportError) as raised:
        late.other()
    assert "'no_such_library'" in adapters_fault(raised.value)


def test_an_import_that_fails_elsewhere_is_the_targets_own():
    with pytest.raises(ImportError) as raised:
        in_module(ADAPTER, "__import__('no_such_library')")(None)
    assert adapters_fault(raised.value) is None


@pytest.mark.parametrize("name", ["poolproof.targets.paired", "poolproof.impl.pool", "mine"])
def test_modules_that_know_no_shape_are_no_adapters(name):
    assert fault_of(name, "manager.allocate(1)") is None


def test_an_error_that_was_never_raised_is_nobodys_fault():
    assert adapters_fault(TypeError("fresh")) is None
