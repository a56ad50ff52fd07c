"""An engine's trace as a table: what each step computes, through which blocks, and who gets what.

The table shows the steps that the target planned, which a finding's trace stores. Where it has none
they are those of the plainest engine (`reference/native_engine.py`), which shares nothing. Requests
are named A, B, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from poolproof.certification.engine_watch import watch_engine
from poolproof.certification.right_target import right_target
from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import (
    AnswerStep,
    Arrive,
    Cancel,
    PlanStep,
    Repeat,
    RunStep,
    Submit,
)
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.prefix_words import Prefix
from poolproof.contract.shown_state import ShownState
from poolproof.contract.trace import Trace
from poolproof.invariants.wording import sequence_name
from poolproof.report.drawing import Drawing, Row, left_out_row, rows_left_out
from poolproof.report.wording import num_blocks_of

__all__ = ["draw_engine", "engine_command_words"]

_NOTHING = "computes nothing"
_HEADINGS = ("#", "what happens", "computes", "tables", "users", "note")
_SHOWN = "what the target planned; positions and blocks count from 0"
_RIGHT = "the steps are those of the plainest engine; what the target planned is not in the trace"


def draw_engine(trace: Trace) -> Drawing:
    """The steps that the target planned, as far as the trace has them."""
    left_out = rows_left_out(trace)
    numbers = {n for n in range(len(trace.commands) + 1) if n not in left_out}
    states = trace.shown or tuple(
        seen.shown for seen in watch_engine(trace, right_target(trace), wanted=numbers).seen
    )
    failing = None if trace.violation is None else trace.violation.command_index + 1
    rows = [Row(0, "", "", "", "", _setting(trace))]
    for number, command in enumerate(trace.commands, start=1):
        state = states[number] if number < len(states) else None
        planned, users = _halves(state)
        tables = "" if state is None else _tables(state)
        words = engine_command_words(command)
        rows.append(Row(number, words, planned, tables, users, "", violating=number == failing))
    idle = [False, *map(_is_step, trace.commands)]
    if left_out:
        place = slice(left_out.start, left_out.stop)
        rows[place], idle[place] = [left_out_row(left_out)], [False]
    rows = list(_idle_joined(rows, idle))
    return Drawing(tuple(rows), (), None, _HEADINGS, _SHOWN if trace.shown else _RIGHT)


def _is_step(command: Command) -> bool:
    return isinstance(command, PlanStep | RunStep | AnswerStep)


def _idle_joined(rows: Sequence[Row], may_join: Sequence[bool]) -> Iterator[Row]:
    """The rows, with one in place of those behind an idle step that are idle as well.

    `may_join[i]` says whether `rows[i]` is a step. Idle is one that computes nothing, does nothing
    else and gives nothing to anybody. The row of the violation stays by itself.
    """
    for is_idle, run in groupby(
        zip(rows, may_join, strict=True), key=lambda pair: pair[1] and _is_idle(pair[0])
    ):
        members = [row for row, _ in run]
        planned = [place for place, row in enumerate(members) if row.free_queue == _NOTHING]
        if not is_idle or len(planned) < 3:
            yield from members
            continue
        # Answers may come first to steps that did compute something.
        first = planned[0]
        yield from members[: first + 1]
        words = f".. {len(planned) - 1:,} steps more that compute nothing .."
        yield Row(members[first + 1].number, words, "", "", "", "")


def _is_idle(row: Row) -> bool:
    says_nothing = not (row.held or row.index or row.violating)
    return says_nothing and row.free_queue in ("", _NOTHING)


def engine_command_words(command: Command) -> str:
    """What happens, in the words of the table."""
    match command:
        case Submit(request_id=number, chain=chain, max_new_tokens=most, priority=priority):
            urgent = f", priority {priority}" if priority else ""
            return f"{sequence_name(number)} comes: {_prompt(chain)} + {most}{urgent}"
        case Cancel(request_id=number):
            return f"{sequence_name(number)} is cancelled"
        case PlanStep():
            return "plan"
        case AnswerStep(token=token, num_accepted=accepted, num_drafts=drafts):
            return f"answer {_sampled(token, accepted, drafts)}"
        case RunStep(token=token, num_accepted=accepted, num_drafts=drafts):
            return f"step {_sampled(token, accepted, drafts)}"
        case Arrive(place=place, is_lost=is_lost, num_moved=moved):
            part = f" after {moved} block{'s' * (moved > 1)}" if moved else ""
            return f"transfer {place + 1} {'is lost' if is_lost else 'arrives'}{part}"
        case Repeat(before_last=before_last):
            which = f"the end before the last {before_last}" if before_last else "the last end"
            return f"{which} is told again"
        case _:
            return str(command)


def _sampled(token: int, accepted: int, drafts: int) -> str:
    words = [f"samples {token}"]
    words += [f"accepts {accepted}"] if accepted else []
    words += [f"drafts {drafts}"] if drafts else []
    return ", ".join(words)


def _prompt(chain: TokenChain) -> str:
    prefix = Prefix(chain.tokens, chain.lora, chain.salt, chain.images, 0)
    return f"<{prefix.words()}>"


def _halves(state: ShownState | None) -> tuple[str, str]:
    """What a step computes, and what users are given."""
    if state is None or not isinstance(state.answer, str):
        return "", ""
    words = state.answer.split("; ")
    users = [word for word in words if " gets " in word]
    return "; ".join(w for w in words if w and w not in users), "; ".join(users)


def _tables(state: ShownState) -> str:
    return "; ".join(
        f"{sequence_name(held.seq_id)} "
        + " | ".join(" ".join(map(str, table)) or "-" for table in held.tables)
        for held in state.held
    )


def _setting(trace: Trace) -> str:
    profile = trace.profile
    assert isinstance(profile, EngineProfile)
    return (
        f"{num_blocks_of(trace)} of {trace.options.get('block_size', 1)} tokens, at most "
        f"{profile.max_batch_tokens} tokens and {profile.max_running} requests a step"
    )
