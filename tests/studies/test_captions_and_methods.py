"""Parts f and n of the study: methods with blind controls, and captions that make binding."""

import json

import pytest

from studies import study_binding, study_columns, study_methods, study_plan, study_results
from studies.study_results import RECORD, Estimate, Kept, MissingValueError
from tests.studies.test_study import results_of


def of_run(device="CPU", step=80.0, **accuracies):
    """Values of a run: benchmark without its first word -> value."""
    names = {"retrieval": "image_to_text_r1"}
    metrics = {
        f"scenes_{name}": {names.get(name, "accuracy"): Estimate(value, value - 0.01, value + 0.01)}
        for name, value in accuracies.items()
    }
    of_step = {RECORD: {"step_ms": Estimate(step)}} if step else {}
    return Kept(metrics | of_step, "x", device)


def test_every_method_has_its_control_and_both_blind():
    runs = {run.name: run for part in study_plan.PARTS for run in study_plan.runs(part)}
    for method in study_columns.OF_TABLE:
        control, base = study_columns.CONTROLS[method]
        assert study_columns.label(method) != method
        assert {method, control, base} <= runs.keys()
        assert runs[method].base == base
        if runs[method].tool == "evaluate" or method in study_plan.AT_CHANCE:
            continue
        # an untrained base sees no wrong images
        for run in (method, control) if control != base else (method,):
            blind = runs[f"{run}_permuted"]
            assert blind.flags[-1].endswith("images=permuted")
            assert blind.flags[:-1] == runs[run].flags
            assert not blind.features  # which are those of the right images
            if not runs[run].features:
                assert blind._replace(name=run, flags=runs[run].flags) == runs[run]
    for method, (end, kinds) in study_plan.BALANCED.items():
        if not end:  # of part k
            continue
        balanced = runs[f"{method}{study_methods.BALANCED}"]
        assert (balanced.config, balanced.kinds) == (runs[method].config, kinds)
        assert runs[balanced.texts].flags == ("--balance=0.52",)
        assert runs[f"{method}_random"].texts == f"texts_random{end}"
        assert f"{balanced.name}_permuted" in runs


def test_cells_equal_by_construction_are_one_run():
    runs = {run.name: run for run in study_plan.runs("n")}
    assert len(study_binding.CELLS) == 3 * (2 * 3 + 1)
    assert len({run.flags for run in runs.values() if not run.base}) == len(study_binding.CELLS)
    complete = {study_binding.at(0.4, 1.0, saliency) for saliency in study_binding.SALIENCIES}
    assert [cell.name for cell in complete] == ["binding_40_100"]
    finetuned = [run for run in runs.values() if run.base]
    assert len(finetuned) == 2 * len({run.base for run in finetuned}) == 2 * 9
    for run in finetuned:
        assert run.flags == runs[run.base].flags[-1:]
        assert "'saliency': 1.0" in run.flags[0] or "'completeness': 1.0" in run.flags[0]


def swaps_of_cells():
    """Values of every cell: a different one in each; HN's are up by a tenth of the density."""
    values = {}
    for cell in study_binding.CELLS:
        swap = 0.5 + 0.3 * cell.density * cell.completeness - 0.05 * cell.saliency
        made = {cell.name: of_run(attribute_swap=swap, attributes=0.9)}
        if cell in study_binding.FINETUNED:
            made[f"{cell.name}_clip_ft"] = of_run(attribute_swap=0.7)
            made[f"{cell.name}_hn"] = of_run(attribute_swap=0.7 + cell.density / 10)
        values |= {f"{name}-{seed}": each for name, each in made.items() for seed in range(3)}
    return values


def test_the_figure_has_the_value_of_each_cell():
    values = swaps_of_cells()
    *maps, of_gain = study_binding.figure(results_of(values)).axes[:4]
    assert of_gain.images[0].get_array().tolist() == [pytest.approx([1, 4, 10])] * 3
    for axes, saliency in zip(maps, study_binding.SALIENCIES, strict=True):
        shown = axes.images[0].get_array()
        assert shown[0].tolist() == pytest.approx([51.5 - 5 * saliency, 56 - 5 * saliency,
                                                   65 - 5 * saliency])  # fmt: skip
        assert shown[2].tolist() == pytest.approx([53, 62, 80])
    del values["binding_10_50_0-0"]
    with pytest.raises(MissingValueError, match="binding_10_50_0-0 has no values"):
        study_binding.figure(results_of(values))


def methods():
    """Values of a method and its control, with the right images and with permuted ones."""
    made = {}
    for seed in range(3):
        noise = 0.01 * seed  # of a seed, in every run: differences are paired
        for run, swap in (("clip_ft", 0.7), ("csclip", 0.85 + 0.01 * seed), ("clip", 0.6)):
            made[f"{run}-{seed}"] = of_run(
                attribute_swap=swap + noise, negation=0.1, retrieval=swap / 2 + noise
            )
        for run, swap in (("clip_ft_permuted", 0.55), ("csclip_permuted", 0.6)):
            made[f"{run}-{seed}"] = of_run(attribute_swap=swap + noise, negation=0.1)
        made[f"csclip_balanced_52-{seed}"] = of_run(attribute_swap=0.75 + noise)
    return made


def row_of(values):
    """The cells of the one row of the table of methods."""
    (row,) = study_methods.table(results_of(values)).splitlines()[2:]
    return row.strip("| ").split(" | ")


def test_a_method_has_its_gain_grounded_balanced_and_cost():
    values = methods()
    name, gain, grounded, balanced, negated, forgotten, cost = row_of(values)
    assert name == "CS-CLIP"
    assert gain.startswith("+16.0 ±2.5")
    assert grounded.startswith("+11.0 ±2.5")  # 5 points of the 16 are there without the image
    assert balanced == "+5.0 ±0.0"
    assert negated == "+0.0 ±0.0"
    assert forgotten.startswith("+13.0 ±")  # (86 - 60) / 2
    assert cost == "80"
    assert "CLIP-FT 80)" in study_methods.table(results_of(values))
    del values["csclip_permuted-1"], values["csclip_balanced_52-1"]
    assert row_of(values)[2:4] == [study_methods.NONE] * 2


def test_a_cost_of_another_device_than_the_row_says_which():
    values = {
        name: [Kept({**each.metrics, RECORD: {}}, "x", "H100"), each]
        for name, each in methods().items()
    }
    assert row_of(values)[-1] == "80, CPU"


def test_a_record_has_the_median_step_of_a_training(tmp_path):
    (tmp_path / "config.json").write_text('{"batch_size": 128}')
    rates = (16.0, 1280.0, 640.0)
    lines = [json.dumps({"step": 1, "perf/examples_per_s": rate}) for rate in rates]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 2}']) + "\n")
    (tmp_path / study_results.REQUEST).write_text('{"config": "hn"}')
    (tmp_path / "env.json").write_text('{"hardware": {"devices": ["cpu"]}}')
    (tmp_path / "events.jsonl").write_text('{"time": "2026-11-27T13:44:24+00:00"}\n')
    numbers = {"seconds": Estimate(0), "step_ms": Estimate(200.0)}
    assert study_results.values_of(tmp_path) == Kept({RECORD: numbers}, "hn", "CPU")
