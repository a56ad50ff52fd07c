"""What vLLM does with recurrent states in a step, as far as the watch can know it.

The tables that the workers are told, and vLLM's own rules for its cache modes none and align
(`vllm.v1.worker.mamba_utils`), say from which block a row starts and in which it leaves a state.
Without drafts that is all. With drafts it also depends on which rows the worker takes for
speculative ones, and on what it copies before: that is known where the worker runs in the
scheduler's process and tells it (`vllm_watch_worker.py`). Elsewhere only hits are judged, and the
states at the ends of blocks are taken to be those that vLLM's rules leave there; of all other
blocks that a row with drafts may have written nothing is known.

Left out, and named: the mode all and checkpoints inside a prompt's chunk, which kernels write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.state_use import PARTS, Place, StateCopy, StateUse
from poolproof.watch.live_memory import KnownRequest

__all__ = ["RowStep", "StateRules", "WorkerRow", "add_recurrent_groups"]

_TEMPORAL, _WINDOW = PARTS
_NULL = 0


def add_recurrent_groups(
    config: Any,
    groups: list[CacheGroup | None],
    rows: list[dict[str, Any]],
    left_out: list[str],
    *,
    why_not: str = "",
) -> StateRules | None:
    """Watch the groups of recurrent states as well, which were left out; None where there is none.

    `why_not` leaves them out all the same. A group is known by its exact class: a subclass has
    rules of its own.
    """
    specs: dict[int, Any] = {}
    for number, group in enumerate(config.kv_cache_groups):
        kinds = list(getattr(group.kv_cache_spec, "kv_cache_specs", {}).values())
        spec = kinds[0] if kinds else group.kv_cache_spec
        sentence = f"group {number} (MambaSpec)"
        if sentence not in left_out:
            continue
        problem = why_not or _problem(spec)
        if problem:
            left_out[left_out.index(sentence)] = f"group {number} (MambaSpec, {problem})"
            continue
        left_out.remove(sentence)
        specs[number] = spec
        groups[number] = CacheGroup("state", int(spec.block_size))
        rows[number]["kind"] = "state"
    return StateRules(specs) if specs else None


def _problem(spec: Any) -> str:
    """Why a group of recurrent states cannot be watched; nothing where it can."""
    mode = getattr(spec, "mamba_cache_mode", None)
    if mode not in {"none", "align"}:
        return f"cache mode {mode}"
    if getattr(spec, "num_prefill_checkpoint_blocks", 0):
        return "checkpoints inside a prompt's chunk"
    return ""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """What the worker's own bookkeeping says of a request in a step.

    Speculative rows start from the state behind the last accepted draft. In mode align the worker
    goes on in `column` of its table, and copies the state `skip` tokens behind the one in column
    `source` there before, where that is another one; None where it had none before. `accepted` is
    the number that the kernels are given.
    """

    is_speculative: bool
    column: int = 0
    source: int | None = None
    skip: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class RowStep:
    """What a step computes of a request: how much, how much of it drafts, how many it has got.

    `worker` is None where the worker told nothing. `is_new`: a whole table came for it.
    """

    count: int
    num_drafts: int
    num_sampled: int
    is_new: bool
    worker: WorkerRow | None


@dataclass(frozen=True, slots=True)
class _Group:
    number: int
    size: int
    is_align: bool
    num_drafts: int


class StateRules:
    """The states of one scheduler's requests. `specs` are the watched groups', by number."""

    def __init__(self, specs: dict[int, Any]) -> None:
        self._groups = [
            _Group(
                number,
                int(spec.block_size),
                spec.mamba_cache_mode == "align",
                int(getattr(spec, "num_speculative_blocks", 0)),
            )
            for number, spec in specs.items()
        ]
        self.has_drafts = any(group.num_drafts for group in self._groups)
        # Where a request's state is: the column it stands in, and how many tokens behind it.
        self._columns: dict[tuple[str, int], int] = {}
        self._accepted: dict[tuple[str, int], int] = {}

    def forget(self, request_id: str) -> None:
        """The workers drop a request."""
        for group in self._groups:
            self._columns.pop((request_id, group.number), None)
            self._accepted.pop((request_id, group.number), None)

    def uses(self, known: KnownRequest, step: RowStep) -> tuple[list[StateUse], list[int], bool]:
        """What a row does with states, and the blocks of which nothing is known after it.

        The last says whether anything is known of where it starts.
        """
        if step.is_new:
            self.forget(known.request_id)
        uses: list[StateUse] = []
        unknown: list[int] = []
        is_read = True
        for group in self._groups:
            found, blocks, is_known = self._of_group(known, group, step)
            uses += found
            unknown += blocks
            is_read = is_read and is_known
        return uses, unknown, is_read

    def _of_group(
        self, known: KnownRequest, group: _Group, step: RowStep
    ) -> tuple[list[StateUse], list[int], bool]:
        try:
            if not group.num_drafts or step.worker is not None:
                return self._row(known, group, step), [], True
            found, blocks = self._hits_alone(known, group, step)
        except IndexError:
            # The worker reads behind the table, where nobody knows what stands.
            return [], [b for b in known.tables[group.number] if b != _NULL], False
        return found, blocks, step.is_new and known.first > 0 and group.is_align

    # One row, all of it known.

    def _row(self, known: KnownRequest, group: _Group, step: RowStep) -> list[StateUse]:
        worker, key = step.worker, (known.request_id, group.number)
        accepted = self._accepted.get(key, 1)
        source, column = self._columns_of(known, group, step)
        table = known.tables[group.number]
        before: dict[str, tuple[StateCopy, ...]] = {}
        if source != column and source >= 0:
            skip = accepted - 1 if worker is None else worker.skip
            before = _copies(table, source, column, skip)
            accepted = 1
        if worker is not None and worker.accepted:
            accepted = worker.accepted
        row = table[column : column + 1 + group.num_drafts]
        if worker is not None and worker.is_speculative:
            starts, leaves = _speculative(row, accepted, known.first, step.count)
        else:
            starts, leaves = _plain(row, known.first, step.count)
        after = self._after(known, group, step, column)
        ways = [
            (starts[place], leaves[place], before.get(part, ()), after.get(part, ()))
            for place, part in enumerate(PARTS)
        ]
        if ways[0] == ways[1]:
            return [StateUse(group.number, *ways[0])]
        return [StateUse(group.number, *way, (part,)) for part, way in zip(PARTS, ways)]

    def _columns_of(self, known: KnownRequest, group: _Group, step: RowStep) -> tuple[int, int]:
        """Where its state stands, -1 if it has none, and where the row goes on."""
        if not group.is_align:
            return 0, 0
        worker, first = step.worker, known.first
        source = self._columns.get((known.request_id, group.number))
        if worker is not None and worker.source is not None and not step.is_new:
            source = worker.source
        if source is None:
            source = (first - 1) // group.size
        column = -(-(first + step.count) // group.size) - 1
        if worker is not None:
            column = worker.column
        return source, column

    def _after(
        self, known: KnownRequest, group: _Group, step: RowStep, column: int
    ) -> dict[str, tuple[StateCopy, ...]]:
        """`postprocess_mamba`: the end of a block that was passed is copied into that block."""
        key, got = (known.request_id, group.number), max(1, step.num_sampled)
        self._columns[key], self._accepted[key] = column, got
        if not group.is_align or not group.num_drafts:
            return {}
        running = known.first + step.count - step.num_drafts
        end = (running + got - 1) // group.size * group.size
        if end < running:
            return {}
        skip, into = end - running, end // group.size - 1
        if into == column:
            self._accepted[key] = 1
            if not skip:
                return {}
        return _copies(known.tables[group.number], column, into, skip)

    # A row with drafts of which the worker tells nothing.

    def _hits_alone(
        self, known: KnownRequest, group: _Group, step: RowStep
    ) -> tuple[list[StateUse], list[int]]:
        table, first = known.tables[group.number], known.first
        if not group.is_align:
            return [], [block for block in table if block != _NULL]
        starts = table[(first - 1) // group.size] if step.is_new and first else None
        column = -(-(first + step.count) // group.size) - 1
        unknown = [b for b in table[column : column + 1 + group.num_drafts] if b != _NULL]
        running = first + step.count - step.num_drafts
        end = (running + max(1, step.num_sampled) - 1) // group.size * group.size
        leaves: tuple[tuple[int, Place], ...] = ()
        if end >= running:
            block = table[end // group.size - 1]
            leaves = ((end, (block, 0)),) if block != _NULL else ()
        return [StateUse(group.number, None if starts is None else (starts, 0), leaves)], unknown


def _copies(
    table: Sequence[int], source: int, into: int, skip: int
) -> dict[str, tuple[StateCopy, ...]]:
    """`_copy_mamba_state_block`: an accepted state stands in a column of its own, a window not."""
    if min(source, into, skip) < 0:
        raise IndexError
    return {
        _TEMPORAL: (StateCopy(table[source + skip], table[into]),),
        _WINDOW: (StateCopy(table[source], table[into], skip),),
    }


_Row = tuple[tuple[Place | None, Place | None], tuple[tuple[tuple[int, Place], ...], ...]]


def _plain(row: Sequence[int], first: int, count: int) -> _Row:
    """It goes on in its first column, and leaves one state there."""
    starts = (row[0], 0) if first else None
    leaves = ((first + count, (row[0], 0)),) if row[0] != _NULL else ()
    return (starts, starts), (leaves, leaves)


def _speculative(row: Sequence[int], accepted: int, first: int, count: int) -> _Row:
    """It leaves a state behind each of its tokens, in columns, and one window for all of them."""
    starts = (row[accepted - 1], 0), (row[0], accepted - 1)
    states = tuple((first + at + 1, (b, 0)) for at, b in enumerate(row[:count]) if b != _NULL)
    windows = tuple((first + at + 1, (row[0], at)) for at in range(count))
    return starts, (states, windows if row[0] != _NULL else ())
