"""What each block was filled with last."""

from poolproof.reference.fillings import Fillings


def test_a_block_has_a_twin_while_another_is_full_of_the_same():
    fillings = Fillings()
    fillings.note(1, b"a")
    assert not fillings.has_twin(1, b"a")
    assert fillings.has_twin(2, b"a")
    assert not fillings.has_twin(2, b"b")


def test_a_block_that_is_filled_anew_is_no_twin_any_more():
    fillings = Fillings()
    fillings.note(1, b"a")
    fillings.note(1, b"b")
    assert not fillings.has_twin(2, b"a")
    assert fillings.has_twin(2, b"b")


def test_one_of_two_that_is_filled_anew_leaves_the_other():
    fillings = Fillings()
    for block, content in ((1, b"a"), (2, b"a"), (1, b"b"), (2, b"b")):
        fillings.note(block, content)
        assert fillings.has_twin(3, content)
    assert not fillings.has_twin(3, b"a")
    fillings.note(1, b"a")
    assert fillings.has_twin(2, b"a")
    assert fillings.has_twin(1, b"b")


def test_one_of_two_that_is_filled_anew_is_not_taken_for_the_other():
    fillings = Fillings()
    for block, content in ((1, b"a"), (2, b"a"), (1, b"b")):
        fillings.note(block, content)
    assert fillings.has_twin(3, b"a")
    assert not fillings.has_twin(2, b"a")
