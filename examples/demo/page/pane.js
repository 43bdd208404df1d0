// One session on the page: its log, its counters, its state. Text is only ever set as text.

import { Ledger } from "./ledger.js";

const ROWS = 200;
const SHOWN = ["events", "gaps", "duplicates", "resumes", "warnings", "evictions", "resyncs",
  "announced", "epochs"];
const TOLD = { warnings: "slow_client_warning", evictions: "client_evicted" };
const LABELS = { announced: "announced lost" };

export class Pane {
  constructor(name, on_count) {
    this.name = name;
    this.root = document.querySelector(`[data-pane="${name}"]`);
    this.log_element = this.root.querySelector(".log");
    this.state_element = this.root.querySelector(".state");
    this.on_count = on_count;
    this.ledger = new Ledger();
    this.cells = {};
    this.server_counts = {};
    const list = this.root.querySelector(".counts");
    for (const key of SHOWN) {
      const row = document.createElement("div");
      const label = document.createElement("dt");
      const value = document.createElement("dd");
      label.textContent = LABELS[key] ?? key;
      value.dataset.count = key;
      row.append(label, value);
      list.append(row);
      this.cells[key] = value;
    }
    this.show_counts();
  }

  on(action, handler) {
    const button = this.root.querySelector(`[data-action="${action}"]`);
    button.addEventListener("click", () => handler(button));
  }

  state(state, text) {
    this.state_element.dataset.state = state;
    this.state_element.textContent = text ?? state;
  }

  /** An event with an id. Returns its number. */
  event(id, type, text) {
    const number = this.ledger.event(id);
    this.row(String(number), text, "");
    this.show_counts();
    return number;
  }

  /** A control frame: it has no id. */
  control(type, data) {
    this.ledger.control(type, data);
    const bad = type === "client_evicted" || type === "stream_error";
    const warn = type === "slow_client_warning" || type === "state_resync_required";
    this.row("·", `${type} ${JSON.stringify(data)}`, bad ? "bad" : warn ? "warn" : "control");
    this.show_counts();
  }

  /** What the server noticed about this session; a frame about it may have had no way to us. */
  told(kind) {
    this.server_counts[kind] = (this.server_counts[kind] ?? 0) + 1;
    this.show_counts();
  }

  /** What the page itself has to say. */
  note(text, kind = "note") {
    this.row("", text, kind);
  }

  row(id, text, kind) {
    const log = this.log_element;
    const follow = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const row = document.createElement("li");
    const id_cell = document.createElement("span");
    const text_cell = document.createElement("span");
    id_cell.className = "id";
    id_cell.textContent = id;
    text_cell.className = kind ? `text ${kind}` : "text";
    text_cell.textContent = text;
    row.append(id_cell, text_cell);
    log.append(row);
    while (log.childElementCount > ROWS) log.firstElementChild.remove();
    if (follow) log.scrollTop = log.scrollHeight;
  }

  show_counts() {
    for (const key of SHOWN) {
      const value = Math.max(this.ledger.counts[key], this.server_counts[TOLD[key]] ?? 0);
      this.cells[key].textContent = String(value);
      if (key === "gaps" || key === "duplicates") {
        this.cells[key].className = value === 0 ? "zero" : "wrong";
      }
    }
    this.on_count();
  }
}
