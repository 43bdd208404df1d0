"""Each event once, in order, or a resync: whatever the store and the messages do.

A failing seed is run again with ``TIDEGATE_CHAOS_SEEDS=7 pytest tests/chaos``; more of them with
``TIDEGATE_CHAOS_SEEDS=100-200``.
"""

import os
import random

import pytest

from tests.chaos.gateway_chaos import KEPT, Chaos, bad_relay
from tidegate.gateway import local
from tidegate.gateway.continuity import Chain
from tidegate.gateway.member import Member


def seeds(default):
    first, _, last = os.environ.get("TIDEGATE_CHAOS_SEEDS", default).partition("-")
    return range(int(first), int(last or first) + 1)


pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.mark.parametrize("seed", seeds("0-19"))
def test_no_client_has_a_silent_gap_on_a_bad_day(seed):
    outcome = Chaos(seed).run()
    assert not outcome.problems, str(outcome)
    assert outcome.publishes >= 2000
    # A day without one of them would prove nothing.
    happened = outcome.faults
    assert all(happened[kind] for kind in ("trimmed", "tails_lost", "lost", "refused")), happened
    assert outcome.resyncs


@pytest.mark.parametrize("seed", seeds("20-24"))
def test_no_client_has_a_silent_gap_where_nodes_remember_little(seed, monkeypatch):
    """With a ring of a few events all that a client missed comes from the history."""
    monkeypatch.setattr(local, "RING_EVENTS", 4)
    outcome = Chaos(seed).run()
    assert not outcome.problems, str(outcome)


@pytest.mark.parametrize("seed", seeds("0-5"))
def test_lost_late_doubled_and_reordered_messages_are_healed_unnoticed(seed):
    outcome = Chaos(seed, faults=bad_relay(), names=KEPT).run()
    assert not outcome.problems, str(outcome)
    assert outcome.resyncs == {}, str(outcome)
    assert outcome.healed > 100, str(outcome)


def test_a_seed_is_the_same_run_again():
    first, again, other = Chaos(7).run(), Chaos(7).run(), Chaos(8).run()
    assert first.digest == again.digest
    assert first == again
    assert first.digest != other.digest


# -- faults in the gateway itself are caught -----------------------------------------------------


def caught(seed, **options):
    return Chaos(seed, settle_seconds=0.0, **options).run().problems


@pytest.mark.parametrize("seed", range(3))
def test_positions_without_a_random_part_are_caught(seed):
    rng = random.Random(seed)
    problems = caught(
        seed, random_bytes=lambda many: bytes(many) if many == 4 else rng.randbytes(many)
    )
    # The chain alone is deceived: only who knows what truly happened sees it.
    assert any("a silent gap" in problem for problem in problems)
    assert not any("as the one before it" in problem for problem in problems)


@pytest.mark.parametrize("seed", range(3))
def test_a_ring_that_is_kept_after_a_resync_is_caught(seed, monkeypatch):
    reset = Chain.reset

    def keep(self, head):
        if not self.epoch:
            reset(self, head)
        self.epoch, self.head = head.epoch, head.position

    monkeypatch.setattr(Chain, "reset", keep)
    assert any("a silent gap" in problem for problem in caught(seed))


@pytest.mark.parametrize("seed", range(3))
def test_a_join_that_checks_nothing_is_caught(seed, monkeypatch):
    monkeypatch.setattr(Member, "_next", Member._join)
    assert any("a silent gap" in problem for problem in caught(seed))


@pytest.mark.parametrize("seed", range(3))
def test_messages_that_are_believed_unlinked_are_caught(seed, monkeypatch):
    """Dropping what sorts before the head, as if it were old, hides a lost tail."""
    offer = Chain.offer

    def believe(self, item):
        if item.epoch == self.epoch and item.prev != self.head and item.position > self.head:
            item.prev = self.head
        return offer(self, item)

    monkeypatch.setattr(Chain, "offer", believe)
    assert any("a silent gap" in problem for problem in caught(seed))
