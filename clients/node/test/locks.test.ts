/** Locks on a real server. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { Socket } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import type { Call } from "../src/engine.js";
import type { Event } from "../src/events.js";
import {
  Closed,
  Deadlock,
  type Held,
  type Leader,
  Locks,
  Lost,
  type PresenceEvent,
  Refused,
  Taken,
  TetherError,
  Unfit,
  Unreachable,
  type WatchEvent,
} from "../src/index.js";
import { configOf } from "../src/options.js";
import { Remote } from "../src/remote.js";
import { generator } from "./random.js";
import { block, eventually, on, Server, Wire } from "./servers.js";

/** How many acquires are cancelled at random; scripts/node.sh says how to have more. */
const STEPS = Number(process.env.TETHER_STEPS ?? 10_000);

/** The reason of the loss, when it comes. */
async function loss(held: Held): Promise<string> {
  if (!held.signal.aborted) await new Promise((resolve) => held.signal.addEventListener("abort", resolve));
  assert.ok(held.signal.reason instanceof Lost);
  return held.signal.reason.reason;
}

async function next<T>(iterator: AsyncGenerator<T, void>): Promise<T> {
  const { value, done } = await iterator.next();
  assert.ok(!done);
  return value as T;
}

describe("on one server", () => {
  let server: Server;
  before(async () => {
    // A machine that runs nobody for seconds loses no lock here; fences have tests of their own.
    server = await Server.start("--tether.peer-timeout", "600000");
  });
  after(async () => {
    await server[Symbol.asyncDispose]();
  });

  test("a lock is held until the end of its scope", async () => {
    await using locks = new Locks(server.url);
    {
      await using held = await locks.lock("report").acquire();
      assert.equal(held.name, "report");
      assert.ok(held.token > 0);
      assert.equal(held.lost, undefined);
      held.check();
      await held.checkServer();
      assert.equal(await locks.lock("report").tryAcquire(), undefined);
      const reason = new Error("not any more");
      await assert.rejects(locks.lock("report").tryAcquire({ signal: AbortSignal.abort(reason) }), reason);
      await assert.rejects(locks.lock("report").acquire({ wait: 50 }), Taken);
    }
    await using again = await locks.lock("report").acquire({ wait: 0 });
    await again.release();
    await again.release();
    assert.equal(again.lost, "released");
    assert.throws(() => again.check(), Lost);
    await server.free();
  });

  test("using gives what its body gives, and throws what it throws", async () => {
    await using locks = new Locks(server.url);
    assert.equal(await locks.using("report", (held) => held.name), "report");
    const failing = locks.using("report", () => {
      throw new RangeError("of the body");
    });
    await assert.rejects(failing, RangeError);
    await server.free();
  });

  test("a loss aborts the signal, and is thrown at the end of the body", async () => {
    await using locks = new Locks(server.url);
    const lost = locks.using("report", async (held) => {
      await server.ask("DEL", "report");
      assert.equal(await loss(held), "deleted");
      assert.throws(() => held.check(), Lost);
      await assert.rejects(held.extend(1000), Lost);
    });
    await assert.rejects(lost, { name: "Lost", reason: "deleted" });
    const body = locks.using("report", async (held) => {
      await server.ask("DEL", "report");
      await loss(held);
      throw new RangeError("of the body");
    });
    await assert.rejects(body, RangeError);
    await server.free();
  });

  test("what was asked of the server is answered also if the hold ends by it, or before it", async () => {
    await using locks = new Locks(server.url);
    for (const ask of [(held: Held) => held.checkServer(), (held: Held) => held.extend(60_000)]) {
      const held = await locks.lock("report").acquire();
      await server.ask("RENAME", "report", "elsewhere");
      await assert.rejects(ask(held), { name: "Lost", reason: "deleted" });
      await server.ask("DEL", "elsewhere");
      await server.free();
    }
    using wire = await Wire.to(server);
    await using cut = new Locks(wire.url);
    const held = await cut.lock("report").acquire();
    wire.cut();
    const asked = [held.checkServer(), held.extend(60_000)];
    const released = held.release();
    await new Promise((resolve) => setImmediate(resolve));
    wire.reset();
    for (const each of asked) await assert.rejects(each, { name: "Lost", reason: "released" });
    await released;
    await server.free();
  });

  test("modes: shared, semaphores, several at once", async () => {
    await using locks = new Locks(server.url);
    {
      await using _one = await locks.shared("data").acquire();
      await using _other = await locks.shared("data").acquire();
      await assert.rejects(locks.lock("data").acquire({ wait: 0 }), Taken);
    }
    {
      await using _two = await locks.semaphore("pool", { permits: 2, of: 3 }).acquire();
      await using _one = await locks.semaphore("pool", { of: 3 }).acquire();
      await assert.rejects(locks.semaphore("pool", { of: 3 }).acquire({ wait: 0 }), Taken);
    }
    const both = await locks.all(["a", "b"]).acquire();
    assert.deepEqual(both.names, ["a", "b"]);
    await assert.rejects(locks.lock("b").acquire({ wait: 0 }), Taken);
    await server.ask("DEL", "a");
    assert.equal(await loss(both), "deleted");
    await (await locks.lock("b").acquire()).release();
    await assert.rejects(both.release(), Lost);
    await assert.rejects(locks.all(["a", "a"]).acquire(), { name: "Refused", code: "KEYS" });
    await assert.rejects(locks.lock("a", { owner: ".a" }).acquire(), { name: "Refused", code: "OWNER" });
    await assert.rejects(locks.lock("a", { atLeast: 1 }).acquire(), Unfit);
    await server.free();
  });

  test("a named owner enters again, and tasks are refused deadlocks", async () => {
    await using locks = new Locks(server.url);
    const lock = locks.lock("report", { owner: "ann", reentrant: true });
    const outer = await lock.acquire();
    const inner = await lock.acquire();
    assert.equal(inner.token, outer.token);
    await inner.release();
    outer.check();
    await outer.release();
    const one = await locks.lock("a").acquire({ task: "one" });
    const two = await locks.lock("b").acquire({ task: "two" });
    const crossing = locks.lock("b").acquire({ task: "one" });
    await server.waiting(1);
    await assert.rejects(locks.lock("a").acquire({ task: "two" }), Deadlock);
    await two.release();
    await (await crossing).release();
    await one.release();
    await server.free();
  });

  test("a lease ends, and is extended", async () => {
    await using locks = new Locks(server.url);
    const held = await locks.lock("report", { lease: 60_000 }).acquire();
    await held.extend(50);
    assert.equal(await loss(held), "lease");
    const other = await locks.lock("report", { lease: 1_000 }).acquire();
    block(1_000);
    assert.equal(other.lost, "lease"); // No timer has run.
    await server.free();
  });

  test("a guarded write is made only while the lock is held", async () => {
    await using locks = new Locks(server.url);
    const data = await server.connect();
    const send = (words: string[]) => on(data, ...words);
    const held = await locks.lock("report").acquire();
    assert.equal(await held.guard(send, "SET", "body", "new"), "OK");
    await server.ask("RENAME", "report", "elsewhere");
    await assert.rejects(held.guard(send, "SET", "body", "old"), Lost);
    assert.equal(await server.ask("GET", "body"), "new");
    await held.release().catch(() => {});
    data.leave();
    await server.ask("FLUSHALL");
    await server.free();
  });

  test("a signal stops the wait, and leaves nothing", async () => {
    await using locks = new Locks(server.url);
    const holder = await locks.lock("report").acquire();
    const controller = new AbortController();
    const waiting = locks.lock("report").acquire({ signal: controller.signal });
    await server.waiting(1);
    controller.abort(new RangeError("enough"));
    await assert.rejects(waiting, RangeError);
    await server.waiting(0);
    await assert.rejects(locks.lock("report").acquire({ signal: controller.signal }), RangeError);
    await holder.release();
    await server.free();
  });

  test(`${STEPS} acquires that are cancelled at random moments leave neither a place nor a hold`, async () => {
    const random = generator(5);
    await using locks = new Locks(server.url);
    await using other = new Locks(server.url);
    const kept = await locks.lock("kept").acquire();
    let granted = 0;
    const one = async (): Promise<void> => {
      const controller = new AbortController();
      const lock = random() < 0.7 ? locks.lock("k") : locks.all(["k", "l"]);
      const held = lock.acquire({ signal: controller.signal });
      if (random() < 0.5) await new Promise((resolve) => setTimeout(resolve, 3 * random()));
      controller.abort();
      await held.then(
        (it) => {
          granted += 1;
          return it.release();
        },
        (error) => assert.equal(error.name, "AbortError"),
      );
    };
    let step = 0;
    const lane = async () => {
      for (; step < STEPS; step += 1) await one();
    };
    const rival = async () => {
      while (step < STEPS) await other.using("k", () => {});
    };
    await Promise.all([rival(), ...Array.from({ length: 20 }, lane)]);
    assert.ok(granted > 0 && granted < STEPS, `${granted} were granted`);
    kept.check();
    await kept.release();
    await server.free();
  });

  test("temporary keys and sequences", async () => {
    await using locks = new Locks(server.url);
    {
      await using _held = await locks.temporary("who", "me").acquire();
      assert.equal(await server.ask("GET", "who"), "me");
    }
    assert.equal(await server.ask("EXISTS", "who"), 0);
    const first = await locks.sequence("q-", "x").acquire();
    const second = await locks.sequence("q-", "y").acquire();
    assert.ok(first.name < second.name && first.name.startsWith("q-"));
    assert.equal(await server.ask("GET", second.name), "y");
    await Promise.all([first.release(), second.release()]);
    await server.free();
  });

  test("a singleton runs once at a time", async () => {
    await using locks = new Locks(server.url);
    let finish = () => {};
    const job = locks.singleton("nightly", async (what: string) => {
      await new Promise<void>((resolve) => {
        finish = resolve;
      });
      return what;
    });
    const running = job("done");
    await eventually("it runs", async () => (await server.ask("EXISTS", "nightly")) === 1);
    assert.equal(await job("again"), undefined);
    finish();
    assert.equal(await running, "done");
    await server.free();
  });

  test("a watch tells what is, and each change, also over a break", async () => {
    await using locks = new Locks(server.url);
    const watch = locks.watch("report");
    const is = async (): Promise<WatchEvent["is"]> => (await next(watch)).is;
    assert.equal(await is(), "missing");
    await server.ask("SET", "report", "1");
    assert.equal(await is(), "added");
    await server.killClients();
    await server.ask("DEL", "report");
    assert.equal(await is(), "deleted");
    await watch.return();
    const controller = new AbortController();
    const other = locks.watch(["a", "b"], { signal: controller.signal });
    assert.deepEqual([(await next(other)).key, (await next(other)).key], ["a", "b"]);
    const waiting = other.next();
    controller.abort(new RangeError("enough"));
    await assert.rejects(waiting, RangeError);
  });

  test("a reader that stops finds the last state of each key, and no more than it must", async () => {
    await using locks = new Locks(server.url);
    await using members = new Locks(server.url);
    const presence = locks.presence("m:");
    const kept = await members.temporary("m:kept", "v").acquire();
    assert.equal((await next(presence)).key, "m:kept");
    for (let turn = 0; turn < 700; turn += 1) await (await members.temporary("m:turn", "v").acquire()).release();
    const last = await members.temporary("m:last", "v").acquire();
    const seen: PresenceEvent[] = [];
    while (seen.at(-1)?.key !== "m:last") seen.push(await next(presence));
    assert.ok(seen.length <= 1_100, `${seen.length} events`);
    assert.equal(seen.findLast(({ key }) => key === "m:turn")?.is ?? "del", "del");
    await presence.return();
    await Promise.all([kept.release(), last.release()]);
    await server.free();
  });

  test("an election: terms, an observer, a resignation, a loss", async () => {
    await using locks = new Locks(server.url);
    await using rivals = new Locks(server.url);
    const observer = locks.observe("lead");
    const leader = async (): Promise<Leader | undefined> => next(observer);
    assert.equal(await leader(), undefined);
    const heard: (string | null | undefined)[] = [];
    const ours = locks.elect("lead", "ann", { onLeader: (leader) => heard.push(leader?.value) });
    const first = await next(ours);
    assert.deepEqual(await leader(), { token: first.token, value: "ann" });
    const theirs = rivals.elect("lead", "bob");
    const second = next(theirs);
    await server.waiting(1);
    const third = next(ours); // The body of the first term is over: ann resigns, and stands again.
    assert.equal((await leader())?.value, "bob");
    const term = await second;
    await server.waiting(1);
    await server.ask("DEL", "lead");
    assert.equal(await loss(term), "deleted");
    assert.equal((await third).lost, undefined);
    await eventually("ann leads", async () => (await server.ask("GET", "lead")) === "ann");
    await eventually("the candidate has heard it, too", async () => heard.join().endsWith("ann,bob,,ann"));
    await theirs.return();
    await ours.return();
    await observer.return();
    const onLeader = () => {
      throw new RangeError("of the callback");
    };
    const failing = locks.elect("lead", "ann", { onLeader });
    await assert.rejects(async () => {
      for (;;) await next(failing);
    }, RangeError);
    await server.free();
  });

  test("to release a term that was lost ends no later one", { timeout: 60_000 }, async () => {
    await using locks = new Locks(server.url);
    const terms = locks.elect("lead", "ann");
    const first = await next(terms);
    await server.ask("DEL", "lead");
    await loss(first);
    await assert.rejects(first.release(), Lost);
    const second = await next(terms);
    await assert.rejects(first.release(), Lost);
    await second.checkServer();
    await terms.return();
    await server.free();
  });

  test("an election ends with the first answer to the resignation, also with a refusal", {
    timeout: 30_000,
  }, async () => {
    await server.ask("ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all", "-deltp");
    const locks = new Locks(server.url.replace("//", "//ann:secret@"));
    const resigned = locks.elect("a", "ann");
    await next(resigned);
    await assert.rejects(resigned.next(), { code: "NOPERM" });
    const left = locks.elect("b", "ann");
    await next(left);
    await left.return();
    await using rivals = new Locks(server.url);
    const term = await rivals.temporary("c", "bob").acquire();
    const stopped = new AbortController();
    const waiting = locks.elect("c", "ann", { signal: stopped.signal }).next();
    await server.waiting(1);
    stopped.abort(new RangeError("of the caller"));
    await assert.rejects(waiting, RangeError);
    await server.ask("ACL", "SETUSER", "ann", "+deltp");
    await term.release();
    await server.free(); // The client has sent each of them again.
    await locks.close();
    await server.ask("ACL", "DELUSER", "ann");
  });

  test("close loses all holds, ends all requests, and frees the locks at once", async () => {
    const locks = new Locks(server.url, { grace: 60_000 });
    const held = await locks.lock("a").acquire();
    const rival = new Locks(server.url);
    const taken = await rival.lock("b").acquire();
    const waiting = locks.lock("b").acquire();
    const term = next(locks.elect("lead", "ann"));
    await term;
    await server.waiting(1);
    const ended = assert.rejects(waiting, Closed);
    await locks.close();
    await ended;
    assert.equal(held.lost, "closed");
    await (await rival.lock("a").acquire({ wait: 0 })).release();
    await taken.release();
    await rival.close();
    await assert.rejects(locks.lock("a").acquire(), Closed);
    await locks.close();
    assert.deepEqual(await server.ask("SESSION.LIST"), []);
    await server.free();
  });

  test("the end of the program gives back what its session holds", async () => {
    const program = `
      import { Locks } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
      await new Locks(${JSON.stringify(server.url)}, { grace: 600_000 }).lock("a").acquire();
      console.log("held");
      process.exit();`;
    const run = promisify(execFile);
    const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", program]);
    assert.equal(stdout, "held\n");
    await server.free();
    assert.deepEqual(await server.ask("SESSION.LIST"), []);
  });

  test("a client that is closed does not keep the program alive for the times of its requests", async () => {
    const program = `
      import { Locks } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
      const locks = new Locks(${JSON.stringify(server.url)});
      await locks.lock("a", { lease: 3_600_000 }).acquire();
      await locks.close();`;
    await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", program], { timeout: 30_000 });
    await server.free();
  });

  test("the program goes on until a client in a Worker is closed", async () => {
    const program = join(server.folder, "closes.mjs"); // A file, since no Worker begins under --eval.
    await writeFile(
      program,
      `import { Locks } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
      const locks = new Locks(${JSON.stringify(server.url)}, { worker: true });
      await locks.elect("a", "ann").next();
      await locks.close();
      console.log("closed");`,
    );
    const { stdout } = await promisify(execFile)(process.execPath, [program], { timeout: 30_000 });
    assert.equal(stdout, "closed\n");
    await server.free();
  });

  test("the program ends when nothing is left, also of what nobody is told, with a client in a Worker", async () => {
    const program = join(server.folder, "ends.mjs");
    const lose = {
      // The other key is released unseen.
      "loses one of two keys": `const held = await locks.all(["a", "b"]).acquire(); console.log("held"); await lost(held);`,
      "loses it by its own clock": `await lost(await locks.all(["a", "b"], { lease: 50 }).acquire());`,
      "waits in vain": `await locks.lock("taken").acquire({ wait: 50 }).catch(() => {});`,
    };
    await using rival = new Locks(server.url);
    const taken = await rival.lock("taken").acquire();
    for (const [what, body] of Object.entries(lose)) {
      await writeFile(
        program,
        `import { Locks } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
        const locks = new Locks(${JSON.stringify(server.url)}, { worker: true });
        const lost = (held) => new Promise((resolve) => held.signal.addEventListener("abort", resolve));
        ${body}`,
      );
      const ended = promisify(execFile)(process.execPath, [program], { timeout: 30_000 });
      ended.child.stdout?.once("data", () => server.ask("DEL", "a"));
      await assert.doesNotReject(ended, what);
    }
    await taken.release();
    await server.free();
  });

  test("without a session a break loses everything; with one it loses nothing", async () => {
    await using locks = new Locks(server.url);
    await using session = new Locks(server.url, { grace: 30_000 });
    const held = await locks.lock("a").acquire();
    const kept = await session.lock("b").acquire();
    await server.killClients();
    assert.equal(await loss(held), "connection");
    await session.using("c", () => kept.check());
    await kept.checkServer();
    await kept.release();
    await server.free();
  });

  test("a long pause of the event loop loses the locks before check says so", async () => {
    await using locks = new Locks(server.url, { fence: 500 });
    const held = await locks.lock("a").acquire();
    block(600);
    assert.equal(held.lost, "silence");
    assert.equal(await loss(held), "silence");
    await assert.rejects(held.release(), Lost);
    await server.free();
  });

  test("check says of each hold what is over, also before its loss is told", async () => {
    await using locks = new Locks(server.url, { fence: 500 });
    const [one, two] = [await locks.lock("a").acquire(), await locks.lock("b").acquire()];
    block(600);
    const released = assert.rejects(one.release(), Lost);
    assert.equal(two.lost, "silence");
    await released;
    await using others = new Locks(server.url);
    const first = await others.lock("c").acquire();
    const second = await others.lock("d").acquire();
    const terms = others.elect("lead", "ann");
    const term = await next(terms);
    const seen: (string | undefined)[] = [];
    first.signal.addEventListener("abort", () => seen.push(second.lost, term.lost));
    await server.killClients();
    await loss(first);
    assert.deepEqual(seen, ["connection", "connection"]);
    await terms.return();
    await server.free();
  });

  test("in a Worker the locks outlive a pause of the event loop, but not one of maxBlock", async () => {
    await using locks = new Locks(server.url, { fence: 500, worker: { maxBlock: 4_000 } });
    const held = await locks.lock("a", { lease: 60_000 }).acquire();
    block(2_000);
    assert.equal(held.lost, undefined);
    await held.checkServer();
    await held.extend(60_000);
    await server.ask("DEL", "a");
    assert.equal(await loss(held), "deleted");
    const other = await locks.lock("a").acquire();
    block(5_500);
    assert.equal(other.lost, "silence");
    assert.equal(await loss(other), "silence");
    const last = await locks.lock("a").acquire();
    const watch = locks.watch("a");
    assert.equal((await next(watch)).is, "exists");
    await last.release();
    assert.equal((await next(watch)).is, "deleted");
    await watch.return();
    await server.free();
  });

  test("a candidate that has left is forgotten with the end of its term, also in a Worker", async () => {
    const told: Event[] = [];
    const remote = new Remote(configOf([server.url], {}), 30_000, (event) => told.push(event));
    const kinds = () => told.map(({ kind }) => kind).join();
    remote.do({ call: "acquire", id: 1, terms: { keys: ["lead"], temporary: "ann", elect: true } });
    await eventually("it leads", async () => kinds() === "granted");
    remote.do({ call: "giveUp", id: 1 });
    await eventually("it has left", async () => kinds() === "granted,released");
    await remote.close();
    assert.equal(kinds(), "granted,released");
    await server.free();
  });

  test("a candidate whose Worker fails while it leads stands no more", async () => {
    const told: Event[] = [];
    const remote = new Remote(configOf([server.url], {}), 30_000, (event) => told.push(event));
    remote.do({ call: "acquire", id: 1, terms: { keys: ["lead"], temporary: "ann", elect: true } });
    await eventually("it leads", async () => told.length === 1);
    remote.do({ call: "watch", id: 2 } as unknown as Call); // The engine throws.
    await eventually("the Worker has ended", async () => told.length === 4);
    assert.deepEqual(
      told.map((event) => "id" in event && [event.id, event.kind]),
      [
        [1, "granted"],
        [1, "lost"],
        [1, "refused"],
        [2, "ended"],
      ],
    );
    await server.free();
  });

  test("check sees what the Worker was told while the event loop stood still", async () => {
    await using locks = new Locks(server.url, { worker: true });
    const held = await locks.lock("a").acquire();
    const line = await server.connect();
    line.write([["DEL", "a"]]);
    // The loop stands still until the Worker has heard of it: no message is handled but by check.
    const until = performance.now() + 20_000;
    while (held.lost === undefined && performance.now() < until) block(5);
    assert.equal(held.lost, "deleted");
    line.leave();
  });

  test("nothing of a TLS or password failure shows the password", async () => {
    const urls = ["redis://seCRET@[", "http://u:seCRET@h", "redis://u:seCRET@h:1/x"];
    for (const mark of ["/", "?", "#"]) urls.push(`redis://u:12${mark}seCRET@h`);
    for (const url of urls) {
      assert.throws(
        () => new Locks(url),
        (error: Error) => error instanceof TetherError && !error.message.includes("seCRET"),
      );
    }
    await using locks = new Locks(`redis://u:seCRET@127.0.0.1:${server.port}`);
    await assert.rejects(locks.lock("a").acquire(), (error: Error) => {
      return error instanceof Refused && error.code === "WRONGPASS" && !error.message.includes("seCRET");
    });
  });
});

test("a cut wire: lost within the fence, and a request that does not wait is unreachable", async () => {
  await using server = await Server.start();
  using wire = await Wire.to(server);
  await using locks = new Locks(wire.url, { fence: 400 });
  const held = await locks.lock("a").acquire();
  wire.cut();
  assert.equal(await loss(held), "silence");
  await server.stop();
  await assert.rejects(locks.lock("a").acquire({ wait: 0 }), Unreachable);
});

test("an error names the server and the cause, whether the request waits or not", async () => {
  await using server = await Server.start();
  const { port } = server;
  await server.stop();
  for (const host of ["127.0.0.1", "localhost"]) {
    await using locks = new Locks(`redis://${host}:${port}`);
    for (const wait of [0, 50]) {
      await assert.rejects(locks.lock("a").acquire({ wait }), (error: Error) => {
        assert.ok(
          error instanceof Unreachable && error.message.includes(`${host}:${port}: connect ECONNREFUSED`),
          error.message,
        );
        return true;
      });
    }
  }
});

test("a loss is told before the connection is closed, which frees the lock", async (t) => {
  await using server = await Server.start();
  using wire = await Wire.to(server);
  await using locks = new Locks(wire.url, { fence: 400 });
  const held = await locks.lock("a").acquire();
  const port = Number(new URL(wire.url).port);
  const came: string[] = [];
  held.signal.addEventListener("abort", () => came.push("told"));
  const { destroy } = Socket.prototype;
  t.mock.method(Socket.prototype, "destroy", function (this: Socket, error?: Error) {
    if (this.remotePort === port) came.push("closed");
    return destroy.call(this, error);
  });
  wire.cut();
  assert.equal(await loss(held), "silence");
  assert.deepEqual(came, ["told", "closed"]);
});

test("a wait outlives a restart of the server", async () => {
  await using server = await Server.start();
  await using locks = new Locks(server.url);
  await using rival = new Locks(server.url);
  await rival.lock("a").acquire();
  const waiting = locks.lock("a").acquire();
  await server.waiting(1);
  await server.stop();
  await server.start();
  await (await waiting).release();
});
