"""The manual as a site: it works from a folder, asks nothing of the network, and finds words."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


def _builder() -> ModuleType:
    """docs/site/build.py; docs/ is no package."""
    spec = importlib.util.spec_from_file_location("site_build", ROOT / "docs" / "site" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILDER = _builder()


class Page(HTMLParser):
    """What a page loads, where its links lead, and the places that links can lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = dict(attrs)
        if of.get("id"):
            self.places.add(str(of["id"]))
        address = of.get(LOADED.get(tag, ""))
        if address and of.get("rel") not in {"canonical", "next", "prev"}:
            self.loaded.append(address)
        if tag == "a" and of.get("href"):
            self.links.append(str(of["href"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="MkDocs is not installed; make test-site has it")
    folder: Path = tmp_path_factory.mktemp("site")
    assert BUILDER.build(folder) == 0
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    # The page for addresses that a server does not know has links from that server's root.
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def _of_the_network(address: str) -> bool:
    return re.match(r"(?:[a-z]+:)?//", address) is not None


@pytest.mark.site
def test_pages_load_nothing_from_the_network(site: Path, pages: dict[Path, Page]) -> None:
    assert len(pages) > 40
    for path, page in pages.items():
        assert [one for one in page.loaded if _of_the_network(one)] == [], path
    for sheet in site.rglob("*.css"):
        found = re.findall(
            r"url\(['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", sheet.read_text("utf-8")
        )
        assert [one for pair in found for one in pair if _of_the_network(one)] == [], sheet


@pytest.mark.site
def test_what_pages_load_and_link_to_is_there(pages: dict[Path, Page]) -> None:
    checked = 0
    for path, page in pages.items():
        for address in page.loaded + page.links:
            if _of_the_network(address) or address.startswith(("data:", "mailto:")):
                continue
            file, _, place = address.partition("#")
            target = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            if target.is_dir():
                target /= "index.html"
            assert target.is_file(), f"{path.name} leads to {address}"
            if place and target in pages:
                assert unquote(place) in pages[target].places, f"{path.name} leads to {address}"
            checked += 1
    assert checked > 1_000


@pytest.mark.site
def test_every_page_of_the_manual_is_in_the_menu(site: Path) -> None:
    menu = {Path(unquote(link.partition("#")[0])).name for link in Page(site / "index.html").links}
    missing = [one.name for one in (ROOT / "docs").glob("*.md") if f"{one.stem}.html" not in menu]
    assert missing == []


@pytest.mark.site
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("page", ["index.html", "docs/certify.html"])
def test_a_search_finds_a_word_in_a_page_opened_as_a_file(
    site: Path, tmp_path: Path, page: str
) -> None:
    found = _seen(f"{(site / page).as_uri()}?q=fingerprint", tmp_path)
    addresses = re.findall(r'href="([^"]+)"[^>]*class="md-search-result__link"', found)
    assert any("docs/traces.html" in address for address in addresses), addresses
    assert "md-search-result__item" not in _seen(
        f"{(site / page).as_uri()}?q=xyzzyplugh", tmp_path / "nothing"
    )


def _seen(address: str, profile: Path) -> str:
    """The page as Chromium has it after its scripts ran."""
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={profile}", "--virtual-time-budget=20000", address]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(BUILDER, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    for name in BUILDER.FIRST_PAGES:
        (tmp_path / name).write_text(f"# {name}\n")
    return tmp_path


def test_a_link_to_what_is_not_there_stops_the_build(tree: Path) -> None:
    (tree / "docs" / "one.md").write_text("See [it](two.md).\n")
    with pytest.raises(BUILDER.DeadLinkError, match=r"docs/one\.md links to two\.md"):
        BUILDER.stage(tree / "staged")


def test_a_linked_script_and_a_linked_folder_get_pages(tree: Path) -> None:
    (tree / "examples").mkdir()
    (tree / "examples" / "pool.py").write_text("class Pool: ...\n")
    (tree / "docs" / "one.md").write_text(
        "All [examples](../examples), [one](../examples/pool.py#a).\n"
    )
    names = BUILDER.stage(tree / "staged")
    assert names[-2:] == ["examples", "examples/pool.py"]
    page = (tree / "staged" / "docs" / "one.md").read_text()
    assert "(../examples/index.md), [one](../examples/pool.py.md#a)" in page
    assert "(pool.py.md)" in (tree / "staged" / "examples" / "index.md").read_text()
    assert "class Pool: ..." in (tree / "staged" / "examples" / "pool.py.md").read_text()


def test_code_in_a_page_is_staged_as_it_is(tree: Path) -> None:
    text = "- a list\n\n  goes on\n\n```\n  [no](link)\n```\n\n| `a\\|b` | c\\|d |\n"
    staged = BUILDER.staged_text(text, "docs/one.md")
    assert staged == "- a list\n\n    goes on\n\n```\n  [no](link)\n```\n\n| `a|b` | c\\|d |\n"
