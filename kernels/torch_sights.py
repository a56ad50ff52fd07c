"""Faults in who sees which key: chunks, windows that look ahead, masks, trees of drafts, crossing.

Each is `TorchAttention` with one mistake, over all keys of its sequence, so that it can see what is
in front of its window as well. A mistake acts where a case asks for what it is about, and nowhere
else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import SIGHT_KEYWORDS, PagedBatch, SequenceRows
from poolproof.kernels.declaration import FEATURES
from poolproof.kernels.fault_family import FaultFamily, Member, sized
from poolproof.kernels.target import KernelTarget
from poolproof.kernels.torch_attention import Rows, TorchAttention

__all__ = ["SIGHT_FAMILIES"]

Begin = Callable[[Rows, Tensor, int], Tensor]
"""The first key of each query's chunk, of the queries' positions (queries, 1) and the chunk."""

Sides = Callable[[int, int | None], tuple[int | None, int | None]]
"""How far a query sees ahead, and how many positions with what is behind it; None: all."""

Change = Callable[[Rows, Tensor], Tensor]
"""Which query sees which key, (queries, keys), of what is right."""


class _Sighted(TorchAttention):
    """A kernel with one of the ways to see."""

    sight = ""

    def target(self, name: str, **declared: Any) -> KernelTarget:
        """This kernel as a target with all other features, too."""
        return super().target(name, **{"features": (*FEATURES, self.sight), **declared})

    def rows(self, batch: PagedBatch, sequence: SequenceRows) -> Rows:
        rows = super().rows(batch, sequence)
        return replace(rows, positions=torch.arange(self.end(batch, sequence)))

    def is_asked(self, rows: Rows) -> bool:
        """Whether a case is about this way to see."""
        if self.sight == "cross":
            return rows.sequence.query_length > rows.sequence.kv_length
        return getattr(rows.batch.options, SIGHT_KEYWORDS[self.sight]) is not None

    def seen(self, rows: Rows) -> Tensor:
        right = super().seen(rows)
        return self.changed(rows, right) if self.is_asked(rows) else right

    def changed(self, rows: Rows, right: Tensor) -> Tensor:  # noqa: ARG002 -- faults look at it
        """What is seen instead."""
        return right


class _Seen(_Sighted):
    """Another answer to who sees what: `change` makes it of the right one."""

    def __init__(self, sight: str, change: Change) -> None:
        self.sight, self.change = sight, change

    def changed(self, rows: Rows, right: Tensor) -> Tensor:
        return self.change(rows, right)


class _Chunks(_Sighted):
    """A chunk that begins elsewhere."""

    sight = "chunked"

    def __init__(self, begin: Begin) -> None:
        self.begin = begin

    def changed(self, rows: Rows, right: Tensor) -> Tensor:
        keys, queries = rows.positions[None, :], rows.query_positions[:, None]
        chunk = rows.batch.options.attention_chunk
        assert chunk is not None, right.shape
        # A query sees itself whatever happens.
        begin = torch.minimum(self.begin(rows, queries, chunk), queries)
        return (keys <= queries) & (keys >= begin)


class _Sides(_Sighted):
    """A window whose sides are others."""

    sight = "window_ahead"

    def __init__(self, sides: Sides) -> None:
        self.sides = sides

    def changed(self, rows: Rows, right: Tensor) -> Tensor:
        options = rows.batch.options
        assert options.window_ahead is not None, right.shape
        ahead, window = self.sides(options.window_ahead, options.sliding_window)
        distance = rows.positions[None, :] - rows.query_positions[:, None]
        seen = torch.ones_like(right)
        seen = seen if ahead is None else seen & (distance <= ahead)
        return seen if window is None else seen & (distance > -window)


class _MaskRows(_Sighted):
    """Rows of the mask are taken for those of others."""

    sight = "mask"

    def __init__(self, row: Callable[[Rows, Tensor], Tensor]) -> None:
        self.row = row

    def mask_rows(self, rows: Rows) -> Tensor:
        right = super().mask_rows(rows)
        return self.row(rows, right).clamp(0, len(rows.batch.query) - 1)


class _MaskStrides(_Sighted):
    """Rows of the mask are taken to be so far apart."""

    sight = "mask"

    def __init__(self, stride: Callable[[Rows, Tensor], int]) -> None:
        self.stride = stride

    def mask(self, rows: Rows) -> Tensor | None:
        mask = rows.batch.options.mask
        if mask is None:
            return None
        memory = mask.as_strided((mask.untyped_storage().nbytes(),), (1,), 0)
        begins = mask.storage_offset() + self.mask_rows(rows) * self.stride(rows, mask)
        # What lies behind the mask would end the process.
        return memory[(begins[:, None] + rows.positions).clamp(max=len(memory) - 1)]


class _MaskColumns(_Sighted):
    """Columns of the mask are taken for those of other keys."""

    sight = "mask"

    def __init__(self, column: Callable[[Rows, Tensor], Tensor]) -> None:
        self.column = column

    def mask(self, rows: Rows) -> Tensor | None:
        mask = rows.batch.options.mask
        if mask is None:
            return None
        columns = self.column(rows, rows.positions.expand(len(rows.query_positions), -1))
        return mask[self.mask_rows(rows)].gather(1, columns % mask.shape[1])


class _Empty(_Sighted):
    """What a query gets that sees no key: `output` of all values, (num_kv_heads, keys, size)."""

    sight = "mask"

    def __init__(self, output: Callable[[Tensor], Tensor]) -> None:
        self.output = output

    def attend(self, rows: Rows) -> Tensor:
        right = super().attend(rows).clone()
        blind = ~self.seen(rows).any(1)
        if self.is_asked(rows) and bool(blind.any()):
            instead = self.output(self.values(rows)).repeat_interleave(rows.query.shape[1], 0)
            right[:, blind] = instead[:, None]
        return right


class _Loaded(_Sighted):
    """What is out of sight is loaded and masked badly: in the scores, or by weights of 0."""

    def __init__(self, sight: str, scores: Callable[[Tensor, Tensor], Tensor] | None = None,
                 *, from_key: int = 0) -> None:  # fmt: skip
        self.sight, self.step, self.from_key = sight, scores, from_key

    def masked(self, rows: Rows, scores: Tensor) -> Tensor:
        if self.step is None or not self.is_asked(rows):
            return super().masked(rows, scores)
        return self.step(scores, self.seen(rows))

    def kept_values(self, rows: Rows) -> Tensor:
        values = self.values(rows)
        if not self.is_asked(rows):
            return super().kept_values(rows)
        hidden = ~self.seen(rows).any(0)
        if self.step is None:
            hidden &= rows.positions < self.from_key
        return values.masked_fill(hidden[None, :, None], 0.0)


class _LateRows(_Sighted):
    """Queries from number `most` on are not computed where there are more of them than keys."""

    sight = "cross"

    def __init__(self, most: int) -> None:
        self.most = most

    def attend(self, rows: Rows) -> Tensor:
        right = super().attend(rows).clone()
        if self.is_asked(rows):
            right[:, self.most :] = 0
        return right


def _chunk_of(queries: Tensor, chunk: int) -> Tensor:
    return queries // chunk * chunk


def _first_query(rows: Rows) -> int:
    return rows.sequence.first_position


def _chunks(begin: Begin) -> Callable[[], _Chunks]:
    return lambda: _Chunks(begin)


def _chunk_until(most: int) -> _Chunks:
    return _Chunks(lambda _, q, chunk: torch.where(q >= most, 0, _chunk_of(q, chunk)))


def _chunk_of_most(most: int) -> _Chunks:
    return _Chunks(lambda _, q, chunk: _chunk_of(q, min(chunk, most)))


def _chunk_by_tile(tile: int) -> _Chunks:
    def begin(rows: Rows, queries: Tensor, chunk: int) -> Tensor:
        numbers = queries - _first_query(rows)
        return _chunk_of(numbers // tile * tile + _first_query(rows), chunk)

    return _Chunks(begin)


def _sides(sides: Sides) -> Callable[[], _Sides]:
    return lambda: _Sides(sides)


def _ahead_of_most(most: int) -> _Sides:
    return _Sides(lambda ahead, window: (min(ahead, most), window))


def _ahead(change: Change) -> _Seen:
    return _Seen("window_ahead", change)


def _numbers(rows: Rows) -> Tensor:
    """The number of each query in its sequence: (queries, 1)."""
    return (rows.query_positions - _first_query(rows))[:, None]


def _is_ahead(rows: Rows) -> Tensor:
    return rows.positions[None, :] > rows.query_positions[:, None]


def _without_last_tile(tile: int) -> _Seen:
    def change(rows: Rows, right: Tensor) -> Tensor:
        last = (rows.sequence.query_length - 1) // tile * tile
        return right | (_is_ahead(rows) & (_numbers(rows) >= last))

    return _ahead(change)


def _within_tile(tile: int) -> _Seen:
    def change(rows: Rows, right: Tensor) -> Tensor:
        end = _first_query(rows) + (_numbers(rows) // tile + 1) * tile
        return right & (rows.positions[None, :] < end)

    return _ahead(change)


def _ahead_before_key(most: int) -> _Seen:
    return _ahead(lambda rows, right: right | (_is_ahead(rows) & (rows.positions >= most)))


def _masks(change: Change) -> Callable[[], _Seen]:
    return lambda: _Seen("mask", change)


def _all_from_key(most: int) -> _Seen:
    return _Seen("mask", lambda rows, right: right | (rows.positions >= most))


def _none_from_key(most: int) -> _Seen:
    # The first keys are what is left of a row that saw nothing else.
    return _Seen("mask", lambda rows, right: right & (rows.positions < most))


def _first_row_from(most: int) -> _MaskRows:
    return _MaskRows(
        lambda rows, right: torch.where(
            right - rows.sequence.first_row < most, right, rows.sequence.first_row
        )
    )


def _causal(rows: Rows) -> Tensor:
    return rows.positions[None, :] <= rows.query_positions[:, None]


def _bits_from_end(_: Rows, columns: Tensor) -> Tensor:
    return columns // 8 * 8 + 7 - columns % 8


def _trees(change: Callable[[Tensor], Tensor]) -> Callable[[], _Seen]:
    """A fault among the drafts: `change` of who descends from whom, (drafts, drafts)."""

    def step(rows: Rows, right: Tensor) -> Tensor:
        wrong, context = right.clone(), _first_query(rows)
        wrong[:, context:] = change(right[:, context:])
        return wrong

    return lambda: _Seen("tree_mask", step)


def _depths(own: Tensor) -> Tensor:
    """How many ancestors each draft has, itself included: (drafts,)."""
    return own.sum(1)


def _generations(own: Tensor) -> Tensor:
    """How many generations lie between a draft and each of its ancestors."""
    return _depths(own)[:, None] - _depths(own)[None, :]


def _young_ancestors(most: int) -> _Seen:
    return _trees(lambda own: own & (_generations(own) < most))()


def _parents(own: Tensor) -> Tensor:
    """Who is the parent of whom: (drafts, drafts)."""
    return own & (_generations(own) == 1)


def _siblings(own: Tensor) -> Tensor:
    parents = _parents(own).float()
    return (parents @ parents.T > 0) | own


def _contexts(change: Callable[[Rows, Tensor, int], Tensor]) -> Callable[[], _Seen]:
    """A fault in front of the drafts: where `change` of positions and context is True, no key."""

    def step(rows: Rows, right: Tensor) -> Tensor:
        context = _first_query(rows)
        hidden = change(rows, rows.positions, context) & (rows.positions < context)
        return right & ~hidden[None, :]

    return lambda: _Seen("tree_mask", step)


def _short_context(most: int) -> _Seen:
    return _contexts(lambda _, keys, __: keys >= most)()


def _crosses(change: Change) -> Callable[[], _Seen]:
    return lambda: _Seen("cross", change)


def _beyond(rows: Rows) -> Tensor:
    """Which queries have a number that no key has: (queries, 1)."""
    return _numbers(rows) >= rows.sequence.kv_length


def _late_keys(most: int) -> _Seen:
    return _Seen("cross", lambda rows, right: right & (rows.positions < most))


def _loaded(sight: str) -> tuple[Member, ...]:
    """The ways in which what is out of sight spoils an output though no weight is given to it."""
    infinity = float("inf")
    return (
        ("its values get weights of 0", lambda: _Loaded(sight)),
        ("values from key 1 on get weights of 0", lambda: _Loaded(sight, from_key=1)),
        ("10,000 is taken from its scores", lambda: _Loaded(
            sight, lambda scores, seen: scores - 10_000.0 * ~seen)),
        ("infinity is taken from its scores", lambda: _Loaded(
            sight, lambda scores, seen: scores - torch.where(seen, 0.0, infinity))),
        ("its scores are multiplied by 0 first", lambda: _Loaded(
            sight, lambda scores, seen: (scores * seen).masked_fill(
                ~seen & ~scores.isnan(), -infinity))),
    )  # fmt: skip


SIGHT_FAMILIES = (
    FaultFamily("TC", "a chunk is counted from {}", (
        ("the first query", _chunks(lambda rows, q, chunk: _first_query(rows) + _chunk_of(
            q - _first_query(rows), chunk))),
        ("the last key", _chunks(lambda rows, q, chunk: rows.sequence.kv_length + _chunk_of(
            q - rows.sequence.kv_length, chunk))),
        ("the query itself, as a window", _chunks(lambda _, q, chunk: q - chunk + 1)),
        ("position 1", _chunks(lambda _, q, chunk: _chunk_of(q - 1, chunk) + 1)),
        ("the second block", _chunks(lambda rows, q, chunk: rows.batch.block_size + _chunk_of(
            q - rows.batch.block_size, chunk))),
    )),
    FaultFamily("TE", "a chunk's edge {}", (
        ("comes one key late", _chunks(lambda _, q, chunk: _chunk_of(q, chunk) + 1)),
        ("comes one key early", _chunks(lambda _, q, chunk: _chunk_of(q, chunk) - 1)),
        ("is that of its block", _chunks(lambda rows, q, chunk: _chunk_of(
            _chunk_of(q, chunk), rows.batch.block_size))),
        ("is that of the next block", _chunks(lambda rows, q, chunk: -_chunk_of(
            -_chunk_of(q, chunk), rows.batch.block_size))),
        ("belongs to the chunk before", _chunks(lambda _, q, chunk: _chunk_of(
            (q - 1).clamp(min=0), chunk))),
    )),
    FaultFamily("TI", "chunks are ignored from position {} on",
                sized(_chunk_until, 64, 200, 500, 1000)),
    FaultFamily("TN", "a chunk has {} keys at most", sized(_chunk_of_most, 16, 32, 64, 128)),
    FaultFamily("TT", "the chunk of a tile of {} queries is that of its first",
                sized(_chunk_by_tile, 4, 16, 64, 100)),
    FaultFamily("TL", "what is in front of a chunk is loaded, and {}", _loaded("chunked"),
                ("behind the window",)),
    FaultFamily("TA", "the window ahead {}", (
        ("is one key too long", _sides(lambda ahead, window: (ahead + 1, window))),
        ("is one key too short", _sides(lambda ahead, window: (max(0, ahead - 1), window))),
        ("is ignored", _sides(lambda _, window: (None, window))),
        ("is taken to be 0", _sides(lambda _, window: (0, window))),
        ("is that at the back", _sides(
            lambda ahead, window: (ahead if window is None else window - 1, window))),
        ("is exchanged with that at the back", _sides(
            lambda ahead, window: (None if window is None else window - 1, ahead + 1))),
    )),
    FaultFamily("TB", "the window ahead has {} keys at most", sized(_ahead_of_most, 2, 8, 16, 64)),
    FaultFamily("TD", "the window ahead is ignored in the last tile of {} queries",
                sized(_without_last_tile, 8, 16, 32, 64)),
    FaultFamily("TF", "keys behind a query's tile of {} queries are not seen",
                sized(_within_tile, 4, 16, 32, 64)),
    FaultFamily("TG", "the window ahead is ignored from key {} on",
                sized(_ahead_before_key, 16, 64, 128, 200)),
    FaultFamily("TH", "beside a window ahead that at the back {}", (
        ("is one key too long", _sides(
            lambda ahead, window: (ahead, window and window + 1))),
        ("is one key too short", _sides(
            lambda ahead, window: (ahead, window and max(1, window - 1)))),
        ("is ignored", _sides(lambda ahead, _: (ahead, None))),
        ("is that ahead", _sides(lambda ahead, _: (ahead, ahead + 1))),
        ("counts from the last key ahead", _sides(
            lambda ahead, window: (ahead, window and max(1, window - ahead)))),
    )),
    FaultFamily("TM", "the row of a mask is that of {}", (
        ("the query before", lambda: _MaskRows(lambda _, row: row - 1)),
        ("the next query", lambda: _MaskRows(lambda _, row: row + 1)),
        ("the first query of its sequence", lambda: _MaskRows(
            lambda rows, row: torch.full_like(row, rows.sequence.first_row))),
        ("the same number in the first sequence", lambda: _MaskRows(
            lambda rows, row: row - rows.sequence.first_row)),
        ("the same number from the last", lambda: _MaskRows(
            lambda rows, row: row.flip(0) if rows.sequence.kv_length else row)),
        ("its sequence's number", lambda: _MaskRows(
            lambda rows, row: torch.full_like(row, rows.sequence.index))),
    )),
    FaultFamily("TO", "rows of a mask are taken to be {} apart", (
        ("the longest kv length", lambda: _MaskStrides(
            lambda rows, _: int(rows.batch.kv_lengths.max()))),
        ("the sequence's kv length", lambda: _MaskStrides(
            lambda rows, _: rows.sequence.kv_length)),
        ("its columns", lambda: _MaskStrides(lambda _, mask: mask.shape[1])),
        ("the slots of a row of the table", lambda: _MaskStrides(
            lambda rows, _: rows.batch.block_tables.shape[1] * rows.batch.block_size)),
        ("the next multiple of 8", lambda: _MaskStrides(
            lambda _, mask: -(-mask.shape[1] // 8) * 8)),
    )),
    FaultFamily("TP", "a mask is shifted by {}", (
        ("one key", lambda: _MaskColumns(lambda _, columns: columns + 1)),
        ("one key to the other side", lambda: _MaskColumns(lambda _, columns: columns - 1)),
        ("a block", lambda: _MaskColumns(
            lambda rows, columns: columns + rows.batch.block_size)),
        ("the keys in front of the queries", lambda: _MaskColumns(
            lambda rows, columns: columns - max(0, _first_query(rows)))),
        ("the query's number", lambda: _MaskColumns(
            lambda rows, columns: columns + _numbers(rows))),
        ("bits from the other end of a byte", lambda: _MaskColumns(_bits_from_end)),
    )),
    FaultFamily("TR", "a mask is ignored from key {} on", sized(_all_from_key, 8, 32, 128, 600)),
    FaultFamily("TS", "a mask hides all keys from number {} on",
                sized(_none_from_key, 8, 32, 128, 600)),
    FaultFamily("TU", "rows of a mask from query {} on are the first",
                sized(_first_row_from, 2, 16, 64, 100)),
    FaultFamily("TX", "a mask {}", (
        ("is turned round", _masks(lambda _, right: ~right)),
        ("hides what a causal mask hides, too", _masks(
            lambda rows, right: right & _causal(rows))),
        ("shows what a causal mask shows, too", _masks(
            lambda rows, right: right | _causal(rows))),
        ("is not looked at", _masks(lambda _, right: torch.ones_like(right))),
        ("is not looked at, but a causal one is", _masks(lambda rows, _: _causal(rows))),
        ("is one for all queries", _masks(
            lambda _, right: right.any(0).expand_as(right))),
    )),
    FaultFamily("TQ", "a query that sees nothing by its mask gets {}", (
        ("the mean of all values", lambda: _Empty(lambda values: values.mean(1))),
        ("the first value", lambda: _Empty(lambda values: values[:, 0])),
        ("the last value", lambda: _Empty(lambda values: values[:, -1])),
        ("NaN", lambda: _Empty(lambda values: values[:, 0] * float("nan"))),
    ), ("empty rows",)),
    FaultFamily("TK", "what a mask hides is loaded, and {}", _loaded("mask"), ("masked keys",)),
    FaultFamily("TY", "ancestors {} generations up and more are not seen",
                sized(_young_ancestors, 1, 2, 4, 8, 16)),
    FaultFamily("TZ", "of a tree of drafts {}", (
        ("siblings are seen", _trees(_siblings)),
        ("drafts of the same depth are seen", _trees(
            lambda own: own | (_generations(own) == 0))),
        ("descendants are seen", _trees(lambda own: own | own.T)),
        ("all earlier drafts are seen", _trees(
            lambda own: torch.ones_like(own).tril())),
        ("the parent is not seen", _trees(lambda own: own & ~_parents(own))),
        ("the draft itself is not seen", _trees(
            lambda own: own & (_generations(own) != 0) | (_depths(own) == 1)[:, None] & own)),
        ("the root is not seen", _trees(
            lambda own: own & (_depths(own) != 1) | torch.eye(len(own), dtype=torch.bool))),
        ("the parent is taken to be the draft before", _trees(
            lambda own: own | torch.eye(len(own)).roll(-1, 1).bool().tril())),
    )),
    FaultFamily("TV", "of what is cached in front of a tree of drafts {}", (
        ("nothing is seen", _contexts(lambda _, keys, __: keys >= 0)),
        ("the first key is not seen", _contexts(lambda _, keys, __: keys == 0)),
        ("the last key is not seen", _contexts(lambda _, keys, context: keys == context - 1)),
        ("the block that it shares with drafts is not seen", _contexts(
            lambda rows, keys, context: keys >= _chunk_of(
                torch.tensor(context), rows.batch.block_size))),
        ("as many keys as there are drafts are seen", _contexts(
            lambda rows, keys, _: keys >= rows.sequence.query_length)),
    )),
    FaultFamily("TW", "of what is cached in front of a tree of drafts {} keys are seen",
                sized(_short_context, 16, 64, 512, 1024, 2000)),
    FaultFamily("TJ", "across, {}", (
        ("a causal mask counts from the first key", _crosses(
            lambda rows, right: right & (rows.positions <= _numbers(rows)))),
        ("a causal mask counts to the last key", _crosses(
            lambda rows, right: right & _causal(rows))),
        ("queries without a key of their number see none", _crosses(
            lambda rows, right: right & ~_beyond(rows))),
        ("queries without a key of their number see the last alone", _crosses(
            lambda rows, right: right & (
                ~_beyond(rows) | (rows.positions == rows.sequence.kv_length - 1)))),
        ("queries without a key of their number see the first alone", _crosses(
            lambda rows, right: right & (~_beyond(rows) | (rows.positions == 0)))),
        ("the last key is not seen", _crosses(
            lambda rows, right: right & (
                (rows.positions < rows.sequence.kv_length - 1) | (rows.positions == 0)))),
    )),
    FaultFamily("TCQ", "of more queries than keys those from number {} on are not computed",
                sized(_LateRows, 16, 64, 128, 256)),
    FaultFamily("TCK", "more queries than keys see {} keys at most",
                sized(_late_keys, 8, 16, 32, 64)),
)  # fmt: skip
"""The mistakes; a quick run refuses each."""
