import type { ErrorName, Failure } from "./events.js";

/** What all errors of the client are. Neither message nor properties have a password in them. */
export class TetherError extends Error {
  /** The first word of the server's error, or one of the client's own, such as `TAKEN`. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
    this.name = new.target.name;
  }
}

/** Another owner has the lock, or still had it when the time to wait was over. */
export class Taken extends TetherError {}

/** The request would wait for itself, or close a cycle of waits. */
export class Deadlock extends TetherError {}

/** The server refuses for another reason, TLS verification failed, or the client refuses before it sends anything. */
export class Refused extends TetherError {}

/** There is no connection, or the server did not answer within the time to wait. */
export class Unreachable extends TetherError {}

/** The server has no module tether. */
export class NoModule extends TetherError {}

/** The server sends no pushes; its operator runs `tether qualify`. */
export class NoPush extends TetherError {}

/** The times do not fit the server's, or one another. */
export class Unfit extends TetherError {}

/** In a cluster, the keys or the prefix are of more than one slot. */
export class CrossSlot extends TetherError {}

/** The client was closed. */
export class Closed extends TetherError {}

/** The hold was lost: another owner may have the lock. */
export class Lost extends TetherError {
  /** Why: a word of the server (`lease`, `deleted`, `flushed`, ...), or `connection`, `silence` or `closed`. */
  readonly reason: string;

  constructor(reason: string, name: string) {
    super(reason, `lost ${name}: ${reason}`);
    this.reason = reason;
  }
}

const CLASSES: Record<Exclude<ErrorName, "lost">, typeof TetherError> = {
  taken: Taken,
  deadlock: Deadlock,
  refused: Refused,
  unreachable: Unreachable,
  nomodule: NoModule,
  nopush: NoPush,
  unfit: Unfit,
  crossslot: CrossSlot,
  closed: Closed,
};

/** The error of a failure that concerns this name. */
export function errorOf({ error, code, text }: Failure, name: string): TetherError {
  return error === "lost" ? new Lost("deleted", name) : new CLASSES[error](code, `${name}: ${text}`);
}
