import { type Address, moved, nameOf } from "./address.js";
import type { Config } from "./carrier.js";
import type { Verdict } from "./core.js";
import type { Call, Carrier } from "./engine.js";
import type { Event, Failure } from "./events.js";
import type { Id } from "./request.js";
import type { Bytes } from "./resp.js";
import { slot } from "./slot.js";

const MOST_REDIRECTIONS = 5; // P-CLUSTER-3
/** A watch or candidate that has been at a node for so many milliseconds has arrived there: the next slot that moves counts anew. */
const SETTLED = 1000;

type Tell = (event: Event) => void;
type Begin = Extract<Call, { call: "acquire" | "watch" | "presence" }>;

/** A master that requests were sent to, and where it is: after a failover, its promoted replica. */
interface Node {
  readonly carrier: Carrier;
  address: Address;
}

/** What was asked for, and where. */
interface Asked {
  readonly call: Begin;
  readonly began: number;
  node: Node;
  redirections: number;
  isGivenUp: boolean;
  /** It follows an ASK, which is done once. */
  isAsking: boolean;
  /** When it came to this node. */
  since: number;
  /** What a watch or presence was told, undefined before its first event. */
  keys: Map<Bytes, boolean> | undefined;
  members: Map<Bytes, { readonly token: number; readonly value: Bytes | null }> | undefined;
}

/**
 * The nodes of a cluster, each with a connection of its own (P-CLUSTER-1). A node is found by the
 * redirections of the others; where it is away, they are asked who has its slots now (P-CLUSTER-6).
 */
export class Cluster implements Carrier {
  readonly #config: Config;
  readonly #make: (config: Config, tell: Tell) => Carrier;
  readonly #tell: Tell;
  /** The first one is asked for slots of which nothing is known. */
  readonly #nodes: Node[] = [];
  /** The nodes of the user's URLs, those that the last connected node named, and those that MOVED has named since. */
  #known: Map<string, Address>;
  readonly #slots = new Map<number, Node>();
  readonly #asked = new Map<Id, Asked>();
  #isClosed = false;

  constructor(config: Config, make: (config: Config, tell: Tell) => Carrier, tell: Tell) {
    this.#config = config;
    this.#make = make;
    this.#tell = tell;
    this.#known = byName(config.servers.addresses);
  }

  do(call: Call): void {
    if (call.call === "close" || call.call === "meet") return;
    if (call.call !== "acquire" && call.call !== "watch" && call.call !== "presence") {
      const asked = this.#asked.get(call.id);
      if (asked && call.call === "giveUp") asked.isGivenUp = true;
      this.#carrierOf(call.id)?.do(call);
      if (call.call === "unwatch" || call.call === "endPresence") this.#asked.delete(call.id);
      return;
    }
    const node =
      this.#slots.get(slotOf(call)) ?? this.#nodes[0] ?? this.#nodeAt(this.#config.servers.addresses[0] as Address);
    const began = performance.now();
    const asked = { call, began, node, redirections: 0, isGivenUp: false, isAsking: false, since: began };
    this.#asked.set(call.id, { ...asked, keys: undefined, members: undefined });
    node.carrier.do(call);
  }

  check(id: Id): Verdict | undefined {
    return this.#carrierOf(id)?.check(id);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#nodes.map(({ carrier }) => carrier.close()));
  }

  #carrierOf(id: Id): Carrier | undefined {
    return this.#asked.get(id)?.node.carrier;
  }

  /** The node that is there now: one whose connection had to go elsewhere is another one (P-CLUSTER-1). */
  #nodeAt(address: Address): Node {
    const name = nameOf(address.endpoint);
    const known = this.#nodes.find((node) => nameOf(node.address.endpoint) === name);
    if (known) return known;
    const servers = { ...this.#config.servers, addresses: [address] };
    const carrier = this.#make({ ...this.#config, servers }, (event) => this.#hear(node, event));
    const node = { carrier, address };
    this.#nodes.push(node);
    this.#share([node]);
    if (this.#isClosed) void carrier.close();
    return node;
  }

  /** Each connection has to know all nodes: when its own is away, it asks the others who has the slots now (P-CLUSTER-6). */
  #share(nodes: readonly Node[] = this.#nodes): void {
    for (const { carrier } of nodes) carrier.do({ call: "meet", nodes: [...this.#known.values()] });
  }

  #hear(node: Node, event: Event): void {
    if (event.kind === "met") {
      node.address = event.at;
      if (event.nodes.length > 0) this.#known = byName([...this.#config.servers.addresses, ...event.nodes]);
      return this.#share();
    }
    if (event.kind === "warning") return this.#tell(event);
    const asked = this.#asked.get(event.id);
    if (asked === undefined || asked.node !== node) return;
    if ((event.kind === "refused" || event.kind === "ended") && this.#follow(asked, event)) return;
    remember(asked, event);
    const isOver = event.kind === "refused" || event.kind === "ended" || event.kind === "over";
    const isEnd = event.kind === "lost" || event.kind === "released";
    const isCandidate = asked.call.call === "acquire" && asked.call.terms.elect && !asked.isGivenUp;
    if (isOver || (isEnd && !isCandidate)) this.#asked.delete(event.id);
    this.#tell(event);
  }

  /** Goes where a MOVED or an ASK says, if it may (P-CLUSTER-3, P-CLUSTER-4). */
  #follow(asked: Asked, { code, text: said }: Failure): boolean {
    const isAsk = code === "ASK";
    if (isSettled(asked)) asked.redirections = 0;
    const [, number, place = ""] = said.split(" ");
    const at = place.lastIndexOf(":");
    const isTooMany = isAsk ? asked.isAsking : asked.redirections === MOST_REDIRECTIONS;
    const from = asked.node.address;
    if ((code !== "MOVED" && !isAsk) || at < 0 || isTooMany || asked.isGivenUp) return false;
    const host = place.slice(0, at) || ("host" in from.endpoint ? from.endpoint.host : "");
    const to = moved(from, host, Number(place.slice(at + 1)));
    const name = nameOf(to.endpoint);
    if (!this.#known.has(name)) {
      this.#known.set(name, to);
      this.#share();
    }
    asked.node = this.#nodeAt(to);
    if (!isAsk) this.#slots.set(Number(number), asked.node);
    asked.redirections += 1;
    asked.isAsking = isAsk;
    asked.since = performance.now();
    asked.node.carrier.do(again(asked));
    return true;
  }
}

function byName(addresses: readonly Address[]): Map<string, Address> {
  return new Map(addresses.map((address) => [nameOf(address.endpoint), address]));
}

function isSettled({ call, since }: Asked): boolean {
  return (call.call !== "acquire" || call.terms.elect === true) && performance.now() - since > SETTLED;
}

/** Keeps what was told, for the next node to tell the difference only (P-CLUSTER-7). */
function remember(asked: Asked, event: Event): void {
  if (event.kind === "watch") {
    asked.keys ??= new Map();
    asked.keys.set(event.key, event.is === "exists" || event.is === "added");
  } else if (asked.call.call === "presence" && (event.kind === "presence" || event.kind === "leader")) {
    asked.members ??= new Map();
    const key = event.kind === "presence" ? event.key : asked.call.prefix;
    if ("value" in event) asked.members.set(key, { token: event.token, value: event.value });
    else asked.members.delete(key);
  }
}

/** The request with what is left of its time, or the watch with what it was told. */
function again({ call, began, isAsking, keys, members }: Asked): Begin {
  if (call.call === "watch") return keys ? { ...call, told: keys } : call;
  if (call.call === "presence") return members ? { ...call, told: members } : call;
  const { wait } = call.terms;
  const left = wait ? Math.max(1, wait - (performance.now() - began)) : wait;
  return { ...call, terms: { ...call.terms, wait: left, asking: isAsking } };
}

function slotOf(call: Begin): number {
  const key = call.call === "presence" ? call.prefix : call.call === "watch" ? call.keys[0] : call.terms.keys[0];
  return slot(key ?? "");
}
