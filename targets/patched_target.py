"""A target with a patch of its sources, as `load.py` builds it: `vllm[patch=fix.diff]`.

The target is the same in all else. It says in its source and notes what was patched, which hunks
stood elsewhere, and what of the diff it does not use; a diff that changes nothing that it imports
would give a verdict on nothing, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from poolproof.contract.target import TargetError
from poolproof.targets.apart import NoAnswerError, apart
from poolproof.targets.patch_places import places_of
from poolproof.targets.source_patch import (
    SourcePatch,
    any_patch,
    patched_by_others,
    read_patch,
    while_patched,
)
from poolproof.targets.target import Target
from poolproof.targets.target_spec import TargetSpec

__all__ = ["patched_target", "refuse_patched_before"]

_BLOCKS = 8
"""Blocks of the instance that is built to see what is imported only then."""


def patched_target(spec: TargetSpec, given: str, load: Callable[[], Target]) -> Target:
    """What `load` loads with the diff in the file `given`.

    Raises TargetError for a target that has no sources to patch, for a diff that does not parse or
    apply or that changes nothing which the target imports, and where its modules were imported
    before.
    """
    places = places_of(spec)
    patch = read_patch(given, places.find, spec.base)
    _refuse_mixture(spec, patched_by_others(patch, places.holds))
    with while_patched(patch):
        target = load()
    used = set(patch.used)
    if len(used) < len(patch.texts):
        used |= _used_by_instances(patch, target)
    unused = [path for path in patch.texts if path not in used]
    if not used:
        names = ", ".join(patch.paths.values())
        raise TargetError(
            f"{given} changes {names}, and {spec.base} imports none of that, so there is nothing "
            "to judge; is it another target that uses it?"
        )
    return _told(target, patch, patch.notes(unused))


def refuse_patched_before(spec: TargetSpec) -> None:
    """Raises TargetError where this process has modules of the target with a patch in them."""
    if not any_patch():
        return
    try:
        places = places_of(spec)
    except TargetError:
        return  # Nothing of it can have been patched.
    _refuse_mixture(spec, patched_by_others(None, places.holds))


def _refuse_mixture(spec: TargetSpec, module: str | None) -> None:
    if module is not None:
        raise TargetError(
            f"{spec.text}: this process has imported {module} already, without this patch or with "
            "another; load the two in processes of their own"
        )


def _used_by_instances(patch: SourcePatch, target: Target) -> set[Path]:
    """The patched files that building an instance imports; some engines import late."""

    def used_when_built() -> set[Path]:
        with suppress(Exception, SystemExit):
            target.make(_BLOCKS, True)
        return patch.used

    try:
        return apart(used_when_built)
    except NoAnswerError:
        return set()


def _told(target: Target, patch: SourcePatch, notes: tuple[str, ...]) -> Target:
    """The target and its parts, whose certificates name the patch."""
    return replace(
        target,
        source=f"{target.source}, with {patch.label}",
        notes=(*notes, *target.notes),
        companion_queue=target.companion_queue and _told(target.companion_queue, patch, ()),
        companion_index=target.companion_index and _told(target.companion_index, patch, ()),
    )
