"""Engines are fetched by git as they are, and become targets."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import FunctionType, SimpleNamespace

import pytest
from click.testing import CliRunner

from poolproof.cli.command_line import main
from poolproof.contract.adapter_fault import HandedFields
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.targets import catalogue, nano_clones
from poolproof.targets.adapter_uses import Use
from poolproof.targets.catalogue import SOURCE_ENGINES
from poolproof.targets.gllm_manager import GLLM
from poolproof.targets.load import load_target
from poolproof.targets.nano_clones import NANO_CLONES
from poolproof.targets.source_engines import (
    SourceEngine,
    fetch_engine,
    fetched_folder,
    source_target,
)

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class ToyManager:
    """Has room for everything, and remembers nothing."""

    def __init__(self, modules, num_blocks, block_size, enable_caching):
        del modules
        self.built_with = num_blocks, block_size, enable_caching
        self.length = 0

    def admit(self, seq_id, tokens, *, extra_keys=None):
        del seq_id, extra_keys
        self.length = len(tokens)
        return 0

    def append(self, seq_id, tokens):
        del seq_id
        self.length += len(tokens)
        return []

    def step(self, batch): ...

    def finish(self, seq_id): ...

    abort = finish

    def block_table(self, seq_id, group=0):
        del seq_id, group
        return list(range(-(-self.length // 4)))

    def num_free(self):
        return 9


@pytest.fixture
def upstream(tmp_path) -> SourceEngine:
    """A repository of an engine with one class, and more files than anybody needs."""
    folder = tmp_path / "upstream"
    (folder / "toy" / "core").mkdir(parents=True)
    (folder / "toy" / "core" / "blocks.py").write_text("import torch\nclass Blocks: pass\n")
    (folder / "toy" / "server.py").write_text("raise RuntimeError\n")
    (folder / "LICENSE").write_text("as you like\n")
    git(folder, "init", "--quiet")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    return SourceEngine(
        name="toy",
        what="a toy",
        address=str(folder),
        commit=git(folder, "rev-parse", "HEAD"),
        files=("toy/core/blocks.py", "LICENSE"),
        package="toy",
        modules=("core.blocks",),
        stubs=lambda: {"torch": SimpleNamespace()},
        manager=ToyManager,
        real_class=lambda modules: modules["core.blocks"].Blocks,
        rows={"publishes": "scheduled"},
    )


@needs_git
def test_only_the_wanted_files_are_fetched(upstream, tmp_path):
    place, is_new = fetch_engine(upstream, tmp_path / "engines")
    found = sorted(str(p.relative_to(place)) for p in place.rglob("*") if p.is_file())
    assert is_new
    assert found == [".complete", "LICENSE", "toy/core/blocks.py"]
    assert [p.name for p in (tmp_path / "engines").iterdir()] == [upstream.folder]


@needs_git
def test_what_is_there_is_not_fetched_again(upstream, tmp_path):
    fetch_engine(upstream, tmp_path)
    assert fetch_engine(replace(upstream, address="nowhere"), tmp_path)[1] is False


@needs_git
def test_a_commit_that_is_not_upstream_is_one_line(upstream, tmp_path):
    with pytest.raises(TargetError) as caught:
        fetch_engine(replace(upstream, commit="0" * 40), tmp_path / "engines")
    assert str(caught.value).startswith(f"toy could not be fetched from {upstream.address}: ")
    assert "toy:path/to/checkout" in str(caught.value)
    assert list((tmp_path / "engines").iterdir()) == []


@needs_git
def test_a_file_that_upstream_lacks_is_named(upstream, tmp_path):
    with pytest.raises(TargetError, match=r"toy/gone\.py"):
        fetch_engine(replace(upstream, files=("toy/gone.py",)), tmp_path / "engines")


@needs_git
def test_a_fetched_engine_is_a_target(upstream, tmp_path, monkeypatch):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path / "engines"))
    fetch_engine(upstream)
    target = source_target(upstream, "toy", {"hits": "sound"})
    assert target.version == f"toy {upstream.commit[:7]}"
    assert (target.profile.publishes, target.profile.hits) == ("scheduled", "sound")
    assert target.make(3, True).built_with == (3, 4, True)


def test_a_checkout_may_be_named_instead(tmp_path, monkeypatch):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    with pytest.raises(TargetError, match=r"is no checkout of .*/gLLM: it has no folder") as said:
        load_target(f"gllm:{tmp_path}")
    assert str(said.value).endswith(f"get one with `git clone {GLLM.address}`")


@pytest.mark.parametrize("name", SOURCE_ENGINES)
def test_an_engine_that_was_not_fetched_says_how_to_get_it(name, tmp_path, monkeypatch):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    with pytest.raises(TargetError, match=f"is not in .*; run `poolproof engines {name}`"):
        load_target(name)


@needs_git
def test_a_checkout_that_lacks_the_class_names_the_commit_of_the_adapter(upstream):
    wrong = replace(upstream, uses=(Use("core.blocks", "Other"),))
    with pytest.raises(
        TargetError, match=r"core\.blocks has no Other; the adapter was written for"
    ):
        source_target(wrong, f"toy:{upstream.address}", {})


class Engine:
    """Not what its adapter took it to be."""

    def allocate(self, count):
        return [count]

    def match(self, request):
        return request.priority


def in_adapter(cls: type) -> type:
    """The class as if it stood in the module of an adapter."""
    scope = {**globals(), "__name__": "poolproof.targets.toy"}
    for name, function in list(vars(cls).items()):
        if isinstance(function, FunctionType):
            moved = FunctionType(function.__code__, scope, name, function.__defaults__)
            moved.__kwdefaults__ = function.__kwdefaults__
            setattr(cls, name, moved)
    return cls


@in_adapter
class ReadsWhatIsMissing(ToyManager):
    def num_free(self):
        return Engine().free_blocks


@in_adapter
class CallsOtherwise(ToyManager):
    def append(self, seq_id, tokens):
        return Engine().allocate(seq_id, tokens)


@in_adapter
class UnpacksAnotherAnswer(ToyManager):
    def admit(self, seq_id, tokens, *, extra_keys=None):
        del extra_keys
        cached, _ = Engine().allocate(len(tokens))
        return cached


class IsAskedForMore(ToyManager):
    def admit(self, seq_id, tokens, *, extra_keys=None):
        del extra_keys
        return Engine().match(HandedFields(tokens=tokens))


class AnswersATensor(ToyManager):
    def block_table(self, seq_id, group=0):
        return Engine()


class HasNoNumber(ToyManager):
    def num_free(self):
        return None


@needs_git
@pytest.mark.parametrize(
    ("manager", "difference"),
    [
        (ReadsWhatIsMissing, "'Engine' object has no attribute 'free_blocks'"),
        (CallsOtherwise, "takes 2 positional arguments but 3 were given"),
        (UnpacksAnotherAnswer, "not enough values to unpack"),
        (IsAskedForMore, "'HandedFields' object has no attribute 'priority'"),
        (AnswersATensor, "`block_table` of the adapter answers "),
        (HasNoNumber, "`num_free` of the adapter answers None instead of a number of blocks"),
    ],
)
def test_what_shows_in_a_few_calls_is_named_when_it_is_loaded(upstream, manager, difference):
    with pytest.raises(TargetError) as refusal:
        source_target(replace(upstream, manager=manager), f"toy:{upstream.address}", {})
    assert difference in str(refusal.value)
    assert f"commit {upstream.commit[:7]} of" in str(refusal.value)
    assert "\n" not in str(refusal.value)


class Raises(ToyManager):
    def admit(self, seq_id, tokens, *, extra_keys=None):
        raise RuntimeError("its own affair")


class HasNoRoom(ToyManager):
    def admit(self, seq_id, tokens, *, extra_keys=None):
        return "later"


@needs_git
@pytest.mark.parametrize("manager", [Raises, HasNoRoom])
def test_what_the_engine_does_in_these_calls_is_left_for_the_run(upstream, manager):
    source_target(replace(upstream, manager=manager), f"toy:{upstream.address}", {})


@pytest.mark.parametrize("engine", SOURCE_ENGINES.values(), ids=list(SOURCE_ENGINES))
def test_every_engine_is_pinned_to_one_commit_of_its_own_repository(engine):
    assert len(engine.commit) == 40
    assert engine.address.startswith("https://github.com/")
    for name in engine.modules:
        path = f"{engine.package}/{name.replace('.', '/')}"
        assert {f"{path}.py", f"{path}/__init__.py"} & set(engine.files), name


@pytest.mark.parametrize("engine", SOURCE_ENGINES.values(), ids=list(SOURCE_ENGINES))
def test_the_rows_of_every_engine_are_a_profile(engine):
    ManagerProfile.from_mapping(engine.rows)


def test_without_a_name_the_command_lists_what_there_is():
    said = CliRunner().invoke(main, ["engines"])
    assert said.exit_code == 0
    assert all(f"{engine.address} {engine.commit[:7]}" in said.output for engine in (GLLM,))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], f"no engine nothing; there are {min(SOURCE_ENGINES)}, "),
        (["gllm", "--all"], "leave the names"),
    ],
)
def test_what_the_command_cannot_do_is_status_2(arguments, message):
    said = CliRunner().invoke(main, ["engines", *arguments])
    assert (said.exit_code, message in said.output) == (2, True)


@needs_git
def test_the_command_fetches(upstream, tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "PUBLISHED_ENGINES", {"toy": upstream})
    arguments = ["engines", "toy", "--to", str(tmp_path)]
    said = [CliRunner().invoke(main, arguments).output for _ in range(2)]
    place = tmp_path / upstream.folder
    assert said == [f"toy: fetched to {place}\n", f"toy: is in {place}\n"]


@needs_git
def test_with_all_the_others_are_fetched_where_one_cannot_be_had(upstream, tmp_path, monkeypatch):
    lost = replace(upstream, name="lost", address=str(tmp_path / "nowhere"), checkout="toys")
    monkeypatch.setattr(catalogue, "PUBLISHED_ENGINES", {"lost": lost})
    monkeypatch.setattr(nano_clones, "NANO_CLONES", {"toy": upstream})
    said = CliRunner().invoke(main, ["engines", "--all", "--to", str(tmp_path / "to")])
    assert said.exit_code == 2
    assert "lost: lost could not be fetched from" in said.output
    assert "use toys:path/to/checkout" in said.output
    assert f"toy: fetched to {tmp_path / 'to' / upstream.folder}\n" in said.output
    assert "1 of 2 could not be had; lines above say why" in said.output


def test_a_clone_that_was_not_fetched_says_under_which_name_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    with pytest.raises(TargetError, match="run `poolproof engines super-vllm-aff4c10`"):
        fetched_folder(NANO_CLONES["super-vllm-aff4c10"])


@pytest.mark.parametrize("clone", NANO_CLONES.values(), ids=list(NANO_CLONES))
def test_every_clone_is_pinned_to_one_commit_with_its_block_manager(clone):
    assert len(clone.commit) == 40
    assert clone.checkout == "nano-vllm"
    package = clone.files[0].partition("/")[0]
    assert {f"{package}/engine/{name}.py" for name in ("sequence", "block_manager")} <= set(
        clone.files
    )
