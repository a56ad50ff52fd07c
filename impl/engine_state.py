"""What an engine is in, as plain values: two engines with equal states do the same from now on.

It is for whoever visits states one by one. What only numbers things is left out (how many requests
came, how many steps were planned): what is compared with such a number is told as the distance to
it. Names are told as pairs ("block", 3), ("request", 0), ("place", 7) and ("transfer", 2), so that
they may be replaced by others. A subclass that keeps more than its base is told with all that it
keeps, and without pairs, because in there a number may be the name of anything.

A subclass that does something else in every third step, or for odd requests, has to say so itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from poolproof.impl.running_states import RunningStates

if TYPE_CHECKING:
    from poolproof.impl.encoder_cache import EncoderCache
    from poolproof.impl.engine import Engine, LiveRequest, StepPart
    from poolproof.impl.offloading import Kept, Move, Offloader

_ENGINE = frozenset({
    "policy", "max_batch_tokens", "max_running", "draft_tokens", "manager", "max_request_tokens",
    "max_adapters", "encoder_cache", "reset_preempts", "offloader", "_hasher", "_requests",
    "_waiting", "_running", "_loading", "_steps", "_num_submitted", "_num_planned",
    "states_in_between", "_state_groups", "_attention", "rank_notices",
})  # fmt: skip
_OFFLOADER = frozenset({
    "block_size", "_pool", "_free_places", "_index", "_waiting", "_under_way", "_num_moves",
})  # fmt: skip
_NOTICES = frozenset({"num_ranks", "_missing", "_failed"})
_ENCODER = frozenset({
    "capacity", "max_per_step", "_sizes", "_users", "_encodes", "_forgets", "_num_encoded",
})  # fmt: skip

_NAMES_OF_REQUESTS = frozenset({"request_id", "number", "rank", "_hasher", "_hashes", "states"})

Name = Callable[[int], Any]


def state_of(engine: Engine) -> Any:
    """Nested tuples of plain values; None where something is kept that is none."""
    try:
        return _State(engine).told()
    except TypeError:
        return None


class _State:
    """One telling of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        offloader = engine.offloader
        self._extras = _beyond(engine, _ENGINE)
        self._host_extras = {} if offloader is None else _beyond(offloader, _OFFLOADER)
        encoder = engine.encoder_cache
        self._encoder_extras = {} if encoder is None else _beyond(encoder, _ENCODER)
        self._notice_extras = _beyond(engine.rank_notices, _NOTICES)
        is_marked = not (
            self._extras or self._host_extras or self._encoder_extras or self._notice_extras
        )
        is_marked &= engine.running_states_class is RunningStates
        # A transfer of one of several ranks has a number that no move has.
        is_marked &= engine.rank_notices.num_ranks == 1

        def name(kind: str) -> Name:
            return (lambda number: (kind, number)) if is_marked else int

        self._block, self._request = name("block"), name("request")
        self._place, self._transfer = name("place"), name("transfer")
        self._everybody = self._reached()
        self._ids = {id(request) for request in self._everybody}
        self._order = {request.number: place for place, request in enumerate(self._everybody)}

    def told(self) -> Any:
        engine = self._engine
        return (
            (engine.max_running, engine.max_batch_tokens, engine.draft_tokens, engine.max_adapters),
            tuple(map(self._of_request, self._everybody)),
            self._numbers(engine._running),
            self._numbers(engine._waiting),
            self._numbers(engine._requests.values()),
            tuple((self._transfer(n), self._request(r.number)) for n, r in engine._loading.items()),
            tuple(
                (step.number - engine._num_planned, tuple(map(self._of_part, step.parts)))
                for step in engine._steps
            ),
            self._of_tables(),
            () if engine.offloader is None else self._of_host(engine.offloader),
            () if engine.encoder_cache is None else self._of_encoder(engine.encoder_cache),
            self._of_pool(),
            tuple((key, self._plain(value)) for key, value in sorted(self._extras.items())),
            tuple(
                (key, self._plain(value))
                for extras in (self._host_extras, self._notice_extras)
                for key, value in sorted(extras.items())
            ),
        )

    def _reached(self) -> list[LiveRequest]:
        """Every request that something refers to, in the order of their ranks within a priority."""
        engine = self._engine
        known = [*engine._requests.values(), *engine._running, *engine._waiting]
        known += engine._loading.values()
        known += [part.request for step in engine._steps for part in step.parts]
        return sorted({id(r): r for r in known}.values(), key=lambda r: (r.rank[1], r.number))

    def _numbers(self, requests: Iterable[LiveRequest]) -> Any:
        return tuple(self._request(request.number) for request in requests)

    def _of_request(self, request: LiveRequest) -> Any:
        rest = [
            self._plain(value)
            for key, value in vars(request).items()
            if key not in _NAMES_OF_REQUESTS
        ]
        return (
            self._request(request.number),
            request.rank[0],
            len(request._hashes),
            self._of_states(request.states),
            tuple(rest),
        )

    def _of_states(self, states: RunningStates) -> Any:
        """Recurrent states that the next step may start from."""
        if type(states) is not RunningStates:
            return self._plain(states)
        at = states.num_computed
        return at, tuple(self._block(p[at]) if at in p else None for p in states.places)

    def _of_part(self, part: StepPart) -> Any:
        name = self._request(part.request.number)
        told = (name, part.first, part.count, part.num_drafts, part.samples, part.run)
        if not self._engine._state_groups:
            return told
        tables = tuple(tuple(map(self._block, table)) for table in part.tables)
        return told, tables, part.states is part.request.states, self._of_states(part.states)

    def _of_tables(self) -> Any:
        """The tables, of the first request first; those of requests that are gone come last."""
        tables = self._engine.manager._tables
        kept = sorted(
            tables.requests.items(),
            key=lambda item: (self._order.get(int(item[0]), len(self._order)), int(item[0])),
        )
        return tuple(
            (
                self._request(int(request_id)),
                tuple(tuple(map(self._block, table)) for table in told.tables),
                tuple(told.num_cached),
                tuple(told.num_skipped),
            )
            for request_id, told in kept
        )

    def _of_pool(self) -> Any:
        """The free queue, then every block with its references and keys, and the index."""
        pool = self._engine.manager.block_pool
        cached = pool._cached
        free = pool.free_order()
        order = dict.fromkeys([*free, *range(pool.num_blocks)])
        return (
            tuple(map(self._block, free)),
            tuple((self._block(b), pool._ref_counts[b], tuple(cached.keys_of(b))) for b in order),
            tuple(
                (key, self._block(block), tuple(map(self._block, cached.index.copies.get(key, ()))))
                for key, block in sorted(cached.index.first.items(), key=repr)
            ),
        )

    def _of_host(self, host: Offloader) -> Any:
        return (
            tuple(map(self._place, host._free_places)),
            tuple((key, self._of_kept(kept)) for key, kept in host._index.items()),
            tuple(self._of_move(host, move) for move in host._waiting),
            tuple(self._of_move(host, move) for move in host._under_way.values()),
        )

    def _of_encoder(self, encoder: EncoderCache) -> Any:
        users = (
            tuple(self._request(n) for n in sorted(encoder._users[image]))
            for image in encoder._sizes
        )
        return (
            encoder.capacity,
            tuple(encoder._sizes.items()),
            tuple(users),
            (tuple(encoder._encodes), tuple(encoder._forgets), encoder._num_encoded),
            tuple((key, self._plain(value)) for key, value in sorted(self._encoder_extras.items())),
        )

    def _of_kept(self, kept: Kept) -> Any:
        return (kept.key, self._place(kept.place), kept.is_ready, kept.num_users)

    def _of_move(self, host: Offloader, move: Move) -> Any:
        return (
            self._transfer(move.transfer_id),
            move.is_load,
            # Those that no step in flight holds up any more are alike.
            max(move.after - self._engine._num_planned, -len(self._engine._steps) - 1),
            tuple(map(self._block, move.blocks)),
            tuple((self._of_kept(k), host._index.get(k.key) is k) for k in move.kept),
            self._engine.rank_notices.missing_of(move.transfer_id),
        )

    def _plain(self, value: Any) -> Any:
        """Anything that a subclass may keep. Raises TypeError for what is not plain."""
        if value is None or isinstance(value, (int, str, bytes)):
            return value
        if id(value) in self._ids:
            return ("this request", self._order[value.number])
        if isinstance(value, Mapping):
            return tuple((self._plain(k), self._plain(v)) for k, v in value.items())
        if isinstance(value, (set, frozenset)):
            return tuple(sorted(map(self._plain, value), key=repr))
        if isinstance(value, (Sequence, deque)):
            return tuple(map(self._plain, value))
        if is_dataclass(value):
            told = tuple(self._plain(getattr(value, field.name)) for field in fields(value))
            return (type(value).__name__, told)
        raise TypeError(f"a {type(value).__name__} is no plain value")


def _beyond(kept_by: object, known: frozenset[str]) -> dict[str, Any]:
    """What an instance has besides what its base class has."""
    return {key: value for key, value in vars(kept_by).items() if key not in known}
