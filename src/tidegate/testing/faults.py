"""What a suite may do to a broker's store from outside."""

from __future__ import annotations

__all__ = ["BrokerFaults"]


class BrokerFaults:
    """How to hurt the store that a broker stands on. Derive from it, and define what you can.

    The suite finds out which methods a class defines, and leaves out the checks that need
    others. Each method returns when the harm is done.

    Attributes:
        offline: `checkpoint` and `lose_tail` are called while no broker runs on the store.
    """

    offline: bool = False

    async def kill(self) -> None:
        """End the store at once, as ``kill -9`` does; all that it acknowledged must survive."""
        raise NotImplementedError

    async def restart(self) -> None:
        """Start the store again after `kill`; return when it can be reached."""
        raise NotImplementedError

    async def freeze(self) -> None:
        """Keep the store from answering, without closing connections."""
        raise NotImplementedError

    async def thaw(self) -> None:
        """Let it go on after `freeze`."""
        raise NotImplementedError

    async def checkpoint(self) -> None:
        """Remember the store's present state, as a replica or a backup would."""
        raise NotImplementedError

    async def lose_tail(self) -> None:
        """Go back to what `checkpoint` remembered, as a promoted replica or a backup does."""
        raise NotImplementedError

    async def trim(self, channel: str, keep: int) -> None:
        """Drop all events of a channel's history but the ``keep`` newest ones."""
        raise NotImplementedError

    async def forget(self, channel: str) -> None:
        """Drop everything that the store knows of a channel, as a flush or an eviction does."""
        raise NotImplementedError

    def can(self, *methods: str) -> bool:
        """Tell whether all of these are defined."""
        return all(
            getattr(type(self), method) is not getattr(BrokerFaults, method) for method in methods
        )
