"""Loads the target for a trace and builds it as the trace says."""

from __future__ import annotations

from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.harness.manager_block_sizes import other_block_sizes
from poolproof.targets.load import load_target
from poolproof.targets.target import Make, Target

__all__ = ["load_target_of", "maker_for"]


def load_target_of(trace: Trace, instead: str | None = None) -> Target:
    """The target that the trace was made with, or the one named `instead`. Raises TargetError."""
    api = trace.options.get("api")
    target = load_target(instead or trace.target, api=None if instead else api)
    if target.level != trace.level:
        part = target.part_at(trace.level)
        if part is not None:
            return part
        raise TargetError(
            f"the trace is of level {trace.level}, but {target.name} is "
            f"{target.level.with_article} target; name another with --target"
        )
    return target


def maker_for(trace: Trace, target: Target) -> Make:
    """How to build the target for this trace: with token chains where it was made with them.

    Raises TargetError where the target takes none.
    """
    if trace.level.has_sequences:
        return _layout_of(trace, target)
    speaks_chains = any(hasattr(command, "chain") for command in trace.commands)
    if not speaks_chains and trace.options.get("block_size", 1) == 1:
        return target.make
    if target.make_chained is None:
        raise TargetError(
            f"the trace speaks token chains, which {target.name} does not take; "
            "name another target with --target"
        )
    return target.make_chained


def _layout_of(trace: Trace, target: Target) -> Make:
    """The layout of the trace's name, or the only one there is. Raises TargetError."""
    name = str(trace.options.get("layout", ""))
    only = target.layouts[0].name if len(target.layouts) == 1 else name
    known = any(layout.name == name for layout in target.layouts)
    layout = target.layout(name if known else only)
    block_size = trace.options["block_size"]
    others = other_block_sizes(layout.profile, layout.block_size) if layout.make_of else ()
    if block_size not in (layout.block_size, *others):
        raise TargetError(
            f"the trace has {block_size} tokens a block, layout {layout.name} of {target.name} "
            f"{layout.block_size}; name another target with --target"
        )
    return layout.make_with(block_size)
