// What all programs here say: one JSON array a line, [type, id, data].

export const TYPES = [
  "tick",
  "stream_open",
  "stream_cursor",
  "replay_complete",
  "state_resync_required",
  "slow_client_warning",
  "client_evicted",
  "stream_error",
];

export function report(type, id, data) {
  process.stdout.write(`${JSON.stringify([type, id, data])}\n`);
}
