"""CREPE's tables: regions with their hard negatives, and what is said of wrong tables."""

import numpy as np
import pytest
from PIL import Image

from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source

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
    inside, beyond = (image_ops.decode(source[index].image) for index in (0, 1))
    assert inside.shape == (10, 10, 3)
    assert abs(int(inside.mean()) - 30) < 3
    assert beyond.shape == (20, 20, 3)
    assert beyond[10:].max() == beyond[:, 10:].max() == 0
    assert abs(int(beyond[:10, :10].mean()) - 200) < 3
    assert source.find(source[1].id).captions == ["b"]
    whole = crepe(tmp_path, "image_id,caption,valid_hard_negs_atom\n7,a,['b']\n",
                  negatives="valid_hard_negs_atom")[0]  # fmt: skip
    assert whole.negatives == [["b"]]
    assert image_ops.decode(whole.image).shape == (20, 30, 3)


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
