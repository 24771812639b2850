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
def test_a_cc3m_table_without_header_is_read_in_either_order(folder, line):
    path = folder / "table.tsv"
    path.write_text("".join(line.format(i) + "\n" for i in range(8)))
    source = make_source("cc3m", "train", annotations=path, images=folder / "cc3m")
    assert len(source) == 8
    assert source[0].captions == ['"a" big "one']
    assert source[0].image == folder / "cc3m/train/0.jpg"


ADDRESS = "a cat on a mat\thttp://a.b/c.jpg\n"
OTHERS = {
    ADDRESS: r"row \d of .* holds an address, .*img2dataset --output_format",
    f"caption\turl\n{ADDRESS}": r"row \d of .* holds an address, .*img2dataset --output_format",
    "image\tlabel\tx\n": r"is a table with the columns \['image', 'label', 'x'\]; annotations is",
    "left\tright\n": r"is .*no image file: \['left', 'right'\]; annotations is",
    "title\tfilepath\tneg_caption\n": r"is .*NegCLIP \(vlc-jax prepare negclip\); annotations is",
    "title\tfilepath\n": "holds no rows",
}


def test_tables_without_pairs_of_image_and_caption_are_refused(folder):
    for text, message in OTHERS.items():
        (folder / "table.tsv").write_text(text)
        with pytest.raises((DataError, ValueError), match=message) as caught:
            make_source("cc3m", "train", annotations=folder / "table.tsv", images=folder / "cc3m")
        assert "table.tsv" in str(caught.value)
