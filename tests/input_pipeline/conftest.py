"""A vocabulary of CLIP's form."""

import pytest

from tests.support import helpers


@pytest.fixture(scope="module")
def clip_vocabulary(tmp_path_factory):
    """Path and sha256 of a vocabulary of CLIP's form: "red" is merge 1, "cat" merge 3."""
    path = tmp_path_factory.mktemp("clip") / "bpe.txt.gz"
    return {"path": path, "sha256": helpers.write_clip_vocabulary(path)}
