"""``hma completion``: the lines that let a shell complete commands and options."""

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print what lets a shell complete commands, options and their choices.

    bash: ``hma completion bash >> ~/.bash_completion``; zsh: into a file _cyclopts_hma in
    a folder of $fpath; fish: ``hma completion fish > ~/.config/fish/completions/hma.fish``. A new
    shell knows it.

    Parameters
    ----------
    shell
        Which shell.
    """
    from hma.cli import app

    print(app.generate_completion(shell=shell).rstrip("\n"))
    if shell == "bash":  # where it has nothing to offer, as for SOURCE: names of files
        print("complete -o default -F _hma hma")
