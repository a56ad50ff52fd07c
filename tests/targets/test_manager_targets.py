"""Managers as targets: native classes, layouts, the specification, and shapes that plug in."""

from __future__ import annotations

import pytest

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.targets import load
from poolproof.targets.load import load_target
from poolproof.targets.manager_target import MANAGER_SHAPES, ManagerShape, manager_target
from poolproof.targets.target import ManagerLayout

MANAGER = """
class Manager:
    profile = {"publishes": "never"}
    def __init__(self, num_blocks, block_size, *, enable_caching=True):
        self.built = (num_blocks, block_size, enable_caching)
    def admit(self, seq_id, tokens, *, extra_keys=None): return 0
    def append(self, seq_id, tokens): return []
    def step(self, batch): pass
    def finish(self, seq_id): pass
    def block_table(self, seq_id, group=0): return []
"""


@pytest.fixture
def write(tmp_path):
    def write_file(text):
        path = tmp_path / "manager.py"
        path.write_text(text)
        return f"{path}:Manager"

    return write_file


def message(text, **options):
    with pytest.raises(TargetError) as caught:
        load_target(text, **options)
    return str(caught.value)


def test_a_native_manager_is_detected_and_built_with_a_block_size(write):
    target = load_target(write(MANAGER))
    assert (target.level, target.shape, target.block_size) == ("manager", "native-manager", 4)
    assert target.make(7, False).built == (7, 4, False)
    assert [layout.name for layout in target.layouts] == ["full"]
    assert target.profile == target.layouts[0].profile
    assert "publishes" not in target.profile.assumed
    assert "hits" in target.profile.assumed


@pytest.mark.parametrize(
    ("declares", "brackets", "size"),
    [("16", "", 16), ("16", "[block_size=8]", 8), ("4", "[block_size=256,eviction=lru]", 256)],
)
def test_a_manager_may_ask_for_another_block_size(write, declares, brackets, size):
    own = MANAGER.replace("profile = {", f'profile = {{"block_size": {declares}, ')
    assert own != MANAGER
    target = load_target(write(own) + brackets)
    assert target.block_size == size
    assert target.make(7, True).built == (7, size, True)
    assert target.profile == load_target(write(MANAGER)).profile or brackets


@pytest.mark.parametrize("size", ["0", "-1", "257", "many"])
def test_a_block_size_that_cannot_be_driven_is_refused(write, size):
    found = message(f"{write(MANAGER)}[block_size={size}]")
    assert "block_size is a number of tokens from 1 to 256, not" in found
    assert size in found


def test_rows_in_brackets_take_the_place_of_the_managers_own(write):
    rows = "publishes=computed,groups=full+sliding:6:8,null_block=0"
    target = load_target(f"{write(MANAGER)}[{rows}]")
    assert target.profile.publishes == "computed"
    assert target.layouts[0].name == "full+sliding"
    assert target.profile.groups[1].to_json() == {"kind": "sliding", "window": 6, "block_size": 8}


def test_missing_methods_are_named(write):
    found = message(write(MANAGER.replace("def step", "def stop")))
    assert "Manager lacks step(), which a manager target needs" in found
    assert "poolproof new --manager FILE" in found


def test_halves_of_pairs_are_named(write):
    found = message(write(MANAGER + "    def draft(self, seq_id, tokens): return []\n"))
    assert "Manager lacks accept()" in found


def test_a_constructor_with_other_arguments_is_named(write):
    found = message(write(MANAGER.replace("num_blocks, block_size, *", "num_blocks, *")))
    assert "cannot be built as Manager(num_blocks, block_size, enable_caching=True)" in found


def test_an_unknown_row_is_named(write):
    found = message(write(MANAGER.replace('"publishes"', '"published"')))
    assert "unknown profile key 'published'" in found
    assert "is no group; write KIND[:WINDOW[:BLOCK_SIZE]]" in message(
        f"{write(MANAGER)}[groups=sliding:x]"
    )


def test_a_profile_that_the_constructor_sets_is_found(write):
    text = MANAGER.replace("    profile = {", "    _rows = {").replace(
        "self.built =", "self.profile = self._rows; self.built ="
    )
    assert load_target(write(text)).profile.publishes == "never"


def test_the_specification_has_a_layout_for_each_kind_of_group():
    target = load_target("reference-manager[eviction=lifo]")
    names = [layout.name for layout in target.layouts]
    assert names == ["full", "sliding", "full+sliding", "full+chunked", "full+state"]
    assert {layout.profile.eviction for layout in target.layouts} == {"lifo"}
    assert target.layout("sliding").profile.null_block == 0
    assert target.layout("full").profile.null_block is None


def test_the_specification_refuses_what_it_does_not_keep():
    assert "keeps no rings" in message("reference-manager[window_blocks=reused]")
    assert "leave states out" in message("reference-manager[states=step-end]")
    found = message("reference-manager[groups=sliding:6,null_block=None]")
    assert "what slides out needs a null block" in found


def test_a_layout_is_found_by_name_or_the_reason_is_told():
    layouts = [
        ManagerLayout("full", ManagerProfile(), lambda n, c: (n, c)),
        ManagerLayout("mamba", ManagerProfile(), None, why_not="needs chunk splits"),
    ]
    target = manager_target("mine", "native-manager", layouts)
    assert target.layout("full").make(3, True) == (3, True)
    with pytest.raises(TargetError, match="layout mamba of mine is not run: needs chunk splits"):
        target.layout("mamba")
    with pytest.raises(TargetError, match="no layout 'x'; it has full, mamba"):
        target.layout("x")
    with pytest.raises(TargetError, match="a pool target has none"):
        load_target("impl").layout("x")


def test_a_manager_without_a_layout_that_runs_says_why():
    with pytest.raises(TargetError, match="can be run: mamba: needs chunk splits"):
        manager_target(
            "mine",
            "s",
            [ManagerLayout("mamba", ManagerProfile(), None, why_not="needs chunk splits")],
        )
    with pytest.raises(TargetError, match="none is known"):
        manager_target("mine", "s", [])


def test_a_published_shape_plugs_in(write, monkeypatch):
    def build(name, cls, overrides, version):
        layout = ManagerLayout("full", ManagerProfile.from_mapping(overrides), lambda n, _: cls(n))
        return manager_target(name, "other", [layout], version=version, real_class=cls)

    monkeypatch.setitem(MANAGER_SHAPES, "other", ManagerShape(("can_fit", "allocate"), build))
    monkeypatch.setattr(load, "APIS", (*load.APIS, "other"))
    text = write(
        "class Manager:\n"
        "    def __init__(self, n): self.n = n\n"
        "    def can_fit(self): pass\n    def allocate(self): pass\n    def free(self): pass\n"
    )
    for api in (None, "other"):
        target = load_target(f"{text}[hits=sound]", api=api)
        assert (target.shape, target.make(3, True).n) == ("other", 3)
        assert target.profile.hits == "sound"
