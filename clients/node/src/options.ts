import { hostname } from "node:os";
import { basename } from "node:path";
import type { ConnectionOptions } from "node:tls";
import { parse, SENTINEL_PORT } from "./address.js";
import type { Config } from "./carrier.js";
import { TetherError } from "./errors.js";
import { type Bytes, bytes } from "./resp.js";

/** How a client is set. Times are in milliseconds. */
export interface LocksOptions {
  /**
   * The server keeps the locks for so long without their connection: they survive a break, and a
   * restart or failover of a server that keeps its data. Without it, a break loses them at once.
   */
  readonly grace?: number;
  /** How long your work goes on after a loss. The fence falls so much sooner. Default 0. */
  readonly stopWithin?: number;
  /** The locks are lost after so long without an answer. Default: the longest that the server's settings allow. */
  readonly fence?: number;
  /** For servers whose URL names no user. */
  readonly username?: string;
  readonly password?: string;
  /** Options of `tls.connect` for `rediss://`. Chain and host name are verified unless they say otherwise. */
  readonly tls?: ConnectionOptions;
  /** URLs of Sentinels; then the client's own URL gives user, password and database, and its host is the master's name. */
  readonly sentinels?: readonly string[];
  /** The server is a node of a cluster: requests go to the node that has their slot. */
  readonly cluster?: boolean;
  /**
   * The connection is in a Worker, which answers for the locks while the event loop stands still, for
   * `maxBlock` milliseconds at most (default 30,000): then the locks are lost, since nobody would hear
   * of a loss. `tls` must be something that a Worker can be given.
   */
  readonly worker?: boolean | { readonly maxBlock?: number };
  /** How `tether who` and LOCK.INFO name the connection. Default `tether:<host>:<pid>:<program>`. */
  readonly name?: string;
}

const LONGEST_NAME = 200; // P-CONN-3
const MAX_BLOCK = 30_000;

/** What options say, with the addresses understood. Throws TetherError. */
export function configOf(urls: readonly string[], options: LocksOptions): Config {
  const { grace, stopWithin, fence, cluster, sentinels = [], tls, worker = false, name } = options;
  const addresses = urls.map((url) => parse(url, options));
  const [first] = addresses;
  if (first === undefined) throw new TetherError("URL", "there must be one URL at least");
  const master = "host" in first.endpoint ? first.endpoint.host : "";
  return {
    settings: { grace, stopWithin, fence, cluster },
    servers: { addresses, sentinels: sentinels.map((url) => parse(url, { tls }, SENTINEL_PORT)), master },
    maxBlock: worker === false ? undefined : ((worker === true ? undefined : worker.maxBlock) ?? MAX_BLOCK),
    name: fitName(name ?? `tether:${hostname()}:${process.pid}:${basename(process.argv[1] ?? "node")}`),
  };
}

function fitName(name: string): Bytes {
  return bytes(name)
    .replace(/[^!-~]/g, "_")
    .slice(0, LONGEST_NAME);
}
