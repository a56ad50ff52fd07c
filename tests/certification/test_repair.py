"""What a patch does: repairs, leaves, breaks, and what it costs in hits."""

import json

import pytest

from poolproof.certification import repair
from poolproof.certification.depths import BUDGETS, Budget
from poolproof.certification.repair import PatchEffect
from poolproof.contract.depth import Depth
from poolproof.stateful_tests import settings

RIGHT = """\
from poolproof.impl.block_pool import BlockPool


class Pool(BlockPool):
    def free(self, block_ids):
        super().free(block_ids)

    def lookup(self, block_hash, *, group=0):
        return super().lookup(block_hash, group=group)
"""
LEAKS = RIGHT.replace("free(block_ids)\n\n", "free(list(block_ids)[:3])\n\n")
FORGETS = RIGHT.replace("super().free(block_ids)", "super().free(block_ids)\n        self.reset()")


def diff_of(before, after):
    """The whole file, in one hunk."""
    old, new = before.splitlines(), after.splitlines()
    lines = [f"-{line}" for line in old] + [f"+{line}" for line in new]
    return "\n".join([
        "--- a/pool.py", "+++ b/pool.py", f"@@ -1,{len(old)} +1,{len(new)} @@", *lines, "",
    ])  # fmt: skip


@pytest.fixture(autouse=True)
def _small_budget(monkeypatch):
    small = Budget(pool_chunks=1, chain_chunks=1, queue_chunks=1, shortest_states=500)
    monkeypatch.setitem(BUDGETS, Depth.QUICK, small)
    monkeypatch.setitem(settings.EXAMPLES, Depth.QUICK, 8)
    monkeypatch.setattr("poolproof.certification.driving.RUNS_PER_CHUNK", 40)
    monkeypatch.setitem(repair._RUNS, Depth.QUICK, 16)


@pytest.fixture
def judged(folder, poolproof):
    """Judges the change from one text of pool.py to another: the exit status and the JSON."""

    def judge(before, after, *more):
        (folder / "pool.py").write_text(before)
        (folder / "change.diff").write_text(diff_of(before, after))
        options = ("--patch", "change.diff", "--depth", "quick", "--json", "repair.json", *more)
        done = poolproof("certify", "pool.py:Pool", *options)
        return done, json.loads((folder / "repair.json").read_text())

    return judge


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("texts", "effects", "status", "words"),
    [
        ((LEAKS, RIGHT), {PatchEffect.REPAIRS}, 0, "REPAIRS: repairs"),
        ((RIGHT, LEAKS), {PatchEffect.BREAKS}, 1, "BREAKS: repairs 0"),
        ((LEAKS, f"#\n{LEAKS}"), {PatchEffect.LEAVES}, 1, "CHANGES NOTHING"),
        ((RIGHT, f"#\n{RIGHT}"), set(), 0, "BREAKS NOTHING"),
    ],
    ids=["repairs", "breaks", "leaves", "nothing"],
)
def test_what_a_patch_does_to_what_is_found(judged, texts, effects, status, words):
    done, report = judged(*texts)
    assert done.exit_code == status, done.output
    assert words in done.stdout
    assert {PatchEffect(finding["effect"]) for finding in report["findings"]} == effects


@pytest.mark.some(0)
def test_a_repair_that_gives_up_the_cache_shows_in_the_hits(judged):
    done, report = judged(RIGHT, FORGETS, "--profile", "retention=may-drop")
    (hits,) = [each for each in report["hits"] if each["unit"] == "lookups"]
    before, after = hits["found"]
    assert before > after
    assert f"without the patch {before:,}" in " ".join(done.stdout.split())


@pytest.mark.some(0)
def test_one_patch_is_judged_beside_another(folder, poolproof):
    (folder / "pool.py").write_text(LEAKS)
    (folder / "one.diff").write_text(diff_of(LEAKS, RIGHT))
    (folder / "other.diff").write_text(diff_of(LEAKS, f"#\n{RIGHT}"))
    options = ("--patch", "other.diff", "--depth", "quick")
    done = poolproof("certify", "pool.py:Pool[patch=one.diff]", *options)
    assert done.exit_code == 0, done.output
    assert "BREAKS NOTHING: nothing was found" in done.stdout


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("diff", "says"),
    [
        ("", "changes no file"),
        (diff_of(LEAKS, RIGHT), "change.diff"),
        (diff_of(RIGHT, LEAKS).replace("pool.py", "other.py"), "other.py"),
        (diff_of(RIGHT, LEAKS).replace("b/pool.py", "../pool.py"), "pool.py"),
    ],
    ids=["empty", "other lines", "other file", "outside"],
)
def test_a_patch_that_cannot_be_applied_is_one_line(folder, poolproof, diff, says):
    (folder / "pool.py").write_text(RIGHT)
    (folder / "change.diff").write_text(diff)
    done = poolproof("certify", "pool.py:Pool", "--patch", "change.diff", "--depth", "quick")
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 4
    assert "Traceback" not in done.output


@pytest.mark.parametrize("option", [("--known", "k.toml"), ("--power",), ("--in-process",)])
def test_what_does_not_go_with_a_patch_is_named(folder, poolproof, option):
    (folder / "change.diff").write_text(diff_of(RIGHT, LEAKS))
    done = poolproof("certify", "impl", "--patch", "change.diff", *option)
    assert done.exit_code == 2
    assert f"{option[0]} does not go with --patch" in " ".join(done.stderr.split())


def test_what_cannot_be_patched_says_so(folder, poolproof):
    (folder / "change.diff").write_text(diff_of(RIGHT, LEAKS))
    for target in ("impl", "cmd:./pool"):
        done = poolproof("certify", target, "--patch", "change.diff", "--depth", "quick")
        assert done.exit_code == 2
        assert "patch" in done.stderr


@pytest.mark.some(0)
def test_every_form_of_the_report_says_what_the_patch_does(folder, poolproof):
    (folder / "pool.py").write_text(RIGHT)
    (folder / "change.diff").write_text(diff_of(RIGHT, LEAKS))
    options = ("--patch", "change.diff", "--depth", "quick", "--report", "report")
    assert poolproof("certify", "pool.py:Pool", *options).exit_code == 1
    written = {path.suffix for path in (folder / "report").iterdir() if path.is_file()}
    assert {".html", ".json", ".md", ".txt", ".xml"} <= written
    for suffix in ("html", "md", "txt"):
        (file,) = (folder / "report").glob(f"repair.{suffix}")
        assert "BREAKS" in file.read_text()
