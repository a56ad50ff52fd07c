"""What the parent of a certification needs to know of a target that only its workers have loaded.

Found out in a worker, by building one small instance (one for each layout of a manager).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from poolproof.certification.run_kinds import RunKind, layout_kind
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.target import Capabilities, TargetError, capabilities_of
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.block_sizes import other_block_sizes
from poolproof.harness.isolation import Beacon, Lost
from poolproof.harness.lost_run import as_violation
from poolproof.harness.target_call import constructing, crash
from poolproof.targets.native_target import NATIVE_AT
from poolproof.targets.target import Target, TargetLayout

__all__ = [
    "Description",
    "LayoutDescription",
    "PartDescription",
    "before_any_command",
    "describe",
    "part_of",
    "public_methods",
]

_MANAGER_BLOCKS = 8
"""Blocks of the instances that are only looked at; layouts with several groups need some."""


@dataclass(frozen=True, slots=True)
class LayoutDescription:
    """A layout of a manager or engine; `can` is None where it is not run, or cannot be built."""

    level: Level
    name: str
    profile: Profile
    block_size: int
    can: Capabilities | None
    why_not: str = ""
    takes_hash: bool = False
    """Whether the manager lets its hash be replaced (`use_hash`)."""
    block_sizes: tuple[int, ...] = ()
    """The block sizes tried, besides the usual one, with which it can be built, in tokens."""
    refused_block_sizes: tuple[int, ...] = ()
    """The others of those, with which building it raised something."""

    @property
    def kind(self) -> RunKind:
        """The kind of its runs."""
        return layout_kind(self.level, self.name)

    @property
    def manager_profile(self) -> ManagerProfile:
        """The profile of a layout of a manager."""
        assert isinstance(self.profile, ManagerProfile)
        return self.profile


@dataclass(frozen=True, slots=True)
class PartDescription:
    """A free queue or an index that is driven on its own; `can` is None where it was not built."""

    profile: Profile
    can: Capabilities | None


@dataclass(frozen=True, slots=True)
class Description:
    """What is known of a target before it is driven.

    `unbuilt` is the violation that even the smallest instance raised on construction; then
    nothing is known of its capabilities. A manager's `can` is that of its first layout that could
    be built.
    """

    name: str
    level: Level
    shape: str
    profile: Profile
    version: str | None
    source: str
    notes: tuple[str, ...]
    takes_chains: bool
    public_methods: tuple[str, ...]
    can: Capabilities | None
    can_chained: Capabilities | None = None
    parts: Mapping[Level, PartDescription] = field(default_factory=dict)
    """The free queue and the index that are driven on their own; a target may be one itself."""
    unbuilt: Violation | None = None
    layouts: tuple[LayoutDescription, ...] = ()
    pair: tuple[str, str] | None = None
    """Of two targets that are driven as one, their names."""
    may_be_unfinished: bool = False
    """Whether some method of the class speaks of NotImplementedError."""

    def profile_at(self, level: Level) -> Profile:
        """The profile under which the target is driven at a level."""
        return self.parts[level].profile if level in self.parts else self.profile

    def can_at(self, level: Level) -> Capabilities:
        """What a target that could be built can do at a level."""
        can = self.parts[level].can if level in self.parts else self.can
        assert can is not None
        return can

    def layout_of_kind(self, kind: RunKind) -> LayoutDescription | None:
        """The layout whose runs are of this kind."""
        return next((layout for layout in self.layouts if layout.name == kind.layout), None)


def describe(target: Target, lost: Lost | None, beacon: Beacon) -> Description:
    """Look at the target through one small instance. Raises TargetError if it cannot be run.

    Given the outcome of a worker that was `lost` here before, nothing is built again: building the
    target causes that loss, and a manager's layouts show theirs when they are driven.
    """
    beacon.bump()
    can, can_chained, unbuilt = None, None, None
    parts = _parts_of(target)
    layouts = tuple(
        _describe_layout(target.level, layout, lost, beacon) for layout in target.layouts
    )
    num_blocks = before_any_command(target).num_blocks
    try:
        if lost is not None:
            if not target.layouts:
                unbuilt = as_violation(before_any_command(target), lost)
        elif layouts:
            can = next((layout.can for layout in layouts if layout.can is not None), None)
        else:
            can = capabilities_of(target.make(num_blocks, True))
        if lost is None and target.make_chained is not None:
            can_chained = capabilities_of(target.make_chained(num_blocks, True))
        if lost is None:
            for level, part in parts.items():
                built = part_of(target, level).make(num_blocks, True)
                parts[level] = replace(part, can=capabilities_of(built))
    except TargetError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises is its finding
        unbuilt = crash(constructing("target", num_blocks), error)
    return Description(
        name=target.name,
        level=target.level,
        shape=target.shape,
        profile=target.profile,
        version=target.version,
        source=target.source,
        notes=target.notes,
        takes_chains=target.make_chained is not None,
        public_methods=tuple(public_methods(target.real_class)),
        can=can,
        can_chained=can_chained,
        parts=parts,
        unbuilt=unbuilt,
        layouts=layouts,
        pair=target.pair,
        may_be_unfinished=any(
            "NotImplementedError" in getattr(target.real_class, name).__code__.co_names
            for name in public_methods(target.real_class)
        ),
    )


def _parts_of(target: Target) -> dict[Level, PartDescription]:
    """The parts of a target, before one is built."""
    parts = {level: target.part_at(level) for level in Level if level.is_part}
    return {
        level: PartDescription(level.judged_by(part.profile), None)
        for level, part in parts.items()
        if part is not None
    }


def before_any_command(about: Target | Description) -> Trace:
    """The trace of a target that was only constructed."""
    return Trace(
        target=about.name,
        level=about.level,
        profile=about.profile,
        # Usable blocks beside a null block, wherever that stands.
        num_blocks=4 + (about.profile.null_block or 0),
        enable_caching=True,
        commands=(),
    )


def _describe_layout(
    level: Level, layout: TargetLayout, lost: Lost | None, beacon: Beacon
) -> LayoutDescription:
    """One layout, by an instance of it. Raises TargetError for one that lacks a method.

    Errors of the target itself come again when it is driven, and are findings then.
    """
    can, takes_hash = None, False
    if layout.make is not None and lost is None:
        beacon.bump()
        try:
            instance = layout.make(_MANAGER_BLOCKS, True)
            can = NATIVE_AT[level].capabilities_of(instance)
            takes_hash = callable(getattr(instance, "use_hash", None))
        except TargetError:
            raise
        except (Exception, SystemExit):  # noqa: BLE001 -- see above
            can = None
    built, refused = _block_sizes(layout, beacon) if can is not None else ((), ())
    return LayoutDescription(
        level,
        layout.name,
        layout.profile,
        layout.block_size,
        can,
        layout.why_not,
        takes_hash,
        built,
        refused,
    )


def _block_sizes(layout: TargetLayout, beacon: Beacon) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Block sizes, besides the usual one, with which it can be built, and with which it cannot.

    No contract says which sizes a target must take, so refusing one is not a finding.
    """
    if layout.make_of is None or not isinstance(layout.profile, ManagerProfile | EngineProfile):
        return (), ()
    tried = other_block_sizes(layout.profile, layout.block_size)
    built = []
    for size in tried:
        beacon.bump()
        with suppress(Exception, SystemExit):
            layout.make_with(size)(_MANAGER_BLOCKS, True)
            built.append(size)
    return tuple(built), tuple(size for size in tried if size not in built)


def part_of(target: Target, level: Level) -> Target:
    """The target at that level: itself, or the queue or index that belongs to the pool."""
    part = target.part_at(level)
    assert part is not None, f"{target.name} has no {level}"
    return part


def public_methods(cls: type | None) -> list[str]:
    """Methods of the class and its bases that are written in Python and have a public name."""
    if cls is None:
        return []
    return sorted(
        name
        for name in dir(cls)
        if not name.startswith("_") and hasattr(getattr(cls, name), "__code__")
    )
