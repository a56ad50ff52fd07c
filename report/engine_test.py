"""An engine's trace as a test that needs neither Poolproof nor any of its words.

The file has the engine's users and its worker in plain lines (`engine_play.py`), as much of them as
the trace needs, builds the engine by what its target adds (`targets/reproducer.py`), plays the
commands, and asserts what was violated: it fails on the engine that the trace was found on, with a
sentence, and passes on one that is mended. What comes from the trace enters the file as a quoted
literal or a comment, so that a trace from a stranger cannot smuggle in code.

An engine that is mended plans other steps than the one of the trace. Commands that mean nothing to
it, such as a cancel of a request that has ended, are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from poolproof.contract.commands import Command, Reset
from poolproof.contract.engine_commands import (
    STOP_TOKEN,
    AnswerStep,
    Arrive,
    Cancel,
    PlanStep,
    Repeat,
    RunStep,
    Submit,
)
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.outside import printable
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.invariants.wording import sequence_name
from poolproof.report import engine_play
from poolproof.report.regression_test import comment, regression_test, test_name
from poolproof.targets.reproducers import reproducer_of

__all__ = ["engine_script", "engine_test"]

_SOURCE = Path(engine_play.__file__)
_INVARIANTS = ("DATA", "PLAN", "OUT", "LIVE", "LEAK", "CRASH")
_MOVES = ("loads ", "stores ")
_WIDTH = 100


def engine_test(trace: Trace, written_to: Path | None = None) -> str:
    """The text of the file, which names its engine from where it is written to.

    A target that no file can import, such as a program, gets a test that uses Poolproof, and so
    does a trace in which a step says of recurrent states what cannot be done (PLAN), or which has
    several ranks.
    """
    text = _alone(trace, None if written_to is None else written_to.resolve().parent)
    return regression_test(trace, written_to) if text is None else text


def engine_script(trace: Trace) -> str:
    """The same as a script, which runs its test.

    Raises TargetError for a target that no file can import.
    """
    text = _alone(trace, None)
    if text is None:
        raise TargetError(
            f"{trace.target} is not a class that a script can import, or the trace needs several "
            "workers; use --as pytest"
        )
    return f'{text}\n\nif __name__ == "__main__":\n    {test_name(trace)}()\n'


def _alone(trace: Trace, folder: Path | None) -> str | None:
    """A test that needs nothing of Poolproof; None where the target cannot be built without."""
    name = test_name(trace)
    reproducer = reproducer_of(trace.target)
    if reproducer is None or _is_about_states(trace) or _has_ranks(trace):
        return None
    body = reproducer.own_test(trace, name)
    if body is None:
        setting = reproducer.setting(trace, folder)
        if setting is None:
            return None
        body = [
            "from __future__ import annotations",
            "",
            *setting,
            "",
            "",
            *_player(trace),
            "",
            "",
            *_test(trace, name),
        ]
    return "\n".join([comment(trace), "", *body]) + "\n"


def _is_about_states(trace: Trace) -> bool:
    """Whether what the trace shows may be a use of states that is impossible."""
    profile, violation = trace.profile, trace.violation
    is_plan = violation is not None and violation.invariant == "PLAN"
    return is_plan and isinstance(profile, EngineProfile) and profile.has_states


def _has_ranks(trace: Trace) -> bool:
    """Whether there is more than one worker, each with a memory: the player has one."""
    return isinstance(trace.profile, EngineProfile) and trace.profile.ranks > 1


def _player(trace: Trace) -> Iterator[str]:
    """The constants that the player has, and as much of the player as the trace needs."""
    needed = _features(trace)
    lines = _spaced(_kept(_classes(_SOURCE.read_text(encoding="utf-8")), needed))
    text = "\n".join(lines)
    for name, value in _constants(trace).items():
        if re.search(rf"\b{name}\b", text):
            yield f"{name} = {value}"
    yield ""
    yield ""
    yield from lines


def _classes(source: str) -> list[str]:
    """The lines from the first class on."""
    lines = source.splitlines()
    return lines[lines.index("class Played:") :]


def _kept(lines: list[str], needed: set[str]) -> Iterator[str]:
    """The lines whose condition holds, without it; a block goes with the line that begins it."""
    dropped: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            yield ""
            continue
        if dropped is not None and indent > dropped:
            continue
        bare, marker, words = line.partition("  #: ")
        if marker and not _holds(words, needed):
            # What closes a bracket ends at the indentation of the line that opened it.
            dropped = indent
            continue
        if dropped is not None and line.strip()[0] in ")]}":
            continue
        dropped = None
        yield re.sub(r"  # (noqa|type): .*$", "", bare)


def _spaced(lines: Iterator[str]) -> list[str]:
    """One empty line between methods, two before a class, none at the end."""
    spaced: list[str] = []
    for line in lines:
        if line or (spaced and spaced[-1]):
            spaced += [""] * (bool(spaced) and line.startswith("class "))
            spaced.append(line)
    while not spaced[-1]:
        spaced.pop()
    return spaced


def _holds(words: str, needed: set[str]) -> bool:
    return any(
        all((word[1:] not in needed) if word[0] == "!" else (word in needed) for word in part)
        for part in (choice.split("&") for choice in words.split("|"))
    )


def _features(trace: Trace) -> set[str]:
    """What of the player a trace needs."""
    profile = trace.profile
    assert isinstance(profile, EngineProfile)
    verbs = {type(command) for command in trace.commands}
    shown = [state.answer for state in trace.shown or () if isinstance(state.answer, str)]
    is_moved = any(words in answer for answer in shown for words in _MOVES)
    needed = {
        # A step that is planned before the one before it is answered.
        "ahead": profile.steps_in_flight > 1,
        "instances": profile.instances > 1,
        "drafts": profile.draft_tokens > 0,
        "moves": Arrive in verbs or is_moved or not trace.shown,
        "repeats": Repeat in verbs,
        # A mended engine may copy where a broken one forgot to.
        "copies": True,
        "cancels": Cancel in verbs,
        "resets": Reset in verbs,
        "keys": profile.image_tokens > 0
        or profile.max_adapters > 0
        or any(isinstance(c, Submit) and c.chain.extra_keys() for c in trace.commands),
        "images": profile.image_tokens > 0 and profile.encoder_cache_tokens > 0,
        "adapters": profile.max_adapters > 0,
        "preempts": profile.reset == "preempts" and Reset in verbs,
        "states": profile.has_states,
        "told": profile.has_states and profile.state_moves == "told",
        "drops": profile.stale_outputs == "may-drop" and profile.steps_in_flight > 1,
    }
    if trace.violation is not None:
        needed[trace.violation.invariant] = True
    else:  # It found nothing: all must hold.
        needed.update(dict.fromkeys(_INVARIANTS, True))
    return {word for word, is_needed in needed.items() if is_needed}


def _constants(trace: Trace) -> dict[str, str]:
    profile = trace.profile
    assert isinstance(profile, EngineProfile)
    size = int(trace.options.get("block_size", 1))
    numbers = [c.request_id for c in trace.commands if isinstance(c, Submit)]
    names = {number: sequence_name(number) for number in numbers}
    groups = [(group.kind, group.block_size or size, group.window) for group in profile.groups]
    null = profile.null_block
    return {
        "NAMES": f"{names!r}",
        "GROUPS": f"{groups!r}  # each with its tokens a block, and its window",
        "NUM_BLOCKS": str(trace.num_blocks),
        "NUM_USABLE": str(trace.num_blocks - (null is not None)),
        "NULL_BLOCK": repr(null),
        "MAX_BATCH_TOKENS": str(profile.max_batch_tokens),
        "MAX_RUNNING": str(profile.max_running),
        "MAX_REQUEST_TOKENS": f"{profile.max_request_tokens}"
        + ("" if profile.max_request_tokens else "  # as many as fit"),
        "DRAFT_TOKENS": str(profile.draft_tokens),
        "MAX_ADAPTERS": str(profile.max_adapters),
        "ENCODER_CACHE_TOKENS": str(profile.encoder_cache_tokens),
        "MAX_ENCODER_TOKENS": f"{profile.max_encoder_tokens}"
        + ("" if profile.max_encoder_tokens else "  # any number"),
        "STATES_IN_BETWEEN": str(profile.states == "every-block"),
        "STOP_TOKEN": str(STOP_TOKEN),
    }


def _test(trace: Trace, name: str) -> Iterator[str]:
    """The test function: one call for each command."""
    violation = trace.violation
    raises = violation is not None and violation.invariant == "CRASH"
    last = len(trace.commands) if violation is None else violation.command_index + 1
    calls = list(_calls(trace, trace.commands[:last]))
    yield f"def {name}() -> None:"
    if raises and not calls:
        yield from _may_not_raise(["Play(new_engine())"])
        return
    yield "    play = Play(new_engine())"
    for call in calls[:-1] if raises else calls:
        yield from _indented(call)
    if raises:
        yield from _may_not_raise(calls[-1])
    invariants = _features(trace)
    if {"LIVE", "LEAK"} & invariants:
        yield f"    play.finish({_sampled(_last_step(trace))})"
    if "LEAK" in invariants:
        yield "    play.check_rest()"


def _may_not_raise(call: list[str]) -> Iterator[str]:
    """The call that raised, and what is read after it."""
    yield "    try:"
    yield from _indented(call, 8)
    if call[0].startswith("play."):
        yield '        for observer in ("num_free", "unfinished"):'
        yield "            if hasattr(play.engine, observer):"
        yield "                getattr(play.engine, observer)()"
    yield "    except (Exception, SystemExit) as error:"
    yield "        raise AssertionError("
    yield '            f"a legal call fails with {type(error).__name__}: {error}"'
    yield "        ) from error"


def _indented(lines: list[str], width: int = 4) -> list[str]:
    return [f"{' ' * width}{line}" for line in lines]


def _calls(trace: Trace, commands: tuple[Command, ...]) -> Iterator[list[str]]:
    """The lines of each command; of many that are alike, one loop and, by itself, the last."""
    notes = _notes(trace)
    number = 0
    for call, alike in groupby(map(_call, commands)):
        count = len(list(alike))
        if count > 2:
            yield [f"for _ in range({count - 1}):", f"    {call}"]
            yield [call]
        else:
            for place in range(number, number + count):
                yield _with_note(call, notes.get(place + 1, ""))
        number += count


def _with_note(call: str, note: str) -> list[str]:
    line = f"{call}  # {note}" if note else call
    return [line] if len(line) + 8 <= _WIDTH else [*([f"# {note}"] if note else []), call]


def _notes(trace: Trace) -> dict[int, str]:
    """What the target of the trace planned, by the number of the command."""
    return {
        number: printable(" ".join(state.answer.split()))
        for number, state in enumerate(trace.shown or ())
        if isinstance(state.answer, str)
    }


def _call(command: Command) -> str:
    match command:
        case Submit(request_id=number, chain=chain, max_new_tokens=most, priority=priority):
            keys = chain.extra_keys()
            urgency = f", priority={priority}" if priority else ""
            more = f", extra_keys={keys!r}" if keys else ""
            return f"play.submit({number}, {list(chain.tokens)}, {most}{urgency}{more})"
        case Cancel(request_id=number):
            return f"play.cancel({number})"
        case PlanStep():
            return "play.plan()"
        case AnswerStep() | RunStep():
            verb = "answer" if isinstance(command, AnswerStep) else "run"
            return f"play.{verb}({_sampled(command)})"
        case Arrive(place=place, is_lost=is_lost, num_moved=moved):
            part = f", num_moved={moved}" if moved else ""
            return f"play.arrive({place}{', is_lost=True' if is_lost else ''}{part})"
        case Repeat(before_last=before_last):
            return f"play.repeat({before_last})"
        case _:
            return "play.reset()"


def _sampled(command: AnswerStep | RunStep) -> str:
    accepted = f", accepted={command.num_accepted}" if command.num_accepted else ""
    drafts = f", drafts={command.num_drafts}" if command.num_drafts else ""
    return f"{command.token}{accepted}{drafts}"


def _last_step(trace: Trace) -> AnswerStep | RunStep:
    """What the worker said last, which it goes on saying."""
    answers: list[Any] = [c for c in trace.commands if isinstance(c, AnswerStep | RunStep)]
    return answers[-1] if answers else AnswerStep(1, 0, 0)
