import { type Address, moved, nameOf } from "./address.js";
import type { Config } from "./carrier.js";
import type { Verdict } from "./core.js";
import type { Call, Carrier } from "./engine.js";
import type { Event, Failure } from "./events.js";
import type { Id } from "./request.js";
import type { Bytes } from "./resp.js";
import { slot } from "./slot.js";

const MOST_REDIRECTIONS = 5; // P-CLUSTER-3

type Tell = (event: Event) => void;
type Begin = Extract<Call, { call: "acquire" | "watch" | "presence" }>;

/** What was asked for, and where. */
interface Asked {
  readonly call: Begin;
  readonly began: number;
  node: string;
  redirections: number;
  /** It follows an ASK, which is done once. */
  isAsking: boolean;
  /** Members of a presence that were told. */
  readonly members: Set<Bytes>;
}

/**
 * The nodes of a cluster, each with a connection of its own (P-CLUSTER-1). A node is found by the
 * redirections of the others; where it is away, they are asked who has its slots now (P-CLUSTER-6).
 */
export class Cluster implements Carrier {
  readonly #config: Config;
  readonly #make: (config: Config, tell: Tell) => Carrier;
  readonly #tell: Tell;
  readonly #nodes = new Map<string, Carrier>();
  readonly #addresses = new Map<string, Address>();
  readonly #slots = new Map<number, string>();
  readonly #asked = new Map<Id, Asked>();
  #isClosed = false;

  constructor(config: Config, make: (config: Config, tell: Tell) => Carrier, tell: Tell) {
    this.#config = config;
    this.#make = make;
    this.#tell = tell;
    for (const address of config.servers.addresses) this.#addresses.set(nameOf(address.endpoint), address);
  }

  do(call: Call): void {
    if (call.call === "close") return;
    if (call.call !== "acquire" && call.call !== "watch" && call.call !== "presence") {
      this.#carrierOf(call.id)?.do(call);
      if (call.call === "unwatch" || call.call === "endPresence") this.#asked.delete(call.id);
      return;
    }
    const number = slotOf(call);
    const [seed = ""] = this.#addresses.keys();
    const node = this.#slots.get(number) ?? seed;
    const began = performance.now();
    this.#asked.set(call.id, { call, began, node, redirections: 0, isAsking: false, members: new Set() });
    this.#node(node, number).do(call);
  }

  check(id: Id): Verdict | undefined {
    return this.#carrierOf(id)?.check(id);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#nodes.values()].map((node) => node.close()));
  }

  #carrierOf(id: Id): Carrier | undefined {
    const node = this.#asked.get(id)?.node;
    return node === undefined ? undefined : this.#nodes.get(node);
  }

  #node(name: string, number: number): Carrier {
    const known = this.#nodes.get(name);
    if (known) return known;
    const address = this.#addresses.get(name) as Address;
    const others = [...this.#addresses.values()].filter((other) => other !== address);
    const servers = { ...this.#config.servers, addresses: [address], peers: others, slot: number };
    const carrier = this.#make({ ...this.#config, servers }, (event) => this.#hear(name, event));
    this.#nodes.set(name, carrier);
    if (this.#isClosed) void carrier.close();
    return carrier;
  }

  #hear(node: string, event: Event): void {
    if (event.kind === "warning") return this.#tell(event);
    const asked = this.#asked.get(event.id);
    if (asked === undefined || asked.node !== node) return;
    if ((event.kind === "refused" || event.kind === "ended") && this.#follow(asked, event)) return;
    if (event.kind === "presence" && event.is === "del") asked.members.delete(event.key);
    else if (event.kind === "presence") asked.members.add(event.key);
    const isOver = event.kind === "refused" || event.kind === "ended" || event.kind === "over";
    const isEnd = event.kind === "lost" || event.kind === "released";
    const isCandidate = asked.call.call === "acquire" && asked.call.terms.elect;
    if (isOver || (isEnd && !isCandidate)) this.#asked.delete(event.id);
    this.#tell(event);
  }

  /** Goes where a MOVED or an ASK says, if it may (P-CLUSTER-3, P-CLUSTER-4). */
  #follow(asked: Asked, { code, text: said }: Failure): boolean {
    const isAsk = code === "ASK";
    const [, number, place = ""] = said.split(" ");
    const at = place.lastIndexOf(":");
    const isTooMany = isAsk ? asked.isAsking : asked.redirections === MOST_REDIRECTIONS;
    const from = this.#addresses.get(asked.node);
    if ((code !== "MOVED" && !isAsk) || at < 0 || isTooMany || from === undefined) return false;
    const host = place.slice(0, at) || ("host" in from.endpoint ? from.endpoint.host : "");
    const to = moved(from, host, Number(place.slice(at + 1)));
    const name = nameOf(to.endpoint);
    this.#addresses.set(name, to);
    if (!isAsk) this.#slots.set(Number(number), name);
    asked.node = name;
    asked.redirections += 1;
    asked.isAsking = isAsk;
    const { call } = asked;
    // A fresh snapshot follows.
    for (const key of asked.members) {
      this.#tell({ kind: "presence", id: call.id, key, is: "del", reason: "unknown" });
    }
    asked.members.clear();
    this.#node(name, Number(number)).do(call.call === "acquire" ? again(call, asked) : call);
    return true;
  }
}

/** The request with what is left of its time. */
function again(call: Extract<Begin, { call: "acquire" }>, { began, isAsking }: Asked): Begin {
  const { wait } = call.terms;
  const left = wait ? Math.max(1, wait - (performance.now() - began)) : wait;
  return { ...call, terms: { ...call.terms, wait: left, asking: isAsking } };
}

function slotOf(call: Begin): number {
  const key = call.call === "presence" ? call.prefix : call.call === "watch" ? call.keys[0] : call.terms.keys[0];
  return slot(key ?? "");
}
