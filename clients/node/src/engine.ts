import type { Address } from "./address.js";
import { bootClock, clocks } from "./clock.js";
import { Core, type Settings, type Verdict } from "./core.js";
import { type Event, type Failure, failure, type Order } from "./events.js";
import { type Line, NoLine } from "./line.js";
import type { Id, Span, Terms } from "./request.js";
import type { Bytes, Frame } from "./resp.js";
import type { Finder } from "./servers.js";
import type { Members } from "./watching.js";

/** What can be asked of an engine. */
export type Call =
  | { readonly call: "acquire"; readonly id: Id; readonly terms: Terms }
  | { readonly call: "release"; readonly id: Id; readonly token: number }
  | { readonly call: "giveUp" | "checkServer" | "unwatch" | "endPresence"; readonly id: Id }
  | { readonly call: "extend"; readonly id: Id; readonly lease: number }
  | {
      readonly call: "watch";
      readonly id: Id;
      readonly keys: readonly Bytes[];
      readonly told?: ReadonlyMap<Bytes, boolean>;
    }
  | {
      readonly call: "presence";
      readonly id: Id;
      readonly prefix: Bytes;
      readonly isOfLeader: boolean;
      readonly told?: Members;
    }
  /** All nodes of the cluster that are known. */
  | { readonly call: "meet"; readonly nodes: readonly Address[] }
  | { readonly call: "close" };

/** Carries calls out, and tells events: here, in a Worker, or in the nodes of a cluster. */
export interface Carrier {
  /** A `giveUp` is always answered with an event that ends it. */
  do(call: Call): void;
  /** What is so by the clocks of now; undefined: an event said how it ended. */
  check(id: Id): Verdict | undefined;
  /** Closes it; fulfilled when the server has taken the holds back, or the time for that is over. */
  close(): Promise<void>;
}

/** The longest time of a timer. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** Engines that are told of the end of the program (P-REL-10). */
const open = new Set<Engine>();
process.on("exit", () => {
  for (const engine of open) engine.farewell();
});

/** A core with a connection and a timer. */
export class Engine implements Carrier {
  /** Called before the events of the same moment are told. */
  onVouched: (vouched: Span) => void = () => {};
  /** Nobody holds, waits or watches any more. */
  onIdle: () => void = () => {};

  readonly #core: Core;
  readonly #finder: Finder;
  readonly #tell: (event: Event) => void;
  #line: Line | undefined;
  /** Grows with each connection that is ordered or left: what a former one says is not heard. */
  #number = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Events that are not delivered yet, in order. */
  readonly #untold = new Set<Event>();
  #isScheduled = false;
  #wasWanted = false;
  #closed: (() => void)[] = [];

  constructor(settings: Settings, finder: Finder, tell: (event: Event) => void) {
    this.#core = new Core(clocks(), { ...settings, bootClock });
    this.#finder = finder;
    this.#tell = tell;
  }

  do(call: Call): void {
    if (call.call === "meet") return this.#finder.meet?.(call.nodes);
    const core = this.#core;
    core.now = clocks();
    // What is over by the clocks is over before the call, also if no timer has run.
    const isOver = core.isFenceOver || ("id" in call && typeof core.check(call.id) === "object");
    if (isOver) core.tick(clocks());
    switch (call.call) {
      case "acquire":
        core.acquire(call.id, call.terms);
        break;
      case "release":
        core.release(call.id, call.token);
        break;
      case "giveUp":
        if (!core.giveUp(call.id)) core.events.push({ kind: "over", id: call.id });
        break;
      case "extend":
        core.extend(call.id, call.lease);
        break;
      case "checkServer":
        core.checkServer(call.id);
        break;
      case "watch":
        core.watch(call.id, call.keys, call.told);
        break;
      case "unwatch":
        core.unwatch(call.id);
        break;
      case "presence":
        core.presence(call.id, call.prefix, call.isOfLeader, call.told);
        break;
      case "endPresence":
        core.endPresence(call.id);
        break;
      case "close":
        core.close();
        break;
    }
    this.#schedule();
  }

  check(id: Id): Verdict | undefined {
    this.#core.now = clocks();
    const verdict = this.#core.check(id);
    return verdict === "held" ? verdict : (this.#untoldLoss(id) ?? verdict);
  }

  /** A loss that the core has reported, and that is not delivered to its holder yet. */
  #untoldLoss(id: Id): Verdict | undefined {
    for (const events of [this.#untold, this.#core.events]) {
      for (const event of events) if (event.kind === "lost" && event.id === id) return { lost: event.reason };
    }
    return undefined;
  }

  close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#closed.push(resolve));
    this.do({ call: "close" });
    return closed;
  }

  /** When the lease of a hold ends. */
  leaseOf(id: Id): Span | undefined {
    return this.#core.leaseOf(id);
  }

  /** Whether somebody holds, waits or watches. */
  get isWanted(): boolean {
    return this.#core.isWanted;
  }

  farewell(): void {
    const commands = this.#core.farewell();
    if (commands.length > 0) this.#line?.write(commands);
  }

  /** Calls that are made together are sent together. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      this.#settle();
    });
  }

  /** What the core wants done is done. */
  #settle(): void {
    const core = this.#core;
    core.tick(clocks());
    const out = core.out.splice(0);
    for (const event of core.events.splice(0)) this.#untold.add(event);
    const orders = core.orders.splice(0);
    if (out.length > 0) this.#line?.write(out);
    if (core.vouched) this.onVouched(core.vouched);
    this.#setTimer();
    for (const event of this.#untold) {
      this.#untold.delete(event);
      this.#tell(event);
    }
    for (const order of orders) this.#carryOut(order); // P-FENCE-9
    const isIdle = this.#wasWanted && !core.isWanted;
    this.#wasWanted = core.isWanted;
    if (isIdle) this.onIdle();
    if (!core.isOver) return;
    clearTimeout(this.#timer); // It may be that of a request that has ended.
    open.delete(this);
    for (const closed of this.#closed.splice(0)) closed();
  }

  #setTimer(): void {
    const core = this.#core;
    clearTimeout(this.#timer);
    const at = core.nextTick();
    const isNeeded = core.isWanted || this.#closed.length > 0;
    if (at !== undefined) {
      const after = Math.min(LONGEST_TIMER, Math.max(0, Math.ceil(at - clocks().mono)));
      const timer = setTimeout(() => this.#settle(), after);
      this.#timer = isNeeded ? timer : timer.unref();
    }
    // The program ends when nobody holds, waits or watches.
    this.#line?.keepAlive(isNeeded);
  }

  #carryOut(order: Order): void {
    this.#number += 1;
    this.#line?.leave(order.kind === "leave_after" ? order.ms : 0);
    this.#line = undefined;
    if (order.kind === "connect") void this.#connect(this.#number);
    else open.delete(this);
  }

  async #connect(number: number): Promise<void> {
    try {
      const line = await this.#finder.find(this.#core.connectWithin, this.#core.slot);
      if (number !== this.#number) return line.leave();
      this.#begin(line, number);
    } catch (error) {
      if (number !== this.#number) return;
      const why: Failure = error instanceof NoLine ? error.why : failure("unreachable", String(error));
      this.#core.now = clocks();
      this.#core.unreached(why);
      this.#settle();
    }
  }

  #begin(line: Line, number: number): void {
    this.#line = line;
    open.add(this);
    line.onFrames = (frames) => this.#read(frames, number);
    line.onEnd = () => {
      if (number !== this.#number) return;
      this.#line = undefined;
      this.#core.now = clocks();
      this.#core.broke();
      this.#settle();
    };
    if (line.met) this.#tell({ kind: "met", ...line.met });
    this.#core.now = clocks();
    this.#core.connected("path" in line.address.endpoint);
    this.#settle();
  }

  #read(frames: readonly Frame[], number: number): void {
    this.#core.now = clocks();
    for (const frame of frames) {
      if (number !== this.#number) return;
      this.#core.recv(frame);
      if (this.#core.orders.length > 0) this.#settle();
    }
    this.#settle();
  }
}
