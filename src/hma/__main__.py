"""The command ``hma``: one clear line for a user's mistake, never a traceback."""

import sys

from hma.extras import importing, install_command


def main() -> None:
    """Run the command line; exit with 2 where the user can put something right."""
    try:
        with importing():
            from hma.cli import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("hma"):
            raise
        print(
            f"hma: the command line needs {error.name}: {install_command('cli')}", file=sys.stderr
        )
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
