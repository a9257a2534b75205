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
}

/** A greeted connection to the master, within so many milliseconds. Throws NoLine. */
export async function find(servers: Servers, name: Bytes, within: number): Promise<Line> {
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

async function limited<T>(within: number, act: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), within);
  try {
    return await act(controller.signal);
  } finally {
    clearTimeout(timer);
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
