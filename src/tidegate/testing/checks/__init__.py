"""The checks of `tidegate.testing.check_broker`, one subject in each module."""

__all__: list[str] = []
