/**
 * The rules of the client protocol (clients/protocol/protocol.md), without a socket, a clock or a
 * timer: calls, frames and the time go in; commands, events and orders come out.
 *
 * After each call of a method, the user of the core takes `out`, `events` and `orders` and empties
 * them, and has `tick` called at `nextTick`.
 */

import { type ErrorName, type Event, type Failure, failure, type Order } from "./events.js";
import {
  type Clocks,
  type Errand,
  HOLDING,
  type Id,
  type Phase,
  placeOf,
  Request,
  roundUp,
  type Span,
  type Terms,
} from "./request.js";
import { type Bytes, ErrorReply, type Frame, Push } from "./resp.js";
import { hashTag, slot } from "./slot.js";
import { cut, type Members, Presences, Watches } from "./watching.js";

/** How a client is set. Times are in milliseconds. */
export interface Settings {
  /** How long the server keeps a session without its connection; absent: no session. */
  readonly grace?: number | undefined;
  readonly stopWithin?: number | undefined;
  readonly fence?: number | undefined;
  readonly cluster?: boolean | undefined;
  /** Whether there is a clock that runs on in suspend; `uptime`: one that is rounded. */
  readonly bootClock?: boolean | "uptime" | undefined;
  /** Whether the program that relies on the holds is seen to live: for one that is not, nothing is vouched for. */
  readonly isProgramAlive?: (() => boolean) | undefined;
}

/** What `check` says. */
export type Verdict = "held" | "waiting" | "released" | { readonly lost: string };

// P-ERR-2, P-FENCE-6.
const MOMENTARY = new Set(["BUSY", "LOADING", "CLUSTERDOWN", "TRYAGAIN"]);
const UNWRITABLE = new Set(["NOREPLICAS", "MISCONF", "OOM"]);
const ON_ITS_WAY = new Set(["ASK"]); // P-CLUSTER-7
const NOT_HERE = new Set(["READONLY", "MASTERDOWN"]);
const VOUCH_FOR_NOTHING = new Set(["LOADING", "MASTERDOWN", "READONLY"]);

const CONNECT_WITHIN = 5000; // P-CONN-9
const MARGIN = 1000; // P-FENCE-1
const SHORTEST_FENCE = 100;
const FENCE_ON_UNIX = 5000;
const ROUNDING = 20; // P-FENCE-3
const SERVERS_WORD = 100; // P-ACQ-5
const FIRST_DELAY = 20; // P-RETRY-1
const LONGEST_DELAY = 1000;
const SOUND = 1000; // P-RETRY-2
const END_WITHIN = 2000; // P-CLOSE-1
const RESUME_TO_END_WITHIN = 1000; // P-CLOSE-2

/** Phases of what the server has, or may have by now, and is not to keep (P-LEAST-3). */
const PARTED_FROM: ReadonlySet<Phase> = new Set<Phase>(["held", "releasing", "asked", "waiting"]);

function isOf(codes: ReadonlySet<string>, reply: Frame): reply is ErrorReply {
  return reply instanceof ErrorReply && codes.has(reply.code);
}

function refusalOf(error: ErrorName, reply: ErrorReply): Failure {
  return failure(error, reply.text, reply.code);
}

const NEVER: Clocks = { mono: Number.POSITIVE_INFINITY, boot: Number.POSITIVE_INFINITY };

/** An entry of LOCK.MINE. */
interface Entry {
  readonly key: Bytes | null;
  readonly isTemporary: boolean;
  readonly label: Bytes;
  readonly token: number;
  /** What is left of it. */
  readonly lease: number | null;
}

/** A LOCK.MINE that is being read. */
interface Mine {
  /** After a resume it decides on all (P-SESS-6); else it is looked for these holds, lost for that reason if they are gone. */
  readonly isOfResume: boolean;
  reason: string;
  readonly held: Request[];
  readonly sent: Clocks;
  readonly entries: Entry[];
  hasPages: boolean;
}

export class Core {
  readonly out: Bytes[][] = [];
  readonly events: Event[] = [];
  readonly orders: Order[] = [];

  #now: Clocks;
  readonly #settings: Settings;
  readonly #random: () => number;

  #link: "none" | "opening" | "greeting" | "resuming" | "up" = "none";
  #linkSince: Clocks;
  #isUnix = false;
  readonly #replies: { readonly sent: Clocks; readonly then: (reply: Frame) => void }[] = [];
  /** When the command was sent that is being answered. */
  #answeredSent: Clocks;
  #secret: Bytes | undefined;
  /** D, while there is something that the server vouches for. */
  #fence: number | undefined;
  #fenceToBe = 0;
  #vouched: Clocks;
  #pinged: Clocks;

  readonly #requests = new Set<Request>();
  /** Those that have a time: of the wait, of a lease, or to be kept. */
  readonly #timed = new Set<Request>();
  /** No request's time is over before that: so a look at the clocks does not look at all requests. */
  #soonest = NEVER;
  readonly #holding = { count: 0 };
  readonly #byId = new Map<Id, Request>();
  readonly #places = new Map<Bytes, Request[]>();
  /** Requests of tasks that were released, and that the server did not take back, or keeps (P-OWNER-4). */
  readonly #lingering = new Set<Request>();
  #labels = 0;
  #greatestToken = 0;
  #mine: Mine | undefined;
  /** What is to be looked for once that is read, since a page of it is of before. */
  #lookAgain: { reason: string; held: Request[] } | undefined;

  #failedAttempts = 0;
  /** Why the last attempt failed, if none has succeeded since. */
  #whyNot: Failure | undefined;
  #connectAfter: Span | undefined;
  /** The last connection ended soon, and nobody wanted another one (P-RETRY-2). */
  #notBefore: Span | undefined;
  /** Commands that are sent again share one timer (P-RETRY-3). */
  #retries: (() => void)[] = [];
  #retryAfter: Span | undefined;
  #refusals = 0;

  readonly #watches: Watches;
  readonly #presences: Presences;

  /** All is being lost: what goes on, or stands again, does so at the next connection. */
  #isLosing = false;
  #isClosed = false;
  #closeAfter: Span | undefined;
  #parting: Bytes[][] = [];
  #hasWarned = false;

  constructor(now: Clocks, settings: Settings, random: () => number = Math.random) {
    this.#now = this.#linkSince = this.#answeredSent = this.#vouched = this.#pinged = now;
    this.#settings = settings;
    this.#random = random;
    const core = this;
    const wire = {
      get isUp() {
        return core.#link === "up";
      },
      send: (words: Bytes[], then: (reply: Frame) => void) => this.#send(words, then),
      tryAgain: (again: () => void) => this.#tryAgain(again),
      tell: (event: Event) => this.#tell(event),
      isMomentary: (reply: Frame) => isOf(MOMENTARY, reply) || isOf(ON_ITS_WAY, reply),
      isUnwritable: (reply: Frame) => isOf(UNWRITABLE, reply),
    };
    this.#watches = new Watches(wire);
    this.#presences = new Presences(wire);
  }

  // ---- time ----

  /** It is that late now, and no timer has run: the next call is to see that. */
  set now(now: Clocks) {
    this.#now = now;
  }

  /** How long ago that was (P-FENCE-3). */
  #elapsed(since: Clocks): number {
    return elapsed(since, this.#now, this.#settings.bootClock ?? true);
  }

  #left({ from, ms }: Span): number {
    return ms - this.#elapsed(from);
  }

  /** What is to be done in how many milliseconds. Each is read when those before it are done. */
  *#timers(): Generator<[left: number, act: () => void]> {
    const fence = this.#fence;
    if (fence !== undefined) yield [this.#left({ from: this.#vouched, ms: fence }), () => this.#onFence()];
    yield* this.#requestTimers();
    if (this.#closeAfter) yield [this.#left(this.#closeAfter), () => this.#drop({ kind: "leave" })];
    if (this.#link === "up" && this.#fence !== undefined && this.#secret !== undefined && this.#holding.count > 0) {
      yield [this.#left({ from: this.#vouched, ms: this.#fence / 2 }), () => this.#leave()]; // P-FENCE-10
    }
    if (this.#link === "greeting" || this.#link === "resuming") {
      yield [this.#left({ from: this.#linkSince, ms: this.connectWithin }), () => this.#leave()]; // P-CONN-9
    }
    if (this.#connectAfter) yield [this.#left(this.#connectAfter), () => this.#connect()];
    if (this.#link === "up" && this.#retryAfter) yield [this.#left(this.#retryAfter), () => this.#onRetry()];
    if (this.#link === "up" && this.#fence !== undefined)
      yield [this.#left({ from: this.#pinged, ms: this.#fence / 4 }), () => this.#ping()];
  }

  *#requestTimers(): Generator<[left: number, act: () => void]> {
    const left = Math.min(this.#soonest.mono - this.#now.mono, this.#soonest.boot - this.#now.boot);
    if (left > 0) return yield [left, () => {}];
    this.#soonest = NEVER;
    for (const request of this.#timed) {
      for (const [span, act] of this.#timersOf(request)) {
        this.#time(span);
        yield [this.#left(span), act];
      }
    }
  }

  #timersOf(request: Request): [Span, () => void][] {
    const { phase, wait, kept, began } = request;
    if (phase === "held") return request.leases.map((lease) => [lease, () => this.#onLease(request)]);
    if (phase === "kept" && kept) return [[kept, () => this.#end(request)]];
    const isWaiting = phase === "queued" || phase === "asked" || phase === "waiting";
    if (!isWaiting || !wait || request.isGivenUp) return [];
    return [[{ from: began, ms: wait + SERVERS_WORD }, () => this.#onWait(request)]];
  }

  /** A request has this time. */
  #time({ from, ms }: Span): void {
    const bootClock = this.#settings.bootClock ?? true;
    const boot = bootClock ? from.boot + ms + (bootClock === "uptime" ? ROUNDING : 0) : Number.POSITIVE_INFINITY;
    this.#soonest = { mono: Math.min(this.#soonest.mono, from.mono + ms), boot: Math.min(this.#soonest.boot, boot) };
  }

  /** When `tick` has something to do, on the monotonic clock. */
  nextTick(): number | undefined {
    let least = Number.POSITIVE_INFINITY;
    for (const [left] of this.#timers()) least = Math.min(least, left);
    return least === Number.POSITIVE_INFINITY ? undefined : this.#now.mono + Math.max(0, least);
  }

  /** It is that late now. */
  tick(now: Clocks): void {
    this.#now = now;
    for (const [left, act] of this.#timers()) if (left <= 0) act();
  }

  /** Whether nothing that was held is vouched for any more, also if no timer has run. */
  get isFenceOver(): boolean {
    return this.#fence !== undefined && this.#elapsed(this.#vouched) >= this.#fence;
  }

  /** For how long the server vouches for the holds; undefined: there are none. */
  get vouched(): Span | undefined {
    return this.#fence === undefined ? undefined : { from: this.#vouched, ms: this.#fence };
  }

  /** P-FENCE-8. */
  #onFence(): void {
    const isToStay = this.#secret === undefined;
    this.#fence = undefined;
    this.#loseAll("silence");
    this.#secret = undefined; // P-SESS-9
    if (this.#link === "none") return;
    const stay = isToStay ? (this.#settings.stopWithin ?? 0) : 0;
    this.#drop(stay > 0 ? { kind: "leave_after", ms: stay } : { kind: "leave" }); // P-FENCE-9
  }

  /** P-ACQ-5. */
  #onWait(request: Request): void {
    const isTaken =
      this.#link === "up" && (request.phase === "waiting" || (request.phase === "queued" && !request.refusal));
    const why = isTaken
      ? failure("taken", "another owner has it still")
      : request.refusal
        ? refusalOf("refused", request.refusal)
        : failure(
            "unreachable",
            `no server answered within the time to wait${this.#whyNot ? `: ${this.#whyNot.text}` : ""}`,
          );
    this.#tell({ kind: "refused", id: request.id, ...why });
    this.#silence(request);
    this.#giveUp(request);
  }

  /** P-LEASE-2. */
  #onLease(request: Request): void {
    if (request.phase !== "held") return; // Another of its leases ended it.
    for (const key of request.keys) request.explained.add(key);
    this.#lose(request, "lease", []);
  }

  #ping(): void {
    this.#pinged = this.#now;
    if (!this.#isProgramAlive) return;
    this.#send(["PING"], () => {});
    if (this.#settings.cluster) this.#watches.askAgain();
  }

  get #isProgramAlive(): boolean {
    return this.#settings.isProgramAlive?.() ?? true;
  }

  #onRetry(): void {
    this.#retryAfter = undefined;
    const retries = this.#retries;
    this.#retries = [];
    for (const again of retries) again();
  }

  #tryAgain(again: () => void): void {
    if (this.#retryAfter === undefined) {
      this.#retryAfter = { from: this.#now, ms: this.#delay(this.#refusals, LONGEST_DELAY) };
      this.#refusals += 1;
    }
    this.#retries.push(again);
  }

  /** P-RETRY-1. */
  #delay(failed: number, longest: number): number {
    return (Math.min(longest, FIRST_DELAY * 2 ** Math.min(failed, 16)) * (1 + this.#random())) / 2;
  }

  // ---- what the user calls ----

  /** Connects, as the first request would. */
  open(): void {
    this.#needLink();
  }

  acquire(id: Id, terms: Terms): void {
    const error = this.#errorIn(terms);
    if (error) return this.#tell({ kind: "refused", id, ...error });
    const isTemporary = terms.temporary !== undefined;
    const label = isTemporary ? "" : (terms.owner ?? this.#freshLabel());
    // The label of temporary keys is everybody's, and would be the task (P-OWNER-6).
    const task = terms.task ?? (isTemporary ? this.#freshLabel() : undefined);
    const request = new Request(id, terms, label, task, this.#now, this.#holding);
    const before = request.places.flatMap((place) => this.#places.get(place)?.at(-1) ?? []);
    const open = before.find((other) => isOpen(other));
    if (open?.isReenteredBy(terms)) {
      open.depth.push(id);
      this.#byId.set(id, open);
      return this.#granted(open, id);
    }
    // P-OWNER-3, P-OWNER-4.
    const isRefused = request.wait === 0 && (before.some((other) => other.isLeft) || this.#lingers(request));
    if (open && request.wait !== 0) {
      const why = failure("deadlock", "this owner holds it, or waits for it, already");
      return this.#tell({ kind: "refused", id, ...why });
    }
    if (open || isRefused) {
      const why = failure("taken", "this owner has it already, or the server has not taken it back yet");
      return this.#tell({ kind: "refused", id, ...why });
    }
    this.#requests.add(request);
    this.#byId.set(id, request);
    if (request.wait || terms.lease !== undefined || terms.atLeast !== undefined) this.#timed.add(request);
    if (request.wait) this.#time({ from: request.began, ms: request.wait + SERVERS_WORD });
    for (const place of request.places) {
      const queue = this.#places.get(place);
      if (queue) queue.push(request);
      else this.#places.set(place, [request]);
    }
    this.#needLink();
    this.#sendIfFirst(request);
  }

  /** What is wrong before anything is sent (P-LEVEL-2). */
  #errorIn({ keys, owner, acks, atLeast }: Terms): Failure | undefined {
    if (this.#isClosed) return failure("closed", "the client was closed");
    if (keys.length === 0 || new Set(keys).size < keys.length) {
      return failure("refused", "the keys must be one at least, and each another one", "KEYS");
    }
    if (owner?.startsWith(".")) return failure("refused", "an owner's name must not begin with a dot", "OWNER");
    const grace = this.#settings.grace;
    if (acks && grace === undefined) return failure("unfit", "acks needs a session: set a grace");
    if ((atLeast ?? 0) > (grace ?? 0)) return failure("unfit", "atLeast needs a session with a grace as long");
    if (this.#settings.cluster && new Set(keys.map(slot)).size > 1) {
      return failure("crossslot", "in a cluster all keys must be of one slot");
    }
    return undefined;
  }

  /** Whether the server has something of this request's task still: it would take the request for a deadlock (P-OWNER-4). */
  #lingers({ terms, keys, isTemporary }: Request): boolean {
    for (const former of terms.task === undefined ? [] : this.#lingering) {
      const isOfTask = former.terms.task === terms.task && former.isTemporary === isTemporary;
      if (isOfTask && former.keys.some((key) => keys.includes(key))) return true;
    }
    return false;
  }

  #linger(request: Request): void {
    if (request.terms.task !== undefined) this.#lingering.add(request);
  }

  #freshLabel(): Bytes {
    this.#labels += 1;
    return `.${this.#labels}`;
  }

  /** `token` says which hold: a candidate has the same id in each term. */
  release(id: Id, token?: number): void {
    const request = this.#byId.get(id);
    if (request === undefined || request.isGivenUp || (token ?? request.token) !== request.token) return;
    if (request.phase !== "held") return this.#giveUp(request);
    if (request.depth.length > 1) {
      request.depth.splice(request.depth.indexOf(id), 1);
      this.#byId.delete(id);
      return this.#tell({ kind: "released", id });
    }
    this.#endErrands(request);
    if (this.#restOf(request) > 0) return this.#keep(request);
    request.phase = "releasing";
    this.#sendReleases(request, request.keys);
  }

  /** Returns whether more is told of it. */
  giveUp(id: Id): boolean {
    const request = this.#byId.get(id);
    if (request === undefined) {
      // A candidate that lost its term before its resigning was answered would stand again with the answer.
      for (const silent of this.#requests) if (silent.id === id) silent.isCandidate = false;
      return false;
    }
    request.isCandidate = false;
    if (request.phase === "held") this.release(id);
    else this.#giveUp(request);
    return true;
  }

  #giveUp(request: Request): void {
    const { phase } = request;
    if (phase === "releasing" || phase === "kept" || phase === "extending" || request.isGivenUp) return;
    request.isGivenUp = true;
    if (phase === "queued" && request.unsettled.size === 0) {
      if (!request.isSilent) this.#tell({ kind: "over", id: request.id });
      return this.#end(request);
    }
    request.phase = "releasing";
    request.refusal = undefined;
    if (request.isNamed) this.#sendReleases(request, request.keys); // Else the answer says what to release.
  }

  #restOf(request: Request): number {
    const { atLeast } = request.terms;
    return atLeast && request.granted ? atLeast - this.#elapsed(request.granted) : 0;
  }

  /** P-LEAST-2: the hold is extended to what is left of its time, and kept unseen. */
  #keep(request: Request): void {
    request.phase = "extending";
    this.#linger(request);
    const rest = this.#restOf(request);
    if (rest <= 0) {
      request.phase = "releasing";
      return this.#sendReleases(request, request.keys);
    }
    if (this.#link !== "up") return;
    const kept = { from: this.#now, ms: rest };
    const missing = new Set(request.keys);
    const answered = (key: Bytes, reply: Frame): void => {
      if (request.phase !== "extending") return;
      if (reply instanceof ErrorReply && reply.code === "NOTHELD") {
        this.#notHeld(request, key);
      } else if (reply instanceof ErrorReply) {
        this.#tellReleasing(request, reply); // P-REL-5
        this.#tryAgain(() => request.phase === "extending" && this.#keep(request));
      } else {
        missing.delete(key);
        if (missing.size > 0) return;
        request.phase = "kept";
        request.kept = kept;
        this.#time(kept);
        this.#tellOver(request);
      }
    };
    for (const key of request.keys) {
      const words = ["LOCK.EXTEND", key, String(roundUp(rest)), "OWNER", request.label];
      this.#sendFor(request, words, (reply) => answered(key, reply));
    }
  }

  /** P-LEASE-1. */
  extend(id: Id, lease: number): void {
    this.#begin(id, lease);
  }

  /** P-GUARD-2. */
  checkServer(id: Id): void {
    this.#begin(id, undefined);
  }

  #begin(id: Id, lease: number | undefined): void {
    const request = this.#byId.get(id);
    const errand: Errand = { id, lease, missing: new Set(request?.keys) };
    if (request?.phase !== "held") return this.#fail(errand, failure("lost", "it is not held"));
    request.errands.add(errand);
    if (lease !== undefined) this.#timed.add(request);
    this.#sendErrand(request, errand);
  }

  #fail(errand: Errand, why: Failure): void {
    this.#tell({ kind: errand.lease === undefined ? "not_checked" : "not_extended", id: errand.id, ...why });
  }

  #sendErrand(request: Request, errand: Errand): void {
    const { id, lease, missing } = errand;
    const sent = this.#now;
    const answered = (key: Bytes, reply: Frame): void => {
      if (!request.errands.has(errand)) return;
      if (reply instanceof ErrorReply) {
        if (reply.code === "NOTHELD") return this.#notHeld(request, key);
        if (reply.code === "STALE") return this.#stale(request, key, reply);
        request.errands.delete(errand);
        return this.#fail(errand, refusalOf("refused", reply));
      }
      missing.delete(key);
      if (missing.size > 0) return;
      request.errands.delete(errand);
      if (lease === undefined) return this.#tell({ kind: "checked", id });
      request.lease = { from: sent, ms: lease };
      this.#time(request.lease);
      this.#tell({ kind: "extended", id });
    };
    if (this.#link !== "up") return;
    if (lease !== undefined) {
      errand.sent ??= sent;
      this.#time({ from: errand.sent, ms: lease });
    }
    for (const key of missing) {
      const words =
        lease === undefined
          ? ["LOCK.CHECK", key, String(request.token)]
          : ["LOCK.EXTEND", key, String(roundUp(lease)), "OWNER", request.label];
      this.#sendFor(request, words, (reply) => answered(key, reply));
    }
  }

  /** The server knows no such hold; one that is a replica knows of none. */
  #stale(request: Request, key: Bytes, reply: ErrorReply): void {
    if (reply.text.endsWith("replica")) return this.#demoted();
    this.#notHeld(request, key);
  }

  /** No push said that it is lost: its key was renamed (P-LEASE-3). */
  #notHeld(request: Request, key: Bytes): void {
    this.#lose(request, "deleted", [key]);
    this.#look("deleted", []);
  }

  /** What is so by the clocks of now; undefined: there is nothing of it any more, and an event said why (P-FENCE-4). */
  check(id: Id): Verdict | undefined {
    const request = this.#byId.get(id);
    if (request === undefined) return undefined;
    if (request.phase !== "held") return request.granted ? "released" : "waiting";
    if (this.isFenceOver) return { lost: "silence" };
    if (request.leases.some((lease) => this.#left(lease) <= 0)) return { lost: "lease" };
    return "held";
  }

  /** When the lease of a hold ends. */
  leaseOf(id: Id): Span | undefined {
    return this.#byId.get(id)?.lease;
  }

  /** `told`: of each key what the watcher was told at another node, of whether it exists. */
  watch(id: Id, keys: readonly Bytes[], told?: ReadonlyMap<Bytes, boolean>): void {
    if (this.#isClosed) return this.#ended(id, failure("closed", "the client was closed"));
    if (this.#settings.cluster && new Set(keys.map(slot)).size > 1) {
      return this.#ended(id, failure("crossslot", "in a cluster all keys must be of one slot"));
    }
    this.#watches.watch(id, keys, told);
    this.#needLink();
  }

  unwatch(id: Id): void {
    this.#watches.unwatch(id);
  }

  /**
   * The temporary keys with this prefix; `isOfLeader`: the one that is the whole of it. `told`: those
   * that the observer was told of at another node.
   */
  presence(id: Id, prefix: Bytes, isOfLeader = false, told?: Members): void {
    if (this.#isClosed) return this.#ended(id, failure("closed", "the client was closed"));
    if (this.#settings.cluster && hashTag(prefix) === undefined) {
      return this.#ended(id, failure("crossslot", "in a cluster a prefix needs a hash tag, such as members:{eu}:"));
    }
    this.#presences.watch(id, prefix, isOfLeader, told);
    this.#needLink();
  }

  endPresence(id: Id): void {
    this.#presences.unwatch(id);
  }

  #ended(id: Id, why: Failure): void {
    this.#tell({ kind: "ended", id, ...why });
  }

  /** P-CLOSE-1, P-CLOSE-2, P-LEAST-3. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#parting = this.#partingWords();
    const why = failure("closed", "the client was closed");
    for (const request of [...this.#requests]) this.#finish(request, "closed", why);
    this.#watches.end(why);
    this.#presences.end(why);
    this.#connectAfter = this.#retryAfter = this.#fence = undefined;
    if (this.#secret === undefined) {
      if (this.#link !== "none") this.#drop({ kind: "leave" });
      return;
    }
    this.#closeAfter = { from: this.#now, ms: this.#link === "up" ? END_WITHIN : RESUME_TO_END_WITHIN };
    if (this.#link === "up") this.#part();
    else if (this.#link === "none") this.#connect();
  }

  /** Whether it was closed, and nothing is left to do. */
  get isOver(): boolean {
    return this.#isClosed && this.#link === "none";
  }

  /** Whether somebody relies on the connection, or waits for it. */
  get isWanted(): boolean {
    return this.#requests.size > 0 || this.#watches.isWanted || this.#presences.isWanted;
  }

  #part(): void {
    for (const words of this.#parting.slice(0, -1)) this.#send(words, () => {});
    this.#send(this.#parting.at(-1) as Bytes[], () => this.#parted());
  }

  #parted(): void {
    this.#closeAfter = undefined;
    this.#drop({ kind: "leave" });
  }

  /** What frees all that is held, but not what is kept (P-CLOSE-1, P-LEAST-3). */
  #partingWords(): Bytes[][] {
    const requests = [...this.#requests];
    const isKept = requests.some(({ phase }) => phase === "kept" || phase === "extending");
    if (!isKept) return [["SESSION.END"]];
    const others = requests.filter(({ phase, isNamed }) => isNamed && PARTED_FROM.has(phase));
    const releases = others.flatMap((each) => {
      const asking = each.terms.asking ? [["ASKING"]] : []; // P-CLUSTER-4
      return each.keys.flatMap((key) => [...asking, each.releaseOf(key)]);
    });
    return [...releases, ["SESSION.DETACH"]];
  }

  /** What to write at the end of the program, when no answer can be waited for (P-REL-10). */
  farewell(): Bytes[][] {
    return this.#link === "up" && this.#secret !== undefined && !this.#isClosed ? this.#partingWords() : [];
  }

  // ---- the connection ----

  get #needsLink(): boolean {
    return !this.#isClosed && (this.#secret !== undefined || this.isWanted);
  }

  #needLink(): void {
    if (this.#link !== "none" || this.#connectAfter || this.#isClosed || this.#isLosing) return;
    if (this.#notBefore && this.#left(this.#notBefore) > 0) this.#connectAfter = this.#notBefore;
    else this.#connect();
  }

  #connect(): void {
    this.#connectAfter = this.#notBefore = undefined;
    this.#link = "opening";
    this.orders.push({ kind: "connect" });
  }

  /** In a cluster, a slot of the node that the connection is to lead to: if it holds anything, one of that (P-CLUSTER-6). */
  get slot(): number | undefined {
    let key = this.#watches.first ?? this.#presences.first;
    for (const { phase, keys } of this.#requests) {
      [key] = keys;
      if (HOLDING.has(phase)) break;
    }
    return key === undefined ? undefined : slot(key);
  }

  /** How long to try to open a connection, up to the answer to HELLO (P-CONN-9). */
  get connectWithin(): number {
    return this.#secret === undefined ? CONNECT_WITHIN : Math.min(CONNECT_WITHIN, (this.#fence ?? CONNECT_WITHIN) / 2);
  }

  /** A connection is open and greeted, up to LOCK.SERVER (P-CONN-2). `isUnix`: by a Unix socket. */
  connected(isUnix = false): void {
    this.#isUnix = isUnix;
    this.#linkSince = this.#now;
    this.#replies.length = 0;
    if (this.#secret === undefined) {
      this.#link = "greeting";
      this.#send(["LOCK.SERVER"], (reply) => this.#greeted(reply));
    } else {
      this.#link = "resuming";
      this.#send(["SESSION.RESUME", this.#secret, "NOTIFY"], (reply) => this.#resumed(reply));
    }
  }

  /** The connection that was ordered could not be opened, or was refused. */
  unreached(why: Failure = failure("unreachable", "no server was reached")): void {
    this.#link = "none";
    this.#endAttempt(why);
    this.#reconnect();
  }

  /** P-CONN-10. */
  #endAttempt(why: Failure): void {
    this.#whyNot = why;
    const isFinal = why.error !== "unreachable";
    for (const request of [...this.#requests]) {
      const isToEnd = request.phase === "queued" && !request.isGivenUp && (request.wait === 0 || isFinal);
      if (isToEnd) this.#finish(request, undefined, why);
    }
    if (isFinal) {
      this.#watches.end(why);
      this.#presences.end(why);
    }
  }

  #reconnect(): void {
    if (this.#needsLink && this.#link === "none" && !this.#connectAfter) this.#connectAfter = this.#nextAttempt();
  }

  /** After an attempt that failed (P-RETRY-1). */
  #nextAttempt(): Span {
    const { secret, fence } = { secret: this.#secret, fence: this.#fence };
    const longest = secret !== undefined && fence !== undefined ? Math.min(LONGEST_DELAY, fence / 8) : LONGEST_DELAY;
    this.#failedAttempts += 1;
    return { from: this.#now, ms: this.#delay(this.#failedAttempts - 1, longest) };
  }

  #greeted(reply: Frame): void {
    if (reply instanceof ErrorReply) {
      if (reply.text.includes("unknown command")) {
        return this.#leaveFor(failure("nomodule", "the server has no module tether")); // P-CONN-6
      }
      const isForNow = isOf(MOMENTARY, reply) || isOf(NOT_HERE, reply);
      return this.#leaveFor(refusalOf(isForNow ? "unreachable" : "refused", reply));
    }
    const server = reply as Map<Bytes, Frame>;
    if (server.get("role") !== "master") {
      return this.#leaveFor(failure("unreachable", "the server is a replica", "REPLICA")); // P-CONN-5
    }
    if (server.get("pushes") !== 1) {
      const text = "this server sends no pushes to this connection; on the server, run `tether qualify`";
      return this.#leaveFor(failure("nopush", text)); // P-NOPUSH-1
    }
    const most = this.#longestFence(Number(server.get("peer-timeout-ms") ?? 0));
    const fence = this.#settings.fence ?? most;
    if (fence < SHORTEST_FENCE || fence > most) return this.#leaveFor(failure("unfit", this.#misfit(most)));
    if (this.#settings.bootClock === false && !this.#hasWarned) {
      this.#hasWarned = true;
      this.#tell({ kind: "warning", warning: "no-boot-clock" }); // P-FENCE-5
    }
    this.#fenceToBe = fence;
    if (this.#settings.grace === undefined) this.#up();
    else this.#startSession();
  }

  /** P-FENCE-1. */
  #longestFence(peerTimeout: number): number {
    const { grace, stopWithin = 0 } = this.#settings;
    if (grace !== undefined) return grace - stopWithin - MARGIN;
    if (this.#isUnix) return FENCE_ON_UNIX;
    return peerTimeout === 0 ? 0 : Math.min(peerTimeout / 2, peerTimeout - stopWithin - MARGIN);
  }

  #misfit(most: number): string {
    const limit = this.#settings.grace === undefined ? "the server's tether.peer-timeout" : "the grace";
    return most < SHORTEST_FENCE
      ? `${limit} leaves no time to notice a loss and to stop`
      : `the fence must be between ${SHORTEST_FENCE} ms and the ${most} ms that ${limit} allows`;
  }

  #startSession(): void {
    this.#send(["SESSION.START", "GRACE", String(roundUp(this.#settings.grace ?? 0))], (reply) => {
      if (reply instanceof ErrorReply) {
        const isForNow = isOf(MOMENTARY, reply) || isOf(UNWRITABLE, reply) || isOf(NOT_HERE, reply);
        return this.#leaveFor(refusalOf(isForNow ? "unreachable" : "refused", reply)); // P-SESS-1
      }
      this.#secret = reply as Bytes;
      this.#up();
    });
  }

  /** A connection that has nothing of a former one. */
  #up(): void {
    this.#fence = this.#fenceToBe;
    this.#vouched = this.#answeredSent;
    this.#pinged = this.#now;
    this.#link = "up";
    this.#whyNot = undefined;
    for (const request of [...this.#requests]) this.#sendIfFirst(request);
    this.#watches.anew();
    this.#presences.anew();
  }

  #leaveFor(why: Failure): void {
    this.orders.push({ kind: "leave" });
    this.unreached(why);
  }

  #leave(): void {
    this.orders.push({ kind: "leave" });
    this.broke();
  }

  /** The connection is given up, and all that was on it. */
  #drop(order: Order): void {
    this.#closeAfter = undefined;
    this.orders.push(order);
    this.#cut();
    this.#goOn();
  }

  #cut(): void {
    this.#link = "none";
    this.#replies.length = 0;
    this.#mine = this.#lookAgain = undefined;
    this.#retries = [];
    this.#retryAfter = undefined;
    this.#refusals = 0;
  }

  /** P-RETRY-2. */
  #goOn(): void {
    if (this.#elapsed(this.#linkSince) < SOUND) {
      if (this.#needsLink) this.#reconnect();
      else this.#notBefore = this.#nextAttempt();
      return;
    }
    this.#failedAttempts = 0;
    if (this.#needsLink) this.#connect();
  }

  /** The connection ended. */
  broke(): void {
    if (this.#link === "none") return;
    const was = this.#link;
    this.#cut();
    if (this.#isClosed) {
      this.#closeAfter = undefined;
      return;
    }
    const early = failure("unreachable", "the connection ended before its greeting was answered");
    if (was === "greeting") return this.unreached(early);
    if (this.#secret === undefined) {
      this.#fence = undefined;
      this.#loseAll("connection");
    } else {
      for (const request of this.#requests) this.#cutOff(request);
    }
    if (was === "resuming") this.#endAttempt(early);
    this.#goOn();
  }

  /** P-SESS-2. */
  #cutOff(request: Request): void {
    for (const [key, isOnWire] of request.unsettled) {
      if (isOnWire) request.wasSentBefore = true;
      request.unsettled.set(key, false);
    }
    request.early = undefined; // LOCK.MINE says what is held.
    if (request.phase === "waiting") request.phase = "asked";
  }

  /** The session is gone, or the connection without one. `isElsewhere`: what the server refused goes on at another one. */
  #loseAll(reason: string, isElsewhere = false): void {
    this.#isLosing = true;
    const unreachable = failure("unreachable", "the connection ended before the server answered");
    for (const request of [...this.#requests]) {
      const { phase } = request;
      if (phase === "held") this.#finish(request, reason, undefined);
      else if (phase === "releasing" || phase === "kept" || phase === "extending") this.#settle(request);
      else if (phase === "asked" && request.wait === 0 && !isElsewhere) this.#finish(request, undefined, unreachable);
      else {
        request.hasWaited ||= phase === "waiting";
        request.phase = "queued";
        request.early = undefined;
      }
    }
    this.#isLosing = false;
  }

  /** P-SESS-8, P-LOSS-7. */
  #demoted(): void {
    if (this.#link === "none") return;
    if (this.#secret !== undefined) return this.#leave();
    this.#fence = undefined;
    this.#loseAll("demoted", true);
    this.#drop({ kind: "leave" });
  }

  // ---- what the server says ----

  #tell(event: Event): void {
    this.events.push(event);
  }

  #send(words: Bytes[], then: (reply: Frame) => void): void {
    this.out.push(words);
    this.#replies.push({ sent: this.#now, then });
  }

  /** Sends a command about this request's keys. */
  #sendFor(request: Request, words: Bytes[], then: (reply: Frame) => void): void {
    if (request.terms.asking) this.#send(["ASKING"], () => {}); // P-CLUSTER-4
    this.#send(words, then);
  }

  /** A frame arrived. */
  recv(frame: Frame): void {
    if (this.isFenceOver) this.tick(this.#now); // P-FENCE-8
    if (this.#link === "none" || this.#link === "opening") return;
    if (frame instanceof Push) return this.#pushed(frame.items);
    const waiting = this.#replies.shift();
    if (waiting === undefined) return this.#leave(); // P-FRAME-2
    this.#answeredSent = waiting.sent;
    if (this.#link !== "up") return waiting.then(frame);
    if (!isOf(VOUCH_FOR_NOTHING, frame)) this.#vouch(waiting.sent); // P-FENCE-6
    const isLoading = frame instanceof ErrorReply && frame.code === "LOADING";
    const isNotHere = isOf(NOT_HERE, frame) || (isLoading && this.#secret !== undefined);
    if (isNotHere && !this.#isClosed) this.#demoted();
    else waiting.then(frame);
  }

  /** P-FENCE-2. */
  #vouch(sent: Clocks): void {
    if (this.#isProgramAlive && this.#elapsed(sent) < this.#elapsed(this.#vouched)) this.#vouched = sent;
  }

  #pushed([kind, key, said]: readonly Frame[]): void {
    if (typeof key !== "string" || typeof said !== "string") return; // P-FRAME-4
    if (kind === "watchex") this.#watches.changed(key, said);
    else if (kind === "watchtp") this.#presences.changed(key, said);
    else if (kind === "lock" || kind === "settp") this.#saidOf(kind === "settp", key, said);
  }

  /** A push about a request: `<token>`, `TIMEOUT`, `LOST <reason>` or `FAILED <error>`, and then the label. */
  #saidOf(isTemporary: boolean, key: Bytes, said: Bytes): void {
    const [word, tail] = cut(said);
    const isLost = word === "LOST";
    const [what, label] = isLost || word === "FAILED" ? partAtLabel(tail ?? "") : [word, tail ?? ""];
    const request = this.#places.get(placeOf(isTemporary, key, label))?.[0];
    if (isLost) return this.#lostByPush(request, isTemporary, key, label, what);
    const token = /^\d+$/.test(word) ? Number(word) : undefined;
    if (request && token !== undefined) request.wasGranted = true;
    if (request === undefined || (request.phase !== "asked" && request.phase !== "waiting")) return; // P-REL-4
    if (token !== undefined) {
      this.#grant(request, token, this.#now);
    } else if (word === "TIMEOUT") {
      this.#finish(request, undefined, failure("taken", "another owner has it still"));
    } else if (what === "UNBLOCKED") {
      request.phase = "asked";
      this.#demoted();
    } else if (word === "FAILED") {
      this.#refused(request, new ErrorReply(what));
    }
  }

  #lostByPush(request: Request | undefined, isTemporary: boolean, key: Bytes, label: Bytes, reason: string): void {
    if (reason === "demoted") return this.#demoted();
    if (reason === "ended" && this.#secret !== undefined) {
      this.#secret = this.#fence = undefined;
      this.#loseAll("ended");
      return this.#drop({ kind: "leave" }); // P-SESS-10
    }
    if (request === undefined) return this.#lostElsewhere(isTemporary, label, reason);
    request.explained.add(key);
    const { phase } = request;
    if (phase === "held") this.#lose(request, reason, [key]);
    else if (phase === "kept") this.#end(request);
    else if (phase === "extending") this.#lose(request, reason, [key]);
    else if (phase !== "releasing") request.early = { reason, key };
    else if (!request.isGivenUp && !request.isSilent) this.#tellLost(request, reason); // P-LOSS-6
  }

  /** P-LOSS-4: no request has this key; it was renamed. */
  #lostElsewhere(isTemporary: boolean, label: Bytes, reason: string): void {
    const holds = [...this.#requests].filter(
      (each) => each.phase === "held" && each.isTemporary === isTemporary && each.label === label,
    );
    const hold = holds[0];
    if (hold === undefined) return;
    const isFresh = !isTemporary && hold.terms.owner === undefined;
    if (isFresh) this.#lose(hold, reason, hold.keys.length === 1 ? hold.keys : []);
    else this.#look(reason, holds);
  }

  // ---- requests ----

  /** P-OWNER-4. */
  #sendIfFirst(request: Request): void {
    if (this.#link !== "up" || this.#mine?.isOfResume || request.phase !== "queued") return;
    if (this.#isClosed || this.#isLosing) return;
    if (request.places.some((place) => this.#places.get(place)?.[0] !== request)) return;
    if (this.#lingers(request)) return;
    request.phase = "asked";
    request.floor = this.#greatestToken;
    this.#ask(request);
  }

  #ask(request: Request): void {
    const sent = this.#now;
    const { wait } = request;
    const left = wait === undefined ? undefined : Math.max(0, wait - this.#elapsed(request.began));
    this.#sendFor(request, request.words(left), (reply) => this.#answered(request, reply, sent));
  }

  #answered(request: Request, reply: Frame, sent: Clocks): void {
    if (Array.isArray(reply) && (request.phase === "asked" || request.phase === "releasing")) {
      this.#name(request, reply[0] as Bytes);
      if (request.phase === "releasing") return this.#sendReleases(request, request.keys);
      return this.#answered(request, reply[1] as number, sent);
    }
    if (request.phase === "releasing" && !request.isNamed) return this.#settle(request);
    const isGrant = typeof reply === "number" && !(request.isTemporary && reply === 0);
    if (isGrant) request.wasGranted = true;
    if (request.phase !== "asked") return;
    if (reply instanceof ErrorReply) return this.#refused(request, reply);
    if (isGrant) return this.#grant(request, reply, sent);
    if (request.wait === 0 && !request.terms.acks) {
      return this.#finish(request, undefined, failure("taken", "another owner has it"));
    }
    request.phase = "waiting";
    request.hasWaited = true;
    request.refusal = undefined;
  }

  /** P-TEMP-3. */
  #name(request: Request, name: Bytes): void {
    request.keys = [name];
    request.isNamed = true;
    this.#places.set(request.place(name), [request, ...(this.#places.get(request.place(name)) ?? [])]);
  }

  /** P-ACQ-3, P-ACQ-6, P-ACQ-7. */
  #refused(request: Request, error: ErrorReply): void {
    const isForNow = isOf(MOMENTARY, error) || (isOf(UNWRITABLE, error) && request.hasWaited);
    if (request.wait !== 0 && isForNow) {
      request.phase = "queued";
      request.refusal = error;
      return this.#tryAgain(() => this.#sendIfFirst(request));
    }
    if (request.wait !== 0 && error.code === "DEADLOCK" && this.#lingers(request)) {
      request.phase = "queued"; // It overtook a release that was refused.
      return;
    }
    const names: Record<string, ErrorName> = { DEADLOCK: "deadlock", QUARANTINE: "taken" };
    this.#finish(request, undefined, refusalOf(names[error.code] ?? "refused", error));
  }

  /** So much of its lease was left then: all, unless LOCK.MINE says less. */
  #grant(request: Request, token: number, leaseFrom: Clocks, lease = request.terms.lease): void {
    request.phase = "held";
    request.token = token;
    request.granted = this.#now;
    request.wasGranted = true;
    request.refusal = undefined;
    this.#greatestToken = Math.max(this.#greatestToken, token);
    if (lease !== undefined) {
      request.lease = { from: leaseFrom, ms: lease };
      this.#time(request.lease);
    }
    this.#granted(request, request.id);
    this.#refusals = 0;
    if (request.early) this.#lose(request, request.early.reason, [request.early.key]); // P-LOSS-5
  }

  #granted(request: Request, id: Id): void {
    const key = request.terms.sequence ? request.keys[0] : undefined;
    this.#tell({ kind: "granted", id, token: request.token, ...(key === undefined ? {} : { key }) });
  }

  /** Some of its keys are gone, so all of it is lost; the others are given back (P-LOSS-3). */
  #lose(request: Request, reason: string, gone: readonly Bytes[]): void {
    if (!request.isSilent) this.#tellLost(request, reason);
    const left = request.keys.filter((key) => !gone.includes(key));
    for (const key of gone) this.#leavePlace(request, key);
    request.keys = left;
    if (left.length === 0) return this.#standAgain(request);
    const isToStand = this.#isToStand(request);
    request.phase = "releasing";
    request.isGivenUp = true;
    this.#sendReleases(request, left);
    if (isToStand) this.acquire(request.id, request.terms); // Sent once that is settled (P-OWNER-4).
  }

  /** P-OWNER-8. */
  #tellLost(request: Request, reason: string): void {
    for (const id of request.depth) this.#tell({ kind: "lost", id, reason });
    this.#endErrands(request);
    this.#silence(request);
  }

  /** P-LEASE-1. */
  #endErrands({ errands }: Request): void {
    for (const errand of errands) this.#fail(errand, failure("lost", "it is not held any more"));
    errands.clear();
  }

  /** Nothing more is told of it. */
  #silence(request: Request): void {
    request.isSilent = true;
    for (const id of request.depth) if (this.#byId.get(id) === request) this.#byId.delete(id);
  }

  /** It ends: lost for this reason if it was held, else with this error. */
  #finish(request: Request, loss: string | undefined, why: Failure | undefined): void {
    const { phase } = request;
    if (phase === "held" && loss !== undefined) {
      this.#tellLost(request, loss);
    } else if (phase === "queued" || phase === "asked" || phase === "waiting") {
      if (!request.isSilent && !request.isGivenUp && why) this.#tell({ kind: "refused", id: request.id, ...why });
    } else if (!this.#isClosed) {
      return this.#settle(request);
    } else if (phase === "releasing" || phase === "extending") {
      this.#tellOver(request);
    }
    if (loss !== undefined && !this.#isClosed) this.#standAgain(request);
    else this.#end(request);
  }

  /** P-ELECT-2. */
  #standAgain(request: Request): void {
    const isToStand = this.#isToStand(request);
    this.#end(request);
    if (isToStand) this.acquire(request.id, request.terms);
  }

  #isToStand({ isCandidate, isGivenUp }: Request): boolean {
    return isCandidate && !isGivenUp && !this.#isClosed;
  }

  #sendReleases(request: Request, keys: readonly Bytes[]): void {
    for (const key of keys) request.unsettled.set(key, false);
    this.#sendUnsettled(request);
  }

  #sendUnsettled(request: Request): void {
    if (this.#link !== "up" || this.#mine?.isOfResume) return;
    for (const [key, isOnWire] of request.unsettled) {
      if (isOnWire) continue;
      request.unsettled.set(key, true);
      const { wasSentBefore } = request;
      this.#sendFor(request, request.releaseOf(key), (reply) => this.#released(request, key, wasSentBefore, reply));
    }
  }

  #released(request: Request, key: Bytes, wasSentBefore: boolean, reply: Frame): void {
    if (request.phase === "over") return;
    const code = reply instanceof ErrorReply ? reply.code : "";
    const isMoved = code === "MOVED"; // P-REL-8
    const isHeld = request.wasGranted && !request.explained.has(key);
    if (isMoved && isHeld && this.#secret !== undefined && !request.isSilent) return this.#leave();
    if (reply instanceof ErrorReply && code !== "NOTHELD" && !isMoved) return this.#notReleased(request, key, reply);
    this.#refusals = 0;
    request.unsettled.delete(key);
    const wasGone = code === "NOTHELD" || (request.isTemporary && reply === 0);
    // P-REL-7.
    if (wasGone && isHeld && !wasSentBefore) {
      if (!request.isGivenUp && !request.isSilent) this.#tellLost(request, "deleted");
      this.#look("deleted", []);
    }
    if (request.unsettled.size === 0) this.#settle(request);
  }

  /** P-REL-5. */
  #notReleased(request: Request, key: Bytes, error: ErrorReply): void {
    request.unsettled.set(key, false);
    request.refusal = error;
    this.#linger(request);
    this.#tellReleasing(request, error);
    for (const place of request.places) {
      for (const other of [...(this.#places.get(place) ?? [])]) {
        const isBehind = other !== request && other.phase === "queued" && other.wait === 0;
        if (isBehind) this.#finish(other, undefined, failure("taken", "the server has not taken it back yet"));
      }
    }
    this.#tryAgain(() => this.#sendUnsettled(request));
  }

  #tellReleasing(request: Request, { code, text }: ErrorReply): void {
    const [id] = request.depth;
    if (request.isSilent || request.told.has(code) || id === undefined) return;
    request.told.add(code);
    this.#tell({ kind: "releasing", id, code, text });
  }

  /** Nothing of it is left at the server. */
  #settle(request: Request): void {
    if (request.phase !== "kept") this.#tellOver(request);
    this.#standAgain(request);
  }

  #tellOver(request: Request): void {
    const [id] = request.depth;
    if (request.isSilent || id === undefined) return;
    this.#tell({ kind: request.isGivenUp ? "over" : "released", id });
  }

  #leavePlace(request: Request, key: Bytes): void {
    const place = request.place(key);
    const queue = this.#places.get(place);
    const at = queue?.indexOf(request) ?? -1;
    if (queue === undefined || at < 0) return;
    queue.splice(at, 1);
    const [next] = queue;
    if (next) this.#sendIfFirst(next);
    else this.#places.delete(place);
  }

  #end(request: Request): void {
    request.phase = "over";
    this.#silence(request);
    this.#requests.delete(request);
    this.#timed.delete(request);
    for (const key of request.keys) this.#leavePlace(request, key);
    if (this.#lingering.delete(request)) for (const other of [...this.#requests]) this.#sendIfFirst(other);
  }

  // ---- sessions ----

  #resumed(reply: Frame): void {
    if (this.#isClosed) return reply instanceof ErrorReply ? this.#parted() : this.#part();
    if (reply instanceof ErrorReply) {
      if (reply.code === "NOSESSION") return this.#sessionIsOver();
      this.#cut();
      return this.#leaveFor(refusalOf("unreachable", reply)); // P-SESS-4
    }
    this.#vouch(this.#answeredSent);
    this.#pinged = this.#now;
    this.#link = "up";
    this.#whyNot = undefined;
    for (const request of this.#requests) this.#sendUnsettled(request);
    this.#readMine({ isOfResume: true, reason: "connection", held: [...this.#requests] });
    this.#watches.anew();
    this.#presences.anew();
  }

  /** P-SESS-7. */
  #sessionIsOver(): void {
    this.#secret = undefined;
    this.#fenceToBe = this.#fence ?? this.#fenceToBe;
    this.#fence = undefined;
    this.#loseAll("connection");
    this.#link = "greeting";
    this.#startSession();
  }

  /** P-LOSS-4, P-REL-7: what of this is still there, and what is there that nothing claims. */
  #look(reason: string, held: readonly Request[]): void {
    if (this.#mine === undefined) return this.#readMine({ isOfResume: false, reason, held: [...held] });
    if (this.#mine.hasPages) this.#lookAgain ??= { reason, held: [] };
    const about = this.#lookAgain ?? this.#mine;
    if (held.length > 0) about.reason = reason;
    about.held.push(...held.filter((each) => !about.held.includes(each)));
  }

  #readMine(what: Pick<Mine, "isOfResume" | "reason" | "held">): void {
    this.#mine = { ...what, sent: this.#now, entries: [], hasPages: false };
    this.#send(["LOCK.MINE"], (reply) => this.#page(reply));
  }

  #page(reply: Frame): void {
    const mine = this.#mine;
    if (mine === undefined) return;
    if (reply instanceof ErrorReply) return this.#mineIsRefused(mine, reply);
    const [cursor, entries] = reply as [Bytes, Map<Bytes, Frame>[]];
    mine.hasPages = true;
    for (const entry of entries) if (entry.get("state") === "held") mine.entries.push(entryOf(entry));
    if (cursor !== "0") return this.#send(["LOCK.MINE", "CURSOR", cursor], (next) => this.#page(next));
    this.#mine = undefined;
    this.#compare(mine);
    const again = this.#lookAgain;
    this.#lookAgain = undefined;
    if (again) this.#look(again.reason, again.held);
  }

  #mineIsRefused(mine: Mine, error: ErrorReply): void {
    const isForNow = isOf(MOMENTARY, error) || (mine.isOfResume && isOf(UNWRITABLE, error));
    if (mine.isOfResume && isForNow) return this.#leave(); // P-SESS-4
    this.#mine = undefined;
    if (mine.isOfResume) {
      this.#send(["SESSION.END"], () => {}); // P-SESS-7
      this.#sessionIsOver();
    } else if (isForNow) {
      this.#tryAgain(() => this.#look(mine.reason, mine.held));
    } else {
      const again = this.#lookAgain;
      this.#lookAgain = undefined;
      for (const { held, reason } of again ? [mine, again] : [mine]) {
        for (const request of held) if (request.phase === "held") this.#lose(request, reason, []);
      }
    }
  }

  /** P-SESS-6. */
  #compare(mine: Mine): void {
    const byOwner = new Map<string, Request[]>();
    for (const request of this.#requests) {
      const owner = placeOf(request.isTemporary, "", request.label);
      byOwner.set(owner, [...(byOwner.get(owner) ?? []), request]);
    }
    const unclaimed: Entry[] = [];
    const found = new Map<Request, Entry[]>();
    for (const entry of mine.entries) {
      const own = byOwner.get(placeOf(entry.isTemporary, "", entry.label));
      const request = own?.find((each) => claims(each, entry));
      if (request === undefined) unclaimed.push(entry);
      else found.set(request, [...(found.get(request) ?? []), entry]);
    }
    for (const request of mine.held) {
      const entries = found.get(request) ?? [];
      if (request.phase === "held" || request.phase === "kept" || request.phase === "extending") {
        this.#compareHold(request, entries, mine.reason);
      } else if (request.phase === "asked" && mine.isOfResume) {
        this.#compareRequest(request, entries, mine.sent);
      } else if (request.phase === "releasing" && !request.isNamed && mine.isOfResume) {
        this.#settle(request);
      }
    }
    for (const entry of unclaimed) {
      // One that follows no resume may be of before what is at that place now.
      const isOthers = !mine.isOfResume && this.#places.has(placeOf(entry.isTemporary, entry.key ?? "", entry.label));
      if (!isOthers) this.#releaseUnclaimed(entry);
    }
    if (!mine.isOfResume) return;
    for (const request of [...this.#requests]) {
      if (request.phase === "extending") this.#keep(request);
      for (const errand of request.errands) this.#sendErrand(request, errand);
      this.#sendIfFirst(request);
      this.#sendUnsettled(request);
    }
  }

  #compareHold(request: Request, entries: readonly Entry[], reason: string): void {
    if (entries.length >= request.keys.length) return;
    if (request.phase === "kept") return this.#end(request);
    const there = new Set(entries.map(({ key }) => key));
    this.#lose(
      request,
      reason,
      request.keys.filter((key) => !there.has(key)),
    );
  }

  #compareRequest(request: Request, entries: readonly Entry[], sent: Clocks): void {
    const [first] = entries;
    if (first && entries.length === request.keys.length) {
      const left = Math.min(...entries.map((entry) => entry.lease ?? Number.POSITIVE_INFINITY));
      return this.#grant(request, first.token, sent, Number.isFinite(left) ? left : undefined);
    }
    request.phase = "queued";
    request.hasWaited = true;
    for (const entry of entries) this.#releaseUnclaimed(entry);
  }

  #releaseUnclaimed({ key, isTemporary, label }: Entry): void {
    if (key === null) return; // Its user may not read the name. It ends with the session.
    const terms = { keys: [key], owner: label, wait: 0, ...(isTemporary ? { temporary: "" } : {}) };
    const request = new Request("", terms, label, undefined, this.#now, this.#holding);
    request.isSilent = request.isGivenUp = true;
    request.phase = "releasing";
    this.#requests.add(request);
    const place = request.place(key);
    this.#places.set(place, [request, ...(this.#places.get(place) ?? [])]);
    this.#sendReleases(request, request.keys);
  }
}

/** How long after one reading of the clocks the other one was (P-FENCE-3). */
export function elapsed(since: Clocks, now: Clocks, bootClock: boolean | "uptime"): number {
  const mono = now.mono - since.mono;
  if (!bootClock) return mono;
  return Math.max(mono, now.boot - since.boot - (bootClock === "uptime" ? ROUNDING : 0));
}

/** Whether the request is neither released nor given up (P-OWNER-3). */
function isOpen({ phase, isGivenUp }: Request): boolean {
  return phase !== "releasing" && phase !== "extending" && phase !== "kept" && !isGivenUp;
}

/** The reason of LOST or the error of FAILED, and the label behind it. */
function partAtLabel(said: Bytes): [Bytes, Bytes] {
  const words = said.split(" ");
  const sizes: Record<string, number> = { MOVED: 3, ASK: 3, NOACKS: 4 };
  const size = sizes[words[0] as string] ?? 1;
  return [words.slice(0, size).join(" "), words.slice(size).join(" ")];
}

function entryOf(entry: Map<Bytes, Frame>): Entry {
  return {
    key: entry.get("key") as Bytes | null,
    isTemporary: entry.get("kind") === "temporary",
    label: (entry.get("label") as Bytes | null) ?? "",
    token: entry.get("token") as number,
    lease: (entry.get("lease-ms") as number | null | undefined) ?? null,
  };
}

/** Whether a hold that the server listed, of the same owner, is this request's. */
function claims(request: Request, { key, token }: Entry): boolean {
  const { phase } = request;
  if ((phase === "held" || phase === "kept" || phase === "extending") && request.token === token) return true;
  if (key === null || !request.isNamed || !request.keys.includes(key)) return false;
  // One that is not newer is an earlier hold of that name (P-SESS-11).
  return phase === "releasing" || ((phase === "asked" || phase === "waiting") && token > request.floor);
}
