"""An empty working folder, the command line in it, and a pool with a known bug."""

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from poolproof.cli.command_line import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class _BothOutputs(Result):
    """What a command printed: apart in `stdout` and `stderr`, together in `output`."""

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


@pytest.fixture
def runner() -> CliRunner:
    """Runs a command and keeps its two outputs apart; before click 8.2 that had to be asked for."""
    if "mix_stderr" not in inspect.signature(CliRunner).parameters:
        return CliRunner()

    class OlderRunner(CliRunner):
        def invoke(self, *arguments: object, **options: object) -> Result:
            result = super().invoke(*arguments, **options)
            result.__class__ = _BothOutputs
            return result

    return OlderRunner(mix_stderr=False)


@pytest.fixture
def poolproof(folder: Path, runner: CliRunner) -> Callable[..., Result]:  # noqa: ARG001 -- it changes there
    """Runs the command line in this process, in an empty folder."""

    def run(*arguments: object) -> Result:
        return runner.invoke(main, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def samples() -> ModuleType:
    """The module `samples.py`."""
    return _module_beside("samples")


@pytest.fixture
def campaigns() -> ModuleType:
    """The module `campaign_samples.py`."""
    return _module_beside("campaign_samples")


@pytest.fixture(scope="session")
def pairs() -> ModuleType:
    """The module `vllm_pairs.py`."""
    return _module_beside("vllm_pairs")


def _module_beside(stem: str) -> ModuleType:
    """A module of this folder; tests are no package, so it is loaded by its path."""
    import importlib.util

    name = f"poolproof_tests_{stem}"
    if name not in sys.modules:
        path = Path(__file__).with_name(f"{stem}.py")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


BUGGY_POOL = '''
class Pool:
    """A pool whose index keeps a block that was handed out again."""

    profile = {"eviction": "lru", "misuse": "undefined"}

    def __init__(self, num_blocks, *, enable_caching=True):
        self.queue = list(range(num_blocks))
        self.counts = [0] * num_blocks
        self.index = {}
        self.caching = enable_caching

    def num_free(self):
        return len(self.queue)

    def allocate(self, n):
        if n > len(self.queue):
            raise MemoryError("full")
        taken = [self.queue.pop(0) for _ in range(n)]
        for block in taken:
            self.counts[block] = 1
        return taken

    def touch(self, block_ids):
        for block in block_ids:
            if self.counts[block] == 0:
                self.queue.remove(block)
            self.counts[block] += 1

    def free(self, block_ids):
        for block in block_ids:
            self.counts[block] -= 1
            if self.counts[block] == 0:
                self.queue.append(block)

    def cache(self, block_ids, hashes):
        if self.caching:
            for block, block_hash in zip(block_ids, hashes):
                self.index[block_hash] = block

    def lookup(self, block_hash):
        return self.index.get(block_hash)
'''


@pytest.fixture
def browser(folder: Path) -> Iterator[Any]:
    """A headless Chromium, driven by `browser.py`."""
    module = _module_beside("browser")
    if module.CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    opened = module.Browser(folder)
    yield opened
    opened.close()


@pytest.fixture
def buggy(folder: Path) -> str:
    """The target string of a pool with a known bug."""
    (folder / "buggy.py").write_text(BUGGY_POOL)
    return "buggy.py:Pool"
