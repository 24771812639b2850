"""A dataset that tfds itself prepares here, read back without TensorFlow."""

import io
import pickle
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source
from vlc_jax.input_pipeline.sources.tfds import TfdsSource

FEATURES = {
    "image": tfds.features.Image(shape=(None, None, 3)),
    "image/filename": tfds.features.Text(),
    "captions": tfds.features.Sequence({"text": tfds.features.Text(), "id": np.int64}),
    "title": tfds.features.Text(),
    "label": tfds.features.ClassLabel(names=["tabby_cat", "dog"]),
    "labels": tfds.features.Sequence(tfds.features.ClassLabel(names=["tabby_cat", "dog"])),
}


def example(i):
    stream = io.BytesIO()
    Image.fromarray(np.full((8, 9, 3), 10 * i, np.uint8)).save(stream, "PNG")
    stream.seek(0)
    return {
        "image": stream,
        "image/filename": f"f{i}.png",
        "captions": [{"text": f"caption {i}a", "id": 1}, {"text": f"caption {i}é", "id": 2}],
        "title": f"title {i}",
        "label": i % 2,
        "labels": [1, 0, 1][: i % 3],
    }


class Pictures(tfds.core.GeneratorBasedBuilder):
    """Six pictures to train on and two to test with."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = None

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(FEATURES), description="pictures"
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(6), "test": self._generate_examples(2)}

    def _generate_examples(self, count):
        for i in range(count):
            yield i, example(i)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    builder = Pictures(data_dir=folder, file_format="array_record")
    builder.download_and_prepare()
    return folder


def test_examples_become_records_without_tensorflow(data_dir):
    source = TfdsSource("train", name="pictures", data_dir=data_dir, caption="captions.text")
    assert len(source) == 6
    seen = {}
    for index in range(6):
        record = source[index]
        number = int(record.captions[0].split()[1][:-1])
        seen[number] = record.id
        assert list(record.captions) == [f"caption {number}a", f"caption {number}é"]
        assert isinstance(record.image, bytes)
        assert image_ops.decode(record.image).shape == (8, 9, 3)
        assert image_ops.decode(record.image).max() == 10 * number
    assert sorted(seen) == list(range(6))
    assert len(set(seen.values())) == 6
    assert "tensorflow" not in sys.modules


def test_a_directory_a_slice_and_an_id_feature_can_be_named(data_dir):
    directory = data_dir / "pictures" / "1.0.0"
    options = {"directory": directory, "caption": "title", "id": "image/filename"}
    source = TfdsSource("train[:50%]", **options)
    assert len(source) == 3
    number = source[1].captions[0].removeprefix("title ")
    assert source[1].id.endswith(f"/f{number}.png")
    assert source.fingerprint != TfdsSource("train", **options).fingerprint


def test_labels_become_captions_by_templates(data_dir):
    source = TfdsSource(
        "test", name="pictures", data_dir=data_dir, label="label", templates=("a {}", "my {} here")
    )
    assert source.classes == ("tabby cat", "dog")
    for record in (source[0], source[1]):
        name = source.classes[record.meta["label"]]
        assert list(record.captions) == [f"a {name}", f"my {name} here"]


def test_a_missing_feature_split_or_dataset_names_what_there_is(data_dir):
    options = {"name": "pictures", "data_dir": data_dir}
    with pytest.raises(ValueError, match=r"no feature 'captions.txt'.*captions\.text"):
        TfdsSource("train", caption="captions.txt", **options)
    with pytest.raises(ValueError, match=r"no feature 'caption' \(caption\); features:"):
        TfdsSource("train", **options)
    with pytest.raises(ValueError, match=r"splits \['test', 'train'\]; got 'val'"):
        TfdsSource("val", caption="title", **options)
    with pytest.raises(
        ValueError, match=r"no prepared dataset 'coco'.*\['downloads', 'pictures'\]"
    ):
        TfdsSource("train", name="coco", data_dir=data_dir)
    with pytest.raises(ValueError, match="either"):
        TfdsSource("train")
    with pytest.raises(ValueError, match="not a prepared dataset"):
        TfdsSource("train", directory=data_dir)


def test_a_dataset_prepared_as_tfrecord_says_how_to_prepare_it(data_dir, tmp_path):
    info = (data_dir / "pictures" / "1.0.0" / "dataset_info.json").read_text()
    (tmp_path / "dataset_info.json").write_text(info.replace("array_record", "tfrecord"))
    with pytest.raises(ValueError, match="file_format='array_record'"):
        TfdsSource("train", directory=tmp_path)


def test_a_damaged_shard_is_a_data_error_and_records_pickle(data_dir, tmp_path):
    source = TfdsSource("train", name="pictures", data_dir=data_dir, caption="title")
    assert pickle.loads(pickle.dumps(source))[2] == source[2]
    folder = tmp_path / "1.0.0"
    folder.mkdir()
    for file in (data_dir / "pictures" / "1.0.0").iterdir():
        data = bytearray(file.read_bytes())
        if "train" in file.name:
            data[100] ^= 255
        (folder / file.name).write_bytes(data)
    with pytest.raises(DataError, match="example 0 cannot be read"):
        TfdsSource("train", directory=folder, caption="title")[0]


def test_a_prepared_set_is_found_below_the_folder(data_dir):
    source = make_source("labelled", "test", path=data_dir)
    assert source.classes == ("tabby cat", "dog")
    assert sorted(source[n].meta["label"] for n in range(2)) == [0, 1]
    with pytest.raises(ValueError, match="no feature 'kind'"):
        make_source("labelled", "test", path=data_dir, label="kind")


def test_images_of_several_classes_have_all_of_them(data_dir):
    source = TfdsSource("train", name="pictures", data_dir=data_dir, label="labels")
    records = [source[n] for n in range(6)]
    found = sorted(record.meta["labels"] for record in records)
    assert found == [(), (), (0, 1), (0, 1), (1,), (1,)]
    for record in records:
        names = [source.classes[label] for label in record.meta["labels"]]
        assert (record.group, record.captions) == (None, [f"a photo of a {name}" for name in names])
