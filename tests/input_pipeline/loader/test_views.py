"""Crops and masked patches of training images, as rows of a batch."""

import numpy as np

from tests.support.numbered import Numbered, assert_equal, joined, take
from vlc_jax.input_pipeline import batch as contract
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader.views import Views
from vlc_jax.input_pipeline.record import Record

CROP = ImageTransform(8, "random_resized", scale=(0.25, 0.5), interpolation="bilinear")
VIEWS = Views(CROP, crops=3, patches=25, masked=12)


class Ramps(Numbered):
    """Images whose pixels are their place: row in red, column in green, number in blue."""

    def __getitem__(self, index):
        row, column = np.mgrid[:40, :40]
        pixels = np.stack([6 * row, 6 * column, np.full((40, 40), index)], axis=2)
        return Record(f"r{index}", pixels.astype(np.uint8), [f"n{index} first", f"n{index} second"])


def batches(count=3, views=VIEWS, **options):
    return take(count, Ramps(), transform=ImageTransform(40, "none"), views=views, **options)


def test_a_batch_has_crops_with_their_share_of_the_area():
    sides = []
    for batch in batches():
        contract.check(batch)
        assert {key: batch[key].shape[1:] for key in ("crops", "masked_patches")} == {
            key: shape for key, (shape, _) in VIEWS.shapes.items()
        }
        crops = batch["crops"].astype(int)
        assert (crops[..., 2] == batch["image"][:, None, :1, :1, 2]).all()
        sides += [np.ptp(crops[..., axis], axis=(2, 3)) / 6 / 40 for axis in (0, 1)]
    areas = np.concatenate([a * b for a, b in zip(sides[::2], sides[1::2], strict=True)])
    # the outermost pixels of a crop are half a pixel of eight inside it: 7/8 of each side
    assert 0.6 * 0.25 < areas.min() < 0.25
    assert 0.28 < areas.max() < 0.5
    assert len(np.unique(areas.round(6))) > 50


def test_masked_patches_are_drawn_anew_for_each_image():
    rows = np.concatenate([batch["masked_patches"] for batch in batches()])
    assert (np.diff(rows, axis=1) > 0).all()
    assert rows.min() == 0
    assert rows.max() == 24
    assert len({tuple(row) for row in rows}) == len(rows)
    shares = np.bincount(rows.ravel(), minlength=25) / len(rows)
    assert shares.min() > 0.1
    assert shares.max() < 0.9


def test_views_are_those_of_an_unbroken_run_on_any_host():
    whole = batches()
    assert_equal(batches(1, start_step=2), whole[2:])
    halves = [batches(process_index=host, process_count=2) for host in (0, 1)]
    assert_equal(joined(halves), whole)
    without = batches(views=None)
    assert_equal([{key: batch[key] for key in without[0]} for batch in whole], without)
    # the masks are drawn first: without crops they are the same
    masks = batches(views=Views(CROP, patches=25, masked=12))
    assert "crops" not in masks[0]
    assert_equal([{**b, "crops": a["crops"]} for a, b in zip(whole, masks, strict=True)], whole)
