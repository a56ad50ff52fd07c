"""A call that hangs once, or is slow at a size, is not blamed on the target."""

import os
import time
from pathlib import Path

import pytest

from poolproof.certification.certificate import StageOutcome, Verdict
from poolproof.certification.certify import certify
from poolproof.certification.depths import BUDGETS, Budget
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import SilentProgress
from poolproof.certification.run_kinds import POOL, Chunk, layout_kind
from poolproof.certification.second_look import SecondLook
from poolproof.certification.verdict import Rules, judge, reasons_inconclusive
from poolproof.contract.depth import Depth
from poolproof.contract.level import Level
from poolproof.harness.isolation import Finished, Hung, Isolation, Limits
from poolproof.harness.lost_run import Again
from poolproof.harness.manager_production import QUICK_SIZES
from poolproof.stateful_tests import settings
from poolproof.targets.load import load_target

LIMITS = Limits(call_timeout_s=1.0)

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")

STANDS_STILL_ONCE = """
import time
from pathlib import Path
from poolproof.impl.block_pool import BlockPool

FLAG = Path(__file__).with_name("stood_still")

class Pool(BlockPool):
    def free(self, blocks):
        if not FLAG.exists():
            FLAG.touch()
            time.sleep(60)
        super().free(blocks)
"""


def hang_without_the_file(context, flag: Path, beacon):
    if not flag.exists():
        flag.touch()
        time.sleep(60)
    return flag.name


def hang(context, argument, beacon):
    time.sleep(60)


def takes_three_limits(context, argument, beacon):
    time.sleep(3 * LIMITS.call_timeout_s)
    return "ended"


def takes_three_limits_after_a_command(context, argument, beacon):
    beacon.mark(0)
    beacon.bump()
    return takes_three_limits(context, argument, beacon)


def takes_half_a_limit_the_second_time(context, argument, beacon):
    time.sleep(LIMITS.call_timeout_s * (60 if is_first() else 0.5))
    return "ended"


def takes_nothing_the_second_time(context, argument, beacon):
    time.sleep(60 if is_first() else 0)
    return "ended"


def is_first():
    """Whether nobody has asked before, in any worker of this test."""
    flag = Path(os.environ["FLAG"])
    if flag.exists():
        return False
    flag.touch()
    return True


SMALL = Chunk(POOL, seed=0, first=0, count=1)
LARGE = Chunk(
    layout_kind(Level.MANAGER, "full").at_production_sizes(QUICK_SIZES), seed=0, first=0, count=1
)


@needs_fork
def test_what_ends_the_second_time_counts_and_is_noted(tmp_path):
    with Isolation(dict, LIMITS) as isolation:
        look = SecondLook(isolation)
        outcomes = list(look.map(hang_without_the_file, [tmp_path / "a", tmp_path / "b"]))
    assert [outcome.value for outcome in outcomes if isinstance(outcome, Finished)] == ["a", "b"]
    assert look.stood_still == ["a command did not return within 1 s"] * 2


@needs_fork
@pytest.mark.parametrize("argument", [1, Again(1, Path("journal"))])
def test_what_hangs_twice_hangs(argument):
    with Isolation(dict, LIMITS) as isolation:
        look = SecondLook(isolation)
        (outcome,) = look.map(hang, [argument])
    assert isinstance(outcome, Hung)
    assert look.stood_still == []


@pytest.mark.some(0)
@needs_fork
def test_what_is_slow_at_the_sizes_of_servers_is_given_time():
    with Isolation(dict, LIMITS) as isolation:
        look = SecondLook(isolation)
        (outcome,) = look.map(takes_three_limits, [LARGE])
    assert outcome == Finished("ended")
    assert (look.slow, look.stood_still) == (["a command did not return within 1 s"], [])


@needs_fork
def test_what_nearly_takes_the_limit_at_the_sizes_of_servers_is_slow(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAG", str(tmp_path / "flag"))
    with Isolation(dict, LIMITS) as isolation:
        look = SecondLook(isolation)
        (outcome,) = look.map(takes_half_a_limit_the_second_time, [LARGE])
    assert outcome == Finished("ended")
    assert (look.slow, look.stood_still) == (["a command did not return within 1 s"], [])


@needs_fork
def test_what_is_short_the_second_time_stood_still_at_any_size(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAG", str(tmp_path / "flag"))
    with Isolation(dict, LIMITS) as isolation:
        look = SecondLook(isolation)
        (outcome,) = look.map(takes_nothing_the_second_time, [LARGE])
    assert outcome == Finished("ended")
    assert (look.slow, look.stood_still) == ([], ["a command did not return within 1 s"])


@needs_fork
def test_what_is_slow_before_its_first_command_is_given_time():
    with Isolation(dict, LIMITS) as isolation:
        look = SecondLook(isolation)
        (outcome,) = look.map(takes_three_limits, [SMALL])
    assert outcome == Finished("ended")
    assert look.slow_to_begin == ["a constructor did not return within 1 s"]
    assert (look.slow, look.stood_still) == ([], [])


@needs_fork
def test_what_is_slow_at_a_small_size_hangs():
    with Isolation(dict, LIMITS) as isolation:
        look = SecondLook(isolation)
        (outcome,) = look.map(takes_three_limits_after_a_command, [SMALL])
    assert isinstance(outcome, Hung)
    assert (look.slow, look.stood_still) == ([], [])


@needs_fork
def test_what_never_ends_at_the_sizes_of_servers_hangs(monkeypatch):
    monkeypatch.setattr("poolproof.certification.second_look.PATIENCE", 2.0)
    with Isolation(dict, LIMITS) as isolation:
        look = SecondLook(isolation)
        (outcome,) = look.map(hang, [LARGE])
    assert isinstance(outcome, Hung)
    assert outcome.seconds == 2 * LIMITS.call_timeout_s
    assert look.slow == []


@needs_fork
def test_a_target_that_stood_still_once_is_neither_refused_nor_passed(folder, monkeypatch):
    small = Budget(pool_chunks=1, chain_chunks=1, queue_chunks=1, shortest_states=500)
    monkeypatch.setitem(BUDGETS, Depth.QUICK, small)
    monkeypatch.setitem(settings.EXAMPLES, Depth.QUICK, 8)
    monkeypatch.setattr("poolproof.certification.driving.RUNS_PER_CHUNK", 40)
    (folder / "pool.py").write_text(STANDS_STILL_ONCE)
    options = CertifyOptions(depth=Depth.QUICK, limits=LIMITS)
    found = certify(lambda: load_target("./pool.py:Pool"), options, SilentProgress())
    certificate = judge(found, Rules())
    assert (certificate.verdict, certificate.findings) == (Verdict.INCONCLUSIVE, ())
    *_, last = certificate.stages
    assert (last.stage, last.outcome) == ("calls that stood still", StageOutcome.INCONCLUSIVE)
    assert last.note.startswith(
        "a command did not return within 1 s, and the same run ended when it was repeated. "
    )
    assert [why for why in reasons_inconclusive(certificate) if "stood still" in why]


LOADS_ONCE = """
import time
from poolproof.impl.block_pool import BlockPool

class Pool(BlockPool):
    loaded = []

    def __init__(self, num_blocks, **options):
        if not self.loaded:
            time.sleep(1.5)
            self.loaded.append(True)
        super().__init__(num_blocks, **options)
"""


@pytest.mark.some(0)
@needs_fork
def test_a_target_that_loads_something_once_in_a_process_holds(folder, monkeypatch):
    small = Budget(pool_chunks=1, chain_chunks=1, queue_chunks=1, shortest_states=500)
    monkeypatch.setitem(BUDGETS, Depth.QUICK, small)
    monkeypatch.setitem(settings.EXAMPLES, Depth.QUICK, 8)
    monkeypatch.setattr("poolproof.certification.driving.RUNS_PER_CHUNK", 40)
    (folder / "pool.py").write_text(LOADS_ONCE)
    options = CertifyOptions(depth=Depth.QUICK, limits=LIMITS)
    certificate = certify(lambda: load_target("./pool.py:Pool"), options, SilentProgress())
    assert judge(certificate, Rules()).verdict is Verdict.HOLDS
    assert [note for note in certificate.notes if note.startswith("slow to begin, and not wrong")]
