"""The example allocators in other languages hold, and their planted bugs are found."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from poolproof.exploration.breadth_first import reachable
from poolproof.exploration.exhaustive_run import check_part, parts_of, scope_under
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.scope import Scope
from poolproof.exploration.watch import Watch
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.harness.tape_driver import taped
from poolproof.targets.load import load_target

ROOT = Path(__file__).resolve().parents[2]
DEAF = Watch(lambda _: None, lambda _: None)
STRICT = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
BUGS = {
    "c": ("touch-keeps-queued", {"I1"}),
    # Whether the copy that was forgotten is free by then decides which of the two sees it.
    "rust": ("drop-all-copies", {"IDX", "I4"}),
    "javascript": ("two-loops", {"OWN"}),
}


def compiled_c(folder, *flags):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler (cc) here")
    program = folder / "lru_pool"
    sources = sorted((ROOT / "examples" / "c").glob("*.c"))
    subprocess.run([compiler, *STRICT, *flags, *sources, "-o", program], check=True)
    return shlex.quote(str(program))


def works(*command):
    """Whether a tool that is on PATH can be run: shims stand there for what is not installed."""
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def compiled_rust(name="lru-pool"):
    cargo = shutil.which("cargo")
    if cargo is None or shutil.which("cc") is None or not works(cargo, "--version"):
        pytest.skip("there is no cargo here, or no linker (cc)")
    folder = ROOT / "build" / "examples" / "rust"
    manifest = ROOT / "examples" / "rust" / "Cargo.toml"
    subprocess.run(
        [cargo, "build", "--quiet", "--release", "--offline", "--locked",
         "--manifest-path", manifest, "--target-dir", folder],
        check=True,
    )  # fmt: skip
    return shlex.quote(str(folder / "release" / name))


def compiled_cpp(folder, name, served):
    compiler = shutil.which("c++")
    if compiler is None or not works(compiler, "--version"):
        pytest.skip("there is no C++ compiler (c++) here")
    program = folder / name
    parts = (name, f"poolproof_{served}", "poolproof_messages")
    sources = [ROOT / "examples" / "cpp" / f"{part}.cpp" for part in parts]
    subprocess.run([compiler, "-std=c++17", *STRICT[1:], *sources, "-o", program], check=True)
    return shlex.quote(str(program))


@pytest.fixture(scope="module", params=["c", "rust", "javascript"])
def example(request, tmp_path_factory):
    """A language and the example's command line."""
    if request.param == "c":
        return "c", compiled_c(tmp_path_factory.mktemp("c"))
    if request.param == "rust":
        return "rust", compiled_rust()
    if shutil.which("node") is None or not works("node", "--version"):
        pytest.skip("there is no node here")
    return "javascript", shlex.join(["node", f"{ROOT}/examples/javascript/lru_pool.mjs"])


def first_violation(target, runs):
    campaign = taped(PoolCampaign(target.name, target.make, target.profile), target.tapes)
    traces = (campaign.run(number).trace for number in range(runs))
    return next((trace.violation for trace in traces if trace is not None), None)


def test_an_example_holds(example):
    target = load_target(f"cmd:{example[1]}")
    assert first_violation(target, 12) is None


@pytest.mark.some(1)
def test_an_example_holds_in_every_state_of_three_blocks(example):
    target = load_target(f"cmd:{example[1]}")
    can = target.tapes.can
    scope = scope_under(Scope(3), target.profile, can)
    for part in parts_of(reachable(OrbitSpace(scope)), scope, 3, 0, wide=True):
        result = check_part(
            target.name, make=target.make, profile=target.profile, can=can, part=part, watch=DEAF,
            mark=lambda _: None, tapes=target.tapes,
        )  # fmt: skip
        assert result.failures == {}
        assert result.num_commands > result.num_states


def test_the_planted_bug_of_an_example_is_found(example):
    language, program = example
    bug, invariants = BUGS[language]
    found = first_violation(load_target(f"cmd:{program} --bug {bug}"), 12)
    assert found is not None
    assert found.invariant in invariants


def test_an_example_names_the_bugs_that_it_can_have(example):
    with pytest.raises(Exception, match=r"usage: .*--bug"):
        load_target(f"cmd:{example[1]} --bug other")


@pytest.fixture(scope="module", params=["C++", "Rust"])
def manager(request, tmp_path_factory):
    """The command line of a manager, and the bug that it can be told to have."""
    if request.param == "C++":
        folder = tmp_path_factory.mktemp("cpp")
        return compiled_cpp(folder, "lru_manager", "manager"), "parent-left-out"
    return compiled_rust("lru-manager"), "keep-old-names"


def first_of_managers(program, runs, block_size=4):
    (layout,) = load_target(f"cmd:{program}").layouts
    make = layout.make_with(block_size)
    campaign = ManagerCampaign(program, make, layout.profile, block_size)
    traces = (campaign.run(number).trace for number in range(runs))
    return next((trace.violation for trace in traces if trace is not None), None)


@pytest.mark.some(0)
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_a_manager_holds(manager, block_size):
    assert first_of_managers(manager[0], 12, block_size) is None


def test_the_planted_bug_of_a_manager_is_found(manager):
    program, bug = manager
    found = first_of_managers(f"{program} --bug {bug}", 12)
    assert found is not None
    assert found.invariant in {"DATA", "IDX", "I4"}


def test_a_manager_names_the_bugs_that_it_can_have(manager):
    with pytest.raises(Exception, match=r"usage: .*--bug"):
        load_target(f"cmd:{manager[0]} --bug other")


@pytest.fixture(scope="module", params=["C++", "Rust"])
def engine(request, tmp_path_factory):
    """The command line of an engine, its bug, and the invariants that may name that one."""
    if request.param == "C++":
        program = compiled_cpp(tmp_path_factory.mktemp("cpp"), "fcfs_engine", "engine")
        return program, "resumes-where-it-was", {"DATA"}
    return compiled_rust("fcfs-engine"), "preempts-the-first", {"PLAN", "DATA"}


def first_of_engines(program, runs):
    (layout,) = load_target(f"cmd:{program}").layouts
    campaign = EngineCampaign(program, layout.make, layout.profile, layout.block_size)
    traces = (campaign.run(number).trace for number in range(runs))
    return next((trace.violation for trace in traces if trace is not None), None)


@pytest.mark.deep
def test_an_engine_holds(engine):
    assert first_of_engines(engine[0], 40) is None


def test_the_planted_bug_of_an_engine_is_found(engine):
    program, bug, invariants = engine
    found = first_of_engines(f"{program} --bug {bug}", 12)
    assert found is not None
    assert found.invariant in invariants


def test_an_engine_names_the_bugs_that_it_can_have(engine):
    with pytest.raises(Exception, match=r"usage: .*--bug"):
        load_target(f"cmd:{engine[0]} --bug other")


SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover")


def test_the_example_in_c_is_clean_under_sanitizers(tmp_path):
    empty = tmp_path / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    compiler = shutil.which("cc") or "cc"
    # Some compilers come without their libraries, and some kernels refuse their address space.
    built = shutil.which("cc") and works(compiler, *SANITIZERS, empty, "-o", tmp_path / "empty")
    if not built or not works(tmp_path / "empty"):
        pytest.skip("sanitizers do not work here")
    program = compiled_c(tmp_path, *SANITIZERS)
    target = load_target(f"cmd:{program}")
    assert first_violation(target, 4) is None
    pool = target.make(100, True)
    assert pool.allocate(100) == list(range(100))
    assert pool.free_order() == []
