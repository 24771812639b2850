"""Trials of a sweep: all points of a grid, or points proposed by Optuna."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.errors import UsageError, known

# Samplers of a search: kind -> (Optuna's trial, name, words after the kind) -> value.
KINDS: dict[str, Callable[[Any, str, Sequence[str]], Any]] = {
    "uniform": lambda trial, name, ends: trial.suggest_float(name, *map(float, ends)),
    "log": lambda trial, name, ends: trial.suggest_float(name, *map(float, ends), log=True),
    "int": lambda trial, name, ends: trial.suggest_int(name, *map(int, ends)),
    "choice": lambda trial, name, values: trial.suggest_categorical(name, values),
}
STORAGE = "optuna.log"  # in the folder of a sweep
OWNER = "owner"  # attribute of a trial in the storage: the task that runs it, or HERE
HERE = "no task"


class Trial(NamedTuple):
    """A run: its number in the sweep, and the values of the swept fields."""

    number: int
    values: dict[str, str]


class Grid:
    """All combinations of the values; the last field varies fastest."""

    def __init__(self, fields: Sequence[Sequence[str]], task: int | None) -> None:
        """fields: [name, values...] each. task: index of the only trial; None: all trials."""
        names = [name for name, *_ in fields]
        rows = itertools.product(*[values for _, *values in fields])
        trials = [Trial(i, dict(zip(names, row, strict=True))) for i, row in enumerate(rows)]
        if task is not None and not 0 <= task < len(trials):
            raise UsageError(
                f"--task {task} of a grid of {len(trials)} trials; use 0 to {len(trials) - 1}"
            )
        self._todo = trials if task is None else [trials[task]]

    def take(self) -> Trial | None:
        """The next trial; None if none is left."""
        return self._todo.pop(0) if self._todo else None

    def tell(self, trial: Trial, value: float | None) -> None:
        """Does nothing: a grid does not depend on results."""


def check_log(path: Path) -> None:
    """Raises UsageError for a line of Optuna's log that is no JSON object, with its number.

    Optuna raises an error of the parser, without the file, or appends to half a line.
    """
    lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    *whole, rest = lines
    for number, line in enumerate([*whole, *([rest] if rest else [])], 1):
        try:
            is_object = isinstance(json.loads(line), dict)
        except ValueError:
            is_object = False
        # a whole object without an end of line is cut, too: the next one would be glued to it
        if not is_object or (rest and number == len(lines)):
            raise UsageError(
                f"{path}: line {number} is damaged, as a killed task leaves it: remove this line, "
                "and the sweep goes on"
            )


class Search:
    """An Optuna study in a file of the sweep's folder, shared by tasks on several machines."""

    def __init__(
        self,
        out: Path,
        fields: Sequence[Sequence[str]],
        *,
        minimize: bool,
        count: int,
        task: int | None,
    ) -> None:
        """fields: [name, kind, words...] each. count: number of trials of a sweep without tasks; a
        task runs one."""
        try:
            import optuna  # an optional dependency
            from optuna.storages import JournalStorage, journal
        except ImportError as error:
            raise UsageError(
                'a search needs Optuna: pip install "optuna>=4", or try a --grid'
            ) from error
        for name, *words in fields:
            if len(words) < 2 or (words[0] != "choice" and len(words) != 3):
                raise UsageError(
                    f"--search NAME KIND LOW HIGH, or NAME choice VALUE [VALUE ...], not "
                    f"{' '.join([name, *words])!r}"
                )
            known("kind of search", words[0], KINDS)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._fields, self._count = fields, count
        # a trial draw: ValueError for wrong numbers
        self._draw(optuna.create_study().ask())
        check_log(out / STORAGE)
        # a journal file works on NFS; SQLite does not
        storage = JournalStorage(journal.JournalFileBackend(str(out / STORAGE)))
        self._study = optuna.create_study(
            storage=storage,
            study_name="sweep",
            direction="minimize" if minimize else "maximize",
            load_if_exists=True,
        )
        self._owner = HERE if task is None else f"task {task}"
        self._states = optuna.trial.TrialState
        trials = [
            trial for trial in self._study.trials if trial.user_attrs.get(OWNER) == self._owner
        ]
        self._resumed = [trial for trial in trials if trial.state == self._states.RUNNING]
        self._has_trial = task is not None and len(trials) > len(self._resumed)

    def take(self) -> Trial | None:
        """An interrupted trial, else a new one; None after enough trials."""
        if self._resumed:
            stopped = self._resumed.pop(0)
            return self._trial(stopped.number, stopped.params)
        if self._owner == HERE:
            is_enough = len(self._study.trials) >= self._count
        else:
            is_enough, self._has_trial = self._has_trial, True
        if is_enough:
            return None
        trial = self._study.ask()
        trial.set_user_attr(OWNER, self._owner)
        return self._draw(trial)

    def tell(self, trial: Trial, value: float | None) -> None:
        """Reports the metric of a trial; None: it failed."""
        state = self._states.FAIL if value is None else self._states.COMPLETE
        self._study.tell(trial.number, value, state=state)

    def best(self) -> tuple[Trial, float] | None:
        """The best finished trial and its metric; None if none has finished."""
        if not self._study.get_trials(deepcopy=False, states=(self._states.COMPLETE,)):
            return None
        best = self._study.best_trial
        return self._trial(best.number, best.params), best.value

    def _draw(self, trial: Any) -> Trial:
        for name, kind, *words in self._fields:
            KINDS[kind](trial, name, words)
        return self._trial(trial.number, trial.params)

    @staticmethod
    def _trial(number: int, params: dict[str, Any]) -> Trial:
        return Trial(number, {name: str(value) for name, value in params.items()})
