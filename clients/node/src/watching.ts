import type { Event, Failure, WatchChange } from "./events.js";
import type { Id } from "./request.js";
import { type Bytes, ErrorReply, type Frame } from "./resp.js";

/** What watches need of the connection. */
export interface Wire {
  /** Whether commands can be sent. */
  readonly isUp: boolean;
  send(words: Bytes[], then: (reply: Frame) => void): void;
  /** Does this again after the delay of refused commands (P-RETRY-3). */
  tryAgain(again: () => void): void;
  tell(event: Event): void;
  readonly isMomentary: (reply: Frame) => boolean;
  readonly isUnwritable: (reply: Frame) => boolean;
}

const MOST_ASKED_AGAIN = 64; // P-CLUSTER-7

/** `asked`: the state is to come; `known`; `leaving`: UNWATCHEX is not answered. */
interface Watched {
  readonly by: Set<Id>;
  phase: "asked" | "known" | "leaving";
  /** A command of it is not answered; a push is no answer (P-WATCH-1). */
  isOpen: boolean;
  isThere: boolean;
  /** It is asked for again, and `isThere` is so. */
  isAgain: boolean;
}

interface Watcher {
  readonly keys: readonly Bytes[];
  readonly told: Map<Bytes, boolean>;
}

/** WATCHEX for all who watch keys (P-WATCH-1 to P-WATCH-4). */
export class Watches {
  readonly #wire: Wire;
  readonly #watchers = new Map<Id, Watcher>();
  readonly #watched = new Map<Bytes, Watched>();
  /** The last of the keys that was asked for again. */
  #asked = 0;

  constructor(wire: Wire) {
    this.#wire = wire;
  }

  get isWanted(): boolean {
    return this.#watchers.size > 0;
  }

  /** A key that is watched. */
  get first(): Bytes | undefined {
    return this.#watchers.values().next().value?.keys[0];
  }

  /** `told`: of each key what the watcher was told at another node of a cluster (P-CLUSTER-7). */
  watch(id: Id, keys: readonly Bytes[], told: ReadonlyMap<Bytes, boolean> = new Map()): void {
    this.#watchers.set(id, { keys: [...keys], told: new Map(told) });
    for (const key of keys) {
      const watched = this.#watched.get(key);
      if (watched === undefined) {
        const by = new Set([id]);
        this.#watched.set(key, { by, phase: "asked", isOpen: false, isThere: false, isAgain: false });
        this.#ask(key);
      } else {
        watched.by.add(id);
        if (watched.phase === "known") this.#say(id, key, watched.isThere);
      }
    }
  }

  unwatch(id: Id): void {
    const watcher = this.#watchers.get(id);
    this.#watchers.delete(id);
    for (const key of watcher?.keys ?? []) this.#leave(id, key);
  }

  /** A new connection: all are watched again, in the order in which they began (P-WATCH-3). */
  anew(): void {
    for (const [key, watched] of this.#watched) {
      if (watched.by.size === 0) {
        this.#watched.delete(key);
      } else {
        watched.phase = "asked";
        watched.isOpen = false;
        watched.isAgain = false;
        this.#ask(key);
      }
    }
  }

  /** Finds out whether the slots of watched keys are still here (P-CLUSTER-7). */
  askAgain(): void {
    const keys = [...this.#watched.keys()];
    for (let count = Math.min(keys.length, MOST_ASKED_AGAIN); count > 0; count -= 1) {
      this.#asked = (this.#asked + 1) % keys.length;
      const key = keys[this.#asked] as Bytes;
      const watched = this.#watched.get(key);
      if (watched?.phase !== "known" || watched.isOpen) continue;
      watched.phase = "asked";
      watched.isAgain = true;
      this.#ask(key);
    }
  }

  end(why: Failure): void {
    for (const id of this.#watchers.keys()) this.#wire.tell({ kind: "ended", id, ...why });
    this.#watchers.clear();
    this.#watched.clear();
  }

  /** A push `watchex`. One that comes before the reply says what the reply will say (P-WATCH-2). */
  changed(key: Bytes, change: Bytes): void {
    const watched = this.#watched.get(key);
    if (watched === undefined || (change !== "ADD" && change !== "DEL")) return;
    const isThere = change === "ADD";
    if (watched.phase === "asked") this.#known(key, watched, !isThere);
    if (watched.phase !== "known" || watched.isThere === isThere) return;
    watched.isThere = isThere;
    for (const id of watched.by) this.#say(id, key, isThere);
  }

  #ask(key: Bytes): void {
    const watched = this.#watched.get(key);
    if (watched === undefined || watched.isOpen || !this.#wire.isUp) return;
    watched.isOpen = true;
    this.#wire.send(["WATCHEX", key], (reply) => this.#answered(key, reply));
  }

  #answered(key: Bytes, reply: Frame): void {
    const watched = this.#watched.get(key);
    if (watched === undefined) return;
    watched.isOpen = false;
    if (watched.phase === "known") {
      this.#unask(key, watched); // A push said the state before.
    } else if (watched.isAgain && reply instanceof ErrorReply && reply.code !== "MOVED") {
      this.#known(key, watched, watched.isThere);
    } else if (this.#wire.isMomentary(reply)) {
      this.#wire.tryAgain(() => this.#ask(key));
    } else if (reply instanceof ErrorReply) {
      this.#watched.delete(key);
      for (const id of watched.by) {
        this.#wire.tell({ kind: "ended", id, error: "refused", code: reply.code, text: reply.text });
        const watcher = this.#watchers.get(id);
        this.#watchers.delete(id);
        for (const other of watcher?.keys ?? []) if (other !== key) this.#leave(id, other);
      }
    } else {
      this.#known(key, watched, reply === "EXIST");
    }
  }

  #known(key: Bytes, watched: Watched, isThere: boolean): void {
    watched.phase = "known";
    watched.isThere = isThere;
    watched.isAgain = false;
    this.#unask(key, watched);
    for (const id of watched.by) this.#say(id, key, isThere);
  }

  #leave(id: Id, key: Bytes): void {
    const watched = this.#watched.get(key);
    if (watched === undefined) return;
    watched.by.delete(id);
    if (watched.by.size > 0) return;
    if (!this.#wire.isUp) this.#watched.delete(key);
    else if (watched.phase === "known") this.#unask(key, watched);
  }

  /** If nobody watches it; while a command is open, the answer to that leads here again. */
  #unask(key: Bytes, watched: Watched): void {
    if (watched.by.size > 0 || watched.isOpen) return;
    watched.phase = "leaving";
    watched.isOpen = true;
    this.#wire.send(["UNWATCHEX", key], () => {
      watched.isOpen = false;
      if (watched.by.size === 0) {
        this.#watched.delete(key);
      } else {
        watched.phase = "asked";
        this.#ask(key);
      }
    });
  }

  #say(id: Id, key: Bytes, isThere: boolean): void {
    const told = this.#watchers.get(id)?.told;
    if (told === undefined || told.get(key) === isThere) return;
    const change: [WatchChange, WatchChange] = told.has(key) ? ["added", "deleted"] : ["exists", "missing"];
    told.set(key, isThere);
    this.#wire.tell({ kind: "watch", id, key, is: change[isThere ? 0 : 1] });
  }
}

interface Member {
  readonly token: number;
  readonly value: Bytes | null;
}

export type Members = ReadonlyMap<Bytes, Member>;

/**
 * `next` is the snapshot that is being read: undefined before its first page, when a push is still of a former watch. `number`
 * is which snapshot it is, and `isLive` says that it is complete.
 */
interface Prefix {
  readonly by: Set<Id>;
  members: Map<Bytes, Member>;
  next: Map<Bytes, Member> | undefined;
  number: number;
  isLive: boolean;
}

interface Observer {
  readonly prefix: Bytes;
  /** It wants the leader of an election: the key that is the whole prefix (P-ELECT-3). */
  readonly isOfLeader: boolean;
  hasHeard: boolean;
  /** Until the first snapshot: what it was told before. */
  told: Members | undefined;
}

/** WATCHTP for all who watch temporary keys (P-PRES-1 to P-PRES-4, P-ELECT-3). */
export class Presences {
  readonly #wire: Wire;
  readonly #observers = new Map<Id, Observer>();
  readonly #prefixes = new Map<Bytes, Prefix>();

  constructor(wire: Wire) {
    this.#wire = wire;
  }

  get isWanted(): boolean {
    return this.#observers.size > 0;
  }

  /** A prefix that is observed. */
  get first(): Bytes | undefined {
    return this.#observers.values().next().value?.prefix;
  }

  /** `told`: what it was told at another node of a cluster (P-CLUSTER-7). */
  watch(id: Id, prefix: Bytes, isOfLeader: boolean, told?: Members): void {
    this.#observers.set(id, { prefix, isOfLeader, hasHeard: told !== undefined, told: told ?? new Map() });
    const state = this.#prefixes.get(prefix);
    if (state !== undefined) {
      state.by.add(id);
      if (state.isLive) this.#compare(id, state.members, state.members);
      return;
    }
    this.#prefixes.set(prefix, { by: new Set([id]), members: new Map(), next: undefined, number: 0, isLive: false });
    this.#ask(prefix);
  }

  unwatch(id: Id): void {
    const observer = this.#observers.get(id);
    if (observer === undefined) return;
    this.#observers.delete(id);
    const state = this.#prefixes.get(observer.prefix);
    state?.by.delete(id);
    if (state?.by.size !== 0) return;
    this.#prefixes.delete(observer.prefix);
    if (this.#wire.isUp) this.#wire.send(["UNWATCHTP", observer.prefix], () => {});
  }

  /** A new connection: a fresh snapshot of each (P-PRES-3). */
  anew(): void {
    for (const prefix of this.#prefixes.keys()) this.#ask(prefix);
  }

  end(why: Failure): void {
    for (const id of this.#observers.keys()) this.#wire.tell({ kind: "ended", id, ...why });
    this.#observers.clear();
    this.#prefixes.clear();
  }

  /** A push `watchtp`. It reaches each prefix that it matches: the server sends one for all (P-PRES-2). */
  changed(key: Bytes, said: Bytes): void {
    const [word, rest] = cut(said);
    if (word === "FLUSHED") return this.#flushed(key);
    if (word === "END") return this.#prefixes.has(key) ? this.#ask(key) : undefined;
    if (word !== "ADD" && word !== "SET" && word !== "DEL") return;
    const [token, value] = cut(rest ?? "");
    const member = word === "DEL" ? undefined : { token: Number(token), value };
    for (const [prefix, state] of this.#prefixes) {
      if (!key.startsWith(prefix)) continue;
      const members = state.isLive ? state.members : state.next;
      if (member === undefined) members?.delete(key);
      else members?.set(key, member);
      if (!state.isLive) continue;
      const how = word === "ADD" ? "add" : "set";
      for (const id of state.by) this.#say(id, key, how, member, value ?? "unknown");
    }
  }

  #flushed(prefix: Bytes): void {
    const state = this.#prefixes.get(prefix);
    if (state === undefined) return;
    if (!state.isLive) return state.next?.clear(); // The snapshot tells the difference.
    const gone = [...state.members.keys()].sort();
    state.members = new Map();
    for (const key of gone) for (const id of state.by) this.#say(id, key, "set", undefined, "flushed");
  }

  #ask(prefix: Bytes, after?: Bytes): void {
    const state = this.#prefixes.get(prefix);
    if (state === undefined || !this.#wire.isUp) return;
    if (after === undefined) {
      state.next = undefined;
      state.number += 1;
      state.isLive = false;
    }
    const { number } = state;
    const words = ["WATCHTP", prefix, ...(after === undefined ? [] : ["AFTER", after])];
    this.#wire.send(words, (reply) => this.#page(prefix, state, number, reply));
  }

  #page(prefix: Bytes, state: Prefix, number: number, reply: Frame): void {
    if (this.#prefixes.get(prefix) !== state || state.number !== number) return; // An earlier snapshot's.
    if (this.#wire.isMomentary(reply) || this.#wire.isUnwritable(reply)) {
      return this.#wire.tryAgain(() => this.#ask(prefix));
    }
    if (reply instanceof ErrorReply) {
      this.#prefixes.delete(prefix);
      for (const id of state.by) {
        this.#observers.delete(id);
        this.#wire.tell({ kind: "ended", id, error: "refused", code: reply.code, text: reply.text });
      }
      return;
    }
    const [after, entries] = reply as [Bytes, [Bytes, number, Bytes | null][]];
    state.next ??= new Map();
    for (const [key, token, value] of entries) state.next.set(key, { token, value });
    if (after) return this.#ask(prefix, after);
    const old = state.members;
    state.members = state.next;
    state.next = undefined;
    state.isLive = true;
    for (const id of state.by) this.#compare(id, old, state.members);
  }

  /** Tells the difference; of a first snapshot, to what the observer was told before. */
  #compare(id: Id, former: Members, fresh: Members): void {
    const observer = this.#observers.get(id);
    if (observer === undefined) return;
    const old = observer.told ?? former;
    observer.told = undefined;
    for (const key of [...new Set([...old.keys(), ...fresh.keys()])].sort()) {
      const before = old.get(key);
      const member = fresh.get(key);
      if (before?.token === member?.token && before?.value === member?.value) continue;
      this.#say(id, key, before === undefined ? "add" : "set", member, "unknown");
    }
    if (observer.isOfLeader && !observer.hasHeard) this.#say(id, observer.prefix, "set", undefined, "");
  }

  #say(id: Id, key: Bytes, is: "add" | "set", member: Member | undefined, reason: string): void {
    const observer = this.#observers.get(id);
    if (observer === undefined) return;
    if (!observer.isOfLeader) {
      if (member) this.#wire.tell({ kind: "presence", id, key, is, ...member });
      else this.#wire.tell({ kind: "presence", id, key, is: "del", reason });
    } else if (key === observer.prefix) {
      observer.hasHeard = true;
      if (member) this.#wire.tell({ kind: "leader", id, ...member });
      else this.#wire.tell({ kind: "leader", id, token: null });
    }
  }
}

/** The first word, and what is behind the space after it; null: there is no space. */
export function cut(said: Bytes): [Bytes, Bytes | null] {
  const at = said.indexOf(" ");
  return at < 0 ? [said, null] : [said.slice(0, at), said.slice(at + 1)];
}
