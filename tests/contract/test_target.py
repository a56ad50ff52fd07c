"""What a target can do is read off the instance, and a missing method is named."""

import pytest

from poolproof.contract.target import TargetError, capabilities_of


def with_methods(*names):
    return type("Mine", (), {name: lambda self: None for name in names})()


POOL = ("allocate", "touch", "free", "cache", "lookup", "num_free")
QUEUE = ("popleft", "remove", "append", "num_free", "free_order")


def test_a_smallest_pool_has_its_verbs_and_shows_nothing():
    can = capabilities_of(with_methods(*POOL))
    assert can.level == "pool"
    assert can.verbs == {"allocate", "touch", "free", "cache", "lookup"}
    assert can.observers == frozenset()
    assert not can.sees("free_order")


def test_optional_methods_are_found():
    can = capabilities_of(
        with_methods(*POOL, "evict", "reset", "acquire", "usage", "free_order", "ref_count")
    )
    assert {"evict", "reset", "acquire", "usage"} <= can.verbs
    assert can.observers == {"free_order", "ref_count"}


def test_an_attribute_that_is_no_method_is_absent():
    pool = with_methods(*POOL, "free_order")
    pool.free_order = None
    assert not capabilities_of(pool).sees("free_order")


def test_a_method_may_be_set_on_the_instance():
    pool = with_methods(*POOL)
    pool.evict = lambda ids: None
    assert "evict" in capabilities_of(pool).verbs


def test_acquire_stands_for_lookup_and_touch():
    can = capabilities_of(with_methods("allocate", "free", "cache", "num_free", "acquire"))
    assert "acquire" in can.verbs
    assert not {"lookup", "touch"} & can.verbs


@pytest.mark.parametrize("missing", POOL)
def test_a_pool_without_a_required_method_is_refused(missing):
    with pytest.raises(TargetError) as caught:
        capabilities_of(with_methods(*(name for name in POOL if name != missing)))
    assert str(caught.value) == (
        f"Mine lacks {missing}(), which a pool target needs; "
        "run `poolproof new FILE` for a skeleton with every method"
    )


def test_a_queue_is_told_from_a_pool_by_popleft():
    can = capabilities_of(with_methods(*QUEUE, "free_neighbours", "append_n"))
    assert can.level == "queue"
    assert can.verbs == {"popleft", "remove", "append", "append_n"}
    assert can.sees("free_neighbours")
    assert not capabilities_of(with_methods(*QUEUE)).sees("free_neighbours")


def test_a_queue_without_a_required_method_is_refused():
    with pytest.raises(TargetError, match=r"Mine lacks remove\(\), append\(\), which a queue"):
        capabilities_of(with_methods("popleft", "num_free", "free_order"))
