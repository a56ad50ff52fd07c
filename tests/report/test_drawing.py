"""The step-by-step drawing of a trace, down to the text of a small one."""

from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Append,
    Cache,
    CacheChain,
    Free,
    Lookup,
    LookupChain,
    PopLeftN,
    Remove,
    Reset,
    Touch,
)
from poolproof.contract.content import TokenChain
from poolproof.contract.profile import Profile
from poolproof.report.finding_report import drawing_of, finding_report, trace_report
from poolproof.report.text_form import plain_text

GOLDEN = """\
f-7d3f0a11  IDX  wrong data of another request, feared
  pool.py:Pool, pool of 4 blocks, caching on
  lookup of hash 41f041f0 answers with block 3
    #  command                free queue  held  index      note
    0                         1 2 3       -     -          4 blocks, 0 is null
    1  allocate(2)            3           1 2   -          gives 1 2
    2  cache([1, 2], [a, b])  3           1 2   a->1 b->2
    3  free([2, 1])           3 2 1       -     a->1 b->2  2 1 free
    4  allocate(2)            1           2 3   a->1       gives 3 2, evicts b
  > 5  lookup(a)              1           2 3   a->1       a is in 1
  a = hash 41f041f0, b = hash c7aac7aa
"""


ALIKE_AT_THE_END = [bytes.fromhex(f"{start} 05060708") for start in ("01020304", "0a020304")]


def rows_of(samples, *commands, **changes):
    return drawing_of(samples.trace(commands=commands, violation=None, **changes)).rows


def test_a_small_trace_is_drawn_whole(samples):
    assert plain_text(trace_report(samples.trace())) == GOLDEN


def test_what_is_known_stands_below_a_finding(samples):
    text = plain_text(finding_report(samples.finding(), "out/f-7d3f0a11.jsonl"))
    assert text.startswith(GOLDEN)
    assert text[len(GOLDEN) :] == (
        "  shortest   breadth-first to 5 commands: none shorter\n"
        "  seen       in 4 runs, first after 812 commands (plain driver)\n"
        "  code       pool.py:88 lookup\n"
        "  like       D1 nano-vllm#163\n"
        "  ruled out  a duplicate\n"
        "  replay     poolproof replay out/f-7d3f0a11.jsonl\n"
        "  as a test  poolproof show out/f-7d3f0a11.jsonl --as pytest\n"
        "  meaning    poolproof explain out/f-7d3f0a11.jsonl\n"
    )


def test_several_owners_are_counted(samples):
    row = rows_of(samples, Allocate(1), Touch((1, 1)))[-1]
    assert row.held == "1x3"


def test_a_refusal_changes_nothing_and_says_why(samples):
    row = rows_of(samples, Allocate(4))[-1]
    assert (row.free_queue, row.note) == ("1 2 3", "refused: 3 free")


def test_misuse_is_named_and_leaves_the_state(samples):
    row = rows_of(samples, Free((1,)))[-1]
    assert row.note == (
        "misuse: block 1 is freed more often (1) than it is held (0); must raise ValueError"
    )
    assert row.free_queue == "1 2 3"


def test_a_reset_says_its_answer(samples):
    rows = rows_of(samples, Reset(), Allocate(1), Reset())
    assert [rows[1].note, rows[3].note] == ["True", "False, blocks are held"]


def test_an_acquired_prefix_is_held(samples):
    commands = (*samples.COMMANDS[:3], Acquire((samples.HASH, samples.OTHER, b"z")))
    row = rows_of(samples, *commands)[-1]
    assert (row.note, row.held, row.free_queue) == ("gives 1 2", "1 2", "3")


def test_token_chains_get_letters_for_their_prefixes(samples):
    chain = TokenChain((5, 5, 6, 6))
    drawing = drawing_of(
        samples.trace(
            commands=(Allocate(2), CacheChain(chain, (1, 2), 0, 0), LookupChain(chain, 2, (0,))),
            options={"block_size": 2},
        )
    )
    assert drawing.rows[-1].index == "a->1 b->2"
    assert drawing.rows[-1].note == "a is in 1"
    assert drawing.legend == (("a", "tokens 5 5"), ("b", "tokens 5 5 6 6"))


def test_an_unspecified_order_takes_the_blocks_that_are_used_later(samples):
    rows = rows_of(
        samples, Allocate(1), Free((3,)), profile=Profile(null_block=0, eviction="unspecified")
    )
    assert [rows[1].held, rows[2].held] == ["3", "-"]


def test_states_that_are_not_known_are_not_invented(samples):
    drawing = drawing_of(samples.trace(commands=(Touch((1,)), Allocate(1)), violation=None))
    assert drawing.lost_track == (
        "from command 1 on the states are not known: block 1 is free and carries no hash"
    )
    assert [row.free_queue for row in drawing.rows] == ["1 2 3", "?", "?"]


def test_a_queue_shows_what_stands_outside_it(samples):
    trace = samples.trace(
        level="queue", commands=(PopLeftN(2), Remove(3), Append(0)), violation=None
    )
    rows = drawing_of(trace).rows
    assert [(row.free_queue, row.held) for row in rows] == [
        ("0 1 2 3", "-"),
        ("2 3", "0 1"),
        ("2", "0 1 3"),
        ("2 0", "1 3"),
    ]
    assert rows[1].note == "gives 0 1"
    assert "outside" in plain_text(trace_report(trace))


def test_many_blocks_are_shortened(samples):
    row = rows_of(samples, num_blocks=1000)[0]
    assert row.free_queue == "1 2 3 4 5 6 .. 997 998 999 (999)"


def test_the_violation_before_any_command_marks_the_first_row(samples):
    violation = samples.replace(samples.trace().violation, command_index=-1)
    rows = drawing_of(samples.trace(commands=(), violation=violation)).rows
    assert [row.violating for row in rows] == [True]


def test_control_characters_of_a_target_do_not_reach_the_terminal(samples):
    violation = samples.replace(samples.trace().violation, sentence="red \x1b[31m alarm")
    text = plain_text(trace_report(samples.trace(violation=violation)))
    assert "\x1b" not in text
    assert "red \\x1b[31m alarm" in text


def test_hashes_that_end_alike_are_shown_with_their_end(samples):
    one, other = ALIKE_AT_THE_END
    drawing = drawing_of(samples.trace(commands=(Allocate(1), Cache((1,), (one,)), Lookup(other))))
    assert list(drawing.legend) == [
        ("a", "hash 01020304..05060708"),
        ("b", "hash 0a020304..05060708"),
    ]
