import pytest

from tidegate.server.pages import index_page, login_page


@pytest.mark.parametrize("page", [index_page, login_page])
def test_a_page_is_complete_and_loads_nothing(page):
    answer = page()
    text = answer.body.decode()
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert text.startswith("<!doctype html>")
    assert (
        "{" not in text.split("</style>")[0].replace("{font", "").replace("{max", "")
        or "{{" not in text
    )
    assert "http" not in text.replace("<meta", "")
