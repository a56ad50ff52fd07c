"""The kinds of runs that a certification drives, and what each of them is called.

A kind says which part of a target is driven, and how: with the small sizes at which most bugs
have their shortest trace, at the sizes that servers run (`harness/production.py`), or with a
manager's hashes cut to a few bits, so that they collide (`harness/weak_hashes.py`), or its blocks
of other sizes (`harness/manager_block_sizes.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from poolproof.harness.manager_production import ManagerSizes
from poolproof.harness.production import ProductionSizes

__all__ = ["CHAINS", "INDEX", "POOL", "QUEUE", "RunKind", "manager_kind"]

_HASH_BITS = 4
"""With 8 bits, comparing one block of a prefix instead of all is found ten times as late."""
_STAGES = {"pool": "opaque hashes", "chains": "token chains", "queue": "links and order",
           "index": "keys and blocks"}  # fmt: skip
_STEPS = {"pool": 115, "chains": 115, "queue": 40, "index": 40, "manager": 95}


@dataclass(frozen=True, slots=True)
class RunKind:
    """One kind of runs: what they drive, and which layout of it if that is a manager.

    `driven` is "queue", "index", "pool" (opaque hashes), "chains" (token chains) or "manager".
    """

    driven: str
    layout: str | None = None
    hash_bits: int = 0
    """To how many bits the runs cut a manager's hashes; 0: not at all."""
    production: ProductionSizes | ManagerSizes | None = None
    """The sizes of servers, up to which the runs go; None: the small usual ones."""
    block_sizes: tuple[int, ...] = ()
    """The tokens of a block, each in turn, where a manager is built with others than usual."""

    @property
    def level(self) -> str:
        """The level that the runs belong to."""
        return "pool" if self.driven == "chains" else self.driven

    @property
    def stage(self) -> str:
        """What a stage of this kind is called, before the name of its driver."""
        name = _STAGES[self.driven] if self.layout is None else self.layout
        if self.production:
            return f"{name}, production sizes"
        if self.block_sizes:
            return f"{name}, other block sizes"
        return f"{name}, weak hashes" if self.hash_bits else name

    @property
    def steps_per_run(self) -> int:
        """About how many commands one run of the plain driver gives, at small sizes."""
        return _STEPS[self.driven]

    def weakened(self) -> RunKind:
        """The kind of a manager's runs in which its hashes collide."""
        assert self.layout is not None
        return replace(self, hash_bits=_HASH_BITS)

    def with_block_sizes(self, block_sizes: tuple[int, ...]) -> RunKind:
        """The kind of a manager's runs with blocks of other sizes."""
        assert self.layout is not None
        return replace(self, block_sizes=block_sizes)

    @property
    def has_production_sizes(self) -> bool:
        """Whether there are runs of this kind at the sizes of servers."""
        return self.driven in ("queue", "index", "pool", "manager")

    def at_production_sizes(self, sizes: ProductionSizes | ManagerSizes) -> RunKind:
        """The kind of the same runs at the sizes of servers."""
        return replace(self, production=sizes)


QUEUE = RunKind("queue")
INDEX = RunKind("index")
POOL = RunKind("pool")
CHAINS = RunKind("chains")


def manager_kind(layout: str) -> RunKind:
    """The kind of the runs of a layout of a manager."""
    return RunKind("manager", layout)
