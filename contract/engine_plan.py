"""What an engine says of one step: which tokens of which requests, through which blocks.

A native engine answers `plan()` with a mapping; `plan_from` reads it with care. The simulated
worker does what the plan says and nothing else: it performs the copies, moves what transfers move,
computes the positions of each part, and samples a token of each request whose last token it has
computed. docs/engines.md has the contract with an example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

from poolproof.contract.outside import shown
from poolproof.contract.state_use import StateUse, StateUseError, use_from

__all__ = ["EnginePlan", "PlanError", "PlannedPart", "Transfer", "outputs_from", "plan_from"]


class PlanError(ValueError):
    """A plan, or outputs, of which no sense can be made; the message names the entry."""


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """Positions `first` to `first` + `count` - 1 of a request are computed in this step.

    The last `num_drafts` of them are drafts. `blocks[g]` is the request's whole table in cache
    group g. Where earlier steps are still in flight, `first` counts their drafts as accepted; the
    worker subtracts those that were not, here and in the positions of `states`: what the step does
    with recurrent states, where the plan says it. What is sampled behind a part that `discards` is
    nobody's: the request samples in another step, such as that of another instance.
    """

    request_id: int
    first: int
    count: int
    num_drafts: int
    blocks: tuple[tuple[int, ...], ...]
    states: tuple[StateUse, ...] = ()
    discards: bool = False


@dataclass(frozen=True, slots=True)
class Transfer:
    """Blocks that are moved between the device and another tier, where each has a place.

    A load brings what stands at `places[i]` into `blocks[i]`, a store the other way round. One that
    the step `waits` for is over before anything is computed (a load), or right after it (a store).
    Any other ends when it arrives, and the engine is told by `transfer_id`. One that `follows` does
    not begin before the step that names it is computed. A load that is waited for may `fail`: then
    it moves nothing, and who reads its blocks in this step gets nothing and is computed again. Of
    several workers, each with a memory of its own, that with number `rank` moves; None: all do.
    """

    transfer_id: int
    is_load: bool
    waits: bool
    blocks: tuple[int, ...]
    places: tuple[int, ...]
    follows: bool = False
    fails: bool = False
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """One step: what is copied between blocks first, moved, and computed.

    `preempted` are requests that lost their blocks while this step was planned. `flushes` names the
    transfers in flight, those of this step among them, that are over before anything is computed.
    The worker drops the encoder's outputs for the images that it `forgets`, then `encodes` others,
    by identifier. Whatever the blocks in `zeroes` held is zero before anything else happens.
    """

    parts: tuple[PlannedPart, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    preempted: tuple[int, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    flushes: tuple[int, ...] = ()
    forgets: tuple[str, ...] = ()
    encodes: tuple[str, ...] = ()
    zeroes: tuple[int, ...] = ()


_OPTIONAL = {"copies", "preempted", "transfers", "flushes", "forgets", "encodes", "zeroes"}


def plan_from(answer: Any) -> EnginePlan:
    """The plan that a native engine answered. Raises PlanError.

    The mapping has "compute", a list of mappings with "request", "first", "count", "blocks" and, if
    there are any, "drafts"; it may have "copies", "preempted", "transfers", and, by identifier of
    images, "forgets" and "encodes", and "zeroes". An entry of "compute" may have "states" and
    "discards".
    """
    if isinstance(answer, EnginePlan):
        return answer
    fields = _mapping("a plan", answer, {"compute"}, _OPTIONAL)
    try:
        return EnginePlan(
            tuple(map(_part, fields["compute"])),
            tuple((index(a), index(b)) for a, b in fields.get("copies") or ()),
            tuple(map(index, fields.get("preempted") or ())),
            tuple(map(_transfer, fields.get("transfers") or ())),
            tuple(map(index, fields.get("flushes") or ())),
            _images(fields, "forgets"),
            _images(fields, "encodes"),
            tuple(map(index, fields.get("zeroes") or ())),
        )
    except PlanError:
        raise
    except (TypeError, ValueError) as error:
        raise PlanError(f"the plan {shown(answer)} is not made of lists of numbers") from error


def outputs_from(answer: Any) -> list[tuple[int, tuple[int, ...], bool]]:
    """What the engine gives to users: (request, its new tokens, whether it has ended).

    Raises PlanError for anything but a list of such triples; None stands for an empty one.
    """
    try:
        return [
            (index(request_id), tuple(map(index, tokens)), bool(ended))
            for request_id, tokens, ended in answer or ()
        ]
    except (TypeError, ValueError) as error:
        raise PlanError(
            f"the outputs {shown(answer)} are not a list of (request, tokens, ended)"
        ) from error


def _mapping(what: str, value: Any, required: set[str], known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PlanError(f"{what} must be a mapping, not {shown(value)}")
    missing, more = required - set(value), set(value) - required - known
    if missing or more:
        unknown = shown(min(more, key=repr)) if more else ""
        wrong = f"lacks {', '.join(sorted(missing))}" if missing else f"has {unknown}"
        allowed = ", ".join(sorted(required | known))
        raise PlanError(f"{what} {wrong}; it may have {allowed}")
    return value


def _part(value: Any) -> PlannedPart:
    names = {"request", "first", "count", "blocks"}
    fields = _mapping("an entry of compute", value, names, {"drafts", "states", "discards"})
    try:
        request_id, first, count = (index(fields[name]) for name in ("request", "first", "count"))
        tables = tuple(tuple(map(index, table)) for table in fields["blocks"])
        states = tuple(map(use_from, fields.get("states") or ()))
        drafts, discards = index(fields.get("drafts", 0)), bool(fields.get("discards", False))
        return PlannedPart(request_id, first, count, drafts, tables, states, discards)
    except StateUseError as error:
        raise PlanError(str(error)) from error
    except TypeError as error:
        raise PlanError(
            f"the entry {shown(value)} of compute must have numbers, and in blocks a list of block "
            "ids for each cache group"
        ) from error


def _images(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    images = tuple(fields.get(name) or ())
    for image in images:
        if not isinstance(image, str):
            raise PlanError(f"{name} of a plan lists images by identifier, not {shown(image)}")
    return images


def _transfer(value: Any) -> Transfer:
    names = {"id", "kind", "blocks", "places"}
    fields = _mapping("a transfer", value, names, {"waits", "follows", "fails", "rank"})
    if fields["kind"] not in ("load", "store"):
        raise PlanError(f"the kind of a transfer is load or store, not {shown(fields['kind'])}")
    try:
        blocks, places = (tuple(map(index, fields[name])) for name in ("blocks", "places"))
        transfer_id = index(fields["id"])
        rank = None if fields.get("rank") is None else index(fields["rank"])
    except TypeError as error:
        raise PlanError(f"the transfer {shown(value)} must have lists of numbers") from error
    if len(blocks) != len(places):
        raise PlanError(
            f"transfer {transfer_id} moves {len(blocks)} blocks and names {len(places)} places"
        )
    is_load = fields["kind"] == "load"
    waits, follows, fails = (bool(fields.get(n, False)) for n in ("waits", "follows", "fails"))
    if waits and follows:
        raise PlanError(
            f"transfer {transfer_id} cannot both be waited for and follow its step; leave one out"
        )
    if fails and not (waits and is_load):
        raise PlanError(
            f"transfer {transfer_id} is said to fail; only a load that the step waits for can"
        )
    return Transfer(transfer_id, is_load, waits, blocks, places, follows, fails, rank)
