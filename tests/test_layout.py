"""scripts/check_layout.py finds what it is there to find, and this checkout passes it."""

from pathlib import Path

import pytest

from scripts.check_layout import MAX_LINES, check, main

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def tree(tmp_path):
    """A checkout with one tested module."""
    for name in (
        "src/tidegate/__init__.py",
        "src/tidegate/part/__init__.py",
        "src/tidegate/part/ring.py",
        "tests/part/test_ring.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
    return tmp_path


def problems(tree, **exceptions):
    return check(tree, **{"untested": {}, "unmirrored": {}, **exceptions}).problems


def test_a_mirrored_tree_has_no_problem(tree):
    assert check(tree, untested={}, unmirrored={}).problems == []
    assert check(tree, untested={}, unmirrored={}).notes == []


def test_a_module_without_a_test_module_is_a_problem(tree):
    (tree / "src/tidegate/part/backlog.py").touch()
    assert problems(tree) == ["src/tidegate/part/backlog.py has no tests/part/test_backlog.py"]


def test_main_and_init_need_no_test_module(tree):
    (tree / "src/tidegate/part/__main__.py").touch()
    assert problems(tree) == []


def test_a_test_module_whose_source_has_gone_is_a_problem(tree):
    (tree / "tests/part/test_gone.py").touch()
    assert problems(tree) == [
        "tests/part/test_gone.py mirrors no module: there is no src/tidegate/part/gone.py"
    ]


def test_tests_of_several_parts_mirror_nothing(tree):
    (tree / "tests/integration").mkdir()
    (tree / "tests/integration/test_pipe.py").touch()
    assert problems(tree) == []


def test_an_exception_needs_a_reason_and_an_existing_file(tree):
    (tree / "src/tidegate/part/glue.py").touch()
    glue = "src/tidegate/part/glue.py"
    assert problems(tree, untested={glue: "two lines, tested through its caller"}) == []
    assert problems(tree, untested={glue: " "}) == [
        f"{glue} is listed as an exception without a reason"
    ]
    assert problems(tree, untested={glue: "why", "src/tidegate/part/old.py": "why"}) == [
        "src/tidegate/part/old.py is listed as an exception and does not exist"
    ]


def test_an_exception_that_is_no_longer_one_is_a_problem(tree):
    ring = "src/tidegate/part/ring.py"
    assert problems(tree, untested={ring: "why"}) == [
        f"{ring} is listed as untested, but tests/part/test_ring.py is there"
    ]


def test_a_long_module_is_noted_and_does_not_fail(tree, capsys):
    (tree / "src/tidegate/part/ring.py").write_text("x = 1\n" * (MAX_LINES + 1), encoding="utf-8")
    found = check(tree, untested={}, unmirrored={})
    assert found.problems == []
    assert found.notes == [
        "src/tidegate/part/ring.py has 501 lines; does it still have one subject?"
    ]


def test_a_problem_ends_with_1_and_is_printed(tree, capsys):
    (tree / "src/tidegate/part/backlog.py").touch()
    assert main(tree) == 1
    assert "layout: src/tidegate/part/backlog.py has no" in capsys.readouterr().err


def test_this_checkout_passes():
    assert check(ROOT).problems == []
