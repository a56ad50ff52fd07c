"""How traces of each level are shown: their set-up in words, their steps as a table, as a script.

A new level has an entry in `VIEWS`, in `SET_UP_AT` of `wording.py`, and two in `glossary.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.report.drawing import Drawing, draw_index, draw_pool, draw_queue
from poolproof.report.engine_drawing import draw_engine, engine_command_words
from poolproof.report.engine_test import engine_script, engine_test
from poolproof.report.manager_drawing import command_words, draw_manager
from poolproof.report.regression_test import regression_test
from poolproof.report.reproducer import manager_reproducer, reproducer

__all__ = ["VIEWS", "LevelView", "sentence_of"]


@dataclass(frozen=True, slots=True)
class LevelView:
    """What belongs to a level alone.

    `script` writes plain calls, and raises TargetError for a trace that has no such form. `test`
    writes a pytest file, given where it will lie (None: the present folder).
    `has_caption`: the reader must know whose states are shown, because the target may or may not
    have been run. `words`: how the table writes a command, whose sequences or requests it names by
    letters; sentences do so as well.
    """

    draw: Callable[[Trace], Drawing]
    script: Callable[[Trace], str]
    words: Callable[[Command], str] | None = None
    has_caption: bool = False
    test: Callable[[Trace, Path | None], str] = regression_test


def _no_script(trace: Trace) -> str:
    raise TargetError(
        f"a trace of {trace.level.with_article} has no form in plain calls; use --as pytest"
    )


VIEWS: Mapping[Level, LevelView] = {
    Level.QUEUE: LevelView(draw_queue, _no_script),
    Level.INDEX: LevelView(draw_index, _no_script),
    Level.POOL: LevelView(draw_pool, reproducer),
    Level.MANAGER: LevelView(draw_manager, manager_reproducer, command_words, has_caption=True),
    Level.ENGINE: LevelView(
        draw_engine, engine_script, engine_command_words, has_caption=True, test=engine_test
    ),
}


def sentence_of(trace: Trace, violation: Violation) -> str:
    """The violation's sentence, in the words of the table."""
    text = violation.sentence
    words = VIEWS[trace.level].words
    if words is not None:
        for command in trace.commands[violation.command_index :]:
            text = text.replace(str(command), words(command))
    return text
