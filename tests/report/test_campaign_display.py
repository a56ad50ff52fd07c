"""What a running campaign shows: a panel on a terminal, lines elsewhere, findings everywhere.

Curves are in characters there, and in SVG on the page.
"""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from poolproof.fuzz.coordinator import CampaignBudget
from poolproof.fuzz.findings import CampaignFinding
from poolproof.report.campaign_display import (
    LiveDisplay,
    area_chart,
    campaign_panel,
    display_to,
    held_at,
)
from poolproof.report.campaign_lines import PlainDisplay, QuietDisplay
from poolproof.report.campaign_words import Allowance, depth_words, duration_words, share_words
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


HOUR = Allowance(CampaignBudget(seconds=3_600))


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


class AsciiTerminal(Terminal):
    encoding = "ascii"


@pytest.fixture(name="finding")
def finding_(samples):
    trace = samples.trace()
    return CampaignFinding(trace.fingerprint, "kind", trace, b"", 500, 1.5)


def drawn(panel_status, *, left=None, stream=None, width=100, height=40):
    stream = stream or Terminal()
    console = Console(file=stream, width=width, height=height, color_system=None)
    console.print(campaign_panel(panel_status, left, console))
    return stream.getvalue()


def test_the_panel_shows_how_a_campaign_stands(campaigns):
    text = drawn(campaigns.status(num_pending=3), left=90.0)
    for words in (
        "900 of 1,000 states (90.0 %)",
        "1,000 steps/s",
        "10,000 steps, 100 runs",
        "2 at work, 1 lost",
        "12 tapes, 50.0 % stable",
        "0, 3 to be minimised",
        "40 steps ago",
        "running, 10 s, 1 min 30 s left",
    ):
        assert words in text


def test_the_panel_draws_the_curve_up_to_the_known_number_of_states(campaigns):
    text = drawn(campaigns.status())
    assert "1,000│" in text
    assert "█" in text


def test_the_panel_shows_the_last_findings(campaigns):
    lines = tuple(campaigns.finding_line(fingerprint=f"f-{number}") for number in range(8))
    text = drawn(campaigns.status(findings=lines))
    assert "the last 5:" in text
    assert "f-7  OWN  after 2.0 s, 3 commands" in text
    assert "f-2 " not in text


def test_the_panel_of_a_campaign_without_a_known_number_of_states_has_no_share(campaigns):
    text = drawn(campaigns.status(num_possible=None))
    assert "900 states" in text
    assert "%)" not in text


def test_the_panel_fits_a_small_terminal(campaigns):
    lines = drawn(
        campaigns.status(findings=(campaigns.finding_line(),) * 9), width=80, height=12
    ).splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 80


def test_a_terminal_without_unicode_gets_plain_characters(campaigns):
    text = drawn(campaigns.status(findings=(campaigns.finding_line(),)), stream=AsciiTerminal())
    assert text.replace("…", "").isascii()
    assert "#" in text


def test_text_of_the_target_cannot_steer_the_terminal(campaigns):
    text = drawn(
        campaigns.status(target="x\x1b[2J", findings=(campaigns.finding_line(sentence="\x1b[31m"),))
    )
    assert "\x1b" not in text


def test_a_campaign_of_which_nothing_is_known_is_shown(campaigns):
    text = drawn(replace(campaigns.status(), curve=(), num_states=0, num_steps=0, seconds=0.0))
    assert "0 of 1,000 states (0.0 %)" in text


def test_a_terminal_gets_the_panel(monkeypatch, campaigns):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with display_to(stream, HOUR) as display:
        assert isinstance(display, LiveDisplay)
        display.show(campaigns.status())
    assert "900 of 1,000 states" in stream.getvalue()


def test_a_dumb_terminal_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with display_to(Terminal(), HOUR) as display:
        assert isinstance(display, PlainDisplay)


def test_a_pipe_gets_lines():
    with display_to(io.StringIO(), HOUR) as display:
        assert isinstance(display, PlainDisplay)


def test_plain_lines_say_what_is_left(capsys, campaigns):
    PlainDisplay(Allowance(CampaignBudget(seconds=100)), interval_s=0).show(campaigns.status())
    line = capsys.readouterr().err
    assert line == (
        "10,000 steps, 1,000 a second, 900 of 1,000 states (90.0 %), 0 findings, "
        "1 worker lost, 1 min 30 s left\n"
    )


def test_plain_lines_wait_for_their_interval_but_for_the_last(capsys, campaigns):
    display = PlainDisplay(HOUR, interval_s=1_000)
    display.show(campaigns.status())
    assert capsys.readouterr().err == ""
    display.show(campaigns.status(activity="done"))
    assert capsys.readouterr().err.endswith("done\n")


@pytest.mark.parametrize("quiet", [False, True])
def test_a_finding_goes_to_standard_output(capsys, finding, quiet):
    with display_to(io.StringIO(), HOUR, quiet=quiet) as display:
        display.say(finding)
    said = capsys.readouterr()
    assert said.out.startswith(f"{finding.fingerprint}  IDX")
    assert said.err == ""


def test_a_finding_beside_the_panel_goes_to_a_standard_output_that_is_a_file(
    capsys, monkeypatch, finding
):
    monkeypatch.setenv("TERM", "xterm")
    with display_to(Terminal(), HOUR) as display:
        display.say(finding)
    assert capsys.readouterr().out.startswith(f"{finding.fingerprint}  IDX")


def test_quiet_shows_no_status(capsys, campaigns):
    with display_to(Terminal(), HOUR, quiet=True) as display:
        assert isinstance(display, QuietDisplay)
        display.show(campaigns.status(activity="done"))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("budget", "left"),
    [
        (CampaignBudget(seconds=100), 94.0),
        (CampaignBudget(steps=7_000), 1.0),
        (CampaignBudget(quiet_steps=540), 0.5),
        (CampaignBudget(seconds=100, steps=7_000), 1.0),
        (CampaignBudget(seconds=float("inf")), None),
        (CampaignBudget(seconds=1), 0.0),
    ],
)
def test_what_is_left_of_a_session_does_not_count_earlier_ones(budget, left, campaigns):
    allowance = Allowance(budget, earlier_seconds=4.0, earlier_steps=4_000)
    assert allowance.seconds_left(campaigns.status()) == left
