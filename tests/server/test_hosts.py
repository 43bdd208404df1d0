import pytest

from tidegate.server.hosts import host_of, is_loopback, is_origin, same_host


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST", "localhost.", "a.localhost", "127.0.0.1", "127.9.9.9", "::1"],
)
def test_names_of_this_machine(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "0.0.0.0",
        "::",
        "192.168.0.1",
        "example.com",
        "localhost.example.com",
        "127.0.0.1.nip.io",
    ],
)
def test_names_of_others_or_of_every_interface(host):
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("127.0.0.1:8765", "127.0.0.1"),
        ("[::1]:8765", "::1"),
        ("[::1]", "::1"),
        ("Example.COM", "example.com"),
        ("", None),
        ("a:port", None),
        ("a:99999", None),
        ("[::1", None),
        ("user@localhost", None),
        ("localhost/path", None),
    ],
)
def test_the_host_of_a_host_header(header, host):
    assert host_of(header) == host


@pytest.mark.parametrize(
    "text", ["https://a.example", "http://localhost:3000", "http://[::1]:80", "http://[::1]"]
)
def test_what_is_an_origin(text):
    assert is_origin(text)


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "*",
        "a.example",
        "https://a.example/",
        "https://a.example/x",
        "https://A.example",
        "ftp://a.example",
        "https://",
        "https://a.example:port",
        "https://u@a.example",
        "https://[::1",
    ],
)
def test_what_is_none(text):
    assert not is_origin(text)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:8765", "localhost:8765"),
        ("http://localhost:8765", "LOCALHOST:8765"),
        ("http://a.example", "a.example"),
        ("http://a.example", "a.example:80"),
        ("https://a.example", "a.example"),
        ("https://a.example:443", "a.example"),
        ("http://[::1]:8765", "[::1]:8765"),
    ],
)
def test_a_page_of_this_server(origin, host):
    assert same_host(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:3000", "localhost:8765"),
        ("http://127.0.0.1:8765", "localhost:8765"),
        ("https://a.example", "a.example:80"),
        ("null", "localhost"),
        ("http://a.example", "a.example:port"),
        ("http://a.example", ""),
    ],
)
def test_a_page_of_another(origin, host):
    assert not same_host(origin, host)
