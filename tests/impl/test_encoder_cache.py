"""What workers keep of the encoder: outputs are shared, kept while needed, and go oldest first."""

from __future__ import annotations

import pytest

from poolproof.impl.encoder_cache import EncoderCache


@pytest.fixture
def cache() -> EncoderCache:
    """Room for 6 positions; request 0 needs image "a", of 3."""
    cache = EncoderCache(6)
    cache.need("a", 3, user=0)
    assert cache.told() == ([], ["a"])
    return cache


def test_an_image_is_encoded_once_for_all(cache: EncoderCache) -> None:
    assert cache.fits("a", 3)
    cache.need("a", 3, user=1)
    assert cache.told() == ([], [])


def test_an_image_that_somebody_needs_stays(cache: EncoderCache) -> None:
    cache.need("a", 3, user=1)
    cache.release("a", user=0)
    assert not cache.fits("b", 4)


def test_an_image_that_nobody_needs_makes_room(cache: EncoderCache) -> None:
    cache.release("a", user=0)
    assert cache.fits("b", 4)
    cache.need("b", 4, user=1)
    assert cache.told() == (["a"], ["b"])


def test_the_one_that_was_needed_longest_ago_goes_first(cache: EncoderCache) -> None:
    cache.need("b", 3, user=0)
    cache.need("a", 3, user=1)
    cache.told()
    cache.release_all(0)
    cache.release_all(1)
    cache.need("c", 2, user=2)
    assert cache.told() == (["b"], ["c"])


def test_what_a_step_would_have_encoded_was_never_there(cache: EncoderCache) -> None:
    cache.need("b", 3, user=1)
    cache.release_all(1)
    cache.need("c", 3, user=2)
    assert cache.told() == ([], ["c"])


def test_a_step_encodes_as_much_as_it_may() -> None:
    cache = EncoderCache(9, max_per_step=4)
    assert cache.fits("a", 4)
    cache.need("a", 1, user=0)
    cache.need("b", 2, user=0)
    assert cache.fits("c", 1)
    assert not cache.fits("c", 2)
    cache.told()
    assert cache.fits("c", 4)


def test_a_step_that_may_encode_one_position_encodes_no_two() -> None:
    assert not EncoderCache(9, max_per_step=1).fits("a", 2)


def test_a_step_encodes_no_more_than_it_may() -> None:
    cache = EncoderCache(9, max_per_step=4)
    cache.need("a", 3, user=0)
    assert cache.fits("a", 3)
    assert not cache.fits("b", 2)
    cache.told()
    assert cache.fits("b", 2)


def test_an_image_that_is_let_go_twice_is_let_go_once(cache: EncoderCache) -> None:
    cache.release("a", user=0)
    cache.release("a", user=0)
    cache.release("never", user=0)
    assert cache.fits("b", 6)
    assert not cache.fits("b", 7)
