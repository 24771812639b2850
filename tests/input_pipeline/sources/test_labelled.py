"""One small data set in each of the forms that it is downloaded in."""

import json
import pickle

import numpy as np
import pytest

from tests.support import damage
from tests.support.labelled_sets import NAMES, npy, write_tars
from tests.support.sets.files import picture, picture_bytes, write_json
from vlc_jax.input_pipeline.benchmarks import READERS
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source

LABELS = [2, 0, 1, 1]


def write_parquet(folder, labels=LABELS, features=True, **more):
    import pyarrow
    from pyarrow import parquet

    rows = [
        {"img": {"bytes": picture_bytes(str(n)), "path": None}, "label": label, "coarse": 0}
        for n, label in enumerate(labels)
    ]
    table = pyarrow.Table.from_pylist(rows)
    if features:
        label = {"_type": "ClassLabel", "names": ["tabby_cat", "dog", "17"]}
        label = {"_type": "List", "feature": label} if isinstance(labels[0], list) else label
        kinds = {"img": {"_type": "Image"}, "label": label, "coarse": {"_type": "ClassLabel"}}
        table = table.replace_schema_metadata(
            {"huggingface": json.dumps({"info": {"features": kinds | more}})}
        )
    (folder / "data").mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, folder / "data" / "test-00000-of-00001.parquet")


def write_folders(folder, split="test"):
    for n, label in enumerate(LABELS):
        picture(folder / split / NAMES[label].replace(" ", "_") / f"{n}.jpg")


FORMS = {
    "tars": lambda folder: write_tars(folder, [b"%d" % label for label in LABELS]),
    "parquet": write_parquet,
    "folders": write_folders,
    "val": lambda folder: write_folders(folder, "val"),
    "flat": lambda folder: write_folders(folder, "."),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_images_and_classes(form, tmp_path):
    FORMS[form](tmp_path)
    source = make_source("labelled", "test", path=tmp_path)
    source = pickle.loads(pickle.dumps(source))
    found = {}
    for record in (source[n] for n in range(len(source))):
        image = image_ops.decode(record.image)
        found[int(image.astype(int).sum())] = source.classes[record.meta["label"]]
        assert record.group == source.classes[record.meta["label"]]
        assert record.captions[0].rstrip(".") == f"a photo of a {record.group}"
    # files of folders are named 0.jpg, their pictures drawn from that
    end = "" if form in ("tars", "parquet") else ".jpg"
    pixels = [image_ops.decode(picture_bytes(f"{n}{end}")).astype(int).sum() for n in range(4)]
    assert found == {n: NAMES[label] for n, label in zip(pixels, LABELS, strict=True)}
    assert source.templates == (("a photo of a {}.", "the {}.") if form == "tars" else ())


def test_files_of_names_and_templates_serve_every_form(tmp_path):
    write_folders(tmp_path)
    options = {"source": "labelled", "path": tmp_path}
    with pytest.raises(ValueError, match="'labelled' has no templates for its classes: set temp"):
        READERS["zeroshot"](**options)
    # sorted by folder: 17, dog, tabby_cat
    (tmp_path / "classnames.txt").write_text("seventeen\nhound\ntabby\n")
    (tmp_path / "zeroshot_classification_templates.txt").write_text("my {}\n")
    benchmark = READERS["zeroshot"](**options, metric="mean_per_class_recall")
    assert benchmark.prompts == ["my seventeen", "my hound", "my tabby"]
    assert benchmark.summary[0] == "mean_per_class_recall"
    (tmp_path / "classnames.txt").write_text("tabby_cat: tabby\n17: seventeen\ndog: hound\n")
    assert READERS["zeroshot"](**options).prompts == benchmark.prompts
    (tmp_path / "classnames.txt").write_text("tabby cat\ndog\n17\n")
    with pytest.raises(DataError, match=r"classnames\.txt\) .* class 0 of the source is '17'"):
        READERS["zeroshot"](**options)
    (tmp_path / "classnames.txt").write_text("seventeen\n\ntabby\n")
    with pytest.raises(DataError, match=r"line 2 of .*classnames\.txt is blank"):
        READERS["zeroshot"](**options)
    (tmp_path / "classnames.txt").write_text("seventeen\n")
    with pytest.raises(DataError, match="has 1 names for the 3 classes"):
        READERS["zeroshot"](**options)


def test_published_names_may_be_numbers(tmp_path):
    digits = [str(n) for n in range(10)]
    write_tars(tmp_path, [b"7"] * 12, names=digits, per_tar=1)
    benchmark = READERS["zeroshot"](source="labelled", path=tmp_path)
    assert benchmark.classes == tuple(digits)
    # 10.tar is behind 2.tar
    assert [case.meta["record"] for case in benchmark.cases][-2:] == ["10/s0000010", "11/s0000011"]


@pytest.mark.parametrize("form", ["tars", "parquet"])
def test_images_of_several_classes_are_for_multilabel_alone(form, tmp_path):
    if form == "tars":
        write_tars(tmp_path, [npy([1.0, 0, 1]), npy([0.0, 0, 0])], "npy")
    else:
        write_parquet(tmp_path, [[0, 2], []])
    given = {"source": "labelled", "path": tmp_path, "templates": "a {}"}
    benchmark = READERS["multilabel"](**given)
    assert [case.meta["labels"] for case in benchmark.cases] == [(0, 2), ()]
    with pytest.raises(DataError, match="has no 'label': zeroshot and linear_probe have one"):
        READERS["zeroshot"](**given)


def test_objectnet_has_the_classes_of_imagenet(tmp_path):
    for name in ("air_freshener", "backpack", "chair"):
        picture(tmp_path / "images" / name / "0.jpg")
    labels = {"air_freshener": "Air freshener", "backpack": "Backpack", "chair": "Chair"}
    write_json(tmp_path / "mappings" / "folder_to_objectnet_label.json", labels)
    shared = {"Backpack": "backpack, back pack", "Chair": "barber chair; folding chair"}
    write_json(tmp_path / "mappings" / "objectnet_to_imagenet_1k.json", shared)
    source = make_source("labelled", "test", path=tmp_path)
    assert source.classes == ("backpack", "chair")
    assert [source[n].id for n in range(len(source))] == ["backpack/0.jpg", "chair/0.jpg"]


@pytest.mark.parametrize(
    ("labels", "suffix", "message"),
    [
        ([b"0", b"3"], "cls", r"sample s0000001 of .*0\.tar has the label 3, and there are 3"),
        ([b"-1"], "cls", "-1 marks a split without labels"),
        ([b"dog"], "cls", "has a damaged label"),
        ([npy([1, 0])], "npy", r"for 3 classes; got shape \(2,\)"),
        ([npy([2, 0, 0])], "npy", "a vector of zeros and ones"),
        ([b"\x93NUMPY"], "npy", "has a damaged label"),
        ([b"0"], "txt", "needs an image and a .cls or .npy; of these it has image"),
    ],
)
def test_damaged_labels_of_tars_name_the_sample(labels, suffix, message, tmp_path):
    write_tars(tmp_path, labels, suffix)
    with pytest.raises(DataError, match=message):
        make_source("labelled", "test", path=tmp_path)


@pytest.mark.parametrize("form", ["tars", "vectors", "parquet"])
def test_damaged_files_end_with_an_error_of_the_data(form, tmp_path):
    rng = np.random.default_rng(0)
    outcomes = []
    for number in range(40):
        folder = tmp_path / str(number)
        if form == "parquet":
            write_parquet(folder)
        elif form == "vectors":
            write_tars(folder, [npy(row) for row in np.eye(3)], "npy")
        else:
            FORMS[form](folder)
        path = rng.choice(sorted(file for file in folder.rglob("*") if file.is_file()))
        path.write_bytes(damage.damaged(path, rng))
        try:
            source = make_source("labelled", "test", path=folder)
            records = [source[n] for n in range(len(source))]
            meta = [record.meta for record in records]
            labels = [k for each in meta for k in each.get("labels", [each.get("label")])]
            assert all(0 <= label < len(source.classes) for label in labels)
            outcomes.append("read")
        except (DataError, ValueError) as error:
            assert str(folder) in str(error)  # noqa: PT017
            outcomes.append("refused")
    assert {*outcomes} == {"read", "refused"}


def test_missing_tars_and_names_are_refused(tmp_path):
    write_tars(tmp_path, [b"0"] * 4)
    (tmp_path / "test" / "1.tar").unlink()
    with pytest.raises(DataError, match="says '2', and there are 1 tars; download the others"):
        make_source("labelled", "test", path=tmp_path)
    (tmp_path / "classnames.txt").unlink()
    with pytest.raises(ValueError, match=r"needs classnames\.txt: tars have no names"):
        make_source("labelled", "test", path=tmp_path)


def test_parquet_says_which_columns_and_labels_it_lacks(tmp_path):
    damaged, plain = tmp_path / "damaged", tmp_path / "plain"
    write_parquet(damaged, [0, -1])
    with pytest.raises(DataError, match=r"row 1 of .*a label is the number .* got -1 .-1 marks"):
        make_source("labelled", "test", path=damaged)
    write_parquet(plain, features=False)
    columns = {"image": "img", "label": "label"}
    with pytest.raises(ValueError, match=r"set image, the column of the image: .* none of its"):
        make_source("labelled", "test", path=plain)
    with pytest.raises(ValueError, match="names no classes in the column 'label': write"):
        make_source("labelled", "test", path=plain, **columns)
    (plain / "classnames.txt").write_text("a\nb\nc\n")
    assert make_source("labelled", "test", path=plain, **columns).classes == ("a", "b", "c")
    with pytest.raises(DataError, match="has no column 'kind'"):
        make_source("labelled", "test", path=plain, image="img", label="kind")
    (plain / "classnames.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match=r"row 0 of .* 0 \.\.\. 1; got 2"):
        make_source("labelled", "test", path=plain, **columns)
    (plain / "other").mkdir()
    (plain / "other" / "test.parquet").touch()
    with pytest.raises(ValueError, match=r"in .*/data, .*/other: take one as path"):
        make_source("labelled", "test", path=plain)


def test_a_folder_of_no_form_or_split_says_what_was_looked_for(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        make_source("labelled", "test", path=tmp_path / "none")
    write_folders(tmp_path, "train")
    with pytest.raises(ValueError, match=r"no test/\*\.tar, test-\*\.parquet, .*folders: train"):
        make_source("labelled", "test", path=tmp_path)
    assert len(make_source("labelled", "train", path=tmp_path)) == 4
