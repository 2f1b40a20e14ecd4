"""``python -m benchmarks`` as a person runs it."""

import json

import pytest

from benchmarks.__main__ import main


def test_a_record_is_never_overwritten_silently(tmp_path, capsys):
    record = tmp_path / "bench.json"
    record.write_text("mine")
    with pytest.raises(SystemExit, match="2"):
        main(["--quick", "-o", str(record)])
    assert "exists already; pass --overwrite" in capsys.readouterr().err
    assert record.read_text() == "mine"


def test_it_prints_tables_and_writes_its_record(tmp_path, capsys):
    record = tmp_path / "bench.json"
    main(["--quick", "--only", "frozen", "-o", str(record)])
    printed = capsys.readouterr().out
    assert "Training step with and without the momentum encoder" in printed
    assert json.loads(record.read_text())["quick"] is True


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "frozn"], "did you mean 'frozen'"),
        (["--threads", "0"], "threads must be at least 1 or None, got 0"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(options, said, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--quick", *options, "-o", str(tmp_path / "bench.json")])
    assert said in capsys.readouterr().err
