"""Run a command of ``hma`` and count the files of ``src/hma`` that it walks through.

``python tools/walk.py train data.csv --target y -o runs/walk --epochs 1``. A hop is a pair of
files of which one called the other, however often; a crossing is a hop between two rooms.
"""

import sys
from pathlib import Path
from types import FrameType

SOURCE = Path(__file__).resolve().parent.parent / "src" / "hma"
sys.path.insert(0, str(SOURCE.parent))


def room(path: str) -> str:
    """Return the folder of a file inside ``src/hma``, or the file itself at the root."""
    return Path(path).relative_to(SOURCE).parts[0]


def main() -> None:
    """Run the command, then print counts and every hop in the order it came."""
    hops: dict[tuple[str, str], None] = {}
    inside = str(SOURCE)

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(inside) or code.co_name[0] == "<":
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(inside):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_name != "<module>":
            pair = caller.f_code.co_filename, code.co_filename
            if pair[0] != pair[1]:
                hops.setdefault(pair)

    from hma.__main__ import main as command

    sys.argv[0] = "hma"
    sys.setprofile(profile)
    try:
        command()
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.setprofile(None)
    for caller, called in hops:
        print(f"{Path(caller).relative_to(SOURCE)} -> {Path(called).relative_to(SOURCE)}")
    files = {path for pair in hops for path in pair}
    crossings = {(room(one), room(other)) for one, other in hops if room(one) != room(other)}
    between = sum(room(one) != room(other) for one, other in hops)
    print(
        f"{len(files)} files, {len(hops)} hops, {between} of them between rooms "
        f"({len(crossings)} pairs of rooms)"
    )


if __name__ == "__main__":
    main()
