/** The engine in a Worker: see remote.ts. */

import { workerData } from "node:worker_threads";
import { clocks } from "./clock.js";
import { type Call, Engine } from "./engine.js";
import type { Event } from "./events.js";
import { finderOf } from "./servers.js";
import { ALIVE, type Message, VOUCHED_BOOT, VOUCHED_MONO, VOUCHED_MS, type WorkerData } from "./worker-data.js";

const { config, port, shared, maxBlock } = workerData as WorkerData;
const fields = new Float64Array(shared);
const isProgramAlive = () => clocks().mono - (fields[ALIVE] as number) < maxBlock;
let calls = 0;

const say = (what: Pick<Message, "event" | "lease">, isClosed = false) => {
  const message: Message = { ...what, isWanted: engine.isWanted, calls, isClosed };
  port.postMessage(message);
};
const tell = (event: Event) => {
  const isOfLease = event.kind === "granted" || event.kind === "extended";
  say({ event, lease: isOfLease ? engine.leaseOf(event.id) : undefined });
};
const engine = new Engine({ ...config.settings, isProgramAlive }, finderOf(config), tell);
engine.onVouched = ({ from, ms }) => {
  fields[VOUCHED_MONO] = from.mono;
  fields[VOUCHED_BOOT] = from.boot;
  fields[VOUCHED_MS] = ms;
};
engine.onIdle = () => say({}); // There are releases of which nobody is told.

port.on("message", async (call: Call) => {
  calls += 1;
  if (call.call !== "close") {
    engine.do(call);
    // A call that changes nothing.
    if (!engine.isWanted) say({});
    return;
  }
  await engine.close();
  say({}, true);
  port.close();
});
