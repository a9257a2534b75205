import { createClient } from 'redis';
import { host, port, protocol, serve } from './adapter.mjs';

const shared = createClient({ socket: { host, port }, RESP: protocol });
shared.on('error', () => {});
await shared.connect();

async function holder() {
  const me = createClient({ socket: { host, port, reconnectStrategy: false, socketTimeout: 10_000 } });
  me.on('error', () => {}); // its commands fail, which says it all
  await me.connect();
  const token = await me.sendCommand(['LOCK.ACQUIRE', 'report', 'WAIT', '6000']);
  return { call: (...words) => me.sendCommand(words), token };
}

await serve('redis', (...words) => shared.sendCommand(words), holder);
