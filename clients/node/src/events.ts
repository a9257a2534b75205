import type { Met } from "./line.js";
import type { Id } from "./request.js";
import type { Bytes } from "./resp.js";

/** The names of errors (the table of protocol.md). `fork` is none of Node's, which does not fork. */
export type ErrorName =
  | "taken"
  | "deadlock"
  | "refused"
  | "unreachable"
  | "nomodule"
  | "nopush"
  | "unfit"
  | "crossslot"
  | "closed"
  | "lost";

/** Why something failed: a name, the first word of the server's error, and its text (P-ERR-1). */
export interface Failure {
  readonly error: ErrorName;
  readonly code: string;
  readonly text: string;
}

/** What the core tells, and of a cluster its nodes. */
export type Event =
  | { readonly kind: "granted"; readonly id: Id; readonly token: number; readonly key?: Bytes }
  | ({ readonly kind: "refused"; readonly id: Id } & Failure)
  | { readonly kind: "lost"; readonly id: Id; readonly reason: string }
  | { readonly kind: "releasing"; readonly id: Id; readonly code: string; readonly text: string }
  | { readonly kind: "released" | "over" | "extended" | "checked"; readonly id: Id }
  | ({ readonly kind: "not_extended" | "not_checked"; readonly id: Id } & Failure)
  | { readonly kind: "watch"; readonly id: Id; readonly key: Bytes; readonly is: WatchChange }
  | {
      readonly kind: "presence";
      readonly id: Id;
      readonly key: Bytes;
      readonly is: "add" | "set";
      readonly token: number;
      readonly value: Bytes | null;
    }
  | { readonly kind: "presence"; readonly id: Id; readonly key: Bytes; readonly is: "del"; readonly reason: string }
  | { readonly kind: "leader"; readonly id: Id; readonly token: number; readonly value: Bytes | null }
  | { readonly kind: "leader"; readonly id: Id; readonly token: null }
  | ({ readonly kind: "ended"; readonly id: Id } & Failure)
  | { readonly kind: "warning"; readonly warning: "no-boot-clock" }
  | ({ readonly kind: "met" } & Met);

export type WatchChange = "exists" | "missing" | "added" | "deleted";

/** What the core has its shell do with the connection. After `connect` comes `connected` or `unreached`. */
export type Order =
  | { readonly kind: "connect" | "leave" }
  /** Read and write no more, and close it after so many milliseconds. */
  | { readonly kind: "leave_after"; readonly ms: number };

/** An error of the client's own. */
export function failure(error: ErrorName, text: string, code: string = error.toUpperCase()): Failure {
  return { error, code, text };
}
