"""The site is built as `make docs` builds it; it has every public name, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import kvproto
from kvproto import fsm
from kvproto.verify import framework, testing

pytest.importorskip("sphinx")
pytest.importorskip("furo")
pytest.importorskip("myst_parser")

ROOT = Path(__file__).parent.parent
#: what the reader may look for by name
PAGES = {
    "guide", "protocol", "questions", "security", "embedding", "framework", "sglang", "engines", "operating", "api",
    "testing", "checker", "witnesses", "figures", "change", "own_protocol", "contributing", "reporting", "changelog",
    "readme",
}  # fmt: skip


class Page(HTMLParser):
    """The links of a page, and the places in it that can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.loads: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if tag == "a" and name == "href" and value:
                self.links.append(value)
            elif (name == "src" or (tag == "link" and name == "href" and self._is_loaded(attrs))) and value:
                self.loads.append(value)

    @staticmethod
    def _is_loaded(attrs: list[tuple[str, str | None]]) -> bool:
        return bool({"stylesheet", "icon", "preload"} & set((dict(attrs).get("rel") or "").split()))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by the command that `make docs` has; a warning fails it."""
    made = subprocess.run(
        ["make", "--dry-run", "--always-make", "docs"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    (command,) = re.findall(r"-m (sphinx .*) docs build/site$", made, re.MULTILINE)
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), "-d", str(out / "trees"), "docs", str(out / "html")],
        cwd=ROOT, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.glob("*.html")}


def test_every_page_is_there(pages: dict[Path, Page]) -> None:
    names = {path.stem for path in pages}
    assert names >= PAGES | {each.stem for each in (ROOT / "docs").glob("*.md")}


def test_links_between_pages_hold(site: Path, pages: dict[Path, Page]) -> None:
    checked = 0
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            where, _, anchor = link.partition("#")
            target = (path.parent / unquote(where)).resolve() if where else path
            assert target.exists() and target.is_relative_to(site), (path.name, link)
            if anchor and target in pages:
                checked += 1
                assert unquote(anchor) in pages[target].ids, (path.name, link)
    assert checked > 500


def test_nothing_is_fetched_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    """Everything that a page loads, and that its styles and scripts name, lies beside it."""
    assert {path.name for path, page in pages.items() if not page.loads} == {"world.html"}, "it has all in itself"
    for path, page in pages.items():
        for link in page.loads:
            local = link.startswith("data:") or (path.parent / unquote(re.split("[?#]", link)[0])).exists()
            assert local, (path.name, link)
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", style.read_text()), style.name


def test_every_public_name_has_its_entry(pages: dict[Path, Page]) -> None:
    (api,) = (page for path, page in pages.items() if path.stem == "api")
    shown = {name.rsplit(".", 1)[-1] for name in api.ids if name.startswith("kvproto.")}
    assert set(kvproto.__all__) <= shown


def test_every_public_name_of_the_framework_has_its_entry(pages: dict[Path, Page]) -> None:
    (reference,) = (page for path, page in pages.items() if path.stem == "framework")
    for package in (fsm, framework, testing):
        lacking = {name for name in package.__all__ if f"{package.__name__}.{name}" not in reference.ids}
        assert lacking <= (set() if package is testing else {*kvproto.__all__}), package.__name__


def test_constructors_are_described(pages: dict[Path, Page], site: Path) -> None:
    assert "Allocate staging slots, register them" in (site / "api.html").read_text()
    assert "Make an empty table" in (site / "framework.html").read_text()


def test_calls_of_an_endpoint_are_on_the_page(pages: dict[Path, Page]) -> None:
    (api,) = (page for path, page in pages.items() if path.stem == "api")
    for cls in (kvproto.PrefillEndpoint, kvproto.DecodeEndpoint):
        calls = {name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name))}
        lacking = {name for name in calls if not any(each.endswith(f".{cls.__name__}.{name}") for each in api.ids)}
        assert not lacking, f"{cls.__name__} has calls without a docstring, or off the page: {sorted(lacking)}"


def test_diagrams_and_tables_came_through(site: Path) -> None:
    page = (site / "protocol.html").read_text()
    shown = re.findall(r'<img [^>]*src="(\w+.svg)"', page)
    assert len(shown) == len(set(shown)) == 14, "seven machines and seven sequences, once each"
    assert "sequenceDiagram" not in page
    assert page.count("<table") >= 40
    assert "<!-- generated" not in re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)


def test_every_picture_of_a_page_leads_to_itself(site: Path) -> None:
    """At 400 pixels a picture is too small to read: a click opens its file."""
    checked = 0
    for path in site.glob("*.html"):
        if path.name != "world.html":
            text = path.read_text()
            pictures = re.findall(r'<img (?!src="_static)[^>]*>', text)
            led = re.findall(r'<a href="([^"]+\.(?:svg|png))" title="[^"]+">(?=<img )', text)
            assert len(led) == len(pictures), path.name
            assert all((site / file).is_file() for file in led)
            checked += len(led)
    assert checked >= 17


def test_the_start_page_has_a_picture_the_first_minute_and_each_link_once(pages: dict[Path, Page], site: Path) -> None:
    body = (site / "index.html").read_text().partition("<article")[2].partition("</article")[0]
    links = re.findall(r'<a class="reference[^"]*" href="([^"]+)">(.*?)</a>', body, re.DOTALL)
    assert 'href="chunk.svg"' in body and "make" in body and "doctor" in body
    assert len(links) >= 12
    for column in zip(*links, strict=True):
        assert len(set(column)) == len(column), "each page is named once, and each name leads to one page"
