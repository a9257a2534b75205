/** `tether-locks/testing`, with the program that TETHER_PROGRAM names. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Locks, Refused, Unreachable } from "../src/index.js";
import { DevServer } from "../src/testing.js";

/** Why a hold is lost when the lever is pulled. */
async function lossBy(locks: Locks, pull: () => Promise<void>): Promise<string | undefined> {
  const held = await locks.lock("k", { lease: 3_600_000 }).acquire();
  const lost = once(held.signal, "abort");
  await pull();
  await lost;
  return held.lost;
}

test("levers bring about losses and refusals", async () => {
  await using server = await DevServer.start({ args: ["--peer-timeout", "600s"] });
  await using locks = new Locks(server.url);
  assert.equal(await lossBy(locks, () => server.lose("k")), "deleted");
  assert.equal(await lossBy(locks, () => server.lose("k", "evicted")), "evicted");
  assert.equal(await lossBy(locks, () => server.drop()), "connection");
  assert.equal(await lossBy(locks, () => server.advance(3_600_000)), "lease");
  assert.equal(await lossBy(locks, () => server.demote()), "demoted");
  await assert.rejects(locks.lock("k").tryAcquire(), Unreachable);
  await server.promote();
  await server.refuse("NOREPLICAS");
  await assert.rejects(locks.lock("k").tryAcquire(), { code: "NOREPLICAS" });
  await server.accept();
  assert.equal(await locks.using("k", () => server.run("EXISTS", "k")), 1);
  assert.deepEqual(await server.run("KEYS", "*"), []);
  await assert.rejects(server.run("DEV", "NONSENSE"), Refused);
});

test("a fence falls while the server is silent", async () => {
  await using server = await DevServer.start({ args: ["--peer-timeout", "2s"] });
  await using locks = new Locks(server.url);
  assert.equal(await lossBy(locks, () => server.silent(60_000)), "silence");
});

test("what is no devserver is an error", async () => {
  await assert.rejects(DevServer.start({ program: "/there/is/none" }), {
    code: "ENOENT",
    message: /TETHER_PROGRAM/,
  });
  await assert.rejects(DevServer.start({ program: "true" }), /true devserver does not start/);
});

test("a program that says nothing is not waited for, nor is its child, which keeps the pipe open", async () => {
  const folder = await mkdtemp(join(tmpdir(), "tether-"));
  const program = join(folder, "silent");
  await writeFile(program, "#!/bin/sh\nsleep 20\nexit\n", { mode: 0o700 });
  await assert.rejects(DevServer.start({ program }), /silent devserver does not start: no line/);
  await rm(folder, { recursive: true });
});

test("it neither keeps a program alive nor outlives it", async () => {
  const testing = new URL("../src/testing.js", import.meta.url);
  const program = `import { DevServer } from "${testing}"; console.log((await DevServer.start()).port);`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let port = "";
  for await (const part of child.stdout) port += part;
  assert.deepEqual(child.exitCode ?? (await once(child, "exit"))[0], 0);
  await assert.rejects(once(connect(Number(port), "127.0.0.1"), "connect"), { code: "ECONNREFUSED" });
});
