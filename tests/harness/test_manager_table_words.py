"""A table that changed wrongly: the sentence says what would have had to allow it."""

import pytest

from poolproof.bugs.clean_groups import CleanWindowManager
from poolproof.bugs.clean_manager import CleanManager
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Admit,
    AppendTokens,
    Draft,
    Fork,
    Schedule,
    Step,
)
from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.harness.manager_session import ManagerSession
from poolproof.reference.native_manager import NativeSequenceManager

SLIDING = ManagerProfile(groups=(CacheGroup("sliding", window=4),), null_block=0)
FORKED = (Admit(0, TokenChain((1, 2, 3)), 0), Step(), Fork(0, 1))


def shows(manager, tables, answers=None):
    """The class of a manager that shows other tables, and answers its last call otherwise."""
    answers = answers or {}

    class Shows(manager):
        last = ""

        def block_table(self, seq_id):
            right = super().block_table(seq_id)
            return tables.get((self.last, seq_id), right)

    for verb in ("admit", "append", "fork", "step", "finish", "accept", "draft", "schedule"):
        setattr(Shows, verb, _spoken(verb, answers))
    return Shows


def _spoken(verb, answers):
    def method(self, *arguments, **named):
        right = getattr(super(type(self), self), verb)(*arguments, **named)  # one class deep
        self.last = verb
        return answers.get(verb, right)

    return method


def last_of(cls, commands, profile=None, num_blocks=8, block_size=2):
    """What the last of some commands shows; all before it are right."""
    profile = profile or ManagerProfile()
    target = cls(num_blocks, block_size, rules=profile)
    session = ManagerSession(target, profile, num_blocks, block_size)
    *before, last = commands
    for command in before:
        assert session.step(command) is None, command
    found = session.step(last)
    assert (found.invariant, found.severity.value) == ("I2", "wrong-data-of-another")
    return found.sentence


@pytest.mark.parametrize(
    ("copies", "shown", "why"),
    [
        ([(1, 2), (2, 3)], 3,
         ("the copies 1->2, 2->3 take block 1 to 2 and not to 3, since copies of one answer happen "
         "at once")),
        ([(1, 4), (4, 6)], 6,
         ("the copies 1->4, 4->6 take block 1 to 4 and not to 6, since copies of one answer happen "
         "at once")),
        ([(1, 2)], 3, "the copies 1->2 take block 1 to 2 and not to 3"),
        ([(1, 2), (1, 4)], 3, "the copies 1->2, 1->4 take block 1 to 2 and 4 and not to 3"),
        ([(0, 2)], 3, "the copies 0->2 take block 1 nowhere"),
        ([], 3, "no copy was ordered from block 1 to block 3, which entry 1 names"),
    ],
)  # fmt: skip
def test_an_entry_that_no_copy_reaches_says_where_the_copies_go(copies, shown, why):
    cls = shows(CleanManager, {("append", 1): [0, shown]}, {"append": copies})
    sentence = last_of(cls, (*FORKED, AppendTokens(1, (4,))))
    assert sentence == f"the table of B was [0, 1] and is [0, {shown}] now: {why}"


@pytest.mark.parametrize("verb", ["append", "draft", "schedule"])
def test_a_block_let_go_inside_the_window_says_what_is_still_read(verb):
    size = 4 if verb == "schedule" else 0
    command = {
        "append": AppendTokens(0, (7, 8)), "draft": Draft(0, (7, 8)), "schedule": Schedule(0, 2),
    }[verb]  # fmt: skip
    admit = Admit(0, TokenChain((1, 2, 3, 4, 5, 6) if size else (1, 2, 3, 4)), size)
    cls = shows(CleanWindowManager, {(verb, 0): [0, 2, 3]})
    sentence = last_of(cls, (admit, Step(), command), SLIDING)
    assert sentence == (
        "the table of A was [1, 2] and is [0, 2, 3] now: block 1 was let go at entry 0, but the "
        "next token reads every position from 1 on"
    )


def test_a_block_that_moved_inside_the_window_says_what_is_still_read():
    cls = shows(CleanWindowManager, {("append", 0): [0, 1]})
    sentence = last_of(
        cls, (Admit(0, TokenChain((1, 2)), 0), Step(), AppendTokens(0, (3,))), SLIDING
    )
    assert sentence == (
        "the table of A was [1] and is [0, 1] now: block 1 was let go at entry 0, but the next "
        "token reads every position from 0 on"
    )


@pytest.mark.parametrize(
    ("verb", "command"), [("step", Step()), ("admit", Admit(2, TokenChain((7,)), 0))]
)
def test_a_table_that_a_command_has_no_part_in_is_named_with_the_command(verb, command):
    cls = shows(CleanManager, {(verb, 1): [0, 5]})
    sentence = last_of(cls, (*FORKED, command))
    assert sentence == f"the table of B was [0, 1] and is [0, 5] now: {command} may not change it"


def test_a_table_that_a_refused_command_changed_does_not_name_it_twice():
    cls = shows(CleanManager, {("admit", 1): [0, 2]})
    profile = ManagerProfile()
    session = ManagerSession(cls(3, 2, rules=profile), profile, 3, 2)
    for command in FORKED:
        assert session.step(command) is None
    found = session.step(Admit(2, TokenChain(tuple(range(9))), 0))
    assert found.sentence.endswith(
        "was refused and yet changed the state: the table of B was [0, 1] and is [0, 2] now"
    )


def test_in_one_of_several_groups_the_group_is_named():
    profile = ManagerProfile(groups=(CacheGroup(), CacheGroup("sliding", window=4)), null_block=0)

    class Shows(NativeSequenceManager):
        stepped = False

        def step(self, batch):
            self.stepped = True
            return super().step(batch)

        def block_table(self, seq_id, group=0):
            right = super().block_table(seq_id, group)
            return [*right[:-1], 7] if self.stepped and group else right

    session = ManagerSession(Shows(8, 2, profile=profile), profile, 8, 2)
    assert session.step(Admit(0, TokenChain((1, 2, 3)), 0)) is None
    found = session.step(Step())
    assert found.sentence.startswith("the table of A in group 1 was ")
