"""``python -m tidegate``: the same as the command ``tidegate``."""

from __future__ import annotations

__all__: list[str] = []

if __name__ == "__main__":
    try:
        from tidegate.cli import main
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    main()
