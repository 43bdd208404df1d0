import dataclasses

import pytest

from tidegate.channel import ChannelStatistics, SubscriptionStatistics


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (
            ChannelStatistics,
            [
                "subscribers",
                "ring_events",
                "ring_bytes",
                "last_event_id",
                "published",
                "evicted",
                "warned",
            ],
        ),
        (
            SubscriptionStatistics,
            ["queued_frames", "queued_bytes", "delivered", "warned", "evicted"],
        ),
    ],
)
def test_statistics_are_frozen_and_have_their_fields(cls, names):
    assert [field.name for field in dataclasses.fields(cls)] == names
    made = cls(*range(len(names)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, names[0], 5)
