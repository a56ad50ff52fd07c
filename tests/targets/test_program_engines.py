"""Engines in Rust are built beside their program; here a small one in the shape of TGI's."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.targets.catalogue import PROGRAM_ENGINES
from poolproof.targets.load import load_target
from poolproof.targets.program_engines import SERVER_SOURCES, TGI, built_program

in_a_checkout = pytest.mark.skipif(
    not SERVER_SOURCES.is_dir(), reason="an installed Poolproof has no examples beside it"
)
needs_rust = pytest.mark.skipif(
    shutil.which("rustc") is None or not SERVER_SOURCES.is_dir(),
    reason="rustc, or the checkout with the server that programs are built with, is not here",
)

ALLOCATOR = """
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

pub struct BlockAllocation {
    pub blocks: Vec<u32>,
    pub prefix_len: u32,
    free: Rc<RefCell<Vec<u32>>>,
}

impl Drop for BlockAllocation {
    fn drop(&mut self) {
        self.free.borrow_mut().append(&mut self.blocks);
    }
}

#[derive(Clone)]
pub struct BlockAllocator {
    block_size: u32,
    free: Rc<RefCell<Vec<u32>>>,
}

impl BlockAllocator {
    pub fn new(total: u32, block_size: u32, _caching: bool, _window: Option<u32>) -> Self {
        let free = (1..total / block_size).collect();
        BlockAllocator { block_size, free: Rc::new(RefCell::new(free)) }
    }

    pub async fn allocate(
        &self,
        tokens: u32,
        _prompt: Option<Arc<Vec<u32>>>,
    ) -> Option<BlockAllocation> {
        let mut free = self.free.borrow_mut();
        let needed = tokens.div_ceil(self.block_size) as usize;
        let left = free.len().checked_sub(needed)?;
        let blocks = free.split_off(left);
        if std::env::var("TOY_FAULT").is_ok() {
            free.extend(blocks.last());
        }
        drop(free);
        Some(BlockAllocation { blocks, prefix_len: 0, free: self.free.clone() })
    }
}
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Sources where TGI has its own, of an allocator without a cache."""
    folder = tmp_path_factory.mktemp("tgi")
    for name, text in (("block_allocator", ALLOCATOR), ("radix", "")):
        path = folder / TGI.modules[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def findings(checkout):
    target = load_target(f"tgi:{checkout}")
    campaign = ManagerCampaign(target.name, target.make, target.profile, target.block_size)
    traces = [campaign.run(number).trace for number in range(20)]
    return {trace.violation.invariant for trace in traces if trace is not None}


@needs_rust
def test_a_checkout_is_built_once_and_holds(checkout):
    program = built_program(TGI, checkout)
    first = program.stat().st_mtime_ns
    assert findings(checkout) == set()
    assert built_program(TGI, checkout).stat().st_mtime_ns == first


@needs_rust
def test_a_block_that_is_given_twice_is_found(checkout, monkeypatch):
    monkeypatch.setenv("TOY_FAULT", "1")
    assert findings(checkout)


@needs_rust
def test_the_program_states_the_profile_of_the_engine_and_its_notes(checkout):
    target = load_target(f"tgi:{checkout}[never=told]")
    assert (target.profile.null_block, target.profile.publishes) == (0, "finish")
    assert target.profile.never == "told"
    assert set(TGI.notes) <= set(target.notes)
    assert "text-generation-inference BlockAllocator" in str(target.version)


@needs_rust
def test_sources_that_do_not_build_are_one_line(tmp_path):
    for path in TGI.modules.values():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("fn broken(\n", encoding="utf-8")
    with pytest.raises(TargetError, match=r"^tgi does not build from .*: error.*commit db931fc"):
        built_program(TGI, tmp_path)


def test_a_folder_that_is_no_checkout_is_named(tmp_path):
    with pytest.raises(TargetError, match=r"is no checkout of .*inference: it has no backends"):
        load_target(f"tgi:{tmp_path}")


@in_a_checkout
def test_a_compiler_that_is_missing_is_named(checkout):
    engine = replace(TGI, compiler="no-such-compiler")
    with pytest.raises(TargetError, match="tgi needs no-such-compiler, which is not installed"):
        built_program(engine, checkout)


@pytest.mark.parametrize("engine", PROGRAM_ENGINES.values(), ids=list(PROGRAM_ENGINES))
def test_every_engine_is_pinned_and_its_rows_are_a_profile(engine):
    assert len(engine.commit) == 40
    assert set(engine.modules.values()) < set(engine.files)
    ManagerProfile.from_mapping(engine.rows)


@pytest.mark.deep
@pytest.mark.parametrize(("name", "refused"), [("mistralrs", False), ("tgi", True)])
def test_the_engine_itself_gets_the_verdict_that_is_true(name, refused):
    try:
        target = load_target(name)
    except TargetError as error:
        pytest.skip(str(error))
    campaign = ManagerCampaign(target.name, target.make, target.profile, target.block_size)
    traces = [campaign.run(number).trace for number in range(60)]
    found = {trace.violation.invariant for trace in traces if trace is not None}
    assert "DATA" in found if refused else found == set()
