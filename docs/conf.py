"""The site: these pages, the documents that stand in the root, and the public names with their docstrings.

Pages are written for a reader of the repository, so their links lead to files as they lie there.  `lead` turns them
for the site: a document of the root that has a page here is that page, a directory and any other Markdown is its name,
and any other file is copied beside the site by MyST.  A link that leads nowhere is an error, here as on any page.

The last list of the index, *More*, has every page that no list before it names: a page that is new is found by itself.

Docstrings are plain text with names between backticks; `plain` makes of them what reStructuredText calls literals.

A repository's viewer draws the Mermaid in the pages by a script from elsewhere.  The site has pictures instead, drawn
here (`pictured`): who reads it fetches nothing from anybody else.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from kvproto.verify.check.checker import CHECKER  # noqa: E402  # as above
from kvproto.verify.framework.draw.sequence_svg import sequence_svg  # noqa: E402  # this checkout's own, whatever is installed
from kvproto.verify.framework.explore.explore_page import explore_page  # noqa: E402  # as above
from kvproto.verify.trace.rank_stories import TELLING  # noqa: E402  # as above
from kvproto.version import __version__  # noqa: E402  # as above

project, author, release = "kvproto", "kvproto", __version__
copyright = "Apache-2.0"  # noqa: A001  # Sphinx's name for the line at the foot
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme, html_title = "furo", f"kvproto {__version__}"
exclude_patterns = ["prometheus.rules.yml", "design"]

myst_heading_anchors = 3
autoclass_content = "both"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
maximum_signature_line_length = 100

#: documents of the root, and the page that shows each
SHOWN = {
    "PROTOCOL.md": "protocol", "CONTRIBUTING.md": "contributing", "SECURITY.md": "reporting",
    "CHANGELOG.md": "changelog", "README.md": "readme",
}  # fmt: skip
LINK = re.compile(r"\[([^\]\[]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def lead(text: str, base: Path) -> str:
    """The page with its links turned; `base`: the directory from which they are written."""

    def turned(match: re.Match[str]) -> str:
        said, path, anchor = match[1], (base / match[2]).resolve(), match[3] or ""
        if path.is_dir():
            return said if said.startswith("`") else f"`{said}`"
        inside = os.path.relpath(path, ROOT)
        if inside in SHOWN:
            return f"[{said}]({SHOWN[inside]}.md{anchor})"
        if path.suffix == ".md" and path.parent != HERE and path.exists():
            return f"{said} (`{inside}`)"
        return f"[{said}]({os.path.relpath(path, HERE)}{anchor})"

    return LINK.sub(turned, text)


#: a sequence chart; a machine's chart, of which the page has the picture, too; a picture on a line of its own
CHART = re.compile(r"```mermaid\n(.*?)```\n", re.DOTALL)
TWICE = re.compile(r"<details><summary>The same in Mermaid</summary>\n.*?</details>\n", re.DOTALL)
PICTURE = re.compile(r"^!\[([^\]]*)\]\(([^)]+)\)$", re.MULTILINE)
#: what lies beside the pages: charts that are drawn for them, and copies of pictures
DRAWN: dict[str, str] = {}
COPIED: dict[str, Path] = {}
#: the page that the smallest world is explored on, and what leads to it from the pages about it
WORLD = "world.html"
WORLD_LINK = f'\n```{{raw}} html\n<p><a href="{WORLD}">Click through the smallest world</a>, here.</p>\n```\n'


def pictured(text: str) -> str:
    """Return the page with pictures where it has Mermaid.  Each leads to itself: it may be too small to read."""

    def chart(match: re.Match[str]) -> str:
        file = f"chart_{crc32(match[1].encode()):08x}.svg"
        DRAWN[file] = sequence_svg(match[1])
        return image(file, "A sequence chart")

    def picture(match: re.Match[str]) -> str:
        path = (HERE / match[2]).resolve()
        COPIED[path.name] = path
        return image(path.name, match[1])

    def image(file: str, named: str) -> str:
        shown = f'<img alt="{named}" style="max-width:100%;height:auto" src="{file}"/>'
        return f'```{{raw}} html\n<a href="{file}" title="{named}, alone">{shown}</a>\n```\n'

    return PICTURE.sub(picture, CHART.sub(chart, TWICE.sub("", text)))


def with_more(index: str) -> str:
    """The index, its last list filled, or left out where there is nothing more."""
    listed = set(re.findall(r"^(?:[\w ]+ <)?(\w+)>?$", index, re.MULTILINE))
    more = sorted(each.stem for each in HERE.glob("*.md") if each.stem not in listed | {"index"})
    head, _, last = index.rpartition("```{toctree}")
    return head + "```{toctree}" + last.replace(":glob:\n\n*", "\n" + "\n".join(more)) if more else head


def read(_app: Sphinx, page: str, source: list[str]) -> None:
    """A page as the site has it: whole where it only stands for a document of the root."""
    shown = {name: path for path, name in SHOWN.items()}
    if page == "index":
        source[0] = with_more(source[0])
    if page in shown:
        source[0] = lead((ROOT / shown[page]).read_text(), ROOT)
    else:
        source[0] = lead(source[0], HERE)
    source[0] = pictured(source[0]) + (WORLD_LINK if page == "inspector" else "")


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write beside the pages: the pictures alone, and the smallest world to click through."""
    if error is None:
        for file, svg in DRAWN.items():
            (Path(app.outdir) / file).write_text(svg)
        for file, path in COPIED.items():
            copyfile(path, Path(app.outdir) / file)
        html, *_ = explore_page(CHECKER.explored(CHECKER.first, TELLING), "kvproto", limit=5000)
        (Path(app.outdir) / WORLD).write_text(html)


def plain(_app: Sphinx, _what: str, _name: str, _thing: object, _options: object, lines: list[str]) -> None:
    """Make literals of a docstring's backticks, and a line of each argument; nothing else is markup."""
    whole = re.sub(r"(?<=\S)\n {8,}(?=\S)", " ", "\n".join(lines))
    said = re.split(r"``([^`]+)``|`([^`]+)`", whole)
    text = ""
    for at in range(0, len(said), 3):  # what is outside, and then what stood between two or one of them
        text += re.sub(r"([*|_\\])", r"\\\1", said[at])
        word = "".join(filter(None, said[at + 1 : at + 3]))
        text += f"``{word}``" if word else ""
    lines[:] = text.split("\n")


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("source-read", read)
    app.connect("build-finished", finish)
    app.connect("autodoc-process-docstring", plain)
