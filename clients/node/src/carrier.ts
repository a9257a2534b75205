import { Cluster } from "./cluster.js";
import type { Settings } from "./core.js";
import { type Carrier, Engine } from "./engine.js";
import type { Event } from "./events.js";
import { Remote } from "./remote.js";
import type { Bytes } from "./resp.js";
import { finderOf, type Servers } from "./servers.js";

/** All that a carrier is made of; a Worker can be given it. */
export interface Config {
  readonly settings: Settings;
  readonly servers: Servers;
  /** By which LOCK.INFO and `tether who` show the connection. */
  readonly name: Bytes;
  /** The connection is in a Worker, for a thread that may stand still for so many milliseconds. */
  readonly maxBlock: number | undefined;
}

/** What carries the calls out: of a cluster, one for each node. */
export function carrierOf(config: Config, tell: (event: Event) => void): Carrier {
  if (config.settings.cluster) return new Cluster(config, carrierOfNode, tell);
  return carrierOfNode(config, tell);
}

function carrierOfNode(config: Config, tell: (event: Event) => void): Carrier {
  if (config.maxBlock !== undefined) return new Remote(config, config.maxBlock, tell);
  return new Engine(config.settings, finderOf(config), tell);
}
