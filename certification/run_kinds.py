"""The kinds of runs that a certification drives, and their names.

A kind says which part of a target is driven, and how: with the small sizes at which most bugs
have their shortest trace, at the sizes that servers run (`harness/production.py`), or with a
manager's hashes cut to a few bits, so that they collide (`harness/weak_hashes.py`), or with blocks
of other sizes (`harness/block_sizes.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.harness.engine_production import EngineSizes
from poolproof.harness.manager_production import ManagerSizes
from poolproof.harness.production import ProductionSizes

__all__ = ["CHAINS", "INDEX", "POOL", "QUEUE", "Chunk", "RunKind", "layout_kind", "manager_kind"]

_HASH_BITS = 4
"""With 8 bits, comparing one block of a prefix instead of all is found ten times as late."""
_STAGES = {
    Level.QUEUE: "links and order",
    Level.INDEX: "keys and blocks",
    Level.POOL: "opaque hashes",
}


@dataclass(frozen=True, slots=True)
class RunKind:
    """One kind of runs: the level that they drive, and which layout of it if it has any."""

    level: Level
    has_chains: bool = False
    """Whether a pool is driven by token chains, and not by opaque hashes."""
    layout: str | None = None
    hash_bits: int = 0
    """To how many bits the runs cut a manager's hashes; 0: not at all."""
    production: ProductionSizes | ManagerSizes | EngineSizes | None = None
    """The sizes of servers, up to which the runs go; None: the small usual ones."""
    block_sizes: tuple[int, ...] = ()
    """The tokens of a block, each in turn, where a layout is built with others than usual."""

    @property
    def stage(self) -> str:
        """What a stage of this kind is called, before the name of its driver."""
        name = self.layout or ("token chains" if self.has_chains else _STAGES[self.level])
        if self.production:
            return f"{name}, production sizes"
        if self.block_sizes:
            return f"{name}, other block sizes"
        return f"{name}, weak hashes" if self.hash_bits else name

    @property
    def name_of_layout(self) -> str:
        """The layout, of a manager's runs."""
        assert self.layout is not None
        return self.layout

    @property
    def production_of_blocks(self) -> ProductionSizes | None:
        """The sizes of servers, of runs of a level without layouts."""
        assert not isinstance(self.production, ManagerSizes | EngineSizes)
        return self.production

    def weakened(self) -> RunKind:
        """The kind of a manager's runs in which its hashes collide."""
        assert self.layout is not None
        return replace(self, hash_bits=_HASH_BITS)

    def with_block_sizes(self, block_sizes: tuple[int, ...]) -> RunKind:
        """The kind of a layout's runs with blocks of other sizes."""
        assert self.layout is not None
        return replace(self, block_sizes=block_sizes)

    @property
    def has_production_sizes(self) -> bool:
        """Whether there are runs of this kind at the sizes of servers."""
        return not self.has_chains

    @property
    def is_explored(self) -> bool:
        """Whether all runs of this kind in small scopes are among those of a certification."""
        return not self.has_chains and self.level.has_small_scopes

    def at_production_sizes(self, sizes: ProductionSizes | ManagerSizes | EngineSizes) -> RunKind:
        """The kind of the same runs at the sizes of servers."""
        return replace(self, production=sizes)


QUEUE = RunKind(Level.QUEUE)
INDEX = RunKind(Level.INDEX)
POOL = RunKind(Level.POOL)
CHAINS = RunKind(Level.POOL, has_chains=True)


def layout_kind(level: Level, layout: str) -> RunKind:
    """The kind of the runs of a layout of a manager or an engine."""
    return RunKind(level, layout=layout)


def manager_kind(layout: str) -> RunKind:
    """The kind of the runs of a layout of a manager."""
    return layout_kind(Level.MANAGER, layout)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Runs `first` to `first + count` - 1 of one kind.

    `profile` replaces the target's own, to find out what it behaves as, or to see what misuse
    does that the target's own leaves undefined.
    """

    kind: RunKind
    seed: int
    first: int
    count: int
    profile: Profile | None = None

    @property
    def numbers(self) -> range:
        """The numbers of the runs."""
        return range(self.first, self.first + self.count)
