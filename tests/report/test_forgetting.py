import re

import pytest

from vlc_jax import evaluators
from vlc_jax.report import forgetting, plot, published


def result(protocol, *counted, **metrics):
    """A result whose metrics have the values, and one number of cases each."""
    counts = dict(zip(metrics, counted, strict=True))
    found = {n: {"value": v, "count": counts[n]} for n, v in metrics.items()}
    shown = evaluators.display(protocol)
    return {"protocol": protocol, "step": 5, "version": "1", "metrics": found, "display": shown}


def run(r1, zero_shot, swap, pair, **more):
    return {
        "my_retrieval": result("retrieval", 9, 9, image_to_text_r1=r1, text_to_image_r1=r1 - 0.1),
        "my_classes": result("zeroshot", 9, accuracy=zero_shot),
        "my_swap": result("choice", 9, accuracy=swap),
        "my_pairs": result("pairs", 9, pair_accuracy=pair),
        "my_probe": result("linear_probe", 9, accuracy=0.5),
    } | more


def named(results):
    return [{n: {"benchmark": n, **one} for n, one in of_run.items()} for of_run in results]


def test_axes_are_mean_changes_of_kept_and_of_compositional_benchmarks():
    runs = [run(0.5, 0.6, 0.5, 0.2), {}, run(0.4, 0.5, 0.7, 0.5)]  # one has not been evaluated
    found = forgetting.measure(named(runs))
    assert found.general == ["my_retrieval", "my_classes"]
    assert found.compositional == ["my_swap", "my_pairs"]
    assert found.runs == {0: (0, 0), 2: pytest.approx((-10, 25))}
    assert (found.models, found.left_out) == ([], [])
    assert "no published checkpoints" in found.sentence


@pytest.mark.parametrize("change", ["no compositional", "other cases", "not a share"])
def test_there_is_no_plot_without_both_axes_in_every_run(change):
    first, second = run(0.5, 0.6, 0.5, 0.2), run(0.4, 0.5, 0.7, 0.5)
    for name in ("my_swap", "my_pairs"):
        if change == "no compositional":
            del second[name]
        elif change == "other cases":
            second[name] |= {"version": "2"}
        else:
            next(iter(second[name]["metrics"].values()))["value"] = 1e308
    assert forgetting.measure(named([first, second])) is None
    assert forgetting.measure(named([first])) is None


def test_grey_points_are_published_models_on_the_same_benchmarks_from_the_same_run():
    def more(imagenet, swap_obj, swap_att, count=245):
        groups = {"accuracy/subset=swap_obj": swap_obj, "accuracy/subset=swap_att": swap_att}
        return {
            "classes": result("zeroshot", 50_000, accuracy=imagenet) | {"reader": "imagenet1k"},
            "sugarcrepe": result("choice", 7511, count, 666, accuracy_macro=0.5, **groups),
        }

    first = run(0.5, 0.6, 0.5, 0.2, **more(0.6, 0.5, 0.7))
    second = run(0.4, 0.5, 0.7, 0.5, **more(0.55, 0.6, 0.8))
    found = forgetting.measure(named([first, second]))
    assert (found.general, found.compositional) == (["classes"], ["sugarcrepe"])
    assert found.runs == {0: (0, 0), 1: pytest.approx((-5, 10))}
    assert found.left_out == ["my_retrieval", "my_classes", "my_swap", "my_pairs"]
    model = published.rows("checkpoints.csv")[0]
    swaps = [float(model[f"sugarcrepe accuracy/swap_{kind}"]) for kind in ("obj", "att")]
    point = float(model["imagenet1k accuracy"]) - 60, sum(swaps) / 2 - 60
    assert found.models[0] == pytest.approx(point)
    assert len(found.models) == 202
    assert re.search(r"Grey: 202 published checkpoints, \d+ of them outside", found.sentence)
    # another number of cases is another benchmark
    others = [run(0.5, 0.6, 0.5, 0.2, **more(0.6, 0.5, 0.7, 9)) for _ in range(2)]
    for one in others:
        del one["sugarcrepe"]["metrics"]["accuracy/subset=swap_att"]
    assert forgetting.measure(named(others)).models == []


def test_picture_names_every_run_and_what_it_gained():
    points = forgetting.Forgetting(
        ["a"], ["b"], {0: (0.0, 0.0), 1: (-10.0, 25.0)}, [(1.0, 2.0)], []
    )
    drawn = forgetting.picture(["clip", "$hn$"], points)
    assert "$hn$ +25.0 compositional, -10.0 retrieval and zero-shot" in drawn.description
    for name in ("clip", "$hn$", f"var(--{plot.run_style(1)[0]})", "var(--muted)"):
        assert name in drawn.svg
    assert set(re.findall(r"var\(--(\w+)\)", drawn.svg)) <= set(plot.THEME)
