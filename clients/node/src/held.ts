import type { Carrier } from "./engine.js";
import { errorOf, Lost, Refused, type TetherError } from "./errors.js";
import type { Event } from "./events.js";
import type { Id } from "./request.js";

/**
 * Sends a command of your data's client: of ioredis `(words) => redis.call(...words)`, of node-redis
 * `(words) => client.sendCommand(words)`. It must not send the command again by itself.
 */
export type Send<R = unknown> = (words: [string, ...string[]]) => Promise<R>;

/** Refusals of a release that are none of the caller's errors (P-REL-6). */
const NO_ERRORS = new Set([
  ...["BUSY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "OOM"],
  ...["READONLY", "MASTERDOWN"],
]);

interface Waiting {
  resolve(): void;
  reject(error: TetherError): void;
}

/**
 * A lock that is held: until `release`, the end of its scope (`await using`), or a loss. After a loss
 * another client may have the lock, so stop the work.
 */
export class Held implements AsyncDisposable {
  /** What was asked for; of several locks, the first. */
  readonly name: string;
  readonly names: readonly string[];
  /**
   * The fencing token: greater than that of every earlier grant. Send it with each write to what the
   * lock protects, and let that refuse a smaller one than the greatest it has seen.
   */
  readonly token: number;
  /** Is aborted when the lock is lost, with the `Lost` as its reason. A release does not abort it. */
  readonly signal: AbortSignal;

  readonly #id: Id;
  readonly #carrier: Carrier;
  readonly #controller = new AbortController();
  readonly #errands: Record<"extend" | "checkServer", PromiseWithResolvers[]> = { extend: [], checkServer: [] };
  #lost: Lost | undefined;
  #isReleased = false;
  #releasing: PromiseWithResolvers | undefined;

  /** @internal */
  constructor(carrier: Carrier, id: Id, names: readonly string[], token: number) {
    this.#carrier = carrier;
    this.#id = id;
    this.names = names;
    this.name = names[0] as string;
    this.token = token;
    this.signal = this.#controller.signal;
  }

  /**
   * Why the lock is not held any more (`released`, or the reason of the loss), or undefined. It reads
   * the clocks, and asks nobody: so it is right also if the event loop stood still.
   */
  get lost(): string | undefined {
    if (this.#lost) return this.#lost.reason;
    if (this.#isReleased) return "released";
    const verdict = this.#carrier.check(this.#id);
    if (this.#lost) return (this.#lost as Lost).reason;
    return typeof verdict === "object" ? verdict.lost : undefined;
  }

  /** Throws `Lost` unless the lock is held. Call it before each step of the work; it costs microseconds. */
  check(): void {
    const reason = this.lost;
    if (reason !== undefined) throw new Lost(reason, this.name);
  }

  /**
   * Asks the server whether the token is that of a current hold. Throws `Lost` if it is not, `Refused`
   * if the server refuses to say.
   */
  checkServer(): Promise<void> {
    return this.#run("checkServer", () => this.#carrier.do({ call: "checkServer", id: this.#id }));
  }

  /** The lease ends so many milliseconds from now. Throws `Lost`, or `Refused`, and then the lock is held as before. */
  extend(lease: number): Promise<void> {
    return this.#run("extend", () => this.#carrier.do({ call: "extend", id: this.#id, lease }));
  }

  /**
   * Runs one command of your data's client only while the lock is held, checked by the server in the
   * same step (LOCK.GUARD). Throws `Lost`, and then nothing was written. It is never sent again: after
   * any other error nobody knows whether the command was run.
   */
  async guard<R>(send: Send<R>, ...command: [string, ...(string | number)[]]): Promise<R> {
    this.check();
    try {
      return await send(["LOCK.GUARD", this.name, String(this.token), ...command.map(String)]);
    } catch (error) {
      if (!(error instanceof Error) || !error.message.startsWith("STALE")) throw error;
      throw this.#lost ?? new Lost("stale", this.name);
    }
  }

  /**
   * Gives the lock back. Throws `Lost` if it was lost before: then the work was not protected to its
   * end. A refusal that is momentary is no error: the client sends the release again until the server
   * takes it. After a final one, which is `Refused`, it does so too. A second call does nothing.
   */
  async release(): Promise<void> {
    if (!this.#releasing) {
      const verdict = this.lost;
      this.#releasing = withResolvers();
      this.#releasing.promise.catch(() => {}); // Whoever awaits it hears of it.
      if (verdict !== undefined) this.#releasing.reject(this.#lost ?? new Lost(verdict, this.name));
      this.#isReleased = true;
      // The release ends them, which is no surprise to its caller: only who awaits them hears of it.
      for (const errands of Object.values(this.#errands)) for (const { promise } of errands) promise.catch(() => {});
      this.#carrier.do({ call: "release", id: this.#id, token: this.token });
    }
    return this.#releasing.promise;
  }

  /** The end of the scope releases it, and throws `Lost` if it was lost. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }

  /** @internal What the core told of it; whether that was the last. */
  hear(event: Event): boolean {
    switch (event.kind) {
      case "lost":
        this.#lost = new Lost(event.reason, this.name);
        this.#releasing?.reject(this.#lost);
        this.#endErrands(this.#lost);
        this.#controller.abort(this.#lost);
        return true;
      case "released":
        this.#isReleased = true;
        this.#releasing?.resolve();
        this.#endErrands(new Lost("released", this.name));
        return true;
      case "releasing":
        if (NO_ERRORS.has(event.code)) this.#releasing?.resolve();
        else this.#releasing?.reject(new Refused(event.code, `${this.name}: ${event.text}`));
        return false;
      case "extended":
        this.#errands.extend.shift()?.resolve();
        return false;
      case "checked":
        this.#errands.checkServer.shift()?.resolve();
        return false;
      case "not_extended":
      case "not_checked": {
        const lost = this.#lost ?? (this.#isReleased ? new Lost("released", this.name) : undefined);
        const error = event.error === "lost" && lost ? lost : errorOf(event, this.name);
        this.#errands[event.kind === "not_extended" ? "extend" : "checkServer"].shift()?.reject(error);
        return false;
      }
      default:
        return false;
    }
  }

  /** Events that come after the end of the hold are not delivered: no other answer would come. */
  #endErrands(why: Lost): void {
    for (const errands of Object.values(this.#errands)) for (const errand of errands.splice(0)) errand.reject(why);
  }

  #run(what: "extend" | "checkServer", act: () => void): Promise<void> {
    const errand = withResolvers();
    const reason = this.lost;
    if (reason === undefined) {
      this.#errands[what].push(errand);
      act();
    } else {
      errand.reject(new Lost(reason, this.name));
    }
    return errand.promise;
  }
}

interface PromiseWithResolvers extends Waiting {
  readonly promise: Promise<void>;
}

/** Promise.withResolvers, which Node 20 lacks. */
function withResolvers(): PromiseWithResolvers {
  let waiting!: Waiting;
  const promise = new Promise<void>((resolve, reject) => {
    waiting = { resolve, reject };
  });
  return { promise, ...waiting };
}
