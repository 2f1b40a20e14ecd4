"""Pictures, texts, graphs, numbers and yes/no labels over HTTP, as files of them are answered."""

import base64
import csv
import json
from pathlib import Path

import numpy as np
import pandas
import pytest
from small_sources import QUICK, graphs, images, texts
from starlette.testclient import TestClient

from hma.runs import RunOptions, train
from hma.runs.answers import predict
from hma.runs.source import rows_for
from hma.serve.app import app_of
from hma.serve.service import Service
from hma.training import SilentProgress

HERE = "http://127.0.0.1"


def opened(options, folder):
    run = train(options, folder / "run", compare=False, progress=SilentProgress())
    return run, TestClient(app_of(Service(run)), base_url=HERE)


def asked(client, path, **body):
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def as_json(options, new):
    """The rows of a source as a request has them."""
    if Path(new).is_dir() and options.backbone == "cnn":
        files = sorted(Path(new).rglob("*.png"))
        return {"images": [base64.b64encode(file.read_bytes()).decode() for file in files]}
    if new.endswith(".jsonl"):
        return {"texts": [json.loads(line)["text"] for line in Path(new).read_text().splitlines()]}
    return {"places": [0, 1, 5]}


@pytest.mark.parametrize(("made", "name"), [(images, "blue"), (texts, "strange"), (graphs, "2")])
def test_rows_of_any_kind_are_answered_as_their_files_are_and_taught(tmp_path, made, name):
    options, new = made(tmp_path)
    run, client = opened(options, tmp_path)
    body = as_json(options, new)
    (field,) = body
    with client:
        about = client.get("/run").json()
        assert (about["field"], about["columns"]) == (field, [])
        before = asked(client, "/predict", **body)
        source = options.source if field == "places" else new
        rows = rows_for(run, source, labelled=False)
        list(predict(run, rows, tmp_path / "said.csv"))
        with open(tmp_path / "said.csv") as file:
            said = list(csv.DictReader(file))
        if field == "places":
            said = [said[place] for place in body["places"]]
        assert len(said) == len(before["predictions"])
        for one, wanted in zip(before["predictions"], said, strict=True):
            assert one["label"] == wanted["label"]
            assert one["probability"] == pytest.approx(float(wanted["probability"]), abs=2e-6)
        labels = [name] * len(said)
        told = asked(client, "/remember", **body, labels=labels, new_classes=True, yes=True)
        assert (told["added"], told["classes"]) == (len(said), [name])
        found = asked(client, "/explain", **{field: body[field][:1]})
        taught = next(one for one in found["voters"] if one["kind"] == "taught row")
        assert taught["label"] == name
        assert (taught["picture"] or "").startswith("data:image/png") == (field == "images")
        assert found["prediction"]["probabilities"][name] > 0
        asked(client, "/restore", version=0, now=1)
        assert asked(client, "/predict", **body)["predictions"] == before["predictions"]


def test_files_that_are_no_pictures_are_refused(tmp_path):
    options, _ = images(tmp_path)
    _, client = opened(options, tmp_path)
    text = base64.b64encode(b"no picture").decode()
    with client:
        for image, said in ((text, "image 0 of the request cannot be read"), ("?", "in base64")):
            reply = client.post("/predict", json={"images": [image]})
            assert reply.status_code == 400
            assert said in reply.json()["error"]
        assert client.post("/predict", json={"places": [0]}).status_code == 200


@pytest.mark.parametrize(
    ("target", "task", "label"),
    [
        (("price",), "regression", 250),
        (("warm", "large"), None, {"warm": "yes", "large": None}),
    ],
)
def test_numbers_and_yes_no_labels_are_answered_and_taught(tmp_path, target, task, label):
    draw = np.random.default_rng(0)
    frame = pandas.DataFrame(draw.normal(size=(60, 3)), columns=[*"abc"]).round(4)
    frame["price"] = (100 + 10 * frame.a).round(2)
    frame["warm"] = (frame.a > 0).map({True: "yes", False: "no"})
    frame["large"] = (frame.b > 0).map({True: "yes", False: "no"})
    frame[[*"abc", *target]].to_csv(tmp_path / "rows.csv", index=False)
    options = RunOptions(
        source=str(tmp_path / "rows.csv"), target=target, task=task, backbone="mlp", recipe=QUICK
    )
    _, client = opened(options, tmp_path)
    row = {"a": 0.1, "b": -0.3, "c": 2.0}
    with client:
        before = asked(client, "/predict", rows=[row])["predictions"][0]
        assert ("number" in before) == (task == "regression")
        assert asked(client, "/remember", rows=[row], labels=[label])["added"] == 1
        found = asked(client, "/explain", rows=[row], top=100)
        taught = next(one for one in found["voters"] if one["kind"] == "taught row")
        assert taught["label"] == ("250" if task else "yes to warm")
        after = found["prediction"]
        if task:
            assert after["number"] > before["number"]
        else:
            assert after["probabilities"]["warm"] > before["probabilities"]["warm"]
            wrong = client.post("/remember", json={"rows": [row], "labels": ["yes"]})
            assert "must be an object of 'warm', 'large'" in wrong.json()["error"]
        asked(client, "/restore", version=0)
        assert asked(client, "/predict", rows=[row])["predictions"][0] == before
