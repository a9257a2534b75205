import type { Bytes, ErrorReply } from "./resp.js";

/** By which the core's user names what it asked for. */
export type Id = string | number;

/** Two clocks, in milliseconds: a monotonic one, and one that runs on while the machine is suspended (P-FENCE-3). */
export interface Clocks {
  readonly mono: number;
  readonly boot: number;
}

/** What is asked for. Times are in milliseconds. */
export interface Terms {
  readonly keys: readonly Bytes[];
  /** Absent: for ever; 0: the request does not wait. */
  readonly wait?: number | undefined;
  readonly shared?: boolean | undefined;
  /** So many of so many permits. */
  readonly permits?: readonly [number, number] | undefined;
  readonly owner?: Bytes | undefined;
  readonly task?: Bytes | undefined;
  readonly lease?: number | undefined;
  readonly reentrant?: boolean | undefined;
  readonly acks?: number | undefined;
  readonly acktimeout?: number | undefined;
  readonly atLeast?: number | undefined;
  /** The value of a temporary key. */
  readonly temporary?: Bytes | undefined;
  /** The server makes the temporary key's name. */
  readonly sequence?: boolean | undefined;
  /** Stands again after each term. */
  readonly elect?: boolean | undefined;
  /** The node that answers is only about to get the slot (P-CLUSTER-4). */
  readonly asking?: boolean | undefined;
}

/**
 * - `queued`: to be sent once it is first at its places, and there is a connection
 * - `asked`: sent, and not answered; or the break that cut the answer off is not settled
 * - `waiting`: it waits in a queue of the server
 * - `held`: granted
 * - `extending`, `kept`: released before its `atLeast` (P-LEAST-2)
 * - `releasing`: released or given up, and the server has not accepted that yet
 * - `over`: the server has nothing left of it
 */
export type Phase = "queued" | "asked" | "waiting" | "held" | "extending" | "kept" | "releasing" | "over";

/** What a holder asked the server about its hold: an answer for each key is to come. */
export interface Errand {
  readonly id: Id;
  /** In milliseconds; undefined: whether the token is current (P-GUARD-2). */
  readonly lease: number | undefined;
  readonly missing: Set<Bytes>;
  /** When an extension was sent for the first time. */
  sent?: Clocks;
}

/** A span of time that began at some moment. */
export interface Span {
  readonly from: Clocks;
  readonly ms: number;
}

const MOST = Number.MAX_SAFE_INTEGER;
/** Phases in which the server may have a hold. */
export const HOLDING: ReadonlySet<Phase> = new Set<Phase>(["held", "extending", "kept", "releasing"]);

/** P-ACQ-2. */
export function roundUp(ms: number): number {
  return Math.min(MOST, Math.max(1, Math.ceil(ms)));
}

/** A request, from the call until the server has nothing left of it. */
export class Request {
  keys: Bytes[];
  /** With SEQ, the server names the key: before that it has no place (P-TEMP-3). */
  isNamed: boolean;
  #phase: Phase = "queued";
  token = 0;
  isGivenUp = false;
  /** Its user wants it again after each term (P-ELECT-2). */
  isCandidate: boolean;
  /** Its user was told how it ended. */
  isSilent = false;
  /** It stood in a queue of a server (P-ACQ-7). */
  hasWaited = false;
  /** A server said at some time that it has a hold. */
  wasGranted = false;
  /** A release whose answer a break cut off was sent before (P-REL-7). */
  wasSentBefore = false;
  /** The last refusal that did not end it. */
  refusal: ErrorReply | undefined;
  /** A loss that came before the grant (P-LOSS-5). */
  early: { readonly reason: string; readonly key: Bytes } | undefined;
  granted: Clocks | undefined;
  lease: Span | undefined;
  kept: Span | undefined;
  /** All tokens that the client knew when it asked (P-SESS-11). */
  floor = 0;
  /** Keys of which a push said that they are lost. */
  readonly explained = new Set<Bytes>();
  /** Keys to release, and whether that is on the wire. */
  readonly unsettled = new Map<Bytes, boolean>();
  /** All requests that share the hold (P-OWNER-7). */
  readonly depth: Id[];
  readonly errands = new Set<Errand>();
  /** Codes of refused releases that were told. */
  readonly told = new Set<string>();

  constructor(
    readonly id: Id,
    readonly terms: Terms,
    readonly label: Bytes,
    readonly task: Bytes | undefined,
    readonly began: Clocks,
    /** How many requests the server may have a hold of. */
    private readonly holding: { count: number },
  ) {
    this.keys = [...terms.keys];
    this.isNamed = !terms.sequence;
    this.depth = [id];
    this.isCandidate = terms.elect ?? false;
  }

  get phase(): Phase {
    return this.#phase;
  }

  set phase(phase: Phase) {
    this.holding.count += Number(HOLDING.has(phase)) - Number(HOLDING.has(this.#phase));
    this.#phase = phase;
  }

  get isTemporary(): boolean {
    return this.terms.temporary !== undefined;
  }

  /** Undefined: for ever. */
  get wait(): number | undefined {
    return this.terms.sequence ? 0 : this.terms.wait;
  }

  get places(): Bytes[] {
    return this.isNamed ? this.keys.map((key) => this.place(key)) : [];
  }

  /** Whether its caller has released it, and the server has it still (P-OWNER-4). */
  get isLeft(): boolean {
    const isRefused = this.phase === "releasing" && this.refusal !== undefined;
    return isRefused || this.phase === "extending" || this.phase === "kept";
  }

  /** The leases that the server may have set; the one that ends first counts (P-LEASE-2). */
  get leases(): Span[] {
    const leases = this.lease ? [this.lease] : [];
    for (const { sent, lease } of this.errands) if (sent && lease !== undefined) leases.push({ from: sent, ms: lease });
    return leases;
  }

  place(key: Bytes): Bytes {
    return placeOf(this.isTemporary, key, this.label);
  }

  /** The command that asks for it, with what is left of its time (P-ACQ-1, P-TEMP-1). */
  words(left: number | undefined): Bytes[] {
    const terms = this.terms;
    const words = this.#subject();
    if (terms.shared) words.push("SHARED");
    if (terms.permits) words.push("PERMITS", String(terms.permits[0]), "OF", String(terms.permits[1]));
    if (!this.isTemporary) words.push("OWNER", this.label);
    if (this.task !== undefined) words.push("TASK", this.task);
    words.push("NOTIFY");
    if (terms.lease !== undefined) words.push("LEASE", String(roundUp(terms.lease)));
    if (this.wait !== 0 || terms.acks) words.push("WAIT", left === undefined ? "0" : String(roundUp(left)), "PUSH");
    if (terms.acks) {
      words.push("ACKS", String(terms.acks));
      if (terms.acktimeout) words.push("ACKTIMEOUT", String(roundUp(terms.acktimeout)));
    }
    return words;
  }

  #subject(): Bytes[] {
    const { temporary, sequence } = this.terms;
    if (temporary !== undefined) return ["SETTP", ...this.keys, temporary, sequence ? "SEQ" : "TOKEN"];
    if (this.keys.length > 1) return ["LOCK.MACQUIRE", String(this.keys.length), ...this.keys];
    return ["LOCK.ACQUIRE", ...this.keys];
  }

  /** P-REL-1. */
  releaseOf(key: Bytes): Bytes[] {
    return this.isTemporary ? ["DELTP", key] : ["LOCK.RELEASE", key, "OWNER", this.label, "ALL"];
  }

  /** Whether another request of this owner for this is granted along with it (P-OWNER-7). */
  isReenteredBy(terms: Terms): boolean {
    const own = this.terms;
    return (
      this.phase === "held" &&
      terms.reentrant === true &&
      terms.owner !== undefined &&
      own.reentrant === true &&
      own.shared === terms.shared &&
      String(own.permits) === String(terms.permits) &&
      this.keys.length === terms.keys.length &&
      this.keys.every((key, at) => key === terms.keys[at])
    );
  }
}

/** A key together with an owner's label, as one string; locks and temporary keys are apart. */
export function placeOf(isTemporary: boolean, key: Bytes, label: Bytes): Bytes {
  return `${isTemporary ? "t" : "l"}${label.length}:${label}${key}`;
}
