"""How the product is cut into modules: the figures of docs/architecture.md, for two revisions.

Read from git, nothing is imported. Product is all Python outside tests, benchmarks, docs, examples
and generators; the tests in `stateful_tests/` are left out as well. Counted are modules, lines,
modules with a single importer (and how many of these stand in its folder and have no test of their
own), comparisons of the names of levels, circles of imports (also those inside functions), public
classes that share a name, and the lines of each folder.

Usage: python benchmarks/structure.py [--before REVISION] [--after REVISION] [--record]
"""

from __future__ import annotations

import argparse
import ast
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from record import add_destination, write_record

RELEASED = "4550cc9"
"""The last commit of 0.1.0."""

_NO_PRODUCT = {"tests", "benchmarks", "docs", "examples", "generators", ".ci"}
_LEVELS = {"queue", "index", "pool", "manager", "engine", "chains"}
_LEVEL_NAMES = {"level", "kind", "driven"}


def sources_at(revision: str, *, product: bool = True) -> dict[str, str]:
    """The product's modules by path, or all other Python: tests, benchmarks and the like.

    Raises CalledProcessError for what is no revision here.
    """
    listed = _git("ls-tree", "-r", "--name-only", revision).splitlines()
    paths = [path for path in listed if path.endswith(".py")]
    chosen = [path for path in paths if _is_product(PurePosixPath(path)) is product]
    return {path: _git("show", f"{revision}:{path}") for path in chosen}


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def _is_product(path: PurePosixPath) -> bool:
    if len(path.parts) == 1 or path.parts[0] in _NO_PRODUCT:
        return False
    return not (path.name.startswith("test_") or path.name == "conftest.py")


def module_of(path: str) -> str:
    """The name under which a file is imported; `interface/` is the package itself."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    parts = parts[1:] if parts[0] == "interface" else parts
    parts = parts[:-1] if parts and parts[-1] == "__init__" else parts
    return ".".join(["poolproof", *parts])


def imports_of(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Which of these modules each of them imports, anywhere in it."""
    found: dict[str, set[str]] = {}
    for name, tree in trees.items():
        found[name] = {imported for imported in _imported(tree, trees) if imported in trees} - {
            name
        }
    return found


def _imported(tree: ast.Module, known: Container[str]) -> Iterator[str]:
    for node in _at_runtime(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                # A module that is named in its package, or else a name that the module defines.
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module


def _at_runtime(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those below `if TYPE_CHECKING`."""
    yield node
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    for child in ast.iter_child_nodes(node):
        yield from _at_runtime(child)


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules each of which reaches every other one by imports."""
    reached = {name: _reachable(name, imports) for name in imports}
    groups = {
        frozenset(other for other in reached[name] if name in reached.get(other, ()))
        for name in imports
        if name in reached[name]
    }
    return sorted(sorted(group) for group in groups)


def _reachable(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    to_do = [*imports.get(start, ())]
    while to_do:
        name = to_do.pop()
        if name not in found:
            found.add(name)
            to_do += imports.get(name, ())
    return found


def level_comparisons(tree: ast.Module) -> int:
    """How often a level, or a kind, is compared with the name or the value of a level."""
    return sum(
        isinstance(node, ast.Compare)
        and _last_name(node.left) in _LEVEL_NAMES
        and any(_names_a_level(other) for other in node.comparators)
        for node in ast.walk(tree)
    )


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _names_a_level(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple | ast.Set | ast.List):
        return any(map(_names_a_level, node.elts))
    if isinstance(node, ast.Attribute):
        return _last_name(node.value) == "Level"
    return isinstance(node, ast.Constant) and node.value in _LEVELS


def lonely(imports: Mapping[str, set[str]], elsewhere: Container[str]) -> list[str]:
    """Modules with one importer, beside them in their folder, which nothing `elsewhere` imports."""
    importers: dict[str, list[str]] = {}
    for name, found in imports.items():
        for imported in found:
            importers.setdefault(imported, []).append(name)
    return sorted(
        name
        for name, found in importers.items()
        if len(found) == 1
        and name not in elsewhere
        and found[0].rpartition(".")[0] == name.rpartition(".")[0]
    )


def figures_of(sources: Mapping[str, str], others: Iterable[str]) -> dict[str, Any]:
    """The figures of one revision, from its modules and the texts of tests and scripts."""
    trees = {module_of(path): ast.parse(text) for path, text in sources.items()}
    imports = imports_of(trees)
    elsewhere = {name for text in others for name in _imported(ast.parse(text), trees)}
    importers = Counter(imported for found in imports.values() for imported in found)
    classes = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    lengths = [text.count("\n") for text in sources.values()]
    folders: Counter[str] = Counter()
    for path, text in sources.items():
        folders[PurePosixPath(path).parts[0]] += text.count("\n")
    return {
        "modules": len(sources),
        "lines": sum(lengths),
        "median lines of a module": statistics.median_low(lengths),
        "modules with one importer": sum(count == 1 for count in importers.values()),
        "of these in its folder, without a test of their own": len(lonely(imports, elsewhere)),
        "comparisons of level names": sum(map(level_comparisons, trees.values())),
        "circles of imports": circles(imports),
        "public class names in two modules or more": sum(n > 1 for n in classes.values()),
        "lines of each folder": dict(sorted(folders.items())),
    }


def main() -> int:
    """Measure both revisions, print them side by side and leave them in a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", default=RELEASED, metavar="REVISION")
    parser.add_argument("--after", default="HEAD", metavar="REVISION")
    add_destination(parser, "structure")
    asked = parser.parse_args()
    try:
        found = {
            name: figures_of(sources_at(name), sources_at(name, product=False).values())
            for name in (asked.before, asked.after)
        }
    except subprocess.CalledProcessError as error:
        print(f"{parser.prog}: {error.stderr.strip() or error}", file=sys.stderr)
        return 2
    for name, before in found[asked.before].items():
        after = found[asked.after][name]
        if isinstance(before, dict):
            continue
        shown = (len(before), len(after)) if isinstance(before, list) else (before, after)
        print(f"{name:<45} {shown[0]:>9,} {shown[1]:>9,}")
    record = {"before": found[asked.before], "after": found[asked.after]}
    if not write_record(asked.json, record):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
