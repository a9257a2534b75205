/** The examples of README.md, run as they stand there. */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { Server } from "./servers.js";

const PACKAGE = fileURLToPath(new URL("../../", import.meta.url));
const README = readFileSync(join(PACKAGE, "README.md"), "utf8");
/** Programs of their own; the others show lines of one. */
const EXAMPLES = [...README.matchAll(/```(?:js|ts)\n(.*?)```/gs)]
  .map(([, example = ""]) => example)
  .filter((example) => example.includes("import "));

describe("examples of README.md", () => {
  let server: Server;
  before(async () => {
    server = await Server.start();
  });
  after(async () => {
    await server[Symbol.asyncDispose]();
  });

  assert.ok(EXAMPLES.length >= 8);
  for (const [number, example] of EXAMPLES.entries()) {
    test(`example ${number} prints what it says, and ends`, async () => {
      // A user's project, with the package as npm would put it there.
      const folder = join(server.folder, `example-${number}`);
      mkdirSync(join(folder, "node_modules"), { recursive: true });
      symlinkSync(PACKAGE, join(folder, "node_modules", "tether-locks"));
      const source = example.replaceAll("redis://localhost:6379", server.url);
      const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ES2022 };
      writeFileSync(join(folder, "example.mjs"), ts.transpile(source, options));
      const child = spawn(process.execPath, [join(folder, "example.mjs")], { stdio: ["ignore", "pipe", "inherit"] });
      let output = "";
      child.stdout.on("data", (data) => {
        output += data;
      });
      const code = await new Promise((resolve) => child.once("close", resolve));
      rmSync(folder, { recursive: true });
      assert.equal(code, 0);
      const said = [...example.matchAll(/\/\/ prints: (.*)/g)].map(([, line]) => `${line}\n`);
      assert.equal(output, said.join(""));
      await server.free();
    });
  }

  test("CommonJS can require it", { skip: !process.features.require_module }, () => {
    const folder = join(server.folder, "common");
    mkdirSync(join(folder, "node_modules"), { recursive: true });
    symlinkSync(PACKAGE, join(folder, "node_modules", "tether-locks"));
    const program = `
      const { Locks } = require("tether-locks");
      const { DevServer } = require("tether-locks/testing");
      console.log(typeof Locks, typeof DevServer);`;
    writeFileSync(join(folder, "program.cjs"), program);
    const output = execFileSync(process.execPath, [join(folder, "program.cjs")], { encoding: "utf8" });
    assert.equal(output, "function function\n");
  });

  test("what a user writes has types", () => {
    const file = join(server.folder, "user.ts");
    const modules = join(server.folder, "node_modules");
    mkdirSync(join(modules, "@types"), { recursive: true });
    symlinkSync(PACKAGE, join(modules, "tether-locks"));
    symlinkSync(join(PACKAGE, "node_modules", "@types", "node"), join(modules, "@types", "node"));
    const problems = (source: string, others: ts.CompilerOptions = {}): string[] => {
      writeFileSync(file, source);
      const options: ts.CompilerOptions = {
        strict: true,
        noEmit: true,
        target: ts.ScriptTarget.ES2022,
        module: ts.ModuleKind.NodeNext,
        moduleResolution: ts.ModuleResolutionKind.NodeNext,
        lib: ["lib.es2023.d.ts", "lib.esnext.disposable.d.ts"],
        types: ["node"],
        typeRoots: [join(modules, "@types")],
        ...others,
      };
      const found = ts.getPreEmitDiagnostics(ts.createProgram([file], options));
      return found.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n"));
    };
    writeFileSync(join(server.folder, "package.json"), '{"type": "module"}');
    const right = `
      import { type Held, Locks, type LocksOptions, type PresenceEvent } from "tether-locks";
      import { DevServer } from "tether-locks/testing";
      const options: LocksOptions = { grace: 1000, worker: { maxBlock: 5 } };
      const locks = new Locks(["redis://one", "redis://two"], options);
      const held: Held = await locks.semaphore("s", { of: 3 }).acquire({ wait: 1, signal: AbortSignal.timeout(1) });
      const given: number = await locks.using("a", (lock: Held) => lock.token);
      const job: (name: string) => Promise<boolean | undefined> = locks.singleton("j", async (name: string) => name === "");
      await using server: DevServer = await DevServer.start({ args: ["--peer-timeout", "2s"] });
      for await (const event of locks.presence("m:")) if (event.is !== "del") console.log(event.token satisfies number);
      export type { PresenceEvent }; export { given, held, job };`;
    assert.deepEqual(problems(right), []);
    const wrong = `import { Locks } from "tether-locks"; new Locks().semaphore("s", { permits: 1 });`;
    assert.match(problems(wrong).join(), /'of'/);
    const old = { module: ts.ModuleKind.CommonJS, moduleResolution: ts.ModuleResolutionKind.Node10 };
    assert.deepEqual(problems(`import { Locks } from "tether-locks"; export const locks = new Locks();`, old), []);
  });
});
