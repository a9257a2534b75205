/** Runs the vectors of clients/protocol against the core. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { Core, type Verdict } from "../src/core.js";
import { type Event, failure } from "../src/events.js";
import type { Clocks } from "../src/request.js";
import { type Bytes, bytes, ErrorReply, type Frame, Push, text } from "../src/resp.js";

const FOLDER = new URL("../../../protocol/vectors/", import.meta.url);
const LEVELS = ["L1", "L2", "L3", "CLUSTER"];

// biome-ignore lint/suspicious/noExplicitAny: a vector is what its schema says.
type Json = any;

const read = (name: string): Json => JSON.parse(readFileSync(new URL(name, FOLDER), "utf8"));
const preludes = read("preludes.json");

function word(of: Json): Bytes {
  return typeof of === "string" ? bytes(of) : Buffer.from(of.hex, "hex").toString("latin1");
}

/** A frame of a vector as the parser gives it. */
function frame(of: Json): Frame {
  if (of === null || typeof of === "number") return of;
  if (Array.isArray(of)) return of.map(frame);
  if (typeof of === "string" || "hex" in of) return word(of);
  if ("simple" in of) return bytes(of.simple);
  if ("error" in of) return new ErrorReply(of.error);
  if ("push" in of) return new Push(of.push.map(frame));
  return new Map(Object.entries(of.map).map(([name, value]) => [bytes(name), frame(value)]));
}

/** What the core says, as a vector has it. */
function said(of: unknown): Json {
  if (typeof of === "string")
    return bytes(text(of)) === of ? text(of) : { hex: Buffer.from(of, "latin1").toString("hex") };
  if (Array.isArray(of)) return of.map(said);
  return of;
}

function event(of: Event): Json {
  if (of.kind === "warning") return { warning: of.warning };
  if (of.kind === "met") return of; // Told by no core.
  const { kind, id, ...rest } = of;
  const fields = Object.entries(rest).filter(
    ([name]) => name !== "text" && !(kind === "releasing" && name === "error"),
  );
  return { [kind]: id, ...Object.fromEntries(fields.map(([name, value]) => [name, said(value)])) };
}

const clocks = (of: Json): Clocks => (typeof of === "number" ? { mono: of, boot: of } : of);

class World {
  readonly #core: Core;
  readonly #told: Event[] = [];
  readonly #isUnix: boolean;
  #ahead = 0;

  constructor(client: Json) {
    const { stop_within: stopWithin, boot_clock: bootClock, random = 0, unix = false, ...others } = client;
    this.#isUnix = unix;
    this.#core = new Core({ mono: 0, boot: 0 }, { ...others, stopWithin, bootClock }, () => random);
  }

  /** Goes there by all that is due on the way; two clocks that differ are a leap. */
  #at(to: Json): void {
    if (typeof to !== "number") {
      this.#ahead = to.boot - to.mono;
      return this.#core.tick(to);
    }
    for (let tick = this.#core.nextTick(); tick !== undefined && tick <= to; tick = this.#core.nextTick()) {
      this.#core.tick({ mono: tick, boot: tick + this.#ahead });
    }
    this.#core.tick({ mono: to, boot: to + this.#ahead });
  }

  #check(id: string): Verdict {
    const told = this.#told.findLast((each) => each.kind === "lost" && each.id === id);
    return this.#core.check(id) ?? (told?.kind === "lost" ? { lost: told.reason } : "released");
  }

  #call({ call, id, ...of }: Json): void {
    const keys = of.keys?.map(word);
    const bytesOf = (name: string) => (of[name] === undefined ? {} : { [name]: word(of[name]) });
    const terms = { ...of, keys, ...bytesOf("temporary"), ...bytesOf("owner"), atLeast: of.at_least, sequence: of.seq };
    const core = this.#core;
    const calls: Record<string, () => void> = {
      open: () => core.open(),
      acquire: () => core.acquire(id, terms),
      release: () => core.release(id),
      give_up: () => core.giveUp(id),
      extend: () => core.extend(id, of.lease),
      watch: () => core.watch(id, keys),
      unwatch: () => core.unwatch(id),
      presence: () => core.presence(id, word(of.prefix)),
      observe: () => core.presence(id, word(of.prefix), true),
      end: () => core.endPresence(id),
      close: () => core.close(),
    };
    calls[call]?.();
  }

  #input(step: Json): void {
    if ("stop" in step) {
      this.#core.now = clocks(step.stop);
      this.#ahead = clocks(step.stop).boot - clocks(step.stop).mono;
    } else if ("at" in step) this.#at(step.at);
    else if ("recv" in step) this.#core.recv(frame(step.recv));
    else if ("connected" in step) this.#core.connected(this.#isUnix);
    else if ("unreached" in step) {
      const { error, code } = step.unreached;
      this.#core.unreached(error && failure(error, "", code));
    } else if ("broke" in step) this.#core.broke();
    else if (step.call !== "check") this.#call(step);
  }

  step(step: Json): void {
    this.#input(step);
    if (step.call === "check") assert.deepEqual(this.#check(step.id), step.gives, "check");
    const { out, events, orders } = this.#core;
    this.#told.push(...events);
    assert.deepEqual(out.splice(0).map(said), step.sent ?? [], "sent");
    assert.deepEqual(events.splice(0).map(event), step.events ?? [], "events");
    const ordered = orders
      .splice(0)
      .map((order) => (order.kind === "leave_after" ? { leave_after: order.ms } : order.kind));
    assert.deepEqual(ordered, step.orders ?? [], "orders");
  }
}

for (const name of readdirSync(FOLDER).sort()) {
  const vectors = name.endsWith(".json") ? read(name) : [];
  if (!Array.isArray(vectors)) continue;
  for (const vector of vectors.filter(({ level }) => LEVELS.includes(level))) {
    test(`vector ${vector.name}`, () => {
      const prelude = preludes[vector.begin];
      const world = new World({ ...prelude.client, ...vector.client });
      for (const [at, step] of [...prelude.steps, ...vector.steps].entries()) {
        try {
          world.step(step);
        } catch (error) {
          throw new Error(`step ${at - prelude.steps.length} ${JSON.stringify(step)}`, { cause: error });
        }
      }
    });
  }
}
