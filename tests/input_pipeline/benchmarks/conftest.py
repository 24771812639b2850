"""Published sets in miniature for the tests of their readers."""

import os
from pathlib import Path

import pytest

from tests.support import sets


@pytest.fixture(scope="session")
def all_sets(tmp_path_factory):
    """Every set, in a folder that tests only read."""
    return sets.write_all(tmp_path_factory.mktemp("sets"))


@pytest.fixture
def root(request, tmp_path):
    """The set that the test file is named after, in a folder that a test may change."""
    name = request.module.__name__.rpartition("test_")[2]
    folder = tmp_path / "sets"
    getattr(sets, name).write(folder)
    return folder


@pytest.fixture
def real_data():
    """The folder of published annotation files."""
    if not os.environ.get("VLC_BENCHMARK_DATA"):
        pytest.skip("VLC_BENCHMARK_DATA names no folder of annotation files")
    return Path(os.environ["VLC_BENCHMARK_DATA"])
