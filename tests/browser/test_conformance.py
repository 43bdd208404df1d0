"""Chromium as the judge: of the cases that the decoder is held to, and of the encoder's bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.client.support import scripted
from tidegate.sse import Decoder, encode

pytestmark = pytest.mark.browser

CASES = json.loads(
    (Path(__file__).parents[1] / "sse" / "sse_conformance_cases.json").read_text(encoding="utf-8")
)["cases"]

# Reads one stream to its end, as EventSource gives it to a page.
READ = """
([url, types]) => new Promise((resolve) => {
  const events = [];
  const source = new EventSource(url);
  for (const type of types) {
    source.addEventListener(type, (e) => events.push([e.type, e.data, e.lastEventId]));
  }
  source.onerror = () => { source.close(); resolve(JSON.stringify(events)); };
})
"""


@pytest.fixture
async def judge(page):
    """What the browser makes of a stream: chunks in, events out."""
    chunks = []

    def script(peer):
        if peer.path == "/stream":
            peer.stream(*chunks)
            peer.end()
        else:
            peer.answer(200, b"<!doctype html>", content_type="text/html")

    with scripted(script) as server:
        await page.goto(server.url)

        async def read(stream, types):
            chunks[:] = stream
            return json.loads(await page.evaluate(READ, [f"{server.url}/stream", types]))

        yield read


async def test_the_browser_agrees_with_each_conformance_case(judge):
    for case in CASES:
        chunks = [bytes.fromhex(chunk) for chunk in case["chunks_hex"]]
        events = await judge(chunks, ["message", "b"])
        assert events == case["expect"], case["name"]
        decoder = Decoder()
        decoded = [event for chunk in chunks for event in decoder.feed(chunk)]
        assert [[e.type, e.data, e.id] for e in decoded] == events, case["name"]
    assert len(CASES) == 24


TEXTS = [
    "",
    " ",
    "one",
    "  two spaces before, one after ",
    "\n",
    "a\nb",
    "a\r\nb\rc\n\nd\n",
    "\r\r\n\n",
    "data: x\nid: 7\n: no comment\n\nevent: y",
    "é€😀\u2028\u2029\x85\x0b\x0c\x1c\x00\ufeff",
    "x" * 100_000,
]


async def test_the_browser_reads_what_the_encoder_wrote(judge):
    wrote = []
    stream = encode(retry=1500) + encode(comment="a comment\r\nof\rlines") + encode()
    for number, text in enumerate(TEXTS):
        stream += encode(event=f"t.{number}:x_-", data=text, id=f"e-{number}")
        # To a browser every end of a line is the same.
        wrote.append([f"t.{number}:x_-", re.sub("\r\n|\r", "\n", text), f"e-{number}"])
        stream += encode(comment="hb")
    stream += encode(data="last")
    wrote.append(["message", "last", f"e-{len(TEXTS) - 1}"])
    events = await judge([stream], [kind for kind, _, _ in wrote])
    assert events == wrote
    assert [[e.type, e.data, e.id] for e in Decoder().feed(stream)] == events
