"""maxQueued is sent only to servers that know it and allow it."""

import json

import pytest

from tidegate.client.capabilities import negotiated_max_queued

KNOWN = {"v": 1, "features": ["slow_client_warning"], "limits": {"maxQueued": [16, 2048]}}


def ask(max_queued, answer, status=200):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return negotiated_max_queued(max_queued, status, body)


@pytest.mark.parametrize("max_queued", [16, 500, 2048])
def test_within_the_range_it_is_sent(max_queued):
    assert ask(max_queued, KNOWN) == max_queued


@pytest.mark.parametrize("max_queued", [15, 2049])
def test_out_of_the_range_names_the_range(max_queued):
    with pytest.raises(ValueError, match=f"16 to 2048 here, not {max_queued}"):
        ask(max_queued, KNOWN)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (KNOWN, 404),
        (b"<html>", 200),
        (b"[" * 100_000, 200),
        ([], 200),
        ({}, 200),
        ({"features": "slow_client_warning"}, 200),
        ({"features": ["session_events"], "limits": {"maxQueued": [16, 2048]}}, 200),
    ],
)
def test_a_server_that_does_not_know_it_is_not_asked(answer, status, caplog):
    assert ask(100, answer, status) is None
    assert "max_queued=100 is not sent: the server does not name" in caplog.text


@pytest.mark.parametrize(
    "limits", [None, {}, {"maxQueued": None}, {"maxQueued": [16]}, {"maxQueued": ["16", "20"]}]
)
def test_without_limits_it_is_not_sent(limits, caplog):
    assert ask(100, {"features": ["slow_client_warning"], "limits": limits}) is None
    assert "names no limits" in caplog.text
