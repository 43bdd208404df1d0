"""Decoder: the standard's rules, under any cutting of the bytes, within its bounds."""

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sse import whatwg
from tidegate.errors import SseDecoderClosed, SseError, SseLimitExceeded
from tidegate.sse import Decoder, ServerSentEvent
from tidegate.sse.decoder import DEFAULT_MAX_BYTES, MAX_RETRY_DIGITS

# Ten thousand examples are many on a machine that is busy with something else.
pytestmark = pytest.mark.timeout(300)

CASES = json.loads(Path(__file__).with_name("sse_conformance_cases.json").read_text("utf-8"))
STREAMS = [pytest.param(case, id=case["name"]) for case in CASES["cases"]]
RETRIES = [pytest.param(case, id=repr(bytes.fromhex(case["line_hex"]))) for case in CASES["retry"]]

# What means something to a parser, whole or in halves, and what only looks as if it did.
TOKENS = [
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n"),
    *(b":", b": ", b" ", b"\0", b"\t", b"0", b"7", b"-", b"x"),
    *(b"data", b"data:", b"data: ", b"data: x\n", b"data:y\r", b"data: z\r\n", b"data\n"),
    *(b"id", b"id:", b"id: 1\n", b"id: \r\n", b"id\n", b"id: 2\0\n"),
    *(b"event: a\n", b"event:", b"ev", b"retry: 30\n", b"retry:"),
    *(b": hb\n", b"foo: bar\n", b"Data: ", b"data: x\n\n"),
    *(b"\xef\xbb\xbf", b"\xef", b"\xbb", b"\xbf"),
    *(b"\xc3\xa9", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80", b"\xe2\x82", b"\xf0\x9f", b"\x80"),
    *(b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
    *(b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b", b"\x0c", b"\x1c"),
]


def drawn_chunks(drawn):
    """Each byte names a token, and where in front of it or inside it a chunk ends, if one does."""
    chunks = [b""]
    for byte in drawn:
        place, index = divmod(byte, len(TOKENS))
        token = TOKENS[index]
        if 0 < place <= len(token):
            chunks[-1] += token[: place - 1]
            chunks.append(token[place - 1 :])
        else:
            chunks[-1] += token
    return chunks


# Drawn as one bytestring, which gives several times as many examples a second as lists do.
CHUNKS = st.binary(max_size=24).map(drawn_chunks)


def bytewise(stream):
    return [stream[at : at + 1] for at in range(len(stream))]


def decode(chunks, **options):
    """Everything that comes of a stream: events, id, retry, and the bound that was passed."""
    decoder = Decoder(**options)
    events = []
    failure = None
    for chunk in [*chunks, b""]:  # the last one asks whether a bound was passed
        try:
            events += decoder.feed(chunk)
        except SseLimitExceeded as error:
            failure = (error.what, error.limit)
            break
    return events, decoder.last_event_id, decoder.retry, failure


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_gives_the_events_a_browser_fires(case):
    chunks = [bytes.fromhex(chunk) for chunk in case["chunks_hex"]]
    stream = b"".join(chunks)
    expected = [tuple(row) for row in case["expect"]]
    assert decode(chunks)[0] == expected
    assert decode([stream])[0] == expected
    assert decode(bytewise(stream))[0] == expected
    for at in range(len(stream)):
        assert decode([stream[:at], stream[at:]])[0] == expected
    assert whatwg.parse(stream).events == expected


@pytest.mark.parametrize("case", RETRIES)
def test_retry_takes_ascii_digits_only(case):
    line = bytes.fromhex(case["line_hex"])
    decoder = Decoder()
    assert decoder.retry is None
    assert decoder.feed(line + b"\n") == []
    assert decoder.retry == case["expect_ms"]
    assert whatwg.parse(line + b"\n").reconnection_time == case["expect_ms"]


def test_there_are_as_many_cases_as_there_were():
    assert (len(STREAMS), len(RETRIES)) == (24, 9)


@settings(max_examples=10_000, deadline=None)
@given(CHUNKS)
def test_cutting_the_bytes_otherwise_changes_nothing(chunks):
    stream = b"".join(chunks)
    whole = decode([stream])
    assert decode(chunks) == whole
    assert decode(bytewise(stream)) == whole


@settings(max_examples=2_000, deadline=None)
@given(CHUNKS)
def test_it_agrees_with_the_standard_read_step_by_step(chunks):
    source = whatwg.parse(b"".join(chunks))
    events, last, retry, failure = decode(chunks)
    assert events == source.events
    assert last == source.last_event_id
    assert retry == source.reconnection_time
    assert failure is None


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_it_agrees_with_the_standard_on_any_bytes(stream):
    source = whatwg.parse(stream)
    events, last, retry, _ = decode(bytewise(stream))
    assert (events, last, retry) == (source.events, source.last_event_id, source.reconnection_time)


def bounded(stream, max_line_bytes, max_event_bytes):
    """Where a bound is passed, and the stream up to there: a plain count, line after line."""
    data, done, at = None, 0, 0
    while True:
        ends = [end for end in (stream.find(b"\r", at), stream.find(b"\n", at)) if end >= 0]
        end = min(ends, default=len(stream))
        line = stream[at:end]
        if len(line) > max_line_bytes:
            return stream[:done], ("line", max_line_bytes)
        if not ends:
            return stream, None
        at = end + (2 if stream[end : end + 2] == b"\r\n" else 1)
        if done == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            data = None
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            data = value if data is None else data + b"\n" + value
            if len(data) > max_event_bytes:
                return stream[:done], ("event", max_event_bytes)
        done = at


@settings(max_examples=1_000, deadline=None)
@given(CHUNKS, st.integers(1, 12), st.integers(1, 12))
@example([b"data: x\n\n", b"data: 123456\n", b"data: 1234567890123456789"], 16, 5)
def test_a_bound_is_passed_at_the_same_byte_however_they_are_cut(cut_as_drawn, line, event):
    stream = b"".join(cut_as_drawn)
    readable, failure = bounded(stream, line, event)
    source = whatwg.parse(readable)
    for chunks in ([stream], cut_as_drawn, bytewise(stream)):
        events, last, _, failed = decode(chunks, max_line_bytes=line, max_event_bytes=event)
        assert failed == failure
        assert events == source.events
        assert last == source.last_event_id


def test_an_event_comes_with_its_last_byte_also_if_that_is_a_cr():
    decoder = Decoder()
    assert decoder.feed(b"data: a\r") == []
    assert decoder.feed(b"\r") == [("message", "a", "")]
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\ndata: b\r\n\r") == [("message", "b", "")]
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: c\n\n") == [("message", "c", "")]


def test_an_lf_that_belongs_to_a_cr_is_no_blank_line():
    assert decode([b"data: a\r", b"\n", b"data: b\n\n"])[0] == [("message", "a\nb", "")]
    assert decode([b"data: a\r", b"", b"\n", b"data: b\n\n"])[0] == [("message", "a\nb", "")]
    assert decode([b"data: a\n", b"\n", b"data: b\n\n"])[0] == [
        ("message", "a", ""),
        ("message", "b", ""),
    ]


def test_an_event_names_its_fields():
    [event] = Decoder().feed(b"id: 7\nevent: token\ndata: x\n\n")
    assert type(event) is ServerSentEvent
    assert (event.type, event.data, event.id) == ("token", "x", "7")
    assert ServerSentEvent() == ("message", "", "")


def test_any_bytes_like_chunk_will_do():
    frame = b"id: 1\ndata: x\n\n"
    for chunk in (frame, bytearray(frame), memoryview(frame)):
        assert Decoder().feed(chunk) == [("message", "x", "1")]


@pytest.mark.parametrize("chunk", ["data: x\n\n", 12, None])
def test_a_chunk_that_is_not_bytes_is_a_type_error(chunk):
    with pytest.raises(TypeError, match="bytes-like"):
        Decoder().feed(chunk)


def test_the_id_to_resume_from_is_in_force_until_the_stream_names_another():
    decoder = Decoder(last_event_id="41")
    assert decoder.last_event_id == "41"
    assert decoder.feed(b"event: hello\ndata: x\n\n") == [("hello", "x", "41")]
    assert decoder.feed(b"id: 42\ndata: y\n\n") == [("message", "y", "42")]
    assert decoder.last_event_id == "42"
    decoder.feed(b"id\n\n")
    assert decoder.last_event_id == ""


def test_last_event_id_moves_at_the_blank_line_also_without_data():
    decoder = Decoder(last_event_id="1")
    decoder.feed(b"id: 2\n")
    assert decoder.last_event_id == "1"
    assert decoder.feed(b"\n") == []
    assert decoder.last_event_id == "2"


def test_close_drops_an_unfinished_event_and_its_id():
    decoder = Decoder()
    decoder.feed(b"id: 1\ndata: a\n\nretry: 5\nid: 2\ndata: b\nda")
    decoder.close()
    assert decoder.last_event_id == "1"
    assert decoder.retry == 5
    decoder.close()
    assert decoder.last_event_id == "1"


@pytest.mark.parametrize("chunk", [b"\n", b""])
def test_feeding_a_closed_decoder_is_an_error(chunk):
    decoder = Decoder()
    decoder.close()
    for _ in range(2):
        with pytest.raises(
            SseDecoderClosed, match=r"^feed\(\) after close\(\); make a new"
        ) as error:
            decoder.feed(chunk)
        assert isinstance(error.value, SseError)
        assert isinstance(error.value, RuntimeError)


def test_retry_counts_from_its_line_on_and_a_bad_one_changes_nothing():
    decoder = Decoder()
    decoder.feed(b"retry: 5\n")
    assert decoder.retry == 5
    decoder.feed(b"retry: 6x\nretry\nretry:\n")
    assert decoder.retry == 5
    decoder.feed(b"retry: 0\n")
    assert decoder.retry == 0


def test_a_number_no_one_could_wait_for_is_ignored():
    decoder = Decoder()
    decoder.feed(b"retry: " + b"0" * 5000 + b"7\n")
    assert decoder.retry == 7
    decoder.feed(b"retry: " + b"9" * 100_000 + b"\n")
    assert decoder.retry == 7
    decoder.feed(b"retry: 1" + b"0" * MAX_RETRY_DIGITS + b"\n")
    assert decoder.retry == 7
    decoder.feed(b"retry: " + b"9" * MAX_RETRY_DIGITS + b"\n")
    assert decoder.retry == 10**MAX_RETRY_DIGITS - 1
    assert decoder.retry / 1000 > 1e296


@pytest.mark.parametrize("line", [b"data: 45678", b": comment89", b"unknown: 01", b"id: 5678901"])
def test_a_line_of_the_bound_passes_and_one_byte_more_does_not(line):
    assert len(line) == 11
    assert decode([line + b"\n\n"], max_line_bytes=11)[3] is None
    for end in (b"\n", b"\r", b"\r\n", b""):
        with pytest.raises(SseLimitExceeded) as error:
            Decoder(max_line_bytes=10).feed(line + end)
        assert (error.value.what, error.value.limit) == ("line", 10)


def test_data_of_the_bound_passes_and_one_byte_more_does_not():
    euro = "data: €\ndata:12\ndata\n\n".encode()  # 3 + LF + 2 + LF
    assert Decoder(max_event_bytes=7).feed(euro) == [("message", "€\n12\n", "")]
    decoder = Decoder(max_event_bytes=6)
    with pytest.raises(SseLimitExceeded) as error:
        decoder.feed(euro)
    assert (error.value.what, error.value.limit) == ("event", 6)


def test_the_bound_of_an_event_starts_anew_with_each_event():
    assert len(decode([b"data: 12345\n\n" * 1000], max_event_bytes=5)[0]) == 1000


def test_comments_and_unknown_fields_do_not_count_as_data():
    stream = b": heartbeat\nfoo: bar\nevent: longer than eight\n" * 100 + b"data: x\n\n"
    assert decode([stream], max_event_bytes=8)[3] is None


@pytest.mark.parametrize("over", [b"data: 1234567890123", b"data: 1234567\ndata: 1\n"])
def test_over_a_bound_it_raises_and_again_at_each_later_feed(over):
    decoder = Decoder(max_line_bytes=16, max_event_bytes=8)
    for chunk in (over, b"\n\ndata: x\n\n", b""):
        with pytest.raises(SseLimitExceeded):
            decoder.feed(chunk)
    decoder.close()
    with pytest.raises(SseLimitExceeded):
        decoder.feed(b"")


@pytest.mark.parametrize("over", [b"data: 1234567890123", b"data: 1234567\ndata: 1\n"])
def test_events_complete_before_the_bound_are_returned_before_it_raises(over):
    decoder = Decoder(max_line_bytes=16, max_event_bytes=8)
    events = decoder.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\n" + over + b"\n\nid: 4\n\n")
    assert events == [("message", "a", "1"), ("message", "b", "2")]
    assert decoder.last_event_id == "2"
    with pytest.raises(SseLimitExceeded):
        decoder.feed(b"")
    assert decoder.last_event_id == "2"


def test_the_bounds_are_16_mib_and_none_is_no_bound():
    line = b"data: " + b"x" * DEFAULT_MAX_BYTES
    with pytest.raises(SseLimitExceeded) as error:
        Decoder().feed(line)
    assert (error.value.what, error.value.limit) == ("line", 16 * 1024 * 1024)
    with pytest.raises(SseLimitExceeded) as error:
        Decoder(max_line_bytes=None).feed(line + b"y\n")
    assert (error.value.what, error.value.limit) == ("event", 16 * 1024 * 1024)
    [event] = Decoder(max_line_bytes=None, max_event_bytes=None).feed(line + b"y\n\n")
    assert len(event.data) == DEFAULT_MAX_BYTES + 1


@pytest.mark.parametrize("bound", ["max_line_bytes", "max_event_bytes"])
def test_a_bound_below_one_byte_is_refused(bound):
    for value in (0, -1):
        with pytest.raises(ValueError, match=f"at least 1 byte, or None for no bound, not {value}"):
            Decoder(**{bound: value})


def test_many_short_data_lines_take_no_more_memory_than_their_bytes():
    decoder = Decoder()
    chunk = b"data:ab\n" * 1000
    tracemalloc.start()
    try:
        for _ in range(50):
            assert decoder.feed(chunk) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * 50 * 1000 * len("ab\n")
    assert len(decoder.feed(b"\n")[0].data) == 50 * 1000 * 3 - 1


def test_a_long_line_in_single_bytes_is_put_together_again():
    line = b"data: " + bytes(range(0x20, 0x7F)) * 1000
    decoder = Decoder()
    assert all(decoder.feed(byte) == [] for byte in bytewise(line))
    assert decoder.feed(b"\n\n") == [("message", line[6:].decode(), "")]
