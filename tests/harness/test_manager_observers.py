"""What a manager shows in ways of its own: arrays, compiled methods, reports, other orders."""

import pytest

from poolproof.bugs.clean_manager import CleanManager, CleanSwappingManager
from poolproof.bugs.manager_oddities import ReportingManager
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit, AppendTokens, Finish, Fork, Step, Truncate
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.manager_workload import ManagerWorkload
from poolproof.reference.manager_legality import undefined_for_manager

A3 = Admit(0, TokenChain((1, 2, 3)), 0)


class Array:
    """Integers that are compared element by element, as numpy's are: no truth value follows."""

    def __init__(self, items):
        self.items = list(items)

    def __iter__(self):
        return iter(self.items)

    def __eq__(self, other):
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None


def session_of(cls, num_blocks=6, **rows):
    profile = ManagerProfile.from_mapping(rows)
    return ManagerSession(cls(num_blocks, 2, rules=profile), profile, num_blocks, 2)


def campaign_of(cls, **rows):
    profile = ManagerProfile.from_mapping(rows)
    return ManagerCampaign(
        "x", lambda n, caching: cls(n, 4, enable_caching=caching, rules=profile), profile, 4
    )


def test_tables_orders_and_copies_may_be_arrays(run):
    class Arrays(CleanManager):
        def block_table(self, seq_id, group=0):
            return Array(super().block_table(seq_id))

        def free_order(self):
            return Array(super().free_order())

        def append(self, seq_id, tokens):
            return Array(super().append(seq_id, tokens))

    commands = A3, Step(), Fork(0, 1), AppendTokens(0, (4,)), Step(), Finish(0), Finish(1)
    session = session_of(Arrays)
    assert run(session, *commands) is None
    assert "a block was copied on write" in session.facts
    assert session.end() is None


def test_an_order_that_is_no_list_any_more_is_a_finding(run):
    class Forgets(CleanManager):
        def free_order(self):
            return None if self.sequences else super().free_order()

    violation = run(session_of(Forgets), A3)
    assert violation.sentence.startswith("free_order() answered None; it must answer")


def test_a_table_that_cannot_be_read_any_more_is_a_finding(run):
    class Compiled(CleanManager):
        """Its method leaves no frame in a traceback that would tell whose it was."""

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.shown = {}
            self.block_table = self.shown.__getitem__

        def admit(self, seq_id, tokens, **named):
            answer = super().admit(seq_id, tokens, **named)
            self.shown[seq_id] = self.sequences[seq_id].table
            return answer

        def step(self, batch):
            super().step(batch)
            self.shown.clear()

    violation = run(session_of(Compiled), A3, Step())
    assert violation.invariant == "CRASH"
    assert violation.sentence.endswith("is legal here but raised KeyError: 0")


@pytest.mark.parametrize("num_free", [CleanSwappingManager.num_free, None])
def test_a_host_count_is_a_number_and_right_from_the_beginning(num_free):
    class Uncounted(CleanSwappingManager):
        def num_free_host(self):
            return None

    class Wrong(CleanSwappingManager):
        def num_free_host(self):
            return 1

    Uncounted.num_free = Wrong.num_free = num_free
    assert session_of(Uncounted, host_blocks=2).first_look().invariant == "CRASH"
    assert session_of(Wrong, host_blocks=2).first_look().invariant == "OWN"


def test_the_null_block_is_never_cached(run):
    class Caches(CleanManager):
        def is_cached(self, block_id):
            return block_id == 0 or super().is_cached(block_id)

    violation = run(session_of(Caches, null_block=0), A3)
    assert violation.invariant == "IDX"
    assert "block 0" in violation.sentence


def test_who_frees_in_any_order_is_not_held_to_one(run):
    class HeadFirst(CleanManager):
        def _give_back(self, sequence):
            self._free(sequence.table)

    commands = (
        Admit(0, TokenChain((1, 2, 3, 4)), 0),
        Step(),
        Finish(0),
        Admit(1, TokenChain((5,)), 0),
    )
    assert run(session_of(HeadFirst), *commands).invariant == "ORD"
    assert run(session_of(HeadFirst, release_order="unspecified"), *commands) is None


def test_a_worker_hears_of_a_copy_before_it_reads_the_next_time(run):
    commands = (
        A3, Step(), Fork(0, 1), Truncate(0, 1), Finish(1), Admit(2, TokenChain(range(7, 17)), 0),
        Step(), AppendTokens(0, (5,)), Step(),
    )  # fmt: skip
    session = session_of(ReportingManager)
    assert run(session, *commands) is None
    assert session.model.sequences[0].num_computed == 2


@pytest.mark.some(0)
def test_only_legal_commands_are_driven_at_the_end_of_a_run(monkeypatch):
    drained, seen = ManagerWorkload.drain, []

    def drain(self):
        command = drained(self)
        if command is not None:
            seen.append(undefined_for_manager(self.model, command))
        return command

    monkeypatch.setattr(ManagerWorkload, "drain", drain)
    campaign = campaign_of(CleanManager, publishes="scheduled", same_step_hit="allowed")
    assert all(campaign.run(number).trace is None for number in range(120))
    assert seen
    assert not any(seen)
