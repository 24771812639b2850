"""mteb's own tasks, run on our encoder, find what our protocols find where both ask the same."""

import json
import os
import subprocess
import sysconfig

import numpy as np
import pytest

pytestmark = pytest.mark.slow

IS_THERE = "import importlib.util, sys; sys.exit(importlib.util.find_spec('mteb') is None)"


@pytest.fixture(scope="module")
def made(there, tmp_path_factory):
    """made(name) -> what mteb_tasks.py has written to name.json."""
    python = os.environ["VLC_PARITY_PYTHON"]
    if subprocess.run([python, "-c", IS_THERE], check=False).returncode:
        pytest.skip("there is no mteb beside VLC_PARITY_PYTHON: run `make parity`")
    out = tmp_path_factory.mktemp("mteb")
    there("mteb_tasks.py", sysconfig.get_path("purelib"), out)
    return lambda name: json.loads((out / f"{name}.json").read_text())


@pytest.mark.parametrize("name", ["AROVisualRelation", "Winoground"])
def test_mteb_compares_the_scores_of_our_model(made, name):
    theirs = np.array(made(f"{name}_predictions")["default"]["test"]).reshape(24, -1)
    scores = np.array(made("ours")[name]["scores"]).reshape(24, -1)
    np.testing.assert_allclose(theirs, scores, atol=1e-5)
    assert scores.std(axis=0).min() > 0.01


def test_aro_is_our_mean_over_cases_and_not_over_relations(made):
    theirs, ours = (made(who)["AROVisualRelation"] for who in ("theirs", "ours"))
    assert theirs["main_score"] == theirs["text_acc"]
    assert theirs["text_acc"] == pytest.approx(ours["first_index"]["accuracy"])
    assert theirs["text_acc"] != pytest.approx(ours["strict"]["accuracy_macro"])


def test_winoground_is_our_text_image_and_group_score(made):
    theirs, ours = (made(who)["Winoground"] for who in ("theirs", "ours"))
    names = {"text_acc": "text_score", "image_acc": "image_score", "accuracy": "group_score"}
    for name, our_name in names.items():
        assert theirs[name] == pytest.approx(ours["first_index"][our_name]), name
    assert min(theirs["text_acc"], theirs["image_acc"]) > 0


def test_the_folder_of_results_is_read_by_mteb(made):
    written, theirs = made("written"), made("theirs")["Winoground"]
    assert written["file"] == f"results/me__clip/{written['revision']}/Winoground.json"
    assert written["content"]["main_score"] == pytest.approx(theirs["main_score"], abs=1e-6)
    assert written["models"] == ["me/clip"]
    assert "Winogrund" in written["unknown"]


def test_mteb_credits_ties(made):
    # every caption scores alike: 100 % by its argmax, 0 by the policy "strict"
    assert made("constant")["AROVisualRelation"]["main_score"] == 1


def test_what_mteb_would_evaluate_wrongly_is_refused(made):
    of_tokens, name = made("errors")
    assert "mteb compares embeddings by cosine" in of_tokens
    assert "organisation/name; got 'clip'" in name
