"""Whole requests over allocators, and batches out of recorded runs of an allocator's harness.

`serving` drives a pool and `managers` managers, each by a grammar of its own: requests share
prefixes, fork, are preempted and swapped, and every output is compared with dense attention.
`recorded runs` replays what a campaign of the harness did; one of the resulting batches goes
through the error bound and every relation, so that these see tables of real allocators as well as
drawn ones.
"""

from __future__ import annotations

import random
from dataclasses import replace

import torch

from poolproof.contract.violation import Severity
from poolproof.kernels.batch import PagedBatch, ownership
from poolproof.kernels.case import Case
from poolproof.kernels.checks.check import Check, Outcome
from poolproof.kernels.checks.related import broken_relation
from poolproof.kernels.relations import RELATIONS, Subject
from poolproof.kernels.serving.forward import AllocatorBrokeError, WrongOutputError
from poolproof.kernels.serving.manager_engine import ServedManager, windows_of
from poolproof.kernels.serving.manager_traffic import ManagerTraffic
from poolproof.kernels.serving.model import TinyModel
from poolproof.kernels.serving.pool_engine import ServingSession
from poolproof.kernels.target import KernelTarget

__all__ = ["MANAGER_CHECKS", "SERVING_CHECKS"]

OPERATIONS_PER_SEQUENCE = 10


def _takes_the_model(target: KernelTarget) -> bool:
    """Whether the model of these checks can be served: values of the keys' size, mixed batches."""
    declared = target.declaration
    return (
        declared.unquantised
        and declared.mixed
        and "float32" in declared.dtypes
        and not declared.value_sizes
    )


def _serve(target: KernelTarget, case: Case) -> Outcome:
    """A case gives its seed, its heads, its block size, and a number of operations."""
    assert target.make_pool is not None
    session = ServingSession(
        target,
        target.make_pool,
        random.Random(case.seed).randrange,
        block_size=case.block_size,
        head_size=case.head_size,
        num_kv_heads=case.num_kv_heads,
        queries_per_kv_head=case.queries_per_kv_head,
    )
    try:
        session.run(OPERATIONS_PER_SEQUENCE * len(case.sequences))
    except (WrongOutputError, AllocatorBrokeError) as error:
        return Outcome(session.engine.compared, str(error))
    return Outcome(session.engine.compared)


SERVING_CHECKS = (
    Check(
        name="serving",
        sentence="requests over a real pool get dense attention over their own tokens",
        severity=Severity.WRONG_DATA_OF_ANOTHER,
        run=_serve,
        applies=lambda t: t.make_pool is not None and t.device == "cpu" and _takes_the_model(t),
    ),
)


COMMANDS_PER_SEQUENCE = 12
MOST_RECORDED_COMMANDS = 40
BATCHES_KEPT = 1


def _chosen(target: KernelTarget, case: Case) -> tuple[ServedManager, int]:
    """The manager that a case chooses, and its block size."""
    able = [manager for manager in target.managers if manager.fits(target.declaration)]
    manager = able[case.seed % len(able)]
    return manager, manager.block_size or case.block_size


def _model(case: Case, manager: ServedManager) -> TinyModel:
    heads = case.num_kv_heads * case.queries_per_kv_head
    return TinyModel.random(
        heads, case.num_kv_heads, case.head_size, case.seed % 100, windows_of(manager.profile)
    )


def _drive(target: KernelTarget, case: Case) -> Outcome:
    """A case gives its seed, its heads, its block size, and a number of commands."""
    manager, block_size = _chosen(target, case)
    draw = random.Random(case.seed)
    num_blocks = 5 + draw.randrange(6) + (manager.profile.null_block is not None)
    engine = manager.engine(target, num_blocks, block_size, _model(case, manager))
    try:
        ManagerTraffic(engine, draw.randrange).run(COMMANDS_PER_SEQUENCE * len(case.sequences))
    except (WrongOutputError, AllocatorBrokeError) as error:
        return Outcome(engine.forward.compared, f"{manager.name}: {error}")
    return Outcome(engine.forward.compared)


class _Kept:
    """Keeps some of the batches that pass, each equally likely, with their caches."""

    def __init__(self, seed: int) -> None:
        self.batches: list[PagedBatch] = []
        self._draw = random.Random(seed)
        self._seen = 0

    def __call__(self, batch: PagedBatch) -> None:
        self._seen += 1
        place = self._draw.randrange(self._seen)
        if self._seen <= BATCHES_KEPT:
            place = self._seen - 1
            self.batches.append(batch)
        if place < BATCHES_KEPT:
            self.batches[place] = replace(
                batch, key_cache=batch.key_cache.clone(), value_cache=batch.value_cache.clone()
            )


def _recorded(target: KernelTarget, case: Case) -> Outcome:
    """A case gives only its seed, that of the recorded run."""
    manager, block_size = _chosen(target, case)
    trace = manager.record(case.seed, block_size)
    kept = _Kept(case.seed)
    model = _model(case, manager)
    engine = manager.engine(target, trace.num_blocks, block_size, model, watch=kept)
    try:
        for command in trace.commands[:MOST_RECORDED_COMMANDS]:
            engine.apply(command)
    except (WrongOutputError, AllocatorBrokeError) as error:
        return Outcome(engine.forward.compared, f"{manager.name}, recorded: {error}")
    compared = engine.forward.compared
    for batch in kept.batches:
        outcome = _vary(target, case, batch)
        compared += outcome.compared
        if outcome.wrong is not None:
            return Outcome(compared, f"{manager.name}, recorded: {outcome.wrong}")
    return Outcome(compared)


def _vary(target: KernelTarget, case: Case, batch: PagedBatch) -> Outcome:
    """The bound and every relation on one batch."""
    output = target(batch)
    ratio = target.expected(batch).max_ratio(output.cpu())
    if ratio > 1:
        return Outcome(1, f"the output is {ratio:.3g} times the bound away from dense attention")
    asked = torch.ones(batch.query.shape[0], dtype=torch.bool)
    compared = 1
    for relation in RELATIONS.values():
        if not relation.applies(target.declaration):
            continue
        subject = Subject(case, batch, ownership(batch), random.Random(case.seed))
        outcome = broken_relation(relation, target, subject, asked, output)
        compared += outcome.compared
        if outcome.wrong is not None:
            own = None if relation.is_foreign else Severity.WRONG_DATA_OF_ONES_OWN
            wrong = f"{relation.name}: {outcome.wrong}"
            return Outcome(compared, wrong, severity=outcome.severity or own)
    return Outcome(compared)


def _applies(target: KernelTarget) -> bool:
    return (
        any(manager.fits(target.declaration) for manager in target.managers)
        and target.device == "cpu"
        and _takes_the_model(target)
    )


MANAGER_CHECKS = (
    Check(
        name="managers",
        sentence="requests under managers that fork, swap and preempt get dense attention",
        severity=Severity.WRONG_DATA_OF_ANOTHER,
        run=_drive,
        applies=_applies,
    ),
    Check(
        name="recorded runs",
        sentence="bound and relations hold on tables out of recorded runs of an allocator",
        severity=Severity.WRONG_DATA_OF_ANOTHER,
        run=_recorded,
        applies=_applies,
    ),
)
