import pytest

from tidegate.server.tokens import COOKIE, TokenCheck


@pytest.fixture
def check():
    return TokenCheck("s3cret")


@pytest.mark.parametrize("header", ["Bearer s3cret", "bearer s3cret", "BEARER   s3cret "])
def test_the_token_may_be_borne(check, header):
    assert check.is_bearer(header)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "s3cret",
        "Bearer",
        "Bearer ",
        "Bearer s3cre",
        "Bearer s3crett",
        "Basic s3cret",
        "Bearer é",
    ],
)
def test_anything_else_is_not_the_token(check, header):
    assert not check.is_bearer(header)


def test_the_cookie_is_derived_and_stays_the_same(check):
    assert "s3cret" not in check.cookie
    assert check.cookie == TokenCheck("s3cret").cookie
    assert check.cookie != TokenCheck("other").cookie
    assert not check.is_token(check.cookie)


def test_the_cookie_stands_for_the_token(check):
    assert check.is_cookie(f"a=b; {COOKIE}={check.cookie}; c=d")
    assert check.is_cookie(f"a/b[c]=d;{COOKIE}=old; {COOKIE}={check.cookie}")


@pytest.mark.parametrize(
    "header", ["", "a=b", f"{COOKIE}=", f"{COOKIE}=s3cret", f"{COOKIE}=é", "\x00=;"]
)
def test_no_other_cookie_does(check, header):
    assert not check.is_cookie(header)


def test_a_token_that_is_no_unicode_is_compared_all_the_same(check):
    assert not check.is_token("\ud800")
