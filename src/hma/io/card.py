"""A model card: what a saved model is and how to load it, as the Hugging Face hub shows it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hma.errors import on_one_line
from hma.model import Context
from hma.questions.audit import Audit
from hma.targets import Classes, Number, SoftClasses, YesNo
from hma.vote.views import TwoViews

if TYPE_CHECKING:
    from torch import nn

    from hma.model import MemoryModel

CARD = "README.md"
LIBRARY = "hma-torch"
SEES: dict[Context, str] = {
    "alone": "each row by itself: an answer does not depend on the rows asked beside it",
    "batch": "each row beside the others of its batch: an answer depends on who is asked with it",
    "anchors": "each row beside a stored batch: an answer does not depend on the rows asked with "
    "it",
}


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a model does not know of itself and its card should say; all of it may be left out.

    Args:
        name: Title; the name of the folder if not given.
        about: What it is for, in a sentence or more.
        data: What it was trained on.
        scores: What was measured, on what: ``{"accuracy on 200 test rows": 0.93}``.
        license: Identifier as the hub has them, such as ``"mit"``.
        audit: What :func:`hma.audit` found.
        limits: What it should not be used for.
        backbone: Python that makes ``backbone``, for the lines that load the model.
        tags: More words that the hub finds it by.
    """

    name: str | None = None
    about: str = ""
    data: str = ""
    scores: Mapping[str, float | str] = field(default_factory=dict)
    license: str | None = None
    audit: Audit | None = None
    limits: str = ""
    backbone: str = ""
    tags: Sequence[str] = ()


def card_text(
    model: "MemoryModel", card: bool | ModelCard, folder: str, *, hub: bool = False
) -> str:
    """Return the card of a model as Markdown, with front matter for the hub; nothing if not wanted.

    Args:
        model: The model that the card is saved beside.
        card: Whether it is wanted, or what is known besides.
        folder: Name of the folder, or of the repository.
        hub: Whether it is a repository.
    """
    if card is False:
        return ""
    given = ModelCard() if card is True else card
    if not isinstance(given, ModelCard):
        raise TypeError(
            f"card must be True, False or an hma.ModelCard, got {type(card).__name__}; "
            "pass card=hma.ModelCard(data=..., scores={...})"
        )
    parts = [
        front_matter(["memory", *given.tags], given.license),
        f"# {cell(given.name or folder)}",
        given.about,
        "A PyTorch model with a memory, saved by [`hma`](#how-to-load-it).",
        "## What it is",
        table(("part", "here"), model_facts(model)),
        "## How to load it",
        _loading(model, given, folder, hub=hub),
        *section("Data", given.data),
        *section("Scores", scores_table(given.scores)),
        *section("Does the model use its memory?", audit_text(given.audit)),
        "## Limits",
        _limits(model),
        given.limits,
    ]
    return joined(parts)


# ------------------------------------------------------------------------------- parts of a card


def front_matter(tags: Iterable[str], license: str | None) -> str:
    """Return what the hub reads of a card; JSON text is YAML text.

    Example:
        >>> print(front_matter(["memory"], None))
        ---
        library_name: hma-torch
        tags:
        - "hma"
        - "memory"
        ---
    """
    lines = [f"- {json.dumps(tag)}" for tag in dict.fromkeys(["hma", *tags])]
    named = [] if license is None else [f"license: {json.dumps(license)}"]
    return "\n".join(["---", f"library_name: {LIBRARY}", *named, "tags:", *lines, "---"])


def table(head: Sequence[str], rows: Mapping[str, str]) -> str:
    """Return a Markdown table of two columns; nothing without rows."""
    if not rows:
        return ""
    lines = [f"| {cell(name)} | {cell(value)} |" for name, value in rows.items()]
    return "\n".join([f"| {' | '.join(head)} |", "|---|---|", *lines])


def cell(text: str) -> str:
    """Return text that stays in its cell or line and is no markup of a page.

    Example:
        >>> cell("a|b <i>")
        'a\\\\|b &lt;i>'
    """
    return on_one_line(text).replace("|", "\\|").replace("<", "&lt;")


def section(title: str, text: str) -> list[str]:
    """Return a title and what is under it; nothing without text."""
    return [f"## {title}", text] if text else []


def scores_table(scores: Mapping[str, float | str]) -> str:
    """Return scores as they were given, four digits of those that are numbers."""
    said = {k: v if isinstance(v, str) else f"{v:.4g}" for k, v in scores.items()}
    return table(("score", "value"), said)


def audit_text(audit: Audit | None) -> str:
    """Return what an audit found, its verdict last."""
    return "" if audit is None else f"```text\n{audit}\n```"


def joined(parts: Iterable[str]) -> str:
    """Return the parts of a card that say something, as one text."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


# --------------------------------------------------------------------------- what a model knows


def model_facts(model: "MemoryModel") -> dict[str, str]:
    """Return what a model knows of itself: part -> words."""
    learned = sum(p.numel() for n, p in model.named_parameters() if "momentum_encoder" not in n)
    backbone = own_backbone(model)
    return {
        "backbone": f"`{_class_of(backbone)}`, {_count(backbone):,} weights",
        "features": f"{model.feature_dim - model.key_width:,}",
        "answers": model.target.description,
        "memory": model.describe(),
        "stored rows": _stored(model),
        "slots": _slots(model),
        "weights in all": f"{learned:,}",
        "context": f"`{model.context}`: {SEES[model.context]}",
        "memory is frozen": "yes" if model.memory_frozen else "no",
    }


def own_backbone(model: "MemoryModel") -> "nn.Module":
    """Return the backbone as it was given, without the view that keys are made of."""
    return model.backbone.backbone if isinstance(model.backbone, TwoViews) else model.backbone


def _class_of(module: object) -> str:
    kind = type(module)
    return f"{kind.__module__}.{kind.__qualname__}"


def _count(module: "nn.Module") -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _stored(model: "MemoryModel") -> str:
    if model.real is None or not model.config.has_real_memory:
        return "none: the model has no real memory"
    queue = model.real.queue
    ids = queue.ids[queue.filled()]
    if not len(ids):
        return "none yet"
    bound = getattr(queue, "bound", queue.size)
    most = "one for each sample" if bound is None else f"of at most {bound:,}"
    known = int((ids >= 0).sum())
    return f"{len(ids):,} ({most}), {known:,} with the id of a sample"


def _slots(model: "MemoryModel") -> str:
    count = 0 if model.synthetic is None else len(model.synthetic.classes)
    return f"{count:,}, {model.config.slots_per_class:,} for each class" if count else "none"


def _loading(model: "MemoryModel", given: ModelCard, folder: str, *, hub: bool) -> str:
    more = ""
    hands = []
    if isinstance(model.backbone, TwoViews) and not _offered(model.backbone):
        more += ", key_encoder=key_encoder"
        hands.append(f"`key_encoder` is a `{_class_of(model.backbone.key_encoder)}`")
    if type(model.target) not in (Classes, SoftClasses, YesNo, Number):
        more += ", target=target"
        hands.append(f"`target` is a `{_class_of(model.target)}`")
    if not given.backbone:
        hands.insert(0, f"`backbone` is a `{_class_of(own_backbone(model))}`")
    where = f"snapshot_download({json.dumps(folder)})" if hub else json.dumps(folder)
    lines = [
        *(["from huggingface_hub import snapshot_download", ""] if hub else []),
        "import hma",
        "",
        *([given.backbone.strip("\n")] if given.backbone else []),
        f"model = hma.load({where}, backbone{more})",
    ]
    code = "```python\n" + "\n".join(lines) + "\n```"
    built = f" Here {', '.join(hands)}, as built for training; its weights are loaded."
    return f"`pip install {LIBRARY}`.{built if hands else ''}\n\n{code}"


def _offered(both: TwoViews) -> bool:
    """Tell whether the view of the keys is the one that the backbone offers by itself."""
    offers = getattr(both.backbone, "key_view", None)
    return callable(offers) and type(offers()) is type(both.key_encoder)


def _limits(model: "MemoryModel") -> str:
    lines = []
    if model.context == "batch" and model.sees_batch:
        lines.append("An answer depends on the rows asked in the same batch; so do scores.")
    stored = model.real is not None and model.config.has_real_memory
    if stored and bool(model.real.queue.filled().any()):  # type: ignore[union-attr]
        lines.append(
            "The stored rows are features and labels of real samples, with their ids where some "
            "were given: whoever has the files has them too."
        )
    if model.memory_share == 0:
        lines.append("The head answers alone: the memory has no share of the answer.")
    lines.append("Scores hold for rows like those they were measured on.")
    return "\n".join(f"- {line}" for line in lines)
