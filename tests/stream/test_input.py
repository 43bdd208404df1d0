import msgspec
import pytest

from tidegate.stream.input import BadInput, check_depth, decoded, shown


class Body(msgspec.Struct, forbid_unknown_fields=True):
    n: int


def code(call, *args):
    with pytest.raises(BadInput) as caught:
        call(*args)
    assert caught.value.error.isascii()
    return caught.value.code


def test_a_body_that_fits_is_decoded():
    assert decoded(msgspec.json.Decoder(Body), b'{"n":1}').n == 1


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"n":"1"}', b'{"n":1,"m":2}'])
def test_a_body_of_another_shape_is_refused(body):
    assert code(decoded, msgspec.json.Decoder(Body), body) == "invalid_body"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"n":1} x', b"[" * 100_000])
def test_what_is_no_json_is_refused(body):
    assert code(decoded, msgspec.json.Decoder(), body) == "invalid_json"


def test_what_is_nested_so_deeply_that_it_might_not_be_encoded_is_refused():
    def nested(levels):
        value = None
        for _ in range(levels):
            value = [value]
        return value

    check_depth(nested(100))
    assert code(check_depth, nested(100_000)) == "invalid_json"


def test_what_is_shown_is_escaped_and_short():
    assert shown("a\x1b") == "'a\\x1b'"
    assert len(shown("é" * 1000)) < 400
    assert shown("x" * 81).endswith("...")
