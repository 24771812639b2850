"""COCO by Karpathy's split and by its own captions files, with files of hard texts beside them."""

import json

import numpy as np
import pytest

from tests.support import miniature
from tests.support.miniature import coco
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source


def test_karpathys_splits_are_told_apart_and_joined_by_plus(folder):
    sizes = {name: len(coco(folder, name)) for name in miniature.KARPATHY}
    assert sizes == miniature.KARPATHY
    both = coco(folder, "train+restval")
    assert miniature.ids(both) == miniature.ids(coco(folder, "train")) + miniature.ids(
        coco(folder, "restval")
    )
    assert len(coco(folder, "all")) == sum(miniature.KARPATHY.values())
    assert miniature.ids(coco(folder, "train", train_split="train+restval")) == miniature.ids(both)
    assert len(coco(folder, "val", train_split="train+restval")) == miniature.KARPATHY["val"]


def test_a_coco_record_has_all_captions_its_id_and_its_split(folder):
    record = coco(folder, "restval")[0]
    assert record.id == "8"
    assert record.captions == miniature.captions(8)
    assert record.meta == {"image": "val2014/COCO_val2014_000000000008.jpg", "split": "restval"}


@pytest.mark.parametrize("part", ["train2017", "val2017"])
def test_official_captions_are_one_split_with_karpathys_ids(folder, part):
    path = folder / f"coco/annotations/captions_{part}.json"
    source = coco(folder, part[:-4], annotations=path)
    number = int(source[1].id)
    assert source[1].image == folder / f"coco/{part}/{number:012d}.jpg"
    assert source[1].captions == miniature.captions(number)
    assert miniature.ids(coco(folder, "all", annotations=path)) == miniature.ids(source)
    other = {"train2017": "val", "val2017": "train"}[part]
    with pytest.raises(ValueError, match=f"no row of split '{other}'; splits: {part[:-4]} "):
        coco(folder, other, annotations=path)


def test_coco_images_are_found_in_their_folders_or_a_flat_one(folder):
    path = folder / "captions_train2014.json"
    path.write_text(json.dumps(miniature.coco_captions("train2014", [*range(8)])))
    below = coco(folder, "train", annotations=path)
    flat = coco(folder, "train", annotations=path, images=folder / "coco/train2014")
    assert miniature.ids(below) == miniature.ids(flat) == miniature.ids(coco(folder, "train"))
    assert below[3].image.samefile(flat[3].image)


def test_a_missing_coco_folder_is_noticed_beside_the_other(folder):
    for number in range(8, 11):
        (folder / f"coco/val2014/COCO_val2014_{number:012d}.jpg").unlink()
    assert len(coco(folder, "train+restval")) == 12  # single images are left to the loader
    for path in (folder / "coco/val2014").iterdir():
        path.unlink()
    with pytest.raises(
        DataError,
        match=r"none of 9 image files looked at in .*coco/val2014 is there; .*looked for as "
        r".*coco/val2014/COCO_val2014_000000000008.jpg or .*coco/COCO_val.*; set images",
    ):
        coco(folder, "all")


def test_an_unknown_split_lists_the_known_with_their_counts(folder):
    counts = r"splits: train \(8\), restval \(4\), val \(3\), test \(2\); 'all' takes every row"
    with pytest.raises(ValueError, match=rf"no row of split 'dev'; {counts}"):
        coco(folder, "dev")
    with pytest.raises(ValueError, match="no row of split 'restvall'; splits"):
        coco(folder, "train+restvall")


def captions_file(folder):
    return folder / "coco/annotations/captions_train2017.json"


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    return path


def official(folder, split="train", annotations=None, **options):
    path = annotations or captions_file(folder)
    return make_source("coco", split, annotations=path, images=folder / "coco", **options)


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
    source = official(folder, positives={"replace": replace, "swap": swap, "else": None})
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
    assert official(folder, positives={"replace": replace, "swap": swap}).fingerprint != before


def test_files_joined_by_plus_are_drawn_equally_often(folder):
    captions = annotation_captions(folder)
    verbs = write_lines(folder / "verbs.jsonl", [f"verb {text}" for text in captions])
    lines = [f"place {text}" if "caption 2" in text else "None" for text in captions]
    places = write_lines(folder / "places.jsonl", lines)
    source = official(folder, positives={"replace": f"{verbs}+{places}"})
    assert {str(verbs), str(places)} < {*source.digests}
    texts = sampling.make_hard_texts("positives", count=1, generators={"replace": 1.0})
    drawn = []
    for index in range(len(source)):
        record = source[index]
        for caption, of, kinds in zip(
            record.captions, record.positives, record.positive_kinds, strict=True
        ):
            rng = np.random.default_rng(index)
            one = [sampling.draw(texts, caption, of, kinds, rng, None)[0] for _ in range(60)]
            if "caption 2" in caption:
                drawn += one
            else:
                assert {*one} == {f"verb {caption}"}
    share = np.mean([text.startswith("place") for text in drawn])
    assert abs(share - 0.5) < 3 * 0.5 / len(drawn) ** 0.5


@pytest.mark.parametrize("side", ["negatives", "positives"])
def test_a_file_without_a_text_for_each_caption_is_refused(folder, side):
    rows = ['"text"'] * len(annotation_captions(folder))
    count = f"{len(rows)} captions"
    for lines, message in (
        *(([blank], f"hp.jsonl is empty; a row for each of {count}") for blank in ("", " ", "\n")),
        (rows[1:], f"hp.jsonl has {len(rows) - 1} rows, but there are {count}"),
        ([*rows, '"text"'], f"hp.jsonl has {len(rows) + 1} rows, but there are {count}"),
        *(([*rows[:2], line, *rows[3:]], f"row 3 of .*hp.jsonl{what}") for line, what in (
            ('"torn', " is not JSON"),
            ("", " is not JSON"),
            ("null", ": a row is a JSON string; got None"),
            ('["text"]', r": a row is a JSON string; got \['text'\]"),
        )),
    ):  # fmt: skip
        (folder / "hp.jsonl").write_text("\n".join(lines) + "\n")
        with pytest.raises(DataError, match=message):
            official(folder, **{side: {"swap": folder / "hp.jsonl"}})


def test_aligned_files_belong_to_training_on_cocos_own_captions(folder):
    path = write_lines(folder / "hp.jsonl", ["text"])
    annotations = folder / "coco/annotations/captions_val2017.json"
    source = official(folder, "val", annotations, positives={"swap": path})
    assert source[0].positives == []
    with pytest.raises(ValueError, match="Karpathy's split, whose captions have no order"):
        official(folder, "train", folder / "coco/dataset_coco.json", positives={"swap": path})
    with pytest.raises(ValueError, match=r"no file .*absent"):
        official(folder, positives={"swap": folder / "absent"})
