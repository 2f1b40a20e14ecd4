"""Print the size of each room of ``src/hma`` in lines and files, and name the smallest files.

Run it from anywhere: ``python tools/sizes.py``.
"""

from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "hma"
SMALL = 40


def main() -> None:
    """Print a line for each room, then the sums."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    small = []
    for path in sorted(SOURCE.rglob("*.py")):
        inside = path.relative_to(SOURCE)
        room = inside.parts[0] if len(inside.parts) > 1 else "(root)"
        count = len(path.read_text(encoding="utf-8").splitlines())
        lines[room] += count
        files[room] += 1
        if count < SMALL and path.name not in ("__init__.py", "__main__.py"):
            small.append(f"{inside} ({count})")
    for room in sorted(lines):
        print(f"{room:12} {lines[room]:7,} lines {files[room]:4} files")
    print(f"{'all':12} {lines.total():7,} lines {files.total():4} files")
    rest = lines.total() - lines["paper"], files.total() - files["paper"]
    print(f"{'but paper':12} {rest[0]:7,} lines {rest[1]:4} files")
    print(f"{len(small)} files under {SMALL} lines: {', '.join(small)}")


if __name__ == "__main__":
    main()
