"""The published data sets in miniature."""

import pytest

from tests.support import miniature


@pytest.fixture
def folder(tmp_path):
    """Every data set of tests/support/miniature.py, under the names of the documentation."""
    miniature.write(tmp_path)
    return tmp_path
