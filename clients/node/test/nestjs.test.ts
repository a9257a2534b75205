/** `tether-locks/nestjs`, in applications of NestJS. */

import "reflect-metadata";
import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Injectable, Module, SetMetadata } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Locks } from "../src/index.js";
import { Singleton } from "../src/nestjs.js";
import { DevServer } from "../src/testing.js";

let url = "";

const steps = new EventEmitter();

async function write(day: string): Promise<string> {
  const end = once(steps, "end");
  steps.emit("begin");
  await end;
  return `report of ${day}`;
}

@Injectable()
class Reports {
  @Singleton("nightly") // While any instance of the program runs it, a call gives undefined at once.
  async nightly(day: string): Promise<string> {
    return write(day);
  }
}

@Module({ providers: [Reports, { provide: Locks, useFactory: () => new Locks(url) }] })
class App {}

test("a method runs once at a time in all instances", async () => {
  await using server = await DevServer.start();
  url = server.url;
  const apps = await Promise.all([1, 2].map(() => NestFactory.createApplicationContext(App, { logger: false })));
  const [one, other] = apps.map((app) => app.get(Reports)) as [Reports, Reports];
  for (const day of ["monday", "tuesday"]) {
    const begin = once(steps, "begin");
    const report = one.nightly(day);
    await begin;
    assert.equal(await other.nightly(day), undefined);
    steps.emit("end");
    assert.equal(await report, `report of ${day}`);
  }
  for (const app of apps) {
    await app.get(Locks).close();
    await app.close();
  }
});

test("what other decorators say of a method stays", () => {
  class Jobs {
    @SetMetadata("above", 1)
    @Singleton("job")
    @SetMetadata("below", 2)
    run(): void {}
  }
  const said = ["above", "below"].map((key) => Reflect.getMetadata(key, Jobs.prototype.run));
  assert.deepEqual(said, [1, 2]);
});

test("README.md shows what this test runs", () => {
  const [readme = "", here = ""] = ["../../README.md", "../../test/nestjs.test.ts"].map((file) =>
    readFileSync(new URL(file, import.meta.url), "utf8"),
  );
  const block = /@Injectable\(\)\n.*?(?=```)/s.exec(readme)?.[0];
  assert.ok(block && here.includes(block));
});
