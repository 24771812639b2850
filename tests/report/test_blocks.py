"""One tree of blocks, three renderers: texts are from data and never marks of a form."""

import re
from pathlib import Path

import pytest
from PIL import Image

from tests.report.conftest import printed
from tests.report.pages import Page
from vlc_jax.report import to_html, to_markdown, to_terminal
from vlc_jax.report.blocks import BREAK, Cases, Details, Figures, Heading, Span, Table, Text
from vlc_jax.report.examples import Case, Option, ScoredImage
from vlc_jax.report.plot import Picture
from vlc_jax.report.table import Row

HOSTILE = ("</p><script>1</script>", '" onload="x', "a|b", "`c`", "[d](http://e)", "*f* _g_ \\")


def content(text, style, folder):
    """Every block, with a text in every place."""
    (folder / "report").mkdir(exist_ok=True)
    Image.new("RGB", (4, 4)).save(folder / "a b(c).png")
    option = Option(text, 0.5, 0.5, is_correct=True, is_chosen=True)
    image = ScoredImage(folder / "a b(c).png", [option], True, text, text)
    picture, span = Picture("n", text, text, '<svg aria-label="x"></svg>'), Span(text, style)
    rows = [[span, text, "–"], [span, [text, BREAK, span], "1"]]
    return [
        Heading([text, " ", span]),
        Text(span, "bad"),
        Text(text, "pre"),
        Table([span, text, "n"], rows, 2, "results", text),
        Table([], [[text, text]], 2, "facts"),
        Figures([picture]),
        Cases([Case(text, [text], [image])]),
        Details(text, [Text(text)]),
    ]


@pytest.mark.parametrize("style", ["", "bold", "code", "pill done", "bad"])
@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_a_mark_of_the_page(text, style, tmp_path):
    hostile, plain = (Page(to_html.page(x, content(x, style, tmp_path))) for x in (text, "a"))
    assert hostile.crossed == hostile.open == []
    for page in (hostile, plain):
        page.tags = [(tag, {*given}) for tag, given in page.tags]
    assert hostile.tags == plain.tags
    markdown = to_markdown.render(content(text, style, tmp_path), tmp_path / "report")
    fenced = re.search(r"^(`{3,})\n(.*?)\n\1$", markdown, re.DOTALL | re.MULTILINE)
    assert fenced[2] == text
    bare = re.sub(r"\\.", "", markdown.replace(fenced[0], ""))
    bare = re.sub(r"`[^`|]*`", "", bare)  # without escaped signs and code
    assert not {"<", "`"} & {*bare}
    assert re.findall(r"\]\((.*?)\)", bare) == ["report/n.svg", "a%20b%28c%29.png"]
    rows = [line for line in bare.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {4}


def test_code_with_fences_has_a_longer_fence():
    text = to_markdown.render([Text("a\n````\nb", "pre")], Path())
    assert text == "`````\na\n````\nb\n`````"


def test_gauges_are_html_only_long_details_not_in_markdown_and_names_stand_once():
    row = Row("a", "choice", "m", 0.5, 0.4, 0.6, 0.5, 9, 0.0, "fraction", 5)
    rows = [["a", Span("1", gauge=row)], ["a", "2"], ["b", "–"]]
    table = Table(["name", "n"], rows, 1, "results")
    html = to_html.render([table])
    for part in ('class="gauge at"', "<td>a</td>", '<tr class="more">'):
        assert html.count(part) == 1
    assert '<td class="right none" data-label="n">–</td>' in html
    markdown = to_markdown.render([Details("Long", [Text("x")], is_long=True), table], Path())
    assert markdown.split("\n")[2:] == ["| a | 1 |", "| a | 2 |", "| b | – |"]
    text = printed(to_terminal.to_rich(table), 40)
    assert text.split()[:2] == ["name", "n"]
    assert text.count("a") == 2  # in the header, and once below it
