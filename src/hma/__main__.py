"""The command ``hma``: one clear line for a user's mistake, never a traceback."""

import sys


def main() -> None:
    """Run the command line; exit with 2 where the user can put something right."""
    try:
        from hma.cli import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("hma"):
            raise
        sys.exit(_refuse(f"the command line needs {error.name}: pip install 'hma-torch[cli]'"))
    except KeyboardInterrupt:
        _refuse("interrupted before anything was done")
        sys.exit(130)
    run()


def _refuse(message: str) -> int:
    print(f"hma: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
