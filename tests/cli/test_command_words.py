"""Whose option is it: that of pipe, or that of the command it runs?"""

import pytest

from tidegate.cli.command_words import options_first


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("s/a ls -l /x", "-- s/a ls -l /x"),
        ("s/a -- ls -l /x", "-- s/a ls -l /x"),
        ("-q s/a ls -q", "-q -- s/a ls -q"),
        ("s/a -q --url U ls --url V", "-q --url U -- s/a ls --url V"),
        ("s/a --url=U -- ls -- x", "--url=U -- s/a ls -- x"),
        ("s/a grep -- -x", "-- s/a grep -- -x"),
        ("-- s/a ls", "-- s/a ls"),
        ("--help", "--help"),
        ("s/a --url", "--url -- s/a"),
        ("s/a --frob", "--frob -- s/a"),
        ("", ""),
    ],
)
def test_from_the_second_word_on_all_belongs_to_the_command(written, read):
    assert options_first(written.split(), {"--url"}) == read.split()
