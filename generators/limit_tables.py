"""The tables of docs/what-a-verdict-says.md: how far each depth of `certify` goes.

Everything is taken from the plans that the depths carry out, with the default seed. What one
target really got is in its certificate.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial

from poolproof.certification.certify import NEVER_TRIED
from poolproof.certification.depths import BUDGETS, Budget, Sequences
from poolproof.certification.exploration import stage_of
from poolproof.certification.options import CertifyOptions
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.harness.block_sizes import other_block_sizes
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_production import ENGINE_SCRIPTS, EngineSizes
from poolproof.harness.index_driver import IndexCampaign
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_production import SCRIPTS, ManagerSizes
from poolproof.harness.production import ProductionRun, ProductionSizes
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign, plan_of
from poolproof.harness.token_collisions import LARGEST_TOKEN
from poolproof.targets.target import EngineLayout, ManagerLayout, TargetLayout

__all__ = ["limits", "never_tried"]

_SEED = CertifyOptions().seed
_SMALL_RUNS = range(1_000)
"""The usual runs are drawn alike at all depths, from a dozen sizes: so many of them show all."""

Row = tuple[str, Callable[[Budget], str]]


def never_tried() -> str:
    """What no stage does, one in a line."""
    return "".join(f"- {what}\n" for what in NEVER_TRIED)


def limits() -> str:
    """A table for each level of a target, with a column for each depth of `certify`."""
    tables = {
        "A queue": _queue_rows(),
        "An index": _index_rows(),
        "A pool": _pool_rows(),
        "A manager": _manager_rows(),
        "An engine": _engine_rows(),
    }
    return "\n".join(_table(of_what, rows) for of_what, rows in tables.items())


def _table(of_what: str, rows: Iterable[Row]) -> str:
    lines = [
        f"| {of_what} | {' | '.join(f'`{name}`' for name in BUDGETS)} |",
        f"|---|{'---:|' * len(BUDGETS)}",
    ]
    for what, told in rows:
        lines.append(f"| {what} | {' | '.join(told(budget) for budget in BUDGETS.values())} |")
    return "\n".join(lines) + "\n"


def _queue_rows() -> list[Row]:
    small = QueueCampaign("", _never_built, seed=_SEED)
    blocks = {small.setup(number).num_blocks for number in _SMALL_RUNS}
    return [
        ("blocks, every order visited, up to", lambda budget: f"{budget.queue_blocks:,}"),
        ("blocks, usual runs", lambda _: _range(blocks)),
        _blocks_at_production_sizes(),
        ("entries in one list, up to", partial(_most, of_run=lambda run: run.num_blocks)),
        ("commands in one run, up to", partial(_most, of_run=lambda run: run.num_steps)),
    ]


def _index_rows() -> list[Row]:
    small = IndexCampaign("", _never_built, Profile(), _SEED)
    plans = [small.plan(number) for number in _SMALL_RUNS]

    def large(budget: Budget, of_plan: str) -> list[int]:
        sizes = _production(budget)
        campaign = IndexCampaign("", _never_built, Profile(), _SEED, production=sizes)
        return [getattr(campaign.plan(number), of_plan) for number in range(sizes.num_runs)]

    return [
        ("blocks, every state visited, up to", lambda budget: f"{budget.index_blocks:,}"),
        ("blocks, usual runs", lambda _: _range(plan.num_blocks for plan in plans)),
        ("keys, usual runs", lambda _: _range(plan.num_keys for plan in plans)),
        ("blocks, production sizes", lambda budget: _range(large(budget, "num_blocks"))),
        ("keys to choose from, up to", lambda budget: f"{max(large(budget, 'num_keys')):,}"),
        ("bytes of a hash", lambda budget: _range(large(budget, "hash_bytes"))),
        ("commands in one run, up to", lambda budget: f"{max(large(budget, 'num_steps')):,}"),
    ]


def _pool_rows() -> list[Row]:
    campaign = PoolCampaign("", _never_built, Profile(), _SEED)
    plans = [plan_of(campaign, number) for number in _SMALL_RUNS]
    return [
        ("visited completely", lambda budget: _in_lines(map(stage_of, budget.scopes))),
        (
            "hashes there, up to",
            lambda budget: f"{max(bounds.num_hashes for bounds in budget.scopes):,}",
        ),
        (
            "references there, up to",
            lambda budget: f"{max(bounds.max_references for bounds in budget.scopes):,}",
        ),
        ("every sequence of", lambda budget: _in_lines(map(_sequences, budget.sequences))),
        ("blocks, usual runs", lambda _: _range(plan.num_blocks for plan in plans)),
        ("hashes, usual runs", lambda _: _range(plan.num_hashes for plan in plans)),
        _blocks_at_production_sizes(),
        ("hashes to choose from, up to", partial(_most, of_run=lambda run: run.num_hashes)),
        ("bytes of a hash", partial(_all, of_run=lambda run: run.hash_bytes)),
        # The first episode of every run names the whole pool.
        (
            "blocks in one allocation, entries in one list, up to",
            partial(_most, of_run=lambda run: run.num_blocks),
        ),
        (
            "references to one block, up to",
            partial(_most, of_run=lambda run: run.most_references),
        ),
        ("commands in one run, up to", partial(_most, of_run=lambda run: run.num_steps)),
        (
            "commands between two readings of events, up to",
            partial(_most, of_run=lambda run: run.events_every),
        ),
    ]


def _manager_rows() -> list[Row]:
    small = ManagerCampaign("", _never_built, ManagerProfile(), 4, _SEED)
    blocks = {small.setup(number).num_blocks for number in _SMALL_RUNS}
    return [
        ("states from which every command goes on", lambda b: f"{b.workload_states:,}"),
        ("blocks, usual runs", lambda _: _range(blocks)),
        _manager_row(
            "blocks for each cache group, production sizes",
            lambda sizes: _range(filter(None, (p.num_blocks(sizes) for p in SCRIPTS.values()))),
        ),
        _manager_row(
            "blocks of a long prompt, up to",
            lambda sizes: f"{SCRIPTS['long prompts'].num_blocks(sizes):,}",
        ),
        _manager_row(
            "tokens of a prompt behind which another begins to differ",
            lambda sizes: f"{sizes.num_far_tokens:,}" if sizes.num_far_tokens else "-",
        ),
        ("tokens of a block", lambda _: _range(_block_sizes(ManagerLayout, ManagerProfile()))),
        ("token ids", lambda _: f"0 to {LARGEST_TOKEN:,}"),
        _manager_row("different prompts cached, up to", lambda sizes: f"{sizes.num_prompts:,}"),
        _manager_row(
            "sequences that decode at once, up to", lambda sizes: f"{sizes.num_sequences:,}"
        ),
        _manager_row("references to one block, up to", lambda sizes: f"{sizes.num_references:,}"),
        _manager_row(
            "refusals, preemptions and swaps in one run", lambda sizes: f"{sizes.num_repeats:,}"
        ),
        _manager_row("commands in one run, up to", lambda sizes: f"{sizes.num_commands:,}"),
        _manager_row("times that each script is played", lambda sizes: f"{sizes.rounds:,}"),
    ]


def _engine_rows() -> list[Row]:
    small = EngineCampaign("", _never_built, EngineProfile(), 4, _SEED)
    blocks = {small.setup(number).num_blocks for number in _SMALL_RUNS}
    return [
        ("blocks, usual runs", lambda _: _range(blocks)),
        _engine_row(
            "blocks for each cache group, production sizes",
            lambda sizes: _range(plan.num_blocks(sizes) for plan in ENGINE_SCRIPTS.values()),
        ),
        ("tokens of a block", lambda _: _range(_block_sizes(EngineLayout, EngineProfile()))),
        _engine_row("blocks of a prompt or an answer, up to", lambda s: f"{s.num_blocks:,}"),
        _engine_row("requests there at once, or passing one", lambda s: f"{s.num_requests:,}"),
        _engine_row("cancellations and resets in one run", lambda s: f"{s.num_repeats:,}"),
        _engine_row("commands in one run, up to", lambda s: f"{s.num_commands:,}"),
        _engine_row("times that each script is played", lambda s: f"{s.rounds:,}"),
    ]


def _engine_row(what: str, told: Callable[[EngineSizes], str]) -> Row:
    def cell(budget: Budget) -> str:
        return "none" if budget.engine_production is None else told(budget.engine_production)

    return what, cell


def _block_sizes(
    layout: type[TargetLayout], profile: ManagerProfile | EngineProfile
) -> tuple[int, ...]:
    usual = inspect.signature(layout).parameters["block_size"].default
    return (usual, *other_block_sizes(profile, usual))


def _manager_row(what: str, told: Callable[[ManagerSizes], str]) -> Row:
    def cell(budget: Budget) -> str:
        return "none" if budget.manager_production is None else told(budget.manager_production)

    return what, cell


def _blocks_at_production_sizes() -> Row:
    return "blocks, production sizes", partial(_all, of_run=lambda run: run.num_blocks)


def _production(budget: Budget) -> ProductionSizes:
    assert budget.production is not None, "every depth has production sizes"
    return budget.production


def _values(budget: Budget, of_run: Callable[[ProductionRun], int]) -> list[int]:
    sizes = _production(budget)
    return [of_run(sizes.run(_SEED, number)) for number in range(sizes.num_runs)]


def _most(budget: Budget, of_run: Callable[[ProductionRun], int]) -> str:
    return f"{max(_values(budget, of_run)):,}"


def _all(budget: Budget, of_run: Callable[[ProductionRun], int]) -> str:
    return _range(_values(budget, of_run))


def _range(values: Iterable[int]) -> str:
    found = set(values)
    return f"{min(found):,} to {max(found):,}"


def _in_lines(parts: Iterable[str]) -> str:
    return "<br>".join(parts)


def _sequences(bounds: Sequences) -> str:
    hashes = "1 hash" if bounds.num_hashes == 1 else f"{bounds.num_hashes} hashes"
    return f"{bounds.max_commands} commands, {hashes}, lists up to {bounds.max_list}"


def _never_built(_num_blocks: int, _enable_caching: bool) -> None:
    raise AssertionError("only plans are asked for")
