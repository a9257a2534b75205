/** What the core does beyond the vectors. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Core } from "../src/core.js";
import { ErrorReply, Push } from "../src/resp.js";
import { slot } from "../src/slot.js";

/** A core with a session, and what it says. */
function connected(): Core {
  const core = new Core({ mono: 0, boot: 0 }, { grace: 9000 }, () => 0);
  core.open();
  core.connected();
  core.recv(
    new Map<string, string | number>([
      ["role", "master"],
      ["pushes", 1],
      ["peer-timeout-ms", 8000],
    ]),
  );
  core.recv("secret");
  for (const said of [core.out, core.events, core.orders]) said.length = 0;
  return core;
}

const words = (core: Core) => core.out.splice(0).map(([word]) => word);
const told = (core: Core) => core.events.splice(0).map(({ kind, ...rest }) => ("code" in rest ? rest.code : kind));
const at = (core: Core, now: number) => core.tick({ mono: now, boot: now });

test("two extensions at once are both told of, also over a break and by a loss", () => {
  const core = connected();
  core.acquire("a", { keys: ["k"] });
  core.recv(7);
  core.extend("a", 1000);
  core.extend("a", 5000);
  core.recv(1);
  core.broke();
  core.connected();
  core.recv(1);
  core.recv([
    "0",
    [
      new Map<string, string | number>(
        Object.entries({ key: "k", kind: "lock", label: ".1", token: 7, state: "held" }),
      ),
    ],
  ]);
  assert.deepEqual(words(core), [
    ...["LOCK.ACQUIRE", "LOCK.EXTEND", "LOCK.EXTEND", "SESSION.RESUME", "LOCK.MINE"],
    "LOCK.EXTEND",
  ]);
  core.recv(1);
  assert.deepEqual(told(core), ["granted", "extended", "extended"]);
  core.extend("a", 1000);
  core.extend("a", 1000);
  core.recv(new ErrorReply("NOTHELD no"));
  assert.deepEqual(told(core), ["lost", "LOST", "LOST"]);
});

test("the node is found by the slot of what it holds, before all that is wanted of it (P-CLUSTER-6)", () => {
  const core = connected();
  assert.equal(core.slot, undefined);
  core.presence("p", "members:{moved}:");
  assert.equal(core.slot, slot("moved"));
  core.watch("w", ["away"]);
  assert.equal(core.slot, slot("away"));
  core.acquire("a", { keys: ["a"] });
  assert.equal(core.slot, slot("a"));
  core.acquire("b", { keys: ["b"] });
  core.acquire("c", { keys: ["c"] });
  for (const reply of [["", []], "NOEXIST", null, 7]) core.recv(reply);
  assert.equal(core.slot, slot("b"));
  core.release("b", 7);
  core.broke();
  assert.equal(core.slot, slot("b"));
});

test("a candidate whose connection breaks soon stands again after the delay of all attempts (P-RETRY-2)", () => {
  const core = new Core({ mono: 0, boot: 0 }, {}, () => 0);
  core.acquire("a", { keys: ["k"], temporary: "here", elect: true });
  core.connected();
  core.recv(
    new Map<string, string | number>([
      ["role", "master"],
      ["pushes", 1],
      ["peer-timeout-ms", 8000],
    ]),
  );
  core.recv(7);
  core.orders.length = 0;
  core.broke();
  assert.deepEqual(told(core), ["granted", "lost"]);
  assert.deepEqual(core.orders, []);
  at(core, 10);
  assert.deepEqual(core.orders, [{ kind: "connect" }]);
});

test("the release of a term that was lost neither withdraws the candidate nor ends its next term", () => {
  const core = connected();
  core.acquire("a", { keys: ["k"], temporary: "here", elect: true });
  core.recv(7);
  core.recv(new Push(["settp", "k", "LOST deleted "]));
  core.release("a", 7);
  assert.deepEqual(words(core), ["SETTP", "SETTP"]);
  core.recv(8);
  core.release("a", 7);
  assert.deepEqual(words(core), []);
  core.release("a", 8);
  assert.deepEqual(words(core), ["DELTP"]);
  assert.deepEqual(told(core), ["granted", "lost", "granted"]);
});

test("a candidate that is lost by a refusal of LOCK.MINE may be given up before it stands again", () => {
  const core = connected();
  core.acquire("a", { keys: ["k"], temporary: "here", elect: true });
  core.recv(7);
  core.recv(new Push(["settp", "renamed", "LOST deleted "]));
  core.recv(new ErrorReply("NOPERM no"));
  assert.deepEqual(words(core), ["SETTP", "LOCK.MINE", "DELTP"]);
  core.giveUp("a");
  core.recv(1);
  assert.deepEqual(words(core), []);
  assert.deepEqual(told(core), ["granted", "lost", "over"]);
});

test("a loss behind a page of LOCK.MINE is told also if the next page is refused (P-LOSS-4)", () => {
  const core = connected();
  core.acquire("a", { keys: ["k"], owner: "x" });
  core.recv(7);
  core.recv(new Push(["lock", "new", "LOST deleted x"]));
  core.recv(["9", []]);
  core.acquire("b", { keys: ["l"], owner: "x" });
  core.recv(new Push(["lock", "l", "8 x"]));
  core.recv(new Push(["lock", "newer", "LOST expired x"]));
  core.recv(new ErrorReply("NOPERM no"));
  const reasons = core.events.map((event) => ("reason" in event ? event.reason : event.kind));
  assert.deepEqual(reasons, ["granted", "granted", "deleted", "expired"]);
});

test("what was granted after an ASK is released with ASKING, also when the client parts from it (P-CLUSTER-4)", () => {
  const core = connected();
  core.acquire("a", { keys: ["k"], asking: true });
  for (const reply of ["OK", 7]) core.recv(reply);
  core.acquire("b", { keys: ["l"], atLeast: 5000 });
  core.recv(8);
  core.release("b");
  core.recv(1);
  words(core);
  const parting = [["ASKING"], ["LOCK.RELEASE", "k", "OWNER", ".1", "ALL"], ["SESSION.DETACH"]];
  assert.deepEqual(core.farewell(), parting);
  core.close();
  assert.deepEqual(core.out, parting);
});

test("what is kept while its extension is unanswered outlives a close", () => {
  const core = connected();
  core.acquire("a", { keys: ["k"], atLeast: 5000 });
  core.recv(7);
  core.acquire("b", { keys: ["l"] });
  core.recv(8);
  core.release("a");
  core.close();
  assert.deepEqual(words(core), ["LOCK.ACQUIRE", "LOCK.ACQUIRE", "LOCK.EXTEND", "LOCK.RELEASE", "SESSION.DETACH"]);
});

test("the token that the server does not know is a loss, and looked for under another name", () => {
  const core = connected();
  core.acquire("a", { keys: ["k"] });
  core.recv(7);
  core.checkServer("a");
  core.recv(1);
  core.checkServer("a");
  core.recv(new ErrorReply("STALE token 7 is not current: nobody holds the key"));
  assert.deepEqual(words(core), ["LOCK.ACQUIRE", "LOCK.CHECK", "LOCK.CHECK", "LOCK.MINE"]);
  assert.deepEqual(told(core), ["granted", "checked", "lost", "LOST"]);
  core.acquire("b", { keys: ["l"] });
  core.checkServer("b");
  assert.deepEqual(told(core), ["LOST"]); // It waits.
});

test("nothing is vouched for while the program is not seen to live", () => {
  let isAlive = true;
  const core = new Core({ mono: 0, boot: 0 }, { isProgramAlive: () => isAlive }, () => 0);
  core.acquire("a", { keys: ["k"] });
  core.connected();
  core.recv(
    new Map<string, string | number>([
      ["role", "master"],
      ["pushes", 1],
      ["peer-timeout-ms", 8000],
    ]),
  );
  core.recv(7);
  at(core, 1000);
  core.recv("PONG");
  isAlive = false;
  at(core, 2000);
  assert.deepEqual(words(core), ["LOCK.SERVER", "LOCK.ACQUIRE", "PING"]);
  at(core, 4999);
  assert.equal(core.check("a"), "held");
  at(core, 5000);
  assert.deepEqual(told(core), ["granted", "lost"]);
});
