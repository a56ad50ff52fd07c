"""One engine under test, the worker that is simulated for it, and what users are given.

Every driver goes through here. A step of the engine is planned by one command and answered by a
later one: only then is it carried out, so that with several steps in flight all that a scheduler
decides too early stays decided. What the step reads is judged by the oracle that also watches
live engines (`reference/step_oracle.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from poolproof.contract.commands import Command, Reset
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import (
    AnswerStep,
    Arrive,
    Cancel,
    PlanStep,
    Repeat,
    RunStep,
    Submit,
)
from poolproof.contract.engine_plan import (
    EnginePlan,
    PlanError,
    Transfer,
    outputs_from,
    plan_from,
)
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.engine_target import ENGINE_METHODS, engine_capabilities_of
from poolproof.contract.state_use import StateUse
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.contract.target import Capabilities
from poolproof.contract.violation import Severity, Violation, ViolationError
from poolproof.harness.engine_facts import EngineFacts
from poolproof.harness.engine_state_uses import StateUses, Uses, first_read
from poolproof.harness.every_invariant import EveryInvariant
from poolproof.harness.reading import read_count, read_list
from poolproof.harness.target_call import crash, is_our_own_bug
from poolproof.invariants.engine_outputs import Due, outputs_are_due
from poolproof.invariants.engine_plans import (
    part_computes_known_tokens,
    part_has_blocks,
    part_has_images,
    plan_encodes_images,
    plan_keeps_limits,
    plan_keeps_promises,
    plan_names_blocks,
    plan_names_live_requests,
    plan_zeroes_blocks,
    transfers_can_end,
    transfers_name_ranks,
    unreadable_answer,
)
from poolproof.invariants.free_at_end import all_free_at_end
from poolproof.invariants.kv_reads import step_reads_own_prefix
from poolproof.invariants.progress import loads_get_on, plans_go_on, users_are_served
from poolproof.invariants.wording import sequence_name
from poolproof.reference.content_names import ContentNames
from poolproof.reference.engine_legality import undefined_for_engine
from poolproof.reference.engine_model import EngineModel, Executed, PlannedStep
from poolproof.reference.step_oracle import StepOracle

__all__ = ["EngineSession", "Happened"]

Tables = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Happened:
    """What one command led to: a plan, a step that was carried out, what users were given.

    `uses` is what the step did with the states of each request.
    """

    plan: EnginePlan | None = None
    executed: list[Executed] = field(default_factory=list)
    outputs: list[tuple[int, tuple[int, ...], bool]] = field(default_factory=list)
    uses: Uses = field(default_factory=dict)


class EngineSession:
    """An engine and its model, in step. Only legal commands are driven.

    `facts` is what has happened so far. `invariants` are those that count, all unless stated.
    `last` is what the last command led to, for whoever draws it.
    """

    def __init__(
        self,
        target: Any,
        profile: EngineProfile,
        num_blocks: int,
        block_size: int,
        *,
        invariants: EveryInvariant | None = None,
    ) -> None:
        self.target = target
        self.profile = profile
        self.can: Capabilities = engine_capabilities_of(target)
        self.model = EngineModel(num_blocks, block_size, profile)
        self.invariants = invariants or EveryInvariant()
        self.facts = EngineFacts()
        self.remarks: set[str] = set()
        self.last = Happened()
        self.num_commands = 0
        self.num_idle_plans = 0
        self._num_steps = self._num_empty = self._num_unserved = 0
        self._num_loads = [0] * profile.ranks  # since anybody was given a token
        self._oracles = self._made_oracles(None)
        self._tables: dict[int, Tables] = {}
        self._lingering: dict[int, PlannedStep | None] = {}
        self._states = StateUses(target, self.model, self.invariants.report)
        self._num_usable = num_blocks - (profile.null_block is not None)
        self._apply: dict[type[Command], Callable[[Any], None]] = {
            Submit: self._submit,
            Cancel: self._cancel,
            PlanStep: self._plan,
            AnswerStep: self._answer,
            RunStep: self._run,
            Arrive: self._arrive,
            Repeat: self._repeat,
            Reset: self._reset,
        }

    def _made_oracles(self, names: ContentNames | None) -> list[StepOracle]:
        """One for the memory of each rank."""
        model, profile = self.model, self.profile
        return [
            StepOracle(model.num_blocks, profile.groups, model.block_sizes, names)
            for _ in range(profile.ranks)
        ]

    @property
    def reference(self) -> EngineModel:
        """The state that relative commands and workloads refer to."""
        return self.model

    def step(self, command: Command) -> Violation | None:
        """Apply a legal command; return the violation that it shows, or None."""
        self.num_commands += 1
        self.last = Happened()
        try:
            self._apply[type(command)](command)
        except ViolationError as found:
            return self._numbered(found.violation)
        except (Exception, SystemExit) as error:
            if is_our_own_bug(error):
                raise
            return self._numbered(crash(f"reading the engine after {command}", error))
        held = self._held_at_rest() if self.nobody_holds() else None
        return held and self._numbered(held)

    step_any = step

    def is_defined(self, command: Command) -> bool:
        """Whether the target has the verb and the command is legal in this state."""
        if command.verb not in self.can.verbs:
            return False
        return undefined_for_engine(self.model, command) is None

    def first_look(self) -> Violation | None:
        """Before any command: every block is free."""
        return self._blocks_lost()

    def nobody_holds(self) -> bool:
        """Whether the engine is at rest: all requests ended, and nothing is in flight.

        It was asked for a further step since, in which it could let go of what it still held.
        """
        return self.model.is_idle and self.num_idle_plans > 0

    def end(self) -> Violation | None:
        """At rest every block is free and no request is left."""
        assert self.nobody_holds(), "the engine is not at rest"
        self.facts.add("everything was freed at the end")
        found = self._held_at_rest()
        return found and replace(found, command_index=self.num_commands - 1)

    def _held_at_rest(self) -> Violation | None:
        """What is lost is named wherever an engine rests, before too little is left for others."""
        return self._blocks_lost() or self._requests_left()

    def _numbered(self, violation: Violation) -> Violation:
        abandon = getattr(self.target, "poolproof_abandon", None)
        if callable(abandon):
            abandon()
        return replace(violation, command_index=self.num_commands - 1)

    def _call(self, command: Command, *arguments: Any, **named: Any) -> Any:
        """Call the target. Raises ViolationError if it raises."""
        try:
            return getattr(self.target, ENGINE_METHODS[command.verb])(*arguments, **named)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error

    def _submit(self, command: Submit) -> None:
        self._got_on()
        self.num_idle_plans = 0
        self._call(
            command,
            command.request_id,
            list(command.chain.tokens),
            max_new_tokens=command.max_new_tokens,
            priority=command.priority,
            extra_keys=command.chain.extra_keys(),
        )
        self.facts.on_submit(self.model, command)
        self.model.submit(command)

    def _cancel(self, command: Cancel) -> None:
        self._got_on()
        self.facts.on_cancel(self.model, command.request_id)
        self._call(command, command.request_id)
        request = self.model.requests[command.request_id]
        if self.profile.cancelled_outputs == "one-more" and request.began:
            self._lingering[command.request_id] = None
        self.model.cancel(request)

    def _reset(self, command: Reset) -> None:
        """An engine that says yes keeps nothing: the weights may be others from now on."""
        if self._call(command) is True:
            self.facts.on_reset(self.model)
            for oracle in self._oracles:
                oracle.void()
            self._tables.clear()
            self._got_on()
            self.model.reset()
            self.facts.add("what was cached was reset")

    def _got_on(self) -> None:
        """Whatever was waited for before says nothing of what is to come."""
        self._num_unserved = self._num_empty = 0
        self._num_loads = [0] * self.profile.ranks

    def _plan(self, command: PlanStep) -> None:
        answer = self._call(command)
        try:
            plan = plan_from(answer)
        except PlanError as error:
            raise ViolationError(unreadable_answer(command, str(error))) from error
        self.last.plan = plan
        self._judge_plan(plan)
        self._judge_progress(plan)
        self.facts.on_plan(self.model, plan)
        step = self.model.planned(plan)
        for number in self._lingering.keys() & step.samples.keys():
            self._lingering[number] = self._lingering[number] or step

    def _judge_plan(self, plan: EnginePlan) -> None:
        model, report = self.model, self.invariants.report
        live = model.live.keys() | self._lingering.keys()
        known, instances = model.requests.keys(), self.profile.instances
        report(plan_names_live_requests(plan, known, live, instances))
        chains = [model.requests[part.request_id].chain for part in plan.parts]
        report(plan_keeps_limits(plan, self.profile, {chain.lora for chain in chains} - {None}))
        begun = [number for number, request in model.live.items() if request.began]
        report(plan_keeps_promises(plan, begun, self.profile))
        if self.profile.encoder_cache_tokens:
            self._judge_images(plan, chains)
        report(plan_names_blocks(plan, model.num_blocks, model.transfer_ids()))
        report(plan_zeroes_blocks(plan, model.num_blocks))
        report(transfers_can_end(plan, hears_of_ends="arrive" in self.can.verbs))
        report(transfers_name_ranks(plan, self.profile.ranks))
        for part in plan.parts:
            request = model.requests[part.request_id]
            assumed = model.num_tokens_assumed(request)
            report(part_computes_known_tokens(part, assumed, self.profile))
            report(part_has_blocks(part, self.profile, model.block_sizes, model.num_blocks))
            self._states.judge_plan(part)

    def _judge_images(self, plan: EnginePlan, chains: list[TokenChain]) -> None:
        kept = self.model.encoded_after(plan)
        report = self.invariants.report
        report(plan_encodes_images(plan, self.model.image_sizes, kept, self.profile))
        for part, chain in zip(plan.parts, chains):
            report(part_has_images(part, chain, kept))

    def _judge_progress(self, plan: EnginePlan) -> None:
        model = self.model
        if model.is_idle and not plan.parts:
            self.num_idle_plans += 1
        is_busy = any(step.plan.parts for step in model.in_flight)
        is_quiet = not (plan.parts or plan.transfers or is_busy or model.transfers)
        self._num_empty = self._num_empty + 1 if is_quiet else 0
        self._num_unserved += bool(plan.parts)
        waiting = list(model.live)
        self.invariants.report(plans_go_on(self._num_empty, waiting))
        num_tokens = sum(len(request.tokens) for request in model.live.values())
        self.invariants.report(users_are_served(self._num_unserved, waiting, num_tokens))
        self.invariants.report(loads_get_on(max(self._num_loads), waiting, num_tokens))

    def _answer(self, command: AnswerStep) -> None:
        step, executed = self.model.execute(command)
        # A request that was cancelled has now sampled once more, and is not computed again.
        self._lingering = {n: last for n, last in self._lingering.items() if last is not step}
        self._flush(step)
        uses = self._states.of_step(executed)
        executed = self._without_spoilt(step, executed, uses)
        self.last.executed = executed
        self.last.uses = uses
        self._carry_out(step, executed, uses)
        self.model.computed(step)
        tokens = {e.part.request_id: list(e.sampled) for e in executed if e.sampled}
        self._deliver(command, step, executed, tokens)

    def _without_spoilt(
        self, step: PlannedStep, executed: list[Executed], uses: Uses
    ) -> list[Executed]:
        """Who reads what failed to load in this step gets nothing, and nobody looks at it."""
        failed = {b for t in step.plan.transfers if t.fails for b in t.blocks}
        if not failed:
            return executed
        firsts = [
            first_read(e, self.model, failed, uses.get(e.part.request_id, ())) for e in executed
        ]
        return [
            e if first is None else e.spoilt(first)
            for e, first in zip(executed, firsts, strict=True)
        ]

    def _run(self, command: RunStep) -> None:
        self._plan(PlanStep())
        self._answer(command.answer)

    def _carry_out(
        self,
        step: PlannedStep,
        executed: list[Executed],
        uses: Uses,
    ) -> None:
        """The worker's part: moves, writes and reads."""
        self._num_steps += 1
        plan = step.plan
        moved = [transfer for transfer in plan.transfers if transfer.waits and not transfer.fails]
        for transfer in moved:
            self.facts.on_transfer(transfer, is_lost=False)
        computed = tuple(self._computed(step, e, uses.get(e.part.request_id, ())) for e in executed)
        found = []
        for rank, oracle in enumerate(self._oracles):
            mine = [transfer for transfer in moved if transfer.rank in (None, rank)]
            record = StepRecord(
                self._num_steps,
                computed,
                plan.copies,
                loads=tuple(p for t in mine if t.is_load for p in zip(t.blocks, t.places)),
                stores=tuple(p for t in mine if not t.is_load for p in zip(t.blocks, t.places)),
                zeroes=plan.zeroes,
            )
            found += [(rank, wrong) for wrong in oracle.record(record)]
        for e in executed:
            if e.is_spoilt:  # What it reads from now on is told anew, with its tokens.
                self.facts.add("a step was computed for nothing, since its load had failed")
                del self._tables[e.part.request_id]
        for rank, wrong in found:
            is_own = wrong.writer == wrong.reader
            where = f"on rank {rank}, " if self.profile.ranks > 1 else ""
            self.invariants.report(
                step_reads_own_prefix(where + wrong.sentence(), wrong.block, is_own=is_own)
            )

    def _computed(
        self, step: PlannedStep, executed: Executed, uses: tuple[StateUse, ...]
    ) -> ComputedTokens:
        part = executed.part
        if step.is_void:
            return self._computed_before_reset(executed, uses)
        request = self.model.requests[part.request_id]
        known = self._tables.get(part.request_id)
        self._tables[part.request_id] = part.blocks
        added = _added(known, part.blocks)
        return ComputedTokens(
            sequence_name(part.request_id),
            replace(request.chain, tokens=executed.tokens),
            executed.first,
            part.count,
            part.blocks if added is None else added,
            added is None,
            executed.is_read,
            uses,
        )

    def _computed_before_reset(
        self, executed: Executed, uses: tuple[StateUse, ...]
    ) -> ComputedTokens:
        """What a step in flight writes after a reset is nobody's: of the weights before it.

        Nobody goes on from what the step reads if the reset preempts, or where the request had lost
        its blocks before.
        """
        part = executed.part
        chain = self.model.requests[part.request_id].chain
        return ComputedTokens(
            sequence_name(part.request_id),
            replace(chain, tokens=executed.tokens, weights="before a reset"),
            executed.first,
            part.count,
            part.blocks,
            True,
            executed.is_read and not executed.is_stale and self.profile.reset == "idle",
            uses,
        )

    def _deliver(
        self,
        command: AnswerStep,
        step: PlannedStep,
        executed: list[Executed],
        tokens: dict[int, list[int]],
    ) -> None:
        """The engine gets the results, and gives users theirs."""
        model = self.model
        drafts = self._drafts(command, executed)
        answer = self._call(command, tokens, drafts)
        try:
            outputs = outputs_from(answer)
        except PlanError as error:
            raise ViolationError(unreadable_answer(command, str(error))) from error
        self.last.outputs = outputs
        due: dict[int, Due] = {
            e.part.request_id: (e.due, e.ends, e.part.request_id in step.may_drop)
            for e in executed
            if e.due
        }
        may_come = self.profile.cancelled_outputs != "none"
        # What is sampled behind the other parts is nobody's, though another instance may be given
        # tokens for their requests in the same step.
        ours = [e for e in executed if not e.part.discards]
        late = {e.part.request_id: model.late(e) for e in ours if may_come}
        may_end = model.live if self.profile.failed_loads == "may-end-requests" else ()
        self.invariants.report(outputs_are_due(outputs, due, late, may_end))
        given = {request_id: got for request_id, got, _ in outputs}
        if any(given.values()):
            self._num_unserved = 0
            self._num_loads = [0] * self.profile.ranks
        self.facts.on_answer(model, step, executed)
        for request_id, got, ends in outputs:
            if ends and not got and request_id in may_end:
                self.facts.add("a request ended because its load had failed")
                model.end(model.requests[request_id])
        for e in ours:
            request_id = e.part.request_id
            model.deliver(e, given.get(request_id, ()), len(drafts.get(request_id, ())))

    def _drafts(self, command: AnswerStep, executed: list[Executed]) -> dict[int, list[int]]:
        """What each request that goes on is given to try in its next step."""
        most = min(command.num_drafts, self.profile.draft_tokens)
        return {
            e.part.request_id: list(
                self.model.drafts_after(self.model.requests[e.part.request_id], e.due, most)
            )
            for e in executed
            if e.due and not e.ends and most
        }

    def _arrive(self, command: Arrive) -> None:
        is_lost = bool(command.is_lost)
        transfer = self.model.end_transfer(command.place, is_done=not is_lost)
        self._num_unserved = self._num_empty = self.num_idle_plans = 0
        if not is_lost:
            for rank in self._ranks_of(transfer) if transfer.is_load else ():
                self._num_loads[rank] += 1
            self._move(transfer, len(transfer.blocks))
        elif command.num_moved:
            self._move(transfer, command.num_moved)
        self.facts.on_transfer(transfer, is_lost=is_lost, num_moved=command.num_moved)
        self._call(command, transfer.transfer_id, not is_lost)

    def _repeat(self, command: Repeat) -> None:
        """Nothing is moved: the engine only hears of it again."""
        transfer, is_done = self.model.ended[-1 - command.before_last]
        self.num_idle_plans = 0
        self.facts.on_repeat()
        self._call(command, transfer.transfer_id, is_done)

    def _move(self, transfer: Transfer, num_blocks: int) -> None:
        """The first blocks of a transfer, on its rank or on all."""
        pairs = list(zip(transfer.blocks, transfer.places))[:num_blocks]
        for rank in self._ranks_of(transfer):
            if transfer.is_load:
                self._oracles[rank].load(pairs)
            else:
                self._oracles[rank].store(pairs)

    def _ranks_of(self, transfer: Transfer) -> Sequence[int]:
        return range(self.profile.ranks) if transfer.rank is None else (transfer.rank,)

    def _flush(self, step: PlannedStep) -> None:
        """What the worker waits for before it computes the step ends now."""
        flushed = set(step.plan.flushes)
        self.model.begin(t for t in step.plan.transfers if t.follows and t.transfer_id in flushed)
        for transfer_id in step.plan.flushes:
            if transfer_id in self.model.transfers:
                self._arrive(Arrive(list(self.model.transfers).index(transfer_id), 0))
                self.facts.add("a step waited for a transfer in flight")

    def _blocks_lost(self) -> Violation | None:
        if not self.can.sees("num_free"):
            return None
        try:
            return all_free_at_end(read_count(self.target.num_free), self._num_usable, 0)
        except ViolationError as unreadable:
            return unreadable.violation

    def _requests_left(self) -> Violation | None:
        if not self.can.sees("unfinished"):
            return None
        try:
            left = read_list(self.target.unfinished, "a list of requests")
        except ViolationError as unreadable:
            return unreadable.violation
        if not left:
            return None
        return Violation(
            "LEAK",
            Severity.LEAK,
            f"every request has ended, and the engine still has {len(left)} of them",
        )


def _added(known: Tables | None, tables: Tables) -> Tables | None:
    """What was added at the end of each table; None where anything else has changed."""
    if known is None or any(
        table[: len(before)] != before for before, table in zip(known, tables, strict=True)
    ):
        return None
    return tuple(table[len(before) :] for before, table in zip(known, tables, strict=True))
