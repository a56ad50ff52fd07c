"""What an adapter uses of an engine is declared, and what differs is named in one line."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from types import ModuleType

import pytest

from poolproof.contract.target import TargetError
from poolproof.targets import lmcache_manager, sglang_manager, sglang_unified_manager
from poolproof.targets import transformers_manager as transformers
from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use, differences, require_uses
from poolproof.targets.catalogue import SOURCE_ENGINES
from poolproof.targets.engine_sources import BlankModule
from poolproof.targets.load import load_target
from tests.targets.declared_stand_ins import misfits, write_modules

DECLARED = {
    **{name: engine.uses for name, engine in SOURCE_ENGINES.items()},
    "lmcache": lmcache_manager.USES,
    "sglang": sglang_manager.USES,
    "sglang-unified": sglang_unified_manager.USES,
    "transformers": transformers.USES,
}


def modules_of(folder, uses) -> dict[str, ModuleType]:
    """The modules that were written for these uses."""
    modules = {}
    for use in uses:
        path = folder.joinpath(*use.module.split(".")).with_suffix(".py")
        spec = importlib.util.spec_from_file_location(use.module, path)
        modules[use.module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(modules[use.module])
    return modules


@pytest.mark.parametrize("name", DECLARED)
def test_what_has_all_that_is_used_fits(name, tmp_path):
    write_modules(tmp_path, DECLARED[name])
    assert differences(DECLARED[name], modules_of(tmp_path, DECLARED[name])) == []


@pytest.mark.parametrize("name", DECLARED)
def test_each_thing_that_is_missing_or_other_is_named(name, tmp_path):
    uses = DECLARED[name]
    for number, (words, misfit) in enumerate(misfits(uses)):
        folder = tmp_path / str(number)
        write_modules(folder, misfit)
        found = differences(uses, modules_of(folder, uses))
        assert any(words in what for what in found), (words, found)


@pytest.mark.parametrize("name", DECLARED)
def test_an_attribute_that_nothing_sets_is_named(name, tmp_path):
    uses = DECLARED[name]
    attributes = {attribute for use in uses for attribute in use.reads}
    for attribute in attributes:
        folder = tmp_path / attribute
        without = (
            replace(use, reads=tuple(a for a in use.reads if a != attribute)) for use in uses
        )
        write_modules(folder, without)
        found = differences(uses, modules_of(folder, uses))
        assert any(f"has no attribute `{attribute}`" in what for what in found), attribute


@pytest.mark.parametrize("engine", SOURCE_ENGINES.values(), ids=list(SOURCE_ENGINES))
def test_a_checkout_with_a_renamed_method_is_one_line_and_status_2(engine, tmp_path, poolproof):
    words, misfit = next(each for each in misfits(engine.uses) if "has no method" in each[0])
    package = tmp_path / engine.package
    write_modules(package, misfit)
    for module in engine.modules:
        path = package.joinpath(*module.split(".")).with_suffix(".py")
        is_folder = any(each.startswith(f"{module}.") for each in engine.modules)
        path = path.with_suffix("") / "__init__.py" if is_folder else path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    result = poolproof("certify", f"{engine.name}:{tmp_path}", "--depth", "quick")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"poolproof: {engine.name}:{tmp_path} is not driven, because ")
    assert words in result.stderr
    assert f"the adapter was written for commit {engine.commit[:7]} of" in result.stderr
    assert result.stderr.count("\n") == 1


BLOCKS = Use("blocks", "Blocks", (Call("take", ("count",)),), ("free",))


def blocks(folder, text: str) -> dict[str, ModuleType]:
    (folder / "blocks.py").write_text(text, encoding="utf-8")
    return modules_of(folder, [BLOCKS])


TAKE = "    def take(self, count): ...\n"


@pytest.mark.parametrize(
    "text",
    [
        f"class Blocks:\n    free: list\n{TAKE}",
        f"class Blocks:\n    __slots__ = ('free',)\n{TAKE}",
        f"class Blocks:\n    free = property(lambda self: 1)\n{TAKE}",
        f"class Blocks:\n    def _reset(self): self.free = []\n{TAKE}",
        f"class Blocks:\n    def __getattr__(self, name): return []\n{TAKE}",
        f"class Blocks:\n    def __init__(self): setattr(self, 'fr' + 'ee', [])\n{TAKE}",
        f"class Blocks:\n    def __init__(self, **each): self.__dict__.update(each)\n{TAKE}",
        f"def filled(blocks): blocks.free = []\nclass Blocks:\n{TAKE}",
        "class Blocks:\n    def __init__(self): self.free = self.take = lambda count: count\n",
        f"class Base:\n    def __init__(self): self.free = []\nclass Blocks(Base):\n{TAKE}",
    ],
    ids=[
        "annotated", "slot", "property", "set in a method", "made when it is read", "set by name",
        "set through its dictionary", "set by a function", "a method of instances alone",
        "inherited",
    ],
)  # fmt: skip
def test_what_may_be_there_is_not_called_missing(text, tmp_path):
    assert differences([BLOCKS], blocks(tmp_path, text)) == []


def test_all_that_differs_stands_in_one_line(tmp_path):
    modules = blocks(tmp_path, "class Blocks:\n    def take(self): ...\n")
    with pytest.raises(TargetError) as refusal:
        require_uses("toy", [BLOCKS], modules, "toy 1.0")
    assert str(refusal.value) == (
        "toy is not driven, because of Blocks `take` takes (self), the adapter calls it with "
        "(self, count); Blocks has no attribute `free`; the adapter was written for toy 1.0"
    )


def test_a_module_without_a_file_may_have_anything():
    module = ModuleType("blocks")
    module.Blocks = type("Blocks", (), {"take": lambda self, count: (self, count)})
    assert differences([BLOCKS], {"blocks": module}) == []
    assert differences([Use("blocks", reads=("x",))], {"blocks": BlankModule("blocks")}) == []


@pytest.mark.parametrize("base", ["tuple", "abc.ABC", "typing.Protocol", "typing.Generic[T]"])
def test_bases_that_set_nothing_hide_nothing(base, tmp_path):
    before = "import abc, typing\nT = typing.TypeVar('T')\n"
    modules = blocks(tmp_path, f"{before}class Blocks({base}):\n{TAKE}")
    assert differences([BLOCKS], modules) == ["Blocks has no attribute `free`"]


def test_a_function_is_written_without_self(tmp_path):
    use = Use("blocks", calls=(Call("take", ("count",)),))
    modules = blocks(tmp_path, "def take(): ...\n")
    assert differences([use], modules) == [
        "of blocks `take` takes (), the adapter calls it with (count)"
    ]


@pytest.mark.parametrize("name", SOURCE_ENGINES)
def test_an_engine_that_is_at_hand_fits(name):
    try:
        target = load_target(name)
    except TargetError as error:
        if "is not in" in str(error) or "is not installed" in str(error):
            pytest.skip(str(error))
        raise
    assert target.layouts[0].make is not None
