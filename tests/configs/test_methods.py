"""The records of methods name configs, arguments and published models that are there."""

import importlib

import pytest

from tests.support import helpers
from vlc_jax.configs.common.methods import METHODS, ROWS
from vlc_jax.report import published
from vlc_jax.setup import catalogue
from vlc_jax.tools import list_config

# what a config refuses to be without, and where rows read it
NEEDED = {"svlc": "language_model=f", "svlc_pos": "language_model=f", "dac": "language_model=f"}
EVALUATED = {"eval/all": "sets=scenes", "eval/llava": "sets=mmvp"}
SCENES = [text for method in METHODS.values() for text in method.scenes.values()]
NOT_EVALUATED = ("eval/", "pretrain/", "llava/stage1")  # at the end, by published sets in root
TRAINED = [row for row in ROWS if row.model and not row.config.startswith(NOT_EVALUATED)]


def config_of(text, *more):
    name, _, given = text.partition(":")
    more = [*more, NEEDED.get(name, "") if "data=coco" in text else "", EVALUATED.get(name, "")]
    more += ["path=m"] if name == "eval/llava" else []
    words = [word for word in more if word and word.partition("=")[0] not in given]
    argument = ",".join(filter(None, [given, *words]))
    module = importlib.import_module(f"vlc_jax.configs.{name.replace('/', '.')}")
    return module.get_config(argument)


def test_records_name_configs_and_tests():
    assert len(METHODS) > 40
    for method in METHODS.values():
        assert method.config.partition(":")[0] in catalogue.config_names()
        assert (helpers.ROOT / "tests" / method.compared.rpartition(": ")[2]).is_file()
    runs = [run for method in METHODS.values() for run in method.scenes]
    known = {*runs, "", "clip_mean", "clip_frozen", "llava_stage1", "xvlm_itc"}
    assert len({*runs}) == len(runs)
    assert {name for m in METHODS.values() for name in (m.base, m.control)} <= known


def test_no_two_rows_have_one_run():
    assert len({row.run for row in ROWS}) == len(ROWS)


def test_arguments_are_those_of_the_configs():
    evaluated = [row.config for row in ROWS if row not in TRAINED]
    for text in (*SCENES, *(row.scenes for row in ROWS if row.scenes), *evaluated):
        assert config_of(text).is_locked


@pytest.mark.parametrize("row", TRAINED, ids=lambda row: row.run)
def test_a_row_evaluates_sets_of_its_numbers_at_the_end(row):
    sets = {value.benchmark for value in published.model_values(row.model)}
    evals = config_of(row.config, "weights=w", "path=x.tsv", "root=r").evals
    assert {options.get("reader", name) for name, options in evals.items()} & sets
    assert {options.root for options in evals.values()} == {"r"}
    assert not config_of(row.config, "weights=w", "path=x.tsv").evals


def test_a_config_is_listed_with_its_numbers():
    text = list_config.text("hp_hn")
    assert "replace: original_accuracy_macro 69.0, augmented_accuracy_macro 58.0" in text
    assert "hp_hn:data=coco,hn_weight=0.5: HP+HN, weight .5" in text
    assert "positives from word tables unless given" in text
    assert list_config.text("configs/hp_hn.py:hn_weight=0") == text
    assert "136 numbers by others" in list_config.text("ce_clip")
    assert "Published" not in list_config.text("digits")
    assert list_config.main(["hphn"]) == 2
