import dataclasses
import functools
import json
import zlib

import pytest

from vlc_jax import errors, evaluators
from vlc_jax.input_pipeline import benchmarks
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError


def tiny_benchmark(protocol, cases=2):
    count = {"zeroshot": 0, "multilabel": 0, "retrieval": 1}.get(protocol, 2)
    labelled = [
        Case(
            str(n),
            tuple(f"{n} {k}".encode() for k in range(2 if protocol == "pairs" else 1)),
            tuple(f"{n} {k}" for k in range(count)),
            meta={"positive": f"{n} +", "label": n % 2, "labels": (n % 2,)},
        )
        for n in range(cases)
    ]
    return Benchmark("b", labelled, "v3", ("cat", "dog"), ("a {}",))


@pytest.mark.parametrize("name", benchmarks.READERS)
def test_every_reader_has_a_protocol(name):
    assert benchmarks.protocol_of(name) in evaluators.PROTOCOLS


# Not those of features: a linear probe learns from labels, also which class is most frequent.
OF_FEATURES = {"linear_probe", "conditions", "superposition", "binding"}
OF_CAPTIONS = evaluators.PROTOCOLS.keys() - OF_FEATURES - {*evaluators.ASKING}


@pytest.mark.parametrize("protocol", sorted(OF_CAPTIONS))
def test_headline_exists_is_a_fraction_and_survives_json(protocol, constant_scorer):
    benchmark, first = tiny_benchmark(protocol), evaluators.PROTOCOLS[protocol].summary[0]
    result = evaluators.evaluate(protocol, benchmark, constant_scorer)
    assert result.metrics[first].unit == "fraction"
    written = evaluators.to_json(protocol, benchmark, result, reader="mine", step=7, options={})
    read = json.loads(json.dumps(written, allow_nan=False))
    assert (read["benchmark"], read["step"], read["version"]) == ("mine", 7, "v3")
    assert (read["reader"], read["protocol"]) == ("mine", protocol)
    assert read["summary"][0] == first
    assert set(read["summary"]) <= set(read["metrics"])
    headline = read["metrics"][first]
    assert headline == result.metrics[first]._asdict()
    for metric in result.metrics.values():
        if metric.unit == "fraction":  # a constant scorer is right in no case
            assert (metric.value, metric.ties) == (0.0, 1.0)
    assert json.loads(json.dumps(result.per_example)) == result.per_example


@pytest.mark.parametrize("protocol", ["choice", "pairs", "triplet", "zeroshot", "multilabel"])
def test_chunks_change_nothing_and_scores_that_are_not_finite_stop(protocol, table_scorer):
    benchmark = tiny_benchmark(protocol, cases=7)
    look_up = lambda image, text: zlib.crc32(image + text.encode()) % 7 / 7.0  # noqa: E731
    evaluate = functools.partial(evaluators.evaluate, protocol, benchmark)
    whole = evaluate(table_scorer(look_up).scorer())
    for chunk in (1, 3, 100):
        assert evaluate(table_scorer(look_up).scorer(), chunk=chunk) == whole
    with pytest.raises(errors.DivergedError, match="benchmark 'b'"):
        evaluate(table_scorer(lambda image, text: float("nan")).scorer())


@pytest.mark.parametrize(
    ("protocol", "metric", "decisions"),
    [
        ("choice", "accuracy", 1),
        ("pairs", "pair_accuracy", 1),
        ("pairs", "individual_accuracy", 2),
        ("triplet", "augmented_accuracy", 1),
        ("triplet", "brittleness", 1),
        ("triplet", "mean_score_negative", 1),
    ],
)
def test_groups_have_their_own_metrics(protocol, metric, decisions, table_scorer):
    plain = tiny_benchmark(protocol, cases=7)
    look_up = lambda image, text: zlib.crc32(image + text.encode()) % 7 / 7.0  # noqa: E731

    def metrics_of(cases):
        benchmark = dataclasses.replace(plain, cases=cases)
        return evaluators.evaluate(protocol, benchmark, table_scorer(look_up).scorer()).metrics

    labels = ("a", "b", "b", "a", "b", "b", "b")
    grouped = metrics_of(
        [dataclasses.replace(c, group=g) for c, g in zip(plain.cases, labels, strict=True)]
    )
    for label in ("a", "b"):
        part = [c for c, g in zip(plain.cases, labels, strict=True) if g == label]
        found, alone = grouped[f"{metric}/{label}"], metrics_of(part)[metric]
        assert (found.value, found.count) == (pytest.approx(alone.value), decisions * len(part))


@pytest.mark.parametrize(
    ("protocol", "images", "captions", "meta"),
    [
        ("choice", 1, 1, {}),
        ("choice", 2, 2, {}),
        ("pairs", 1, 2, {}),
        ("triplet", 1, 2, {}),
        ("triplet", 1, 3, {"positive": "p"}),
        ("triplet", 2, 2, {"positive": "p"}),
        ("triplet", 1, 2, {"positive": ["p"]}),
        ("conditions", 1, 2, {}),
        ("superposition", 1, 2, {}),
        ("retrieval", 1, 0, {}),
        ("retrieval", 2, 1, {}),
    ],
)
def test_cases_of_another_protocol_are_refused_by_name(
    protocol, images, captions, meta, constant_scorer
):
    case = Case("x7", (b"i",) * images, ("a",) * captions, meta=meta)
    with pytest.raises(DataError, match=rf"case 'x7' of 'b' has {images} images"):
        evaluators.evaluate(protocol, Benchmark("b", [case], "1"), constant_scorer)
    with pytest.raises(DataError, match="'b' has no cases"):
        evaluators.evaluate(protocol, Benchmark("b", [], "1"), constant_scorer)


def test_unknown_benchmark_names_the_nearest():
    with pytest.raises(errors.UsageError, match="did you mean 'scenes_attribute_swap'"):
        benchmarks.protocol_of("scenes_attribut_swap")


def test_a_value_of_another_type_is_refused():
    with pytest.raises(errors.UsageError, match="'first_step' is an integer; got 'x', str"):
        evaluators.check("pairs", {"protocol": "multiple_choice", "first_step": "x"})


def test_a_protocol_that_asks_takes_the_place_of_the_readers_own():
    assert evaluators.protocol("choice", "keywords") == "keywords"
    assert "first_step" in evaluators.protocol_options("pairs", "multiple_choice")
    assert "first_step" not in evaluators.protocol_options("pairs")
    with pytest.raises(errors.UsageError, match=r"unknown protocol 'letters'.*pairs, keywords"):
        evaluators.protocol("pairs", "letters")


@pytest.mark.parametrize("name", evaluators.PROTOCOLS)
def test_options_of_a_protocol_have_valid_defaults_and_an_invalid_one_is_refused(name):
    row = evaluators.PROTOCOLS[name]
    assert {*row.vector_files} <= {*row.options}
    evaluators.check(name, {"option_of_the_reader": 1})
    option = "tie" if "tie" in row.options else "decoding"
    with pytest.raises(errors.UsageError, match="lucky"):
        evaluators.check(name, {option: "lucky"})


def test_protocols_that_ask_are_refused_for_a_model_that_cannot_answer():
    mute = evaluators.Abilities(writes=False, scores_answers=False)
    for name in evaluators.ASKING:
        evaluators.check("choice", {"protocol": name})
        with pytest.raises(errors.UsageError, match="take a captioner"):
            evaluators.check("choice", {"protocol": name}, mute)
    evaluators.check("choice", {}, mute)
