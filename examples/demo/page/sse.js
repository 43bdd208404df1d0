// A reader of event streams on top of fetch. Unlike EventSource it can stop reading, which is what
// a slow client does: the bytes then wait in the sockets, and in the end in the server.

export class Parser {
  constructor() {
    this.decoder = new TextDecoder("utf-8");
    this.rest = "";
    this.id = "";
    this.clear();
  }

  clear() {
    this.type = "";
    this.data = [];
  }

  /** Bytes of the stream -> [{type, data, id}], by the rules of the HTML standard. */
  feed(bytes) {
    const events = [];
    const lines = (this.rest + this.decoder.decode(bytes, { stream: true })).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (this.data.length) {
          events.push({ type: this.type || "message", data: this.data.join("\n"), id: this.id });
        }
        this.clear();
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      let value = colon < 0 ? "" : line.slice(colon + 1);
      if (value.startsWith(" ")) value = value.slice(1);
      if (field === "event") this.type = value;
      else if (field === "data") this.data.push(value);
      else if (field === "id" && !value.includes("\0")) this.id = value;
    }
    return events;
  }
}

export class FetchReader {
  /** on: {open(), frame({type, data, id}), end(why)} */
  constructor(url, on) {
    this.url = url;
    this.on = on;
    this.gate = null; // while set, nothing is read
    this.open_gate = null;
    this.abort = null;
  }

  /** Connect, after `cursor` if there is one, and read to the stream's end. */
  async run(cursor) {
    this.abort = new AbortController();
    const headers = { Accept: "text/event-stream" };
    if (cursor) headers["Last-Event-ID"] = cursor;
    let why = "the server ended the stream";
    try {
      const answer = await fetch(this.url, { headers, cache: "no-store", signal: this.abort.signal });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      this.on.open();
      const reader = answer.body.getReader();
      const parser = new Parser();
      for (;;) {
        if (this.gate) await this.gate;
        const { done, value } = await reader.read();
        if (done) break;
        for (const frame of parser.feed(value)) this.on.frame(frame);
      }
    } catch (error) {
      why = error.name === "AbortError" ? "closed here" : `the connection broke (${error.message})`;
    }
    this.on.end(why);
  }

  stall() {
    if (!this.gate) this.gate = new Promise((resolve) => { this.open_gate = resolve; });
  }

  read_on() {
    if (this.open_gate) this.open_gate();
    this.gate = this.open_gate = null;
  }

  close() {
    this.read_on();
    if (this.abort) this.abort.abort();
  }
}
