"""What a soak drives: every correct allocator here, by each driver; and one slice of driving.

Correct are the reference, impl's pool, queue and managers, and the oddities of bugs/. Of pools that
have many forms each slice draws one, of managers one of their layouts. Engines are not here: what
they do wrong is a finding, and no false alarm.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from poolproof.bugs.manager_oddities import MANAGER_ODDITIES
from poolproof.bugs.oddities import ODDITIES
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.fuzz.messages import WorkerOrder
from poolproof.fuzz.recorded_choices import new_cells
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.worker import CampaignWorker
from poolproof.harness.isolation import Beacon
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.targets.load import load_target
from poolproof.targets.target import Target

__all__ = ["Batch", "Slice", "Subject", "drawn_subject", "drive", "subjects"]

PLAIN = "plain driver"
CHAINS = "plain driver, token chains"
CAMPAIGN = "campaign"

FORMS: dict[str, tuple[str, ...]] = {
    "eviction": ("lru", "unhashed-first", "lifo", "unspecified"),
    "duplicates": ("kept", "first", "last"),
    "recache": ("replace", "forbidden"),
    "null_block": ("none", "0"),
    "null_in_lists": ("misuse", "ignored"),
    "keys": ("block", "partial"),
    "events": ("none", "per-copy", "per-hash"),
    "misuse": ("raises", "ignores", "undefined"),
}
"""What the forms of impl's and of the reference's pool are drawn from."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some runs, one after the other; `traces` of those that broke something."""

    num_steps: int
    num_runs: int
    traces: tuple[Trace, ...] = ()


Load = Callable[[random.Random], Target]
Batches = Callable[[Target, int, random.Random], Iterator[Batch]]


@dataclass(frozen=True, slots=True)
class Subject:
    """An implementation under a driver; it is drawn as often as its weight says."""

    level: str
    driver: str
    implementation: str
    weight: float
    load: Load
    batches: Batches


@dataclass(frozen=True, slots=True)
class Slice:
    """What one slice came to; `name` is the form or layout that it drew."""

    subject: Subject
    name: str
    seed: int
    num_steps: int
    num_runs: int
    traces: tuple[Trace, ...]


def drive(subject: Subject, source: random.Random, until: float, tick: Any) -> Slice:
    """Drive a subject until the monotonic clock says `until`; `tick(steps)` is called on the way.

    The first batch is driven in any case, and the first false alarm ends the slice.
    """
    target = subject.load(source)
    seed = source.getrandbits(48)
    done = Batch(0, 0)
    for batch in subject.batches(target, seed, source):
        done = Batch(done.num_steps + batch.num_steps, done.num_runs + batch.num_runs, batch.traces)
        tick(batch.num_steps)
        if done.traces or time.monotonic() > until:
            break
    return Slice(subject, target.name, seed, done.num_steps, done.num_runs, done.traces)


def drawn_subject(every: list[Subject], source: random.Random) -> Subject:
    """One of them, by their weights."""
    return source.choices(every, [subject.weight for subject in every])[0]


def subjects() -> list[Subject]:
    """All of them. Pools, which are fast, get most of the time."""
    form, named = _form, _named
    found = [
        Subject("pool", PLAIN, "impl", 20, partial(form, "impl"), _plain_pool),
        Subject("pool", CHAINS, "impl", 4, partial(form, "impl"), _chains),
        Subject("pool", PLAIN, "reference", 6, partial(form, "reference"), _plain_pool),
        Subject("pool", CAMPAIGN, "impl", 12, partial(form, "impl"), _campaign),
        Subject("pool", CAMPAIGN, "reference", 3, partial(form, "reference"), _campaign),
    ]
    for cls in ODDITIES:
        load = partial(named, f"{cls.__module__}:{cls.__name__}")
        found.append(Subject("pool", PLAIN, cls.__name__, 1.5, load, _plain_pool))
        found.append(Subject("pool", CAMPAIGN, cls.__name__, 0.5, load, _campaign))
    for name in ("impl-queue", "reference-queue"):
        found.append(Subject("queue", PLAIN, name, 1, partial(named, name), _plain_queue))
        found.append(Subject("queue", CAMPAIGN, name, 1, partial(named, name), _campaign))
    managers = {
        "impl-manager": 3.0,
        "impl-vllm-v0": 1.5,
        "impl-nano": 1.5,
        "reference-manager": 1.5,
    }
    for name, weight in managers.items():
        found.append(Subject("manager", PLAIN, name, weight, partial(named, name), _plain_manager))
        found.append(
            Subject("manager", CAMPAIGN, name, weight / 2, partial(named, name), _campaign)
        )
    for cls in MANAGER_ODDITIES:
        load = partial(named, f"{cls.__module__}:{cls.__name__}")
        found.append(Subject("manager", PLAIN, cls.__name__, 0.2, load, _plain_manager))
        found.append(Subject("manager", CAMPAIGN, cls.__name__, 0.1, load, _campaign))
    return found


def _named(name: str, source: random.Random) -> Target:
    del source
    return load_target(name)


def _form(name: str, source: random.Random) -> Target:
    """A pool in a form that it has; impl, for one, always keeps a declared order."""
    for _ in range(1000):
        rows = {row: source.choice(values) for row, values in FORMS.items()}
        if rows["null_block"] == "none":
            rows["null_in_lists"] = "misuse"
        text = ",".join(f"{row}={value}" for row, value in rows.items())
        try:
            return load_target(f"{name}[{text}]")
        except TargetError:
            continue
    raise AssertionError(f"{name} has none of the forms that soak_subjects.py draws")


def _plain_pool(target: Target, seed: int, source: random.Random) -> Iterator[Batch]:
    del source
    return _runs(PoolCampaign(target.name, target.make, target.profile, seed))


def _chains(target: Target, seed: int, source: random.Random) -> Iterator[Batch]:
    del source
    assert target.make_chained is not None
    return _runs(
        PoolCampaign(
            target.name,
            target.make_chained,
            target.profile,
            seed,
            chain_block_size=target.block_size,
            hash_block_size=target.hash_block_size,
        )
    )


def _plain_queue(target: Target, seed: int, source: random.Random) -> Iterator[Batch]:
    del source
    return _runs(QueueCampaign(target.name, target.make, seed))


def _layout(target: Target, source: random.Random) -> Any:
    return source.choice([layout for layout in target.layouts if layout.make is not None])


def _plain_manager(target: Target, seed: int, source: random.Random) -> Iterator[Batch]:
    layout = _layout(target, source)
    options = {"layout": layout.name}
    return _runs(
        ManagerCampaign(target.name, layout.make, layout.profile, layout.block_size, seed, options)
    )


def _runs(campaign: PoolCampaign | QueueCampaign | ManagerCampaign) -> Iterator[Batch]:
    number = 0
    while True:
        result = campaign.run(number)
        number += 1
        yield Batch(result.num_steps, 1, () if result.trace is None else (result.trace,))


def _campaign(target: Target, seed: int, source: random.Random) -> Iterator[Batch]:
    """A campaign of its own, with one worker in this process."""
    most = 6 if target.level == "queue" else 9
    settings = CampaignSettings(
        target.name,
        target.level,
        num_blocks=max(source.randint(3, most), target.profile.null_block or 0),
        num_hashes=source.randint(1, 3),
        max_references=source.randint(1, 3),
        seed=seed,
        layout=_layout(target, source).name if target.level == "manager" else "",
    )
    order = WorkerOrder(settings, f"soak {seed}", 1_000, 1.0, begins=True)
    beacon = Beacon(memoryview(bytearray(64)).cast("Q"))
    worker = CampaignWorker(target, order, new_cells())
    while True:
        report = worker.work(order, beacon)
        traces = tuple(failure.trace for failure in report.failures)
        yield Batch(report.num_steps, report.num_runs, traces)
