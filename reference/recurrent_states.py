"""What a recurrent state is, where it stands, and what may be started from it.

A layer with a recurrence keeps one *state* of a sequence, after the tokens that it has passed: no
slot for each token. The state has two parts. The temporal part sums up the whole prefix; the window
is what a convolution still needs of the last tokens. Each is a function of the whole prefix, with
its adapter, salt and images, so a state names its prefix, exactly as a slot of KV does. The state
of the empty prefix is zero.

From there, all that can go wrong follows. Each point is one rule of this file.

* **Start.** A step that computes positions from `first` on starts from one state, and it must be
  the one after exactly the positions before `first`. A longer prefix is as wrong as a shorter one:
  a state cannot be cut. For the empty prefix it is zero, and a block that held something before
  is not zero until somebody has zeroed it.
* **Leave.** A step leaves states behind: one at its own end, perhaps one at the end of each block
  on the way, and one behind each draft, if the kernel can. What it leaves in a block replaces all
  that the block held of that part, and KV, since blocks are one memory for all groups.
* **Drafts.** Of `1 + K` tokens in a row, the last K drafts, `1 + k` count once k drafts were right.
  The running state is then the one behind the k-th draft. States behind rejected drafts may stand
  anywhere, and nobody may start from them under the prefix that was not continued so. Where a step
  leaves one state only, behind all drafts, a rejection takes it away: the engine goes back to an
  earlier state and computes again what comes after it.
* **Key.** A key that says "the state after these n tokens" promises exactly that, whether n is the
  end of a block or lies inside one (where hashes are finer than blocks). A block under a key is
  written by nobody, the sequence that goes on from it included: whoever starts there leaves its
  next states elsewhere (*copy on write*, or *copy forward* into the next block). A *checkpoint* is
  a state that is kept under a key while its sequence runs on; with a *retention interval* there is
  one every so many tokens, which is a matter of fewer hits and not of right or wrong.
* **Copy.** States are copied before a step, into the block that it goes on in, and after it, once
  it is known which drafts were right, into the block whose end was reached. Copies are done in the
  order in which they are told. Of a block with several states, as a window with room for the
  drafts has them, a copy may leave out the first ones.
* **Relocation, retirement.** A block that was taken for the states behind drafts may become the
  block of a position, and the block of a state that nobody needs any more goes back. Both are
  right if every later start is.
* **Race.** All rows of a step run at once: nobody may start from a state that another request
  writes over in that step.
* **Transfers** take what a block holds when they run, states included.

Engines, and managers that are asked for copies, are judged by `StateMemory`. What a state requires
of a manager's admissions and steps is at the end of the page; where the worker of a manager keeps
states behind drafts is in `state_columns.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.state_use import PARTS, Place, StateCopy, StateUse
from poolproof.reference.content_names import Content
from poolproof.reference.sequence_model import SequenceModel, SequenceState
from poolproof.reference.shadow_memory import ShadowMemory, Writer

__all__ = [
    "ZERO",
    "HeldStates",
    "StateMemory",
    "furthest_end",
    "has_state",
    "most_scheduled",
    "states_left",
    "uses_by_table",
    "waits_for_state",
]

ZERO: Content = b"zero"
"""The state of the empty prefix, under every adapter and salt."""

HeldStates = dict[str, dict[int, tuple[Content, Writer | None]]] | None
"""What a block holds: of each part, the states by how far behind the first they come.

None stands for a block that holds zero, as all memory does at first.
"""


class StateMemory:
    """Which states stand in which blocks: those of `slots`, which hold KV and states in turn."""

    def __init__(self, slots: ShadowMemory) -> None:
        self._slots = slots
        self._held: dict[int, dict[str, dict[int, tuple[Content, Writer | None]]]] = {}

    def zero(self, block: int) -> None:
        """All that stands in a block is zero from now on."""
        self._held.pop(block, None)
        self._slots.put(block, None)

    def void(self) -> None:
        """What was written counts as nothing: there is something, and no prefix has it."""
        for block, parts in self._held.items():
            parts.clear()
            self._slots.fill(block, None, None)

    def overwrite(self, blocks: Iterable[int]) -> None:
        """KV was written into these blocks."""
        for block in blocks:
            parts = self._held.setdefault(block, {})
            if parts:
                parts.clear()

    def leave(self, block: int, part: str, states: Mapping[int, Content], writer: Writer) -> None:
        """A step leaves these states of a part, by how far behind the first they come."""
        parts = self._held.setdefault(block, {})
        parts[part] = {at: (content, writer) for at, content in states.items()}
        self._slots.fill(block, next(iter(states.values())), writer)

    def copy(self, copy: StateCopy, parts: Iterable[str]) -> None:
        """A block gets what another holds of some parts, but for the first states."""
        for part in parts:
            source = self._held.get(copy.source)
            if source is None:
                states: dict[int, tuple[Content, Writer | None]] = {0: (ZERO, None)}
            else:
                states = {
                    at - copy.skip: state
                    for at, state in source.get(part, {}).items()
                    if at >= copy.skip
                }
            self._held.setdefault(copy.into, {})[part] = states
            content, writer = states.get(0, (None, None))
            self._slots.fill(copy.into, content, writer)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Whole blocks are copied, all at once, as KV is."""
        read = [(into, self.held(source)) for source, into in pairs]
        for into, held in read:
            self.put(into, held)

    def held(self, block: int) -> HeldStates:
        """What a block holds now, to be kept elsewhere."""
        parts = self._held.get(block)
        return None if parts is None else {part: dict(states) for part, states in parts.items()}

    def put(self, block: int, held: HeldStates) -> None:
        """A block gets what was kept elsewhere."""
        if held is None:
            self._held.pop(block, None)
        else:
            self._held[block] = {part: dict(states) for part, states in held.items()}

    def found(self, place: Place, part: str) -> tuple[Content | None, Writer | None]:
        """The state at a place, and who left it there.

        Where KV, or nothing that still counts, stands in its place, what was written there last.
        """
        block, at = place
        parts = self._held.get(block)
        if parts is None:
            return ZERO, None
        if parts:
            return parts.get(part, {}).get(at, (None, None))
        return self._slots.last_written(block)


def uses_by_table(
    groups: Sequence[CacheGroup],
    block_sizes: Sequence[int],
    tables: Sequence[Sequence[int]],
    first: int,
    count: int,
    *,
    every_block: bool,
) -> tuple[StateUse, ...]:
    """What a step does with states where the tables alone say it: a use for each group of states.

    The state after a position stands in the block of that position. So a block keeps the last state
    that has passed through it, which is that of its end once it is full. A step leaves one state,
    at its own end, or with `every_block` one at the end of each block besides.
    """
    return tuple(
        _use_by_table(group, size, tables[group], first, first + count, every_block=every_block)
        for group, (kind, size) in enumerate(zip(groups, block_sizes, strict=True))
        if kind.is_state
    )


def _use_by_table(
    group: int, size: int, table: Sequence[int], first: int, end: int, *, every_block: bool
) -> StateUse:
    starts = (table[(first - 1) // size], 0) if first else None
    ends = _ends(first, end, size, every_block=every_block)
    leaves = tuple((until, (table[(until - 1) // size], 0)) for until in ends)
    return StateUse(group, starts, leaves, parts=PARTS)


def _ends(first: int, end: int, size: int, *, every_block: bool) -> list[int]:
    """Where a step from `first` to `end` leaves states: at its end, and perhaps at blocks' ends."""
    return [*range(first + size - first % size, end, size), end] if every_block else [end]


def has_state(groups: tuple[CacheGroup, ...]) -> bool:
    """Whether one of the groups holds states."""
    return any(group.is_state for group in groups)


def states_left(model: SequenceModel, sequence: SequenceState, group: int) -> list[int]:
    """After how many tokens of a sequence the step being scheduled leaves its states."""
    first, end = sequence.num_computed, sequence.num_computed + sequence.num_scheduled
    every_block = model.profile.states == "every-block"
    size = model.block_sizes[group]
    return _ends(first, end, size, every_block=every_block) if end > first else []


def waits_for_state(model: SequenceModel, sequence: SequenceState, cached: int) -> bool:
    """Whether a manager may put off a hit of `cached` tokens until the next step.

    It would start from a state that this step writes, or from which somebody goes on in it: vLLM
    counts the state at a prompt's last block end as cached anew whenever the prompt is scheduled.
    """
    if not has_state(model.groups):
        return False
    busy = [other for other in model.sequences.values() if other.num_scheduled]
    if model.profile.by_content and any(_passes_prefix(model, sequence, o) for o in busy):
        return True
    if not cached or model.profile.states != "step-end":
        return False
    return any(
        block in other.tables[group]
        for group, kind in enumerate(model.groups)
        if kind.is_state
        for entry in model.hit_entries(group, cached)
        for block in model.pool.lookup(model.key(sequence, group, entry))
        for other in busy
    )


def _passes_prefix(model: SequenceModel, sequence: SequenceState, other: SequenceState) -> bool:
    """Whether `other` starts from a state in this step, or leaves one, that `sequence` may hit.

    Where contents decide, nobody knows which of them have keys.
    """
    return any(
        0 < end < sequence.num_tokens
        and end % (model.profile.hash_tokens or model.block_sizes[group]) == 0
        and other.contents[group][end - 1] == sequence.contents[group][end - 1]
        for group, kind in enumerate(model.groups)
        if kind.is_state
        for end in (other.num_computed, *states_left(model, other, group))
    )


def most_scheduled(model: SequenceModel, sequence: SequenceState) -> int:
    """How many tokens an admission may schedule at once behind those that are cached.

    All that are left; with `hash_tokens` only up to where a state has to be left.
    """
    end = furthest_end(model, sequence) if model.profile.hash_tokens else None
    most = sequence.num_tokens if end is None else min(end, sequence.num_tokens)
    return most - sequence.num_computed


def furthest_end(model: SequenceModel, sequence: SequenceState) -> int | None:
    """The last position + 1 to which one step may compute a manager's sequence; None: any.

    If a step leaves one state, at its end (`states` is "step-end"), it may not pass the end of the
    block in which it began, or that block would keep a state in its middle under the key of its
    end. With `hash_tokens` it ends where a hit of its prompt can end inside a block, to keep that.
    """
    if model.profile.states != "step-end" or not has_state(model.groups):
        return None
    end = sequence.num_computed + sequence.num_scheduled
    size = max(s for s, kind in zip(model.block_sizes, model.groups) if kind.is_state)
    ends = [-(-end // size) * size] if sequence.num_scheduled or end % size else []
    kept = model.last_boundary(sequence)
    if sequence.num_computed < kept:
        ends.append(kept)
    return min(ends, default=None)
