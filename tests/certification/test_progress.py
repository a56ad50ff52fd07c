"""Progress: a bar on a terminal, plain lines elsewhere."""

import io

from poolproof.certification.progress import PlainProgress, TerminalProgress, progress_to


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_plain_progress_names_each_stage_on_a_line():
    stream = io.StringIO()
    progress = PlainProgress(stream, interval_s=1000)
    progress.begin("queue", 10)
    progress.advance(10)
    progress.end()
    assert stream.getvalue() == "queue ...\n"


def test_plain_progress_says_how_far_it_is_when_the_interval_is_over():
    stream = io.StringIO()
    progress = PlainProgress(stream, interval_s=0)
    progress.begin("pool", 2000)
    progress.advance(1500)
    assert stream.getvalue().splitlines()[-1] == "pool: 1,500 of 2,000 steps"


def test_plain_progress_without_a_total_counts_alone():
    stream = io.StringIO()
    progress = PlainProgress(stream, interval_s=0)
    progress.begin("pool")
    progress.advance(1500)
    assert stream.getvalue().splitlines()[-1] == "pool: 1,500 steps"


def test_a_file_gets_plain_lines():
    with progress_to(io.StringIO()) as progress:
        assert isinstance(progress, PlainProgress)


def test_a_terminal_gets_a_bar_that_goes():
    with progress_to(Terminal()) as progress:
        assert isinstance(progress, TerminalProgress)
        progress.begin("pool", 10)
        progress.advance(5)
        progress.say("seen f-1")
        progress.end()
