import pytest

from tidegate.errors import SnapshotConflict
from tidegate.sessions.snapshot import Loaded, Snapshot, accept_snapshot, load


@pytest.mark.parametrize(
    ("low", "offered", "head"), [(None, 0, 0), (None, 5, 9), (5, 5, 9), (5, 9, 9)]
)
def test_a_snapshot_moves_forward_up_to_the_head(low, offered, head):
    stored = None if low is None else Snapshot("old", low)
    assert accept_snapshot(stored, Snapshot("new", offered), head).state == "new"


@pytest.mark.parametrize(
    ("low", "offered", "head"), [(None, 1, 0), (5, 4, 9), (5, 10, 9), (None, -1, 9)]
)
def test_a_snapshot_behind_the_stored_one_or_ahead_of_the_head_is_refused(low, offered, head):
    stored = None if low is None else Snapshot("old", low)
    with pytest.raises(SnapshotConflict) as caught:
        accept_snapshot(stored, Snapshot("new", offered), head)
    assert (caught.value.last_event_id, caught.value.low, caught.value.head) == (
        offered,
        low or 0,
        head,
    )


@pytest.mark.parametrize(
    ("snapshot", "first", "head", "loaded"),
    [
        # Nothing stored, nothing published; nothing stored, all in the ring.
        (None, 1, 0, Loaded(None, 0, True)),
        (None, 1, 9, Loaded(None, 0, True)),
        # Nothing stored, the beginning is gone.
        (None, 4, 9, Loaded(None, 3, False)),
        # Stored within the ring, just before it, at the head.
        (Snapshot("s", 6), 4, 9, Loaded("s", 6, True)),
        (Snapshot("s", 3), 4, 9, Loaded("s", 3, True)),
        (Snapshot("s", 9), 4, 9, Loaded("s", 9, True)),
        # Stored too long ago.
        (Snapshot("s", 2), 4, 9, Loaded("s", 3, False)),
        # Without a ring.
        (Snapshot("s", 9), 10, 9, Loaded("s", 9, True)),
        (Snapshot("s", 8), 10, 9, Loaded("s", 9, False)),
    ],
)
def test_a_client_goes_on_where_the_ring_can_follow(snapshot, first, head, loaded):
    assert load(snapshot, first=first, head=head) == loaded


def test_a_snapshot_ahead_of_the_channel_cannot_be_loaded():
    with pytest.raises(SnapshotConflict):
        load(Snapshot("s", 10), first=1, head=9)
