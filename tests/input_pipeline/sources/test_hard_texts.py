"""Files of hard negatives and positives: whose they are, and what is said of wrong ones."""

import json

import numpy as np
import pytest
from PIL import Image

from input_pipeline import image as images
from input_pipeline import make_source
from input_pipeline.record import DataError
from tests.support import helpers, miniature


@pytest.fixture
def folder(tmp_path):
    miniature.write_coco(tmp_path)
    return tmp_path


def captions_file(folder):
    return folder / "annotations" / "captions_train2017.json"


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    return path


def coco(folder, split="train", annotations=None, **options):
    path = annotations or captions_file(folder)
    return make_source("coco", split, annotations=path, images=folder, **options)


def annotation_captions(folder):
    """In the file's order, which is shuffled here so that it is not the order of images."""
    path = captions_file(folder)
    document = json.loads(path.read_text())
    order = np.random.default_rng(0).permutation(len(document["annotations"]))
    document["annotations"] = [document["annotations"][index] for index in order]
    path.write_text(json.dumps(document))
    return [annotation["caption"] for annotation in document["annotations"]]


def test_line_k_belongs_to_annotation_k_and_none_is_no_text(folder):
    captions = annotation_captions(folder)
    replace = write_lines(
        folder / "replace_hp.jsonl", [f"other \u2028 {text}" for text in captions]
    )
    lines = [f"swapped {text}" if "caption 2" in text else "None" for text in captions]
    swap = write_lines(folder / "swap_hp.jsonl", lines)
    source = coco(folder, positives={"replace": replace, "swap": swap, "else": None})
    seen = 0
    for index in range(len(source)):
        record = source[index]
        assert record.negatives == []
        for text, texts, kinds in zip(
            record.captions, record.positives, record.positive_kinds, strict=True
        ):
            expected = {"replace": f"other \u2028 {text}"}
            if "caption 2" in text:
                expected["swap"] = f"swapped {text}"
            assert dict(zip(kinds, texts, strict=True)) == expected
            seen += 1
    assert seen == len(captions)
    assert {*source.digests} == {str(captions_file(folder)), str(replace), str(swap)}
    before = source.fingerprint
    write_lines(swap, ["None"] * len(captions))
    assert coco(folder, positives={"replace": replace, "swap": swap}).fingerprint != before


@pytest.mark.parametrize("content", ["", "\n", " \n\n"])
def test_an_empty_file_is_called_empty(folder, content):
    (folder / "hp.jsonl").write_text(content)
    with pytest.raises(DataError, match=r"hp.jsonl is empty; a row for each of \d+ captions"):
        coco(folder, positives={"swap": folder / "hp.jsonl"})


def test_a_file_of_another_length_trains_nothing(folder):
    count = len(annotation_captions(folder))
    for wrong in (count - 1, count + 1):
        path = write_lines(folder / "hp.jsonl", ["text"] * wrong)
        message = rf"hp.jsonl has {wrong} rows, but there are {count} captions"
        with pytest.raises(DataError, match=message):
            coco(folder, negatives={"crepe_swap": path})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('"torn', r"row 3 of .*hp.jsonl is not JSON"),
        ("", r"row 3 of .*hp.jsonl is not JSON"),
        ("null", r"row 3 of .*hp.jsonl: a row is a JSON string; got None"),
        ('["text"]', r"row 3 of .*: a row is a JSON string; got \['text'\]"),
    ],
)
def test_a_line_that_is_no_json_string_is_named(folder, line, message):
    lines = ['"text"'] * len(annotation_captions(folder))
    lines[2] = line
    (folder / "hp.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=message):
        coco(folder, positives={"swap": folder / "hp.jsonl"})


def test_aligned_files_belong_to_training_and_to_cocos_own_captions(folder):
    path = write_lines(folder / "hp.jsonl", ["text"])
    annotations = folder / "annotations" / "captions_val2017.json"
    source = coco(folder, "val", annotations, positives={"swap": path})
    assert source[0].positives == []
    with pytest.raises(ValueError, match="Karpathy's split, whose captions have no order"):
        coco(folder, "train", folder / "dataset_coco.json", positives={"swap": path})
    with pytest.raises(ValueError, match=r"no file .*absent"):
        coco(folder, positives={"swap": folder / "absent"})


def records(tmp_path, row, **options):
    helpers.write_photos(tmp_path, 1)
    write_lines(tmp_path / "t.jsonl", [{"image": "photo_0.jpg"} | row])
    return make_source("records", "train", path=tmp_path / "t.jsonl", **options)[0]


@pytest.mark.parametrize(
    ("negatives", "kinds", "expected"),
    [
        (["x", " ", "y"], ["a", "b", "c"], ([["x", "y"]] * 2, [["a", "c"]] * 2)),
        (["x", "y"], "a", ([["x", "y"]] * 2, [["a", "a"]] * 2)),
        ([["x", ""], []], [["a", "b"], []], ([["x"], []], [["a"], []])),
        (["x"], None, ([["x"]] * 2, [])),
    ],
)
def test_kinds_of_a_table_follow_their_texts(tmp_path, negatives, kinds, expected):
    row = {"caption": ["one", "two"], "not": negatives, "kind": kinds}
    record = records(tmp_path, row, negatives_column="not", negative_kinds_column="kind")
    assert (record.negatives, record.negative_kinds) == expected


@pytest.mark.parametrize("kinds", [["a"], [["a"], ["b"]], 3])
def test_kinds_of_another_shape_are_damage(tmp_path, kinds):
    row = {"caption": "one", "yes": ["x", "y"], "kind": kinds}
    with pytest.raises(DataError, match=r"row 1 of .*t\.jsonl: 'kind'"):
        records(tmp_path, row, positives_column="yes", positive_kinds_column="kind")


CREPE = (
    'image_id,caption,hard_negs,x,y,width,height\n7,"a dog, near","[\'a cat, near\', ""it\'s""]",'
)


def crepe(folder, table, **options):
    for part, number, level in (("VG_100K", 7, 10), ("VG_100K_2", 8, 200)):
        (folder / part).mkdir(exist_ok=True)
        pixels = np.full((20, 30, 3), level, np.uint8)
        pixels[5:15, 10:20] = level + 20
        Image.fromarray(pixels).save(folder / part / f"{number}.jpg", quality=100)
    (folder / "crepe.csv").write_text(table)
    return make_source("crepe", "train", annotations=folder / "crepe.csv", images=folder, **options)


def test_a_crepe_record_is_a_region_with_its_hard_negatives(tmp_path):
    source = crepe(tmp_path, CREPE + "10,5,10,10\n8,b,[],20,10,20,20\n")
    assert source[0].captions == ["a dog, near"]
    assert source[0].negatives == [["a cat, near", "it's"]]
    inside, beyond = (images.decode(source[index].image) for index in (0, 1))
    assert inside.shape == (10, 10, 3)
    assert abs(int(inside.mean()) - 30) < 3
    assert beyond.shape == (20, 20, 3)
    assert beyond[10:].max() == beyond[:, 10:].max() == 0
    assert abs(int(beyond[:10, :10].mean()) - 200) < 3
    assert source.find(source[1].id).captions == ["b"]
    whole = crepe(tmp_path, "image_id,caption,valid_hard_negs_atom\n7,a,['b']\n",
                  negatives="valid_hard_negs_atom")[0]  # fmt: skip
    assert whole.negatives == [["b"]]
    assert images.decode(whole.image).shape == (20, 30, 3)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (CREPE + "1,1,0,4\n", DataError, "row 1 of .*crepe.csv: 'width' is a number of pixels"),
        (CREPE + "a,1,4,4\n", DataError, "row 1 of .*crepe.csv: 'x' is a number; got 'a'"),
        (CREPE.replace('""]"', '""') + '",1,1,4,4\n', DataError, "'hard_negs' is not a list"),
        (CREPE + "1,1,4\n", DataError, "row 1 of .*crepe.csv .* 6 fields"),
        ("image_id,caption,negs\n1,a,b\n", ValueError, r"without the columns \['hard_negs'\]"),
        ("image_id,caption,hard_negs,x\n1,a,[],1\n", ValueError, r"\['y', 'width', 'height'\]"),
        ("image_id,caption,hard_negs\n", DataError, "holds no rows"),
    ],
)
def test_wrong_crepe_tables_name_file_row_and_field(tmp_path, table, error, message):
    with pytest.raises(error, match=message):
        crepe(tmp_path, table)[0]


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
