import numpy as np

from vlc_jax.evaluators import groups
from vlc_jax.input_pipeline.benchmarks import Average, Benchmark


def decide(labels, credit, chance=0.5):
    number = len(labels)
    return groups.Decisions(
        labels, np.array(credit, float), np.full(number, chance), np.zeros(number, bool)
    )


def test_groups_are_split_and_examples_without_group_left_out():
    labels = ["b", "a", None, "b", ["x", 1]]
    credit, chance = np.array([1.0, 0, 1, 0, 1]), np.array([0.5, 0.25, 0.5, 0.5, 0.2])
    decisions = groups.Decisions(labels, credit, chance, np.zeros(5, bool))
    found = groups.metrics("accuracy", decisions, Benchmark("b", [], "1"))
    assert found.pop("accuracy").count == 5
    assert {name: (e.value, e.count) for name, e in found.items()} == {
        "accuracy/a": (0.0, 1),
        "accuracy/b": (0.5, 2),
        'accuracy/["x", 1]': (1.0, 1),
        "accuracy_macro": (0.5, 4),
    }
    assert found["accuracy/a"].chance == 0.25
    one = groups.Decisions([None], np.ones(1), np.ones(1), np.zeros(1, bool))
    assert set(groups.metrics("accuracy", one, Benchmark("b", [], "1"))) == {"accuracy"}


def test_several_kinds_of_groups_and_their_means():
    labels = [
        {"axis": "a", "type": "x"},
        {"axis": "a", "type": "x"},
        {"axis": "a", "type": "y"},
        {"axis": "b", "type": "z"},
        {"axis": "b", "type": "dropped"},
    ]
    averages = {
        "nested": Average(by=("axis", "type"), drop=frozenset({"dropped"})),
        "floor": Average(by=("type",), floor=2),
        "none": Average(by=("type",), floor=9),
    }
    benchmark = Benchmark("b", [], "1", averages=averages)
    found = groups.metrics("accuracy", decide(labels, [1, 0, 1, 0, 1]), benchmark)
    assert {name: e.value for name, e in found.items()} == {
        "accuracy": 3 / 5,
        "accuracy/axis=a": 2 / 3,
        "accuracy/axis=b": 1 / 2,
        "accuracy/type=x": 1 / 2,
        "accuracy/type=y": 1.0,
        "accuracy/type=z": 0.0,
        "accuracy/type=dropped": 1.0,
        "accuracy_nested": ((1 / 2 + 1) / 2 + 0) / 2,
        "accuracy_floor": 1 / 2,
    }
    assert found["accuracy_nested"].count == 4
    assert found["accuracy_nested"].low < found["accuracy_nested"].value


def test_a_group_that_counts_as_one_is_right_if_all_its_cases_are():
    kinds = [("A", "s1", "p1"), ("A", "s1", "p1"), ("A", "s1", "p2"), ("A", "s1", "p2")]
    kinds += [("B", "s2", "p3"), ("B", "s2", "p3"), ("B", "s2", "p4"), ("B", "s2", "p4")]
    labels = [dict(zip(("subset", "set", "pair"), kind, strict=True)) for kind in kinds]
    averages = {"macro": Average(by=("subset",))}
    benchmark = Benchmark("b", [], "1", averages=averages, together=("pair", "set"))
    decisions = decide(labels, [1, 1, 1, 1, 1, 0, 1, 1], chance=1 / 4)
    found = groups.metrics("accuracy", decisions, benchmark)
    found |= groups.together(decisions, benchmark)
    assert {name: (e.value, e.chance, e.count) for name, e in found.items()} == {
        "accuracy": (7 / 8, 1 / 4, 8),
        "accuracy/subset=A": (1.0, 1 / 4, 4),
        "accuracy/subset=B": (3 / 4, 1 / 4, 4),
        "accuracy_macro": (7 / 8, 1 / 4, 8),
        "pair_accuracy": (3 / 4, 1 / 16, 4),
        "pair_accuracy/subset=A": (1.0, 1 / 16, 2),
        "pair_accuracy/subset=B": (1 / 2, 1 / 16, 2),
        "pair_accuracy_macro": (3 / 4, 1 / 16, 4),
        "set_accuracy": (1 / 2, 1 / 256, 2),
        "set_accuracy/subset=A": (1.0, 1 / 256, 1),
        "set_accuracy/subset=B": (0.0, 1 / 256, 1),
        "set_accuracy_macro": (1 / 2, 1 / 256, 2),
    }


def test_mean_scores_of_subsets_weigh_them_alike():
    labels = [{"subset": "a"}] * 3 + [{"subset": "b"}]
    benchmark = Benchmark("b", [], "1", averages={"macro": Average(by=("subset",))})
    found = groups.mean_scores("score", np.array([0.1, 0.2, 0.3, 0.6]), labels, benchmark)
    np.testing.assert_allclose(found["score"].value, 0.3)
    np.testing.assert_allclose(found["score_macro"].value, 0.4)
