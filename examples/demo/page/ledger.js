// Keeps the books of one stream: every id of an epoch exactly once and in order, or a resync frame
// that says which ones are gone. Knows nothing of the page.

export class Ledger {
  constructor() {
    this.epoch = null;
    this.last = null; // the id seen last; null: the next one is taken as it comes
    this.expected = null; // the id with which a resync says it goes on
    this.joined = false; // the first replay is how a new page begins, not a resume
    this.counts = { events: 0, gaps: 0, duplicates: 0, announced: 0, resumes: 0, resyncs: 0,
      epochs: 0, warnings: 0, evictions: 0 };
  }

  /** An id as it stands in the stream: "<epoch>-<number>". */
  event(id) {
    const dash = id.lastIndexOf("-");
    const epoch = id.slice(0, dash);
    const number = Number(id.slice(dash + 1));
    const counts = this.counts;
    counts.events += 1;
    if (this.epoch !== null && epoch !== this.epoch) {
      // The server's history began anew. Without a resync frame before it that is a silent gap.
      if (this.expected === null) counts.gaps += 1;
      this.last = null;
      counts.epochs += 1;
    }
    this.epoch = epoch;
    const due = this.expected ?? (this.last === null ? null : this.last + 1);
    this.expected = null;
    if (due !== null && number > due) counts.gaps += number - due;
    if (due !== null && number < due) counts.duplicates += 1;
    this.last = Math.max(number, this.last ?? 0);
    return number;
  }

  /** A control frame. */
  control(type, data) {
    const counts = this.counts;
    if (type === "replay_complete") {
      if (this.joined) counts.resumes += 1;
      this.joined = true;
    }
    if (type === "slow_client_warning") counts.warnings += 1;
    if (type === "client_evicted") counts.evictions += 1;
    if (type === "state_resync_required") {
      counts.resyncs += 1;
      this.expected = data.earliestAvailableId;
      if (data.reason === "ring_evicted") {
        counts.announced += Math.max(0, data.earliestAvailableId - 1 - data.lastDeliveredId);
      }
    }
  }
}
