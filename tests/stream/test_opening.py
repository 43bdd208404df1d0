import pytest

from tidegate.channel import Channel
from tidegate.stream.cursor import Cursor
from tidegate.stream.opening import (
    ChannelOpener,
    Opened,
    OpeningRefused,
    WireOpener,
    WireSource,
)


def opener_of(channel, cursor=Cursor(), *, with_epoch=False, max_queued=None):  # noqa: B008
    return ChannelOpener(channel, cursor, with_epoch=with_epoch, max_queued=max_queued)


async def test_a_channel_is_subscribed_when_it_is_opened():
    channel = Channel("c", epoch="e")
    channel.publish("a")
    opener = opener_of(channel)
    assert opener.headers == {"tidegate-epoch": "e"}
    assert channel.statistics().subscribers == 0
    opened = await opener.open()
    assert channel.statistics().subscribers == 1
    assert opened.headers == {"last-event-id": "1"}
    opened.feed.abort()
    assert channel.statistics().subscribers == 0


async def test_the_place_of_the_start_has_the_form_of_the_ids():
    opened = await opener_of(Channel("c", epoch="e"), with_epoch=True).open()
    assert opened.headers == {"last-event-id": "e-0"}
    opened.feed.abort()


async def test_a_client_that_names_its_place_is_not_told_one():
    opened = await opener_of(Channel("c"), Cursor(0)).open()
    assert opened.headers == {}
    opened.feed.abort()


async def test_over_the_limit_the_opening_is_refused():
    channel = Channel("c", max_subscribers=1)
    async with channel.subscribe():
        with pytest.raises(OpeningRefused) as caught:
            await opener_of(channel).open()
    assert caught.value.kind == "subscriber_limit"


def test_an_epoch_that_cannot_stand_in_an_id_is_refused():
    with pytest.raises(ValueError, match="epoch"):
        opener_of(Channel(epoch="a b"))


async def test_a_source_that_subscribes_by_itself_gets_cursor_and_cap():
    asked = []

    class Source:
        drain = None

        async def open_wire(self, cursor, *, max_queued):
            asked.append((cursor, max_queued))
            return Opened(feed=None)

    assert isinstance(Source(), WireSource)
    assert not isinstance(object(), WireSource)
    await WireOpener(Source(), "c", 16).open()
    assert asked == [("c", 16)]
