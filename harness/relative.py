"""Commands in relative form: "the second-oldest held block" instead of "block 5".

When a command is deleted from a trace, later allocations answer with other ids, and commands
that name ids no longer mean what they meant. In relative form they still do: a block is named by
its role in the state (held, cached and free, free, null) and its place in that role's order. The
minimiser works on this form; the result is concrete again, because it is what was executed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from poolproof.contract.commands import Allocate, Command
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.dict_queue import DictQueue
from poolproof.reference.sequence_model import SequenceModel

__all__ = ["RelativeCommand", "Role", "made_concrete", "made_relative", "roles_in"]

Role = tuple[str, int]
"""A role and a place in its order; ("raw", id) is an id taken as it is."""


@dataclass(frozen=True, slots=True)
class RelativeCommand:
    """A command whose block ids are given by `roles`; for `allocate` the count may be relative.

    An allocate with the role ("beyond", k) asks for k blocks more than are free, with ("all", 0)
    for exactly those that are free.
    """

    command: Command
    roles: tuple[Role, ...] = ()


State = DictPool | DictQueue | SequenceModel


def made_relative(command: Command, state: State) -> RelativeCommand:
    """The command in relative form, for the state it is about to be applied to.

    Manager commands name sequences and no blocks: they are as they are.
    """
    if isinstance(state, SequenceModel):
        return RelativeCommand(command)
    if isinstance(command, Allocate) and isinstance(state, DictPool):
        free = len(state.free)
        if command.count > free:
            return RelativeCommand(command, (("beyond", command.count - free),))
        if command.count == free and command.count > 1:
            return RelativeCommand(command, (("all", 0),))
        return RelativeCommand(command)
    roles = roles_in(state)
    return RelativeCommand(command, tuple(_role(roles, block) for block in _ids(command)))


def made_concrete(relative: RelativeCommand, state: State) -> Command | None:
    """The command that the relative form means in this state; None if it means nothing here."""
    command = relative.command
    if isinstance(state, SequenceModel):
        return command
    if isinstance(command, Allocate) and isinstance(state, DictPool):
        for kind, amount in relative.roles:
            free = len(state.free)
            return Allocate(free + amount if kind == "beyond" else free)
        return command
    if not relative.roles:
        return command
    roles = roles_in(state)
    ids = []
    for kind, place in relative.roles:
        members = roles[kind](place)
        if members is None:
            return None
        ids.append(members)
    name = _ids_field(command)
    return replace(command, **{name: tuple(ids) if name == "block_ids" else ids[0]})


def roles_in(state: DictPool | DictQueue) -> dict[str, Callable[[int], int | None]]:
    """For each role, the block at a place of its order; a place beyond the end wraps around."""
    if isinstance(state, DictQueue):
        outside = [b for b in range(state.num_blocks) if b not in state.order]
        members = {"queued": list(state.order), "outside": outside}
    else:
        held = [b for b, holders in state.holders.items() if holders]
        held.sort(key=lambda block: (state.holders[block][0], block))
        members = {
            "held": held,
            "cached": [b for b in state.free if state.keys[b]],
            "free": [b for b in state.free if not state.keys[b]],
            "null": [] if state.null_block is None else [state.null_block],
        }

    def pick(blocks: list[int]) -> Callable[[int], int | None]:
        return lambda place: blocks[place % len(blocks)] if blocks else None

    roles = {role: pick(blocks) for role, blocks in members.items()}
    roles["raw"] = lambda place: place
    return roles


def _role(roles: dict[str, Callable[[int], int | None]], block: int) -> Role:
    for role, at in roles.items():
        first = at(0)
        place = 0
        while role != "raw" and first is not None:
            if at(place) == block:
                return (role, place)
            place += 1
            if at(place) == first:
                break
    return ("raw", block)


def _ids_field(command: Command) -> str:
    return "block_ids" if hasattr(command, "block_ids") else "block_id"


def _ids(command: Command) -> tuple[int, ...]:
    ids: tuple[int, ...] | None = getattr(command, "block_ids", None)
    if ids is not None:
        return ids
    block: int | None = getattr(command, "block_id", None)
    return () if block is None else (block,)
