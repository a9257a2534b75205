/** Servers of the tests' own, with the module tether loaded. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parse } from "../src/address.js";
import { dial, type Line } from "../src/line.js";
import { bytes, ErrorReply, type Frame } from "../src/resp.js";

/** Generous: tests run on machines that are busy with others. */
const DEADLINE = 30_000;

function given(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set: run scripts/node.sh`);
  return value;
}

export function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() => resolve(typeof address === "object" && address ? address.port : 0));
    });
  });
}

/** Asks again and again until it is so; what it gave. */
export async function eventually<T>(what: string, look: () => Promise<T | undefined | false>): Promise<T> {
  const until = performance.now() + DEADLINE;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (performance.now() > until) throw new Error(`never: ${what}`);
    await sleep(10);
  }
}

/** A server process; its settings are the arguments. */
export class Server implements AsyncDisposable {
  readonly port: number;
  readonly folder = mkdtempSync(join(tmpdir(), "tether-node-"));
  readonly #settings: readonly string[];
  #process: ChildProcess | undefined;

  private constructor(port: number, settings: readonly string[]) {
    this.port = port;
    this.#settings = settings;
  }

  static async start(...settings: string[]): Promise<Server> {
    const server = new Server(await freePort(), settings);
    await server.start();
    return server;
  }

  /** A Sentinel with this file of settings, which says its port. */
  static async sentinel(port: number, file: string): Promise<Server> {
    const server = new Server(port, [file, "--sentinel"]);
    await server.#run(server.#settings);
    return server;
  }

  async start(): Promise<void> {
    const own = ["--port", String(this.port), "--bind", "127.0.0.1", "--save", "", "--dir", this.folder];
    await this.#run([...own, "--loadmodule", given("TETHER_MODULE"), ...this.#settings]);
  }

  async #run(words: readonly string[]): Promise<void> {
    const child = spawn(given("TETHER_SERVER"), words, { stdio: "ignore" });
    this.#process = child;
    await eventually("the server answers", async () => {
      if (child.exitCode !== null) throw new Error("the server did not start");
      return (await this.ask("PING").catch(() => undefined)) === "PONG";
    });
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  async connect(): Promise<Line> {
    return dial(parse(this.url), AbortSignal.timeout(DEADLINE));
  }

  /** The reply; an error is thrown. */
  async ask(...words: (string | number)[]): Promise<Frame> {
    const line = await this.connect();
    try {
      return await on(line, ...words);
    } finally {
      line.leave();
    }
  }

  /** How many hold and wait for anything. */
  async #gauge(name: string): Promise<number> {
    const info = String(await this.ask("INFO", "tether"));
    return Number(new RegExp(`tether_${name}:(\\d+)`).exec(info)?.[1]);
  }

  /** Waits until so many wait. */
  async waiting(number: number): Promise<void> {
    await eventually(`${number} wait`, async () => (await this.#gauge("waiters")) === number);
  }

  /** Waits until nobody holds anything or waits. */
  async free(): Promise<void> {
    await eventually("nobody holds or waits", async () => {
      return (await this.#gauge("holds")) === 0 && (await this.#gauge("waiters")) === 0;
    });
  }

  async killClients(): Promise<void> {
    await this.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
  }

  signal(name: NodeJS.Signals): void {
    this.#process?.kill(name);
  }

  async stop(): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await gone;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

export async function on(line: Line, ...words: (string | number)[]): Promise<Frame> {
  const [reply = null] = await line.ask([words.map((word) => bytes(String(word)))]);
  if (reply instanceof ErrorReply) throw new Error(reply.text);
  return reply;
}

/** A wire to a server that can be cut: what is sent is dropped, and no end of a connection gets through. */
export class Wire implements Disposable {
  port = 0;
  #isCut = false;
  readonly #near = new Set<Socket>();
  readonly #far = new Set<Socket>();
  readonly #listener;

  private constructor(server: Server) {
    this.#listener = createServer((near) => {
      const far = connect(server.port, "127.0.0.1");
      this.#carry(near, far, this.#near);
      this.#carry(far, near, this.#far);
    });
  }

  static async to(server: Server): Promise<Wire> {
    const wire = new Wire(server);
    await new Promise<void>((resolve) => wire.#listener.listen(0, "127.0.0.1", resolve));
    const address = wire.#listener.address();
    wire.port = typeof address === "object" && address ? address.port : 0;
    return wire;
  }

  #carry(from: Socket, to: Socket, all: Set<Socket>): void {
    all.add(from);
    from.on("data", (data) => this.#isCut || to.write(data));
    from.on("error", () => {});
    from.on("close", () => {
      all.delete(from);
      if (!this.#isCut) to.destroy();
    });
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  cut(): void {
    this.#isCut = true;
  }

  /** The server hears of the end of its connections. */
  endAtServer(): void {
    for (const socket of this.#far) socket.destroy();
  }

  /** Connections that there are end, and new ones get through. */
  reset(): void {
    this.#isCut = false;
    for (const socket of [...this.#near, ...this.#far]) socket.destroy();
  }

  [Symbol.dispose](): void {
    this.#listener.close();
    this.reset();
  }
}

/** The event loop stands still for so long. */
export function block(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
