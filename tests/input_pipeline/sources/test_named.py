"""Each dataset's own files, shrunken, give its records; another dataset's are refused by name."""

import json
import os
import pickle
from pathlib import Path

import pytest

from input_pipeline import image as images
from input_pipeline import make_source
from input_pipeline.record import DataError
from tests.support import miniature


@pytest.fixture
def folder(tmp_path):
    miniature.write(tmp_path)
    return tmp_path


def coco(folder, split, **options):
    given = {"annotations": folder / "coco/dataset_coco.json", "images": folder / "coco"}
    return make_source("coco", split, **(given | options))


def ids(source):
    return [source[index].id for index in range(len(source))]


def every_source(folder):
    flickr30k = folder / "flickr30k"
    return {
        "coco": coco(folder, "train"),
        "flickr30k": make_source(
            "flickr30k",
            "train",
            annotations=flickr30k / "dataset_flickr30k.json",
            images=flickr30k / "flickr30k-images",
        ),
        "negclip": negclip(folder),
        "cc3m": make_source(
            "cc3m", "train", annotations=folder / "cc3m/train.tsv", images=folder / "cc3m"
        ),
        "llava": llava(folder),
    }


def negclip(folder, **options):
    given = {"annotations": folder / "coco/train_neg_clip.tsv", "images": folder}
    return make_source("negclip", "train", **(given | options))


def llava(folder, **options):
    path = folder / "llava/llava_instruct_150k.json"
    given = {"annotations": path, "images": folder / "coco/train2017"}
    return make_source("llava", "train", **(given | options))


def test_every_record_of_every_dataset_has_its_own_image_and_pickles(folder):
    for name, source in every_source(folder).items():
        again = pickle.loads(pickle.dumps(source))
        for index in range(len(source)):
            record = source[index]
            number = int(record.captions[0].split()[-1])
            pixels = images.decode(record.image)
            assert abs(int(pixels[0, 0, 0]) - 10 * number) < 12, (name, index)
            assert again[index] == record


def test_karpathys_splits_are_told_apart_and_joined_by_plus(folder):
    sizes = {name: len(coco(folder, name)) for name in miniature.KARPATHY}
    assert sizes == miniature.KARPATHY
    both = coco(folder, "train+restval")
    assert ids(both) == ids(coco(folder, "train")) + ids(coco(folder, "restval"))
    assert len(coco(folder, "all")) == sum(miniature.KARPATHY.values())
    assert ids(coco(folder, "train", train_split="train+restval")) == ids(both)
    assert len(coco(folder, "val", train_split="train+restval")) == miniature.KARPATHY["val"]


def test_a_coco_record_carries_all_captions_cocos_id_and_where_it_comes_from(folder):
    record = coco(folder, "restval")[0]
    assert record.id == "8"
    assert record.captions == miniature.captions(8)
    assert record.meta == {"image": "val2014/COCO_val2014_000000000008.jpg", "split": "restval"}


@pytest.mark.parametrize("part", ["train2017", "val2017"])
def test_the_official_captions_are_one_split_and_have_the_ids_of_karpathys(folder, part):
    path = folder / f"coco/annotations/captions_{part}.json"
    source = coco(folder, part[:-4], annotations=path)
    number = int(source[1].id)
    assert source[1].image == folder / f"coco/{part}/{number:012d}.jpg"
    assert source[1].captions == miniature.captions(number)
    assert ids(coco(folder, "all", annotations=path)) == ids(source)
    other = {"train2017": "val", "val2017": "train"}[part]
    with pytest.raises(ValueError, match=f"no row of split '{other}'; splits: {part[:-4]} "):
        coco(folder, other, annotations=path)


def test_coco_images_are_found_in_their_folders_or_in_one_flat_one(folder):
    path = folder / "captions_train2014.json"
    path.write_text(json.dumps(miniature.coco_captions("train2014", [*range(8)])))
    below = coco(folder, "train", annotations=path)
    flat = coco(folder, "train", annotations=path, images=folder / "coco/train2014")
    assert ids(below) == ids(flat) == ids(coco(folder, "train"))
    assert below[3].image.samefile(flat[3].image)


def test_a_missing_coco_folder_is_noticed_though_the_other_is_there(folder):
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


def test_a_split_that_is_not_there_lists_those_that_are_with_their_counts(folder):
    counts = r"splits: train \(8\), restval \(4\), val \(3\), test \(2\); 'all' takes every row"
    with pytest.raises(ValueError, match=rf"no row of split 'dev'; {counts}"):
        coco(folder, "dev")
    with pytest.raises(ValueError, match="no row of split 'restvall'; splits"):
        coco(folder, "train+restvall")


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


def test_negclip_keeps_hard_captions_and_the_ids_of_hard_images(folder):
    source = negclip(folder)
    assert ids(source) == [str(row) for row in range(12)]
    assert source[3].captions == ["caption 0 of\npicture 3"]
    assert source[3].negatives == [["picture 3 of caption 0", 'a caption\'s "other" words']]
    assert source[10].hard_images == ["11", "0", "1"]
    assert source[10].meta == {"filepath": "coco/val2014/COCO_val2014_000000000010.jpg"}


def test_negclip_finds_images_by_any_tail_of_their_path(folder):
    expected = negclip(folder)[5].image
    for place in ("coco", "coco/train2014"):
        assert negclip(folder, images=folder / place)[5].image.samefile(expected)


def test_negclip_says_file_row_and_field_of_what_is_wrong(folder):
    path = folder / "coco/train_neg_clip.tsv"
    text = path.read_text()
    path.write_text(text.replace("[6, 7, 8]", "[6, 7, 12]"))
    with pytest.raises(DataError, match=r"row 6 of .*tsv: 'neg_image' .* below 12; got 12"):
        negclip(folder)[5]
    path.write_text(text.replace("[6, 7, 8]", "[6, 7, 8"))
    with pytest.raises(DataError, match=r"row 6 of .*tsv: 'neg_image' is not a list"):
        negclip(folder)[5]
    path.write_text(text.replace("[6, 7, 8]", "(6, 7, 8)"))
    with pytest.raises(DataError, match=r"row 6 of .*tsv: 'neg_image' is a list such as .* got"):
        negclip(folder)[5]
    path.write_text(text.replace("[6, 7, 8]", "[" * 50_000))
    with pytest.raises(DataError, match=r"row 6 of .*tsv: 'neg_image' is not a list"):
        negclip(folder)[5]
    path.write_text(text.replace("\t[6, 7, 8]", ""))
    with pytest.raises(DataError, match=r"row 6 of .*tsv .* 4 fields where the header has 5"):
        negclip(folder)[5]
    path.write_text(text.replace("neg_caption", "negatives"))
    with pytest.raises(ValueError, match=r"without the columns \['neg_caption'\]; it has \["):
        negclip(folder)


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
@pytest.mark.parametrize(
    "header", [["title", "filepath"], ["file", "caption"], ["id", "image", "text"]]
)
def test_a_cc3m_table_is_read_by_its_header_whatever_its_suffix(folder, suffix, header):
    values = {"title": 'a ""big"" one', "filepath": "train/{}.jpg", "id": "{}"}
    values |= {"caption": values["title"], "file": values["filepath"]}
    values |= {"text": values["title"], "image": values["filepath"]}
    lines = ["\t".join(f'"{values[name]}"'.format(i) for name in header) for i in range(8)]
    path = folder / f"table{suffix}"
    path.write_text("\n".join(["\t".join(header), *lines]))
    source = make_source("cc3m", "train", annotations=path, images=folder / "cc3m")
    assert len(source) == 8
    assert source[6].captions == ['a "big" one']
    assert source[6].image == folder / "cc3m/train/6.jpg"


@pytest.mark.parametrize("line", ['train/{}.jpg\t"a" big "one', '"a" big "one\ttrain/{}.jpg'])
def test_a_cc3m_table_without_header_is_read_in_either_order_and_keeps_quotes(folder, line):
    path = folder / "table.tsv"
    path.write_text("".join(line.format(i) + "\n" for i in range(8)))
    source = make_source("cc3m", "train", annotations=path, images=folder / "cc3m")
    assert len(source) == 8
    assert source[0].captions == ['"a" big "one']
    assert source[0].image == folder / "cc3m/train/0.jpg"


def test_cc3ms_published_tables_of_addresses_are_refused_with_what_to_do(folder):
    path = folder / "Train_GCC-training.tsv"
    line = "a cat on a mat\thttp://a.b/c.jpg\n"
    for text in (line, "caption\turl\n" + line):
        path.write_text(text)
        with pytest.raises(
            ValueError, match=r"row \d of .* holds an address, .*img2dataset --output_format"
        ):
            make_source("cc3m", "train", annotations=path, images=folder / "cc3m")


def test_tables_that_are_not_pairs_of_image_and_caption_are_refused(folder):
    path = folder / "table.tsv"
    for text, found in (
        ("image\tlabel\tx\n", r"a table with the columns \['image', 'label', 'x'\]"),
        ("left\tright\n", r"no image file: \['left', 'right'\]"),
        ("title\tfilepath\tneg_caption\n", r"NegCLIP \(input_pipeline\.prepare negclip\)"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=rf"table\.tsv is .*{found}; annotations is"):
            make_source("cc3m", "train", annotations=path, images=folder / "cc3m")
    path.write_text("title\tfilepath\n")
    with pytest.raises(DataError, match="holds no rows"):
        make_source("cc3m", "train", annotations=path, images=folder / "cc3m")


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


def test_a_file_that_is_cut_short_is_damaged_data(folder):
    for source, name in (
        ("coco", "coco/dataset_coco.json"),
        ("llava", "llava/llava_instruct_150k.json"),
    ):
        path = folder / name
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(DataError, match=r"json is not JSON: .* cut short"):
            make_source(source, "train", annotations=path, images=folder / "coco")


def test_an_undivided_file_is_not_another_split(folder):
    for name, path in (("negclip", "coco/train_neg_clip.tsv"), ("cc3m", "cc3m/train.tsv")):
        with pytest.raises(ValueError, match=r"split 'validation' .* is not divided; take 'train'"):
            make_source(name, "validation", annotations=folder / path, images=folder)


def test_fingerprints_follow_the_file_and_the_split(folder):
    found = {source.fingerprint for source in every_source(folder).values()}
    found |= {coco(folder, split).fingerprint for split in ("val", "test", "train+restval")}
    assert len(found) == 8
    assert coco(folder, "train").fingerprint in found
    path = folder / "coco/dataset_coco.json"
    path.write_text(path.read_text().replace("picture 2", "photo 2"))
    assert coco(folder, "train").fingerprint not in found


DATA = os.environ.get("VLC_BENCHMARK_DATA")


@pytest.mark.skipif(not DATA, reason="VLC_BENCHMARK_DATA names no folder of annotation files")
def test_the_published_negclip_table_is_read_to_the_last_row(tmp_path):
    """Figures counted in the file once, with another CSV reader."""
    path = Path(DATA) / "neg_clip/valid_neg_clip.tsv"
    (tmp_path / "COCO_val2014_000000184613.jpg").write_bytes(miniature.picture(1))
    source = make_source("negclip", "all", annotations=path, images=tmp_path)
    records = [source[index] for index in range(len(source))]
    assert len(records) == 4_839
    assert sum(len(record.negatives[0]) for record in records) == 7_370
    assert {len(record.hard_images) for record in records} == {3}
    assert sum("\n" in record.captions[0] for record in records) == 8
    assert records[1].hard_images == ["2789", "967", "966"]
    assert records[1].negatives[0][0].startswith("A narrow cooking filled with appliances")
    assert len({record.meta["filepath"] for record in records}) == 4_839
    assert all(record.id not in record.hard_images for record in records)


@pytest.mark.skipif(not DATA, reason="VLC_BENCHMARK_DATA names no folder of annotation files")
@pytest.mark.parametrize("name", ["coco", "flickr30k", "llava"])
def test_published_files_of_other_kinds_are_refused(tmp_path, name):
    for file in (
        "sugar_crepe/swap_obj.json",
        "hard_positives/data/vl_checklist_attributes.json",
        "vl_checklist_vg/attribute_action.json",
        "aro/aro_symmetric_relations.json",
        "neg_clip/valid_neg_clip.tsv",
        "mmvp_converted/Questions-llava.csv",
        "t2v_metrics/cococounterfactuals.jsonl",
    ):
        with pytest.raises((ValueError, DataError), match=Path(file).name):
            make_source(name, "all", annotations=Path(DATA) / file, images=tmp_path)
