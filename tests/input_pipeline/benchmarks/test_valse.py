"""VALSE: cases that annotators found valid, images by data set, means, real counts."""

from vlc_jax.input_pipeline.benchmarks import valse


def test_cases_that_annotators_did_not_find_valid_are_left_out(root):
    assert len(valse.valse(root).cases) == 2 * 11
    everything = valse.valse(root, validated=False)
    assert len(everything.cases) == 3 * 11
    assert everything.cases[2].captions == ("A cook stirs the soup 1.", "The soup stirs a cook 1.")


def test_an_image_is_where_its_data_set_is(root):
    cases = valse.valse(root).cases
    assert {case.meta["record"].rsplit("/", 1)[0] for case in cases} == {
        "coco/train2014",
        "coco/val2014",
        "coco/val2017",
        "swig",
        "visdial/VisualDialog_val2018",
        "visual7w/images",
    }


def test_pieces_of_one_phenomenon_are_one_in_its_mean(root):
    groups = {case.group["subset"]: case.group["phenomenon"] for case in valse.valse(root).cases}
    assert sum(phenomenon == "counting" for phenomenon in groups.values()) == 3


def test_the_real_files_have_the_published_counts(real_data):
    benchmark = valse.valse(real_data)
    assert benchmark.notes == ()
    assert len(benchmark.cases) == sum(valse.SUBSETS.values()) == 7_702
    everything = valse.valse(real_data, validated=False).cases
    assert len(everything) == 8_782
    assert sum(case.captions[0] == case.captions[1] for case in everything) == 24
