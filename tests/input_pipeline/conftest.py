"""A vocabulary of CLIP's form, and a cache of tables."""

import pytest

from tests.support import helpers
from vlc_jax.input_pipeline.sources import table_index


@pytest.fixture(scope="module")
def clip_vocabulary(tmp_path_factory):
    """Path and sha256 of a vocabulary of CLIP's form: "red" is merge 1, "cat" merge 3."""
    path = tmp_path_factory.mktemp("clip") / "bpe.txt.gz"
    return {"path": path, "sha256": helpers.write_clip_vocabulary(path)}


@pytest.fixture
def table_cache(monkeypatch, tmp_path):
    """The folder of the indices of tables, of any size and age."""
    monkeypatch.setattr(table_index, "_SMALL", 0)
    monkeypatch.setattr(table_index, "_SETTLED", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/vlc_jax/tables"
