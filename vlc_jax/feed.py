"""What a run trains on: looked at before it begins, then loaded."""

import jax
from ml_collections import ConfigDict

import input_pipeline
from vlc_jax import build
from vlc_jax.build import Task
from vlc_jax.run.metrics import read_rows
from vlc_jax.run.workdir import Workdir


def check(
    config: ConfigDict,
    task: Task,
    source: input_pipeline.Source,
    texts: dict[str, input_pipeline.HardTexts],
) -> None:
    """Reads the first records as training will: bad data stops the run before it compiles."""
    report = input_pipeline.preview(
        source,
        task.tokenizer,
        build.image_transform(config, is_training=True),
        count=config.input.preview,
        max_bad_share=config.input.max_bad_share,
    )
    with build.usage_errors():
        report.check_hard_texts(texts)


def make_loader(
    config: ConfigDict,
    task: Task,
    source: input_pipeline.Source,
    texts: dict[str, input_pipeline.HardTexts],
    workdir: Workdir,
    start_step: int,
) -> input_pipeline.Loader:
    """Batches from `start_step` on; unusable records that earlier starts found still count."""
    events = read_rows(workdir.path / "events.jsonl")
    with build.usage_errors():
        return input_pipeline.make_train(
            source,
            task.tokenizer,
            build.image_transform(config, is_training=True),
            batch_size=config.batch_size,
            seed=config.seed,
            start_step=start_step,
            process_index=jax.process_index(),
            process_count=jax.process_count(),
            max_bad_share=config.input.max_bad_share,
            known_bad=[row["id"] for row in events if row["event"] == "bad_record"],
            hard_images=config.input.hard_images,
            noun_phrases=build.noun_phrases(config),
            **texts,
            **config.input.loader,
        )
