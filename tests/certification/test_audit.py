"""Audits of recordings: the one line that they answer, and the trace that replays a finding."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import poolproof
from poolproof.certification.recorded_story import story_of, write_story
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import FULL, CacheGroup
from poolproof.contract.recording import RecordingWriter, named_request, open_recording
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.contract.trace import read_trace

SIZE = 4


class Server:
    """A small engine that serves many requests; `reuse` gives out a block that somebody has."""

    def __init__(self, groups=FULL, num_blocks=400):
        self.groups = groups
        self.free = list(range(1, num_blocks))
        self.num_blocks = num_blocks
        self.steps = []
        self.tokens = {}
        self.tables = {}
        self.ended = []

    def step(self, *parts, **moves):
        """Each part is (name, first, count)."""
        computed = []
        for name, first, count in parts:
            table = self.tables.setdefault(name, [])
            is_new = not table
            needed = -(-(first + count) // SIZE) - len(table)
            added = [self.free.pop(0) for _ in range(max(0, needed))]
            table += added
            given = table if is_new or first == -1 else added
            chain = TokenChain(tuple(self.tokens[name][: first + count]))
            computed.append(
                ComputedTokens(
                    name, chain, first, count, (tuple(given),) * len(self.groups), is_new
                )
            )
        self.steps.append(
            StepRecord(len(self.steps) + 1, tuple(computed), ended=tuple(self.ended), **moves)
        )
        self.ended = []

    def hit(self, name, other, blocks, count):
        """`name` takes the first blocks of `other` as cached and computes the rest."""
        table = [*self.tables[other][:blocks]]
        needed = -(-(blocks * SIZE + count) // SIZE) - blocks
        table += [self.free.pop(0) for _ in range(needed)]
        self.tables[name] = table
        chain = TokenChain(tuple(self.tokens[name][: blocks * SIZE + count]))
        tables = (tuple(table),) * len(self.groups)
        part = ComputedTokens(name, chain, blocks * SIZE, count, tables, True)
        self.steps.append(StepRecord(len(self.steps) + 1, (part,)))

    def record(self, path, **options):
        sizes = [SIZE] * len(self.groups)
        with RecordingWriter(path, self.num_blocks, self.groups, sizes, **options) as writer:
            for step in self.steps:
                writer.record(step)
        return path


def busy_server(seed=0, num_requests=30, num_steps=40):
    """Many requests that are right, each decoded for a while."""
    rng = random.Random(seed)
    server = Server()
    for name in range(num_requests):
        server.tokens[f"busy-{name}"] = [rng.randrange(9) for _ in range(60)]
    live = {}
    for _ in range(num_steps):
        parts, over = [], []
        for name in list(live)[:8]:
            parts.append((name, live[name], 1))
            live[name] += 1
        for name in [n for n, length in live.items() if length >= 20]:
            del live[name]
            over.append(name)
        if len(live) < 6 and len(server.tables) < num_requests:
            name = f"busy-{len(server.tables)}"
            parts.append((name, 0, 9))
            live[name] = 9
        server.step(*parts)
        server.ended = over
    return server


def with_a_wrong_hit(server):
    """The victim takes blocks of a request that began with other tokens."""
    server.tokens |= {"writer": [1] * 12, "victim": [2] * 12}
    server.step(("writer", 0, 9))
    server.hit("victim", "writer", 2, 3)
    return server


def test_a_right_recording_sends_to_kernels_and_numerics(tmp_path):
    audit = poolproof.audit(busy_server().record(tmp_path / "r"))
    assert audit.holds
    assert audit.sentence() == (
        "no sequence read a slot that was not computed for it in 40 steps: look at kernels and "
        "numerics"
    )
    assert audit.notes == ()
    assert audit.num_tokens > 300


def test_a_wrong_read_names_step_slot_reader_and_writer(tmp_path):
    audit = poolproof.audit(with_a_wrong_hit(busy_server()).record(tmp_path / "r", plain_ids=True))
    (finding,) = audit.findings
    assert (finding.step, finding.reader, finding.writer) == (42, "victim", "writer")
    assert (finding.position, finding.slot, finding.written_in) == (0, 0, 41)
    assert audit.sentence() == (
        f"step 42: request victim reads at position 0 (group 0, block {finding.block}, slot 0) KV "
        "that was computed for request writer in step 41"
    )
    assert not audit.holds
    assert audit.to_json()["findings"][0]["reader"] == "victim"


def test_requests_are_named_so_that_who_has_the_id_finds_them(tmp_path):
    audit = poolproof.audit(with_a_wrong_hit(Server()).record(tmp_path / "r"))
    assert audit.findings[0].reader == named_request("victim")


def test_a_slot_that_nobody_computed_and_one_that_the_reader_overwrote_itself(tmp_path):
    server = Server()
    server.tokens |= {"a": [1] * 12, "b": [3] * 12}
    server.step(("a", 0, 4))
    server.tables["b"] = [7, 8]
    server.steps.append(
        StepRecord(2, (ComputedTokens("b", TokenChain((3,) * 6), 4, 2, ((7, 8),), True),))
    )
    audit = poolproof.audit(server.record(tmp_path / "r", plain_ids=True))
    assert audit.sentence().endswith("(group 0, block 7, slot 0) KV that nobody has computed")
    assert audit.findings[0].writer is None


def test_a_table_that_is_too_short_is_a_finding_and_not_a_traceback(tmp_path):
    part = ComputedTokens("a", TokenChain((1,) * 9), 0, 9, ((1, 2),), True)
    server = Server()
    server.steps.append(StepRecord(1, (part,)))
    path = server.record(tmp_path / "r", plain_ids=True)
    audit = poolproof.audit(path)
    assert audit.findings[0].invariant == "PLAN"
    assert "request a has no block in group 0 for position 8" in audit.sentence()
    with pytest.raises(poolproof.RecordingError, match="a table that is wrong"):
        write_story(audit, tmp_path)


def test_what_a_running_engine_had_computed_before_is_unknown_and_never_wrong(tmp_path):
    server = Server()
    server.tables["old"] = [5, 6]
    part = ComputedTokens("old", TokenChain((1,) * 6), 4, 2, ((5, 6),), True)
    server.steps.append(StepRecord(1, (part,)))
    audit = poolproof.audit(server.record(tmp_path / "r", is_whole=False))
    assert audit.holds
    assert audit.num_unknown == 1
    assert "began on a running engine" in audit.notes[0]


def test_a_cut_recording_is_judged_as_far_as_it_goes_and_says_so(tmp_path):
    path = busy_server().record(tmp_path / "r")
    path.write_bytes(path.read_bytes()[:-60])
    audit = poolproof.audit(path)
    assert audit.holds
    assert any("stops without its last line" in note for note in audit.notes)


def test_a_recording_without_a_step_says_nothing(tmp_path):
    audit = poolproof.audit(Server().record(tmp_path / "r"))
    assert not audit.holds
    assert "has no step" in audit.sentence()


def test_the_story_of_a_finding_is_its_writer_and_its_reader_alone(tmp_path):
    path = with_a_wrong_hit(busy_server()).record(tmp_path / "r", plain_ids=True)
    audit = poolproof.audit(path)
    story = story_of(open_recording(path), audit.findings[0])
    assert [[part.request_id for part in step.computed] for step in story] == [
        ["writer"], ["victim"],
    ]  # fmt: skip


def test_the_trace_of_a_finding_is_replayed_by_the_engine_level(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = with_a_wrong_hit(busy_server()).record(tmp_path / "r", plain_ids=True)
    trace_path = write_story(poolproof.audit(path), tmp_path)
    trace = read_trace(trace_path)
    assert [command.verb for command in trace.commands] == ["submit", "run", "submit", "run"]
    shown = poolproof.replay(trace_path, in_process=True)
    assert shown.violation is not None
    assert shown.violation.invariant == "DATA"
    assert shown.violation.severity is poolproof.Severity.WRONG_DATA_OF_ANOTHER
    assert shown.violation == trace.violation
    assert "request B reads at position 0" in poolproof.render(trace)


def test_whom_a_reader_was_built_on_stands_in_the_story_too(tmp_path):
    """A hit that is right, on a third request's blocks, before the wrong one."""
    server = busy_server()
    server.tokens |= {"root": [4] * 30, "writer": [1] * 12, "victim": [4] * 8 + [2] * 12}
    server.step(("root", 0, 5))
    for first in range(5, 12):
        server.step(("root", first, 1))
    server.step(("writer", 0, 9))
    stolen = server.tables["writer"][0]
    server.tables["mixed"] = [*server.tables["root"][:2], stolen]
    server.hit("victim", "mixed", 3, 3)
    path = server.record(tmp_path / "r", plain_ids=True)
    audit = poolproof.audit(path)
    assert audit.findings[0].position == 8
    story = story_of(open_recording(path), audit.findings[0])
    parts = [(p.request_id, p.first, p.count) for step in story for p in step.computed]
    assert sorted({name for name, _, _ in parts}) == ["root", "victim", "writer"]
    assert len(parts) == 3  # eight parts of root are joined
    assert write_story(audit, tmp_path).exists()


def test_copies_loads_and_stores_stand_in_the_story(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = Server()
    server.tokens |= {"writer": [1] * 12, "other": [5] * 12, "victim": [2] * 12}
    server.step(("other", 0, 4), stores=((200, 8),))
    server.step(("writer", 0, 4), stores=((2, 9),))
    server.step(("other", 4, 4), copies=((1, 90),), loads=((99, 9),))
    table = ((99, 3),)
    part = ComputedTokens("victim", TokenChain((2,) * 6), 4, 2, table, True)
    server.steps.append(StepRecord(4, (part,)))
    path = server.record(tmp_path / "r", plain_ids=True)
    audit = poolproof.audit(path)
    assert audit.findings[0].writer == "writer"
    story = story_of(open_recording(path), audit.findings[0])
    assert [step.stores for step in story if step.stores] == [((2, 9),)]
    assert [step.loads for step in story if step.loads] == [((99, 9),)]
    assert not any(step.copies for step in story)
    trace = read_trace(write_story(audit, tmp_path))
    assert trace.violation is not None


def test_a_victim_that_is_not_seen_and_one_whose_drafts_are_rejected(tmp_path, monkeypatch):
    """Both become requests of their own in the trace, and the finding is the same."""
    monkeypatch.chdir(tmp_path)
    drafted = ComputedTokens("a", TokenChain((1, 2, 3, 4)), 0, 4, ((1,),), True, is_read=True)
    right = ComputedTokens("a", TokenChain((1, 2, 9)), 2, 1, ((),), False, is_read=False)
    after = ComputedTokens("b", TokenChain((1, 2, 3, 5, 6)), 3, 2, ((1, 2),), True)
    server = Server()
    server.steps += [
        StepRecord(number, (part,)) for number, part in enumerate((drafted, right, after), start=1)
    ]
    audit = poolproof.audit(server.record(tmp_path / "r", plain_ids=True))
    (finding,) = audit.findings
    assert (finding.reader, finding.writer, finding.position) == ("b", "a", 2)
    trace = read_trace(write_story(audit, tmp_path))
    assert [c.verb for c in trace.commands][-3:] != []
    assert trace.violation is not None
    assert trace.violation.invariant == "DATA"


@pytest.mark.parametrize(
    "group", [CacheGroup("sliding", window=6), CacheGroup("chunked", window=8)]
)
def test_other_kinds_of_attention_are_judged_by_what_they_read(tmp_path, group, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = Server((group,))
    server.tokens |= {"writer": [1] * 32, "victim": [2] * 32}
    server.step(("writer", 0, 13))
    server.hit("victim", "writer", 3, 3)
    audit = poolproof.audit(server.record(tmp_path / "r", plain_ids=True))
    assert audit.findings[0].position == group.first_read(12)
    assert read_trace(write_story(audit, tmp_path)).violation is not None


def test_a_request_that_goes_on_without_a_table_is_a_finding_and_not_a_traceback(tmp_path):
    server = Server()
    part = ComputedTokens("a", TokenChain((1,) * 9), 8, 1, ((),), False)
    server.steps.append(StepRecord(1, (replace(part, blocks=()),)))
    audit = poolproof.audit(server.record(tmp_path / "r"))
    assert "goes on with a request of which no table was told" in audit.sentence()
