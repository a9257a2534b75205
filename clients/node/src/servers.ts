import { type Address, moved, nameOf } from "./address.js";
import type { Config } from "./carrier.js";
import { failure } from "./events.js";
import { ask, askOnce, type Line, NoLine, reach } from "./line.js";
import { type Bytes, bytes, type Frame, text } from "./resp.js";

/** Where the locks are: servers of which one is the master, or the master that Sentinels name. */
export interface Servers {
  readonly addresses: readonly Address[];
  readonly sentinels: readonly Address[];
  /** What the Sentinels call the master. */
  readonly master: string;
}

/** Opens connections to a master, greeted up to LOCK.SERVER. */
export interface Finder {
  /** One within so many milliseconds; in a cluster, to the node that has this slot. Throws NoLine. */
  find(within: number, slot: number | undefined): Promise<Line>;
  /** The nodes of the cluster, as far as others know. */
  meet?(nodes: readonly Address[]): void;
}

export function finderOf({ servers, name, settings }: Config): Finder {
  if (settings.cluster) return new NodeFinder(servers.addresses[0] as Address, name);
  return { find: (within) => find(servers, name, within) };
}

async function find(servers: Servers, name: Bytes, within: number): Promise<Line> {
  if (servers.sentinels.length > 0) {
    const master = await limited(within / 2, (signal) => askSentinels(servers, signal));
    return limited(within / 2, (signal) => reach(master, name, signal));
  }
  const share = within / servers.addresses.length;
  let why: unknown;
  for (const address of servers.addresses) {
    try {
      return await limited(share, (signal) => reach(address, name, signal));
    } catch (error) {
      // What no other attempt would change says more than that a server is away.
      if (!(why instanceof NoLine) || why.why.error === "unreachable") why = error;
    }
  }
  throw why;
}

/** Finds a node of a cluster where it was last; if that is away, where its slot is now (P-CLUSTER-6). */
class NodeFinder implements Finder {
  #address: Address;
  /** What the cluster calls that. */
  #at: Address;
  readonly #name: Bytes;
  #nodes: readonly Address[] = [];

  constructor(address: Address, name: Bytes) {
    this.#address = this.#at = address;
    this.#name = name;
  }

  meet(nodes: readonly Address[]): void {
    this.#nodes = nodes;
  }

  async find(within: number, slot: number | undefined): Promise<Line> {
    const line = await this.#find(within, slot);
    this.#address = line.address;
    this.#at = line.met?.at ?? line.address;
    return line;
  }

  async #find(within: number, slot: number | undefined): Promise<Line> {
    const last = this.#address;
    const former = new Set([last, this.#at].map(({ endpoint }) => nameOf(endpoint)));
    const others = this.#nodes.filter(({ endpoint }) => !former.has(nameOf(endpoint)));
    if (slot === undefined || others.length === 0) return limited(within, (signal) => this.#reach(last, signal));
    try {
      return await limited(within / 2, (signal) => this.#reach(last, signal));
    } catch (error) {
      if (!(error instanceof NoLine) || error.why.error !== "unreachable") throw error;
      const owner = await limited(within / 4, (signal) => askForOwner(others, slot, former, signal));
      if (owner === undefined) throw error;
      return limited(within / 4, (signal) => this.#reach(owner, signal));
    }
  }

  /** A connection that knows which node it leads to, and what others there are: none have to be named by MOVED before. */
  async #reach(address: Address, signal: AbortSignal): Promise<Line> {
    const line = await reach(address, this.#name, signal);
    const commands = [
      ["CLUSTER", "MYID"],
      ["CLUSTER", "SLOTS"],
    ];
    const [id, slots] = await ask(line, commands, signal);
    const nodes = rangesOf(slots, line.address).flatMap((range) => range.nodes);
    const own = nodes.find((node) => node.id === id);
    line.met = { at: own?.address ?? line.address, nodes: nodes.map((node) => node.address) };
    return line;
  }
}

/** A range of slots, and the nodes that have it, the master first. */
interface Range {
  readonly first: number;
  readonly last: number;
  readonly nodes: readonly { readonly address: Address; readonly id: Bytes | undefined }[];
}

/** What CLUSTER SLOTS says; nothing, if it is refused. A node whose host is not known is at that of the one that answers. */
function rangesOf(slots: Frame | undefined, answering: Address): Range[] {
  if (!Array.isArray(slots)) return [];
  const { endpoint } = answering;
  const nodeOf = ([name, port, id]: [Bytes | null, number, Bytes?]) => {
    const isKnown = name !== null && name !== "" && name !== "?";
    const host = isKnown ? text(name) : "host" in endpoint ? endpoint.host : "";
    return { address: moved(answering, host, port), id };
  };
  type Row = [number, number, ...[Bytes | null, number, Bytes?][]];
  return (slots as Row[]).map(([first, last, ...nodes]) => ({ first, last, nodes: nodes.map(nodeOf) }));
}

/** The master that has the slot, as the first node says that knows of another one than the former. */
async function askForOwner(
  nodes: readonly Address[],
  slot: number,
  former: ReadonlySet<string>,
  signal: AbortSignal,
): Promise<Address | undefined> {
  const ask = async (node: Address): Promise<Address> => {
    const ranges = rangesOf(await askOnce(node, ["CLUSTER", "SLOTS"], signal), node);
    const owner = ranges.find(({ first, last }) => first <= slot && slot <= last)?.nodes[0]?.address;
    if (owner && !former.has(nameOf(owner.endpoint))) return owner;
    throw new NoLine(failure("unreachable", "no other node has the slot"));
  };
  return Promise.any(nodes.map(ask)).catch(() => undefined);
}

async function limited<T>(within: number, act: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), within);
  try {
    return await act(controller.signal);
  } finally {
    clearTimeout(timer);
    controller.abort(); // Closes the attempts that are still running.
  }
}

/** What more than half of the Sentinels name; if fewer answer in time, what most of them name (P-CONN-7). */
async function askSentinels(servers: Servers, signal: AbortSignal): Promise<Address> {
  const { sentinels, master, addresses } = servers;
  const [pattern = sentinels[0] as Address] = addresses;
  const votes = new Map<string, { readonly address: Address; number: number }>();
  const controller = new AbortController();
  const stop = () => controller.abort();
  signal.addEventListener("abort", stop, { once: true });
  const ask = async (sentinel: Address): Promise<void> => {
    const reply = await askOnce(sentinel, ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", bytes(master)], controller.signal);
    if (!Array.isArray(reply) || typeof reply[0] !== "string") return;
    const address = moved(pattern, text(reply[0]), Number(reply[1]));
    const vote = votes.get(nameOf(address.endpoint)) ?? { address, number: 0 };
    vote.number += 1;
    votes.set(nameOf(address.endpoint), vote);
    if (vote.number > sentinels.length / 2) stop();
  };
  await Promise.allSettled(sentinels.map(ask));
  signal.removeEventListener("abort", stop);
  const [first] = [...votes.values()].sort((one, other) => other.number - one.number);
  if (first) return first.address;
  throw new NoLine(failure("unreachable", `no Sentinel named the master ${master}`));
}
