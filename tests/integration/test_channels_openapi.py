"""schemathesis against the server's own description of its routes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.servers import serve_process

pytestmark = [pytest.mark.server, pytest.mark.slow]

# The streams have no end; tests/gateway/test_routes.py tells them what makes no sense.
STREAMS = "/v1/stream"
DOCUMENT = "/v1/openapi.json"
# What the others expect of every API is not ours: to JSON Schema 1.0 is an integer, and a history
# that was dropped is an empty one, no unknown one.
NOT_OURS = "positive_data_acceptance,use_after_free"


@pytest.mark.timeout(150)
def test_no_input_that_it_thinks_of_is_a_failure_of_the_server(tmp_path):
    program = Path(sys.executable).with_name("schemathesis")
    with serve_process("--dev", "--data", str(tmp_path / "data")) as server:
        run = subprocess.run(
            [
                str(program),
                "run",
                f"{server}{DOCUMENT}",
                *("--exclude-path", STREAMS),
                *("--exclude-checks", NOT_OURS),
                *("--phases", "coverage,fuzzing,stateful"),
                *("--max-examples", "8"),
                "--generation-deterministic",
                "--continue-on-failure",
                "--no-color",
            ],
            check=False,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert httpx.get(f"{server}/readyz", trust_env=False).status_code == 200
        routes = httpx.get(f"{server}{DOCUMENT}", trust_env=False).json()["paths"]
    # All but the streams, and the document that it asked for itself.
    others = [path for path in routes if path not in {STREAMS, DOCUMENT}]
    operations = sum(len(routes[path].keys() - {"parameters"}) for path in others)
    # It did try all of them.
    tested = re.search(r"Tested:\s+(\d+)", run.stdout)
    assert tested is not None, run.stdout
    assert int(tested[1]) == operations
    generated = re.search(r"(\d+) generated", run.stdout)
    assert generated is not None, run.stdout
    assert int(generated[1]) >= 200
    assert "Traceback" not in server.output
    assert "ERROR" not in server.output
