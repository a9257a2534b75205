/** What an engine in a Worker (worker.ts) and the thread that uses it (remote.ts) share. */

import type { MessagePort } from "node:worker_threads";
import type { Config } from "./carrier.js";
import type { Event } from "./events.js";
import type { Span } from "./request.js";

/** What a Worker is made of. */
export interface WorkerData {
  readonly config: Config;
  readonly port: MessagePort;
  readonly shared: SharedArrayBuffer;
  /** For so many milliseconds the program's thread may stand still. */
  readonly maxBlock: number;
}

// Fields of the shared memory. A stamp that is read while it is written is of two moments; the earlier one counts.
export const VOUCHED_MONO = 0;
export const VOUCHED_BOOT = 1;
export const VOUCHED_MS = 2;
/** When the program's thread was last seen to go on. */
export const ALIVE = 3;
export const FIELDS = 4;

/** What a Worker says. */
export interface Message {
  readonly event?: Event;
  /** Of a hold that was granted or extended, when its lease ends. */
  readonly lease?: Span | undefined;
  /** Whether somebody holds, waits or watches, after so many calls. */
  readonly isWanted: boolean;
  readonly calls: number;
  readonly isClosed: boolean;
}
