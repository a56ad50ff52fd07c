"""Read sets: what a kernel touches in the interpreter, and what of it is unlawful."""

from dataclasses import replace

import numpy as np
import torch
import triton
import triton.language as tl

from poolproof.contract.depth import Depth
from poolproof.contract.violation import Severity
from poolproof.kernels.case import Case, build
from poolproof.kernels.check_run import certify_check
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.read_sets import (
    named_tensors,
    recorded,
    stray_accesses,
    unlawful_accesses,
)
from poolproof.kernels.target import paged_target

CASE = Case(sequences=((1, 6), (2, 3)), sliding_window=3, spare_entries=1, layout="cross-layer")


@triton.jit
def add_up(source, count, out, SIZE: tl.constexpr):  # noqa: N803 -- Triton's convention
    numbers = tl.load(source + tl.arange(0, SIZE), mask=tl.arange(0, SIZE) < count, other=0.0)
    tl.atomic_add(out, tl.sum(numbers))


def test_masked_lanes_are_not_recorded():
    source, out = torch.ones(8), torch.zeros(1)
    with recorded({"source": source, "out": out}) as accesses:
        add_up[(1,)](source, 5, out, SIZE=8)
    assert accesses.elements("load", source).tolist() == [0, 1, 2, 3, 4]
    assert accesses.elements("store", out).tolist() == [0]
    assert not accesses.strays


def test_an_address_outside_of_every_tensor_is_a_stray():
    source, out = torch.ones(8), torch.zeros(1)
    with recorded({"source": source, "out": out}) as accesses:
        add_up[(1,)](source, 10, out, SIZE=16)
    (stray,) = accesses.strays
    assert (stray.kind, stray.count) == ("load", 2)


def test_tensors_that_were_not_named_are_known_from_the_launch():
    source, out = torch.ones(8), torch.zeros(1)
    with recorded({}) as accesses:
        add_up[(1,)](source, 8, out, SIZE=8)
    assert len(accesses.elements("load", source)) == 8


def test_a_longer_tensor_at_the_address_of_a_freed_one_is_known_whole():
    memory = torch.ones(16).numpy()
    with recorded({}) as accesses:
        for length in (8, 16):
            # Two storages that begin at one address, as when the first has been freed.
            source, out = torch.from_numpy(memory[:length]), torch.zeros(1)
            add_up[(1,)](source, length, out, SIZE=16)
    assert not accesses.strays
    assert len(accesses.elements("load", source)) == 16


def test_a_tensor_across_the_address_of_a_freed_one_takes_its_place():
    memory = torch.ones(16).numpy()
    with recorded({}) as accesses:
        for begin in (8, 0):
            source, out = torch.from_numpy(memory[begin:]), torch.zeros(1)
            add_up[(1,)](source, len(source), out, SIZE=16)
    assert len(accesses.elements("load", source)) == 16
    assert len(accesses.elements("load", torch.from_numpy(memory[8:]))) == 0


def test_a_named_tensor_keeps_its_name_and_length():
    memory = torch.ones(16).numpy()
    whole, part, out = torch.from_numpy(memory), torch.from_numpy(memory[:8]), torch.zeros(1)
    with recorded({"source": whole}) as accesses:
        add_up[(1,)](part, 16, out, SIZE=16)
    assert not accesses.strays
    assert len(accesses.elements("load", whole)) == 16


def test_recording_ends_with_the_block():
    source, out = torch.ones(8), torch.zeros(1)
    with recorded({}) as accesses:
        pass
    add_up[(1,)](source, 8, out, SIZE=8)
    accesses.register("source", source)
    assert len(accesses.elements("load", source)) == 0


def touched(change=None, declaration=None):
    """Sentences about our kernel, after `change` has touched more or less."""
    batch, target = build(CASE), paged_target("cpu")
    out = torch.empty_like(batch.query)
    with recorded(named_tensors(batch, out)) as accesses:
        target(batch, out)
    if change is not None:
        change(accesses, batch, out)
    strays = [stray] if (stray := stray_accesses(accesses)) else []
    found = list(unlawful_accesses(accesses, batch, out, declaration or target.declaration))
    return strays + found


def note(accesses, kind, tensor, element):
    address = tensor.untyped_storage().data_ptr() + element * tensor.element_size()
    accesses.note(kind, np.array([address]), np.array([True]), tensor.element_size())


def element_of(tensor, *place):
    return tensor.storage_offset() + sum(i * s for i, s in zip(place, tensor.stride(), strict=True))


def test_our_kernels_touch_what_they_may_and_nothing_else():
    assert touched() == []


def test_a_key_in_front_of_the_window_may_be_read_where_that_is_declared():
    def change(accesses, batch, out):
        first = int(batch.block_tables[0, 0])
        note(accesses, "load", batch.key_cache, element_of(batch.key_cache, first, 0, 0, 0))

    (sentence,) = touched(change)
    assert "out of every query's sight" in sentence
    assert touched(change, Declaration(out=True, window_reads="tile")) == []


def test_a_read_between_the_blocks_is_told_from_one_inside():
    def change(accesses, batch, out):
        note(accesses, "load", batch.key_cache, 0)

    assert touched(change) == ["reads 1 elements between the blocks of key_cache"]


def test_the_null_block_is_named():
    def change(accesses, batch, out):
        note(accesses, "load", batch.value_cache, element_of(batch.value_cache, 0, 1, 0, 5))

    (sentence,) = touched(change)
    assert sentence.endswith("the first in block 0 slot 1: the null block")


def test_a_table_entry_that_nobody_needs():
    def change(accesses, batch, out):
        note(accesses, "load", batch.block_tables, element_of(batch.block_tables, 1, 2))

    assert touched(change) == [
        "reads 1 entries of block_tables that no sequence needs, first row 1, entry 2"
    ]
    assert touched(change, Declaration(out=True, table_tail="block-ids")) == []


def test_a_write_to_what_was_handed_in():
    def change(accesses, batch, out):
        note(accesses, "store", batch.key_cache, element_of(batch.key_cache, 1, 0, 0, 0))

    assert touched(change) == ["writes 1 elements of key_cache"]
    assert touched(change, Declaration(out=True, cache_writes="newest")) == []


def test_an_element_of_the_output_that_is_not_written():
    def change(accesses, batch, out):
        storage = accesses._storages[out.untyped_storage().data_ptr()]
        storage.touched["store"] = [numbers[numbers != 3] for numbers in storage.touched["store"]]

    assert touched(change) == ["leaves 1 of the 48 elements of out unwritten"]


def test_a_visible_slot_that_is_not_read():
    def change(accesses, batch, out):
        storage = accesses._storages[batch.key_cache.untyped_storage().data_ptr()]
        storage.touched["load"].clear()

    (sentence,) = touched(change)
    assert sentence.startswith("does not read ")


def test_a_stray_is_a_sentence():
    def change(accesses, batch, out):
        note(accesses, "load", batch.query, 10**9)

    (sentence,) = touched(change)
    assert sentence.startswith("reads 1 addresses outside of every tensor")


@triton.jit
def put(out, number):
    tl.store(out + number, 1.0)


def read_set_beside(call):
    """What the check says of our kernels where each call begins with one of another."""
    from poolproof.kernels.checks.catalogue import CHECKS

    ours = paged_target("cpu")

    def function(*arguments, **keywords):
        call()
        return ours.attend(*arguments, **keywords)

    return CHECKS["read set"].run(replace(ours, attend=function), CASE)


def within_more(count):
    """A tensor of so many elements before as many that belong to nobody."""
    return torch.from_numpy(np.zeros(2 * count, np.float32)[:count])


def test_what_is_read_outside_of_every_tensor_and_not_used_may_end_the_process():
    source, out = within_more(8), torch.zeros(1)
    outcome = read_set_beside(lambda: add_up[(1,)](source, 10, out, SIZE=16))
    assert outcome.wrong.startswith("reads 2 addresses outside of every tensor")
    assert outcome.severity is Severity.CRASH


def test_what_is_written_there_is_somebody_elses():
    out = within_more(8)
    outcome = read_set_beside(lambda: put[(1,)](out, 9))
    assert outcome.wrong.startswith("writes 1 addresses outside of every tensor")
    assert outcome.severity is None


def test_a_read_that_may_end_the_process_does_not_hide_one_of_another_request():
    source, out = within_more(8), torch.zeros(1)
    ours, calls = paged_target("cpu"), []

    def function(query, key_cache, *rest, **keywords):
        add_up[(1,)](source, 10, out, SIZE=16)
        calls.append(len(query))
        if len(calls) > 8:
            put[(1,)](key_cache, 0)
        return ours.attend(query, key_cache, *rest, **keywords)

    target = replace(ours, attend=function)
    finding = certify_check(target, "read set", Depth.QUICK, 0, lambda _: None).finding
    assert finding.severity is Severity.WRONG_DATA_OF_ANOTHER
    assert finding.sentence.startswith("writes 1 elements of key_cache")


def test_a_table_without_entries_has_nothing_to_read():
    from poolproof.kernels.checks.catalogue import CHECKS

    empty = Case(sequences=((1, 0),), block_size=1)
    assert CHECKS["read set"].run(paged_target("cpu"), empty).wrong is None
