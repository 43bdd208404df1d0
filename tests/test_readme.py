"""The examples of README.md and docs/ run, and print what the pages say they print.

A python fence carries a file name. Followed by a text fence, it is a script with that output;
``app.py`` is served by the command of the shell fence behind it. No fence is left out.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.servers import serve_command, serve_process
from tidegate.client import connect_sync

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SERVER = "http://127.0.0.1:8765"
TIMEOUT = 30


@dataclass(frozen=True)
class Fence:
    page: Path
    language: str
    name: str
    text: str
    before: str

    def __str__(self):
        return f"{self.page.name}:{self.name or self.language}"


def fences(page):
    text = page.read_text(encoding="utf-8")
    found = []
    end = 0
    for match in re.finditer(r"^```(\w+) ?(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        found.append(Fence(page, match[1], match[2], match[3], text[end : match.start()].strip()))
        end = match.end()
    return found


ALL = [fence for page in PAGES for fence in fences(page)]
FOLLOWED = list(zip(ALL, [*ALL[1:], None], strict=True))
SCRIPTS = [
    pytest.param(fence, following.text, id=str(fence))
    for fence, following in FOLLOWED
    if fence.language == "python"
    and following is not None
    and following.page == fence.page
    and following.language == "text"
    and not following.before
]
APPS = {"app.py", "chat.py"}


def argv(command):
    """A shell line as arguments, its program taken from beside this interpreter."""
    program, *arguments = shlex.split(command)
    return [str(Path(sys.executable).with_name(program)), *arguments]


def environment(**more):
    return os.environ | more | {"PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "error", "NO_COLOR": "1"}


def run(command, cwd, **variables):
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """``tidegate serve --dev``, at a free port, with what the pages' shell fences publish."""
    commands = [
        line
        for fence in ALL
        if fence.language == "sh"
        for line in fence.text.splitlines()
        if line.startswith(("tidegate pipe", "tidegate publish"))
    ]
    with serve_process("--dev") as url:
        for command in commands:
            run(argv(command), tmp_path_factory.mktemp("publisher"), TIDEGATE_URL=str(url))
        yield str(url)


@pytest.mark.parametrize(("fence", "expected"), SCRIPTS)
def test_a_script_prints_what_the_page_says(fence, expected, tmp_path, request):
    source = fence.text
    if SERVER in source:
        source = source.replace(SERVER, request.getfixturevalue("server"))
    (tmp_path / fence.name).write_text(source, encoding="utf-8")
    assert run([sys.executable, fence.name], tmp_path) == expected


def test_every_python_fence_is_executed():
    executed = {id(param.values[0]) for param in SCRIPTS}
    left = [
        str(fence)
        for fence in ALL
        if fence.language == "python" and id(fence) not in executed and fence.name not in APPS
    ]
    assert left == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent == ROOT], ids=str)
def test_examples_of_the_readme_are_short(page):
    for fence in fences(page):
        lines = [line for line in fence.text.splitlines() if line.strip()]
        assert len(lines) <= 25, str(fence)


def event_of(lines):
    """Read one frame, heartbeats and retry passed over: its id, type and envelope."""
    fields = {}
    for line in lines:
        if not line and "data" in fields:
            return fields.get("id"), fields["event"], json.loads(fields["data"])
        name, _, value = line.partition(": ")
        fields[name] = value
    raise AssertionError("the stream ended")


@contextlib.contextmanager
def served(name, folder):
    """Serve an example by the command behind it; its URL."""
    fence, command = next((f, following) for f, following in FOLLOWED if f.name == name)
    (folder / name).write_text(fence.text, encoding="utf-8")
    with serve_command(
        *argv(command.text), "--port", "0", "--app-dir", str(folder), alive="/openapi.json"
    ) as url:
        yield url


def test_the_app_of_the_readme_streams_resumes_and_drains(tmp_path):
    with (
        served("app.py", tmp_path) as url,
        httpx.Client(base_url=str(url), timeout=TIMEOUT) as client,
        contextlib.ExitStack() as stack,
    ):
        for price in (101, 102):
            assert client.post(f"/prices/{price}").status_code == 200
        response = stack.enter_context(
            client.stream("GET", "/prices", headers={"Last-Event-ID": "1"})
        )
        lines = response.iter_lines()
        identity, kind, envelope = event_of(lines)
        assert (identity, kind, envelope["data"]) == ("2", "price", {"price": 102})
        _, kind, _ = event_of(lines)
        assert kind == "replay_complete"
        assert client.post("/prices/103").status_code == 200
        identity, kind, envelope = event_of(lines)
        assert (identity, envelope["data"]) == ("3", {"price": 103})
        assert url.terminate() in (0, -signal.SIGTERM)
        _, kind, envelope = event_of(lines)
        assert (kind, envelope["data"]["errorKind"]) == ("stream_error", "draining")


def test_the_app_with_sessions_publishes_what_its_generator_yields(tmp_path):
    with served("chat.py", tmp_path) as url:
        answer = httpx.post(f"{url}/ask/a1", params={"question": "why?"}, timeout=TIMEOUT).json()
        words = []
        with connect_sync(f"{url}{answer['events']}", last_event_id=0) as stream:
            for event in stream:
                if event.type == "done":
                    break
                if event.type == "token":
                    words.append(event.data)
        assert words == ["You", "asked:", "why?"]


def test_tail_shows_what_pipe_published(server, tmp_path):
    command = next(
        line
        for fence in fences(ROOT / "README.md")
        if fence.language == "sh"
        for line in fence.text.splitlines()
        if line.startswith("tidegate tail")
    )
    process = subprocess.Popen(
        argv(command),
        cwd=tmp_path,
        env=environment(TIDEGATE_URL=server),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    watchdog = threading.Timer(TIMEOUT, process.kill)
    watchdog.start()
    try:
        seen = ""
        for line in process.stdout:
            seen += line
            if "exit" in line:
                break
        assert "compiling" in seen, seen
        assert "linking" in seen, seen
    finally:
        watchdog.cancel()
        process.send_signal(signal.SIGINT)
        process.wait(timeout=TIMEOUT)
        process.stdout.close()


def test_tail_shows_what_was_published_to_the_channels_of_the_readme(server, tmp_path):
    command = next(
        line
        for fence in fences(ROOT / "README.md")
        if fence.language == "sh"
        for line in fence.text.splitlines()
        if line.startswith("tidegate tail room:1")
    )
    shown = run([*argv(command), "--count", "1"], tmp_path, TIDEGATE_URL=server)
    assert 'room:1 said {"text":"hello"}' in shown


def test_every_make_target_that_a_page_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
        assert named <= targets, page.name


def test_the_extras_of_the_readme_are_those_of_the_package():
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Install")[2]
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", text, re.MULTILINE)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = declared["project"]["optional-dependencies"]
    assert {name for name, _ in rows} == set(extras)
    for name, brings in rows:
        packages = {re.match(r"[\w-]+", requirement)[0] for requirement in extras[name]}
        for package in packages - {"tidegate"}:
            assert package in brings, f"{name}: {package}"


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name
)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).is_file(), target
