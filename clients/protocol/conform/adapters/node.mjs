/** The adapter of tether-locks for Node.js, which must be built: clients/node, `npm ci && npm run build`. */

import { spawnSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parse } from "../../../node/dist/src/address.js";
import {
  Closed,
  CrossSlot,
  Deadlock,
  Locks,
  Lost,
  NoModule,
  NoPush,
  Taken,
  Unfit,
  Unreachable,
} from "../../../node/dist/src/index.js";
import { dial } from "../../../node/dist/src/line.js";
import { ErrorReply } from "../../../node/dist/src/resp.js";

const KEYS = ["watch", "unwatch", "presence", "observe", "end", "pause", "go_on"];
const CALLS = ["extend", "guard", "check_server", "execute", ...KEYS];
const BASE = ["open", "acquire", "release", "give_up", "check", "close"];
const LEVELS = ["L1", "L2", "L3", "CLUSTER"];

/** A program that prints what its descriptors are. */
const LOOK = `import os
folder = "/proc/self/fd"
print("\\n".join(os.readlink(f"{folder}/{name}") for name in os.listdir(folder) if os.path.exists(f"{folder}/{name}")))`;

function say(event) {
  writeSync(1, `${JSON.stringify({ ...event, at: Number(process.hrtime.bigint()) / 1e9 })}\n`);
}

const NAMES = [
  [Taken, "taken"],
  [Deadlock, "deadlock"],
  [Unreachable, "unreachable"],
  [NoModule, "nomodule"],
  [NoPush, "nopush"],
  [Unfit, "unfit"],
  [CrossSlot, "crossslot"],
  [Closed, "closed"],
];

function errorOf(error) {
  const name = NAMES.find(([kind]) => error instanceof kind)?.[1] ?? "refused";
  return { error: name, code: error.code ?? error.name, text: error.message };
}

class Adapter {
  #locks;
  #url;
  #data;
  #requests = new Map(); // By id: the controller of its signal, and what is held.
  #watches = new Map(); // By id: the controller that ends it, and what a pause waits for.

  open({ url, others = [], sentinels, master, ca, user, password, grace, stop_within: stopWithin, fence, cluster }) {
    const tls = ca && { ca: readFileSync(ca) };
    const options = { sentinels, tls, username: user, password, grace, stopWithin, fence, cluster };
    const known = Object.entries(options).filter(([, value]) => value !== undefined);
    this.#url = url ?? `redis://${master}`;
    this.#locks = new Locks([this.#url, ...others], Object.fromEntries(known));
  }

  #lock({
    keys,
    shared,
    permits,
    temporary,
    seq,
    lease,
    owner,
    reentrant,
    acks,
    acktimeout: ackTimeout,
    at_least: atLeast,
  }) {
    const options = { lease, owner, reentrant, acks, ackTimeout, atLeast };
    const [key] = keys;
    if (seq) return this.#locks.sequence(key, temporary);
    if (temporary !== undefined) return this.#locks.temporary(key, temporary, options);
    if (permits) return this.#locks.semaphore(key, { permits: permits[0], of: permits[1], ...options });
    if (shared) return this.#locks.shared(key, options);
    return keys.length > 1 ? this.#locks.all(keys, options) : this.#locks.lock(key, options);
  }

  async acquire(call) {
    const { id, wait } = call;
    const controller = new AbortController();
    const request = { controller, held: undefined };
    this.#requests.set(id, request);
    const { signal } = controller;
    let held;
    try {
      // JavaScript has neither threads nor tasks of its own, so its users name the task.
      held = await this.#lock(call).acquire({ wait, signal, task: call.from });
    } catch (error) {
      return say(signal.aborted ? { over: id } : { refused: id, ...errorOf(error) });
    }
    request.held = held;
    if (signal.aborted) return this.release({ id });
    say({ granted: id, token: held.token, ...(call.seq ? { key: held.name } : {}) });
    const lost = () => say({ lost: id, reason: held.signal.reason.reason });
    // A signal that is aborted already calls nobody (P-LOSS-5).
    if (held.signal.aborted) lost();
    else held.signal.addEventListener("abort", lost);
  }

  async release({ id }) {
    try {
      await this.#requests.get(id).held.release();
      say({ released: id });
    } catch (error) {
      // Its signal told of a loss.
      if (!(error instanceof Lost)) say({ not_released: id, ...errorOf(error) });
    }
  }

  give_up({ id }) {
    const { held, controller } = this.#requests.get(id);
    if (held) return this.release({ id });
    controller.abort();
  }

  check({ id, stall = 0 }) {
    // The event loop stands still.
    if (stall > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, stall);
    const held = this.#requests.get(id)?.held;
    if (!held) return { gives: "waiting" };
    const reason = held.lost;
    return { gives: reason === undefined ? "held" : reason === "released" ? reason : { lost: reason } };
  }

  async extend({ id, lease }) {
    try {
      await this.#requests.get(id).held.extend(lease);
      say({ extended: id });
    } catch (error) {
      say({ not_extended: id, ...errorOf(error) });
    }
  }

  async guard({ id, command }) {
    const { held } = this.#requests.get(id);
    const send = async (words) => {
      this.#data ??= await dial(parse(this.#url), new AbortController().signal);
      const [reply] = await this.#data.ask([words]);
      if (reply instanceof ErrorReply) throw new Error(reply.text);
      return reply;
    };
    try {
      say({ ran: id, reply: await held.guard(send, ...command) });
    } catch (error) {
      if (!(error instanceof Lost)) say({ not_run: id, error: "unreachable", code: error.name });
      else if (!held.signal.aborted) say({ lost: id, reason: error.reason });
    }
  }

  async check_server({ id }) {
    const { held } = this.#requests.get(id);
    try {
      await held.checkServer();
      say({ checked: id });
    } catch (error) {
      if (!(error instanceof Lost)) say({ not_checked: id, ...errorOf(error) });
    }
  }

  /** The sockets that an executed child has; its output is a file, since pipes of Node are sockets. */
  execute() {
    const folder = mkdtempSync(join(tmpdir(), "adapter-"));
    const file = join(folder, "out");
    const out = openSync(file, "w");
    spawnSync("python3", ["-c", LOOK], { stdio: ["ignore", out, "inherit"] });
    closeSync(out);
    const sockets = readFileSync(file, "utf8")
      .split("\n")
      .filter((name) => name.startsWith("socket"));
    rmSync(folder, { recursive: true });
    return { sockets };
  }

  async #follow(id, begin, tell) {
    const controller = new AbortController();
    const watch = { controller, paused: undefined, goOn: () => {} };
    this.#watches.set(id, watch);
    try {
      for await (const event of begin({ signal: controller.signal })) {
        await watch.paused;
        say(tell(event));
      }
    } catch (error) {
      if (!controller.signal.aborted) say({ ended: id, ...errorOf(error) });
    }
  }

  watch({ id, keys }) {
    const tell = (event) => ({ watch: id, ...event });
    return this.#follow(id, (how) => this.#locks.watch(keys, how), tell);
  }

  presence({ id, prefix }) {
    const tell = (event) => ({ presence: id, ...event });
    return this.#follow(id, (how) => this.#locks.presence(prefix, how), tell);
  }

  observe({ id, prefix }) {
    const tell = (leader) => ({ leader: id, token: null, ...leader });
    return this.#follow(id, (how) => this.#locks.observe(prefix, how), tell);
  }

  pause({ id }) {
    const watch = this.#watches.get(id);
    watch.paused = new Promise((resolve) => {
      watch.goOn = resolve;
    });
  }

  go_on({ id }) {
    const watch = this.#watches.get(id);
    watch.paused = undefined;
    watch.goOn();
  }

  unwatch({ id }) {
    this.#watches.get(id).controller.abort();
  }

  end(call) {
    this.unwatch(call);
  }

  async close() {
    await this.#locks.close();
    say({ closed: true });
  }
}

const adapter = new Adapter();

function answer(call) {
  if (![...BASE, ...CALLS].includes(call.call)) return { unknown: true };
  try {
    const given = adapter[call.call](call);
    return given instanceof Promise ? {} : (given ?? {});
  } catch (error) {
    return { error: `${error.name}: ${error.message}` };
  }
}

say({ hello: "tether-locks (Node.js) 0.2.0", levels: LEVELS, calls: CALLS });
createInterface({ input: process.stdin })
  .on("line", (line) => {
    const call = JSON.parse(line);
    say({ done: call.n, ...answer(call) });
  })
  .on("close", () => process.exit());
