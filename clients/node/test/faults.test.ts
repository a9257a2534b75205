/** Clients with sessions, and everything that goes wrong around them: no two hold the lock at one time. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type Held, Locks, Lost, Refused, Taken, Unreachable } from "../src/index.js";
import { generator } from "./random.js";
import { block, eventually, Server, Wire } from "./servers.js";

/** How many; TETHER_FAULTS=300 for all of them. */
const FAULTS = Number(process.env.TETHER_FAULTS ?? 24);
/** D is a second. */
const GRACE = 2_000;
const CLIENTS = 4;

const random = generator(41);
const upTo = (most: number): number => Math.floor(random() * most);

/** Those who believe that they hold the lock. */
class Holders {
  readonly #holds = new Map<Held, Locks>();
  grants = 0;

  /** Some client that holds it. */
  get some(): Locks | undefined {
    return [...this.#holds.values()][0];
  }

  look(): void {
    const sure = [...this.#holds.keys()].filter(({ lost }) => lost === undefined);
    assert.ok(sure.length <= 1, `${sure.length} hold the lock at one time: tokens ${sure.map(({ token }) => token)}`);
  }

  async work(held: Held, locks: Locks): Promise<void> {
    this.grants += 1;
    this.#holds.set(held, locks);
    // Long works outlast a fault: so a fence that is too long shows.
    const until = performance.now() + (random() < 0.5 ? upTo(100) : upTo(3 * GRACE));
    while (performance.now() < until && held.lost === undefined) {
      this.look();
      await sleep(upTo(10));
    }
    this.#holds.delete(held);
    await held.release().catch((error) => assert.ok(error instanceof Lost, error));
  }
}

async function lane(locks: Locks, holders: Holders, isOver: () => boolean): Promise<void> {
  while (!isOver()) {
    const controller = new AbortController();
    const timer = random() < 0.3 ? setTimeout(() => controller.abort(), upTo(300)) : undefined;
    try {
      const wait = upTo(2) * upTo(2_000);
      await holders.work(await locks.lock("k").acquire({ wait, signal: controller.signal }), locks);
    } catch (error) {
      const isExpected = [Taken, Unreachable, Refused].some((kind) => error instanceof kind);
      assert.ok(isExpected || controller.signal.aborted, String(error));
      await sleep(upTo(20));
    } finally {
      clearTimeout(timer);
    }
  }
}

async function fault(server: Server, wire: Wire): Promise<string> {
  const ms = upTo(2 * GRACE);
  const kinds: Record<string, () => Promise<unknown> | unknown> = {
    "a break": () => wire.reset(),
    "a cut that the server hears of": async () => {
      wire.cut();
      wire.endAtServer();
      await sleep(ms);
      wire.reset();
    },
    "a cut that nobody hears of": async () => {
      wire.cut();
      await sleep(ms);
      wire.reset();
    },
    "a loop that stands still": () => block(ms),
    "a server that stands still": async () => {
      server.signal("SIGSTOP");
      await sleep(ms);
      server.signal("SIGCONT");
    },
    "a pause": () => server.ask("CLIENT", "PAUSE", ms, "ALL"),
    "a server that refuses writes": async () => {
      await server.ask("CONFIG", "SET", "min-replicas-to-write", 1);
      await sleep(upTo(500));
      await server.ask("CONFIG", "SET", "min-replicas-to-write", 0);
    },
    kills: () => server.killClients(),
  };
  const [name, act] = Object.entries(kinds)[upTo(Object.keys(kinds).length)] as [string, () => unknown];
  await act();
  return name;
}

test(`${FAULTS} faults: no two hold the lock at one time, and nobody is left`, async () => {
  await using server = await Server.start();
  const wires = await Promise.all(Array.from({ length: CLIENTS }, () => Wire.to(server)));
  const clients = wires.map(({ url }, number) => new Locks(url, { grace: GRACE, worker: number === 0 }));
  const holders = new Holders();
  const played = new Map<string, number>();
  let isOver = false;
  const lanes = clients.flatMap((locks) => [0, 1].map(() => lane(locks, holders, () => isOver)));
  const watching = setInterval(() => holders.look(), 1);
  const faults = async () => {
    try {
      for (let number = 0; number < FAULTS; number += 1) {
        // Mostly that of who holds it.
        const holder = random() < 0.8 && holders.some ? clients.indexOf(holders.some) : upTo(CLIENTS);
        const name = await fault(server, wires[holder] as Wire);
        played.set(name, (played.get(name) ?? 0) + 1);
        const { grants } = holders;
        if (number % 4 === 0) await eventually("somebody is granted it", async () => holders.grants > grants);
      }
    } finally {
      isOver = true;
    }
  };
  try {
    await Promise.all([faults(), ...lanes]);
  } finally {
    clearInterval(watching);
  }
  console.log(`${holders.grants} grants`, Object.fromEntries(played));
  await Promise.all(clients.map((locks) => locks.close()));
  await server.free();
  for (const wire of wires) wire[Symbol.dispose]();
});
