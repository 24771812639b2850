"""CC3M's tables of downloaded images, in every form; others are refused by what they are."""

import pytest

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source


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
        ("title\tfilepath\tneg_caption\n", r"NegCLIP \(vlc-jax prepare negclip\)"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=rf"table\.tsv is .*{found}; annotations is"):
            make_source("cc3m", "train", annotations=path, images=folder / "cc3m")
    path.write_text("title\tfilepath\n")
    with pytest.raises(DataError, match="holds no rows"):
        make_source("cc3m", "train", annotations=path, images=folder / "cc3m")
