"""Files that are damaged, hostile or simply not what their name says: one line, little memory."""

import gzip
import io
import json
import os
import random
import struct
import sys
import tracemalloc
import warnings
import zipfile
import zlib
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from hma.backbones import backbone_for
from hma.data import (
    PreparationOptions,
    builtin,
    open_source,
    preparation_from_json,
    prepare,
    stream,
)
from hma.errors import UserError

PIXELS = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
TASK = SimpleNamespace(name="four", kind="table", shape=(4,))


def pictures(folder, ending=".png"):
    """Two classes of four pictures each."""
    for name in "ab":
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(4):
            Image.fromarray(PIXELS).save(folder / name / f"{number}{ending}")
    return folder


def graphs(folder, **changed):
    folder.mkdir(exist_ok=True)
    parts = {
        "A": "1, 2\n2, 1\n3, 4\n4, 3\n5, 6\n7, 8\n9, 10\n",
        "graph_indicator": "1\n1\n2\n2\n3\n3\n4\n4\n5\n5\n",
        "graph_labels": "1\n-1\n1\n-1\n1\n",
        "node_labels": "0\n1\n" * 5,
        "node_attributes": "0.5, 1\n1.5, 2\n" * 5,
        "edge_labels": "1\n2\n1\n2\n1\n2\n1\n",
    }
    for part, text in (parts | changed).items():
        (folder / f"TOY_{part}.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def use(source, **options):
    """Do with a source what a run does."""
    prepared = prepare(
        source, seed=0, validation=0.2, test=0.2, options=PreparationOptions(**options)
    )
    again = preparation_from_json(json.loads(json.dumps(prepared.preparation.to_json())))
    for _ in stream(again, source, 7):
        pass
    source.describe(0)
    source.fingerprint()
    return prepared


def peak_of(action):
    """Return the most bytes that Python and numpy held at once, and what was refused."""
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as found:
            action()
        return tracemalloc.get_traced_memory()[1], str(found.value)
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------- one at a time


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.int16, ">i4", bool, np.float16, ">f8"])
def test_images_of_any_number_format_can_be_trained_on(tmp_path, dtype):
    x = np.random.default_rng(0).integers(0, 2, (20, 5, 5)).astype(dtype)
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(20) % 2)
    prepared = use(open_source(tmp_path / "a.npz"))
    assert prepared.preparation.unit is (np.dtype(dtype).kind in "biu")
    assert prepared.task.train.batch(torch.arange(3)).x.dtype == torch.float32


def test_a_program_named_png_is_not_started(tmp_path, monkeypatch):
    def started(*arguments, **options):
        raise AssertionError("a program was started")

    monkeypatch.setattr("subprocess.Popen", started)
    monkeypatch.setattr("os.system", started)
    folder = pictures(tmp_path / "set")
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    (folder / "a" / "0.png").write_bytes(eps)
    with pytest.raises(UserError, match=r"0\.png cannot be read as an image"):
        use(open_source(folder))


def claimed_png(width, height):
    """A small file that claims to be a large gray picture."""

    def chunk(name, data):
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(9)))


def test_the_size_of_a_picture_is_looked_at_before_it_is_decoded(tmp_path):
    folder = pictures(tmp_path / "set")
    (folder / "a" / "0.png").write_bytes(claimed_png(9000, 9000))  # Pillow's own limit is higher
    with pytest.raises(UserError, match=r"9000 x 9000 pixels are more than 67108864"):
        use(open_source(folder))


def test_members_of_an_archive_that_are_not_needed_are_not_read(tmp_path):
    np.savez_compressed(
        tmp_path / "a.npz", x=np.eye(20), y=np.arange(20) % 2, unused=np.zeros(2**23)
    )
    tracemalloc.start()
    open_source(tmp_path / "a.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22


def test_an_array_is_not_made_before_its_size_is_known_to_be_true(tmp_path):
    held = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        held, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 4)}
    )
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("x.npy", held.getvalue() + bytes(64))
    peak, said = peak_of(lambda: open_source(tmp_path / "a.npz"))
    assert peak < 2**22
    assert "(1000000000, 4) and dtype float64 is not" in said


@pytest.mark.parametrize("labels", [True, False])
def test_a_graph_number_beyond_all_graphs_takes_no_memory(tmp_path, labels):
    folder = graphs(tmp_path / "g", graph_indicator="1\n" * 9 + "1000000000\n")
    if not labels:
        (folder / "TOY_graph_labels.txt").unlink()
    peak, said = peak_of(lambda: open_source(folder))
    assert peak < 2**22
    assert "1000000000 graphs" in said or "names graph 1000000000" in said


@pytest.mark.parametrize("file", ["rows.csv", "rows.npz", "rows.jsonl"])
def test_a_pipe_is_not_waited_for(tmp_path, file):
    os.mkfifo(tmp_path / file)
    with pytest.raises(UserError, match="is no regular file"):
        open_source(tmp_path / file)


@pytest.mark.parametrize("spec", ["a" * 5000, "b" * 5000 + ".csv", "tu:" + "c" * 5000, "x/" * 3000])
def test_a_name_that_is_too_long_is_no_source(spec):
    with pytest.raises(UserError):
        open_source(spec)


def test_code_in_a_model_folder_is_not_run(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr("builtins.input", lambda *question: "y")  # nobody is even asked
    told = {"model_type": "own", "auto_map": {"AutoConfig": "own.C", "AutoModel": "own.M",
                                              "AutoTokenizer": ["own.T", None]}}  # fmt: skip
    for name in ("config.json", "tokenizer_config.json"):
        (tmp_path / name).write_text(json.dumps(told))
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (tmp_path / "a.jsonl").write_text(
        '{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n' * 9
    )
    with pytest.raises(UserError, match="cannot be loaded"):
        backbone_for(f"hf:{tmp_path}")(SimpleNamespace(name="t", kind="text", shape=(9,)))
    with pytest.raises(UserError, match="no tokenizer can be loaded"):
        prepare(
            open_source(tmp_path / "a.jsonl"),
            seed=0,
            options=PreparationOptions(encoder=str(tmp_path)),
        )
    assert not (tmp_path / "ran").exists()


def test_half_a_surrogate_pair_is_no_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": "\\ud800"}\n')
    with pytest.raises(UserError, match=r"line 1 of .* half of a surrogate pair"):
        open_source(tmp_path / "a.jsonl")


def test_a_class_folder_whose_name_is_no_text_is_named(tmp_path):
    folder = pictures(tmp_path / "set")
    os.rename(folder / "a", os.fsencode(folder) + b"/\xff")
    with pytest.raises(UserError, match=r"name is no UTF-8, '\\udcff'; rename it"):
        open_source(folder)


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    table = pd.DataFrame([[1, 2, 0]] * 4, columns=["a", "b", "y"])
    arrow = pytest.importorskip("pyarrow")
    twice = arrow.Table.from_pandas(table).rename_columns(["a", "a", "y"])
    pytest.importorskip("pyarrow.parquet").write_table(twice, tmp_path / "a.parquet")
    with pytest.raises(UserError, match="has the column 'a' twice"):
        open_source(tmp_path / "a.parquet", target="y")


@pytest.mark.parametrize("name", [3, "layers.0.weight"])
def test_weights_of_the_wrong_kind_are_refused(tmp_path, name):
    state = dict(backbone_for("mlp")(TASK).state_dict())
    torch.save(state | {name: torch.zeros(256, 4, dtype=torch.complex64)}, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"w\.pth (holds entries|does not fit mlp)"):
        backbone_for("mlp", weights=tmp_path / "w.pth")(TASK)


# ------------------------------------------------------------------------------ many at once

TOKENS = (b"", b"\xff\xfe", b"\xed\xa0\x80", b"\0", b"1000000000", b"-1", b"nan", b"inf", b"1e309",
          b"9" * 25, b'"', b",", b"\n", b"\r", b"{", b"[", b"null", b"true", b'"\\ud800"', b"1.5",
          b"\xef\xbb\xbf", b"#", b"[]")  # fmt: skip


def mutated(data, dice):
    """Cut, overwrite, insert, repeat or remove something somewhere."""
    data = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 4])):
        start = dice.randrange(len(data) + 1)
        stop = min(len(data), start + dice.choice([1, 2, 4, 8, 32]))
        match dice.randrange(6):
            case 0:
                del data[start:]
            case 1:
                data[start:start] = dice.choice(TOKENS)
            case 2:
                data[start:stop] = dice.choice(TOKENS)
            case 3:
                data[start:start] = data[start:stop]
            case 4:
                del data[start:stop]
            case _:
                data[start:stop] = dice.randbytes(stop - start)
    return bytes(data)


def held(save):
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def table_text():
    values = np.random.default_rng(0).normal(size=24)
    rows = [f"{v:.2f},{'uvw'[i % 3]},{i},{i % 2},{i % 4 // 2}\n" for i, v in enumerate(values)]
    return "a,b,c,y,z\n" + "".join(rows)


def read_table(path):
    for asked in ({"target": "c", "task": "regression"}, {"target": ("y", "z")}, {"target": "y"}):
        use(open_source(path, **asked))


def read_picture(path):
    folder = pictures(path.parent / f"set{path.suffix}", path.suffix)
    (folder / "a" / f"0{path.suffix}").write_bytes(path.read_bytes())
    use(open_source(folder))


def read_graphs(path):
    folder = graphs(path.parent / "graphs", **{path.stem: path.read_bytes()})
    use(open_source(folder), edge_labels=True, node_attributes=True)


def read_texts(path):
    source = open_source(path)
    source.describe(len(source) - 1)
    return source.labels


def read_preparation(path):
    try:
        values = json.loads(path.read_bytes())
    except ValueError:
        return  # read_json has tests of its own
    preparation_from_json(values)


def images(name, **options):
    return held(lambda file: Image.fromarray(PIXELS).save(file, name, **options))


def preparation_of(name, **options):
    return json.dumps(builtin(name, seed=0, **options).preparation.to_json()).encode()


def formats(folder):
    """What is damaged: a name, the content before, and what reads it."""
    y, generator = np.arange(20) % 2, np.random.default_rng(0)
    weights = backbone_for("mlp")(TASK).state_dict()
    save_file(weights, folder / "base.safetensors")
    torch.save(weights, folder / "base.pth")
    text = table_text()
    pd.read_csv(io.StringIO(text)).to_parquet(folder / "base.parquet")
    (folder / "base.csv").write_text(text)
    lines = [json.dumps({"text": f"text {n} é", "label": "xy"[n % 2]}) + "\n" for n in range(9)]
    read_weights = lambda path: backbone_for("mlp", weights=path)(TASK)  # noqa: E731
    yield "a.csv", text.encode(), read_table
    yield "a.csv.gz", gzip.compress(text.encode()), read_table
    yield "a.parquet", (folder / "base.parquet").read_bytes(), read_table
    x = generator.normal(size=(20, 3))
    yield "a.npz", held(lambda file: np.savez(file, x=x, y=y)), lambda path: use(open_source(path))
    x = generator.integers(0, 256, (20, 5, 5))
    packed = held(lambda file: np.savez_compressed(file, x=x, y=y))
    yield "b.npz", packed, lambda path: use(open_source(path))
    yield "a.jsonl", "".join(lines).encode(), read_texts
    for ending, name in ((".png", "png"), (".jpg", "jpeg"), (".gif", "gif"), (".tif", "tiff")):
        yield f"a{ending}", images(name), read_picture
    yield "a.safetensors", (folder / "base.safetensors").read_bytes(), read_weights
    yield "a.pth", (folder / "base.pth").read_bytes(), read_weights
    source = graphs(folder / "base")
    for part in sorted(source.iterdir()):
        stem = part.stem.removeprefix("TOY_")
        yield f"{stem}.txt", part.read_bytes(), read_graphs
    made = prepare(open_source(folder / "base.csv", target="y"), seed=0).preparation
    yield "table.json", json.dumps(made.to_json()).encode(), read_preparation
    made = prepare(open_source(source), seed=0, validation=0.2).preparation
    yield "graph.json", json.dumps(made.to_json()).encode(), read_preparation
    yield "image.json", preparation_of("digits"), read_preparation


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be replaced there")
def test_every_damaged_file_is_read_or_refused_in_one_line(tmp_path, capfd):
    refused, wrong = 0, []
    for name, content, read in formats(tmp_path):
        path = tmp_path / name
        path.write_bytes(content)
        read(path)  # whole, it is read
        dice = random.Random(name)
        for number in range(16):
            path.write_bytes(mutated(content, dice))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    read(path)
            except UserError as error:
                refused += 1
                if "\n" in str(error):
                    wrong.append((name, number, str(error)))
            except Exception as error:
                wrong.append((name, number, repr(error)))
    assert not wrong
    assert refused > 100
