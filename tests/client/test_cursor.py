"""A cursor is read as written, moves forward only, and refuses what no header carries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.client.cursor import MAX_NUMBER, Cursor, epoch_of

epochs = st.text("abcdefXYZ019._~-", min_size=1, max_size=20).filter(lambda e: not e.isdigit())
numbers = st.integers(0, MAX_NUMBER)


def test_a_plain_number_takes_the_epoch_beside_it():
    assert Cursor.read("5", "e1") == Cursor("5", "e1", 5, plain=True)
    assert Cursor.read("007") == Cursor("007", None, 7, plain=True)


@given(epochs, numbers)
def test_an_epoch_in_the_id_is_read_and_one_beside_it_ignored(epoch, number):
    cursor = Cursor.read(f"{epoch}-{number}", "other")
    assert cursor == Cursor(f"{epoch}-{number}", epoch, number)


@pytest.mark.parametrize(
    "text", ["abc", "e1-", "-", "-5", "e1-x", "9" * 17, "e1-" + "9" * 17, str(MAX_NUMBER + 1)]
)
def test_anything_else_is_opaque(text):
    assert Cursor.read(text) == Cursor(text)


def test_a_number_with_an_epoch_above_the_highest_is_opaque():
    assert Cursor.read(f"e-{MAX_NUMBER + 1}") == Cursor(f"e-{MAX_NUMBER + 1}")


@pytest.mark.parametrize("text", ["", " ", "a b", "é", "a\r\nb", "a\0", "x" * 4097, "\u0661"])
def test_what_no_header_carries_is_no_cursor(text):
    assert Cursor.read(text) is None


@given(st.lists(numbers, min_size=1, max_size=20))
def test_within_an_epoch_it_only_moves_forward(ids):
    held = None
    for number in ids:
        held = Cursor.read(f"e-{number}").after(held)
    assert held.number == max(ids)


@given(numbers, numbers)
def test_a_new_epoch_replaces_the_old_one(first, second):
    old, new = Cursor.read(f"a-{first}"), Cursor.read(f"b-{second}")
    assert new.after(old) is new


def test_a_plain_number_and_one_with_the_same_epoch_are_compared():
    plain, long = Cursor.read("5", "e"), Cursor.read("e-4")
    assert long.after(plain) is plain
    assert Cursor.read("e-6").after(plain) == Cursor.read("e-6")


def test_opaque_cursors_are_the_servers_word():
    first, second = Cursor.read("zzz"), Cursor.read("aaa")
    assert second.after(first) is second
    assert Cursor.read("e-1").after(first) == Cursor.read("e-1")
    assert first.after(Cursor.read("e-9")) is first


def test_a_caller_gives_a_number_a_text_or_nothing():
    assert Cursor.given(None, "e1") is None
    assert Cursor.given(0) == Cursor("0", None, 0, plain=True)
    assert Cursor.given(7, "e1") == Cursor("7", "e1", 7, plain=True)
    assert Cursor.given("7", "e1") == Cursor("7", "e1", 7, plain=True)
    assert Cursor.given("e1-7") == Cursor("e1-7", "e1", 7)
    assert Cursor.given("e1-7", "e1") == Cursor("e1-7", "e1", 7)
    assert Cursor.given("opaque") == Cursor("opaque")


@pytest.mark.parametrize("bad", [True, 1.0, b"5", []])
def test_another_type_is_refused(bad):
    with pytest.raises(TypeError, match="last_event_id is an int or a str"):
        Cursor.given(bad)


def test_an_epoch_of_another_type_is_refused():
    with pytest.raises(TypeError, match="epoch is a str, not int"):
        Cursor.given(1, 5)


@pytest.mark.parametrize(
    ("last_event_id", "epoch", "message"),
    [
        (-1, None, "0 to 2\\^53-1, not -1"),
        (MAX_NUMBER + 1, None, "0 to 2"),
        ("", None, "a cursor is 1 to 4096"),
        ("a b", None, "a cursor is 1 to 4096"),
        (1, "", "an epoch is 1 to 128"),
        (1, "a b", "an epoch is 1 to 128"),
        (1, "x" * 129, "an epoch is 1 to 128"),
        ("e1-7", "e2", "this cursor carries its own"),
        ("opaque", "e2", "this cursor carries its own"),
    ],
)
def test_what_is_out_of_range_is_refused(last_event_id, epoch, message):
    with pytest.raises(ValueError, match=message):
        Cursor.given(last_event_id, epoch)


@pytest.mark.parametrize("epoch", ["e1", "A-Z.a_z~0-9", "x" * 128])
def test_an_epoch_of_a_response_is_kept(epoch):
    assert epoch_of(epoch) == epoch


@pytest.mark.parametrize("odd", [None, "", "x" * 129, "a b", "é", "\u20ac", "a\n", "a,b", "\x00"])
def test_what_no_request_could_carry_back_is_no_epoch(odd):
    assert epoch_of(odd) is None


@pytest.mark.parametrize("text", ["5", "e1-5", "1ABCDE.0", "x" * 8192])
def test_the_cursor_of_channels_is_never_parsed(text):
    cursor = Cursor.opaque(text, "e9")
    assert cursor == Cursor(text)
    assert Cursor.given_opaque(text) == cursor
    assert cursor.after(Cursor.opaque("9")) is cursor, "the server's word counts"


@pytest.mark.parametrize("text", ["", "a b", "é", "a\n", "x" * 8193])
def test_what_no_header_carries_is_no_cursor_of_channels(text):
    assert Cursor.opaque(text) is None
    with pytest.raises(ValueError, match="a cursor is 1 to 8192"):
        Cursor.given_opaque(text)


def test_a_caller_gives_the_cursor_of_channels_as_a_text_alone():
    assert Cursor.given_opaque(None) is None
    with pytest.raises(TypeError, match=r"a text, not int; keep stream\.cursor"):
        Cursor.given_opaque(5)
    with pytest.raises(ValueError, match="carries its epochs itself"):
        Cursor.given_opaque("5", "e1")
