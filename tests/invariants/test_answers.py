"""The invariants over answers and events: what they accuse, and in which words."""

import pytest

from poolproof.contract.commands import Allocate, Cache, Free, PopLeft, PopLeftN
from poolproof.contract.content import ContentKey
from poolproof.contract.misuse import Misuse, MisuseFailure, MisuseKind, MisuseOutcome
from poolproof.contract.observation import PoolLedger
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.admission import (
    allocates_only_what_fits,
    answers_so_many_blocks,
    refuses_only_what_does_not_fit,
)
from poolproof.invariants.events import events_give_index
from poolproof.invariants.free_at_end import all_free_at_end
from poolproof.invariants.legal_calls import reads_alike
from poolproof.invariants.misuse import answers_as_promised, unchanged_by_misuse
from poolproof.invariants.ownership import host_counter_matches, usage_is_share_held
from poolproof.invariants.refusals import reset_iff_nobody_holds, unchanged_by_refusal
from poolproof.invariants.reuse_order import allocated_from_head, popped_from_head
from poolproof.invariants.stable_ids import (
    answered_list_changed,
    hands_out_free_blocks,
    keeps_answered_list,
    no_plain_id,
    remaps_each_block,
    remaps_to_carrier,
    unchanged_by_neighbour,
    whole_beside_another,
    whole_when_idle,
)
from poolproof.invariants.wording import (
    block_list,
    copy_list,
    key_name,
    number_of_blocks,
    owners,
)

A, B = b"\xaa" * 16, b"\xbb" * 16


def said(violation):
    return violation.invariant, violation.severity, violation.blocks, violation.sentence


def test_i2_free_blocks_may_be_handed_out(known):
    assert hands_out_free_blocks([4, 5], 6, known) is None
    assert hands_out_free_blocks([], 6, known) is None


@pytest.mark.parametrize("block", [6, -1, "3", 3.0, True, None])
def test_i2_only_block_ids_may_be_handed_out(known, block):
    found = hands_out_free_blocks([3, block], 6, known)
    assert said(found) == (
        "I2", Severity.CRASH, (),
        f"allocate handed out {block!r}, which is no block (ids run from 0 to 5)",
    )  # fmt: skip


def test_i2_the_null_block_may_not_be_handed_out(known):
    assert said(hands_out_free_blocks([0], 6, known)) == (
        "I2", Severity.WRONG_DATA_OF_ANOTHER, (0,),
        "allocate handed out the null block 0, which every table may point to",
    )  # fmt: skip


def test_i2_no_block_may_be_handed_out_twice(known):
    assert said(hands_out_free_blocks([3, 4, 3], 6, known)) == (
        "I2", Severity.WRONG_DATA_OF_ONES_OWN, (3,),
        "allocate handed out block 3 twice in one answer",
    )  # fmt: skip


def test_i2_a_held_block_may_not_be_handed_out(known):
    assert said(hands_out_free_blocks([4, 1], 6, known)) == (
        "I2", Severity.WRONG_DATA_OF_ANOTHER, (1,),
        ("allocate handed out block 1, which is still held by commands #2 and #5: two owners now "
        "write to it"),
    )  # fmt: skip


def test_ord_blocks_come_from_the_head():
    assert allocated_from_head((4, 3), [4, 3], "lru") is None
    assert said(allocated_from_head([3, 4], [4, 3], "lifo")) == (
        "ORD", Severity.ORDER, (3, 4),
        "allocate handed out [3, 4]; the head of the free queue under eviction=lifo is [4, 3]",
    )  # fmt: skip


def test_ord_a_difference_behind_the_first_place_is_pointed_at():
    assert said(allocated_from_head([4, 3, 5, 1], [4, 3, 1, 5], "lru")) == (
        "ORD", Severity.ORDER, (4, 3, 5, 1),
        ("allocate handed out [4, 3, 5, 1]; the head of the free queue under eviction=lru is "
        "[4, 3, 1, 5] (they differ from place 2 on)"),
    )  # fmt: skip


@pytest.mark.parametrize("handed_out", [[4], [4, 3, 5]])
def test_ord_an_answer_of_another_length_has_no_place_to_point_at(handed_out):
    found = allocated_from_head(handed_out, [4, 3], "lru")
    assert found.sentence == (
        f"allocate handed out {handed_out}; the head of the free queue under eviction=lru is [4, 3]"
    )


class Id:
    """A number as compiled modules have it: no int, with an index, equal to the int."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number

    def __eq__(self, other):
        return self.number == other

    __hash__ = None


def test_ord_a_number_of_a_compiled_module_is_an_id():
    assert popped_from_head(PopLeft(), Id(4), 4) is None
    assert popped_from_head(PopLeftN(2), [4, Id(3)], [4, 3]) is None
    assert popped_from_head(PopLeft(), Id(3), 4) is not None


def test_ord_a_queue_pops_from_its_head():
    assert popped_from_head(PopLeft(), 4, 4) is None
    assert popped_from_head(PopLeftN(2), (4, 3), [4, 3]) is None
    assert said(popped_from_head(PopLeft(), 3, 4)) == (
        "ORD", Severity.ORDER, (), "popleft() answered 3, but the head of the queue is 4"
    )  # fmt: skip


@pytest.mark.parametrize(("answer", "expected"), [(True, 1), ([True], [1]), (1.0, 1)])
def test_ord_what_only_equals_an_id_is_none(answer, expected):
    assert popped_from_head(PopLeft(), answer, expected).invariant == "ORD"


def test_i2_each_block_that_is_cached_again_is_answered_for():
    command = Cache((1, 2), (A, B))
    assert remaps_each_block(command, 2, [1, 3]) is None
    assert said(remaps_each_block(command, 2, [1])) == (
        "I2", Severity.WRONG_DATA_OF_ONES_OWN, (),
        f"{command} must answer one block for each of 2, but answered [1]",
    )  # fmt: skip


def test_i2_a_duplicate_is_replaced_by_a_carrier():
    command = Cache((1,), (A,))
    assert remaps_to_carrier(command, 1, 3, [2, 3]) is None
    assert said(remaps_to_carrier(command, 1, 4, [2, 3])) == (
        "I2", Severity.WRONG_DATA_OF_ANOTHER, (),
        f"{command} remapped block 1 to 4, which does not carry that hash",
    )  # fmt: skip


def test_i2_a_list_that_was_answered_stays_what_it_was():
    assert keeps_answered_list("allocate(2)", [1, 2], [1, 2]) is None
    found = keeps_answered_list("allocate(2)", [1, 2], [1])
    assert found.sentence.startswith("the list that allocate(2) answered was [1, 2] and is [1] now")
    assert keeps_answered_list("allocate(2)", [1, 2], [1, 3]) is not None


def test_i2_an_equal_item_is_no_change():
    # Two objects, one list: an adapter may make each number anew.
    assert keeps_answered_list("allocate(1)", [10**9], [int("1" + "0" * 9)]) is None


def test_i2_an_item_that_is_not_even_equal_to_itself_is_no_change():
    odd = float("nan")
    assert keeps_answered_list("allocate(1)", [odd], [odd]) is None


def test_i2_a_changed_list_is_told_in_the_words_of_an_adapter():
    assert said(answered_list_changed("allocate(2)", "[1, 2]", "[1]")) == (
        "I2", Severity.WRONG_DATA_OF_ANOTHER, (),
        ("the list that allocate(2) answered was [1, 2] and is [1] now: it belongs to its caller, "
        "who reads its block table from it; the pool must keep a copy of its own"),
    )  # fmt: skip


def test_i2_what_only_compares_equal_to_an_id_is_none():
    assert said(no_plain_id("allocate(1)", "[3.0]", "where 3.0 is a float")) == (
        "I2", Severity.CRASH, (),
        "allocate(1) answered [3.0], where 3.0 is a float; an id is an integer",
    )  # fmt: skip


LOST = Violation("I1", Severity.LEAK, "block 3 is lost", (3,), 7)


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        (
            whole_beside_another,
            (
                "two instances share state: one that nobody called changed with the other's calls; "
                "of the idle one, "
            ),
        ),
        (
            whole_when_idle,
            "in a second pool, where two blocks were allocated and one was cached: ",
        ),
        (
            unchanged_by_neighbour,
            "two instances share state: building and using another one changed this one; ",
        ),
    ],
)
def test_i2_what_is_wrong_in_another_instance_keeps_its_harm(judge, words):
    assert judge(None) is None
    assert judge(LOST) == Violation("I1", Severity.LEAK, f"{words}block 3 is lost", (3,), 7)


def test_own_usage_is_the_share_of_held_blocks():
    assert usage_is_share_held(0.25, 0.25) is None
    assert usage_is_share_held(1e-9, 0.0) is None
    assert said(usage_is_share_held(0.5, 0.25)) == (
        "OWN", Severity.FALSE_REFUSAL, (),
        "usage() answered 0.5, but the share of held blocks is 0.25",
    )  # fmt: skip
    assert usage_is_share_held(float("nan"), 0.25) is not None
    assert usage_is_share_held("half", 0.5) is not None


@pytest.mark.parametrize(
    ("shown", "severity"), [(1, Severity.LEAK), (3, Severity.WRONG_DATA_OF_ANOTHER)]
)
def test_own_the_counter_of_host_memory_counts_what_nobody_holds(shown, severity):
    assert host_counter_matches(2, 2) is None
    assert said(host_counter_matches(shown, 2)) == (
        "OWN", severity, (),
        f"num_free_host() says {shown}, but 2 blocks are free in host memory (held by nobody)",
    )  # fmt: skip


def test_atom_a_reset_is_done_if_and_only_if_nobody_holds_a_block():
    assert reset_iff_nobody_holds(answer=True, nobody_holds=True) is None
    assert reset_iff_nobody_holds(answer=False, nobody_holds=False) is None


def test_idx_a_reset_that_is_refused_for_no_reason_leaves_the_index_full():
    assert said(reset_iff_nobody_holds(answer=False, nobody_holds=True)) == (
        "IDX", Severity.FALSE_REFUSAL, (),
        ("reset() was refused (it answered False), although nobody holds a block: the index cannot "
        "be emptied"),
    )  # fmt: skip


def test_atom_a_reset_while_blocks_are_held_is_wrong_data():
    assert said(reset_iff_nobody_holds(answer=True, nobody_holds=False)) == (
        "ATOM", Severity.WRONG_DATA_OF_ANOTHER, (),
        ("reset() answered True, although blocks are still held: it must be refused until they are "
        "given back"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("nobody_holds", "why"),
    [(True, "nobody holds a block"), (False, "blocks are still held")],
)
def test_crash_a_reset_answers_a_truth_value(nobody_holds, why):
    assert said(reset_iff_nobody_holds(1, nobody_holds=nobody_holds)) == (
        "CRASH", Severity.CRASH, (),
        f"reset() answered 1; it must answer {nobody_holds}, since {why}",
    )  # fmt: skip


def test_crash_a_state_reads_the_same_twice():
    found = Violation("I1", Severity.LEAK, "block 3 is lost")
    assert reads_alike("pool", found) is found
    assert reads_alike("pool", None, may_change=True) is None
    assert said(reads_alike("pool", None)) == (
        "CRASH", Severity.CRASH, (),
        "two reads of the unchanged pool show different states",
    )  # fmt: skip
    assert reads_alike("manager", None, after=Allocate(1)).sentence == (
        "after allocate(1), two reads of the unchanged manager show different states"
    )


def test_adm_an_allocation_answers_so_many_blocks():
    assert answers_so_many_blocks(2, [1, 2]) is None
    assert answers_so_many_blocks(1, (3,)) is None
    for answer in ([1], None, 7):
        assert said(answers_so_many_blocks(2, answer)) == (
            "ADM", Severity.CRASH, (),
            f"allocate(2) must answer a list of 2 blocks, but answered {answer}",
        )  # fmt: skip


def test_adm_what_fits_is_refused():
    assert refuses_only_what_does_not_fit(4, 3, "MemoryError: full") is None
    assert refuses_only_what_does_not_fit(3, 3, "MemoryError: full") is not None
    assert said(refuses_only_what_does_not_fit(2, 3, "MemoryError: full")) == (
        "ADM", Severity.FALSE_REFUSAL, (),
        "allocate(2) was refused (MemoryError: full), although 3 blocks are free",
    )  # fmt: skip


def test_adm_too_much_is_accepted():
    assert allocates_only_what_fits(1, 1, [4]) is None
    assert said(allocates_only_what_fits(2, 1, [4, 1])) == (
        "ADM", Severity.WRONG_DATA_OF_ANOTHER, (),
        "allocate(2) must be refused, since only 1 block is free, but it answered [4, 1]",
    )  # fmt: skip


def test_atom_quotes_what_a_refusal_changed():
    difference = Violation("OWN", Severity.CRASH, "num_free() says 4", (3,), 7)
    assert unchanged_by_refusal(Allocate(9), None) is None
    assert unchanged_by_refusal(Allocate(9), difference) == Violation(
        "ATOM", Severity.CRASH,
        "allocate(9) was refused and yet changed the state: num_free() says 4", (3,), 7,
    )  # fmt: skip


def test_leak_tells_lost_from_reclaimable():
    assert all_free_at_end(5, 5, 2) is None
    assert said(all_free_at_end(3, 5, 2)) == (
        "LEAK", Severity.LEAK, (),
        ("every owner has ended, but only 3 of 5 blocks are free: 0 live, 2 reclaimable by the "
        "prefix cache, 2 lost"),
    )  # fmt: skip


def test_leak_more_free_blocks_than_there_are_will_be_handed_out_twice():
    assert said(all_free_at_end(6, 5, 2)) == (
        "LEAK", Severity.WRONG_DATA_OF_ANOTHER, (),
        ("every owner has ended, and num_free() says 6, but there are only 5 blocks: some count as "
        "free twice"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("replayed", "expected", "copies"),
    [({A: 2}, {A: 1}, (2, "aaaaaaaa", 1)), ({}, {B: 1}, (0, "bbbbbbbb", 1)),
     ({A: 1, B: -1}, {A: 1}, (-1, "bbbbbbbb", 0))],
)  # fmt: skip
def test_evt_compares_copies_of_each_key(replayed, expected, copies):
    assert said(events_give_index(replayed, expected)) == (
        "EVT", Severity.EVENTS, (),
        "the event stream leaves {} copies of hash {}, the index has {}".format(*copies),
    )  # fmt: skip


def test_evt_one_copy_is_named_in_the_singular():
    assert events_give_index({A: 1}, {}).sentence == (
        "the event stream leaves 1 copy of hash aaaaaaaa, the index has 0"
    )


def test_evt_equal_copies_pass():
    assert events_give_index({A: 1, B: 2}, {B: 2, A: 1}) is None


def did(command, misuse, what, left=None, **promise):
    """What is wrong with misuse that raised `what`, where a ValueError or nothing is promised."""
    promise = {"is_value_error": False, "ignores": False, **promise}
    return answers_as_promised(command, misuse, what, left_behind=lambda: left, **promise)


def did_not_raise(command, misuse, left=None):
    return did(command, misuse, None, left)


def raised_wrong_type(command, misuse, what, left=None):
    return did(command, misuse, what, left)


def did_not_ignore(command, misuse, what, left=None):
    return did(command, misuse, what, left, ignores=True)


def test_misuse_that_is_answered_as_promised_passes():
    assert did(Free((9,)), WHY, "ValueError: 9", is_value_error=True) is None
    assert did(Free((9,)), WHY, None, ignores=True) is None
    assert unchanged_by_misuse(Free((9,)), WHY, None) is None


def test_misuse_that_is_ignored_raises_nothing_at_all():
    assert did_not_ignore(Free((9,)), WHY, "").invariant == "MISUSE"


def test_misuse_names_the_command_and_the_reason():
    reason = "block 9 does not exist"
    command, misuse = Free((9,)), Misuse(MisuseKind.BLOCK_BEYOND_THE_POOL, reason)
    intro = f"free([9]) is misuse ({reason}) "
    assert said(did_not_raise(command, misuse))[3] == (
        intro + "and must raise a ValueError, but it went through"
    )
    assert said(raised_wrong_type(command, misuse, "KeyError: 9"))[3] == (
        intro + "and must raise a ValueError, but it raised KeyError: 9"
    )
    assert said(did_not_ignore(command, misuse, "KeyError: 9"))[3] == (
        intro + "that the profile ignores, but it raised KeyError: 9"
    )
    for found in (
        did_not_raise(command, misuse),
        raised_wrong_type(command, misuse, "x"),
        did_not_ignore(command, misuse, "x"),
    ):
        assert (found.invariant, found.severity) == ("MISUSE", Severity.CRASH)


WHY = Misuse(MisuseKind.BLOCK_NOT_HELD, "why")


# Called in the test and not here: a fault in a predicate fails a test and not the collection.
@pytest.mark.parametrize(
    ("judge", "arguments", "outcome"),
    [
        (did_not_raise, (None,), MisuseOutcome.ACCEPTED),
        (raised_wrong_type, ("x",), MisuseOutcome.RAISED),
        (did_not_ignore, ("x",), MisuseOutcome.RAISED),
        (
            unchanged_by_misuse,
            (Violation("I1", Severity.LEAK, "lost"),),
            MisuseOutcome.CHANGED,
        ),
    ],
)
def test_misuse_says_what_was_wrong_and_what_came_of_it(judge, arguments, outcome):
    found = judge(Free((9,)), WHY, *arguments)
    assert found.misuse == MisuseFailure(MisuseKind.BLOCK_NOT_HELD, outcome)
    assert MisuseFailure.parse(str(found.misuse)) == found.misuse


def test_a_wrong_error_that_left_damage_is_as_bad_as_the_damage():
    left = Violation("I1", Severity.WRONG_DATA_OF_ANOTHER, "block 3 is free and held", (3,))
    for found in (
        raised_wrong_type(Free((9,)), WHY, "KeyError: 9", left),
        did_not_ignore(Free((9,)), WHY, "KeyError: 9", left),
    ):
        assert found.severity is Severity.WRONG_DATA_OF_ANOTHER
        assert found.sentence.endswith("raised KeyError: 9 and left this: block 3 is free and held")


def test_misuse_that_went_through_is_as_bad_as_what_it_left_behind():
    left = Violation("I1", Severity.LEAK, "block 3 is lost", (3,))
    found = did_not_raise(Free((9,)), WHY, left)
    assert (found.invariant, found.severity) == ("MISUSE", Severity.LEAK)
    assert found.sentence.endswith("but it went through and left this: block 3 is lost")


def test_misuse_that_changed_something_keeps_what_and_how_bad():
    difference = Violation("I1", Severity.LEAK, "block 3 is lost", (3,))
    assert said(unchanged_by_misuse(Free((9,)), WHY, difference)) == (
        "MISUSE", Severity.LEAK, (3,),
        "free([9]) is misuse (why) and must change nothing: block 3 is lost",
    )  # fmt: skip


def owners_of(holders, noun="command"):
    return owners(PoolLedger({0: holders}, {}, {}, (), owner_noun=noun), 0)


def test_owners_are_commands():
    assert owners_of([]) == "nobody"
    assert owners_of([3]) == "command #3"
    assert owners_of([3, 5]) == "commands #3 and #5"
    assert owners_of([3, 5, 8]) == "commands #3, #5 and #8"


def test_of_many_owners_six_are_named():
    assert owners_of(range(6)) == "commands #0, #1, #2, #3, #4 and #5"
    assert owners_of(range(102)) == "102 commands (#0, #1, #2, #3, #4, #5, ...)"


def test_owners_of_a_manager_are_sequences():
    assert owners_of([0], "sequence") == "sequence A"
    assert owners_of([1, 26], "sequence") == "sequences B and A1"


def test_a_number_of_blocks_agrees_with_its_verb():
    for plural, singular in (("are", "is"), ("were", "was"), ("have", "has"), ("fit", "fit")):
        assert number_of_blocks(2, plural) == f"2 blocks {plural}"
        assert number_of_blocks(1, plural) == f"1 block {singular}"
    assert (number_of_blocks(1), number_of_blocks(0)) == ("1 block", "0 blocks")


def test_copies_are_told_as_source_and_destination():
    assert copy_list([(0, 2), (2, 1)]) == "0->2, 2->1"
    assert copy_list([]) == "none"


def test_of_many_blocks_six_are_named():
    assert block_list([3]) == "block 3 is"
    assert block_list([3, 5, 8]) == "blocks 3, 5 and 8 are"
    assert block_list(range(9)) == "9 blocks (0, 1, 2, 3, 4, 5, ...) are"


def test_a_key_is_named_by_what_it_stands_for():
    assert key_name(None) == "no hash"
    assert key_name(b"\x01\x02\x03\x04\x05") == "hash 01020304"
    assert key_name(("odd", 3)) == "('odd', 3), which is no hash that was ever given"
    assert key_name("x" * 99) == (
        f"'{'x' * 80}'... (99 characters), which is no hash that was ever given"
    )
    plain = ContentKey((1, 2), None, None, (), 1)
    assert key_name(plain) == "the key of <1 2> in group 1"
    full = ContentKey((1,), ("name", "/path"), "tenant", (("cat", 4),), 0)
    assert key_name(full) == (
        "the key of <1, lora name at /path, salt tenant, image cat at token 4> in group 0"
    )


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ("01020304 0506 0708090a", "hash 01020304"),
        ("01020304 0599 0708090a", "hash 01020304.. with 06 at byte 5"),
        ("99020304 0506 0708090a", "hash 01020304..0708090a"),
        ("99020304 0506 0708099a", "hash 01020304"),
        ("01020304 05", "hash 01020304.. with 06 at byte 5"),
        ("01020304 0506 0708090a 0b", "hash 01020304.. with its end at byte 10"),
    ],
)
def test_a_hash_is_told_from_one_that_begins_or_ends_alike(other, named):
    assert key_name(bytes.fromhex("01020304 0506 0708090a"), bytes.fromhex(other)) == named


@pytest.mark.parametrize(
    ("number", "named"),
    [(6, "blocks 0, 1, 2, 3, 4 and 5 are"), (7, "7 blocks (0, 1, 2, 3, 4, 5, ...) are")],
)
def test_at_most_six_blocks_are_named(number, named):
    assert block_list(range(number)) == named
