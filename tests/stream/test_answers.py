import json

import pytest
from starlette.exceptions import HTTPException

from tidegate.stream.answers import error_answer, json_answer, json_errors


def test_an_error_has_a_sentence_a_code_and_facts():
    answer = error_answer(404, "session_not_found", "no such session", {"x-a": "b"}, sessionId="s")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-a"] == "b"
    assert json.loads(answer.body) == {
        "error": "no such session",
        "code": "session_not_found",
        "sessionId": "s",
    }


def test_an_answer_is_json():
    assert json_answer({"a": [1]}, 201).body == b'{"a":[1]}'


@pytest.mark.parametrize(
    ("status", "code"),
    [(404, "not_found"), (405, "method_not_allowed"), (418, "im_a_teapot"), (499, "http_499")],
)
async def test_http_errors_become_json(status, code):
    handler = json_errors()[HTTPException]
    answer = await handler(None, HTTPException(status, "odd", {"allow": "GET"}))
    assert answer.status_code == status
    assert answer.headers["allow"] == "GET"
    assert json.loads(answer.body)["code"] == code


async def test_a_failure_tells_the_client_nothing_of_its_reason():
    answer = await json_errors()[Exception](None, ValueError("secret"))
    assert answer.status_code == 500
    assert json.loads(answer.body)["code"] == "internal"
    assert b"secret" not in answer.body
