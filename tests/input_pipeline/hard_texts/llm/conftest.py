"""Captions in a file."""

import pytest

from tests.support.batches import CAPTIONS


@pytest.fixture
def captions(tmp_path):
    path = tmp_path / "captions.txt"
    path.write_text("\n".join(CAPTIONS) + "\n")
    return path
