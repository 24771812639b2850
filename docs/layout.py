"""Layout of the site (`make site`): where names in the text break, and lists in docstrings.

A hook of MkDocs and an extension of griffe, both named in mkdocs.yml.
"""

import re
from typing import Any

import griffe

# "name: text" and "name, name: text"; below "Raises:", "  SomeError: text"
ENTRY = re.compile(r"([a-z]\w*(?:, \w+)*|  [A-Z]\w+): ")
SEVERAL_ENTRIES = re.compile(r"(?<=\S) {3}(?=[a-z]\w*: )")
COLUMNS = re.compile(r"\S {2,}\S")
FLAG = re.compile(r"(?<![\w-])--\w+")


def on_page_content(html: str, **_: Any) -> str:
    """The page with flags that keep their dashes, and cells whose names break between parts."""
    html = re.sub(r"(?<=<code>)[^<]*", _with_whole_flags, html)
    return re.sub(r"<td.*?</td>", lambda cell: _with_breaks(cell[0]), html, flags=re.DOTALL)


def _with_whole_flags(code: re.Match[str]) -> str:
    return FLAG.sub(r'<span class="flag">\g<0></span>', code[0])


def _with_breaks(cell: str) -> str:
    parts = re.split(r"(<[^>]*>)", cell)  # text, tag, text, ...: no break inside a tag
    for i in range(0, len(parts), 2):
        # a path after its slashes, the name of a benchmark after its underscores
        is_name = i > 0 and parts[i - 1] == "<code>" and "/" not in parts[i]
        parts[i] = re.sub(r"(?<=[^_]_)(?=[^_])" if is_name else r"(?<=/)(?=\w)", "<wbr>", parts[i])
    return "".join(parts)


class Layout(griffe.Extension):
    """Rewrites the docstrings of all objects as Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            paragraphs = obj.docstring.value.split("\n\n")
            obj.docstring.value = "\n\n".join(map(markdown, paragraphs))


def markdown(paragraph: str) -> str:
    """A paragraph with its entries as a list and its columns as a block of text."""
    if paragraph.startswith("    "):
        return paragraph  # is code already
    parts: list[tuple[str, list[str]]] = []  # kind, lines
    for line in SEVERAL_ENTRIES.sub("\n", paragraph).splitlines():
        last = parts[-1][0] if parts else ""
        if entry := ENTRY.match(line):
            parts.append(("entry", [f"- **{entry[1].strip()}**: {line[entry.end() :]}"]))
        elif line.startswith(" ") and last == "entry":
            parts[-1][1].append("    " + line.strip())
        else:
            kind = "text" if line.startswith(" ") or COLUMNS.search(line) else "prose"
            if kind != last:
                parts.append((kind, []))
            parts[-1][1].append(line)
    return "\n\n".join(
        "\n".join(["```text", *lines, "```"] if kind == "text" else lines) for kind, lines in parts
    )
