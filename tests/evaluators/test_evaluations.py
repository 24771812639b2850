import json

import pytest

from vlc_jax import errors, evaluators
from vlc_jax.input_pipeline import benchmarks
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case


def tiny_benchmark(protocol):
    images = (b"a", b"b") if protocol == "pairs" else (b"a",)
    captions = {"zeroshot": (), "retrieval": ("x",)}.get(protocol, ("x", "y"))
    meta = {"positive": "z"}
    cases = [Case(str(n), images, captions, meta={**meta, "label": n}) for n in range(2)]
    return Benchmark("b", cases, "v3", ("cat", "dog"), ("a {}",))


def test_every_benchmark_has_a_reader_of_its_name():
    assert set(evaluators.EVALUATIONS) == set(benchmarks.READERS)


@pytest.mark.parametrize("name", evaluators.EVALUATIONS)
def test_every_benchmark_has_a_protocol(name):
    assert evaluators.protocol(name) in evaluators.PROTOCOLS


# Not those of features: a linear probe learns from labels, also which class is most frequent.
OF_FEATURES = {"linear_probe", "conditions", "superposition", "binding"}
OF_CAPTIONS = evaluators.PROTOCOLS.keys() - OF_FEATURES - {*evaluators.ASKING}


@pytest.mark.parametrize("protocol", sorted(OF_CAPTIONS))
def test_headline_exists_is_a_fraction_and_survives_json(protocol, constant_scorer):
    name = next(n for n, p in evaluators.EVALUATIONS.items() if p == protocol)
    benchmark = tiny_benchmark(protocol)
    result = evaluators.evaluate(name, benchmark, constant_scorer)
    assert result.metrics[evaluators.summary(name)[0]].unit == "fraction"
    written = evaluators.to_json(name, benchmark, result, step=7, options={}, seconds=0.5)
    read = json.loads(json.dumps(written, allow_nan=False))
    assert (read["benchmark"], read["step"], read["version"]) == (name, 7, "v3")
    assert read["summary"][0] == evaluators.summary(name)[0]
    assert set(read["summary"]) <= set(read["metrics"])
    headline = read["metrics"][evaluators.summary(name)[0]]
    assert headline == result.metrics[evaluators.summary(name)[0]]._asdict()
    assert headline["value"] == 0.0  # a constant scorer is right in no case
    assert json.loads(json.dumps(result.per_example)) == result.per_example


def test_unknown_benchmark_names_the_nearest():
    with pytest.raises(errors.UsageError, match="did you mean 'scenes_attribute_swap'"):
        evaluators.protocol("scenes_attribut_swap")


def test_unknown_option_names_the_nearest(constant_scorer):
    with pytest.raises(errors.UsageError, match=r"'ties'.*did you mean 'tie'"):
        evaluators.evaluate(
            "scenes_attribute_swap", tiny_benchmark("choice"), constant_scorer, ties="half"
        )


def test_a_protocol_that_asks_takes_the_place_of_the_readers_own():
    assert evaluators.protocol("whatsup_a", "keywords") == "keywords"
    assert evaluators.summary("mmvp", "multiple_choice")[0] == "pair_accuracy"
    assert "first_step" in evaluators.protocol_options("mmvp", "multiple_choice")
    assert "first_step" not in evaluators.protocol_options("mmvp")
    with pytest.raises(errors.UsageError, match=r"unknown protocol of 'mmvp' 'letters'.*keywords"):
        evaluators.protocol("mmvp", "letters")


def test_only_readers_with_the_option_source_read_the_configured_source():
    reading = {name for name in benchmarks.READERS if benchmarks.reads_source(name)}
    assert reading == {"retrieval", "zeroshot", "linear_probe", "choice", "triplet", "pairs"}


@pytest.mark.parametrize("name", ["choice", "triplet", "pairs"])
def test_a_table_of_your_own_is_a_benchmark_of_each_protocol(name, tmp_path, constant_scorer):
    rows = [
        {"image": f"{i}.png", "caption": f"{i} dogs", "no": "a cat", "yes": "dogs", "two": "a.png"}
        for i in range(3)
    ]
    (tmp_path / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for image in ("0.png", "1.png", "2.png", "a.png"):
        (tmp_path / image).write_bytes(image.encode())  # the scorer opens none
    options = {"path": str(tmp_path / "table.jsonl"), "negatives_column": "no"}
    options |= {"positives_column": "yes"} if name == "triplet" else {}
    options |= (
        {"second": {"image_column": "two", "caption_column": "no"}} if name == "pairs" else {}
    )
    benchmark = benchmarks.READERS[name]("all", **options)
    assert evaluators.protocol(name) == name
    result = evaluators.evaluate(name, benchmark, constant_scorer)
    headline = result.metrics[evaluators.summary(name)[0]]
    assert (headline.value, headline.ties, headline.count) == (0.0, 1.0, 3)
