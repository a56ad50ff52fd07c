"""Which manager commands are legal in a state: what the contract promises to callers, in one place.

A workload only gives legal commands, and a replay leaves out what has become illegal because an
earlier command is gone. Each function returns None for a legal command, otherwise the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from poolproof.contract.commands import Command, Reset
from poolproof.contract.manager_commands import (
    Abort,
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Fork,
    Load,
    Loaded,
    LookupPrefix,
    Preempt,
    Resume,
    Schedule,
    Step,
    SwapIn,
    SwapOut,
    Truncate,
)
from poolproof.reference.recurrent_states import furthest_end, has_state
from poolproof.reference.sequence_model import SequenceModel, SequenceState

__all__ = ["as_told", "goes_round", "undefined_for_manager"]


def undefined_for_manager(model: SequenceModel, command: Command) -> str | None:
    """Why the command is not legal now, or None."""
    rule = _RULES.get(type(command))
    return f"{command.verb} is no manager command" if rule is None else rule(model, command)


def as_told(model: SequenceModel, command: Command) -> Command:
    """The command, beginning with the token that its sequence was told to go on with.

    What grows a sequence is made up before anybody knows what its step samples.
    """
    if model.profile.sampled != "with-step" or not isinstance(command, AppendTokens):
        return command
    sequence = model.sequences.get(command.seq_id)
    if sequence is None or sequence.told is None:
        return command
    return replace(command, tokens=(sequence.told, *command.tokens[1:]))


def _running(model: SequenceModel, seq_id: int) -> SequenceState | str:
    """The sequence, if it holds device blocks and is not being loaded."""
    sequence = model.sequences.get(seq_id)
    if sequence is None or sequence.ended:
        return f"sequence {seq_id} does not exist"
    if sequence.place != "device" or sequence.loading:
        return f"sequence {seq_id} is not running"
    return sequence


def _settled(model: SequenceModel, seq_id: int) -> SequenceState | str:
    """The sequence, if it is running and nothing of it waits for the next step."""
    sequence = _running(model, seq_id)
    if isinstance(sequence, str):
        return sequence
    if sequence.num_scheduled or sequence.num_drafts:
        return f"sequence {seq_id} waits for a step or for its drafts"
    if model.profile.state_blocks and has_state(model.groups):
        return f"only the worker knows in which block the state of sequence {seq_id} stands"
    if model.profile.same_step_hit == "allowed" and _has_unwritten_hits(model, sequence):
        return f"sequence {seq_id} has hits that the next step is going to write"
    return sequence


def _has_unwritten_hits(model: SequenceModel, sequence: SequenceState) -> bool:
    """Whether another sequence that is scheduled is going to write a block of this one."""
    for other in model.sequences.values():
        if not other.num_scheduled or other is sequence:
            continue
        for size, mine, theirs in zip(model.block_sizes, sequence.tables, other.tables):
            if not set(mine).isdisjoint(theirs[other.num_computed // size :]):
                return True
    return False


def _unless(found: SequenceState | str) -> str | None:
    return found if isinstance(found, str) else None


def _new(model: SequenceModel, seq_id: int) -> str | None:
    if seq_id in model.sequences or seq_id in model.ended_ids:
        return f"sequence {seq_id} exists already"
    return None


def _admit(model: SequenceModel, command: Admit) -> str | None:
    if not command.chain.tokens or command.num_tokens < 0:
        return "a sequence has at least one token"
    return _beyond_row(model, len(command.chain.tokens)) or _new(model, command.seq_id)


def _beyond_row(model: SequenceModel, num_tokens: int) -> str | None:
    """Why a sequence cannot have so many tokens; an engine ends it before."""
    width = model.profile.max_tokens
    if 0 < width < num_tokens:
        return (
            f"no sequence has more than {width} tokens (max_tokens), and this would be {num_tokens}"
        )
    return None


def _resume(model: SequenceModel, command: Resume) -> str | None:
    sequence = model.sequences.get(command.seq_id)
    if sequence is None or sequence.place != "nowhere":
        return f"sequence {command.seq_id} was not preempted"
    return None if command.num_tokens >= 0 else "a number of tokens is not negative"


def _append(model: SequenceModel, command: AppendTokens) -> str | None:
    sequence = _running(model, command.seq_id)
    if isinstance(sequence, str):
        return sequence
    if not command.tokens or sequence.num_drafts:
        return "there is nothing to append, or drafts come first"
    if sequence.num_computed + sequence.num_scheduled != sequence.num_tokens:
        return f"the prompt of sequence {command.seq_id} is not scheduled whole"
    if sequence.told not in (None, command.tokens[0]):
        return f"token {sequence.told} of sequence {command.seq_id} was sampled, and told by a step"
    if len(command.tokens) > 1 and goes_round(model, sequence.num_tokens + len(command.tokens)):
        return "beyond the window, the second token would overwrite what the first reads"
    beyond = _beyond_row(model, sequence.num_tokens + len(command.tokens))
    return beyond or _passes_state(model, sequence, len(command.tokens))


def goes_round(model: SequenceModel, num_tokens: int) -> bool:
    """Whether so many tokens need more slots than a ring over their window has."""
    return model.profile.window_blocks == "reused" and any(
        group.is_sliding and num_tokens > group.window for group in model.groups
    )


def _passes_state(model: SequenceModel, sequence: SequenceState, count: int) -> str | None:
    end = furthest_end(model, sequence)
    if end is not None and sequence.num_computed + sequence.num_scheduled + count > end:
        return f"sequence {sequence.seq_id} has to leave a state at position {end - 1}"
    return None


def _schedule(model: SequenceModel, command: Schedule) -> str | None:
    sequence = _running(model, command.seq_id)
    if isinstance(sequence, str):
        return sequence
    left = sequence.num_tokens - sequence.num_computed - sequence.num_scheduled
    if sequence.num_drafts or not 0 < command.num_tokens <= left:
        return f"sequence {command.seq_id} has {left} tokens that are not scheduled"
    return _passes_state(model, sequence, command.num_tokens)


def _draft(model: SequenceModel, command: Draft) -> str | None:
    sequence = _running(model, command.seq_id)
    if isinstance(sequence, str):
        return sequence
    scheduled = sequence.num_computed + sequence.num_scheduled
    if not command.tokens or sequence.num_drafts or scheduled != sequence.num_tokens:
        return f"sequence {command.seq_id} cannot have drafts now"
    if model.profile.window_blocks == "reused":
        return "rejected drafts would have overwritten what a ring still has to hold"
    if not sequence.num_scheduled:
        return "drafts are computed beside at least one token"
    most = model.profile.state_blocks
    if 0 < most < len(command.tokens) and has_state(model.groups):
        return f"there are blocks for the states behind {most} drafts (state_blocks)"
    return _beyond_row(model, sequence.num_tokens + len(command.tokens))


def _accept(model: SequenceModel, command: Accept) -> str | None:
    sequence = _running(model, command.seq_id)
    if isinstance(sequence, str):
        return sequence
    if not sequence.drafts_computed or not 0 <= command.num_tokens <= sequence.num_drafts:
        return f"sequence {command.seq_id} has no such drafts that were computed"
    return None


def _step(model: SequenceModel, _: Step) -> str | None:
    if any(s.drafts_computed for s in model.sequences.values()):
        return "drafts are accepted or dropped first"
    return None


def _fork(model: SequenceModel, command: Fork) -> str | None:
    sequence = _settled(model, command.seq_id)
    if isinstance(sequence, str):
        return sequence
    if sequence.num_computed != sequence.num_tokens:
        return f"the prompt of sequence {command.seq_id} is not computed whole"
    return _new(model, command.child_id)


def _truncate(model: SequenceModel, command: Truncate) -> str | None:
    sequence = _settled(model, command.seq_id)
    if isinstance(sequence, str):
        return sequence
    if not 0 < command.num_tokens <= sequence.num_computed == sequence.num_tokens:
        return f"sequence {command.seq_id} cannot keep {command.num_tokens} tokens"
    if model.is_gone(sequence, command.num_tokens):
        return f"what slid out of the window of sequence {command.seq_id} would be read again"
    return None


def _preempt(model: SequenceModel, command: Preempt) -> str | None:
    return _unless(_settled_or_free_to_end(model, command.seq_id))


def _swap_out(model: SequenceModel, command: SwapOut) -> str | None:
    sequence = _settled(model, command.seq_id)
    if isinstance(sequence, str):
        return sequence
    family = model.family_of(sequence)
    return next(
        (reason for s in family if (reason := _unless(_settled(model, s.seq_id))) is not None), None
    )


def _swap_in(model: SequenceModel, command: SwapIn) -> str | None:
    sequence = model.sequences.get(command.seq_id)
    if sequence is None or sequence.place != "host":
        return f"sequence {command.seq_id} is not swapped out"
    return None


def _settled_or_free_to_end(model: SequenceModel, seq_id: int) -> SequenceState | str:
    """The sequence, if it may lose its blocks now.

    Where keys are published before the step that writes the blocks, what is scheduled has to be
    computed, since others may have hit it.
    """
    sequence = _running(model, seq_id)
    found_early = model.profile.publishes == "scheduled"
    if found_early and isinstance(sequence, SequenceState) and sequence.num_scheduled:
        return f"sequence {seq_id} has been scheduled and can be found by others"
    return sequence


def _finish(model: SequenceModel, command: Finish) -> str | None:
    if command.seq_id in model.ended_ids:
        ignored = model.profile.finish_again == "ignored"
        return None if ignored else f"sequence {command.seq_id} has ended"
    return _unless(_settled_or_free_to_end(model, command.seq_id))


def _abort(model: SequenceModel, command: Abort) -> str | None:
    sequence = model.sequences.get(command.seq_id)
    if sequence is None:
        ignored = model.profile.finish_again == "ignored"
        return None if ignored else f"sequence {command.seq_id} does not exist"
    if sequence.ended:
        return f"sequence {command.seq_id} has ended"
    if sequence.place != "device" or sequence.loading:
        return None
    return _unless(_settled_or_free_to_end(model, command.seq_id))


def _lookup(model: SequenceModel, command: LookupPrefix) -> str | None:
    if not command.chain.tokens:
        return "a sequence has at least one token"
    return _beyond_row(model, len(command.chain.tokens))


def _load(model: SequenceModel, command: Load) -> str | None:
    if not 0 < command.num_tokens < len(command.chain.tokens):
        return "a transfer writes some of the tokens, and leaves at least one"
    return _beyond_row(model, len(command.chain.tokens)) or _new(model, command.seq_id)


def _loaded(model: SequenceModel, command: Loaded) -> str | None:
    sequence = model.sequences.get(command.seq_id)
    if sequence is None or not sequence.loading:
        return f"sequence {command.seq_id} is not being loaded"
    return None


def _reset(_: SequenceModel, __: Reset) -> str | None:
    return None


_RULES: dict[type[Command], Callable[[SequenceModel, Any], str | None]] = {
    Abort: _abort,
    Accept: _accept,
    Admit: _admit,
    AppendTokens: _append,
    Draft: _draft,
    Finish: _finish,
    Fork: _fork,
    Load: _load,
    Loaded: _loaded,
    LookupPrefix: _lookup,
    Preempt: _preempt,
    Reset: _reset,
    Resume: _resume,
    Schedule: _schedule,
    Step: _step,
    SwapIn: _swap_in,
    SwapOut: _swap_out,
    Truncate: _truncate,
}
