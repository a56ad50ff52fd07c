"""What a scheduler told its workers is in the file; nothing that goes wrong reaches the engine."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import poolproof
from poolproof.contract.recording import RecordingError, open_recording
from poolproof.targets import vllm_record
from poolproof.targets.vllm_record import record_scheduler, record_schedulers


class FullAttentionSpec:
    block_size = 2


class MambaSpec:
    block_size = 8


def request(name, tokens, **fields):
    rest = {"lora_request": None, "cache_salt": None, "mm_features": [], **fields}
    return SimpleNamespace(request_id=name, _all_token_ids=list(tokens), **rest)


def output(new=(), old=(), *, drafts=None, finished=(), preempted=(), copies=None):
    """`new` and `old`: (id, number of tokens, first, blocks[, resumed])."""
    told = SimpleNamespace(
        req_ids=[row[0] for row in old],
        num_computed_tokens=[row[2] for row in old],
        new_block_ids=[row[3] for row in old],
        resumed_req_ids={row[0] for row in old if len(row) > 4},
    )
    return SimpleNamespace(
        scheduled_new_reqs=[
            SimpleNamespace(req_id=row[0], num_computed_tokens=row[2], block_ids=row[3])
            for row in new
        ],
        scheduled_cached_reqs=told,
        num_scheduled_tokens={row[0]: row[1] for row in (*new, *old)},
        scheduled_spec_decode_tokens=drafts or {},
        finished_req_ids=set(finished),
        preempted_req_ids=set(preempted) or None,
        kv_cache_block_copies=copies,
    )


class Scheduler:
    """Schedules what it is given."""

    def __init__(self, *outputs, specs=(FullAttentionSpec,), connector=None):
        groups = [SimpleNamespace(kv_cache_spec=spec()) for spec in specs]
        config = SimpleNamespace(num_blocks=16, kv_cache_groups=groups)
        self.kv_cache_manager = SimpleNamespace(kv_cache_config=config)
        self.connector = connector
        self.requests = {}
        self.outputs = list(outputs)

    def schedule(self):
        return self.outputs.pop(0)

    def update_from_output(self, scheduled, runner_output):
        return scheduled, runner_output

    def reset_prefix_cache(self):
        return True

    def shutdown(self):
        return "down"


def sampled(**tokens):
    return SimpleNamespace(
        req_id_to_index={name: number for number, name in enumerate(tokens)},
        sampled_token_ids=list(tokens.values()),
    )


NOTHING = sampled()


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Records a scheduler; what it wrote, once it is done."""
    monkeypatch.setattr(vllm_record, "version_of_vllm", lambda: "0.0")

    def record(scheduler, *requests):
        scheduler.requests |= {each.request_id: each for each in requests}
        path = tmp_path / "steps.gz"
        recorder = record_scheduler(scheduler, path)
        assert recorder is not None
        return recorder, path

    return record


def run(scheduler, runner=NOTHING):
    step = scheduler.schedule()
    assert scheduler.update_from_output(step, runner) == (step, runner)


def tokens_of(path):
    return [tuple(p.chain.tokens) for step in open_recording(path) for p in step.computed]


def test_new_running_resumed_and_ended_requests_are_told(recorded):
    a, b = request("a", range(5)), request("b", [7, 8])
    scheduler = Scheduler(
        output(new=[("a", 5, 0, ([1, 2, 3],))]),
        output(new=[("b", 2, 0, ([4],))], old=[("a", 1, 5, None)], finished=["x"],
               copies=[SimpleNamespace(src_block_id=1, dst_block_id=9)]),
        output(old=[("b", 1, 2, ([5],)), ("a", 6, 0, ([6, 7, 8],), "resumed")], preempted=["a"]),
    )  # fmt: skip
    recorder, path = recorded(scheduler, a, b)
    run(scheduler)
    a._all_token_ids.append(9)
    run(scheduler)
    b._all_token_ids.append(9)
    run(scheduler)
    recorder.close()
    one, two, three = open_recording(path)
    assert [(p.first, p.count, p.blocks, p.replaced) for p in one.computed] == [
        (0, 5, ((1, 2, 3),), True)
    ]
    assert [(p.first, p.count, p.blocks, p.replaced) for p in two.computed] == [
        (0, 2, ((4,),), True), (5, 1, (), False),
    ]  # fmt: skip
    assert (two.copies, len(two.ended), len(three.ended)) == (((1, 9),), 1, 1)
    assert [(p.first, p.blocks, p.replaced) for p in three.computed] == [
        (2, ((5,),), False), (0, ((6, 7, 8),), True),
    ]  # fmt: skip
    assert poolproof.audit(path).holds


def test_drafts_are_what_was_accepted_and_the_rest_equals_nothing(recorded):
    a = request("a", [1, 2])
    scheduler = Scheduler(
        output(new=[("a", 4, 0, ([1, 2],))], drafts={"a": [-1, -1]}),
        output(old=[("a", 1, 3, ([3],))]),
    )
    recorder, path = recorded(scheduler, a)
    run(scheduler, sampled(a=[8, 9]))  # one draft was right
    a._all_token_ids += [8, 9]
    run(scheduler)
    recorder.close()
    first, second = tokens_of(path)
    assert (first[:3], len(first)) == (second[:3], 4)
    assert first[3] != second[3]


def test_with_steps_ahead_the_worker_goes_back_behind_rejected_drafts(recorded):
    a = request("a", [1, 2])
    scheduler = Scheduler(
        output(new=[("a", 4, 0, ([1, 2],))], drafts={"a": [-1, -1]}),
        output(old=[("a", 1, 4, ([3],))]),
    )
    scheduler.num_spec_tokens, scheduler._spec_token_placeholders = 2, [-1, -1]
    recorder, path = recorded(scheduler, a)
    first, second = scheduler.schedule(), scheduler.schedule()
    scheduler.update_from_output(first, sampled(a=[8]))
    a._all_token_ids.append(8)
    scheduler.update_from_output(second, sampled(a=[9]))
    recorder.close()
    _, (step) = open_recording(path)
    assert (step.computed[0].first, step.computed[0].count) == (2, 1)


def test_a_reset_makes_what_comes_after_another_content(recorded):
    a = request("a", [1, 2, 3])
    scheduler = Scheduler(
        output(new=[("a", 3, 0, ([1, 2],))]), output(new=[("a", 3, 0, ([1, 2],))], finished=["a"])
    )
    recorder, path = recorded(scheduler, a)
    run(scheduler)
    assert scheduler.reset_prefix_cache() is True
    run(scheduler)
    recorder.close()
    before, after = tokens_of(path)
    assert not set(before) & set(after)


class Connector:
    def get_num_new_matched_tokens(self, _request, _num_local):
        return 2, False

    def update_state_after_alloc(self, _request, _blocks, _num):
        return "told"


def test_what_a_connector_brings_is_unknown_and_never_wrong(recorded):
    a = request("a", [1, 2, 3])
    scheduler = Scheduler(output(new=[("a", 1, 2, ([5, 6],))]), connector=Connector())
    recorder, path = recorded(scheduler, a)
    connector = scheduler.connector
    assert connector.get_num_new_matched_tokens(a, 0) == (2, False)
    blocks = SimpleNamespace(get_block_ids=lambda: ([5, 6],))
    assert connector.update_state_after_alloc(a, blocks, 2) == "told"
    run(scheduler)
    recorder.close()
    (step,) = open_recording(path)
    assert [block for block, _ in step.loads] == [5]
    audit = poolproof.audit(path)
    assert (audit.holds, audit.num_unknown) == (True, 1)


def test_groups_that_are_not_known_are_left_out_and_named(recorded):
    a = request("a", [1, 2, 3])
    scheduler = Scheduler(
        output(new=[("a", 3, 0, ([9], [1, 2]))]), specs=(MambaSpec, FullAttentionSpec)
    )
    recorder, path = recorded(scheduler, a)
    run(scheduler)
    recorder.close()
    recording = open_recording(path)
    (step,) = recording
    assert step.computed[0].blocks == ((1, 2),)
    assert recording.header.left_out == ("group 0 (MambaSpec)",)
    assert "not judged: group 0 (MambaSpec)" in poolproof.audit(path).notes


def test_the_first_exception_ends_the_recording_in_one_line_and_the_engine_goes_on(
    recorded, caplog
):
    scheduler = Scheduler(
        output(new=[("stranger", 3, 0, ([1, 2],))]), output(new=[("a", 3, 0, ([1, 2],))])
    )
    recorder, path = recorded(scheduler, request("a", [1, 2, 3]))
    with caplog.at_level(logging.ERROR):
        run(scheduler)
        run(scheduler)
    assert scheduler.shutdown() == "down"
    (line,) = caplog.messages
    assert line == "the recording has ended, the engine goes on: KeyError: 'stranger'"
    assert not recorder.is_on
    recording = open_recording(path)
    assert (list(recording), recording.end) == ([], "KeyError: 'stranger'")


def test_steps_that_never_come_back_are_written_at_the_end(recorded):
    """The step that ends an engine is the one that everybody wants to see."""
    a, b = request("a", [1, 2, 3]), request("b", [9, 9, 9])
    scheduler = Scheduler(
        output(new=[("a", 3, 0, ([1, 2],))]),
        output(),
        output(new=[("b", 1, 2, ([1, 3],))], old=[("a", 3, 3, ([4],))], drafts={"a": [-1, -1]}),
    )
    recorder, path = recorded(scheduler, a, b)
    for _ in range(3):
        scheduler.schedule()
    recorder.close()
    one, two = open_recording(path)
    assert (len(one.computed), len(two.computed)) == (1, 2)
    audit = poolproof.audit(path)
    assert "reads at position 0 (group 0, block 1, slot 0)" in audit.sentence()


def test_what_cannot_be_recorded_is_one_line(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(vllm_record, "version_of_vllm", lambda: "0.0")
    assert record_scheduler(Scheduler(), tmp_path / "no" / "steps.gz") is None
    assert record_scheduler(Scheduler(specs=(MambaSpec,)), tmp_path / "steps.gz") is None
    first, second = caplog.messages
    assert "No such file or directory; name a file in a folder that this user may write" in first
    assert "no cache group can be recorded: group 0 (MambaSpec)" in second
    with pytest.raises(RecordingError, match="POOLPROOF_RECORD_MIB='x' must be a number of MiB"):
        record_schedulers({"POOLPROOF_RECORD": "steps.gz", "POOLPROOF_RECORD_MIB": "x"})


def test_two_engines_of_one_server_write_a_file_each(tmp_path, monkeypatch):
    monkeypatch.setattr(vllm_record, "version_of_vllm", lambda: "0.0")
    recorders = [record_scheduler(Scheduler(), tmp_path / "steps.gz") for _ in range(2)]
    assert [recorder.path.name for recorder in recorders] == ["steps.gz", "steps.gz-2"]
    for recorder in recorders:
        recorder.close()


SCRIPT = """
import os, sys, tempfile
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
sys.path.insert(0, {benchmarks!r})
import live_vllm
from poolproof.targets.vllm_live import scheduler_of, watch
from poolproof.targets.vllm_plugin import register
register()
register()
drive, options = live_vllm.SCENARIOS[{name!r}]
with tempfile.TemporaryDirectory() as folder:
    llm = live_vllm.make_llm(folder, **options())
    drive(llm, watch(scheduler_of(llm)), {steps})
"""


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("name", "steps", "holds"), [("async", 40, True), ("priority", 120, False)]
)
def test_a_real_engine_is_recorded_and_audited(tmp_path, name, steps, holds, monkeypatch):
    """POOLPROOF_RECORD alone; vLLM's priority leak is found, with a trace that replays it."""
    path = tmp_path / "steps.gz"
    monkeypatch.setenv("POOLPROOF_RECORD", str(path))
    monkeypatch.delenv("POOLPROOF_WATCH", raising=False)
    benchmarks = Path(__file__).parents[2] / "benchmarks"
    script = SCRIPT.format(benchmarks=str(benchmarks), name=name, steps=steps)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    audit = poolproof.audit(path)
    assert (audit.holds, audit.notes) == (holds, ())
    if holds:
        assert audit.num_steps >= steps
        return
    (finding,) = audit.findings
    assert (finding.position, finding.writer, audit.engine[:4]) == (128, None, "vllm")
    command = [sys.executable, "-m", "poolproof", "audit", str(path), "--report", str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (told.returncode, "trace written to" in told.stdout) == (1, True), told.stderr
    shown = poolproof.replay(tmp_path / "steps.story.jsonl", in_process=True)
    assert shown.violation is not None
    assert json.loads((tmp_path / "steps.story.jsonl").read_text().splitlines()[0])["level"]
