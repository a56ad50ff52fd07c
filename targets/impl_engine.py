"""The target `impl-engine`: `poolproof.impl.engine`, in the set-ups in which engines run.

It speaks the contract itself, so nothing stands between: a set-up is a profile and the arguments of
the constructor that keep to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import FULL, CacheGroup
from poolproof.contract.trace import Trace
from poolproof.impl.engine import Engine
from poolproof.impl.offloading import Offloader
from poolproof.targets.engine_target import engine_target
from poolproof.targets.reproducer import Reproducer
from poolproof.targets.target import EngineLayout, Target

__all__ = [
    "BLOCK_SIZE",
    "IMPL_ENGINE_REPRODUCER",
    "engine_maker",
    "impl_engine",
    "impl_engine_layouts",
]

BLOCK_SIZE = 4

Make = Callable[[int, bool], Engine]


@dataclass(frozen=True, slots=True)
class _SetUp:
    """The rows of a profile that a set-up states, and the places of its host memory."""

    name: str
    rows: Mapping[str, Any] = field(default_factory=dict)
    groups: tuple[CacheGroup, ...] = FULL
    host_places: int = 0


_ASYNC = {"steps_in_flight": 2}
_DRAFTS = {"draft_tokens": 3}
_SLIDING = CacheGroup("sliding", window=6)
_HYBRID = (CacheGroup(), CacheGroup("state"))
_STATE_DRAFTS = {**_DRAFTS, "state_moves": "told", "state_blocks": 4}

_SET_UPS = (
    _SetUp("fcfs"),
    _SetUp("priority", {"policy": "priority"}),
    _SetUp("chunks", {"max_batch_tokens": 7, "max_running": 3}),
    _SetUp("async", _ASYNC),
    _SetUp("async-3", {"steps_in_flight": 3, "policy": "priority"}),
    _SetUp("drafts", {**_DRAFTS, "max_batch_tokens": 9}),
    _SetUp("async+drafts", {**_ASYNC, **_DRAFTS, "policy": "priority"}),
    _SetUp("offloading", {"policy": "priority", "max_running": 2}, host_places=8),
    _SetUp("async+offloading", {**_ASYNC, "max_batch_tokens": 12}, host_places=8),
    _SetUp("async+drafts+offloading", {**_ASYNC, **_DRAFTS}, host_places=5),
    _SetUp("offloading+ranks", {"ranks": 2, "notices": "may-repeat"}, host_places=8),
    _SetUp("sliding", groups=(_SLIDING,)),
    _SetUp("full+sliding", {"policy": "priority"}, groups=(CacheGroup(), _SLIDING)),
    _SetUp(
        "async+drafts+full+sliding",
        {**_ASYNC, **_DRAFTS},
        groups=(CacheGroup(), CacheGroup("sliding", window=5)),
    ),
    _SetUp(
        "images",
        {
            "image_tokens": 6,
            "encoder_cache_tokens": 12,
            "max_encoder_tokens": 8,
            "max_batch_tokens": 10,
        },
    ),
    _SetUp(
        "async+images",
        {**_ASYNC, "policy": "priority", "image_tokens": 6, "encoder_cache_tokens": 8},
    ),
    _SetUp("adapters", {"max_adapters": 1, "policy": "priority"}),
    _SetUp("async+reset", {**_ASYNC, "reset": "preempts"}),
    _SetUp(
        "full-8+chunked-4",
        {"max_batch_tokens": 10},
        groups=(CacheGroup(block_size=8), CacheGroup("chunked", block_size=4, window=8)),
    ),
    _SetUp("fcfs+full+state", groups=_HYBRID),
    _SetUp("chunks+full+state", {"max_batch_tokens": 7, "max_running": 3}, groups=_HYBRID),
    _SetUp(
        "async+full+state-8",
        {**_ASYNC, "policy": "priority", "states": "step-end"},
        groups=(CacheGroup(), CacheGroup("state", block_size=8)),
    ),
    _SetUp("drafts+full+state", {**_STATE_DRAFTS, "max_batch_tokens": 9}, groups=_HYBRID),
    _SetUp(
        "async+drafts+full+state",
        {**_ASYNC, **_STATE_DRAFTS, "policy": "priority", "states": "step-end"},
        groups=_HYBRID,
    ),
    _SetUp(
        "offloading+full+state", {"policy": "priority", "max_running": 2}, _HYBRID, host_places=8
    ),
    _SetUp(
        "async+drafts+offloading+full+state",
        {**_ASYNC, **_STATE_DRAFTS, "states": "step-end"},
        _HYBRID,
        host_places=12,
    ),
    _SetUp(
        "async+drafts+reset+full+state+state",
        {**_ASYNC, **_STATE_DRAFTS, "reset": "preempts"},
        groups=(*_HYBRID, CacheGroup("state")),
    ),
)


def impl_engine_layouts(cls: type[Engine] = Engine) -> list[EngineLayout]:
    """Our engine, or a subclass, in each set-up."""
    return [_layout(cls, set_up) for set_up in _SET_UPS]


def impl_engine(name: str, overrides: Mapping[str, Any]) -> Target:
    """Our engine as a target. Raises TargetError for rows in brackets: a set-up states them all."""
    return engine_target(
        name,
        overrides,
        impl_engine_layouts(),
        Engine,
        own_modules=(Engine.__module__, Offloader.__module__),
    )


def engine_maker(
    cls: type[Engine], profile: EngineProfile, block_size: int, host_places: int = 0
) -> Make:
    """Builds engines that keep to a profile."""
    rows = profile.to_json()

    def make(num_blocks: int, enable_caching: bool) -> Engine:
        return cls.under(
            rows, num_blocks, block_size, enable_caching=enable_caching, host_places=host_places
        )

    return make


def _layout(cls: type[Engine], set_up: _SetUp) -> EngineLayout:
    profile = EngineProfile(null_block=0, groups=set_up.groups, **set_up.rows)
    make_of = partial(engine_maker, cls, profile, host_places=set_up.host_places)
    make = make_of(BLOCK_SIZE)
    return EngineLayout(set_up.name, profile, make, BLOCK_SIZE, make_of=make_of)


def _setting(trace: Trace, _folder: Path | None) -> list[str]:
    """The engine under the rows of the trace, and the host memory of its set-up."""
    profile = trace.profile
    assert isinstance(profile, EngineProfile)
    name = trace.options.get("layout")
    places = next((set_up.host_places for set_up in _SET_UPS if set_up.name == name), 0)
    kinds = [_KINDS[group.kind] for group in profile.groups]
    scratch = profile.draft_tokens + 1 if profile.draft_tokens else 0
    groups = "".join(
        f"{kind}({_sizes(group, word, scratch)}), "
        for group, (kind, word) in zip(profile.groups, kinds, strict=True)
    )
    return [
        "from typing import Any",
        "",
        "from poolproof.impl.engine import Engine  # what is tested; nothing else is Poolproof's",
        f"from poolproof.impl.kv_cache_group import {', '.join(sorted({k for k, _ in kinds}))}",
        "",
        "",
        "def new_engine() -> Any:",
        '    """The engine under test."""',
        "    return Engine(",
        f"        {trace.num_blocks},",
        f"        {int(trace.options.get('block_size', BLOCK_SIZE))},",
        f"        enable_caching={trace.enable_caching},",
        f"        policy={profile.policy!r},",
        f"        max_batch_tokens={profile.max_batch_tokens},",
        f"        max_running={profile.max_running},",
        f"        draft_tokens={profile.draft_tokens},",
        f"        groups=({groups}),",
        f"        num_ranks={profile.ranks},",
        f"        host_places={places},",
        f"        max_adapters={profile.max_adapters},",
        f"        encoder_cache_tokens={profile.encoder_cache_tokens},",
        f"        max_encoder_tokens={profile.max_encoder_tokens},",
        f"        reset_preempts={profile.reset == 'preempts'},",
        f"        tells_states={profile.state_moves == 'told'},",
        f"        states_in_between={profile.states == 'every-block'},",
        "    )",
    ]


_KINDS = {
    "full": ("FullAttention", ""),
    "sliding": ("SlidingWindow", "window"),
    "chunked": ("ChunkedLocal", "chunk_size"),
    "state": ("RecurrentState", ""),
}


def _sizes(group: CacheGroup, window: str, num_scratch: int) -> str:
    sizes = [f"block_size={group.block_size}"] if group.block_size else []
    if group.is_state and num_scratch:
        sizes.append(f"num_speculative_blocks={num_scratch}")
    return ", ".join([*sizes, f"{window}={group.window}"] if window else sizes)


IMPL_ENGINE_REPRODUCER = Reproducer(_setting)
"""It is built as its set-up says; a class without adapter needs nothing more."""
