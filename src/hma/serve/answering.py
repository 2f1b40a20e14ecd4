"""A run as it answers with one version of its memory; nothing in it changes while it is asked."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hma.data import Source
from hma.errors import UserError
from hma.model import Context
from hma.questions.explain import explain
from hma.questions.unfamiliar import unfamiliarity
from hma.runs import MEMORY, Run
from hma.runs.coverage import Promising, Thresholds
from hma.runs.explanation import answer_text, most_seen, seen_in_words
from hma.runs.folder import keyed_rows
from hma.runs.living import ids_of_class
from hma.runs.memory_scores import memory_of
from hma.runs.remembered import RememberedRows, rows_in_words
from hma.serve.rows import Asked
from hma.targets import Number, Target, YesNo

CONTEXT: Context = "alone"


class Answering:
    """Answers to any number of threads at once, each as if it were alone.

    Args:
        run: The run, with the version of its memory that is to answer.
        training: Its training rows, to be shown; opened when they are needed if not given.
        promising: What promises a coverage of its answers.
    """

    def __init__(
        self, run: Run, training: Source | None, promising: Promising | None = None
    ) -> None:
        self.run, self.deployed = run, run.deployed
        self.number = run.living.number
        self.learner = run.learner(self.deployed.which)
        context = CONTEXT if CONTEXT in self.learner.contexts else self.learner.contexts[0]
        self.learner.use(context)
        self.model = memory_of(run, self.learner)
        self.model.context = CONTEXT
        for module in (self.learner.module, self.model):
            module.eval()
        self.remembered = RememberedRows(run, training)
        self.promise: Thresholds | None = None
        self.unpromised = ""
        if promising is not None:
            try:
                self.promise = promising(run, self.learner, self.model, context)
            except UserError as error:
                self.unpromised = str(error)

    @property
    def notes(self) -> list[str]:
        """What every answer says beside itself: why nothing is promised of it, where that is so."""
        return [f"nothing is promised of answers: {self.unpromised}"] if self.unpromised else []

    @torch.no_grad()
    def predict(self, asked: Asked) -> list[dict[str, Any]]:
        """Return what is answered for each row."""
        target, names = self.run.preparation.target, self.run.preparation.classes
        said = target.expected(self.learner.predict(asked.batch))
        answers = [answer_in_json(target, names, values) for values in said.tolist()]
        for answer, more in zip(answers, self._promised(asked, said), strict=True):
            answer.update(more)
        return answers

    def _promised(self, asked: Asked, said: Tensor) -> list[dict[str, Any]]:
        """Return what is promised of each answer: a set or an interval, and whether it is known."""
        found: list[dict[str, Any]] = [{} for _ in range(len(asked))]
        made = self.promise
        if made is None:
            return found
        if made.most_wrong is not None and isinstance(made.target, Number):
            for one, (low, high) in zip(found, made.intervals(said), strict=True):
                one |= {"from": low, "to": high}
        elif made.most_wrong is not None:
            for one, labels in zip(found, made.sets(said), strict=True):
                one["labels"] = labels
        if made.most_unfamiliar is not None:
            far = unfamiliarity(self.model, asked.batch.x, features=asked.batch.features)
            for one, value in zip(found, far.double().tolist(), strict=True):
                one |= {"unknown": made.is_unknown(value), "unfamiliarity": value}
        return found

    @torch.no_grad()
    def explain(self, asked: Asked, top: int) -> dict[str, Any]:
        """Return what the memory says of the first row, and the stored rows that voted."""
        shares = explain(self.model, asked.batch.x)
        target, names = self.run.preparation.target, self.run.preparation.classes
        most = [seen for seen in most_seen(shares, top) if seen.kind != "batch"]
        seen = seen_in_words(most, self.remembered, asked.source, asked.places[0])
        return {
            "memory": answer_in_json(target, names, shares.probabilities[0].tolist()),
            "memory_counts": self.deployed.counted.get(MEMORY, 0.0),
            "adds_up": shares.exact is not None,
            "voters": [
                {
                    "id": one.id,
                    "kind": one.kind,
                    "label": one.label,
                    "share": one.share,
                    "what": one.description,
                    "picture": one.picture,
                }
                for one in seen
            ],
        }

    def rows(self, label: str | None, first: int, count: int) -> dict[str, Any]:
        """Return rows of the memory in the order they came, and how many there are."""
        store = keyed_rows(self.model, str(self.run.folder))
        places = store.order()
        if label is not None:
            of_class = ids_of_class(self.run, store, label)
            places = places[torch.isin(store.ids[places], of_class)]
        found = rows_in_words(store, places[first : first + count], self.remembered)
        return {"of": len(places), "rows": [row._asdict() for row in found]}


def answer_in_json(target: Target, names: Sequence[str], expected: Any) -> dict[str, Any]:
    """Return a prediction as JSON values.

    Args:
        target: What a label is.
        names: Of the classes, the labels, or the number.
        expected: What :meth:`hma.targets.Target.expected` gives for the row.

    Example:
        >>> answer_in_json(Number(), ["price"], 12.5)
        {'answer': 'price 12.5', 'number': 12.5}
    """
    said: dict[str, Any] = {"answer": answer_text(target, names, expected)}
    if isinstance(target, Number):
        return {**said, "number": expected}
    if not isinstance(target, YesNo):
        best = max(range(len(expected)), key=expected.__getitem__)
        said |= {"label": names[best], "probability": expected[best]}
    return {**said, "probabilities": dict(zip(names, expected, strict=True))}
