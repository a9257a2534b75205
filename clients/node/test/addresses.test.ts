/** Replicas, Sentinels, TLS and clusters. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer as createTcpServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { createServer, type TLSSocket } from "node:tls";
import { promisify } from "node:util";
import { type Address, nameOf, parse } from "../src/address.js";
import type { Config } from "../src/carrier.js";
import { Cluster } from "../src/cluster.js";
import type { Call, Carrier } from "../src/engine.js";
import { type Event, failure } from "../src/events.js";
import { CrossSlot, Locks, Refused, Unfit } from "../src/index.js";
import { NoLine } from "../src/line.js";
import { configOf } from "../src/options.js";
import { bytes } from "../src/resp.js";
import { finderOf } from "../src/servers.js";
import { slot } from "../src/slot.js";
import { eventually, freePort, Server } from "./servers.js";

async function replicaOf(master: Server): Promise<Server> {
  const replica = await Server.start("--replicaof", `127.0.0.1 ${master.port}`);
  await eventually("the replica is in step", async () => {
    const info = String(await replica.ask("INFO", "replication"));
    return info.includes("master_link_status:up");
  });
  return replica;
}

test("Sentinels name the master, also after a failover, and one that is gone does not matter", async () => {
  await using one = await Server.start();
  await using two = await replicaOf(one);
  const folder = mkdtempSync(join(tmpdir(), "tether-node-"));
  const sentinels: Server[] = [];
  try {
    for (const number of [0, 1, 2]) {
      const port = await freePort();
      const file = join(folder, `sentinel-${number}.conf`);
      const lines = [`port ${port}`, `dir ${folder}`, `sentinel monitor mine 127.0.0.1 ${one.port} 2`];
      writeFileSync(file, [...lines, "sentinel down-after-milliseconds mine 500", ""].join("\n"));
      sentinels.push(await Server.sentinel(port, file));
    }
    const urls = sentinels.map(({ url }) => url);
    await eventually("the Sentinels know the replica and one another", async () => {
      const states = await Promise.all(sentinels.map((each) => each.ask("SENTINEL", "MASTER", "mine")));
      return states.every((state) => {
        const fields = state instanceof Map ? state : new Map(pairs(state as string[]));
        return fields.get("num-slaves") === "1" && fields.get("num-other-sentinels") === "2";
      });
    });
    await using locks = new Locks("redis://mine", { sentinels: urls, grace: 60_000 });
    const held = await locks.lock("a").acquire();
    assert.equal(await one.ask("EXISTS", "a"), 1);
    await eventually("the replica has the grant", async () => (await two.ask("EXISTS", "a")) === 1);
    await sentinels[2]?.ask("SENTINEL", "FAILOVER", "mine");
    await eventually("the other one is the master", async () => {
      // Sentinels kill the connections of a server that they promote.
      return String(await two.ask("INFO", "replication").catch(() => "")).includes("role:master");
    });
    await sentinels[0]?.stop();
    await held.checkServer();
    assert.equal(held.lost, undefined);
    await held.release();
    await two.free();
  } finally {
    for (const sentinel of sentinels) await sentinel[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  }
});

function* pairs(flat: readonly string[]): Generator<[string, string]> {
  for (let at = 0; at < flat.length; at += 2) yield [flat[at] as string, flat[at + 1] as string];
}

test("TLS verifies the chain and the host name", async () => {
  await using server = await Server.start();
  const folder = mkdtempSync(join(tmpdir(), "tether-node-"));
  const make = (name: string) => {
    const files = ["-keyout", join(folder, `${name}.key`), "-out", join(folder, `${name}.pem`)];
    const what = ["-subj", `/CN=${name}`, "-addext", `subjectAltName=DNS:${name}`];
    execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", ...files, ...what], {
      stdio: "ignore",
    });
    return { key: readFileSync(join(folder, `${name}.key`)), cert: readFileSync(join(folder, `${name}.pem`)) };
  };
  let attempts = 0;
  const front = async (name: string) => {
    const certificate = make(name);
    const listener = createServer(certificate, (near: TLSSocket) => {
      const far = connect(server.port, "127.0.0.1");
      near.pipe(far).pipe(near);
      near.on("error", () => far.destroy());
      far.on("error", () => near.destroy());
    });
    listener.on("connection", () => {
      attempts += 1;
    });
    await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
    const address = listener.address();
    const port = typeof address === "object" && address ? address.port : 0;
    return { url: `rediss://localhost:${port}`, ca: certificate.cert, listener };
  };
  const right = await front("localhost");
  const wrong = await front("elsewhere");
  try {
    await using locks = new Locks(right.url, { tls: { ca: right.ca } });
    await (await locks.lock("a").acquire()).release();
    attempts = 0;
    for (const tls of [{ ca: wrong.ca }, {}]) {
      await using refused = new Locks(wrong.url, { tls });
      await assert.rejects(refused.lock("a").acquire(), (error) => error instanceof Refused && error.code === "TLS");
    }
    assert.equal(attempts, 2); // No attempt is repeated.
    await using careless = new Locks(wrong.url, { tls: { rejectUnauthorized: false } });
    await (await careless.lock("a").acquire()).release();
  } finally {
    right.listener.close();
    wrong.listener.close();
    rmSync(folder, { recursive: true });
  }
});

/** Keys of these slots. */
function* keysOf(isIn: (slot: number) => boolean): Generator<string, never> {
  for (let number = 0; ; number += 1) if (isIn(slot(bytes(`k${number}`)))) yield `k${number}`;
}

function next(keys: Generator<string, never>): string {
  return keys.next().value;
}

/** A key of this half of the slots. */
function keyIn(isUpper: boolean): string {
  return next(keysOf((slot) => slot >= 8192 === isUpper));
}

async function cluster(): Promise<[Server, Server]> {
  const nodes = (await Promise.all([0, 1].map(() => Server.start("--cluster-enabled", "yes")))) as [Server, Server];
  await nodes[0].ask("CLUSTER", "ADDSLOTSRANGE", 0, 8191);
  await nodes[1].ask("CLUSTER", "ADDSLOTSRANGE", 8192, 16383);
  await nodes[1].ask("CLUSTER", "SET-CONFIG-EPOCH", 2);
  await nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", nodes[1].port);
  for (const node of nodes) {
    await eventually("the cluster is up", async () => {
      const info = String(await node.ask("CLUSTER", "INFO"));
      return info.includes("cluster_state:ok") && info.includes("cluster_known_nodes:2");
    });
  }
  return nodes;
}

test("the fence is that of the connection, also where a list has Unix sockets and others (P-FENCE-1)", async () => {
  const folder = mkdtempSync(join(tmpdir(), "tether-node-"));
  const path = join(folder, "socket");
  const server = await Server.start("--tether.peer-timeout", "0", "--unixsocket", path);
  try {
    await using tcp = new Locks([`unix://${folder}/nobody`, server.url]);
    await assert.rejects(tcp.lock("a").acquire(), Unfit);
    await using unix = new Locks([`redis://127.0.0.1:${await freePort()}`, `unix://${path}`]);
    await (await unix.lock("a").acquire()).release();
  } finally {
    await server[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  }
});

test("a node that says nothing keeps no connection when another one has said who has the slot", async () => {
  const listen = async (greet: (socket: Socket) => void) => {
    const listener = createTcpServer(greet);
    await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
    const address = listener.address();
    return { listener, port: typeof address === "object" && address ? address.port : 0 };
  };
  const [gone, nobody] = [await freePort(), await freePort()];
  const silent = await listen((socket) => socket.resume());
  const knows = await listen((socket) => {
    socket.end(`*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$-1\r\n:${nobody}\r\n`); // The host is its own.
  });
  try {
    const nodes = [gone, silent.port, knows.port].map((port) => parse(`redis://127.0.0.1:${port}`));
    const finder = finderOf(configOf([`redis://127.0.0.1:${gone}`], { cluster: true }));
    finder.meet?.(nodes);
    await assert.rejects(finder.find(60_000, 1), (error: Error) => {
      return error instanceof NoLine && error.message.includes(`:${nobody}`);
    });
    await eventually("the silent one is left", async () => {
      return (await promisify(silent.listener.getConnections.bind(silent.listener))()) === 0;
    });
  } finally {
    silent.listener.close();
    knows.listener.close();
  }
});

test("who has given up is sent to no other node of a cluster (P-ACQ-10)", () => {
  const done: Call[] = [];
  const tells: ((event: Event) => void)[] = [];
  const told: Event[] = [];
  const config = configOf(["redis://127.0.0.1:7000"], { cluster: true });
  const make = (_: Config, tell: (event: Event) => void): Carrier => {
    tells.push(tell);
    return { do: (call) => void done.push(call), check: () => undefined, close: async () => {} };
  };
  const nodes = new Cluster(config, make, (event) => told.push(event));
  nodes.do({ call: "acquire", id: 1, terms: { keys: ["k"] } });
  nodes.do({ call: "giveUp", id: 1 });
  // The node refused it before it heard that.
  tells[0]?.({ kind: "refused", id: 1, ...failure("refused", "MOVED 12706 127.0.0.1:7001", "MOVED") });
  assert.deepEqual(
    done.map(({ call }) => call),
    ["meet", "acquire", "giveUp"],
  );
  // Nothing is kept of a candidate that has left.
  nodes.do({ call: "acquire", id: 2, terms: { keys: ["k"], temporary: "ann", elect: true } });
  nodes.do({ call: "giveUp", id: 2 });
  for (const kind of ["released", "over"] as const) tells[0]?.({ kind, id: 2 });
  assert.deepEqual(
    told.map(({ kind }) => kind),
    ["refused", "released"],
  );
});

test("a node whose connection had to go elsewhere is not the one that MOVED names (P-CLUSTER-3)", () => {
  const nodes: { url: string; done: string[]; tell: (event: Event) => void }[] = [];
  const told: Event[] = [];
  const make = ({ servers }: Config, tell: (event: Event) => void): Carrier => {
    const done: string[] = [];
    nodes.push({ url: servers.addresses.map(({ endpoint }) => nameOf(endpoint)).join(), done, tell });
    const know = (call: Call) => (call.call === "meet" ? ` ${call.nodes.map(({ endpoint }) => nameOf(endpoint))}` : "");
    return { do: (call) => void done.push(call.call + know(call)), check: () => undefined, close: async () => {} };
  };
  const at = (port: number) => parse(`redis://10.0.0.1:${port}`);
  const [a, b, c] = [1, 2, 3].map(at) as [Address, Address, Address];
  const cluster = new Cluster(configOf(["redis://10.0.0.1:1"], { cluster: true }), make, (event) => told.push(event));
  const moved = (id: number, to: string) =>
    ({ kind: "refused", id, ...failure("refused", `MOVED ${slot("k")} ${to}`, "MOVED") }) as const;
  cluster.do({ call: "acquire", id: 1, terms: { keys: ["k"] } });
  // What was to lead to the first one had to go to the third one, which refers to the first one again.
  nodes[0]?.tell({ kind: "met", at: c, nodes: [a, b, c] });
  nodes[0]?.tell(moved(1, "10.0.0.1:1"));
  assert.deepEqual(
    nodes.map(({ url }) => url),
    ["10.0.0.1:1", "10.0.0.1:1"],
  );
  nodes[1]?.tell({ kind: "granted", id: 1, token: 7 });
  // The third one is where that connection is; of a node that MOVED alone names, all connections hear.
  cluster.do({ call: "acquire", id: 2, terms: { keys: ["k"] } });
  nodes[1]?.tell(moved(2, "10.0.0.1:3"));
  nodes[0]?.tell(moved(2, "10.0.0.1:4"));
  assert.deepEqual(told, [{ kind: "granted", id: 1, token: 7 }]);
  const all = "10.0.0.1:1,10.0.0.1:2,10.0.0.1:3";
  assert.deepEqual(
    nodes.map(({ done }) => done),
    [
      ["meet 10.0.0.1:1", "acquire", `meet ${all}`, "acquire", `meet ${all},10.0.0.1:4`],
      [`meet ${all}`, "acquire", "acquire", `meet ${all},10.0.0.1:4`],
      [`meet ${all},10.0.0.1:4`, "acquire"],
    ],
  );
});

test("a cluster: each request goes where its slot is, and a slot that moves loses its locks", async () => {
  const [one, two] = await cluster();
  try {
    await using locks = new Locks(one.url, { cluster: true, grace: 60_000 });
    const [lower, upper] = [keyIn(false), keyIn(true)];
    const near = await locks.lock(lower).acquire();
    const far = await locks.lock(upper).acquire();
    assert.equal(await one.ask("EXISTS", lower), 1);
    assert.equal(await two.ask("EXISTS", upper), 1);
    await assert.rejects(locks.all([lower, upper]).acquire(), CrossSlot);
    const watch = locks.watch(upper);
    assert.deepEqual((await watch.next()).value, { key: upper, is: "exists" });
    await far.checkServer();
    await far.release();
    assert.deepEqual((await watch.next()).value, { key: upper, is: "deleted" });
    await watch.return();

    // The slot of the lower key is on its way: a key that is not there is asked for with ASKING.
    const number = slot(bytes(lower));
    await near.release();
    const [from, to] = [String(await one.ask("CLUSTER", "MYID")), String(await two.ask("CLUSTER", "MYID"))];
    await two.ask("CLUSTER", "SETSLOT", number, "IMPORTING", from);
    await one.ask("CLUSTER", "SETSLOT", number, "MIGRATING", to);
    const asked = await locks.lock(lower).acquire();
    await asked.release();
    await two.free();

    await one.ask("CLUSTER", "SETSLOT", number, "STABLE");
    const held = await locks.lock(lower).acquire();
    const waiting = locks.lock(lower).acquire();
    await one.waiting(1);
    // The other node hears of it from this one: told directly, it refuses while it has a key in the slot.
    await two.ask("CLUSTER", "SETSLOT", number, "NODE", to);
    await eventually("the loss is told", async () => held.lost !== undefined);
    assert.equal(held.lost, "moved");
    const again = await waiting; // It goes on at the new node.
    await again.checkServer();
    await again.release();
    await two.free();
  } finally {
    await one[Symbol.asyncDispose]();
    await two[Symbol.asyncDispose]();
  }
});

test("a failover of the node that the client was opened at loses no lock, and its slots are found (P-CLUSTER-6)", async () => {
  const start = async () => {
    const settings = ["--cluster-port", String(await freePort()), "--cluster-replica-validity-factor", "0"];
    return Server.start("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", ...settings);
  };
  const nodes = await Promise.all([0, 1, 2, 3].map(start));
  const [one, two, three, replica] = nodes as [Server, Server, Server, Server];
  const masters = [one, two, three];
  try {
    for (const [at, node] of masters.entries()) {
      await node.ask("CLUSTER", "SET-CONFIG-EPOCH", at + 1);
      await node.ask("CLUSTER", "ADDSLOTSRANGE", at * 5461, at === 2 ? 16383 : (at + 1) * 5461 - 1);
    }
    const bus = (await one.ask("CONFIG", "GET", "cluster-port")) as string[];
    for (const node of nodes.slice(1)) await node.ask("CLUSTER", "MEET", "127.0.0.1", one.port, bus[1] as string);
    const id = String(await one.ask("CLUSTER", "MYID"));
    await eventually("the replica has a master", async () => {
      return (await replica.ask("CLUSTER", "REPLICATE", id).catch(() => "")) === "OK";
    });
    const own = String(await replica.ask("CLUSTER", "MYID"));
    for (const node of nodes) {
      await eventually("all nodes agree", async () => {
        const known = String(await node.ask("CLUSTER", "NODES"));
        const state = String(await node.ask("CLUSTER", "INFO"));
        return state.includes("cluster_state:ok") && new RegExp(`${own} .*slave ${id}`).test(known);
      });
    }
    const keys = (at: number) => keysOf((slot) => Math.min(2, Math.floor(slot / 5461)) === at);
    const [ours, theirs] = [keys(0), keys(1)];
    const clients = [{}, { worker: true }].map(
      (options) => new Locks(`redis://localhost:${one.port}`, { cluster: true, grace: 60_000, ...options }),
    );
    const held = await Promise.all(clients.map((locks) => locks.lock(next(ours)).acquire()));
    await eventually("the replica has the grants", async () => {
      return (await replica.ask("DBSIZE")) === 2;
    });
    await one.stop();
    for (const [at, locks] of clients.entries()) {
      await held[at]?.checkServer(); // It goes on at the promoted replica.
      assert.equal(held[at]?.lost, undefined);
      for (const key of [next(ours), next(theirs)]) await (await locks.lock(key).acquire({ wait: 20_000 })).release();
      await held[at]?.release();
      await locks.close();
    }
  } finally {
    for (const node of nodes) await node[Symbol.asyncDispose]();
  }
});
