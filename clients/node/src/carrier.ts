import type { Settings } from "./core.js";
import { type Carrier, Engine } from "./engine.js";
import type { Event } from "./events.js";
import type { Bytes } from "./resp.js";
import { find, type Servers } from "./servers.js";

/** All that a carrier is made of; a Worker can be given it. */
export interface Config {
  readonly settings: Settings;
  readonly servers: Servers;
  /** By which LOCK.INFO and `tether who` show the connection. */
  readonly name: Bytes;
}

/** What carries the calls out in this thread. */
export function localCarrier(config: Config, tell: (event: Event) => void): Carrier {
  return new Engine(config.settings, (within) => find(config.servers, config.name, within), tell);
}
