"""Which display a campaign gets: a panel on a terminal, plain lines elsewhere, or findings alone.

All but the findings goes to standard error, so that what is written to standard output stays clean.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live

from poolproof.fuzz.findings import CampaignFinding, Pending
from poolproof.fuzz.status import CampaignStatus
from poolproof.report.campaign_words import Allowance
from poolproof.report.fuzz_lines import PlainDisplay, QuietDisplay
from poolproof.report.fuzz_live import LiveDisplay

__all__ = ["Display", "display_to"]


class Display(Protocol):
    """Hears how a campaign stands, a few times a second, and each new finding once."""

    def show(self, status: CampaignStatus) -> None:
        """The campaign stands so."""
        ...

    def say(self, finding: CampaignFinding) -> None:
        """A finding is on disk."""
        ...

    def say_waiting(self, pending: Pending) -> None:
        """A failing run is on disk, and not minimised yet."""
        ...


@contextmanager
def display_to(stream: TextIO, allowance: Allowance, *, quiet: bool = False) -> Iterator[Display]:
    """The display that suits the stream, for the time of the block."""
    console = Console(file=stream)
    if quiet:
        yield QuietDisplay()
    elif not stream.isatty() or console.is_dumb_terminal:
        yield PlainDisplay(allowance)
    else:
        # No thread that refreshes, and no taking over of standard output: it may be a file.
        with Live(
            console=console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            yield LiveDisplay(live, allowance)
