"""Curves in characters and in SVG, and the words that stand at them."""

from __future__ import annotations

import pytest

from poolproof.report.campaign_words import depth_words, duration_words, share_words
from poolproof.report.fuzz_live import area_chart, held_at
from poolproof.report.svg_chart import even_axis, tenfold_axis


def test_a_value_holds_until_the_next_one():
    assert held_at([(1.0, 5.0), (3.0, 7.0)], 3) == [5.0, 5.0, 7.0]


def test_before_its_first_point_a_curve_is_nothing():
    assert held_at([(3.0, 7.0)], 3) == [0.0, 0.0, 7.0]
    assert held_at([], 2) == [0.0, 0.0]


def test_the_last_place_has_the_last_value_however_it_is_rounded():
    assert held_at([(0.1, 1.0), (0.7, 2.0)], 7)[-1] == 2.0


def test_columns_are_as_high_as_their_values():
    assert area_chart([0, 4, 8, 16], 16, 2) == ["   █", " ▄██"]


def test_little_is_seen_and_almost_all_is_not_all():
    assert area_chart([0.001, 15.999], 16, 2) == [" ▇", "▁█"]


def test_plain_characters_where_others_cannot_be_shown():
    assert area_chart([1, 2, 4], 4, 2, is_ascii=True) == ["  #", ".##"]


def test_nothing_that_there_could_be_is_an_empty_chart():
    assert area_chart([0, 1], 0, 1) == ["  "]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.4, "9.4 s"),
        (41, "41 s"),
        (59.7, "1 min 00 s"),
        (200, "3 min 20 s"),
        (7_500, "2 h 05 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds, words):
    assert duration_words(seconds) == words


@pytest.mark.parametrize(
    ("depth", "words"), [(0, "0"), (1, "1"), (2, "2 to 3"), (11, "1,024 to 2,047")]
)
def test_a_depth_stands_for_numbers_of_commands(depth, words):
    assert depth_words(depth) == words


def test_all_but_one_state_is_not_a_hundred_percent(campaigns):
    almost = campaigns.status(num_states=36_802, num_possible=36_803)
    assert share_words(almost) == "99.9 %"
    assert share_words(campaigns.status(num_states=5, num_possible=5)) == "100.0 %"


@pytest.mark.parametrize("most", [0, 0.003, 1, 7, 36_803, 1e9])
def test_an_even_axis_reaches_its_most_at_round_numbers(most):
    axis = even_axis(most, "states")
    assert axis.high >= most
    assert 3 <= len(axis.ticks) <= 7
    assert axis.share(axis.high) == 1.0


def test_a_unit_is_in_the_words_and_not_in_the_values():
    axis = even_axis(7_200, "hours", unit=3_600)
    assert axis.ticks[-1] == (7_200, "2")


def test_a_tenfold_axis_has_room_for_one_value():
    axis = tenfold_axis(1.0, 1.0, "seconds")
    assert (axis.low, axis.high) == (1.0, 10.0)
    assert axis.share(0.0) == 0.0
    assert axis.share(10**0.5) == pytest.approx(0.5)
