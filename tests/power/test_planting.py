"""Samples of mutations, and mutants put in place of live functions."""

import importlib.util
import sys
import types

import pytest

from poolproof.contract.target import TargetError
from poolproof.power.modules import plant, prepare
from poolproof.power.planting import candidates, compiled, functions_of, sample
from poolproof.targets.load import load_target

POOLISH = """
class Base:
    def __init__(self):
        self.count = 0


class Queue(Base):
    def __init__(self, n):
        super().__init__()
        self.count = n

    def popleft(self):
        self.count -= 1
        if self.count < 0:
            return None
        return self.count

    def second(self):
        found: int
        found = self.count - 2
        return found

    def is_full(self):
        return self.count > 3 and True
"""


@pytest.fixture
def queue(tmp_path):
    """The module of POOLISH, loaded from a file, and that file."""
    path = tmp_path / "poolish.py"
    path.write_text(POOLISH)
    spec = importlib.util.spec_from_file_location("poolish_under_test", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def prepared(queue):
    """What a worker has of it; the target itself plays no part."""
    return prepare(lambda: load_target("impl"), [queue.__name__])


def all_of(source):
    places = {
        (code.co_name, code.co_firstlineno)
        for _, code in functions_of(compiled(source.text, source.path))
    }
    return candidates(source, places)


def test_a_planted_mutant_is_what_everybody_calls(prepared, queue):
    held = queue.Queue(2)
    (source,) = prepared.sources
    mutation = next(m for m in all_of(source) if m.operator == "+= and -= swapped")
    plant(prepared, mutation)
    assert held.popleft() == 3


def test_planting_leaves_the_file_as_it_was_and_no_other(prepared, queue, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    (source,) = prepared.sources
    for mutation in sample([source], all_of(source), None, 0).mutations:
        plant(prepared, mutation)
    assert (tmp_path / "poolish.py").read_text() == POOLISH
    assert sorted(tmp_path.rglob("*")) == before


def test_a_call_of_super_can_be_deleted(prepared, queue):
    (source,) = prepared.sources
    drawn = sample([source], all_of(source), None, 0).mutations
    deleted = [m for m in drawn if m.operator == "statement deleted"]
    mutation = next(m for m in deleted if m.before == "super().__init__()")
    plant(prepared, mutation)
    assert queue.Queue(1).count == 1


def test_a_sample_depends_on_the_seed_alone(prepared):
    (source,) = prepared.sources
    found = all_of(source)
    first, again = (sample([source], found, 4, 1) for _ in range(2))
    assert first == again
    assert len(first.mutations) == 4
    assert any(sample([source], found, 4, seed) != first for seed in range(2, 9))


def test_the_same_program_is_drawn_once(prepared):
    (source,) = prepared.sources
    found = all_of(source)
    drawn = sample([source], [*found, *found], None, 0)
    assert len(drawn.mutations) == len(found) - drawn.num_equivalent + len(found)


def test_mutations_name_their_place(prepared):
    (source,) = prepared.sources
    mutation = next(m for m in all_of(source) if m.before == "if self.count < 0:")
    assert (mutation.line, mutation.function) == (14, "Queue.popleft")


def test_functions_that_no_run_enters_stay_as_they_are(prepared):
    (source,) = prepared.sources
    assert {m.function for m in candidates(source, {("popleft", 12)})} == {"Queue.popleft"}


def test_impl_is_mutated_with_what_its_class_needs():
    prepared = prepare(lambda: load_target("impl"), ())
    names = {source.module.rpartition(".")[2] for source in prepared.sources}
    assert {"block_pool", "free_queue", "prefix_index", "cached_keys"} <= names
    assert "kv_cache_manager" not in names


def test_compiled_neighbours_are_left_as_they_are(tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text(
        "from fast import Links\nfrom poolproof.impl.block_pool import BlockPool\n"
        "class Pool(BlockPool):\n    links = Links\n"
    )
    fast = types.ModuleType("fast")
    fast.__file__ = str(tmp_path / "fast.cpython-311-x86_64-linux-gnu.so")
    fast.Links = type("Links", (), {"__module__": "fast"})
    monkeypatch.setitem(sys.modules, "fast", fast)
    prepared = prepare(lambda: load_target(f"{tmp_path / 'slow.py'}:Pool"), ())
    names = {source.module for source in prepared.sources}
    assert [name for name in names if "_slow_" in name]
    assert "fast" not in names


@pytest.mark.parametrize(
    ("target", "names", "said"),
    [
        ("reference", (), "is what targets are judged by"),
        ("impl", ("poolproof.contract.profile",), "is what targets are judged by"),
        ("impl", ("no.such.module",), "loads no module of that name"),
        ("impl", ("_thread",), "the source of _thread cannot be read: it is built in"),
    ],
)
def test_what_cannot_be_mutated_is_said(target, names, said):
    with pytest.raises(TargetError) as caught:
        prepare(lambda: load_target(target), names)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_stands_before_a_bare_annotation_is_entered_with_the_next_line(prepared):
    """An annotation has no code, so no run was ever seen on its line."""
    (source,) = prepared.sources
    mutation = next(
        m for m in all_of(source) if (m.function, m.operator) == ("Queue.second", "returned early")
    )
    first, last = mutation.lines
    assert (
        first
        <= source.text.decode().splitlines().index("        found = self.count - 2") + 1
        <= last
    )
