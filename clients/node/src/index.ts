/** Locks that live as long as a connection, on Redis or Valkey with the module tether. */

export {
  Closed,
  CrossSlot,
  Deadlock,
  Lost,
  NoModule,
  NoPush,
  Refused,
  Taken,
  TetherError,
  Unfit,
  Unreachable,
} from "./errors.js";
export type { WatchChange } from "./events.js";
export type { Held, Send } from "./held.js";
export {
  type AcquireOptions,
  type ElectOptions,
  type Leader,
  type Lock,
  type LockOptions,
  Locks,
  type PresenceEvent,
  type SignalOptions,
  type WatchEvent,
} from "./locks.js";
export type { LocksOptions } from "./options.js";
