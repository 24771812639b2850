"""Each dataset's own files, shrunken, give its records; another dataset's are refused by name."""

import contextlib
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.support import damage, helpers, miniature
from tests.support.miniature import SOURCES, coco, flickr30k
from vlc_jax.input_pipeline import record_validation
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source

# damages of each file; VLC_DAMAGES=500 tries more, with VLC_DAMAGE_SEED others
ROUNDS = int(os.environ.get("VLC_DAMAGES", "6"))
SEED = int(os.environ.get("VLC_DAMAGE_SEED", "0"))


def every_source(folder):
    return {make.__name__: make(folder, "train") for make in SOURCES}


@pytest.mark.parametrize("make", SOURCES)
def test_a_split_that_a_dataset_has_not_is_refused(folder, make):
    name = make.__name__
    rule = "is not divided; take 'train'" if name in ("negclip", "cc3m") else "'all'"
    with pytest.raises(ValueError, match=rf"split 'nope'.* {rule}"):
        make(folder, "nope")


def test_every_record_has_its_own_image_and_pickles(folder):
    for name, source in every_source(folder).items():
        again = pickle.loads(pickle.dumps(source))
        for index in range(len(source)):
            record = source[index]
            number = int(record.captions[0].split()[-1])
            pixels = image_ops.decode(record.image)
            assert abs(int(pixels[0, 0, 0]) - 10 * number) < 12, (name, index)
            assert again[index] == record


FILES = {
    "coco/dataset_coco.json": "Karpathy's split of coco",
    "coco/annotations/captions_val2017.json": "COCO captions",
    "flickr30k/dataset_flickr30k.json": "Karpathy's split of flickr30k",
    "llava/llava_instruct_150k.json": "a list of LLaVA conversations",
    "coco/train_neg_clip.tsv": "title.*filepath|NegCLIP",
    "instances.json": "annotations with the fields",
    "sugar_crepe.json": r"2 numbered or named objects with the fields \['filename'",
    "list.json": "a list of 1 objects with the fields .* --source records",
    "own_coco.json": "in the form of COCO captions, but 'p.jpg' is no image of .* --source records",
}
READS = {
    "coco": ("coco/dataset_coco.json", "coco/annotations/captions_val2017.json"),
    "flickr30k": ("flickr30k/dataset_flickr30k.json",),
    "llava": ("llava/llava_instruct_150k.json",),
}


@pytest.mark.parametrize("name", READS)
def test_the_file_of_another_dataset_is_refused_by_what_it_is(folder, name):
    image = {"id": 1, "file_name": "p.jpg"}
    for file, document in {
        "instances.json": {"images": [image], "annotations": [{"image_id": 1, "bbox": []}]},
        "sugar_crepe.json": {"0": {"filename": "a.jpg"}, "1": {"filename": "b.jpg"}},
        "list.json": [{"image": "a.jpg", "caption": "a"}],
        "own_coco.json": {"images": [image], "annotations": [{"image_id": 1, "caption": "a"}]},
    }.items():
        (folder / file).write_text(json.dumps(document))
    for file, found in FILES.items():
        if file in READS[name]:
            continue
        if file == "own_coco.json" and name != "coco":
            found = "COCO captions"
        with pytest.raises(ValueError, match=rf"{Path(file).name} is .*({found}).*annotations is"):
            make_source(name, "val", annotations=folder / file, images=folder / "coco")


@pytest.mark.parametrize("name", ["coco", "flickr30k", "negclip", "cc3m", "llava"])
def test_missing_files_and_options_say_what_to_bring(folder, name):
    path = folder / "nothing.json"
    with pytest.raises(ValueError, match=r"nothing\.json is no file; annotations is .*images is"):
        make_source(name, "train", annotations=path, images=folder)
    with pytest.raises(ValueError, match=f"source '{name}' needs `annotations`"):
        make_source(name, "train", annotations="", images=folder)
    with pytest.raises(ValueError, match=f"source '{name}' needs `images`"):
        make_source(name, "train", annotations=path, images="")


def own_table(folder, split="all"):
    helpers.write_photos(folder, 3)
    rows = [
        {"id": str(number), "image": f"photo_{number}.jpg", "caption": "a dog", "no": ["a cat"]}
        for number in range(3)
    ]
    if not (folder / "own.jsonl").exists():
        (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"id_column": "id", "negatives_column": "no", "meta_columns": ("image",)}
    return make_source("records", split, path=folder / "own.jsonl", **options)


@pytest.mark.parametrize("make", [*SOURCES, own_table])
def test_damaged_annotations_are_errors_of_file_or_records(folder, make):
    source = make(folder, "all" if make is own_table else "train")
    path = source._table.path
    content = path.read_bytes()
    for number in range(ROUNDS):
        path.write_bytes(content)
        rng = np.random.default_rng((SEED, number))
        path.write_bytes(damage.damaged(path, rng))
        message = read_all(make, folder)
        # the names of all images may be damaged at once, in a table's head
        assert path.name in message or "image files looked at" in message or not message


def read_all(make, folder):
    """Reads every record of a source; the message of an error that the whole file has."""
    try:
        source = make(folder, "all" if make is own_table else "train")
    except UnicodeError:
        raise  # a ValueError, but none of ours
    except (DataError, ValueError) as error:
        return str(error)
    for index in range(len(source)):
        with contextlib.suppress(DataError):
            record = source[index]
            record_validation.captions(record)
            f"{record.id} {record.image}".encode()
    return ""


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize("outside", ["/etc/", "../", "a/../../"])
def test_image_names_do_not_lead_out_of_the_folder_of_images(folder, make, outside):
    source = make(folder, "train")
    row = {source.columns.image_column: f"{outside}secret.jpg"}
    with pytest.raises(DataError, match=r"row 7: .* a file name that leads out of its folder"):
        source._image_name(row, "row 7")
    # a link that its owner put there is followed
    (source._folder / "link").symlink_to(folder.parent)
    assert (
        source._image_name({source.columns.image_column: "link/secret.jpg"}, "row 7")
        == "link/secret.jpg"
    )


def test_a_file_that_is_cut_short_is_damaged_data(folder):
    for source, name in (
        ("coco", "coco/dataset_coco.json"),
        ("llava", "llava/llava_instruct_150k.json"),
    ):
        path = folder / name
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(DataError, match=r"json is not JSON: .* cut short"):
            make_source(source, "train", annotations=path, images=folder / "coco")


def test_fingerprints_follow_the_file_and_the_split(folder):
    found = {source.fingerprint for source in every_source(folder).values()}
    found |= {coco(folder, split).fingerprint for split in ("val", "test", "train+restval")}
    assert len(found) == 8
    assert coco(folder, "train").fingerprint in found
    path = folder / "coco/dataset_coco.json"
    path.write_text(path.read_text().replace("picture 2", "photo 2"))
    assert coco(folder, "train").fingerprint not in found


def test_flickr30k_has_the_same_captions_in_each_of_its_files(folder):
    karpathy = flickr30k(folder, "all")
    assert len(karpathy) == 10
    assert karpathy[4].id == "1004"
    for name in ("results_20130124.token", "results.csv"):
        path = folder / "flickr30k" / name
        own = flickr30k(folder, "all", annotations=path)
        assert [own[i].captions for i in range(10)] == [karpathy[i].captions for i in range(10)]
        assert miniature.ids(own) == miniature.ids(karpathy)
        with pytest.raises(ValueError, match="not divided into splits; take 'all', or Karpathy"):
            flickr30k(folder, annotations=path)


def sugarcrepe(folder, document):
    helpers.write_photos(folder, 2)
    (folder / "swap.json").write_text(json.dumps(document))
    return make_source("sugarcrepe", "train", annotations=folder / "swap.json", images=folder)


def test_sugarcrepes_form_is_read_by_its_keys(tmp_path):
    entry = {"filename": "photo_0.jpg", "caption": "a b", "negative_caption": "b a"}
    source = sugarcrepe(tmp_path, {"0": entry, "7": entry | {"filename": "x/photo_1.jpg"}})
    record = source.find("7")
    assert (record.captions, record.negatives) == (["a b"], [["b a"]])
    assert record.image == tmp_path / "photo_1.jpg"
    with pytest.raises(DataError, match=r"swap\.json: entry '1' has no text 'negative_caption'"):
        sugarcrepe(tmp_path, {"0": entry, "1": {"filename": "photo_1.jpg", "caption": "a"}})
    with pytest.raises(ValueError, match=r"is a list of 1 .*; annotations is an object"):
        sugarcrepe(tmp_path, [entry])
