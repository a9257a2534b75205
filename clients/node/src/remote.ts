import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from "node:worker_threads";
import type { Config } from "./carrier.js";
import { bootClock, clocks } from "./clock.js";
import { elapsed, type Verdict } from "./core.js";
import type { Call, Carrier } from "./engine.js";
import { type Event, failure } from "./events.js";
import type { Id, Span } from "./request.js";
import { ALIVE, FIELDS, type Message, VOUCHED_BOOT, VOUCHED_MONO, VOUCHED_MS, type WorkerData } from "./worker-data.js";

/** The program's thread says more often than that that it goes on. */
const SIGNS = 8;

interface Open {
  readonly call: Call;
  /** It stands again after each term. */
  isCandidate: boolean;
  isHeld: boolean;
  lease: Span | undefined;
}

/**
 * An engine in a Worker: it answers for the holds while this thread stands still, for `maxBlock` at
 * most. `check` needs no answer of the Worker: how long the server vouches is in shared memory, and
 * what the Worker told is read first.
 */
export class Remote implements Carrier {
  readonly #worker: Worker;
  readonly #port: MessagePort;
  readonly #fields: Float64Array;
  readonly #tell: (event: Event) => void;
  readonly #open = new Map<Id, Open>();
  readonly #signs: NodeJS.Timeout;
  #calls = 0;
  #closed: (() => void)[] = [];
  #isClosing = false;
  #isOver = false;

  constructor(config: Config, maxBlock: number, tell: (event: Event) => void) {
    this.#tell = tell;
    const shared = new SharedArrayBuffer(FIELDS * Float64Array.BYTES_PER_ELEMENT);
    this.#fields = new Float64Array(shared);
    this.#sign();
    this.#signs = setInterval(() => this.#sign(), maxBlock / SIGNS).unref();
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    const workerData: WorkerData = { config, port: port2, shared, maxBlock };
    this.#worker = new Worker(new URL("./worker.js", import.meta.url), { workerData, transferList: [port2] });
    port1.on("message", (message: Message) => this.#receive(message));
    this.#worker.on("error", () => this.#end());
    this.#worker.on("exit", () => this.#end());
    this.#keepAlive(false);
  }

  #sign(): void {
    this.#fields[ALIVE] = clocks().mono;
  }

  /** Whether the program is to go on while the Worker does. */
  #keepAlive(is: boolean): void {
    if (is) {
      this.#worker.ref();
      this.#port.ref();
    } else {
      this.#worker.unref();
      this.#port.unref();
    }
  }

  do(call: Call): void {
    this.#sign();
    if (call.call === "acquire" || call.call === "watch" || call.call === "presence") {
      const isCandidate = call.call === "acquire" && call.terms.elect === true;
      this.#open.set(call.id, { call, isCandidate, isHeld: false, lease: undefined });
    }
    const open = call.call === "giveUp" ? this.#open.get(call.id) : undefined;
    if (open) open.isCandidate = false;
    if (call.call === "unwatch" || call.call === "endPresence") this.#open.delete(call.id);
    if (call.call === "close") this.#isClosing = true;
    this.#calls += 1;
    this.#keepAlive(true);
    this.#port.postMessage(call);
    if (this.#isOver) queueMicrotask(() => this.#end());
  }

  check(id: Id): Verdict | undefined {
    for (let next = receiveMessageOnPort(this.#port); next; next = receiveMessageOnPort(this.#port)) {
      this.#receive(next.message);
    }
    const open = this.#open.get(id);
    if (open === undefined) return undefined;
    if (!open.isHeld) return "waiting";
    const now = clocks();
    const [mono = 0, boot = 0] = [this.#fields[VOUCHED_MONO], this.#fields[VOUCHED_BOOT]];
    if (elapsed({ mono, boot }, now, bootClock) >= (this.#fields[VOUCHED_MS] as number)) return { lost: "silence" };
    const { lease } = open;
    if (lease && elapsed(lease.from, now, bootClock) >= lease.ms) return { lost: "lease" };
    return "held";
  }

  close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#closed.push(resolve));
    this.do({ call: "close" });
    return closed;
  }

  #receive({ event, lease, isWanted, calls, isClosed }: Message): void {
    if (isClosed) return this.#end();
    // What it says is of before the calls that it has not seen.
    if (calls === this.#calls) this.#keepAlive(isWanted || this.#closed.length > 0);
    if (event === undefined) return;
    if ("id" in event) this.#note(event.id, event.kind, lease);
    this.#tell(event);
  }

  #note(id: Id, kind: Event["kind"], lease: Span | undefined): void {
    const open = this.#open.get(id);
    if (open === undefined) return;
    if (kind === "granted") open.isHeld = true;
    if (kind === "granted" || kind === "extended") open.lease = lease;
    if (kind === "refused" || kind === "over" || kind === "ended") this.#open.delete(id);
    if (kind !== "lost" && kind !== "released") return;
    if (open.isCandidate) open.isHeld = false;
    else this.#open.delete(id);
  }

  /** The Worker has ended: on purpose, or since it failed. */
  #end(): void {
    this.#isOver = true;
    clearInterval(this.#signs);
    this.#port.close();
    const why = this.#isClosing
      ? failure("closed", "the client was closed")
      : failure("unreachable", "the Worker of the connection ended");
    for (const [id, { call, isHeld, isCandidate }] of this.#open) {
      this.#open.delete(id);
      if (isHeld) this.#tell({ kind: "lost", id, reason: "connection" });
      if (!isHeld || isCandidate) this.#tell({ kind: call.call === "acquire" ? "refused" : "ended", id, ...why });
    }
    for (const closed of this.#closed.splice(0)) closed();
  }
}
