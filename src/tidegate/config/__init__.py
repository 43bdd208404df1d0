"""The configuration: ``tidegate.toml``, the environment and flags, as typed settings."""

from __future__ import annotations

from tidegate.config.load import load_config
from tidegate.config.sections import Config, GatewayConfig, ServerConfig

__all__ = ["Config", "GatewayConfig", "ServerConfig", "load_config"]
