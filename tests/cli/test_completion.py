"""The lines of ``hma completion``, asked by bash as it asks them when Tab is pressed."""

import re
import shutil
import subprocess

import pytest

from hma.cli import app


@pytest.fixture(scope="module")
def script(run_hma, tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "hma.bash"
    path.write_text(run_hma("completion", "bash").out)
    return path


@pytest.fixture
def offered(script, tmp_path):
    """What bash offers for a line whose last word is not finished."""

    def ask(*words):
        quoted = " ".join(f"'{word}'" for word in words)
        lines = [
            f"source {script}",
            f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}",
            "_hma",
            'printf "%s\\n" "${COMPREPLY[@]}"',
        ]
        shell = [shutil.which("bash"), "--norc", "-u", "-c", "\n".join(lines)]
        ended = subprocess.run(shell, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert ended.stderr == ""
        return ended.stdout.split()

    return ask


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["hma", "tra"], ["train"]),
        (["hma", "re"], ["report", "remember", "results"]),
        (["hma", "train", "x.csv", "--ep"], ["--epochs"]),
        (["hma", "train", "x.csv", "--memory", ""], ["vote", "hma"]),
        (["hma", "completion", ""], ["bash", "zsh", "fish"]),
    ],
)
def test_bash_offers_commands_options_and_choices(offered, words, wanted):
    assert sorted(offered(*words)) == sorted(wanted)


def test_bash_offers_names_of_files_where_a_run_is_asked_for(offered, tmp_path):
    (tmp_path / "runs").mkdir()
    assert offered("hma", "predict", "ru") == ["runs"]


def test_bash_falls_back_to_names_of_files_where_nothing_is_offered(script):
    assert script.read_text().splitlines()[-1] == "complete -o default -F _hma hma"


def test_every_command_can_be_completed_in_every_shell(run_hma):
    commands = [name for name in app if not name.startswith("-")]
    assert "train" in commands
    for shell in ("bash", "zsh", "fish"):
        said = run_hma("completion", shell).out
        assert all(command in said for command in commands), shell


def test_zsh_finds_the_function_in_the_file_of_its_name(run_hma):
    """A file that defines one function is that function, if it has its name."""
    said = run_hma("completion", "zsh").out
    assert said.startswith("#compdef hma\n")
    assert re.findall(r"^(\w+)\(\) {$", said, re.MULTILINE)[0] == "_cyclopts_hma"


def test_another_shell_is_refused_in_one_line(refuses):
    assert "must be one of 'bash', 'zsh', 'fish', got 'csh'" in refuses("completion", "csh")
