"""Commands in relative form: "the second-oldest held block" instead of "block 5".

When a command is deleted from a trace, later allocations answer with other ids, and commands
that name ids no longer mean what they meant. In relative form they still do: a block is named by
its role in the state (held, cached and free, free, null) and its place in that role's order. In a
large pool it is named by its origin, "the 17th block that was handed out": that costs the same
however many blocks there are, and what touches a block goes with the allocation that gave it. The
minimiser works on these forms; the result is concrete again, because it is what was executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from poolproof.contract.commands import Allocate, Cache, Command, Evict, Free, Touch
from poolproof.reference.dict_index import DictIndex
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.dict_queue import DictQueue
from poolproof.reference.engine_model import EngineModel
from poolproof.reference.legality import misuse_of
from poolproof.reference.manager_legality import as_told
from poolproof.reference.sequence_model import SequenceModel

__all__ = ["Naming", "RelativeCommand", "Role", "made_concrete", "made_relative", "roles_in"]

Role = tuple[str, int]
"""A role and a place in its order; ("raw", id) is an id taken as it is, ("given", k) the block that
was handed out as the k-th."""

SMALL_POOL = 64
"""Up to this many blocks the order of all blocks of a role is cheap."""


@dataclass(frozen=True, slots=True)
class RelativeCommand:
    """A command whose block ids are given by `roles`; for `allocate` the count may be relative.

    An allocate with the role ("beyond", k) asks for k blocks more than are free, with ("all", 0)
    for exactly those that are free. `origin` numbers the first block that it gave when it was
    recorded, where blocks are named by that.
    """

    command: Command
    roles: tuple[Role, ...] = ()
    origin: int | None = None
    is_misuse: bool = False
    """Whether it is wrong on purpose: then nothing of its list is left out."""


State = DictPool | DictQueue | DictIndex | SequenceModel | EngineModel


class Naming:
    """How the commands of one execution name blocks; `state` is that of its reference.

    Commands in either form are understood; concrete ones are named by roles in a small pool and by
    origin in a large one.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        is_large = isinstance(state, DictPool | DictQueue) and not self.is_small(state.num_blocks)
        self._by_origin = is_large and isinstance(state, DictPool)
        self._by_id = is_large and isinstance(state, DictQueue)
        self._given: dict[int, int] = {}
        self._number_of: dict[int, int] = {}
        self._num_given = 0

    @staticmethod
    def is_small(num_blocks: int) -> bool:
        """Whether a pool of so many blocks names them by roles."""
        return num_blocks <= SMALL_POOL

    @staticmethod
    def is_by_origin(commands: Iterable[RelativeCommand]) -> bool:
        """Whether the commands name blocks as a large pool does."""
        return any(item.origin is not None for item in commands)

    def concrete(self, item: RelativeCommand | Command) -> Command | None:
        """What the item means now; None if it means nothing."""
        if not isinstance(item, RelativeCommand):
            return item
        if any(kind == "given" for kind, _ in item.roles):
            item = self._with_what_is_there(item)
            if not item.roles:
                return None
        meant = made_concrete(item, self._state)
        if item.origin is not None and isinstance(meant, Allocate):
            # It was not refused when it was recorded; a smaller pool gives what it has.
            assert isinstance(self._state, DictPool)
            return Allocate(min(meant.count, len(self._state.free)))
        if (self._by_origin or self._by_id) and meant is not None and not item.is_misuse:
            return _legal_part(meant, self._state)
        return meant

    def relative(self, item: RelativeCommand | Command, meant: Command) -> RelativeCommand:
        """The relative form of `meant`, which is what the item means now."""
        if isinstance(item, RelativeCommand):
            if any(kind == "given" for kind, _ in item.roles):
                return replace(self._by_number(meant), origin=item.origin, is_misuse=item.is_misuse)
            return item
        if self._by_id:
            return RelativeCommand(meant, tuple(("raw", block) for block in _ids(meant)))
        if not self._by_origin:
            return made_relative(meant, self._state)
        if isinstance(meant, Allocate) and meant.count >= 0:
            relative = made_relative(meant, self._state)
            is_refused = relative.roles[:1] and relative.roles[0][0] == "beyond"
            return relative if is_refused else RelativeCommand(meant, origin=self._num_given)
        assert isinstance(self._state, DictPool)
        is_misuse = misuse_of(self._state, meant) is not None
        return replace(self._by_number(meant), is_misuse=is_misuse)

    def note_taken(self, item: RelativeCommand, taken: Sequence[int]) -> None:
        """An allocation was carried out and handed out these blocks."""
        if not isinstance(item.command, Allocate):
            return
        first = self._num_given if item.origin is None else item.origin
        for number, block in enumerate(taken, start=first):
            self._given[number] = block
            self._number_of[block] = number
        self._num_given = max(self._num_given, first + len(taken))

    def _by_number(self, command: Command) -> RelativeCommand:
        number_of = self._number_of
        return RelativeCommand(
            command,
            tuple(
                ("given", number_of[block]) if block in number_of else ("raw", block)
                for block in _ids(command)
            ),
        )

    def _with_what_is_there(self, item: RelativeCommand) -> RelativeCommand:
        """The blocks that were handed out here, too, by their ids; no roles if one is missing.

        Lists go without what is missing.
        """
        ids = []
        for kind, place in item.roles:
            block = self._given.get(place) if kind == "given" else place
            is_there = kind != "given" or (block is not None and self._number_of[block] == place)
            ids.append(block if is_there else None)
        kept = [place for place, block in enumerate(ids) if block is not None]
        roles = tuple(("raw", block) for block in ids if block is not None)
        if len(kept) == len(ids):
            return replace(item, roles=roles)
        command = item.command
        if isinstance(command, Cache) and len(command.hashes) == len(ids):
            command = replace(command, hashes=tuple(command.hashes[place] for place in kept))
        elif not isinstance(command, Touch | Free | Evict):
            return replace(item, roles=())
        return RelativeCommand(command, roles, item.origin, item.is_misuse)


def _legal_part(command: Command, state: State) -> Command | None:
    """The command with what is legal of its list in this state; None if that is nothing.

    Of a trace from which commands were taken away, a `free` may name references that nobody took,
    an allocation ask for more than a smaller pool has.
    """
    ids = getattr(command, "block_ids", ())
    if isinstance(state, DictQueue):
        legal = [block for block in dict.fromkeys(ids) if _may_join(block, state)]
    elif isinstance(state, DictPool) and isinstance(command, Free):
        left = {block: len(state.holders.get(block, ())) for block in ids}
        legal = []
        for block in ids:
            if left[block] > 0 or block == state.null_block:
                left[block] -= 1
                legal.append(block)
    elif isinstance(state, DictPool) and isinstance(command, Touch | Cache):
        legal = [block for block in ids if _may_be_named(command, block, state)]
    else:
        return command
    if len(legal) == len(ids):
        return command
    if isinstance(command, Cache):
        key_of = dict(zip(ids, command.hashes, strict=True))
        return replace(
            command, block_ids=tuple(legal), hashes=tuple(key_of[block] for block in legal)
        )
    return _with_ids(command, tuple(legal)) if legal else None


def _may_join(block: int, queue: DictQueue) -> bool:
    return block < queue.num_blocks and block not in queue.order


def _may_be_named(command: Touch | Cache, block: int, pool: DictPool) -> bool:
    if block == pool.null_block:
        return True
    held = bool(pool.holders.get(block))
    return held or (isinstance(command, Touch) and bool(pool.keys.get(block)))


def made_relative(command: Command, state: State) -> RelativeCommand:
    """The command in relative form, for the state it is about to be applied to.

    Commands of managers and engines name sequences and requests and no blocks, those of an index
    blocks that mean nothing but themselves: they are as they are.
    """
    if isinstance(state, SequenceModel | DictIndex | EngineModel):
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
        return as_told(state, command)
    if isinstance(state, DictIndex | EngineModel):
        return command
    if isinstance(command, Allocate) and isinstance(state, DictPool):
        for kind, amount in relative.roles:
            free = len(state.free)
            return Allocate(free + amount if kind == "beyond" else free)
        return command
    if not relative.roles:
        return command
    if all(kind == "raw" for kind, _ in relative.roles):
        return _with_ids(command, tuple(block for _, block in relative.roles))
    roles = roles_in(state)
    ids = []
    for kind, place in relative.roles:
        members = roles[kind](place)
        if members is None:
            return None
        ids.append(members)
    return _with_ids(command, tuple(ids))


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


def _with_ids(command: Command, ids: tuple[int, ...]) -> Command:
    if hasattr(command, "block_ids"):
        # The base class of commands has none of these fields; who comes here has one.
        return replace(command, block_ids=ids)  # type: ignore[call-arg]  # see above
    return replace(command, block_id=ids[0])  # type: ignore[call-arg]  # see above


def _ids(command: Command) -> tuple[int, ...]:
    ids: tuple[int, ...] | None = getattr(command, "block_ids", None)
    if ids is not None:
        return ids
    block: int | None = getattr(command, "block_id", None)
    return () if block is None else (block,)
