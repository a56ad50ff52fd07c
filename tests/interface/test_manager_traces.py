"""show, replay, shrink, drawings and scripts of manager traces."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from poolproof.bugs.catalogue import MANAGER_SPECIMENS
from poolproof.certification.finding import Finding
from poolproof.certification.isolated_trace import maker_for
from poolproof.certification.manager_watch import watch
from poolproof.certification.right_target import right_target
from poolproof.contract.commands import Reset
from poolproof.contract.content import Image, TokenChain
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
    SwapIn,
    SwapOut,
    Truncate,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.shown_state import ShownState
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace, TraceError, read_trace, write_trace
from poolproof.contract.violation import Severity, Violation
from poolproof.report.finding_report import finding_report, trace_report
from poolproof.report.html_form import html_page
from poolproof.report.manager_drawing import RIGHT, command_words, draw_manager
from poolproof.report.reproducer import manager_reproducer
from poolproof.report.text_form import plain_text
from poolproof.targets.load import load_target

HOSTILE = Path(__file__).parents[1] / "certification" / "hostile_managers.py"
GOLDEN_TRACES = Path(__file__).resolve().parent.parent / "bugs" / "golden"
ZEROS = TokenChain((0,) * 4)
STALE = (Admit(0, ZEROS, 0), Step(), Finish(0), Admit(1, TokenChain((0, 0)), 0))


RULES = {"eviction": "lru", "index": "exact"}
"""As `KeepsStaleKeys` declares them: a stale key is named before anybody reads through it."""


def trace_of(*commands, target="StaleBlackBox", num_blocks=1, violation=None, **changes):
    profile = changes.pop("profile", None) or ManagerProfile.from_mapping(RULES)
    made = Trace(
        target=f"{HOSTILE}:{target}",
        level="manager",
        profile=profile,
        num_blocks=num_blocks,
        enable_caching=True,
        commands=commands,
        violation=violation,
        options={"block_size": 4, "layout": profile.layout_name},
    )
    return replace(made, **changes)


def stale(sentence="B reads at position 1 KV; wanted <0 1>, found <0 0>, written at command 2"):
    violation = Violation("DATA", Severity.WRONG_DATA_OF_ANOTHER, sentence, (0,), 3)
    return trace_of(*STALE, violation=violation, fingerprint="f-00000001")


GOLDEN = f"""\
f-00000001  DATA  wrong data of another request, silent
  m.py:M, manager of 1 block of 4 tokens, layout full, caching on
  B reads at position 1 KV
    wanted  <0 1>
    found   <0 0>, written at command 2
    #  command            free queue  tables  index  note
    0                     0           -       -      1 block
    1  admit A [0 0 0 0]  -           A: 0    -
    2  step A 4           -           A: 0    a->0
    3  finish A           0           -       a->0
  > 4  admit B [0 0]      -           B: 0    -      a gone
  {RIGHT}
  a = tokens 0 0 0 0
"""


def test_a_small_trace_is_drawn_whole():
    assert plain_text(trace_report(replace(stale(), target="m.py:M"))) == GOLDEN


def many_admitted(count, num_steps=1, **changes):
    """`count` sequences of one block each, no two of the same tokens, and what comes after."""
    admits = [Admit(number, TokenChain((number,) * 4), 0) for number in range(count)]
    return trace_of(*admits, *[Step()] * num_steps, num_blocks=count, **changes)


def test_of_a_long_trace_the_middle_is_left_out():
    violation = Violation("DATA", Severity.WRONG_DATA_OF_ANOTHER, "A reads", (0,), 299)
    rows = draw_manager(many_admitted(100, num_steps=200, violation=violation)).rows
    numbers = [row.number for row in rows]
    assert numbers == [*range(25), *range(261, 301)]
    assert rows[24].command == ".. 237 commands .."
    assert rows[-1].violating


def test_what_broke_something_early_in_a_long_trace_has_its_row():
    violation = Violation("DATA", Severity.WRONG_DATA_OF_ANOTHER, "A reads", (0,), 100)
    rows = draw_manager(many_admitted(50, num_steps=250, violation=violation)).rows
    (broken,) = [row for row in rows if row.violating]
    assert broken.number == 101
    assert rows[rows.index(broken) - 1].number == 100


def test_a_long_trace_that_was_broken_before_any_command_is_cut_as_well():
    violation = Violation("CRASH", Severity.CRASH, "raised", (), -1)
    assert len(draw_manager(many_admitted(20, num_steps=500, violation=violation)).rows) == 65


def test_the_row_behind_the_gap_shows_what_it_has_changed():
    violation = Violation("DATA", Severity.WRONG_DATA_OF_ANOTHER, "A reads", (0,), 89)
    rows = draw_manager(many_admitted(90, num_steps=0, violation=violation)).rows
    gap, behind = rows[24:26]
    assert gap.command == ".. 27 commands .."
    assert behind.number == 51
    assert behind.held == "Y1: 50; .. 50 more"


def test_of_many_tables_those_are_drawn_that_the_command_has_changed():
    *_, last, step = draw_manager(many_admitted(20)).rows
    assert last.held == "T: 19; .. 19 more"
    assert step.held == ".. 20 more"
    few = draw_manager(many_admitted(12)).rows[-1]
    assert few.held.startswith("A: 0; B: 1; ")
    assert few.held.endswith("L: 11")


def test_states_that_nobody_asks_for_are_not_kept():
    trace = many_admitted(5)
    all_of_them = watch(trace, right_target(trace))
    some = watch(trace, right_target(trace), wanted={0, 3})
    assert [seen.command for seen in some.seen] == [seen.command for seen in all_of_them.seen]
    for number, seen in enumerate(some.seen):
        if number in {0, 3}:
            assert seen == all_of_them.seen[number]
        else:
            assert seen.held == seen.free == seen.index == ()
            assert seen.answer == all_of_them.seen[number].answer
    assert some.shown == ()


def test_a_trace_keeps_no_states_where_they_would_fill_the_memory(monkeypatch):
    trace = many_admitted(5)
    kept = watch(trace, right_target(trace))
    num_ids = sum(state.num_ids for state in kept.shown)
    monkeypatch.setattr("poolproof.certification.manager_watch.MOST_SHOWN_IDS", num_ids)
    assert watch(trace, right_target(trace)).shown == kept.shown
    monkeypatch.setattr("poolproof.certification.manager_watch.MOST_SHOWN_IDS", num_ids - 1)
    too_many = watch(trace, right_target(trace))
    assert too_many.shown == ()
    assert [seen.answer for seen in too_many.seen] == [seen.answer for seen in kept.seen]
    assert not any(seen.held or seen.index for seen in too_many.seen)


def test_commands_of_the_sentence_are_named_as_in_the_table():
    text = plain_text(trace_report(stale(f"{STALE[-1]} is wrong; wanted <0>")))
    assert "  admit B [0 0] is wrong\n    wanted  <0>\n" in text


def seen_by(trace, make):
    """The trace with what the target showed."""
    return replace(trace, shown=watch(trace, make).shown)


def ignores_adapters():
    """A finding of a manager that finds blocks of another adapter."""
    violation = Violation("DATA", Severity.WRONG_DATA_OF_ANOTHER, "B reads wrongly", (0,), 2)
    commands = (
        Admit(0, TokenChain((0,) * 4, ("x", "x")), 0), Step(), Admit(1, TokenChain((0,) * 5), 0),
    )  # fmt: skip
    trace = trace_of(
        *commands, target="C4", num_blocks=3, violation=violation, fingerprint="f-00000001"
    )
    return replace(seen_by(trace, MANAGER_SPECIMENS["C4"].make), target="m.py:M")


def rows_of(text):
    """The words of each line, without the blanks between columns."""
    return [line.split() for line in text.splitlines()]


def test_what_was_expected_stands_below_what_was_shown():
    drawing = draw_manager(ignores_adapters())
    (marked,) = [row for row in drawing.rows if row.violating]
    (expected,) = [row for row in drawing.rows if row.expected]
    assert drawing.rows[-2:] == (marked, expected)
    assert (marked.free_queue, marked.held) == ("2", "A: 0; B: 0 1")
    assert marked.note == "4 tokens reported as cached"
    assert (expected.free_queue, expected.held, expected.note) == ("-", "A: 0; B: 1 2", "")
    assert expected.cells()[:2] == ("", "expected")


@pytest.mark.parametrize("specimen", MANAGER_SPECIMENS.values(), ids=MANAGER_SPECIMENS)
def test_of_every_bug_that_shows_in_tables_queue_or_answer_both_are_drawn(specimen):
    trace = read_trace(GOLDEN_TRACES / f"{specimen.id}.jsonl")
    drawing = draw_manager(seen_by(trace, specimen.make))
    assert [row.number for row in drawing.rows if row.violating] == [len(trace.commands)]
    assert not any(row.expected for row in drawing.rows[:-1])
    *_, shown, last = drawing.rows
    if last.expected:
        assert shown.violating
        assert last.cells()[2:] != shown.cells()[2:]
    elif last.index != "?":  # where the specification could follow
        assert trace.violation.invariant not in {"I2", "ADM", "ORD"}


def test_text_markdown_page_and_show_have_both(poolproof):
    trace = ignores_adapters()
    write_trace(trace, Path("both.jsonl"))
    assert read_trace(Path("both.jsonl")).shown == trace.shown
    text = plain_text(trace_report(trace))
    assert poolproof("show", "both.jsonl").stdout == text
    words = ["expected", "-", "A:", "0;", "B:", "1", "2", "a->0"]
    assert words in rows_of(text)
    page = html_page(trace_report(trace))
    assert re.search(r'<tr class="good"><th [^>]*></th><td [^>]*>expected</td>', page)
    assert re.search(r"<td [^>]*>A: 0; B: 1 2</td>", page)
    finding = Finding(fingerprint="f-00000001", violation=trace.violation, trace=trace)
    again = Finding.from_json(json.loads(json.dumps(finding.to_json())))
    assert again.trace.shown == trace.shown
    assert words in rows_of(plain_text(finding_report(again)))


def test_blocks_that_the_profile_leaves_open_are_named_as_the_target_chose_them():
    """A right manager that takes blocks from the other end shows nothing that was not expected."""
    profile = ManagerProfile.from_mapping({"eviction": "unspecified"})
    commands = (Admit(0, ZEROS, 0), Step(), Admit(1, TokenChain((1,) * 5), 0), Finish(0))
    violation = Violation("DATA", Severity.WRONG_DATA_OF_ANOTHER, "planted", (), 3)
    trace = trace_of(*commands, num_blocks=6, profile=profile, violation=violation)
    make = right_target(trace)

    class FromTheEnd:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def block_table(self, seq_id, group=0):
            return [5 - block for block in self.inner.block_table(seq_id, group)]

        def free_order(self):
            return [5 - block for block in self.inner.free_order()]

        def ref_count(self, block):
            return self.inner.ref_count(5 - block)

        def is_cached(self, block):
            return self.inner.is_cached(5 - block)

    shown = watch(trace, lambda n, c: FromTheEnd(make(n, c))).shown
    drawing = draw_manager(replace(trace, shown=shown))
    assert drawing.rows[2].held == "A: 5"
    assert drawing.rows[2].index == "a->5"
    assert not any(row.expected for row in drawing.rows)
    # One block less in the last table is not what was expected, whatever its blocks are called.
    wrong = replace(shown[-1], held=(replace(shown[-1].held[0], tables=((4,),)),))
    drawing = draw_manager(replace(trace, shown=(*shown[:-1], wrong)))
    assert (drawing.rows[-2].held, drawing.rows[-1].held) == ("B: 4", "B: 4 3")


@pytest.mark.parametrize(
    "shown",
    [3, [3], [{}], [{"free": "0", "held": [], "answer": None}],
     [{"free": None, "held": [[0, "device"]], "answer": None}],
     [{"free": None, "held": [], "answer": {}}], [{"free": [0.5], "held": [], "answer": None}]],
)  # fmt: skip
def test_a_trace_whose_shown_states_are_damaged_is_refused(shown, tmp_path):
    *lines, last = stale().lines()
    record = json.loads(last)
    record["violation"]["shown"] = shown
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("\n".join([*lines, json.dumps(record)]))
    with pytest.raises(TraceError, match="line 6: what the target showed is damaged"):
        read_trace(damaged)


def test_shown_states_of_a_very_large_run_are_not_kept():
    state = ShownState(tuple(range(100_001)), ())
    trace = replace(stale(), shown=(state, state))
    assert "shown" not in trace.lines()[-1]


def test_a_page_has_the_tables_and_whose_states_they_are():
    page = html_page(trace_report(stale()))
    assert '<th scope="col">tables</th>' in page
    assert re.search(r"<td [^>]*>A: 0</td>", page)
    assert RIGHT in page


def test_every_command_has_words():
    images = (Image("p", 1, 2),)
    chain = TokenChain((1, 2), ("x", "path"), "salt", images)
    long = TokenChain(tuple(n % 2 for n in range(30)))
    words = {
        command_words(command): True
        for command in (
            Admit(0, chain, 0),
            Admit(1, TokenChain((5,) * 17), 3),
            LookupPrefix(long),
            AppendTokens(0, (1, 2)),
            Draft(0, (1,)),
            Accept(0, 1),
            Schedule(0, 3),
            Resume(26, 0),
            Resume(1, 2),
            Truncate(0, 1),
            Fork(0, 1),
            Preempt(0),
            Load(0, ZEROS, 2),
            Loaded(0),
            Abort(0),
            SwapOut(0),
            SwapIn(0),
            Reset(),
        )
    }
    assert list(words) == [
        "admit A [1 2], lora x at path, salt salt, image p at 1+2",
        "admit B [5 x 17], 3 of them",
        "lookup_prefix [0 1 0 1 0 1 0 1 .. 0 1 0 1 (30)]",
        "append A [1 2]",
        "draft A [1]",
        "accept A 1",
        "schedule A 3",
        "resume A1",
        "resume B 2 tokens",
        "truncate A to 1",
        "fork A as B",
        "preempt A",
        "load A [0 0 0 0], 2 of them",
        "loaded A",
        "abort A",
        "swap_out A",
        "swap_in A",
        "reset",
    ]
    assert command_words(Step(), [(0, 8), (1, 1)]) == "step A 8, B 1"


def test_notes_say_what_was_answered():
    profile = ManagerProfile.from_mapping({"host_blocks": 4, "null_block": 0})
    commands = (
        Admit(0, TokenChain((0,) * 6, ("x", "path"), "s"), 0),
        Step(),
        Fork(0, 1),
        AppendTokens(1, (1,)),
        Step(),
        Admit(2, TokenChain((0,) * 40), 0),
        Admit(3, TokenChain((1,) * 12), 0),
        LookupPrefix(ZEROS),
        Admit(4, TokenChain((0,) * 5, ("x", "path"), "s"), 0),
        Reset(),
        Abort(4),
        SwapOut(0),
    )
    drawing = draw_manager(trace_of(*commands, profile=profile, num_blocks=5, enable_caching=True))
    notes = [row.note for row in drawing.rows]
    assert notes[0] == "5 blocks, 0 is null"
    assert notes[4] == "copies 2->3"
    assert notes[6:11] == [
        "never",
        "later",
        "0 tokens reported as cached",
        "4 tokens reported as cached",
        "False",
    ]
    assert drawing.rows[-1].held == "A: host 0 1; B: host 0 2"
    assert drawing.legend == (("a", "tokens 0 0 0 0, lora x at path, salt s"),)
    assert draw_manager(trace_of(enable_caching=False)).rows[0].note == "1 block, caching off"


def test_a_command_that_is_not_legal_ends_what_is_known():
    drawing = draw_manager(trace_of(Finish(3), Step()))
    assert [row.held for row in drawing.rows] == ["-", "?", "?"]
    assert drawing.lost_track == "from command 1 on the states are not known: it is not legal there"


def test_what_a_target_shows_is_drawn_as_far_as_it_goes():
    trace = trace_of(Admit(0, ZEROS, 0), target="ShowsNonsense")
    watched = watch(trace, maker_for(trace, load_target(trace.target)))
    assert watched.violation is not None
    assert draw_manager(replace(trace, shown=watched.shown)).rows[0].free_queue == "0"
    unbuilt = trace_of(target="CannotBeBuilt")
    assert watch(unbuilt, maker_for(unbuilt, load_target(unbuilt.target))).seen == []


def test_an_admission_that_breaks_something_shows_its_table():
    trace = trace_of(Admit(0, ZEROS, 0), Step(), Finish(0), LookupPrefix(TokenChain((1,))))
    more = replace(trace, commands=(*trace.commands[:3], Admit(1, TokenChain((1,) * 5), 0)))
    watched = watch(replace(more, num_blocks=2), maker_for(more, load_target(more.target)))
    assert watched.seen[-1].held[-1].tables == ((1, 0),)


def test_answers_of_any_kind_are_noted():
    class Odd:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def append(self, seq_id, tokens):
            return 3.5

    trace = trace_of(Admit(0, ZEROS, 0), AppendTokens(0, (1,)), num_blocks=3)
    make = right_target(trace)
    watched = watch(trace, lambda n, c: Odd(make(n, c)))
    assert watched.seen[-1].answer == "3.5"
    assert draw_manager(replace(trace, shown=watched.shown)).rows[-1].note == "3.5"


@pytest.mark.some(0)
def test_commands_replay_show_shrink_and_tests_go_together(poolproof):
    commands = (
        LookupPrefix(ZEROS),
        *STALE[:3],
        Admit(1, TokenChain((0, 0, 1, 0, 1)), 0),
        Finish(1),
    )
    write_trace(trace_of(*commands, target="KeepsStaleKeys", num_blocks=3), Path("long.jsonl"))
    assert poolproof("replay", "long.jsonl").exit_code == 0
    longer = (*commands[:4], Admit(1, TokenChain((1,) * 9), 0))
    write_trace(trace_of(*longer, target="KeepsStaleKeys", num_blocks=3), Path("long.jsonl"))
    replayed = poolproof("replay", "long.jsonl")
    assert replayed.exit_code == 1
    assert "what the target showed, and where it broke" in replayed.stdout
    assert "> 5  admit B [1 x 9]" in replayed.stdout
    small = poolproof("shrink", "long.jsonl", "-o", "small.jsonl")
    assert small.exit_code == 1
    assert "5 commands became 4" in small.stderr
    assert read_trace(Path("small.jsonl")).violation is not None
    assert "expected to show" in poolproof("show", "small.jsonl").stdout
    assert poolproof("show", "small.jsonl", "--as", "html").exit_code == 0
    poolproof("show", "small.jsonl", "--as", "pytest", "-o", "test_it.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 1


@pytest.mark.some(0)
def test_a_hang_is_replayed_and_shrunk_apart(poolproof):
    commands = (LookupPrefix(ZEROS), Admit(0, ZEROS, 0), Step(), Finish(0))
    write_trace(trace_of(*commands, target="Hangs"), Path("hang.jsonl"))
    replayed = poolproof("replay", "hang.jsonl", "--call-timeout", "0.5")
    assert replayed.exit_code == 1
    assert "did not return within 0.5 s" in replayed.stdout
    assert RIGHT in replayed.stdout
    small = poolproof("shrink", "hang.jsonl", "-o", "small.jsonl", "--call-timeout", "0.3")
    assert small.exit_code == 1
    assert len(read_trace(Path("small.jsonl")).commands) == 2


def test_a_trace_is_replayed_on_another_target_of_the_same_layout(poolproof):
    write_trace(stale(), Path("t.jsonl"))
    held = poolproof("replay", "t.jsonl", "--target", "reference-manager")
    assert (held.exit_code, "holds now" in held.stdout) == (0, True)
    other = poolproof("replay", "t.jsonl", "--target", "impl")
    assert "the trace is of level manager, but impl is a pool target" in other.stderr
    write_trace(replace(stale(), options={"block_size": 4, "layout": "other"}), Path("t.jsonl"))
    only = "reference-manager[groups=full]"
    assert poolproof("replay", "t.jsonl", "--target", only).exit_code == 0
    write_trace(replace(stale(), options={"block_size": 7, "layout": "full"}), Path("t.jsonl"))
    sizes = poolproof("replay", "t.jsonl", "--target", "reference-manager")
    assert "7 tokens a block, layout full of reference-manager 4" in sizes.stderr
    write_trace(replace(stale(), options={"block_size": 4, "layout": "other"}), Path("t.jsonl"))
    layouts = poolproof("replay", "t.jsonl", "--target", "reference-manager")
    assert "reference-manager has no layout 'other'" in layouts.stderr


def run_script(text):
    Path("script.py").write_text(text)
    found = subprocess.run(
        [sys.executable, "script.py"], check=False, capture_output=True, text=True
    )
    return found.returncode, found.stderr


def test_a_script_fails_on_the_bug_and_passes_on_what_is_right(poolproof):
    reuse = Admit(2, TokenChain((0, 0, 0, 0, 1)), 0)
    commands = (*STALE[:3], Admit(1, TokenChain((1,) * 8), 0), Finish(1), reuse)
    write_trace(trace_of(*commands, num_blocks=2), Path("t.jsonl"))
    script = poolproof("show", "t.jsonl", "--as", "python")
    assert script.exit_code == 0, script.output
    code, told = run_script(script.stdout)
    assert (code, "assert manager.admit(2" in told) == (1, True), told
    right = trace_of(*commands, num_blocks=2, target="Good")
    assert run_script(manager_reproducer(right)) == (0, "")


def test_a_script_has_every_kind_of_call(folder):
    chain = TokenChain((0,) * 6, ("x", "path"))
    commands = (
        Admit(0, chain, 2),
        Step(),
        Schedule(0, 4),
        Step(),
        AppendTokens(0, (1,)),
        Draft(0, (1, 0)),
        Step(),
        Accept(0, 1),
        LookupPrefix(chain),
        Preempt(0),
        Resume(0, 3),
        Reset(),
    )
    text = manager_reproducer(trace_of(*commands, num_blocks=4, target="Good"))
    assert "manager.admit(0, [0, 0, 0, 0, 0, 0], extra_keys=(('lora', ('x', 'path')" in text
    assert "num_tokens=2" in text
    assert "manager.admit(0, [0, 0, 0, 0, 0, 0, 1, 1], " in text
    assert "manager.reset() is False" in text
    assert "manager.draft(0, [1, 0])" in text
    assert run_script(text) == (0, "")


def test_a_script_asks_for_no_more_than_the_profile_promises(folder):
    rows = {"eviction": "unspecified", "hits": "sound", "admission": "sound"}
    profile = ManagerProfile.from_mapping(rows)
    commands = (Admit(0, ZEROS, 0), Step(), AppendTokens(0, (1,)), Abort(9))
    text = manager_reproducer(trace_of(*commands, num_blocks=2, profile=profile, target="Good"))
    assert ") <= 0" in text
    assert "len(manager.block_table(0)) == 2" in text
    assert "\nmanager.append(0, [1])\n" in text
    assert run_script(text) == (0, "")


def test_a_script_names_tables_of_groups():
    profile = ManagerProfile.from_mapping({"null_block": 0, "groups": "full+sliding:6"})
    text = manager_reproducer(trace_of(Admit(0, ZEROS, 0), num_blocks=4, profile=profile))
    assert "assert list(manager.block_table(0, 1)) == [2]" in text


def test_a_trace_that_cannot_be_followed_has_no_script():
    with pytest.raises(TargetError, match="command 1 cannot be followed on the reference"):
        manager_reproducer(trace_of(Resume(0, 0)))
