"""What a suite says when checks fail."""

import pickle

import pytest

from tidegate.testing import CheckFailed, CheckReport, Failure
from tidegate.testing.report import CheckSkipped


def raised(error):
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_all_failures_are_named_at_once():
    failed = CheckFailed(
        CheckReport(
            passed=["good"],
            skipped={},
            failures=[
                Failure(check="one", rule="It is so.", error=raised(AssertionError("it is not"))),
                Failure(check="two", rule="It answers.", error=raised(TimeoutError())),
                Failure(check="three", rule="It works.", error=raised(KeyError("x"))),
                Failure(check="four", rule="It holds.", error=raised(AssertionError())),
            ],
        )
    )
    assert isinstance(failed, AssertionError)
    assert failed.names == {"one", "two", "three", "four"}
    text = str(failed)
    assert text.startswith("4 of 5 checks failed:\n")
    assert "one: It is so.\n    found: it is not" in text
    assert "found: it took too long" in text
    assert "found: KeyError: 'x' (" in text
    assert "test_report.py:" in text
    assert "found: an assertion without a message" in text


def test_a_failure_travels_between_processes():
    failed = CheckFailed(CheckReport(passed=["a"], skipped={"b": "why"}))
    again = pickle.loads(pickle.dumps(failed))
    assert again.report == failed.report
    assert str(again) == str(failed)


def test_a_skip_says_why():
    assert CheckSkipped("no faults were given").reason == "no faults were given"
