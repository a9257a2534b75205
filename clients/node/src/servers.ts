import { type Address, moved, nameOf } from "./address.js";
import { failure } from "./events.js";
import { askOnce, type Line, NoLine, reach } from "./line.js";
import { type Bytes, bytes, text } from "./resp.js";

/** Where the locks are: servers of which one is the master, or the master that Sentinels name. */
export interface Servers {
  readonly addresses: readonly Address[];
  readonly sentinels: readonly Address[];
  /** What the Sentinels call the master. */
  readonly master: string;
  /** Other nodes of a cluster, which know who has this slot if the server is away. */
  readonly peers?: readonly Address[];
  readonly slot?: number;
}

/** A greeted connection to the master, within so many milliseconds. Throws NoLine. */
export async function find(servers: Servers, name: Bytes, within: number): Promise<Line> {
  if (servers.sentinels.length > 0) {
    const master = await limited(within / 2, (signal) => askSentinels(servers, signal));
    return limited(within / 2, (signal) => reach(master, name, signal));
  }
  const { peers = [] } = servers;
  const share = within / (servers.addresses.length + (peers.length > 0 ? 1 : 0));
  let why: unknown;
  for (const address of servers.addresses) {
    try {
      return await limited(share, (signal) => reach(address, name, signal));
    } catch (error) {
      // What no other attempt would change says more than that a server is away.
      if (!(why instanceof NoLine) || why.why.error === "unreachable") why = error;
    }
  }
  if (peers.length > 0) {
    const address = await limited(share / 2, (signal) => askPeers(servers, signal));
    if (address) return limited(share / 2, (signal) => reach(address, name, signal));
  }
  throw why;
}

/** The master that has the slot, as the first node says that answers (P-CLUSTER-6). */
async function askPeers(
  { peers = [], slot = 0, addresses }: Servers,
  signal: AbortSignal,
): Promise<Address | undefined> {
  const ask = async (peer: Address): Promise<Address> => {
    const ranges = await askOnce(peer, ["CLUSTER", "SLOTS"], signal);
    for (const range of Array.isArray(ranges) ? ranges : []) {
      const [first, last, master] = range as [number, number, [Bytes, number]];
      if (slot < first || slot > last) continue;
      const host = text(master[0]) || ("host" in peer.endpoint ? peer.endpoint.host : "");
      return moved(addresses[0] ?? peer, host, master[1]);
    }
    throw new NoLine(failure("unreachable", "no node has the slot"));
  };
  return Promise.any(peers.map(ask)).catch(() => undefined);
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
