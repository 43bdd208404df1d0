"""What a publisher is given and what it gives back are plain values."""

import msgspec
import pytest

from tidegate.client import Published, PublishItem


def test_an_item_needs_a_channel_and_a_type_alone():
    item = PublishItem("a", "tick")
    assert msgspec.structs.asdict(item) == {
        "channel": "a",
        "type": "tick",
        "data": None,
        "idempotency_key": None,
        "version": None,
        "tags": None,
        "meta": None,
    }
    with pytest.raises(TypeError):
        PublishItem(channel="a", type="b", idempotencyKey="k")
    with pytest.raises(AttributeError):
        item.type = "x"


def test_what_was_published_is_compared_by_value():
    assert Published("a", "p", "e") == Published("a", "p", "e", duplicate=False, suppressed=False)
