"""DCSM's data as made from one's own images, and as its source reads them: every caption is true of
its image, and the opposite's of the opposite."""

import json
import pickle

import numpy as np
import pytest
from PIL import Image

from tests.support import helpers
from vlc_jax.input_pipeline.commands import composites, prepare
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader.examples import Examples
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source, opposites, order

COLOURS = {"cup": (220, 40, 40), "hat": (40, 40, 220)}
SIZE = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Composites of a red and a blue object, and negation pairs of COCO's instances."""
    path = tmp_path_factory.mktemp("dcsm")
    (path / "objects").mkdir()
    for name, colour in COLOURS.items():
        pixels = np.zeros((20, 20, 4), np.uint8)
        pixels[4:16, 4:16] = (*colour, 255)
        Image.fromarray(pixels).save(path / f"objects/{name}.png")
    names = helpers.write_photos(path, 4, ".png")
    document = {
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "couch"}],
        "images": [
            {"id": i, "file_name": n, "height": 10, "width": 10} for i, n in enumerate(names)
        ],
        # image 3 has both, and image 2 a couch of one pixel, which is neither shown nor lacking
        "annotations": [
            {"image_id": i, "category_id": c, "area": area}
            for i, c, area in ((0, 1, 50), (1, 2, 50), (2, 1, 50), (2, 2, 1), (3, 1, 50), (3, 2, 9))
        ],
    }
    (path / "instances.json").write_text(json.dumps(document))
    (path / "names.json").write_text('{"couch": "sofa"}')
    (path / f"pairs/{opposites.SPATIAL}.partial").mkdir(parents=True)
    (path / f"pairs/{opposites.SPATIAL}.partial/cup_above_rug.png").touch()
    out = ["--out", str(path / "pairs"), "--size", str(SIZE)]
    assert composites.main(["--objects", str(path / "objects"), "--count", "8", *out]) == 0
    more = ["--instances", str(path / "instances.json"), "--names", str(path / "names.json")]
    assert composites.main([*more, *out]) == 0
    return path


def source(folder, **options):
    return make_source("dcsm", "train", path=folder / "pairs", images=folder, **options)


def centres(record):
    """Name -> (x, y) of the object in the image."""
    pixels = image_ops.decode(record.image).astype(int)
    redness = pixels[..., 0] - pixels[..., 2]
    masks = {"cup": redness > 60, "hat": redness < -60}
    return {name: np.argwhere(mask).mean(axis=0)[::-1] for name, mask in masks.items()}


def test_places_in_the_image_are_those_of_its_captions(folder):
    directions = {"above": (1, -1), "below": (1, 1), "left": (0, -1), "right": (0, 1)}
    records = source(folder, sets=("spatial",))
    assert len(records) == 2 * 8  # 2 ordered pairs, 4 relations, 2 wordings
    said = set()
    for index in range(len(records)):
        for record in (records[index], records.find(records[index].hard_images[0])):
            (caption,), ((negative,),), at = record.captions, record.negatives, centres(record)
            (word,) = directions.keys() & caption.split()
            axis, sign = directions[word]
            first, second = sorted(COLOURS, key=caption.index)
            assert np.sign(at[first][axis] - at[second][axis]) == sign, caption
            assert negative == caption.replace(first, "?").replace(second, first).replace(
                "?", second
            )
            said.add(caption)
    assert len(said) == 8


def test_images_of_a_killed_command_do_not_join_the_next(folder):
    assert not (folder / f"pairs/{opposites.SPATIAL}/cup_above_rug.png").exists()


def test_attributes_are_exchanged_in_the_opposite_caption(folder):
    records = source(folder, sets=("attributes",))
    groups = {}
    for index in range(len(records)):
        record, opposite = records[index], records.find(records[index].hard_images[0])
        assert opposite.captions == record.negatives[0]
        assert record.captions == opposite.negatives[0]
        assert opposite.hard_images == [record.id]
        groups.setdefault(record.id.split("/")[1], record)
        assert not np.array_equal(*(image_ops.decode(each.image) for each in (record, opposite)))
    colours, sizes = groups[opposites.ATTRIBUTES], groups[opposites.SIZES]
    _, _, _, _, colour, first, _, _, other, _ = colours.captions[0].split()
    assert (colour, other) == tuple(colours.image.stem.split("_")[::2])
    assert first in COLOURS
    assert {"small", "big"} <= {*sizes.captions[0].split()}


def test_a_denied_object_is_not_in_the_image(folder):
    records = source(folder, sets=("negation",))
    entries = json.loads((folder / "pairs" / opposites.NEGATION).read_text())
    seen = {"photo_0.png": "dog", "photo_1.png": "couch"}
    assert len(entries) == len(records) // 2 == 2  # dog without couch, and the other way round
    for index in range(len(records)):
        for record in (records[index], records.find(records[index].hard_images[0])):
            thing = seen[record.image.name]
            names = {"dog": ("dog", "dog"), "couch": ("couch", "sofa")}
            of_wording = names[thing][int(record.id.split("/")[2])]
            assert len(record.captions) == 3
            assert all(text.startswith(f"An image of a {of_wording} ") for text in record.captions)
            assert not {*record.captions} & {*record.negatives[0]}


def test_sets_are_equally_large_and_chosen_by_the_seed(folder):
    records = source(folder)
    groups = [records[index].group for index in range(len(records))]
    assert {name: groups.count(name) for name in groups} == dict.fromkeys(opposites.SETS, 4)
    again, other = source(folder), source(folder, seed=1)
    assert again.fingerprint == records.fingerprint != other.fingerprint
    assert pickle.loads(pickle.dumps(records))[3] == records[3]
    assert len(source(folder, truncate=False)) == 2 * (8 + 8 + 4 + 2)


def test_each_of_six_sub_batches_is_of_one_set_in_one_wording(folder):
    """Record r of the sequence is in sub-batch r % 6 (train/step.py: split_batch)."""
    records = source(folder)
    sequence = order.make(records, 0)
    for epoch in (0, 1):
        read = [records[sequence[len(records) * epoch + i]].id for i in range(len(records))]
        assert sorted(read) == sorted(records[i].id for i in range(len(records)))
        blocks = [read[number::6] for number in range(6)]
        kinds = [{(name.split("/")[0], name[-1]) for name in block} for block in blocks]
        assert sorted(map(len, kinds)) == [1] * 6
        assert len(set().union(*kinds)) == 6
        for first, second in zip(blocks[::2], blocks[1::2], strict=True):
            assert [name[:-1] for name in first] == [name[:-1] for name in second]
    assert source(folder, truncate=False).group_size == 1


def test_training_meets_every_image_with_its_opposite(folder):
    records = source(folder)
    crop = ImageTransform(32, "perturbed")
    examples = Examples(records, crop, 0, np.inf, {}, hard_images=1)
    for number in range(len(records)):
        main, other = examples.group(number, {})
        assert other.record.id == f"{main.record.id}/opposite"
        assert not other.is_stand_in


def test_wrong_files_are_refused_by_what_is_wrong(folder, tmp_path, capsys):
    def read(**options):
        return make_source("dcsm", "train", path=tmp_path, **options)

    with pytest.raises(ValueError, match=r"no folder .*vlc-jax composites"):
        read(sets=("spatial",))
    spatial = tmp_path / opposites.SPATIAL
    spatial.mkdir()
    Image.new("RGB", (8, 8)).save(spatial / "cup_above_hat.png")
    with pytest.raises(DataError, match="1 of 1 images have no opposite CUTMIX_NAME"):
        read(sets=("spatial",))
    assert read(sets=("spatial",), opposite="text")[0].hard_images == []
    (spatial / "cup_above_hat.png").rename(spatial / "cup_over_hat.png")
    with pytest.raises(DataError, match="not called A_RELATION_B with one of above, below"):
        read(sets=("spatial",), opposite="text")
    (spatial / "more").mkdir()
    (spatial / "cup_over_hat.png").rename(spatial / "more" / "cup_above_hat.png")
    with pytest.raises(DataError, match=r"in folders, such as more/cup_above_hat.png: move them"):
        read(sets=("spatial",), opposite="text")
    for entry in ({"img1_path": "a.png"}, 3, {"img1_path": "a", "img1_obj": ["dog"]}):
        (tmp_path / opposites.NEGATION).write_text(json.dumps([entry]))
        with pytest.raises(DataError, match="entry 0 has img1_path, a file, and img1_obj, two"):
            read(sets=("negation",))
    entry = {"img1_path": "../a.png", "img1_obj": ["a", "b"], "img2_path": "b", "img2_obj": "b"}
    (tmp_path / opposites.NEGATION).write_text(json.dumps([entry]))
    with pytest.raises(DataError, match="entry 0: a file name that leads out of its folder"):
        read(sets=("negation",))
    assert composites.main(["--objects", str(folder), "--out", str(tmp_path / "out")]) == 2
    assert "OBJECT/ANY.png; move it up" in capsys.readouterr().err


def test_shards_without_the_opposite_images_are_not_written(folder, tmp_path, capsys):
    request = ["--source", "dcsm", "--option", f"path={folder / 'pairs'}", "--size", "32"]
    request += ["--option", f"images={folder}", "--out", str(tmp_path / "shards")]
    assert prepare.main(request) == 2
    assert "dcsm: shards hold the records of a source" in capsys.readouterr().err
    assert prepare.main([*request, "--option", "opposite=text"]) == 0
