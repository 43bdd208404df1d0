#!/bin/sh
# Writes requirements/dev.txt anew: the newest versions that pyproject.toml allows, pinned.
# No hashes and no index in it, so that it serves any index and any platform.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

"$python" -I -m venv "$work/venv"
pip="$work/venv/bin/python -m pip --disable-pip-version-check --no-input"
$pip install -q --upgrade pip
$pip install -q --group dev '.[all]'
{
    echo "# Constraints for the tools and the extras, written by scripts/lock.sh. Do not edit by hand."
    $pip freeze --all --exclude tidegate --exclude setuptools
} >"$work/dev.txt"
if grep -q ' @ ' "$work/dev.txt"; then
    echo "lock: a package did not come from an index:" >&2
    grep ' @ ' "$work/dev.txt" >&2
    exit 1
fi
mkdir -p requirements
mv "$work/dev.txt" requirements/dev.txt
echo "lock: $(grep -c '==' requirements/dev.txt) packages in requirements/dev.txt"
