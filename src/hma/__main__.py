"""The command ``hma``: one clear line for a user's mistake, never a traceback."""

import sys

from hma import loading


def main() -> None:
    """Run the command line; exit with 2 where the user can put something right."""
    loading.begin()
    try:
        from hma.cli import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("hma"):
            raise
        sys.exit(_refuse(f"the command line needs {error.name}: pip install 'hma-torch[cli]'"))
    finally:
        loading.end()
    run()


def _refuse(message: str) -> int:
    print(f"hma: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
