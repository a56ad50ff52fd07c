"""A patch of a target's sources: a diff that is applied while the target is imported, in memory.

Nothing is written. The diff is applied to the files as they stand, and whoever loads one of them
gets the patched text: our own loaders ask `text_of`, and modules that Python imports by their
names, such as those of an installed engine, go through a finder that stays for what is imported
later. So a target with a patch runs in a process of its own, beside one without (`load.py` refuses
both in one process where they share modules).

`text[patch=fix.diff]` names such a target (`target_spec.py`); `patch_places.py` says in which files
a path of the diff is looked for.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from poolproof.contract.target import TargetError
from poolproof.targets.unified_diff import FileDiff, apply_hunks, read_diff

__all__ = [
    "SourcePatch",
    "active_patch",
    "any_patch",
    "patch_key",
    "patched_by_others",
    "read_patch",
    "text_of",
    "while_patched",
]

FindFile = Callable[[str], Path | None]
"""The file that a path of a diff means, None where there is none."""


@dataclass(frozen=True, slots=True)
class SourcePatch:
    """A diff that was applied to the files that it means.

    `texts` are the patched files by their paths. `moved` says in words which hunks stood elsewhere,
    `left_out` what of the diff is not in the target's sources, `used` which files were imported.
    """

    name: str
    digest: str
    texts: Mapping[Path, bytes]
    paths: Mapping[Path, str]
    """What the diff calls each of them."""
    moved: tuple[str, ...]
    left_out: tuple[str, ...]
    used: set[Path] = field(default_factory=set)

    @property
    def label(self) -> str:
        """The diff by its name and what it contained."""
        return f"{self.name} (sha256 {self.digest})"

    def notes(self, unused: Sequence[Path]) -> tuple[str, ...]:
        """What a certificate says of it; `unused` are the files that nothing imported."""
        changed = [name for path, name in self.paths.items() if path not in unused]
        notes = [f"patched with {self.label}: {', '.join(changed)}"]
        notes += [f"{self.name}: {words}" for words in self.moved]
        if unused:
            names = ", ".join(self.paths[path] for path in unused)
            notes.append(f"{self.name}: nothing that is driven imports {names}")
        if self.left_out:
            notes.append(f"left out of {self.name}: {', '.join(self.left_out)}")
        return tuple(notes)


def read_patch(given: str, find: FindFile, target: str) -> SourcePatch:
    """The diff in the file `given`, applied to what `find` finds of the target's sources.

    Raises TargetError where it cannot be read, does not parse or apply, or is about other files.
    """
    content = _content(given, target)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TargetError(f"{given} is no diff: byte {error.start} is not UTF-8") from error
    files: dict[Path, list[FileDiff]] = {}
    left_out: dict[str, None] = {}
    for each in read_diff(text, given):
        file, path = _found(each, find)
        why = _why_left_out(file, path, given)
        if path is None or why:
            left_out[f"{file.path} ({why})"] = None
        else:
            files.setdefault(path, []).append(file)
    if not files:
        raise TargetError(
            f"{given} changes nothing of {target}: {', '.join(left_out)}; paths in it are those of "
            "the repository, such as a/package/module.py"
        )
    texts: dict[Path, bytes] = {}
    moved: list[str] = []
    for path, changes in files.items():
        texts[path], words = _patched(path, changes, given)
        moved += words
    return SourcePatch(
        name=given,
        digest=hashlib.sha256(content).hexdigest()[:12],
        texts=texts,
        paths={path: changes[0].path for path, changes in files.items()},
        moved=tuple(moved),
        left_out=tuple(left_out),
    )


def _content(given: str, target: str) -> bytes:
    path = Path(given).expanduser()
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TargetError(
            f"{target} names the patch {given}, which is not in {Path.cwd()}; put it there, or "
            "name another target (--target)"
        ) from error
    except OSError as error:
        raise TargetError(f"the patch {given} cannot be read: {error.strerror or error}") from error


def _found(file: FileDiff, find: FindFile) -> tuple[FileDiff, Path | None]:
    """The file of the sources that is meant, by either name that the diff has for it."""
    path = find(file.path)
    if file.other is None or (path is not None and path.suffix == ".py"):
        return file, path
    return replace(file, path=file.other), find(file.other)


def _why_left_out(file: FileDiff, path: Path | None, given: str) -> str:
    """Why a file of the diff is left out, in a few words, or "" for one that is patched.

    Raises TargetError for a change of the target's sources that memory cannot show.
    """
    if not file.path.endswith(".py"):
        return "not Python"
    if file.change == "created":
        if path is not None:
            raise TargetError(
                f"{given} line {file.line} does not apply: it creates {file.path}, which is there"
            )
        return "new, so nothing imports it yet"
    if path is None:
        return "not among the sources"
    if file.change != "changed":
        what = {"deleted": "deletes", "renamed": "renames or copies"}.get(file.change, "replaces")
        raise TargetError(
            f"{given} line {file.line} {what} {file.path}, which is not done in memory; apply it "
            "to a checkout, and certify that"
        )
    return ""


def _patched(path: Path, changes: Sequence[FileDiff], given: str) -> tuple[bytes, list[str]]:
    """The patched text of a file. Raises TargetError."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(f"{path}, which {given} changes, cannot be read: {error}") from error
    moved: list[str] = []
    for change in changes:
        text, words = apply_hunks(text, change.hunks, change.path, given)
        moved += words
    try:
        compile(text, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise TargetError(
            f"with {given}, line {error.lineno} of {changes[0].path} is no Python: {error.msg}"
        ) from error
    return text.encode("utf-8"), moved


_active: list[SourcePatch] = []
"""The patch with which a target is being loaded; at most one."""


def active_patch() -> SourcePatch | None:
    """The patch with which a target is being loaded now."""
    return _active[-1] if _active else None


def patch_key() -> str:
    """What tells modules that are loaded now from the same ones under another patch, or none."""
    patch = active_patch()
    return "" if patch is None else patch.digest


def text_of(path: Path, patch: SourcePatch | None = None) -> bytes:
    """The source of a module, as `patch` has it, or the active one. Raises OSError."""
    patch = patch or active_patch()
    real = path.resolve()
    if patch is None or real not in patch.texts:
        return path.read_bytes()
    patch.used.add(real)
    text = patch.texts[real]
    # Tracebacks, and whoever reads a function's source, see what runs. Without a time of change an
    # entry is not compared with the file.
    lines = text.decode("utf-8").splitlines(keepends=True)
    linecache.cache[str(path)] = (len(text), None, lines, str(path))
    return text


@contextmanager
def while_patched(patch: SourcePatch) -> Iterator[None]:
    """Load with this patch; what Python imports by its name has it afterwards as well."""
    known = (each for each in sys.meta_path if isinstance(each, _Finder))
    same = next((each for each in known if each.patch.texts == patch.texts), None)
    if same is None:
        sys.meta_path.insert(0, _Finder(patch))
    else:
        same.patch = patch  # read anew, and it is to know which of its files are used
    _active.append(patch)
    try:
        yield
    finally:
        _active.remove(patch)


class _Loader(SourceFileLoader):
    """Compiles the patched text; bytecode is neither read nor left."""

    def __init__(self, name: str, path: str, patch: SourcePatch) -> None:
        super().__init__(name, path)
        self.patch = patch

    def get_data(self, path: str) -> bytes:
        return text_of(Path(path), self.patch)

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 -- the loader's own signature
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules as the finders behind it do, and gives those of the patch another loader."""

    def __init__(self, patch: SourcePatch) -> None:
        self.patch = patch
        self._names = {
            path.parent.name if path.stem == "__init__" else path.stem for path in patch.texts
        }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.rpartition(".")[2] not in self._names:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is None:
                continue
            file = None if spec.origin is None else Path(spec.origin).resolve()
            if isinstance(spec.loader, SourceFileLoader) and file in self.patch.texts:
                assert spec.origin is not None
                spec.loader = _Loader(fullname, spec.origin, self.patch)
            return spec
        return None


def any_patch() -> bool:
    """Whether this process may have modules with a patch in them."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def patched_by_others(
    patch: SourcePatch | None,
    files: Callable[[Path], bool],
    modules: Mapping[str, ModuleType] = sys.modules,
) -> str | None:
    """A module of this process that has another text than it would have with `patch`; else None.

    `files` says which files belong to the target that is to be loaded.
    """
    for name, module in list(modules.items()):
        spec = getattr(module, "__spec__", None)
        loader = getattr(spec, "loader", None)
        other = loader.patch if isinstance(loader, _Loader) else None
        origin = getattr(spec, "origin", None)
        if not isinstance(origin, str) or not origin.endswith(".py"):
            continue
        if other is not None:
            if (patch is None or other.digest != patch.digest) and files(Path(origin)):
                return name
        elif patch is not None and not name.startswith("poolproof_") and (
            Path(origin).resolve() in patch.texts
        ):  # fmt: skip
            return name
    return None
