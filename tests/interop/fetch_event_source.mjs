// Follows a stream with `@microsoft/fetch-event-source`, as its README shows it:
//
//   node fetch_event_source.mjs URL [BODY]
//
// With a body it asks by POST, which is what the package is used for.
//
// The package takes the id of an event over when it reads that line, before it has the event: cut
// in between, it would ask for what follows an event that it never gave. So this program sends the
// id of the last event that it was given, which any user of the package should do.

import { createRequire } from "node:module";
import { report } from "./report.mjs";

// It was made for browsers; this is all that it uses of one.
globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };
globalThis.window = globalThis;

// Its ES modules name each other without the ending that node asks for.
const { fetchEventSource } = createRequire(import.meta.url)("@microsoft/fetch-event-source");

const [, , url, body] = process.argv;
class Final extends Error {}
let last;

function asked(input, init) {
  const headers = { ...init.headers };
  delete headers["last-event-id"];
  return fetch(input, { ...init, headers: last ? { ...headers, "last-event-id": last } : headers });
}

await fetchEventSource(url, {
  method: body ? "POST" : "GET",
  headers: body ? { "content-type": "application/json" } : {},
  body,
  fetch: asked,
  openWhenHidden: true,
  async onopen(response) {
    if (!response.ok) {
      throw new Final(`status ${response.status}: ${await response.text()}`);
    }
  },
  onmessage(message) {
    // It makes messages of comments and of `retry` too.
    if (message.data) {
      if (message.id) {
        last = message.id;
      }
      report(message.event, message.id, message.data);
    }
  },
  onclose() {
    throw new Error("it ended; come back"); // else it would not
  },
  onerror(error) {
    if (error instanceof Final) {
      throw error;
    }
  },
});
