#!/bin/sh
# What `make package` tries in an environment that has the wheel alone: commands, types, the tour; from an empty folder.
set -eu
programs=$1
unset PYTHONPATH
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$programs/hma" --version
"$programs/hma" completion bash > completion.bash

printf 'import hma\n\nhma.HMAConfig(queue_size="many")\n' > user.py
if "$programs/mypy" --strict user.py > types.txt; then
    echo "mypy does not see the types of hma" >&2
    exit 1
fi
grep 'user.py:3.*"queue_size"' types.txt

"$programs/hma" quickstart
test -s runs/tour/tour.html
