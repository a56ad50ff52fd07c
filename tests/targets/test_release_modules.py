"""Modules of a release are run from its sources; what is missing stands in and decides nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from poolproof.contract.target import TargetError
from poolproof.targets.release_modules import ReleaseModules, msgspec_stand_in, silent_logger

SOURCES = {
    "enginex/__init__.py": "raise RuntimeError('the engine was started')\n",
    "enginex/kernels.py": "raise RuntimeError('the kernels were loaded')\n",
    "enginex/core/words.py": "WORD = 'one'\n",
    "enginex/core/pool.py": (
        "from __future__ import annotations\n"
        "import math\n"
        "from dataclasses import dataclass\n"
        "import heavy\n"
        "import heavy.parts as parts\n"
        "from heavy.deco import inference_mode, wrapped\n"
        "from typing_extensions import override\n"
        "from enginex import kernels\n"
        "from enginex.logger import init_logger\n"
        "from . import words\n"
        "from .words import WORD\n"
        "logger = init_logger(__name__)\n"
        "Either = heavy.Tensor | None\n"
        "class Module(heavy.nn.Module):\n"
        "    limit: int = 3\n"
        "@dataclass\n"
        "class Pool:\n"
        "    size: int = 2\n"
        "    device: heavy.Device = heavy.Device.CPU\n"
        "    @override\n"
        "    @inference_mode()\n"
        "    def doubled(self): return 2 * self.size\n"
        "    @wrapped\n"
        "    def late(self):\n"
        "        logger.warning_once('later')\n"
        "        from enginex.core.words import WORD as later\n"
        "        return later\n"
        "    def decides(self): return 1 if heavy.cuda.is_available() else 2\n"
        "    def counts(self): return len(parts.blocks())\n"
    ),
}


def release(root: Path, **changed: str) -> ReleaseModules:
    for name, text in {**SOURCES, **changed}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    given = {"enginex.logger": {"init_logger": silent_logger}, "msgspec": msgspec_stand_in()}
    return ReleaseModules(root, "enginex", lambda name: name.startswith("enginex.core."), given)


def test_modules_run_with_each_other_and_with_stand_ins(tmp_path):
    pool = release(tmp_path)("enginex.core.pool")
    made = pool.Pool()
    assert (pool.WORD, pool.words.WORD, made.doubled(), pool.Module.limit) == ("one", "one", 4, 3)


def test_what_is_imported_later_comes_from_the_same_place(tmp_path):
    assert release(tmp_path)("enginex.core.pool").Pool().late() == "one"


@pytest.mark.parametrize(
    ("method", "named"), [("decides", "heavy.cuda.is_available"), ("counts", "heavy.parts.blocks")]
)
def test_a_stand_in_decides_nothing(tmp_path, method, named):
    made = release(tmp_path)("enginex.core.pool").Pool()
    with pytest.raises(TargetError, match=named):
        getattr(made, method)()


def test_nothing_lies_under_a_public_name(tmp_path):
    release(tmp_path)("enginex.core.pool")
    assert not {"enginex", "enginex.core.pool", "heavy", "msgspec"} & sys.modules.keys()


def test_two_releases_stand_side_by_side(tmp_path):
    one = release(tmp_path / "a")
    two = release(tmp_path / "b", **{"enginex/core/words.py": "WORD = 'two'\n"})
    pools = one("enginex.core.pool"), two("enginex.core.pool")
    assert [pool.Pool().late() for pool in pools] == ["one", "two"]


def test_a_module_that_cannot_be_imported_is_named(tmp_path):
    broken = release(tmp_path, **{"enginex/core/words.py": "WORD = 1 / 0\n"})
    with pytest.raises(TargetError, match=r"core/words\.py cannot be imported: ZeroDivisionError"):
        broken("enginex.core.pool")


def test_a_lazy_loader_leaves_no_public_name(tmp_path):
    lazy = (
        "import importlib, sys\n"
        "class LazyLoader:\n"
        "    def __init__(self, name, scope, module): sys.modules[name] = module\n"
    )
    uses = "from .lazy import LazyLoader\nheavy = LazyLoader('heavy', globals(), 'heavy')\n"
    modules = release(
        tmp_path, **{"enginex/core/lazy.py": lazy, "enginex/core/uses.py": f"{uses}T = heavy.T\n"}
    )
    assert modules("enginex.core.uses").T.stands_for == "heavy.T"
    assert "heavy" not in sys.modules


def test_structs_are_made_compared_and_shown():
    struct, field = (msgspec_stand_in()[name] for name in ("Struct", "field"))

    class Event(struct, omit_defaults=True):
        group: int
        hashes: list = field(default_factory=list)
        medium: str | None = None

        def __post_init__(self):
            self.size = len(self.hashes)

    class Stored(Event, tag=True):
        parent: int = 7

    event = Stored(1, [2])
    assert (event.group, event.hashes, event.medium, event.parent, event.size) == (
        1,
        [2],
        None,
        7,
        1,
    )
    assert event == Stored(group=1, hashes=[2])
    assert Event(1).hashes is not Event(1).hashes
    assert repr(Event(1)) == "Event(group=1, hashes=[], medium=None, size=0)"
    with pytest.raises(TypeError, match="lacks 'group'"):
        Event()
    with pytest.raises(TypeError, match=r"unexpected arguments: .'other'."):
        Event(1, other=2)
