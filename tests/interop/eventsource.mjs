// Follows a stream with npm's `eventsource`, as its README shows it: node eventsource.mjs URL

import { EventSource } from "eventsource";
import { report, TYPES } from "./report.mjs";

const source = new EventSource(process.argv[2]);
for (const type of TYPES) {
  source.addEventListener(type, (event) => report(type, event.lastEventId, event.data));
}
source.addEventListener("error", (error) => {
  if (source.readyState === EventSource.CLOSED) {
    console.error(`given up: ${error.message} ${error.code}`);
    process.exit(1);
  }
});

// While it waits to come back, the package keeps no process alive.
setInterval(() => {}, 60_000);
