// The page of the demo: four panes, each a session of the server that serves this page.

import { Pane } from "./pane.js";
import { FetchReader } from "./sse.js";

const CONTROL = ["state_resync_required", "replay_complete", "slow_client_warning", "client_evicted",
  "stream_error"];
// EventSource hands out only the types one listens for; these are all that the sessions carry.
const EVENTS = ["message", "output", "output_lost", "exit", "story_begin", "token", "story_end",
  "run_failed", "flood", "tide", "diagnostic", "session_closed", "event_unserializable"];
const TAB = crypto.getRandomValues(new Uint32Array(1))[0].toString(36);

const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

/** POST to the demo's own routes. The header makes other sites' pages unable to do the same. */
async function ask(path) {
  const answer = await fetch(path, { method: "POST", headers: { "X-Tidegate-Demo": "1" } });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

const stream_url = (name, more) =>
  `${name === "flood" ? "/small" : ""}/session/${name}/events?ids=epoch&tab=${TAB}${more}`;

/** Where a new page begins: a few events before the head, so that it holds a cursor at once. */
async function start_of(name, back) {
  const prefix = name === "flood" ? "/small" : "";
  for (;;) {
    try {
      const answer = await fetch(`${prefix}/session`, { method: "POST",
        headers: { "Content-Type": "application/json" }, body: JSON.stringify({ sessionId: name }) });
      if (answer.ok) {
        const { epoch, lastEventId } = await answer.json();
        return `${epoch}-${Math.max(0, lastEventId - back)}`;
      }
    } catch { /* the server is not there; it will be */ }
    await sleep(500);
  }
}

/** A pane fed by the browser's own EventSource, which reconnects by itself with its cursor. */
class EventSourceFeed {
  constructor(pane, render) {
    this.pane = pane;
    this.render = render;
    this.cursor = null;
    this.source = null;
  }

  open(cursor) {
    this.cursor = cursor;
    const { pane } = this;
    const source = new EventSource(stream_url(pane.name, `&lastEventId=${encodeURIComponent(cursor)}`));
    this.source = source;
    pane.state("away", "connecting");
    source.onopen = () => pane.state("live");
    source.onerror = () => {
      const closed = source.readyState === EventSource.CLOSED;
      pane.state(closed ? "closed" : "away", closed ? "closed for good" : "reconnecting");
      pane.note(closed ? "refused for good" : "the connection is gone; EventSource comes back by itself");
    };
    for (const type of CONTROL) {
      source.addEventListener(type, (event) => pane.control(type, JSON.parse(event.data).data));
    }
    for (const type of EVENTS) {
      source.addEventListener(type, (event) => {
        const { data } = JSON.parse(event.data);
        this.cursor = event.lastEventId;
        pane.event(event.lastEventId, type, this.render(type, data));
      });
    }
  }

  close() {
    this.source.close();
    this.pane.state("closed", "left");
  }
}

const panes = {};
function show_totals() {
  for (const key of ["gaps", "duplicates", "events"]) {
    const total = Object.values(panes).reduce((sum, pane) => sum + pane.ledger.counts[key], 0);
    const cell = document.querySelector(`[data-total="${key}"]`);
    cell.textContent = String(total);
    if (key !== "events") cell.className = total === 0 ? "zero" : "wrong";
  }
}
for (const name of ["build", "story", "flood", "diagnostics"]) panes[name] = new Pane(name, show_totals);

function cut(pane) {
  pane.note("cutting the connection: the server resets the socket");
  ask(`/demo/cut?session=${pane.name}&tab=${TAB}`).catch((error) => pane.note(`cut: ${error.message}`, "bad"));
}
for (const pane of Object.values(panes)) pane.on("cut", () => cut(pane));

// build

const build = new EventSourceFeed(panes.build, (type, data) => {
  if (type === "output") return data.line;
  return `${type} ${JSON.stringify(data)}`;
});

// story

const story_text = panes.story.root.querySelector(".story");
const story = new EventSourceFeed(panes.story, (type, data) => {
  if (type === "story_begin") story_text.textContent = "";
  if (type === "token") {
    story_text.append(data.text); // a string: appended as text
    story_text.scrollTop = story_text.scrollHeight;
  }
  return `${type} ${JSON.stringify(data)}`;
});
panes.story.on("tell", () => {
  ask("/demo/story").then(
    ({ started }) => { if (!started) panes.story.note("it is being told already"); },
    (error) => panes.story.note(`story: ${error.message}`, "bad"),
  );
});
panes.story.on("leave", (button) => {
  const away = button.getAttribute("aria-pressed") === "true";
  button.setAttribute("aria-pressed", String(!away));
  button.textContent = away ? "Leave" : "Come back";
  if (away) {
    panes.story.note(`coming back at ${story.cursor}`);
    story.open(story.cursor);
  } else {
    panes.story.note("left; the story goes on without us");
    story.close();
  }
});

// flood

const flood = {
  pane: panes.flood,
  cursor: null,
  reader: null,
  warned: () => {},
  resynced: () => {},

  render(type, data) {
    if (type === "flood") return `flood: ${data.filler.length} characters of water`;
    return `${type} ${JSON.stringify(data)}`;
  },

  frame({ type, data, id }) {
    const { data: payload } = JSON.parse(data);
    if (CONTROL.includes(type)) {
      this.pane.control(type, payload);
      if (type === "slow_client_warning") this.warned();
      if (type === "state_resync_required") this.resynced(payload.reason);
      return;
    }
    this.cursor = id;
    this.pane.event(id, type, this.render(type, payload));
  },

  async keep_reading() {
    this.cursor = await start_of("flood", 0);
    this.reader = new FetchReader(stream_url("flood", "&maxQueued=16"), {
      open: () => this.pane.state("live"),
      frame: (frame) => this.frame(frame),
      end: (why) => {
        this.pane.state("away", "reconnecting");
        this.pane.note(`${why}; coming back at ${this.cursor}`);
      },
    });
    for (;;) {
      await this.reader.run(this.cursor);
      await sleep(500);
    }
  },

  async publish_until(what) {
    const { reached, published } = await ask(`/demo/flood?until=${what}`);
    if (!reached) throw new Error(`${published} events, and no ${what}: somebody reads them all`);
  },

  async slow(button) {
    const { pane, reader } = this;
    button.disabled = true;
    try {
      pane.note("the reader stops; the server publishes until it warns");
      pane.state("stalled", "not reading");
      reader.stall();
      const warned = new Promise((resolve) => { this.warned = resolve; });
      await this.publish_until("slow_client_warning");
      pane.note("warned; the reader reads on until it has the warning in hand");
      pane.state("live");
      reader.read_on();
      await warned;
      pane.note("the reader stops again; the server publishes until it evicts");
      pane.state("stalled", "not reading");
      reader.stall();
      const resynced = new Promise((resolve) => { this.resynced = resolve; });
      await this.publish_until("client_evicted");
      pane.note("evicted; the server goes on, past what it keeps for replay");
      await this.publish_until("ring_passed");
      pane.note("the reader reads on");
      reader.read_on();
      const reason = await resynced;
      pane.note(`resynced (${reason}): what is lost was said, and the stream goes on`);
    } catch (error) {
      reader.read_on();
      pane.note(`slow: ${error.message}`, "bad");
    }
    button.disabled = false;
  },
};
panes.flood.on("slow", (button) => flood.slow(button));

// diagnostics

const diagnostics = new EventSourceFeed(panes.diagnostics, (type, data) => {
  if (type !== "diagnostic") return `${type} ${JSON.stringify(data)}`;
  if (data.session in panes) panes[data.session].told(data.kind);
  return `${data.session}: ${data.kind} ${JSON.stringify(data.data)}`;
});

// the server, and other tabs

document.querySelector('[data-action="restart"]').addEventListener("click", () => {
  for (const pane of Object.values(panes)) pane.note("restarting the server");
  ask("/demo/restart").catch((error) => panes.build.note(`restart: ${error.message}`, "bad"));
});

const tabs = new BroadcastChannel("tidegate-demo");
tabs.onmessage = ({ data }) => {
  const notice = document.getElementById("notice");
  notice.textContent = "This page is open in another tab. Browsers allow six HTTP/1.1 connections to "
    + "a server and each tab holds four, so close one of them.";
  notice.hidden = false;
  if (data === "hello") tabs.postMessage("here");
};
tabs.postMessage("hello");

start_of("build", 20).then((cursor) => build.open(cursor));
story.open("0");
start_of("diagnostics", 20).then((cursor) => diagnostics.open(cursor));
flood.keep_reading();
