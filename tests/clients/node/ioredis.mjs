import { Redis } from 'ioredis';
import { host, port, serve } from './adapter.mjs';

const shared = new Redis(port, host);
shared.on('error', () => {});

async function holder() {
  const me = new Redis(port, host, { retryStrategy: null, socketTimeout: 10_000 });
  me.on('error', () => {}); // its commands fail, which says it all
  const token = await me.call('LOCK.ACQUIRE', 'report', 'WAIT', 6000);
  return { call: (...words) => me.call(...words), token };
}

await serve('ioredis', (...words) => shared.call(...words), holder);
