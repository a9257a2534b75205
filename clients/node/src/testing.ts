/** For tests of what uses locks: a server of their own, without a Redis. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { addAbortSignal } from "node:stream";
import { parse } from "./address.js";
import { Refused } from "./errors.js";
import { askOnce } from "./line.js";
import { bytes, ErrorReply, type Frame, text } from "./resp.js";

/** How to start `tether devserver`. */
export interface DevServerOptions {
  /** The program `tether`; unless given, what the variable TETHER_PROGRAM names, or `tether` on PATH. */
  readonly program?: string;
  /** Options of `tether devserver`, such as `["--peer-timeout", "2s"]`. */
  readonly args?: readonly string[];
}

const READY_WITHIN_MS = 10_000;
const ANSWER_WITHIN_MS = 10_000;

/** Those that run; they end with this program. */
const running = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

/**
 * `tether devserver`: the module's engine in one process, without a Redis. Its levers bring about what is
 * hard to bring about on a server. It has one user, no scripts, no files, no replicas and no cluster.
 */
export class DevServer implements AsyncDisposable {
  /** The port on 127.0.0.1. */
  readonly port: number;
  readonly #process: ChildProcess;

  private constructor(child: ChildProcess, port: number) {
    this.#process = child;
    this.port = port;
  }

  /** Starts one on a free port, and waits until it listens. It does not keep the program alive. */
  static async start({ program, args = [] }: DevServerOptions = {}): Promise<DevServer> {
    const name = program ?? (process.env.TETHER_PROGRAM || "tether");
    const child = spawn(name, ["devserver", "--port", "0", ...args], { stdio: ["ignore", "pipe", "inherit"] });
    await once(child, "spawn").catch((error: Error) => {
      error.message += ": put `tether` on PATH, or set TETHER_PROGRAM to its path";
      throw error;
    });
    running.add(child);
    let said = "";
    try {
      for await (const part of addAbortSignal(AbortSignal.timeout(READY_WITHIN_MS), child.stdout)) {
        said += part;
        if (said.includes("\n")) break;
      }
    } catch {
      said += `no line for ${READY_WITHIN_MS} ms`;
    }
    const port = /^ready on port (\d+)$/m.exec(said)?.[1];
    const server = new DevServer(child, Number(port));
    if (port === undefined) {
      await server.stop();
      throw new Error(`${name} devserver does not start: ${said}`);
    }
    child.unref();
    return server;
  }

  /** For `Locks`, and for clients of any kind. */
  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** Gives a command, and returns its reply. Throws `Refused` if that is an error. */
  async run(...words: [string, ...(string | number)[]]): Promise<unknown> {
    const command = words.map((word) => bytes(String(word)));
    const reply = await askOnce(parse(this.url), command, AbortSignal.timeout(ANSWER_WITHIN_MS));
    if (reply instanceof ErrorReply) throw new Refused(reply.code, reply.text);
    return plain(reply);
  }

  /** The key is gone, and its holders lose it for this reason. */
  async lose(key: string, reason: "deleted" | "expired" | "evicted" = "deleted"): Promise<void> {
    await this.run("DEV", "LOSE", key, reason);
  }

  /** Ends all other connections. */
  async drop(): Promise<void> {
    await this.run("DEV", "DROP");
  }

  /** Reads and sends nothing for this number of milliseconds, so that fences fall. */
  async silent(ms: number): Promise<void> {
    await this.run("DEV", "SILENT", Math.round(ms));
  }

  /** Refuses writes (`NOREPLICAS`, `MISCONF`, `OOM`), or by another code every command. */
  async refuse(code: string): Promise<void> {
    await this.run("DEV", "REFUSE", code);
  }

  /** Refuses nothing any more. */
  async accept(): Promise<void> {
    await this.run("DEV", "ACCEPT");
  }

  /** Becomes a replica: all holds are lost (`demoted`), and it grants nothing. */
  async demote(): Promise<void> {
    await this.run("DEV", "DEMOTE");
  }

  /** Becomes a master again. */
  async promote(): Promise<void> {
    await this.run("DEV", "PROMOTE");
  }

  /** Sets its clock forward by this number of milliseconds: leases, waits and graces end. The client's does not change. */
  async advance(ms: number): Promise<void> {
    await this.run("DEV", "ADVANCE", Math.round(ms));
  }

  /** Kills it. */
  async stop(): Promise<void> {
    const child = this.#process;
    running.delete(child);
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, "exit");
    child.ref();
    child.kill("SIGKILL");
    await gone;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

function plain(frame: Frame): unknown {
  if (typeof frame === "string") return text(frame);
  return Array.isArray(frame) ? frame.map(plain) : frame;
}
