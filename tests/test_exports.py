"""What each module exports, and what an import leaves behind: nothing."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate

ROOT = Path(__file__).resolve().parent.parent


def module_names():
    yield "tidegate"
    for found in pkgutil.walk_packages(tidegate.__path__, prefix="tidegate."):
        if not found.name.endswith(".__main__"):
            yield found.name


MODULES = sorted(module_names())


def run_python(code):
    """Run code in a fresh interpreter that treats warnings as errors; its output."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def order(name):
    """Constants, then classes, then the rest; as ruff's RUF022 sorts."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


@pytest.mark.parametrize("name", MODULES)
def test_all_is_there_sorted_and_true(name):
    module = importlib.import_module(name)
    exported = list(module.__all__)
    assert exported == sorted(exported, key=order)
    assert len(exported) == len(set(exported))
    for attribute in exported:
        assert hasattr(module, attribute), f"{name}.{attribute}"


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_defines_in_public_stands_in_its_all(name):
    module = importlib.import_module(name)
    defined = {
        attribute
        for attribute, value in vars(module).items()
        if not attribute.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == name
    }
    assert defined <= set(module.__all__)


@pytest.mark.parametrize("name", [n for n in MODULES if hasattr(sys.modules.get(n), "__path__")])
def test_a_package_exports_only_what_its_modules_export(name):
    """A public name is public where it is defined, too."""
    package = importlib.import_module(name)
    for attribute in package.__all__:
        value = getattr(package, attribute)
        home = getattr(value, "__module__", None)
        if home in sys.modules and home.startswith("tidegate.") and home != name:
            assert attribute in sys.modules[home].__all__, f"{home} does not export {attribute}"


def test_the_top_level_names_are_the_documented_ones():
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    section = text.partition("## Names at the top")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    assert documented == sorted(documented, key=order)
    assert documented == list(tidegate.__all__)


def test_importing_tidegate_starts_nothing_and_loads_no_server_or_client():
    out = run_python(
        """
import asyncio, logging, signal, sys, threading
handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
policy = type(asyncio.get_event_loop_policy())
levels = logging.root.level, list(logging.root.handlers)
import tidegate
assert threading.active_count() == 1, threading.enumerate()
assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers
assert type(asyncio.get_event_loop_policy()) is policy
assert (logging.root.level, logging.root.handlers) == levels
try:
    asyncio.get_running_loop()
except RuntimeError:
    pass
else:
    raise AssertionError("a loop runs")
extras = {"anyio", "fastapi", "httptools", "httpx", "pydantic", "rich", "starlette", "typer",
          "uvicorn", "uvloop"}
print(sorted(extras & {name.partition(".")[0] for name in sys.modules}))
"""
    )
    assert out.strip() == "[]"


def test_importing_every_part_changes_nothing_of_a_third_party():
    """No monkey-patch: each attribute of what we build on is the same object before and after."""
    run_python(
        f"""
import asyncio, logging, signal, threading
import anyio, httptools, httpx, msgspec, rich.console, typer
import starlette.applications, starlette.requests, starlette.responses, starlette.routing
import uvicorn, uvicorn.config, uvicorn.main, uvicorn.server
import uvicorn.protocols.http.flow_control, uvicorn.protocols.http.httptools_impl
import uvicorn.protocols.http.h11_impl

watched = [
    asyncio, asyncio.base_events, asyncio.BaseEventLoop, asyncio.selector_events, asyncio.Queue,
    logging, logging.Logger, signal, threading, threading.Thread,
    anyio, httptools, httpx, httpx.Client, httpx.AsyncClient, httpx.Response, msgspec,
    rich.console.Console, typer,
    starlette.applications.Starlette, starlette.requests.Request, starlette.requests.HTTPConnection,
    starlette.responses, starlette.responses.Response, starlette.responses.StreamingResponse,
    starlette.routing, starlette.routing.Route, starlette.routing.Router,
    uvicorn, uvicorn.config, uvicorn.main, uvicorn.server, uvicorn.Server, uvicorn.Config,
    uvicorn.protocols.http.flow_control, uvicorn.protocols.http.flow_control.FlowControl,
    uvicorn.protocols.http.httptools_impl,
    uvicorn.protocols.http.httptools_impl.HttpToolsProtocol,
    uvicorn.protocols.http.httptools_impl.RequestResponseCycle,
    uvicorn.protocols.http.h11_impl.H11Protocol,
]
handle_exit = uvicorn.Server.handle_exit
before = [dict(vars(thing)) for thing in watched]
handlers = {{number: signal.getsignal(number) for number in signal.valid_signals()}}

import importlib
for name in {MODULES!r}:
    importlib.import_module(name)

assert uvicorn.Server.handle_exit is handle_exit
assert {{number: signal.getsignal(number) for number in signal.valid_signals()}} == handlers
assert threading.active_count() == 1, threading.enumerate()
for thing, then in zip(watched, before, strict=True):
    now = vars(thing)
    for name, value in then.items():
        assert now.get(name) is value, f"{{thing}}.{{name}} was replaced"
    # A module gains its submodules as they are imported; a class gains nothing.
    if isinstance(thing, type):
        grown = set(now) - set(then) - {{"__abstractmethods__", "_abc_impl"}}
        assert not grown, f"{{thing}} gained {{grown}}"
"""
    )


@pytest.mark.parametrize(
    ("missing", "wanted", "extra"),
    [
        ("httpx", "tidegate.client", "client"),
        ("starlette", "tidegate.stream", "server"),
        ("starlette", "tidegate.sessions", "server"),
        ("starlette", "tidegate.server", "server"),
        ("uvicorn", "tidegate.server", "server"),
    ],
)
def test_a_missing_extra_is_named_with_the_command_that_brings_it(missing, wanted, extra):
    out = run_python(
        f"""
import sys
sys.modules[{missing!r}] = None  # as if it were not installed
try:
    import {wanted}
except ImportError as error:
    print(type(error).__name__, error.extra)
    print(error)
"""
    )
    kind, message = out.splitlines()
    assert kind == f"MissingExtra {extra}"
    assert f"pip install 'tidegate[{extra}]'" in message


def test_the_command_without_its_extra_says_so_and_ends_with_1():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.modules['typer'] = None; from tidegate.cli import main; main()",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'tidegate[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
