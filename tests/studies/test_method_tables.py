"""The tables of methods in README.md and docs are those of the records, and name what is there."""

import importlib
import re

import pytest

from studies import method_tables, paper_rows, papers
from tests.studies.test_study import results_of_docs
from tests.support import helpers
from vlc_jax import __main__ as entry

ROOT = helpers.ROOT
EXPERIMENTS = (ROOT / "docs" / "experiments.md").read_text()


@pytest.fixture(scope="module")
def results():
    return results_of_docs()


@pytest.mark.parametrize("name", method_tables.PAGES)
def test_pages_have_the_tables_of_the_records(name, results):
    """Write them anew with `python -m studies.method_tables`."""
    page = (ROOT / name).read_text()
    assert method_tables.BLOCK.search(page)
    assert method_tables.rewritten(page, results) == page
    widths = [line.count(" | ") + 1 for line in page.splitlines() if line.startswith("| ")]
    assert max(widths) <= 6


def test_links_of_the_tables_lead_to_sections():
    for page in method_tables.PAGES:
        text = (ROOT / page).read_text()
        for name, anchor in re.findall(r"\]\((\w*(?:\.md)?)#([\w-]+)\)", text):
            file = (ROOT / page).parent / name if name else ROOT / page
            titles = re.findall(r"^#+ (.*)", file.read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles]
            assert anchor in anchors, f"{page}: {name}#{anchor}"


def test_experiments_name_rows_and_commands_that_are_there():
    named = ",".join(re.findall(r"--rows ([\w.,]+)", EXPERIMENTS)).split(",")
    assert {*named} <= {row.run for row in papers.rows_of([*paper_rows.PAPERS])}
    assert {*re.findall(r"vlc-jax (\w+)", EXPERIMENTS)} <= {*entry.COMMANDS}
    for name, words in re.findall(r"`configs/([\w/]+)\.py:([^`]+)`", EXPERIMENTS):
        module = importlib.import_module(f"vlc_jax.configs.{name.replace('/', '.')}")
        assert module.get_config(words)
    words = {*re.findall(r"[\w.]+", EXPERIMENTS)}
    assert not {row.run for row in papers.ROWS if row.model} - words
