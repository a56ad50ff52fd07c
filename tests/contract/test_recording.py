"""Recordings of steps: what is read is what was written, whatever became of the file."""

from __future__ import annotations

import gzip
import json

import pytest

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.recording import (
    RecordingError,
    RecordingWriter,
    free_path,
    named_request,
    open_recording,
)
from poolproof.contract.step_record import ComputedTokens, StepRecord

GROUPS = (CacheGroup("full"), CacheGroup("sliding", window=6))


def part(name, tokens, first, *tables, replaced=True, is_read=True, **extras):
    chain = TokenChain(tuple(tokens), **extras)
    return ComputedTokens(name, chain, first, len(tokens) - first, tables, replaced, is_read)


def written(path, *steps, **options):
    with RecordingWriter(path, 8, GROUPS, [4, 2], engine="toy 1", **options) as writer:
        for step in steps:
            writer.record(step)
    return path


def steps_of(path):
    recording = open_recording(path)
    return recording, list(recording)


def digests(path):
    """For each part, its tokens as they are read."""
    return [tuple(p.chain.tokens) for step in steps_of(path)[1] for p in step.computed]


STEPS = (
    StepRecord(1, (part("a", [5, 6, 7], 0, (1,), (2, 3)), part("b", [5, 6], 0, (4,), (5,)))),
    StepRecord(
        2,
        (part("a", [5, 6, 7, 8], 3, (), (6,), replaced=False, is_read=False),),
        copies=((1, 2),),
        ended=("b",),
        loads=((3, 40),),
        stores=((4, 41), (5, 42)),
    ),
)


def test_what_is_read_is_what_was_written_but_for_names_and_tokens(tmp_path):
    recording, (first, second) = steps_of(written(tmp_path / "r", *STEPS))
    assert (recording.header.num_blocks, recording.header.engine) == (8, "toy 1")
    assert recording.header.groups == (CacheGroup("full", 4), CacheGroup("sliding", 2, 6))
    assert (first.number, second.number, recording.num_steps, recording.end) == (1, 2, 2, "")
    (a, b), (again,) = first.computed, second.computed
    assert (a.request_id, b.request_id) == (named_request("a"), named_request("b"))
    assert (a.first, a.count, a.blocks, a.replaced, a.is_read) == (0, 3, ((1,), (2, 3)), True, True)
    assert (again.first, again.count, again.blocks) == (3, 1, ((), (6,)))
    assert (again.replaced, again.is_read) == (False, False)
    assert (second.copies, second.loads, second.stores) == (
        ((1, 2),), ((3, 40),), ((4, 41), (5, 42)),
    )  # fmt: skip
    assert second.ended == (named_request("b"),)


def test_digests_are_equal_where_the_whole_prefix_is(tmp_path):
    a, b, longer = digests(written(tmp_path / "r", *STEPS))
    assert a[:2] == b
    assert longer[:3] == a
    assert len({*longer}) == 4
    swapped = StepRecord(1, (part("a", [6, 5], 0, (1,), (2,)), part("b", [5, 5], 0, (3,), (4,))))
    first, second = digests(written(tmp_path / "s", swapped))
    assert len({*first, *second}) == 4  # a token at another place, or behind others, is another


@pytest.mark.parametrize(
    "extras", [{"lora": ("x", "/x")}, {"salt": "s"}, {"images": (Image("cat", 0, 2),)}]
)
def test_adapter_salt_and_images_tell_digests_apart(tmp_path, extras):
    parts = (part("a", [5, 6], 0, (1,), (2,)), part("b", [5, 6], 0, (3,), (4,), **extras))
    plain, other = digests(written(tmp_path / "r", StepRecord(1, parts)))
    assert not set(plain) & set(other)


def test_what_comes_before_an_image_has_the_digest_that_it_has_without_one(tmp_path):
    image = {"images": (Image("cat", 2, 1),)}
    parts = (part("a", [5, 6, 7], 0, (1,), (2,)), part("b", [5, 6, 7], 0, (3,), (4,), **image))
    plain, other = digests(written(tmp_path / "r", StepRecord(1, parts)))
    assert plain[:2] == other[:2]
    assert plain[2] != other[2]


def test_nothing_of_tokens_or_ids_stands_in_the_file_and_each_has_a_key_of_its_own(tmp_path):
    one = StepRecord(1, (part("user-7", [31337] * 3, 0, (1,), (2,)),))
    first, second = (written(tmp_path / name, one) for name in "ab")
    text = gzip.decompress(first.read_bytes()).decode()
    assert "31337" not in text
    assert "user-7" not in text
    assert digests(first) != digests(second)
    assert (
        "user-7"
        in gzip.decompress(written(tmp_path / "c", one, plain_ids=True).read_bytes()).decode()
    )


def test_rejected_drafts_are_replaced_and_steps_read_before_keep_theirs(tmp_path):
    drafted = StepRecord(1, (part("a", [1, 2, 3, 4], 0, (1,), (2, 3)),))
    right = StepRecord(2, (part("a", [1, 2, 9], 2, (), (), replaced=False),))
    first, second = digests(written(tmp_path / "r", drafted, right))
    assert (first[:2], len(first), len(second)) == (second[:2], 4, 3)
    assert first[2] != second[2]


def test_a_preempted_request_comes_back_with_a_table_of_its_own(tmp_path):
    again = StepRecord(3, (part("b", [5, 6], 1, (7,), (7,)),))
    *_, last = steps_of(written(tmp_path / "r", *STEPS, again))[1]
    assert (last.computed[0].request_id, last.computed[0].blocks) == (
        named_request("b"), ((7,), (7,)),
    )  # fmt: skip


def test_every_step_is_in_the_file_before_the_next_one_comes(tmp_path):
    writer = RecordingWriter(tmp_path / "r", 8, GROUPS, [4, 2])
    writer.record(STEPS[0])
    recording, steps = steps_of(tmp_path / "r")
    assert (len(steps), recording.is_cut) == (1, False)
    assert "stops without its last line" in recording.end
    writer.close()


def test_a_file_that_is_cut_anywhere_gives_whole_steps_and_says_if_one_was_dropped(tmp_path):
    data = written(tmp_path / "r", *STEPS).read_bytes()
    seen = set()
    for length in range(0, len(data), 3):
        cut = tmp_path / "cut"
        cut.write_bytes(data[:length])
        try:
            recording, steps = steps_of(cut)
        except RecordingError:  # the header itself is cut
            assert not seen
            continue
        seen.add((len(steps), recording.is_cut))
    assert {(0, False), (0, True), (1, False), (1, True), (2, False)} <= seen


def test_plain_lines_with_tokens_are_read_too(tmp_path):
    header = {
        "format": "poolproof-recording", "version": 1, "num_blocks": 4,
        "groups": [{"kind": "full", "block_size": 2}],
    }  # fmt: skip
    computed = [[0, 0, 3, [11, 12, 12], [[2, 3]], 1], [1, 0, 2, [11, 12], [[0]], 1]]
    step = {"step": 7, "begun": {"0": "mine", "1": "its"}, "computed": computed}
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, step)))
    recording, (read,) = steps_of(path)
    mine, its = (tuple(part.chain.tokens) for part in read.computed)
    assert (read.number, mine[:2], len({*mine})) == (7, its, 3)
    assert recording.header.is_whole


def test_a_newer_version_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "r"
    path.write_text('{"format": "poolproof-recording", "version": 2}\n')
    with pytest.raises(RecordingError) as refused:
        open_recording(path)
    assert str(refused.value) == (
        f"{path} has recording version 2, this Poolproof reads up to 1; upgrade Poolproof to read "
        "it"
    )


HEADER = '{"format":"poolproof-recording","version":1,"num_blocks":4,"groups":"full:0:2"}\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ('{"format": "poolproof-trace"}\n', 'lacks "format"'),
        ("no json\n", "line 1 is not JSON"),
        ("[1]\n", "line 1 is not a JSON object"),
        (HEADER.replace("4", "0", 1), "num_blocks must be 1 or more, not 0"),
        (HEADER.replace("full:0:2", "round"), "the kind of a group is one of"),
        (HEADER.replace("full:0:2", "full"), "needs a block_size"),
        (HEADER.replace('"version":1', '"version":"x"'), "is not a version number"),
        (HEADER + '{"step": 1}\n', "line 2 is not a step"),
        (HEADER + '{"step": 1, "computed": [[0, 0, 1, "00"]]}\n', "line 2 is not a step"),
        (HEADER + '{"step": 1, "computed": [[0]]}\n', "line 2 is not a step"),
        (HEADER + '{"step": 1, "computed": 3}\n', "line 2 is not a step"),
    ],
)
def test_what_is_no_recording_is_refused_with_place_and_cause(tmp_path, text, words):
    path = tmp_path / "r"
    path.write_text(text)
    with pytest.raises(RecordingError) as refused:
        steps_of(path)
    assert words in str(refused.value)
    assert str(path) in str(refused.value)


def test_damage_in_the_middle_is_an_error_and_not_the_end(tmp_path):
    path = written(tmp_path / "r", *[StepRecord(n, STEPS[0].computed) for n in range(200)])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(RecordingError, match=r"damaged behind line|not JSON|not a step"):
        steps_of(path)


def test_a_file_is_never_written_over_and_the_next_free_name_is_found(tmp_path):
    path = written(tmp_path / "r", STEPS[0])
    with pytest.raises(RecordingError, match="never written over"):
        RecordingWriter(path, 8, GROUPS, [4, 2])
    assert free_path(path).name == "r-2"
    written(free_path(path), STEPS[0])
    assert free_path(path).name == "r-3"
    with pytest.raises(RecordingError, match="No such file or directory"):
        RecordingWriter(tmp_path / "no" / "r", 8, GROUPS, [4, 2])


def test_a_disk_that_is_full_ends_the_recording_once(tmp_path):
    class Full:
        closed = False

        def write(self, _data):
            raise OSError(28, "No space left on device")

        def close(self):
            self.closed = True

    writer = RecordingWriter(tmp_path / "r", 8, GROUPS, [4, 2])
    writer.record(STEPS[0])
    writer._file.close()
    writer._file = Full()
    with pytest.raises(RecordingError, match="No space left on device; it ends after step 1"):
        writer.record(STEPS[1])
    writer.record(STEPS[1])
    writer.close()


def test_a_recording_ends_at_the_size_that_it_may_have(tmp_path):
    path = tmp_path / "r"
    with RecordingWriter(path, 8, GROUPS, [4, 2], most_bytes=1) as writer:
        writer.record(STEPS[0])
        writer.record(STEPS[1])
        assert writer.is_full
    recording, steps = steps_of(path)
    assert len(steps) == 1
    assert "as many as it may" in recording.end


def test_memory_is_that_of_live_requests(tmp_path):
    ended = StepRecord(3, (), ended=("a", "b"))
    with RecordingWriter(tmp_path / "r", 8, GROUPS, [4, 2]) as writer:
        for step in (*STEPS, ended):
            writer.record(step)
        assert not writer._requests
    recording, _ = steps_of(tmp_path / "r")
    assert not recording._requests
    assert not recording._numbers
