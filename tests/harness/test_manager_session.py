"""A manager session: what is right passes, what a target spoils is named."""

import pytest

from poolproof.bugs.clean_manager import CleanManager
from poolproof.contract.commands import Reset
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Abort,
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Fork,
    Load,
    Loaded,
    LookupPrefix,
    Preempt,
    Resume,
    Schedule,
    Step,
    Truncate,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity
from poolproof.harness.manager_session import ManagerSession

BLOCK_SIZE = 2


def session_of(cls=CleanManager, num_blocks=6, *, caching=True, check_every=1, **rows):
    profile = ManagerProfile.from_mapping({"index": "exact", **rows})
    manager = cls(num_blocks, BLOCK_SIZE, enable_caching=caching, rules=profile)
    return ManagerSession(
        manager,
        profile,
        num_blocks,
        BLOCK_SIZE,
        enable_caching=caching,
        check_every=check_every,
    )


def run(session, *commands):
    """The first violation, or None; every command but the last has to be legal and right."""
    for place, command in enumerate(commands):
        assert session.is_defined(command), command
        violation = session.step(command)
        if violation is not None:
            assert place == len(commands) - 1, (command, violation)
            return violation
    return None


def chain(*tokens, **setting):
    return TokenChain(tokens, **setting)


A3 = Admit(0, chain(1, 2, 3), 0)


def test_a_life_passes_and_leaves_its_facts():
    session = session_of(num_blocks=8)
    assert session.first_look() is None
    commands = (
        A3, Step(), AppendTokens(0, (4,)), Draft(0, (5, 6)), Step(), Accept(0, 1),
        LookupPrefix(chain(1, 2, 3)), Admit(1, chain(1, 2, 3, 4, 9, 9, 9), 1), Step(),
        Schedule(1, 1),
        Step(), Preempt(1), Resume(1, 0), Step(), Fork(1, 2), AppendTokens(2, (1,)),
        Step(), Truncate(0, 1), AppendTokens(0, (7,)), Step(), Load(3, chain(8, 8, 8), 2),
        Abort(3), Loaded(3), Finish(0), Abort(1), Finish(2), Finish(2), Abort(99), Reset(),
    )  # fmt: skip
    assert run(session, *commands) is None
    assert session.nobody_holds()
    assert session.end() is None
    for fact in (
        "a sequence was forked",
        "a block was copied on write",
        "drafts were rejected",
        "a prefix was found in the cache",
        "a resumed sequence found its own blocks",
        "a tail was cut off",
        "a sequence was ended while its KV was being loaded",
        "a sequence was ended a second time or before it was admitted",
        "the cache was reset",
    ):
        assert fact in session.facts


def test_refusals_are_right_and_change_nothing():
    session = session_of(num_blocks=3)
    run(session, Admit(0, chain(1, 2, 3, 4), 0))
    assert run(session, Admit(1, chain(5, 6, 7), 0)) is None
    assert session.calls.refused
    assert session.calls.answer == "later"
    assert run(session, Admit(2, chain(*range(9)), 0)) is None
    assert session.calls.answer == "never"
    assert run(session, AppendTokens(0, (5, 6, 7))) is None
    assert session.calls.answer == "later"
    assert session.model.sequences[0].tokens == (1, 2, 3, 4)
    assert run(session, Reset()) is None
    assert session.facts >= {"an admission was refused", "a growth was refused"}


def spoiled(**methods):
    return type("Spoiled", (CleanManager,), methods)


def answering(name, answer):
    """A manager one of whose methods answers something else, after it has done its work."""

    def method(self, *arguments, **named):
        getattr(CleanManager, name)(self, *arguments, **named)
        return answer

    return spoiled(**{name: method})


@pytest.mark.parametrize("answer", [None, "soon", 7, -1, 2.5, [1]])
def test_an_admission_has_to_answer_a_count_or_a_word(answer):
    violation = run(session_of(answering("admit", answer)), A3)
    assert (violation.invariant, violation.command_index) == ("CRASH", 0)
    assert "must answer" in violation.sentence


def test_a_whole_hit_leaves_nothing_to_compute():
    violation = run(session_of(answering("admit", 3)), A3)
    assert (violation.invariant, violation.severity) == ("ADM", Severity.STALL)


@pytest.mark.parametrize("answer", ["soon", [3], [(0, "x")], 5])
def test_a_growth_has_to_answer_copies_or_a_word(answer):
    session = session_of(answering("append", answer))
    violation = run(session, A3, Step(), AppendTokens(0, (4,)))
    assert violation.invariant == "CRASH"


@pytest.mark.parametrize(
    ("table", "invariant", "words"),
    [
        ([0, 9], "I2", "no block"),
        ([0, -1], "I2", "no block"),
        ([0], "ADM", "the kernel writes beyond it"),
        ([0, 1, 2], "ADM", "but its tokens need 2"),
        ([0, 0], "I2", "which it holds already"),
        ([1, 2], "ORD", "free queue begins with [0, 1]"),
        (None, "CRASH", "must answer a list of block ids"),
        (["a", "b"], "CRASH", "must answer a list of block ids"),
    ],
)
def test_a_wrong_table_is_named(table, invariant, words):
    cls = spoiled(block_table=lambda self, seq_id, group=0: table)
    violation = run(session_of(cls), A3)
    assert violation.invariant == invariant
    assert words in violation.sentence


def test_a_table_may_be_a_tuple():
    cls = spoiled(
        block_table=lambda self, seq_id, group=0: tuple(CleanManager.block_table(self, seq_id))
    )
    session = session_of(cls)
    assert session.step(A3) is None


def test_a_block_of_somebody_else_is_named_with_its_holder():
    class Thief(CleanManager):
        def block_table(self, seq_id, group=0):
            table = list(super().block_table(seq_id))
            return [0, *table[1:]] if seq_id == 1 else table

    violation = run(session_of(Thief), A3, Admit(1, chain(5), 0))
    assert (violation.invariant, violation.severity) == ("I2", Severity.WRONG_DATA_OF_ANOTHER)
    assert "which A still holds" in violation.sentence


def test_a_table_that_changes_under_a_sequence_is_named():
    class Renumbers(CleanManager):
        def admit(self, seq_id, tokens, **named):
            answer = super().admit(seq_id, tokens, **named)
            if seq_id == 1:
                self.sequences[0].table[0] = 5
            return answer

    violation = run(session_of(Renumbers), A3, Admit(1, chain(5), 0))
    assert violation.invariant == "I2"
    assert "the table of A was [0, 1] and is [5, 1] now" in violation.sentence


def test_a_shrinking_table_is_named():
    class Shrinks(CleanManager):
        def append(self, seq_id, tokens):
            answer = super().append(seq_id, tokens)
            del self.sequences[seq_id].table[1:]
            return answer

    violation = run(session_of(Shrinks), A3, Step(), AppendTokens(0, (4,)))
    assert violation.invariant in ("I2", "ADM")


def test_a_hit_on_a_block_of_other_content_is_wrong_data_of_another():
    class Confused(CleanManager):
        def _hits(self, sequence):
            return [1] if sequence.seq_id == 1 else []

    violation = run(session_of(Confused), A3, Step(), Admit(1, chain(7, 8, 9), 0))
    assert (violation.invariant, violation.severity) == ("DATA", Severity.WRONG_DATA_OF_ANOTHER)
    assert "B reads at position 0 (block 1, slot 0) KV that was computed for A" in (
        violation.sentence
    )
    assert "wanted <7>, found <1 2 3>" in violation.sentence


def test_a_hit_that_is_lost_is_named():
    class Forgets(CleanManager):
        def _hits(self, sequence):
            return []

    violation = run(session_of(Forgets), A3, Step(), LookupPrefix(chain(1, 2, 9)))
    assert (violation.invariant, violation.severity) == ("I4", Severity.LOST_HIT)
    assert run(session_of(Forgets, hits="sound"), A3, Step(), LookupPrefix(chain(1, 2, 9))) is None


def test_keys_that_outlive_a_reset_are_named():
    class Remembers(CleanManager):
        is_cached = None

        def reset(self):
            return not self.sequences

    violation = run(
        session_of(Remembers), A3, Step(), Finish(0), Reset(), Admit(1, chain(1, 2, 9), 0)
    )
    assert violation.invariant == "IDX"
    assert "only 0 are in the index" in violation.sentence


@pytest.mark.parametrize("held", [True, False])
def test_a_reset_answers_whether_it_was_done(held):
    cls = spoiled(reset=lambda self: held)
    ending = () if held else (Finish(0),)
    violation = run(session_of(cls), A3, Step(), *ending, Reset())
    assert (violation.invariant, violation.severity) == (
        ("ATOM", Severity.WRONG_DATA_OF_ANOTHER) if held else ("IDX", Severity.FALSE_REFUSAL)
    )


@pytest.mark.parametrize("answer", ["later", "never"])
def test_what_fits_is_not_refused(answer):
    cls = spoiled(admit=lambda self, seq_id, tokens, **named: answer)
    violation = run(session_of(cls), A3)
    assert (violation.invariant, violation.severity) == ("ADM", Severity.FALSE_REFUSAL)


def test_what_never_fits_is_not_told_to_wait():
    cls = spoiled(admit=lambda self, seq_id, tokens, **named: "later")
    long = Admit(0, chain(*range(13)), 0)
    assert run(session_of(cls), long).severity is Severity.STALL
    assert run(session_of(cls, never="untold"), long) is None
    assert run(session_of(cls, admission="sound"), long) is None


def test_a_growth_that_fits_is_not_refused():
    cls = spoiled(append=lambda self, seq_id, tokens: "later")
    assert run(session_of(cls), A3, Step(), AppendTokens(0, (4,))).severity is (
        Severity.FALSE_REFUSAL
    )
    assert run(session_of(cls, admission="sound"), A3, Step(), AppendTokens(0, (4,))) is None


def test_admission_can_be_exact_where_growth_is_not():
    """As in vLLM V0, which keeps a block free for each running sequence."""
    rows = {"admission": "exact-at-admission"}
    refuses_growth = spoiled(append=lambda self, seq_id, tokens: "later")
    assert run(session_of(refuses_growth, **rows), A3, Step(), AppendTokens(0, (4,))) is None
    refuses_all = spoiled(admit=lambda self, seq_id, tokens, **named: "later")
    assert run(session_of(refuses_all, **rows), A3).severity is Severity.FALSE_REFUSAL


def test_a_cut_or_a_fork_that_fits_is_not_refused():
    cut = spoiled(truncate=lambda self, seq_id, num_tokens: "later")
    assert run(session_of(cut), A3, Step(), Truncate(0, 1)).severity is Severity.FALSE_REFUSAL
    fork = spoiled(fork=lambda self, seq_id, child_id: "later")
    assert run(session_of(fork), A3, Step(), Fork(0, 1)).severity is Severity.FALSE_REFUSAL
    full = session_of(fork, num_blocks=2)
    assert run(full, A3, Step(), Fork(0, 1)) is None


def test_the_watermark_has_to_be_kept():
    class Ignores(CleanManager):
        def _fits(self, needed, hits):
            return needed <= self.pool.num_free()

    violation = run(session_of(Ignores, num_blocks=2, watermark_blocks=1), A3)
    assert violation.invariant == "ADM"
    assert "watermark" in violation.sentence


def test_a_refusal_that_changes_the_state_breaks_atom():
    class Leaks(CleanManager):
        def append(self, seq_id, tokens):
            answer = super().append(seq_id, tokens)
            if answer == "later":
                self.pool.allocate(1)
            return answer

    violation = run(session_of(Leaks, num_blocks=3), A3, AppendTokens(0, (4, 5, 6, 7, 8)))
    assert violation.invariant == "ATOM"


def test_a_block_that_is_lost_is_named_when_it_is_lost():
    class Loses(CleanManager):
        def _release(self, sequence):
            sequence.table = sequence.table[:1]
            super()._release(sequence)

    violation = run(session_of(Loses), A3, Step(), Finish(0))
    assert violation.invariant in ("I1", "OWN")


def test_counting_alone_shows_a_leak_at_the_end():
    class Loses(CleanManager):
        free_order = ref_count = is_cached = None

        def num_free(self):
            return super().num_free() - (not self.sequences and bool(self.lost))

        lost = False

    session = session_of(Loses)
    run(session, A3, Step(), Finish(0))
    session.target.lost = True
    assert session.end().invariant == "LEAK"


@pytest.mark.parametrize(("spoil", "invariant"), [(True, "IDX"), (False, "I4")])
def test_what_is_cached_is_what_the_model_knows(spoil, invariant):
    cls = spoiled(is_cached=lambda self, block_id: spoil)
    session = session_of(cls)
    violation = run(session, A3) if spoil else run(session, A3, Step())
    assert violation.invariant == invariant


def test_a_manager_that_raises_in_the_middle_is_a_finding():
    def explode(self, seq_id, tokens):
        raise RuntimeError("no slot")

    violation = run(session_of(spoiled(append=explode)), A3, Step(), AppendTokens(0, (4,)))
    assert violation.invariant == "CRASH"
    assert "append_tokens(0, [4]) is legal here but raised RuntimeError: no slot" in (
        violation.sentence
    )
    assert any("explode" in frame for frame in violation.frames)


def test_an_observer_that_raises_is_a_finding():
    def explode(self):
        raise RuntimeError("no count")

    session = session_of(spoiled(num_free=explode))
    assert session.first_look().invariant == "CRASH"
    assert session.step(A3).invariant == "CRASH"


def test_an_observer_that_exits_is_a_finding():
    def leave(self):
        raise SystemExit

    assert session_of(spoiled(num_free=leave)).first_look().invariant == "CRASH"


def test_a_mistake_of_ours_is_raised(monkeypatch):
    session = session_of()
    monkeypatch.setattr(session, "tables", None)
    with pytest.raises(AttributeError):
        session.step(A3)


def test_two_reads_that_differ_are_a_finding():
    class Flickers(CleanManager):
        reads = 0

        def num_free(self):
            Flickers.reads += 1
            return super().num_free() - (Flickers.reads == 2)

        free_order = None

    session = session_of(Flickers)
    found = [session.step(A3), session.step(Step()), session.step(Finish(0))]
    assert [v.invariant for v in found if v is not None] == ["CRASH"]


def test_a_list_that_is_passed_is_taken_back():
    class Keeps(CleanManager):
        def append(self, seq_id, tokens):
            self.kept = tokens
            return super().append(seq_id, list(tokens))

    session = session_of(Keeps)
    run(session, A3, Step(), AppendTokens(0, (4,)))
    assert session.target.kept == []


def test_a_large_manager_is_checked_now_and_then():
    class Wrong(CleanManager):
        def num_free(self):
            return super().num_free() + 1

    session = session_of(Wrong, check_every=3)
    assert [session.step(c) is None for c in (A3, Step(), AppendTokens(0, (1,)))] == [
        True, True, False,
    ]  # fmt: skip
