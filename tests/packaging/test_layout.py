"""What the packaging relies on, and what a reader may rely on, in every file of the tree."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import poolproof
from poolproof.report.manual import slug

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
# As in .ci/compare_wheel.py: everything else at the top is a package.
NOT_INSTALLED = {"tests", "benchmarks", "examples", "docs", "generators"}
NOT_OURS = {"build", "dist", "reports", "htmlcov", "corpus"}
LONGEST_FILE = 1_000

# Written in pieces, or this file would accuse itself.
PRIVATE = re.compile(
    "|".join(
        [
            r"(?<![\w.])/(?:home|Users)" + r"/\w",
            r"(?<![\w.])/root" + r"/",
            r"(?<![\w.])/(?:work|opt)" + r"/\w",
            r"(?<![\w.])/tmp" + r"/\w",
            r"pypi\." + "org",
            r"python" + "hosted",
            r"npm" + r"js\.",
        ]
    )
)


def ours(folder: Path) -> Iterator[Path]:
    """Walk the files of the tree, without what tools leave in it."""
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith(".") and path.name not in {".ci", ".gitignore"}
        if hidden or path.name == "__pycache__" or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            if folder != ROOT or path.name not in NOT_OURS:
                yield from ours(path)
        else:
            yield path


FILES = [path.relative_to(ROOT) for path in ours(ROOT)]
PYTHON = [path for path in FILES if path.suffix == ".py"]
PACKAGED = [
    path
    for path in PYTHON
    if len(path.parts) > 1 and path.parts[0] not in NOT_INSTALLED and path.parts[0] != ".ci"
]
FOLDERS = sorted({path.parts[0] for path in PACKAGED})
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def named(path: Path) -> str:
    return path.as_posix()


def test_the_walk_sees_the_tree() -> None:
    assert {"contract", "harness", "impl", "interface", "invariants", "reference"} <= set(FOLDERS)
    assert Path(".ci/run") in FILES
    assert Path(__file__).relative_to(ROOT) in FILES


def test_every_folder_with_python_in_a_package_has_an_init() -> None:
    # Without one it is importable from the checkout and missing from the wheel.
    without = {path.parent for path in PACKAGED if path.parent / "__init__.py" not in PACKAGED}
    assert without == set()


def test_tests_and_scripts_are_not_packages() -> None:
    # setup.py takes every top-level folder with an __init__.py for a part of poolproof.
    assert [name for name in NOT_INSTALLED if (ROOT / name / "__init__.py").exists()] == []


def test_every_python_file_says_what_it_is() -> None:
    silent = [
        named(path)
        for path in PYTHON
        if not re.match(r'(?:#.*\n|\s)*r?"""[^"\s]', (ROOT / path).read_text("utf-8"))
    ]
    assert silent == [], "files without a module docstring"


def test_no_file_of_a_package_is_too_long_to_read() -> None:
    lengths = {named(path): len((ROOT / path).read_text("utf-8").splitlines()) for path in PACKAGED}
    too_long = {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE}
    assert too_long == {}, f"over {LONGEST_FILE} lines, split by what the parts do: {too_long}"


# What docstrings name besides our own files: examples, and files of the engines behind adapters.
EXAMPLES = (
    "path/to/file.py",
    "file.py",
    "my_pool.py",
    "_command.py",
    "coverage.py",
)
OF_ENGINES = (
    "vllm/", "kv_connector/", "lightllm/", "tokasaurus/", "core/", "scheduler.py", "comm.py",
    "engine/", "managers/", "block.py", "block_manager.py", "config.py", "core.py",
    "sampling_params.py", "sequence.py", "utils.py", "schedule_batch.py", "schedule_policy.py",
    "runtime_context.py", "layers/", "hybrid_linear_attn_backend.py",
)  # fmt: skip


# What pointed nowhere in 0.1.0. A chapter of somebody else's book is named with its title.
OF_NO_PLACE = r"(?:design|source) (?:section|document) \d+"


def docstrings() -> Iterator[tuple[Path, str]]:
    for path in PACKAGED:
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield path, ast.get_docstring(node) or ""


def test_a_docstring_names_no_file_that_is_not_there() -> None:
    paths = {named(path) for path in FILES}
    gone = []
    for path, words in docstrings():
        for name in re.findall(
            r"(?<![\w./-])((?:[\w.-]+/)*[\w-]+\.(?:py|md|toml|tla|pml))\b", words
        ):
            is_ours = any(f"/{known}".endswith(f"/{name}") for known in paths)
            if not is_ours and name not in EXAMPLES and not name.startswith(OF_ENGINES):
                gone.append(f"{path}: {name}")
    assert gone == []


def test_a_docstring_names_no_section_that_is_not_there() -> None:
    # Sections have names and no numbers: "page.md#section" is the one way to point at one.
    gone = []
    for path, words in docstrings():
        for page, anchor in re.findall(r"([\w-]+\.md)#([\w-]+)", words):
            text = (ROOT / "docs" / page).read_text("utf-8")
            if anchor not in map(slug, re.findall(r"^#+ (.+)$", text, re.MULTILINE)):
                gone.append(f"{path}: {page}#{anchor}")
        gone += [f"{path}: {found}" for found in re.findall(OF_NO_PLACE, words)]
    assert gone == []


# What may be called alike all the same, and why.
ALIKE = {
    # impl/ is used by engines on its own, and its classes are called as theirs are; adapters look
    # them up by these names.
    "Sequence": {"impl/nano_block_manager.py", "impl/sequence_group.py"},
}


def test_no_two_public_classes_share_a_name() -> None:
    # A name says what a class is to whoever meets it in a trace, an index or a search.
    files: dict[str, set[str]] = {}
    for path in PACKAGED:
        for node in ast.parse((ROOT / path).read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files.setdefault(node.name, set()).add(named(path))
    assert {name: paths for name, paths in files.items() if len(paths) > 1} == ALIKE


def test_no_file_names_a_place_that_exists_on_one_machine_only() -> None:
    found = []
    for path in FILES:
        try:
            text = (ROOT / path).read_text("utf-8")
        except UnicodeDecodeError:
            continue  # not a text file
        found += [
            f"{path}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(text.splitlines(), start=1)
            if PRIVATE.search(line)
        ]
    assert found == []


def test_the_pattern_finds_what_it_is_for() -> None:
    for bad in ("/home" + "/ann/x", "see /root" + "/.cache", "'/tmp" + "/x'", "/work" + "/main"):
        assert PRIVATE.search(bad), bad
    for good in ("../shared/traces", "framework/main", "$HOME/.pyenv", "tests/tmp/x", "a/opt/b"):
        assert not PRIVATE.search(good), good


def test_the_version_is_that_of_the_installed_package() -> None:
    assert poolproof.__version__ == metadata.version("poolproof")


def test_the_changes_have_a_section_for_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    sections = re.findall(r"^## ([\d.]+)", text, re.MULTILINE)
    assert poolproof.__version__ in sections
    assert sections == sorted(sections, reverse=True)


def test_the_root_package_imports_nothing_of_ours() -> None:
    # Whoever imports any part of poolproof runs interface/__init__.py first.
    code = "import sys, poolproof; print([m for m in sys.modules if m.startswith('poolproof.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_folder_has_its_place_in_the_layering() -> None:
    layers = PYPROJECT["tool"]["layering"]["layers"]
    assert set(FOLDERS) - {"interface"} <= set(layers)
    for folder, allowed in layers.items():
        reached = {below for name in allowed for below in layers[name]}
        assert reached <= set(allowed), f"{folder} reaches {reached - set(allowed)} indirectly"
        assert folder not in allowed, f"{folder} would import itself in a circle"


def test_coverage_counts_every_folder() -> None:
    # By folder, or files that were never imported would not count.
    assert PYPROJECT["tool"]["coverage"]["run"]["source"] == FOLDERS


def test_bare_folder_names_are_banned_as_imports() -> None:
    banned = PYPROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert set(FOLDERS) <= set(banned)


def test_the_core_asks_for_nothing_that_an_engine_pins() -> None:
    needed = {re.split(r"[^\w-]", text)[0] for text in PYPROJECT["project"]["dependencies"]}
    assert needed == {"hypothesis", "click", "rich", "xxhash", "tomli"}
    for requirement in PYPROJECT["project"]["dependencies"]:
        bound = requirement.partition(";")[0].strip()
        assert re.fullmatch(r"[\w-]+>=[\d.]+", bound), f"{bound}: a lower bound and no other"


def test_the_core_comes_up_without_heavy_packages() -> None:
    # In an interpreter of its own: this one has imported pytest and more.
    modules = sorted(
        ".".join(("poolproof", *path.with_suffix("").parts))
        for path in PACKAGED
        if path.parts[0] in {"contract", "impl", "invariants", "reference"}
        # The latter vLLM loads by its name, and nothing here does.
        and path.name not in {"__init__.py", "vllm_drop_in.py"}
    )
    heavy = ["torch", "vllm", "z3", "crosshair", "pytest", "hypothesis"]
    code = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print([name for name in {heavy!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() == "[]"
