"""A command with endless output: counts the lines of the source files below a folder, file by file.

It knows nothing of Tidegate: ``tidegate pipe`` publishes what it prints.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pause", type=float, default=0.4, help="seconds between two files")
    arguments = parser.parse_args()
    for turn in itertools.count(1):
        files = lines = 0
        for path in sorted(arguments.folder.rglob("*.py")):
            count = path.read_bytes().count(b"\n")
            files += 1
            lines += count
            print(f"{count:6d}  {path.relative_to(arguments.folder)}", flush=True)
            time.sleep(arguments.pause)
        print(f"turn {turn}: {lines} lines in {files} files", flush=True)
        time.sleep(arguments.pause)


if __name__ == "__main__":
    main()
