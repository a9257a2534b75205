import { Backlog } from "./backlog.js";
import { type Config, carrierOf } from "./carrier.js";
import type { Call, Carrier } from "./engine.js";
import { Closed, errorOf, Lost, Taken } from "./errors.js";
import type { Event, WatchChange } from "./events.js";
import { Held } from "./held.js";
import { configOf, type LocksOptions } from "./options.js";
import type { Id, Terms } from "./request.js";
import { type Bytes, bytes, text } from "./resp.js";

/** What a lock is. Times are in milliseconds. */
export interface LockOptions {
  /** The server ends the hold after that time, unless `held.extend` says otherwise. */
  readonly lease?: number;
  /** Names the owner; otherwise each request is an owner of its own. It must not begin with a dot. */
  readonly owner?: string;
  /** Grants a named owner again what it has; each request is to be released. */
  readonly reentrant?: boolean;
  /** So many replicas are to have the grant before it counts. Needs a `grace`. */
  readonly acks?: number;
  /** How long to wait for them. */
  readonly ackTimeout?: number;
  /** Nobody else has it sooner than that after the grant, also if it is released, or this process dies. Needs a `grace` as long. */
  readonly atLeast?: number;
}

/** How to ask for a lock. */
export interface AcquireOptions {
  /** Milliseconds to wait, 0: not at all; for ever unless given. Then it is `Taken`, or `Unreachable` if no server answers. */
  readonly wait?: number;
  /** Stops waiting: nothing of the request is left then, neither a place in the queue nor a hold. */
  readonly signal?: AbortSignal;
  /**
   * The same word for all requests of one course of action that does nothing else while it waits: so the
   * server finds deadlocks (`Deadlock`).
   */
  readonly task?: string;
}

export interface SignalOptions {
  /** Ends it: the loop throws the signal's reason. */
  readonly signal?: AbortSignal;
}

export interface ElectOptions extends SignalOptions {
  /** Hears who leads, or undefined if nobody does, and then each change. What it throws ends the loop. */
  readonly onLeader?: (leader: Leader | undefined) => void;
}

/** A change of a key that is watched: first what it is, then each change. */
export interface WatchEvent {
  readonly key: string;
  readonly is: WatchChange;
}

/** A temporary key that is there (`add`), has another value or owner (`set`), or is gone (`del`). */
export type PresenceEvent =
  | { readonly is: "add" | "set"; readonly key: string; readonly token: number; readonly value: string | null }
  | { readonly is: "del"; readonly key: string; readonly reason: string };

/** Who leads an election: the value that it stood with. */
export interface Leader {
  readonly token: number;
  readonly value: string | null;
}

/** A lock that can be acquired. It may be used by any number of callers; each `acquire` is a request of its own. */
export class Lock {
  readonly names: readonly string[];
  readonly #terms: Terms;
  readonly #requests: Requests;

  /** @internal */
  constructor(requests: Requests, names: readonly string[], terms: Terms) {
    this.#requests = requests;
    this.names = names;
    this.#terms = terms;
  }

  /**
   * Asks for it. Throws `Taken`, `Deadlock`, `Unreachable`, another `TetherError`, or the reason of the
   * signal.
   */
  acquire({ wait, signal, task }: AcquireOptions = {}): Promise<Held> {
    const terms = { ...this.#terms, wait, task: task === undefined ? undefined : bytes(task) };
    return this.#requests.acquire(this.names, terms, signal);
  }

  /** Asks for it without waiting; undefined: another owner has it. */
  async tryAcquire(options: Omit<AcquireOptions, "wait"> = {}): Promise<Held | undefined> {
    try {
      return await this.acquire({ ...options, wait: 0 });
    } catch (error) {
      if (error instanceof Taken) return undefined;
      throw error;
    }
  }

  /**
   * Runs `body` while the lock is held, and releases it. If the lock was lost meanwhile, this throws
   * `Lost` when the body has ended; the body hears of it by `held.signal`.
   */
  async using<R>(body: (held: Held) => R | Promise<R>, options?: AcquireOptions): Promise<R> {
    return runUnder(await this.acquire(options), body);
  }
}

async function runUnder<R>(held: Held, body: (held: Held) => R | Promise<R>): Promise<R> {
  let result: R;
  try {
    result = await body(held);
  } catch (error) {
    await held.release().catch(() => {}); // The body's own error says more.
    throw error;
  }
  await held.release();
  return result;
}

/**
 * Locks by one connection, on a Redis or Valkey server with the module tether.
 *
 * It connects when the first call needs a connection, and again whenever a later call does: one
 * object lives as long as the program. The program may end while nothing is held, awaited or watched.
 */
export class Locks implements AsyncDisposable {
  readonly #requests: Requests;

  /**
   * `url` is `redis://user:password@host:port/db`, `rediss://` for TLS, or `unix:///path`; of several
   * servers the client takes the one that is the master. Throws `TetherError` if it makes no sense.
   */
  constructor(url: string | readonly string[] = "redis://localhost:6379", options: LocksOptions = {}) {
    this.#requests = new Requests(configOf(typeof url === "string" ? [url] : url, options));
  }

  /** An exclusive lock. */
  lock(name: string, options: LockOptions = {}): Lock {
    return this.#lock([name], {}, options);
  }

  /** A lock for readers: any number of them, or one that is exclusive. */
  shared(name: string, options: LockOptions = {}): Lock {
    return this.#lock([name], { shared: true }, options);
  }

  /** `permits` (1 unless given) of the `of` permits that there are; all who use it must say the same number. */
  semaphore(name: string, { of, permits = 1, ...options }: LockOptions & { of: number; permits?: number }): Lock {
    return this.#lock([name], { permits: [permits, of] }, options);
  }

  /** Several locks in one step, or none of them. */
  all(names: readonly string[], options: LockOptions = {}): Lock {
    return this.#lock(names, {}, options);
  }

  /** A key with this value that is there as long as it is held; others read it, and `presence` sees it. */
  temporary(key: string, value: string, options: Pick<LockOptions, "acks" | "ackTimeout"> = {}): Lock {
    return this.#lock([key], { temporary: bytes(value) }, options);
  }

  /** A temporary key whose name the server makes of `key` and the token: unique, and in the order of the grants. */
  sequence(key: string, value: string): Lock {
    return this.#lock([key], { temporary: bytes(value), sequence: true }, {});
  }

  #lock(names: readonly string[], mode: Partial<Terms>, options: LockOptions): Lock {
    const { owner, lease, reentrant, acks, ackTimeout, atLeast } = options;
    const terms = {
      ...mode,
      keys: names.map(bytes),
      ...given({ lease, reentrant, acks, atLeast, acktimeout: ackTimeout }),
      ...given({ owner: owner === undefined ? undefined : bytes(owner) }),
    };
    return new Lock(this.#requests, names, terms);
  }

  /** Runs `body` while the lock of this name is held: see `Lock.using`. */
  using<R>(name: string, body: (held: Held) => R | Promise<R>, options: LockOptions & AcquireOptions = {}): Promise<R> {
    return this.lock(name, options).using(body, options);
  }

  /**
   * A function that runs `body` once at a time, wherever it is called. While it runs elsewhere, a call
   * gives undefined at once.
   */
  singleton<A extends unknown[], R>(
    name: string,
    body: (...given: A) => R | Promise<R>,
    options: LockOptions = {},
  ): (...given: A) => Promise<R | undefined> {
    const lock = this.lock(name, options);
    return async (...args) => {
      const held = await lock.tryAcquire();
      return held && runUnder(held, () => body(...args));
    };
  }

  /** Tells of each key whether it exists, and then each change, also over breaks. */
  async *watch(keys: string | readonly string[], { signal }: SignalOptions = {}): AsyncGenerator<WatchEvent, void> {
    const isThere = ({ is }: WatchEvent): boolean => is === "exists" || is === "added";
    const backlog = new Backlog<WatchEvent>(
      ({ key }) => key,
      (read, last) => {
        if (read === undefined) return { ...last, is: isThere(last) ? "exists" : "missing" };
        if (isThere(read) === isThere(last)) return undefined;
        return { ...last, is: isThere(last) ? "added" : "deleted" };
      },
    );
    const names = (typeof keys === "string" ? [keys] : keys).map(bytes);
    const id = this.#requests.freshId();
    const begin: Call = { call: "watch", id, keys: names };
    yield* this.#requests.feed(begin, { call: "unwatch", id }, names.join(), signal, backlog, (event) =>
      event.kind === "watch" ? { key: text(event.key), is: event.is } : undefined,
    );
  }

  /** Tells of each temporary key with this prefix, and then each change, also over breaks. */
  async *presence(prefix: string, { signal }: SignalOptions = {}): AsyncGenerator<PresenceEvent, void> {
    const isThere = (event: PresenceEvent | undefined): boolean => event !== undefined && event.is !== "del";
    const backlog = new Backlog<PresenceEvent>(
      ({ key }) => key,
      (read, last) => {
        if (last.is === "del") return isThere(read) ? last : undefined;
        return { ...last, is: isThere(read) ? "set" : "add" };
      },
      ({ is }) => is === "del",
    );
    const id = this.#requests.freshId();
    const begin: Call = { call: "presence", id, prefix: bytes(prefix), isOfLeader: false };
    yield* this.#requests.feed(begin, { call: "endPresence", id }, prefix, signal, backlog, (event) => {
      if (event.kind !== "presence") return undefined;
      const key = text(event.key);
      if (event.is === "del") return { is: event.is, key, reason: event.reason };
      return { is: event.is, key, token: event.token, value: textOrNull(event.value) };
    });
  }

  /** Tells who leads this election, or undefined if nobody does, and then each change. */
  async *observe(name: string, { signal }: SignalOptions = {}): AsyncGenerator<Leader | undefined, void> {
    const backlog = new Backlog<{ leader: Leader | undefined }>(
      () => "",
      (_, last) => last,
    );
    const id = this.#requests.freshId();
    const begin: Call = { call: "presence", id, prefix: bytes(name), isOfLeader: true };
    const feed = this.#requests.feed(begin, { call: "endPresence", id }, name, signal, backlog, (event) => {
      if (event.kind !== "leader") return undefined;
      return { leader: event.token === null ? undefined : { token: event.token, value: textOrNull(event.value) } };
    });
    for await (const { leader } of feed) yield leader;
  }

  /**
   * Stands in an election, again and again; `value` says who this is. Each turn of the loop is a term: it
   * begins when this candidate leads. Its body ends soon after `term.signal` is aborted; at its end the
   * candidate resigns, and stands again at the end of the queue. To leave the loop is to resign for
   * good.
   */
  async *elect(name: string, value: string, { signal, onLeader }: ElectOptions = {}): AsyncGenerator<Held, void> {
    const terms = { keys: [bytes(name)], temporary: bytes(value), elect: true };
    if (onLeader === undefined) return yield* this.#requests.elect(name, terms, signal);
    const over = new AbortController();
    const failed = new AbortController();
    const observe = async () => {
      try {
        for await (const leader of this.observe(name, { signal: over.signal })) onLeader(leader);
      } catch (error) {
        if (!over.signal.aborted) failed.abort(error);
      }
    };
    const observing = observe();
    try {
      const either = signal ? AbortSignal.any([signal, failed.signal]) : failed.signal;
      yield* this.#requests.elect(name, terms, either);
    } finally {
      over.abort();
      await observing;
    }
  }

  /** Loses all holds (`closed`), ends all requests (`Closed`), and gives everything back to the server. */
  close(): Promise<void> {
    return this.#requests.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function textOrNull(value: Bytes | null): string | null {
  return value === null ? null : text(value);
}

/** Without the fields that are undefined. */
function given<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never;
}

/** Who is to hear of which request. */
class Requests {
  readonly #carrier: Carrier;
  readonly #hearers = new Map<Id, (event: Event) => void>();
  /** The turns of the elections. */
  readonly #elections = new Set<Turn>();
  #isClosed = false;
  #ids = 0;

  constructor(config: Config) {
    this.#carrier = carrierOf(config, (event) => this.#hear(event));
  }

  freshId(): Id {
    this.#ids += 1;
    return this.#ids;
  }

  #hear(event: Event): void {
    if ("id" in event) return this.#hearers.get(event.id)?.(event);
    const text = "this system has no clock that runs on while it is suspended: locks may be lost without notice then";
    process.emitWarning(text, { code: "TETHER_NO_BOOT_CLOCK" });
  }

  async acquire(names: readonly string[], terms: Terms, signal: AbortSignal | undefined): Promise<Held> {
    signal?.throwIfAborted();
    const id = this.freshId();
    let giveUp = () => {};
    try {
      return await new Promise<Held>((resolve, reject) => {
        giveUp = () => {
          this.#hearers.delete(id);
          this.#carrier.do({ call: "giveUp", id });
          reject(signal?.reason);
        };
        signal?.addEventListener("abort", giveUp, { once: true });
        this.#hearers.set(id, (event) => {
          if (event.kind === "granted") {
            // From now on the hold is the caller's, and so is its release.
            signal?.removeEventListener("abort", giveUp);
            resolve(this.#held(id, names, event.token, event.key));
          } else if (event.kind === "refused") {
            this.#hearers.delete(id);
            reject(errorOf(event, names.join(", ")));
          }
        });
        this.#carrier.do({ call: "acquire", id, terms });
      });
    } finally {
      signal?.removeEventListener("abort", giveUp);
    }
  }

  #held(id: Id, names: readonly string[], token: number, made: Bytes | undefined): Held {
    const held = new Held(this.#carrier, id, made === undefined ? names : [text(made)], token);
    this.#hearers.set(id, (event) => {
      if (held.hear(event)) this.#hearers.delete(id);
    });
    return held;
  }

  /** The events of a watch, each as its reader wants it. */
  async *feed<E>(
    begin: Call,
    end: Call & { readonly id: Id },
    name: string,
    signal: AbortSignal | undefined,
    backlog: Backlog<E>,
    convert: (event: Event) => E | undefined,
  ): AsyncGenerator<E, void> {
    signal?.throwIfAborted();
    const { id } = end;
    const turn = new Turn();
    let error: unknown;
    const abort = () => turn.next();
    signal?.addEventListener("abort", abort);
    this.#hearers.set(id, (event) => {
      if (event.kind === "ended") error = errorOf(event, name);
      const converted = convert(event);
      if (converted !== undefined) backlog.push(converted);
      turn.next();
    });
    this.#carrier.do(begin);
    try {
      for (;;) {
        signal?.throwIfAborted();
        const event = backlog.shift();
        if (event !== undefined) yield event;
        else if (error !== undefined) throw error;
        else await turn.come();
      }
    } finally {
      signal?.removeEventListener("abort", abort);
      this.#hearers.delete(id);
      if (error === undefined) this.#carrier.do(end);
    }
  }

  async *elect(name: string, terms: Terms, signal: AbortSignal | undefined): AsyncGenerator<Held, void> {
    signal?.throwIfAborted();
    const id = this.freshId();
    const turn = new Turn();
    let term: Held | undefined;
    let error: unknown;
    let isLeaving = false;
    let isOver = false;
    let isReleasing = false;
    const abort = () => turn.next();
    signal?.addEventListener("abort", abort);
    this.#hearers.set(id, (event) => {
      if (event.kind === "releasing") isReleasing = true;
      if (event.kind === "granted") {
        term = new Held(this.#carrier, id, [name], event.token);
      } else if (event.kind === "refused") {
        error = errorOf(event, name);
      } else if (event.kind === "over" || term?.hear(event)) {
        isOver = isLeaving;
        isReleasing = false;
      }
      turn.next();
    });
    this.#elections.add(turn);
    this.#carrier.do({ call: "acquire", id, terms });
    let last: Held | undefined;
    try {
      for (;;) {
        signal?.throwIfAborted();
        if (error !== undefined) throw error;
        if (term === last || term?.lost !== undefined) {
          if (this.#isClosed) error = new Closed("CLOSED", `${name}: the client was closed`);
          else await turn.come();
          continue;
        }
        last = term;
        yield term as Held;
        if (last === term && term?.lost === undefined) {
          await term?.release().catch((failed) => {
            if (!(failed instanceof Lost)) throw failed;
          });
        }
      }
    } finally {
      signal?.removeEventListener("abort", abort);
      if (error === undefined) {
        isLeaving = true;
        this.#carrier.do({ call: "giveUp", id });
        // A refusal is an answer, too: the release is sent again without the caller (P-REL-6).
        while (!isOver && !isReleasing && error === undefined) await turn.come();
      }
      this.#elections.delete(turn);
      this.#hearers.delete(id);
    }
  }

  /** Elections hear of it here, since between two terms nothing need be told of one. */
  close(): Promise<void> {
    this.#isClosed = true;
    for (const turn of this.#elections) turn.next();
    return this.#carrier.close();
  }
}

/** Lets one reader wait until something happens. */
class Turn {
  #wake: (() => void) | undefined;
  #hasCome = false;

  next(): void {
    this.#hasCome = true;
    this.#wake?.();
  }

  async come(): Promise<void> {
    if (!this.#hasCome) await new Promise<void>((resolve) => (this.#wake = resolve));
    this.#hasCome = false;
    this.#wake = undefined;
  }
}
