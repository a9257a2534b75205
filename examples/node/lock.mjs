// A lock that passes from hand to hand, with ioredis.
//
//     npm install --prefix examples/node
//     node examples/node/lock.mjs [host [port]]        (127.0.0.1 and 6379 unless told)
//
// Ann and Bob want the same lock. Each asks for it once and is answered when it is theirs: Bob when Ann gives it
// back, and Ann, the second time, when Bob's connection is killed. Bob does not know that yet and goes on; his old
// token stops him.
//
// The end is 0 when all of that happened, 1 when not. Nobody waits for ever. Needs Node 16 and ioredis 5.4, or later.

import { Redis } from 'ioredis';
import { setTimeout as sleep } from 'node:timers/promises';

const [host = '127.0.0.1', port = '6379'] = process.argv.slice(2);
const WAIT = 5000; // milliseconds that a worker is ready to queue for the lock
const PATIENCE = 60_000; // milliseconds for the whole story

// ---- what a program with a lock needs ----

// A connection that can hold a lock. ioredis has no pool, and tempts to share one connection among all tasks. Each
// worker needs one of its own: to the server, the connection is the worker, and of two tasks on one connection the second
// would be told that it has the lock itself (DEADLOCK). Also, while it waits for a lock, nothing else gets through it.
async function connect() {
  const connection = new Redis(Number(port), host, {
    lazyConnect: true,
    // When a connection breaks, ioredis by itself makes a new one and sends again what was not answered. But the lock
    // went with the old one, and nobody would notice. Now the connection stays closed, all that is asked of it fails,
    // and that means: no lock any more.
    retryStrategy: null,
    // Longer than WAIT: a silence for so long while an answer is due closes the connection, and so the place in the
    // queue goes with it. Not `commandTimeout`: it ends our waiting and leaves the connection as it is, which would be
    // granted the lock later, when nobody expects it.
    socketTimeout: 30_000,
  });
  let reason;
  connection.on('error', (error) => (reason = error)); // without a listener, ioredis prints it
  await connection.connect().catch((error) => {
    throw reason ?? error;
  });
  return connection;
}

// Does the work while it holds the lock. The work is given the fencing token, greater than that of any earlier holder.
async function withLock(connection, key, work) {
  const token = await connection.call('LOCK.ACQUIRE', key, 'WAIT', WAIT);
  if (token === null) throw new Error(`${key} was not free within ${WAIT} ms`);
  try {
    return await work(token);
  } finally {
    // Fails when the lock was lost meanwhile.
    await connection.call('LOCK.RELEASE', key);
  }
}

// What the lock protects; think of a row in a database. It remembers the greatest token and refuses older ones, since
// no lock can stop a worker that has lost it and has not heard.
const record = {
  newest: 0,
  write(token) {
    if (token < this.newest) return `refused, ${this.newest} came after it`;
    this.newest = token;
    return 'accepted';
  },
};

// ---- the story ----

// One turn of a worker: queue for the lock, write when told to go on, give the lock back.
function turn(name, connection) {
  const hasIt = gate();
  const mayGoOn = gate();
  const over = withLock(connection, 'lock', async (token) => {
    tell(`${name}: LOCK.ACQUIRE lock WAIT ${WAIT} -> token ${token}, it is mine`);
    hasIt.open();
    await mayGoOn.opened;
    tell(`${name}: writes with token ${token} -> ${record.write(token)}`);
    tell(`${name}: LOCK.RELEASE lock`);
  });
  over.catch(() => {}); // a failure is for whoever calls one of these:
  return {
    untilItHasTheLock: () => Promise.race([hasIt.opened, over]),
    finish() {
      mayGoOn.open();
      return over;
    },
  };
}

function gate() {
  let open;
  const opened = new Promise((resolve) => (open = resolve));
  return { open, opened };
}

async function story() {
  const [operator, ann, bob] = [await connect(), await connect(), await connect()];
  const bobsId = await bob.client('ID');

  const waits = async (name) => {
    for (;;) {
      const info = (await operator.call('LOCK.INFO', 'lock')) ?? []; // a map, as a list of names and values
      if (info[info.indexOf('waiters') + 1]?.length === 1) break;
      await sleep(5);
    }
    tell(`${name}: LOCK.ACQUIRE lock WAIT ${WAIT} -> must wait`);
  };

  let annsTurn = turn('ann', ann);
  await annsTurn.untilItHasTheLock();
  const bobsTurn = turn('bob', bob);
  await waits('bob');

  // Handed over because it is given back ...
  await annsTurn.finish();
  await bobsTurn.untilItHasTheLock();
  annsTurn = turn('ann', ann);
  await waits('ann');

  // ... and because its holder's connection ends.
  tell("Bob's connection is killed. He has not noticed.");
  await operator.client('KILL', 'ID', bobsId);
  await annsTurn.untilItHasTheLock();
  await annsTurn.finish();
  const failure = await bobsTurn.finish().then(() => null, (error) => error);
  if (failure === null) throw new Error('Bob could give back a lock that he had lost');
  if (bob.status !== 'end') throw failure;
  tell('bob: the connection is gone, and the lock with it');

  if (await operator.exists('lock')) throw new Error('the lock is still there after its last holder');
  tell('Nobody holds the lock. The end.');
}

function tell(line) {
  console.log(line);
}

function fail(failure) {
  tell(`The story fails: ${failure.message}`);
  process.exit(1);
}

setTimeout(() => fail(new Error('somebody did not come in time')), PATIENCE);
await story().catch(fail);
process.exit(0);
