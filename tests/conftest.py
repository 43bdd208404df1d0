"""What every test may use."""

import pytest
from hypothesis import HealthCheck, settings

# How fast inputs come says how busy the machine is, not how good they are.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


@pytest.fixture(scope="session")
def anyio_backend():
    """Everything asynchronous in Tidegate stands on asyncio."""
    return "asyncio"
