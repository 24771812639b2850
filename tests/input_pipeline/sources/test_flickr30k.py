"""Flickr30k in Karpathy's file and in its own."""

import pytest

from tests.support import miniature
from vlc_jax.input_pipeline.sources import make_source


@pytest.fixture
def folder(tmp_path):
    miniature.write(tmp_path)
    return tmp_path


def ids(source):
    return [source[index].id for index in range(len(source))]


def test_flickr30k_has_the_same_captions_in_karpathys_and_in_its_own_files(folder):
    given = {"images": folder / "flickr30k/flickr30k-images"}
    karpathy = make_source(
        "flickr30k", "all", annotations=folder / "flickr30k/dataset_flickr30k.json", **given
    )
    assert len(karpathy) == 10
    assert karpathy[4].id == "1004"
    for name in ("results_20130124.token", "results.csv"):
        own = make_source("flickr30k", "all", annotations=folder / "flickr30k" / name, **given)
        assert [own[i].captions for i in range(10)] == [karpathy[i].captions for i in range(10)]
        assert ids(own) == ids(karpathy)
        with pytest.raises(ValueError, match="not divided into splits; take 'all', or Karpathy"):
            make_source("flickr30k", "train", annotations=folder / "flickr30k" / name, **given)
