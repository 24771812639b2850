"""One tree of blocks, three renderers: texts are from data and must not become marks of a form."""

import io
import re
from pathlib import Path

import pytest
import rich.console
from PIL import Image

from tests.report.pages import Page
from vlc_jax.report import blocks, to_html, to_markdown, to_terminal
from vlc_jax.report.examples import Case, Option, ScoredImage
from vlc_jax.report.plot import Picture
from vlc_jax.report.table import Row

HOSTILE = (
    "</p><script>alert(1)</script>",
    '" onload="x',
    "a|b",
    "`c`",
    "[d](http://e)",
    "*f* _g_ \\",
)
STYLES = ("", "bold", "code", "pill done", "bad")


def case(text, file):
    options = [Option(text, 0.5, 0.5, is_correct=True, is_chosen=True)]
    return Case(text, [text], [ScoredImage(file, options, True, text, text)])


def page(text, style, file):
    span = blocks.Span(text, style)
    rows = [[span, text, "–"], [span, [text, blocks.BREAK, span], "1"]]
    picture = Picture("n", text, text, '<svg aria-label="x"></svg>')
    return [
        blocks.Heading([text, " ", span]),
        blocks.Text(span, "bad"),
        blocks.Text(text, "pre"),
        blocks.Table([span, text, "n"], rows, 2, "results", text),
        blocks.Table([], [[text, text]], 2, "facts"),
        blocks.Figures([picture]),
        blocks.Cases([case(text, file)]),
        blocks.Details(text, [blocks.Text(text)]),
    ]


@pytest.fixture
def file(tmp_path):
    (tmp_path / "report").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "a b(c).png")
    return tmp_path / "a b(c).png"


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_a_mark_of_the_page(text, style, file):
    html = Page(to_html.page(text, page(text, style, file)))
    plain = Page(to_html.page("a", page("a", style, file)))
    assert html.crossed == html.open == []
    assert [tag for tag, _ in html.tags] == [tag for tag, _ in plain.tags]
    assert [set(given) for _, given in html.tags] == [set(given) for _, given in plain.tags]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_a_mark_of_markdown(text, style, file):
    markdown = to_markdown.render(page(text, style, file), file.parent / "report")
    fenced = re.search(r"^(`{3,})\n(.*?)\n\1$", markdown, re.DOTALL | re.MULTILINE)
    assert fenced[2] == text
    rest = markdown.replace(fenced[0], "")
    bare = re.sub(r"`[^`|]*`", "", re.sub(r"\\.", "", rest))  # without escaped signs and code
    assert "<" not in bare
    assert "`" not in bare
    links = re.findall(r"!\[.*?\]\((.*?)\)", bare)
    assert links == ["report/n.svg", "a%20b%28c%29.png"]
    assert bare.count("](") == len(links)
    rows = [line for line in bare.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {4}


def test_code_with_fences_has_a_longer_fence():
    text = to_markdown.render([blocks.Text("a\n````\nb", "pre")], Path())
    assert text == "`````\na\n````\nb\n`````"


def test_long_details_are_left_out_of_markdown_and_gauges_of_texts():
    row = Row("a", "choice", "m", 0.5, 0.4, 0.6, 0.5, 9, 0.0, "fraction", 5)
    table = blocks.Table(["name", "n"], [["a", blocks.Span("1", gauge=row)], ["b", "2"]])
    details = blocks.Details("Long", [blocks.Text("x")], is_long=True)
    assert to_html.render([table]).count('class="gauge at"') == 1
    assert to_markdown.render([details, table], Path()).splitlines() == [
        "| name | n |", "|---|---:|", "| a | 1 |", "| b | 2 |",
    ]  # fmt: skip
    console = rich.console.Console(file=io.StringIO(), width=40)
    console.print(to_terminal.to_rich(table))
    assert console.file.getvalue().split()[:2] == ["name", "n"]


def test_results_name_a_group_of_rows_once_where_they_are_read_from_above():
    table = blocks.Table(["name", "n"], [["a", "1"], ["a", "2"], ["b", "–"]], 1, "results")
    html = to_html.render([table])
    assert html.count("<td>a</td>") == html.count('<tr class="more">') == 1
    assert '<td class="right none" data-label="n">–</td>' in html
    assert to_markdown.table(table).count("| a |") == 2
