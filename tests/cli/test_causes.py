"""What a 401 and a missing server mean, in words."""

import pytest

from tidegate.cli.causes import not_let_in, why_away

URL = "http://127.0.0.1:8765"


def test_a_wrong_token_and_a_missing_one_are_two_things():
    assert not_let_in("x") == "the token is not the server's (401)"
    assert not_let_in(None).endswith("give --token or TIDEGATE_TOKEN")
    assert not_let_in(None, "this server needs its token") == not_let_in(None)


@pytest.mark.parametrize("token", [None, "x"])
def test_a_server_that_lets_nobody_in_says_so_itself(token):
    assert not_let_in(token, "start it with --dev") == "start it with --dev (401)"


@pytest.mark.parametrize(
    "problem", ["ConnectError: All connection attempts failed", "ConnectTimeout"]
)
def test_nobody_there(problem):
    assert why_away(problem, URL) == (
        f"no server at {URL}; is tidegate serve running, and is --url right?"
    )


@pytest.mark.parametrize(
    "problem",
    ["the stream ended", "status 503", "ReadTimeout", "ConnectError: [SSL] wrong version number"],
)
def test_other_problems_speak_for_themselves(problem):
    assert why_away(problem, URL) is None
