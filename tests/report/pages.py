"""Pages and figures of a report as their tests see them."""

import html.parser
import re
from pathlib import Path
from xml.etree import ElementTree

VOID = {"meta", "img", "br", "link", "input"}


class Page(html.parser.HTMLParser):
    """Collects what a page refers to, its ids, and whether its tags close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.crossed, self.ids, self.links, self.tags = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [
            attributes[key] for key in ("src", "href", "xlink:href") if key in attributes
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)


def assert_alone(text: str) -> Page:
    """The page is well formed, its pictures have texts, it needs no other file and no network."""
    page = Page(text)
    assert page.crossed == page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert [link for link in page.links if not link.startswith(("data:", "#"))] == []
    assert all(attributes.get("alt") for tag, attributes in page.tags if tag == "img")
    assert all(attributes.get("aria-label") for tag, attributes in page.tags if tag == "svg")
    assert "url(http" not in text
    assert "@import" not in text
    return page


def figure_size(file: Path) -> tuple[float, float]:
    """Width and height in points of a figure's file, which needs no page around it."""
    svg = file.read_text("utf-8")
    root = ElementTree.fromstring(svg)
    namespace, _, tag = root.tag.partition("}")
    assert (namespace, tag) == ("{http://www.w3.org/2000/svg", "svg")
    assert "var(--" not in svg
    assert re.search(r'<rect width="100%" height="100%" fill="#ffffff"/>', svg)
    return tuple(float(root.attrib[name].removesuffix("pt")) for name in ("width", "height"))
