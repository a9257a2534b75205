/** What the core does beyond the vectors. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Core } from "../src/core.js";
import type { Terms } from "../src/request.js";
import { ErrorReply, Push } from "../src/resp.js";

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
const idOf = (event: object) => "id" in event && event.id;
const at = (core: Core, now: number) => core.tick({ mono: now, boot: now });

test("a task asks again when the server has taken back what it released (P-OWNER-4)", () => {
  const core = connected();
  const ask = (id: string, more: Partial<Terms> = {}) => core.acquire(id, { keys: ["k"], task: "t", ...more });
  ask("held");
  core.recv(7);
  core.release("held");
  ask("overtakes");
  assert.deepEqual(words(core), ["LOCK.ACQUIRE", "LOCK.RELEASE", "LOCK.ACQUIRE"]);
  core.recv(new ErrorReply("BUSY no"));
  core.recv(new ErrorReply("DEADLOCK a task waits for itself"));
  assert.deepEqual(told(core), ["granted", "BUSY"]);
  ask("impatient", { wait: 0 });
  assert.deepEqual(told(core), ["TAKEN"]);
  ask("of another task", { wait: 0, task: "u" });
  assert.deepEqual(words(core), ["LOCK.ACQUIRE"]);
  core.recv(null);
  at(core, 20);
  assert.deepEqual(words(core), ["LOCK.RELEASE"]);
  core.recv(0);
  assert.deepEqual(words(core), ["LOCK.ACQUIRE"]);
  core.recv(8);
  core.release("overtakes");
  core.recv(0);

  ask("kept", { atLeast: 1000 });
  core.recv(9);
  core.release("kept");
  core.recv(1);
  ask("next");
  assert.deepEqual(words(core), ["LOCK.RELEASE", "LOCK.ACQUIRE", "LOCK.EXTEND"]);
  at(core, 1100);
  assert.deepEqual(words(core), ["LOCK.ACQUIRE"]);
});

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

test("a candidate that is lost by a refusal of LOCK.MINE stands again when it is given back, and may be given up before", () => {
  for (const isGivenUp of [false, true]) {
    const core = connected();
    core.acquire("a", { keys: ["k"], temporary: "here", elect: true });
    core.recv(7);
    core.recv(new Push(["settp", "renamed", "LOST deleted "]));
    core.recv(new ErrorReply("NOPERM no"));
    assert.deepEqual(words(core), ["SETTP", "LOCK.MINE", "DELTP"]);
    if (isGivenUp) core.giveUp("a");
    core.recv(1);
    assert.deepEqual(words(core), isGivenUp ? [] : ["SETTP"]);
    assert.deepEqual(told(core), ["granted", "lost", ...(isGivenUp ? ["over"] : [])]);
  }
});

test("MOVED to the release of what nobody was granted, or lost with its slot, settles it (P-REL-8)", () => {
  for (const isLost of [false, true]) {
    const core = connected();
    core.acquire("a", { keys: ["k"] });
    core.giveUp("a");
    core.recv(isLost ? 7 : new ErrorReply("MOVED 7629 host:2"));
    if (isLost) core.recv(new Push(["lock", "k", "LOST moved .1"]));
    core.recv(new ErrorReply("MOVED 7629 host:2"));
    assert.deepEqual(told(core), ["over"]);
    assert.deepEqual(core.orders, []); // To leave would be to resume the session without end.
    assert.equal(core.isWanted, false);
  }
});

test("a loss before a grant that never came is not that of the next grant", () => {
  const core = connected();
  core.acquire("a", { keys: ["k"] });
  core.recv(new Push(["lock", "k", "LOST deleted .1"]));
  core.broke();
  at(core, 1000);
  core.connected();
  core.recv(1);
  core.recv(["0", []]);
  core.recv(9);
  assert.deepEqual(told(core), ["granted"]);
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

test("who comes while the members are read anew hears of all of them, also of those that others know", () => {
  const core = connected();
  core.presence("first", "m:");
  core.recv(["", [["m:1", 7, "v"]]]);
  core.recv(new Push(["watchtp", "m:", "END swapped"]));
  assert.deepEqual(core.events.splice(0).map(idOf), ["first"]);
  core.presence("late", "m:");
  core.recv(["", [["m:1", 7, "v"]]]);
  assert.deepEqual(core.events.splice(0).map(idOf), ["late"]);
});
