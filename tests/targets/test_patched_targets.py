"""A target with a patch is the target with a diff applied to its sources, in memory."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import pytest

from poolproof.contract.target import TargetError
from poolproof.targets.engine_sources import ENGINES_VARIABLE
from poolproof.targets.load import load_target
from poolproof.targets.patch_places import places_of
from poolproof.targets.source_patch import read_patch
from poolproof.targets.target_spec import TargetSpec

POOL = '''\
"""A pool in the file of a user."""

from size import spare


class Pool:
    profile = {"eviction": "lru"}

    def __init__(self, num_blocks, *, enable_caching=True):
        self.queue = list(range(num_blocks))

    def num_free(self):
        return len(self.queue) + spare()

    def allocate(self, n):
        taken, self.queue = self.queue[:n], self.queue[n:]
        return taken

    def free(self, block_ids):
        self.queue += block_ids

    def cache(self, block_ids, hashes):
        pass

    def lookup(self, block_hash):
        return None

    def touch(self, block_ids):
        pass
'''
SIZE = "def spare():\n    return 0\n"


def diff_of(name: str, before: str, after: str) -> str:
    lines = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(difflib.unified_diff(*lines, f"a/{name}", f"b/{name}"))


@pytest.fixture
def pool(folder, monkeypatch):
    """A pool, and a module beside it that it imports; each test has its own."""
    monkeypatch.delitem(sys.modules, "size", raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    Path("pool.py").write_text(POOL, "utf-8")
    Path("size.py").write_text(SIZE, "utf-8")
    yield folder
    sys.modules.pop("size", None)


def write(name: str, text: str) -> str:
    Path(name).write_text(text, "utf-8")
    return name


FIX = diff_of("pool.py", POOL, POOL.replace("len(self.queue) +", "1 + len(self.queue) +"))


def refusal(target: str) -> str:
    with pytest.raises(TargetError) as caught:
        load_target(target)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_patched_class_runs_and_the_file_stays(pool):
    write("fix.diff", FIX)
    assert load_target("pool.py:Pool[patch=fix.diff]").make(3, True).num_free() == 4
    assert load_target("pool.py:Pool").make(3, True).num_free() == 3
    assert Path("pool.py").read_text("utf-8") == POOL


def test_the_target_says_with_what_it_was_patched(pool):
    write("fix.diff", FIX)
    write("pool.py", f"# by us\n{POOL}")
    target = load_target("pool.py:Pool[patch=fix.diff,eviction=lifo]")
    assert target.name == "pool.py:Pool[eviction=lifo,patch=fix.diff]"
    assert target.profile.eviction == "lifo"
    assert ", with fix.diff (sha256 " in target.source
    assert target.notes[0].startswith("patched with fix.diff (sha256 ")
    assert target.notes[1] == (
        "fix.diff: hunk 1 of pool.py stands 1 line further down than it says"
    )


def test_a_module_that_the_target_imports_is_patched(pool):
    write("fix.diff", diff_of("size.py", SIZE, SIZE.replace("0", "7")))
    assert load_target("pool.py:Pool[patch=fix.diff]").make(3, True).num_free() == 10


def test_a_module_that_is_imported_late_is_patched(pool, monkeypatch):
    monkeypatch.syspath_prepend(str(pool))
    late = POOL.replace("from size import spare\n", "").replace(
        "        return len", "        from size import spare\n\n        return len"
    )
    write(
        "pool.py", late.replace("(range(num_blocks))", "(range(num_blocks))\n        import size")
    )
    write("fix.diff", diff_of("size.py", SIZE, SIZE.replace("0", "7")))
    assert load_target("pool.py:Pool[patch=fix.diff]").make(3, True).num_free() == 10


def test_a_traceback_shows_the_patched_lines(pool):
    broken = POOL.replace("taken, self.queue =", "raise KeyError  # patched\n        taken =")
    write("fix.diff", diff_of("pool.py", POOL, broken))
    instance = load_target("pool.py:Pool[patch=fix.diff]").make(3, True)
    with pytest.raises(KeyError) as caught:
        instance.allocate(1)
    assert str(caught.traceback[-1].statement).strip() == "raise KeyError  # patched"


def test_what_the_target_does_not_have_is_left_out_and_named(pool):
    new = "--- /dev/null\n+++ b/tests/test_it.py\n@@ -0,0 +1 @@\n+x = 1\n"
    docs = "--- a/docs/page.md\n+++ b/docs/page.md\n@@ -1 +1 @@\n-x\n+y\n"
    write("fix.diff", FIX + new + docs)
    assert load_target("pool.py:Pool[patch=fix.diff]").notes[1] == (
        "left out of fix.diff: tests/test_it.py (new, so nothing imports it yet), docs/page.md "
        "(not Python)"
    )


def test_a_file_that_nothing_imports_is_named(pool):
    write("other.py", SIZE)
    write("fix.diff", FIX + diff_of("other.py", SIZE, SIZE.replace("0", "7")))
    notes = load_target("pool.py:Pool[patch=fix.diff]").notes
    assert notes[1] == "fix.diff: nothing that is driven imports other.py"


def test_paths_begin_at_any_folder_above_the_file(pool):
    Path("src").mkdir()
    Path("pool.py").rename("src/pool.py")
    Path("size.py").rename("src/size.py")
    write("fix.diff", FIX.replace("/pool.py", "/src/pool.py"))
    assert load_target("src/pool.py:Pool[patch=fix.diff]").make(3, True).num_free() == 4


def test_a_patch_that_is_not_there_is_named(pool):
    assert refusal("pool.py:Pool[patch=gone.diff]").startswith(
        "pool.py:Pool names the patch gone.diff, which is not in "
    )


def test_a_patch_of_something_else_is_refused(pool):
    write("fix.diff", FIX.replace("pool.py", "elsewhere/pond.py"))
    assert "fix.diff changes nothing of pool.py:Pool: elsewhere/pond.py (not among the " in refusal(
        "pool.py:Pool[patch=fix.diff]"
    )


def test_a_patch_that_only_changes_what_nobody_imports_is_refused(pool):
    write("other.py", SIZE)
    write("fix.diff", diff_of("other.py", SIZE, SIZE.replace("0", "7")))
    assert "fix.diff changes other.py, and pool.py:Pool imports none of that" in refusal(
        "pool.py:Pool[patch=fix.diff]"
    )


def test_a_patch_that_does_not_apply_is_refused(pool):
    write("fix.diff", FIX)
    write("pool.py", POOL.replace("len(self.queue)", "self.count"))
    assert refusal("pool.py:Pool[patch=fix.diff]") == (
        "fix.diff: hunk 1 of pool.py (line 3) does not apply: line 13 should be '        return "
        "len(self.queue) + spare()' and is '        return self.count + spare()'"
    )


def test_what_is_no_python_afterwards_is_refused(pool):
    write("fix.diff", diff_of("pool.py", POOL, POOL.replace("def num_free(self):", "def num_free")))
    assert refusal("pool.py:Pool[patch=fix.diff]").startswith(
        "with fix.diff, line 12 of pool.py is no Python: "
    )


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        ("diff --git a/pool.py b/pond.py\nrename from pool.py\nrename to pond.py\n", "renames or"),
        ("--- a/pool.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "deletes pool.py, which is not done"),
        ("--- /dev/null\n+++ b/pool.py\n@@ -0,0 +1 @@\n+x\n", "it creates pool.py, which is there"),
    ],
)
def test_what_memory_cannot_show_is_refused(pool, diff, said):
    write("fix.diff", diff)
    assert said in refusal("pool.py:Pool[patch=fix.diff]")


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("impl", "it is Poolproof's own"),
        ("reference-manager", "it is Poolproof's own"),
        ("cmd:./pool", "it is a program; apply the patch to a checkout"),
        ("recording:run.rec", "it is a recording"),
        ("tgi", "it is compiled; apply the patch to a checkout and certify tgi:path/to/checkout"),
    ],
)
def test_what_has_no_sources_to_patch_says_so(folder, target, why):
    assert f"no patch is applied to {target}, because {why}" in refusal(f"{target}[patch=x.diff]")


def test_two_patches_are_refused():
    with pytest.raises(TargetError, match="put both diffs into one file"):
        TargetSpec.parse("vllm[patch=a.diff]").with_patch("b.diff")


def test_a_name_that_cannot_stand_in_brackets_is_refused():
    with pytest.raises(TargetError, match="give the patch another name"):
        TargetSpec.parse("vllm").with_patch("a,b.diff")


def test_a_module_that_was_imported_without_the_patch_is_told(pool, monkeypatch):
    monkeypatch.syspath_prepend(str(pool))
    __import__("size")
    write("fix.diff", diff_of("size.py", SIZE, SIZE.replace("0", "7")))
    assert "has imported size already, without this patch or with another" in refusal(
        "pool.py:Pool[patch=fix.diff]"
    )


def test_a_module_with_a_patch_is_not_taken_for_one_without(pool):
    write("fix.diff", diff_of("size.py", SIZE, SIZE.replace("0", "7")))
    load_target("pool.py:Pool[patch=fix.diff]")
    assert "this process has imported size already" in refusal("pool.py:Pool")


def test_a_checkout_is_patched_beside_the_same_one_without(folder, monkeypatch):
    source = Path(__file__).with_name("toy_nano.py").read_text("utf-8")
    place = Path("checkout/toynano/engine")
    place.mkdir(parents=True)
    (place / "sequence.py").write_text("class Sequence:\n    pass\n", "utf-8")
    (place / "block_manager.py").write_text(source, "utf-8")
    found = places_of(TargetSpec.parse("nano-vllm:checkout"))
    assert found.find("toynano/engine/block_manager.py") == (place / "block_manager.py").resolve()
    assert found.find("python/toynano/engine/sequence.py") == (place / "sequence.py").resolve()
    assert found.find("tests/block_manager.py") is None


def test_fetched_sources_are_found_by_the_paths_of_the_repository(folder, monkeypatch):
    monkeypatch.setenv(ENGINES_VARIABLE, str(folder))
    place = folder / "vllm-0.28.0/vllm/v1/core"
    place.mkdir(parents=True)
    (place / "block_pool.py").write_text("POOL = 1\n", "utf-8")
    places = places_of(TargetSpec.parse("vllm-manager@0.28.0"))
    write("fix.diff", diff_of("vllm/v1/core/block_pool.py", "POOL = 1\n", "POOL = 2\n"))
    patch = read_patch("fix.diff", places.find, "vllm-manager@0.28.0")
    assert patch.texts == {(place / "block_pool.py").resolve(): b"POOL = 2\n"}


@pytest.mark.parametrize(
    ("target", "path", "place"),
    [
        ("sglang-engine", "python/sglang/srt/a.py", "sglang-0.5.23/sglang/srt/a.py"),
        ("sglang-hicache-engine", "python/sglang/srt/a.py", "sglang-0.5.23/sglang/srt/a.py"),
        ("lmcache", "lmcache/v1/a.py", "lmcache-0.5.6/lmcache/v1/a.py"),
    ],
)
def test_what_is_unpacked_is_found_by_every_target_over_it(
    folder, monkeypatch, target, path, place
):
    monkeypatch.setenv(ENGINES_VARIABLE, str(folder))
    file = folder / place
    file.parent.mkdir(parents=True)
    file.write_text("A = 1\n", "utf-8")
    assert places_of(TargetSpec.parse(target)).find(path) == file.resolve()
