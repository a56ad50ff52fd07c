"""The stand-in answers as PyTorch would, for the operations that engines' bookkeeping uses."""

from __future__ import annotations

import pytest

from poolproof.targets.torch_stand_in import torch_stand_in

torch = torch_stand_in()


def test_a_slice_is_a_view_and_a_clone_is_not():
    whole = torch.arange(6)
    part, copy = whole[2:5], whole[2:5].clone()
    part[0] = 9
    assert (whole.tolist(), copy.tolist()) == ([0, 1, 9, 3, 4, 5], [2, 3, 4])


def test_steps_and_numbers_are_taken_out():
    whole = torch.arange(1, 8)
    assert (whole[::3].tolist(), whole[-1].item(), len(whole[10:])) == ([1, 4, 7], 7, 0)


def test_a_tensor_of_places_picks_and_assigns():
    whole, places = torch.arange(4) * 10, torch.tensor([3, 0])
    picked = whole[places]
    whole[places] = torch.tensor([1, 2])
    assert (picked.tolist(), whole.tolist()) == ([30, 0], [2, 10, 20, 1])


def test_pages_become_slots():
    slots = (torch.tensor([8, 0]).unsqueeze(1) + torch.arange(3)).flatten()
    assert slots.tolist() == [8, 9, 10, 0, 1, 2]


def test_a_row_of_a_table_is_a_view():
    table = torch.zeros((2, 4))
    table[1, 1:3] = torch.tensor([5, 6])
    table[torch.tensor([0, 1]), torch.tensor([3, 0])] = torch.tensor([7, 8])
    table[0][:1].copy_(torch.tensor([4]))
    assert [row.tolist() for row in (table[0], table[1])] == [[4, 0, 0, 7], [8, 5, 6, 0]]


def test_comparisons_are_by_element():
    differ = torch.tensor([1, 2, 3]) != torch.tensor([1, 5, 3])
    assert torch.nonzero(differ).tolist() == [1]
    assert torch.all(torch.tensor([4, 8]) % 4 == 0)


def test_parts_are_joined_into_a_tensor_of_its_own():
    one = torch.arange(2)
    joined = torch.cat([one, torch.empty(0), one])
    one.fill_(9)
    assert joined.tolist() == [0, 1, 0, 1]


def test_what_does_not_fit_is_an_error():
    with pytest.raises(RuntimeError, match="2 values cannot fill 3 places"):
        torch.zeros(3)[:] = torch.arange(2)


def test_any_other_name_is_blank():
    assert not torch.int32
    assert isinstance(torch.Stream, type)


def test_pairs_of_rows_and_places_are_picked():
    table = torch.zeros((2, 3))
    table[1, 1:3] = torch.tensor([5, 6])
    picked = table[torch.tensor([1, 0, 1]), torch.tensor([2, 1, -2])]
    assert picked.tolist() == [6, 0, 5]


def test_a_number_becomes_one_dimension():
    whole = torch.tensor([4, 7])
    assert whole[1].unsqueeze(0).tolist() == [7]
