/** Elections whose resigning the server refuses for a time, in this thread and in a Worker. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, type TestContext, test } from "node:test";
import { Closed, type Held, Locks } from "../src/index.js";
import { DevServer } from "../src/testing.js";

type Terms = AsyncGenerator<Held, void>;

/** A candidate that leads, and how it resigns and loses its term meanwhile. */
async function leading(of: TestContext, worker: boolean, signal?: AbortSignal) {
  const server = await DevServer.start({ args: ["--peer-timeout", "600s"] });
  const locks = new Locks(server.url, { worker });
  of.after(() => Promise.all([locks.close(), server.stop()]));
  const terms: Terms = locks.elect("lead", "ann", signal && { signal });
  const term = (await terms.next()).value as Held;
  const resign = async (): Promise<void> => {
    await server.refuse("BUSY");
    await term.release();
  };
  const lose = async (): Promise<void> => {
    const lost = once(term.signal, "abort");
    await server.lose("lead");
    await lost;
  };
  return { locks, terms, resign, lose };
}

for (const worker of [false, true]) {
  describe(worker ? "in a Worker" : "in this thread", () => {
    test("to leave the loop ends it, if its term is lost before the resigning is answered", {
      timeout: 10_000,
    }, async (of) => {
      const { terms, resign, lose } = await leading(of, worker);
      await resign();
      await lose();
      await terms.return();
    });

    test("so does its signal", { timeout: 10_000 }, async (of) => {
      const stopped = new AbortController();
      const { terms, resign, lose } = await leading(of, worker, stopped.signal);
      await resign();
      const next = terms.next();
      await lose();
      stopped.abort(new RangeError("of the caller"));
      await assert.rejects(next, RangeError);
    });

    test("an election ends with its client while it leads", { timeout: 10_000 }, async (of) => {
      const { locks, terms } = await leading(of, worker);
      await locks.close();
      await assert.rejects(terms.next(), Closed);
    });

    test("an election ends with its client while its resigning is refused", { timeout: 10_000 }, async (of) => {
      const { locks, terms, resign } = await leading(of, worker);
      await resign();
      const ended = assert.rejects(terms.next(), Closed);
      await locks.close();
      await ended;
    });

    test("an election ends with its client, if its term is lost while its resigning is refused", {
      timeout: 10_000,
    }, async (of) => {
      const { locks, terms, resign, lose } = await leading(of, worker);
      await resign();
      const ended = assert.rejects(terms.next(), Closed);
      await lose();
      await locks.close();
      await ended;
    });
  });
}
