"""The profiles of the tests: every pair of values once at least, in few combinations."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

from itertools import combinations, product

from poolproof.stateful_tests.profile_pairs import all_pairs, overrides_text

ROWS = {"a": (None, 0, 1), "b": ("x", "y"), "c": (0, 1, 2), "d": ("u",)}


def test_every_two_values_of_different_rows_stand_together():
    chosen = all_pairs(ROWS)
    for first, second in combinations(ROWS, 2):
        met = {(combination[first], combination[second]) for combination in chosen}
        assert met == set(product(ROWS[first], ROWS[second]))


def test_far_fewer_combinations_than_the_product():
    assert len(all_pairs(ROWS)) <= 10


def test_text_is_what_a_target_string_takes():
    assert overrides_text({"null_block": 0, "eviction": "lifo"}) == "[null_block=0,eviction=lifo]"
