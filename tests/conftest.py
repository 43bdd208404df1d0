"""What every test may use."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend():
    """Everything asynchronous in Tidegate stands on asyncio."""
    return "asyncio"
