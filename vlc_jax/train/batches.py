"""Training batches: the loader's rows as global arrays, sharded over the devices."""

import jax
import numpy as np

from vlc_jax.devices import sharding
from vlc_jax.input_pipeline import batch as batch_contract
from vlc_jax.run.metrics import StepClock, read_rows
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir
from vlc_jax.train.step import Batch
from vlc_jax.types.setup import Setup

# interval at which a wait for data checks for signals
POLL_SECONDS = 0.5


class BatchIterator:
    """Iterator over global batches, sharded over the devices.

    Each unusable record, of this start or an earlier one, is an event of the workdir.
    """

    def __init__(self, setup: Setup, workdir: Workdir, start_step: int):
        data = setup.training.data
        if data.has_duplicates:
            workdir.event(
                "batch_beyond_source",
                batch_size=data.batch_size,
                records=len(data.source),
                effect=_effect_of_duplicates(setup),
            )
        self._loader = data.make_loader(start_step, known_bad(workdir))
        self._mesh, self._workdir, self._data = setup.mesh, workdir, data
        self._bad = set(self._loader.bad)

    def next(self, stop: StopSignal, clock: StepClock) -> Batch:
        """The next batch; `clock` measures the wait for the loader and counts its shard reads.

        Raises PreemptedError if a signal arrives during the wait of a single process. Several
        processes must stop at the same step: row `stop` of the batch tells the others of a signal.
        """
        with clock.waiting():
            while (batch := self._loader.next(timeout=POLL_SECONDS)) is None:
                if jax.process_count() == 1:
                    stop.check()
        clock.count_reads(self._loader.take_reads(), self._loader.epochs())
        batch = self._shortened(batch)
        for record_id in self._loader.bad.keys() - self._bad:
            self._bad.add(record_id)
            self._workdir.event("bad_record", id=record_id, reason=self._loader.bad[record_id])
        rows = {**batch, "id": batch_contract.split_ids(batch["id"])}  # jax has no uint64 here
        rows["stop"] = np.full(len(batch["id"]), stop.is_set)
        return sharding.put_batch(self._mesh, rows)

    def _shortened(self, batch: batch_contract.Batch) -> batch_contract.Batch:
        """The batch with texts cut to the smallest length that suffices on all processes."""
        lengths, tokenizer = self._data.text_lengths, self._data.tokenizer
        if len(lengths) == 1:
            return batch
        needed = batch_contract.longest_text(batch, tokenizer.pad_id, tokenizer.eos_id)
        needed = sharding.largest(needed)
        length = next(length for length in lengths if length >= needed)
        return batch_contract.with_text_length(batch, length)

    def record_ids(self, step: int) -> list[str]:
        """Ids of the records in the batch of `step`, counted from 0."""
        return self._loader.record_ids(step)

    def close(self) -> None:
        if self._loader.stand_ins:  # of this process only
            self._workdir.event(
                "hard_images_missing", step=self._loader.step, rows=self._loader.stand_ins
            )
        self._loader.close()


def known_bad(workdir: Workdir) -> list[str]:
    """Ids of the records that an earlier start could not use, by events.jsonl."""
    events = read_rows(workdir.path / "events.jsonl")
    ids = [row.get("id") for row in events if row.get("event") == "bad_record"]
    return [record_id for record_id in ids if isinstance(record_id, str)]


def _effect_of_duplicates(setup: Setup) -> str:
    """Warning about records that repeat in a batch, and their effect on the losses."""
    keeping = [
        f"config.losses.{name}.duplicates=mask"
        for name, options in setup.optimization.losses.items()
        if options.get("duplicates", "keep") == "keep"
    ]
    if not keeping:
        return "records are in a batch more than once; the losses mask the repeats"
    most = len(setup.training.data.source) * setup.optimization.rows_per_example
    return (
        "records are in a batch more than once, and each counts as a negative of its repeats: the "
        f"loss cannot reach 0; set {', '.join(keeping)}, or config.batch_size to {most} at most"
    )
