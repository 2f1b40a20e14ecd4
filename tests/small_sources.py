"""Small sources of each kind, with rows of a class that training does not see."""

import numpy as np
import pandas
from PIL import Image

from hma.data import PreparationOptions
from hma.extras import needed_beside_torchvision
from hma.runs import RunOptions
from hma.training import Recipe

QUICK = Recipe(epochs=1, batch_size=16)


def pictures(folder, colours, count):
    """Write pictures of one colour each, a folder for each colour."""
    draw = np.random.default_rng(count)
    for name, colour in colours.items():
        (folder / name).mkdir(parents=True)
        for place in range(count):
            noise = draw.integers(-20, 20, size=(8, 8, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{place}.png")
    return str(folder)


def images(folder):
    old = {"red": (220, 30, 30), "green": (30, 220, 30)}
    options = RunOptions(source=pictures(folder / "old", old, 12), backbone="cnn", recipe=QUICK)
    return options, pictures(folder / "new", {"blue": (30, 30, 220)}, 4)


def texts(folder):
    transformers = needed_beside_torchvision("transformers", "texts")
    words = ["good", "fine", "bad", "poor", "odd", "film", "plot", "end"]
    (folder / "encoder").mkdir()
    vocabulary = folder / "encoder" / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]))
    transformers.BertTokenizerFast(str(vocabulary)).save_pretrained(folder / "encoder")
    config = transformers.BertConfig(
        vocab_size=12, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder / "encoder")
    lines = [(f"{a} {b} {c}", label) for label, some in (("up", words[:2]), ("down", words[2:4]))
             for a in some for b in words[5:] for c in words[5:]]  # fmt: skip
    more = [(f"odd odd {word}", "strange") for word in words[5:]]
    for name, rows in (("old.jsonl", lines), ("new.jsonl", more)):
        frame = pandas.DataFrame(rows, columns=["text", "label"])
        frame.to_json(folder / name, orient="records", lines=True)
    options = RunOptions(
        source=str(folder / "old.jsonl"),
        backbone=f"hf:{folder / 'encoder'}",
        frozen_backbone=True,
        preparation=PreparationOptions(max_length=16),
        recipe=QUICK,
    )
    return options, str(folder / "new.jsonl")


def rings(folder, name, kinds):
    """Write graphs: a ring of 4 for kind 0, a star for 1, all joined for 2."""
    shapes = [
        [(0, 1), (1, 2), (2, 3), (3, 0)],
        [(0, 1), (0, 2), (0, 3)],
        [(a, b) for a in range(4) for b in range(a)],
    ]
    inside = folder / name
    inside.mkdir()
    edges = [
        f"{4 * graph + a + 1}, {4 * graph + b + 1}"
        for graph, kind in enumerate(kinds)
        for one, other in shapes[kind]
        for a, b in ((one, other), (other, one))
    ]
    owners = [str(graph + 1) for graph in range(len(kinds)) for _ in range(4)]
    for part, lines in {"A": edges, "graph_indicator": owners, "graph_labels": kinds}.items():
        (inside / f"{name}_{part}.txt").write_text("\n".join(map(str, lines)) + "\n")
    return str(inside)


def graphs(folder):
    options = RunOptions(source=rings(folder, "OLD", [0, 1] * 12), recipe=QUICK)
    return options, rings(folder, "NEW", [2] * 3)
