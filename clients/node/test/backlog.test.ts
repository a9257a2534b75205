/** What a slow reader has not taken. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Backlog } from "../src/backlog.js";

interface Change {
  readonly key: number;
  readonly isGone: boolean;
}

const changes = () =>
  new Backlog<Change>(
    ({ key }) => String(key),
    (read, last) => (last.isGone && read === undefined ? undefined : last),
    ({ isGone }) => isGone,
  );

test("keys that come and go leave nothing with a reader that is always one behind", async () => {
  const backlog = changes();
  const all: WeakRef<Change>[] = [];
  backlog.push({ key: 0, isGone: false });
  for (let key = 1; key <= 5000; key += 1) {
    for (const isGone of [false, true]) {
      const change = { key, isGone };
      all.push(new WeakRef(change));
      backlog.push(change);
      backlog.shift();
    }
  }
  await new Promise((resolve) => setImmediate(resolve)); // Until then all that a WeakRef names is kept.
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
  const kept = all.filter((each) => each.deref() !== undefined).length;
  assert.ok(kept <= 1100, `${kept} are kept`);
  assert.equal(backlog.size, 1);
});

test("there are 1,024 events at most, and one for each key (P-WATCH-5)", () => {
  const backlog = changes();
  for (let key = 0; key < 3000; key += 1) backlog.push({ key, isGone: false });
  for (let turn = 0; turn < 5000; turn += 1) {
    backlog.push({ key: 1, isGone: false });
    assert.ok(backlog.size <= 3000 + 1024, `${backlog.size} events`);
  }
});
