"""``hma train --help``: what most users need stands first."""

import re

from hma.cli.train import COMMON_OF_TRAIN


def panels(text):
    """Return the options of each panel, in order; a line begins where its option does."""
    found, name = {}, None
    for line in text.splitlines():
        if title := re.match(r"╭─ (.+?) ─", line):
            name = title[1]
            found[name] = []
        elif option := re.match(r"│ (?:[* ]  )?(?:SOURCE )?(--[a-z-]+)", line):
            found[name].append(option[1])
    return found


def test_the_ten_common_options_come_first_and_only_once(run_hma, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    found = panels(run_hma("train", "--help").out)
    assert next(iter(found)) == "Common options"
    assert found["Common options"] == list(COMMON_OF_TRAIN)
    assert len(COMMON_OF_TRAIN) == 11  # SOURCE and ten options
    rest = [name for title, names in found.items() if title != "Common options" for name in names]
    assert not set(rest) & set(COMMON_OF_TRAIN)
    wanted = {"--memory-size", "--hma-queue-size", "--warmup-steps", "--validation", "--compare"}
    assert wanted <= set(rest)


def test_a_common_option_means_what_its_group_of_options_says(refuses):
    said = refuses("train", "digits", "--epochs", "0", "--balance", "none", "--steps", "0")
    assert "--epochs must be at least 1, got 0" in said
    assert "--steps must be at least 1, got 0" in said
