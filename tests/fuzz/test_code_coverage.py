"""Code coverage of a corpus: what counts, what is never reached, what has no lines at all."""

import sys
from dataclasses import replace

import pytest

from poolproof.contract.target import TargetError
from poolproof.fuzz.code_coverage import CoverageTask, check_coverage, measure_coverage
from poolproof.fuzz.coverage_record import CodeCoverage, CoveragePoint, FileCoverage
from poolproof.fuzz.folder import CampaignFolder, read_coverage
from poolproof.fuzz.messages import CorpusTape
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import pack
from poolproof.fuzz.target_files import files_of
from poolproof.harness.isolation import Beacon
from poolproof.report.campaign_document import coverage_facts
from poolproof.report.campaign_words import missing_words
from poolproof.report.document import Fact
from poolproof.targets.load import load_target

SOURCE = """
from poolproof.impl.free_queue import FreeQueue
from pool_parts import half

WRITTEN_ON_IMPORT = 1


class Pool:
    profile = {"misuse": "undefined"}

    def __init__(self, num_blocks, *, enable_caching=True):
        self.free_blocks = list(range(num_blocks))

    def allocate(self, n):
        if n > len(self.free_blocks):
            raise MemoryError
        taken, self.free_blocks = self.free_blocks[:n], self.free_blocks[n:]
        return taken

    def free(self, block_ids):
        self.free_blocks += block_ids

    def touch(self, block_ids):
        raise NotImplementedError

    def cache(self, block_ids, hashes):
        pass

    def lookup(self, block_hash):
        return None

    def evict(self, block_ids):
        pass

    def reset(self):
        return True

    def num_free(self):
        return len(self.free_blocks)

    def never_called(self):
        return half(2)
"""


@pytest.fixture(name="pool")
def pool_(tmp_path):
    (tmp_path / "pool_parts.py").write_text("def half(n):\n    return n // 2\n")
    path = tmp_path / "pool.py"
    path.write_text(SOURCE)
    yield load_target(f"{path}:Pool")
    sys.modules.pop("pool_parts", None)


def task_for(target, *tapes):
    kept = tuple(CorpusTape(tape, pack([number]), 10, "fresh") for number, tape in enumerate(tapes))
    return CoverageTask(CampaignSettings(target.name, "pool", 3), kept)


def measured(target, *tapes):
    shown = Beacon(memoryview(bytearray(64)).cast("Q"))
    return measure_coverage(target, task_for(target, *tapes), shown)


def test_files_are_those_of_the_class_and_what_stands_beside_it(pool):
    assert [path.name for path in files_of(pool, "pool")] == ["pool.py", "pool_parts.py"]


def test_files_of_a_base_class_count_and_those_of_the_judges_do_not():
    target = load_target("tests/fuzz/planted.py:TouchesTwice")
    names = {path.name for path in files_of(target, "pool")}
    assert {"planted.py", "block_pool.py", "free_queue.py"} <= names
    assert not {"pool_session.py", "native_target.py"} & names


def test_lines_in_functions_count_and_what_is_never_called_is_named(pool):
    tapes = [bytes(range(200)), bytes(range(50, 250)) * 2]
    found = measured(pool, *tapes)
    own = next(file for file in found.files if file.path.endswith("pool.py"))
    lines = SOURCE.splitlines()
    missing = [lines[line - 1].strip() for line in own.missing_lines]
    assert "return half(2)" in missing
    assert "WRITTEN_ON_IMPORT = 1" not in missing
    assert own.num_lines == 13
    assert own.num_branches == 2


def test_the_curve_is_in_the_order_of_the_corpus(pool):
    found = measured(pool, b"", *([bytes(range(200))] * 10))
    assert [point.num_tapes for point in found.curve] == [1, 10, 11]
    assert [point.num_states for point in found.curve] == [1, 10, 11]
    reached = [point.num_lines for point in found.curve]
    assert reached == sorted(reached)
    assert reached[-1] == found.num_reached


def test_tapes_beyond_the_bound_are_counted(pool, monkeypatch):
    monkeypatch.setattr("poolproof.fuzz.code_coverage.MOST_STEPS", 25)
    found = measured(pool, b"\1" * 20, b"\2" * 20, b"\3" * 20)
    assert (found.num_tapes, found.num_left_out) == (2, 1)


def test_a_target_without_python_source_says_so(pool):
    found = measured(replace(pool, real_class=None), b"")
    assert list(coverage_facts(found)) == [
        Fact("code", "the target has no Python source whose lines could be counted")
    ]


def test_coverage_py_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "coverage", None)
    with pytest.raises(TargetError) as refused:
        check_coverage()
    assert "pip install 'poolproof[fuzz]'" in str(refused.value)


def test_figures_and_missing_lines_in_words():
    file = FileCoverage("pool.py", 240, 110, (3, 7, 8, 9), ((1, 2),))
    found = CodeCoverage((file,), (CoveragePoint(1, 200, 90, 5),), 1, 4)
    code, *others = coverage_facts(found)
    assert code.words.startswith("lines of the target: 236 of 240 (branches 109 of 110)")
    assert code.words.endswith(", by 1 tape, 4 later ones left out")
    assert others == [
        Fact("curve", "200 lines and 5 states by 1 tape"),
        Fact("unreached", "pool.py: 3, 7-9"),
    ]
    assert missing_words(replace(file, missing_lines=())) == ""


def test_a_folder_keeps_what_was_measured(tmp_path, pool):
    found = measured(pool, bytes(range(100)))
    settings = CampaignSettings(pool.name, "pool", 3)
    with CampaignFolder(tmp_path, settings) as folder:
        assert folder.coverage() is None
        folder.record_coverage(found)
    assert read_coverage(tmp_path) == found
