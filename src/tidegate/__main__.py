"""``python -m tidegate``: the same as the command ``tidegate``."""

from __future__ import annotations

from tidegate.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
