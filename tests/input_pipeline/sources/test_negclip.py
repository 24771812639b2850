"""NegCLIP's tables, a miniature and the published one."""

import os
from pathlib import Path

import pytest

from tests.support import miniature
from tests.support.miniature import negclip
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source
from vlc_jax.input_pipeline.sources.negclip import rejoined

DATA = os.environ.get("VLC_BENCHMARK_DATA")


def test_negclip_keeps_hard_captions_and_the_ids_of_hard_images(folder):
    source = negclip(folder)
    assert miniature.ids(source) == [str(row) for row in range(12)]
    assert source[3].captions == ["caption 0 of\npicture 3"]
    assert source[3].negatives == [["picture 3 of caption 0", 'a caption\'s "other" words']]
    assert source[10].hard_images == ["11", "0", "1"]
    assert source[10].meta == {"filepath": "coco/val2014/COCO_val2014_000000000010.jpg"}


def test_negclip_finds_images_by_any_tail_of_their_path(folder):
    expected = negclip(folder)[5].image
    for place in ("coco", "coco/train2014"):
        assert negclip(folder, images=folder / place)[5].image.samefile(expected)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[6, 7, 8]", "[6, 7, 12]", r"row 6 of .*tsv: 'neg_image' .* below 12; got 12"),
        ("[6, 7, 8]", "[6, 7, 8", r"row 6 of .*tsv: 'neg_image' is not a list"),
        ("[6, 7, 8]", "(6, 7, 8)", r"row 6 of .*tsv: 'neg_image' is a list such as .* got"),
        ("[6, 7, 8]", "[" * 50_000, r"row 6 of .*tsv: 'neg_image' is not a list"),
        ("\t[6, 7, 8]", "", r"row 6 of .*tsv .* 4 fields where the header has 5"),
        ("neg_caption", "negatives", r"without the columns \['neg_caption'\]; it has \["),
    ],
    ids=range(6),
)
def test_negclip_says_file_row_and_field_of_what_is_wrong(folder, old, new, message):
    path = folder / "coco/train_neg_clip.tsv"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises((DataError, ValueError), match=message):
        negclip(folder)[5]


@pytest.mark.parametrize(
    ("text", "caption", "joined"),
    [
        ("A hat , a man 's dog .", "A man's hat, a dog.", "A hat, a man's dog."),
        ("it is n't ( a cat ) ?", "a cat (it isn't)?", "it isn't (a cat)?"),
        ("snow - covered house / shed", "snow-covered shed/house", "snow-covered house/shed"),
        ('" a sign " reads stop', 'a stop "reads a sign"', '"a sign" reads stop'),
        ("boys ' school ..", "a boys' school..", "boys' school.."),
        ("white - and - black , too", "black - and - white, too", "white - and - black, too"),
        ("a dog , a cat .", "a cat , a dog .", "a dog , a cat ."),
        ("1 . 5 'green' m", "1 . 5 m 'green'", "1 . 5 'green' m"),
    ],
)
def test_marks_are_joined_unless_the_caption_has_them_detached(text, caption, joined):
    assert rejoined(text, caption) == joined


def test_negclip_as_released_has_the_texts_of_the_file(folder):
    path = folder / "coco/train_neg_clip.tsv"
    path.write_text(path.read_text().replace("picture 3 of caption 0", "picture 3 , caption 0 ."))
    released, joined = negclip(folder, as_released=True), negclip(folder)
    assert released[3].negatives[0][0] == "picture 3 , caption 0 ."
    assert joined[3].negatives[0][0] == "picture 3, caption 0."
    assert joined[3].negative_kinds == released[3].negative_kinds == [["negclip"] * 2]
    assert joined.fingerprint != released.fingerprint


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
    assert not any("\n" in record.captions[0] for record in records)  # eight end with one
    assert records[1].hard_images == ["2789", "967", "966"]
    # as often as the captions, of which 5 do; 5,125 as released
    assert sum(text.endswith(" .") for record in records for text in record.negatives[0]) == 6
    assert records[1].negatives[0][0].startswith("A narrow cooking filled with appliances")
    assert len({record.meta["filepath"] for record in records}) == 4_839
    assert all(record.id not in record.hard_images for record in records)
