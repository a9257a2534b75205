import { connect as connectTcp, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { type Address, moved, nameOf } from "./address.js";
import { type Failure, failure } from "./events.js";
import { type Bytes, bytes, ErrorReply, encode, type Frame, Parser, Push, text } from "./resp.js";

/** Why there is no connection. */
export class NoLine extends Error {
  constructor(readonly why: Failure) {
    super(why.text);
  }
}

const HOPS = 2; // P-CONN-5
/** Answers that another attempt may change (P-ERR-2). */
const FOR_NOW = new Set(["BUSY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "READONLY"]);

/** Which node of a cluster a connection leads to, as the cluster calls it, and all that it knows. */
export interface Met {
  readonly at: Address;
  readonly nodes: readonly Address[];
}

/** A connection that frames come from. */
export class Line {
  /** Bytes that came were these frames. */
  onFrames: (frames: Frame[]) => void = () => {};
  /** It ended, or something came that is no frame. Called once. */
  onEnd: (why: Failure) => void = () => {};

  readonly address: Address;
  met: Met | undefined;
  readonly #socket: Socket;
  readonly #gone: Failure;
  readonly #parser = new Parser();
  #isOver = false;

  constructor(socket: Socket, address: Address) {
    this.#socket = socket;
    this.address = address;
    this.#gone = failure("unreachable", `the connection to ${nameOf(address.endpoint)} ended`);
    socket.setNoDelay(true);
    socket.on("data", (chunk) => this.#read(chunk));
    socket.on("close", () => this.#end(this.#gone));
    socket.on("error", () => {}); // `close` follows.
  }

  #read(chunk: Buffer): void {
    if (this.#isOver) return;
    try {
      this.onFrames(this.#parser.push(chunk));
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      this.#end(failure("unreachable", `what ${nameOf(this.address.endpoint)} sends is malformed: ${error.message}`)); // P-FRAME-2
      this.#socket.destroy();
    }
  }

  #end(why: Failure): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.onEnd(why);
  }

  write(commands: readonly (readonly Bytes[])[]): void {
    this.#socket.write(commands.map(encode).join(""), "latin1");
  }

  /** Reads and writes no more, and is closed after so many milliseconds. */
  leave(after = 0): void {
    this.#isOver = true;
    this.#socket.pause();
    if (after > 0) setTimeout(() => this.#socket.destroy(), after);
    else this.#socket.destroy();
  }

  /** Whether the program is to go on while the connection is open. */
  keepAlive(is: boolean): void {
    if (is) this.#socket.ref();
    else this.#socket.unref();
  }

  /** Sends commands and waits for as many replies. */
  ask(commands: readonly (readonly Bytes[])[]): Promise<Frame[]> {
    const replies: Frame[] = [];
    return new Promise((resolve, reject) => {
      this.onEnd = (why) => reject(new NoLine(why));
      this.onFrames = (frames) => {
        replies.push(...frames.filter((frame) => !(frame instanceof Push)));
        if (replies.length >= commands.length) resolve(replies);
      };
      if (this.#isOver) reject(new NoLine(this.#gone));
      this.write(commands);
    });
  }
}

/** Opens a connection. `signal` ends the attempt. */
export function dial(address: Address, signal: AbortSignal): Promise<Line> {
  const { endpoint, tls } = address;
  const where = nameOf(endpoint);
  return new Promise((resolve, reject) => {
    const servername = "host" in endpoint && !/^[\d.]+$|:/.test(endpoint.host) ? { servername: endpoint.host } : {};
    const socket = tls ? connectTls({ ...servername, ...tls, ...endpoint }) : connectTcp(endpoint);
    const abandon = () => socket.destroy(new Error("it took too long"));
    signal.addEventListener("abort", abandon, { once: true });
    if (signal.aborted) abandon();
    const failed = (error: Error) => {
      signal.removeEventListener("abort", abandon);
      const isUnverified = tls !== undefined && Boolean((socket as TLSSocket).authorizationError);
      // Of a name with several addresses, the error has the errors of all, and says nothing itself.
      const [each = error] = error instanceof AggregateError ? (error.errors as Error[]) : [];
      const text = `${where}: ${each.message}`;
      reject(new NoLine(isUnverified ? failure("refused", text, "TLS") : failure("unreachable", text))); // P-CONN-8
    };
    socket.once("error", failed);
    socket.once(tls ? "secureConnect" : "connect", () => {
      signal.removeEventListener("abort", abandon);
      socket.off("error", failed);
      resolve(new Line(socket, address));
    });
  });
}

/** Does something with a connection; closes it if that fails, or takes too long. */
async function within<T>(line: Line, signal: AbortSignal, act: () => Promise<T>): Promise<T> {
  let abandon = () => {};
  const late = new Promise<never>((_, reject) => {
    abandon = () =>
      reject(new NoLine(failure("unreachable", `${nameOf(line.address.endpoint)}: the server does not answer`)));
    signal.addEventListener("abort", abandon, { once: true });
    if (signal.aborted) abandon();
  });
  try {
    return await Promise.race([act(), late]);
  } catch (error) {
    line.leave();
    throw error;
  } finally {
    signal.removeEventListener("abort", abandon);
  }
}

/** A connection that is greeted (P-CONN-2), and the role of the server. */
async function greet(address: Address, name: Bytes, signal: AbortSignal): Promise<{ line: Line; role: Frame }> {
  const line = await dial(address, signal);
  const { username = "default", password, database } = address;
  const auth = password === undefined ? [] : ["AUTH", bytes(username), bytes(password)];
  const select = database === 0 ? [] : [["SELECT", String(database)]];
  const commands = [["HELLO", "3", ...auth], ["CLIENT", "SETNAME", name], ...select, ["ROLE"]];
  return within(line, signal, async () => {
    const replies = await line.ask(commands);
    const selected = database === 0 ? undefined : replies[2];
    for (const reply of [replies[0], selected]) {
      if (!(reply instanceof ErrorReply)) continue;
      throw new NoLine(failure(FOR_NOW.has(reply.code) ? "unreachable" : "refused", reply.text, reply.code));
    }
    return { line, role: replies.at(-1) as Frame };
  });
}

/** A greeted connection to the server, or to the master that it names (P-CONN-5). */
export async function reach(address: Address, name: Bytes, signal: AbortSignal): Promise<Line> {
  let at = address;
  for (let hop = 0; ; hop += 1) {
    const { line, role } = await greet(at, name, signal);
    if (!Array.isArray(role) || role[0] !== "slave") return line;
    line.leave();
    const [, host, port] = role;
    if (hop === HOPS || typeof host !== "string" || typeof port !== "number") break;
    at = moved(at, text(host), port);
  }
  throw new NoLine(failure("unreachable", `${nameOf(at.endpoint)} is a replica, and names no master`, "REPLICA"));
}

/** The answers to commands on a connection that is greeted; it is closed if they do not come. */
export function ask(line: Line, commands: readonly (readonly Bytes[])[], signal: AbortSignal): Promise<Frame[]> {
  return within(line, signal, () => line.ask(commands));
}

/** The answer to one command, by a connection of its own. */
export async function askOnce(address: Address, words: readonly Bytes[], signal: AbortSignal): Promise<Frame> {
  const line = await dial(address, signal);
  const { username, password } = address;
  const auth = password === undefined ? [] : [["AUTH", ...(username ? [bytes(username)] : []), bytes(password)]];
  const replies = await ask(line, [...auth, words], signal);
  line.leave();
  return replies.at(-1) as Frame;
}
