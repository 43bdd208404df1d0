"""What is shared of httpx: its absence, its errors, bounded bodies."""

import gzip
import subprocess
import sys

import httpx
import pytest

from tests.client.support import scripted
from tidegate.client import transport
from tidegate.client.core import Step, StreamCore
from tidegate.errors import ClientError, StreamUnavailable

URL = "http://h/session/a"


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_httpx_the_import_names_the_extra():
    run(
        """
import sys
sys.modules["httpx"] = None
try:
    import tidegate.client
except ImportError as error:
    assert type(error).__name__ == "MissingExtra", type(error)
    assert str(error) == "httpx is not installed; run: pip install 'tidegate[client]'", error
else:
    raise AssertionError("it was imported")
import tidegate
"""
    )


def test_a_broken_httpx_is_not_called_missing(tmp_path):
    (tmp_path / "httpx.py").write_text("import not_there_at_all\n", encoding="utf-8")
    run(
        f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
try:
    import tidegate.client
except ImportError as error:
    assert error.name == "not_there_at_all", error
else:
    raise AssertionError("it was imported")
"""
    )


def test_a_time_out_is_more_than_nothing():
    assert transport.timeouts(5).read == 5
    assert transport.timeouts(5).connect == transport.CONNECT_TIMEOUT
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="more than 0 s"):
            transport.timeouts(wrong)


def test_a_url_that_httpx_cannot_take_is_a_value_error():
    assert transport.checked_url(URL) == URL
    assert transport.checked_url(5) == 5
    with pytest.raises(ValueError, match="not a URL"):
        transport.checked_url("http://h/\0")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (httpx.TooManyRedirects("x"), "from one URL to the next"),
        (httpx.UnsupportedProtocol("x"), "not http or https"),
        (httpx.LocalProtocolError("Illegal header value b's3cret\\n'"), "characters that HTTP"),
    ],
)
def test_what_the_next_attempt_would_meet_again_is_final(error, message):
    core = StreamCore(URL)
    with pytest.raises(ClientError, match=message) as raised:
        transport.failed(core, error)
    assert "s3cret" not in str(raised.value)
    assert core.end_reason == "refused"


def test_anything_else_is_tried_again_as_long_as_it_may():
    core = StreamCore(URL, max_attempts=2)
    transport.failed(core, httpx.ReadTimeout(""))
    assert core.step is Step.WAIT
    assert core.statistics().last_problem == "ReadTimeout"
    core.waited()
    error = httpx.ConnectError("refused")
    with pytest.raises(StreamUnavailable, match="ConnectError: refused") as raised:
        transport.failed(core, error)
    assert raised.value.__cause__ is error


def test_which_errors_prove_that_nothing_was_sent():
    sure = [httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout]
    unsure = [httpx.ReadTimeout, httpx.WriteError, httpx.RemoteProtocolError, httpx.ReadError]
    assert all(transport.never_sent(kind("x")) for kind in sure)
    assert not any(transport.never_sent(kind("x")) for kind in unsure)


def test_an_error_that_quotes_the_server_is_shown_harmless():
    text = transport.problem_of(httpx.RemoteProtocolError("\x1b[2J\n" * 1000))
    assert text.isprintable()
    assert len(text) < 600


@pytest.mark.parametrize(
    ("header", "encoding"),
    [
        (None, None),
        ("", None),
        ("identity", None),
        (" Identity", None),
        ("gzip", "gzip"),
        ("gzip, br", "gzip, br"),
        ("\x9b", r"\x9b"),
    ],
)
def test_an_encoding_that_was_not_asked_for_is_named(header, encoding):
    headers = [] if header is None else [(b"content-encoding", header.encode("latin-1"))]
    assert transport.unasked_encoding(httpx.Response(200, headers=headers)) == encoding


async def test_a_compressed_body_is_not_made_larger():
    sent = gzip.compress(b"x" * 10**6)
    with scripted(lambda peer: peer.answer(200, sent, content_encoding="gzip")) as server:
        async with httpx.AsyncClient() as http, http.stream("GET", server.url) as response:
            assert await transport.read_body(response, 5000) == sent[:5000]
        with httpx.stream("GET", server.url) as response:
            assert transport.read_body_sync(response, 5000) == sent[:5000]


@pytest.mark.parametrize("size", [0, 10, 100_000])
async def test_no_more_of_a_body_is_read_than_its_bound(size):
    with scripted(lambda peer: peer.answer(200, b"x" * size)) as server:
        async with httpx.AsyncClient() as http, http.stream("GET", server.url) as response:
            assert await transport.read_body(response, 5000) == b"x" * min(size, 5000)


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_no_more_of_a_body_is_read_than_its_bound_without_a_loop(size):
    with (
        scripted(lambda peer: peer.answer(200, b"x" * size)) as server,
        httpx.stream("GET", server.url) as response,
    ):
        assert transport.read_body_sync(response, 5000) == b"x" * min(size, 5000)
