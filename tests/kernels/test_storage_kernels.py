"""Cache writes, block copies and swaps: what they refuse, and empty calls."""

import pytest
import torch

from poolproof.kernels.arguments import KernelArgumentError
from poolproof.kernels.paged.block_copy import copy_blocks, swap_blocks
from poolproof.kernels.paged.cache_write import reshape_and_cache

SHAPE = (3, 4, 2, 16)


def arguments(**changes):
    cache = {"key_cache": torch.zeros(SHAPE), "value_cache": torch.zeros(SHAPE)}
    new = {"key": torch.ones(2, 2, 16), "value": torch.ones(2, 2, 16)}
    return {**new, **cache, "slots": torch.tensor([3, -1]), **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": torch.ones(2, 32)}, "key is of shape (2, 32)"),
        ({"value": torch.ones(2, 2, 16).half()}, "value is float16; it must be float32"),
        ({"value": torch.ones(3, 2, 16)}, "value is of 3 tokens; it must be of key's 2"),
        ({"key_cache": torch.zeros(3, 4, 1, 16)}, "key_cache is of 1 heads of size 16"),
        ({"key_cache": torch.zeros(SHAPE).half()}, "key_cache is float16"),
        ({"value_cache": torch.zeros(4, 4, 2, 16)}, "value_cache is of shape (4, 4, 2, 16)"),
        ({"slots": torch.tensor([3.0, 1.0])}, "slots is float32; it must be int32 or int64"),
        ({"slots": torch.tensor([12, 1])}, "slots[0] is 12; it must be below 12, or negative"),
        ({"slots": torch.tensor([5, 5])}, "slots[1] is 5; it must be in the list only once"),
        ({"slots": torch.tensor([5])}, "slots is of 1 tokens"),
        ({"key_scale": 2.0}, "key_scale is 2.0; it must be 1 with a cache of torch.float32"),
        ({"value_scale": -1.0}, "value_scale is -1.0; it must be above 0"),
    ],
)
def test_a_write_that_does_not_fit_is_refused(changes, words):
    given = arguments(**changes)
    with pytest.raises(KernelArgumentError) as refused:
        reshape_and_cache(**given)
    assert words in str(refused.value)
    assert not given["key_cache"].any()


def test_one_token_lands_in_its_slot_and_padding_nowhere():
    given = arguments()
    reshape_and_cache(**given)
    assert given["key_cache"].sum() == 32
    assert given["value_cache"][0, 3].all()


def test_no_token_at_all():
    empty = torch.zeros(0, 2, 16)
    given = arguments(key=empty, value=empty, slots=torch.zeros(0, dtype=torch.int64))
    reshape_and_cache(**given, values_checked=True)
    assert not given["key_cache"].any()


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([(0, 1), (2, 1)], "pairs[1] destination is 1; it must be in the list only once"),
        ([(3, 1)], "pairs[0] source is 3; it must be a block from 0 to 2"),
        ([(0, -1)], "pairs[0] destination is -1"),
    ],
)
def test_a_copy_that_leads_nowhere_is_refused(pairs, words):
    with pytest.raises(KernelArgumentError) as refused:
        copy_blocks(torch.zeros(SHAPE), torch.zeros(SHAPE), pairs)
    assert words in str(refused.value)


def test_two_blocks_change_places_in_one_list():
    cache = torch.arange(3.0)[:, None, None, None].expand(SHAPE).contiguous()
    copy_blocks(cache, cache.clone(), [(0, 1), (1, 0), (2, 2)])
    assert cache[:, 0, 0, 0].tolist() == [1.0, 0.0, 2.0]


def test_a_copy_of_no_blocks_changes_nothing():
    cache = torch.ones(SHAPE)
    copy_blocks(cache, cache.clone(), [])
    assert bool((cache == 1).all())


@pytest.mark.parametrize(
    ("destination", "words"),
    [
        (torch.zeros(3, 5, 2, 16), "destination is of blocks (5, 2, 16)"),
        (torch.zeros(SHAPE).half(), "destination is of torch.float16"),
    ],
)
def test_a_swap_to_another_kind_of_cache_is_refused(destination, words):
    with pytest.raises(KernelArgumentError) as refused:
        swap_blocks(torch.zeros(SHAPE), destination, [(0, 0)])
    assert words in str(refused.value)


def test_a_swap_within_one_memory_is_refused():
    cache = torch.zeros(6, 4, 2, 16)
    with pytest.raises(KernelArgumentError, match="use copy_blocks"):
        swap_blocks(cache[:3], cache[3:], [(0, 0)])


def test_caches_of_two_devices_are_copied_by_torch():
    away = torch.zeros(SHAPE, device="meta")
    swap_blocks(torch.ones(SHAPE), away, [(0, 2)])
