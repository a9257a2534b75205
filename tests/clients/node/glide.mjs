import { GlideClient, Logger, ProtocolVersion } from '@valkey/valkey-glide';
import { host, port, protocol, serve } from './adapter.mjs';

Logger.setLoggerConfig('error'); // it warns on standard output
const addresses = [{ host, port }];
const shared = await GlideClient.createClient({
  addresses,
  protocol: protocol === 3 ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2,
});

async function holder() {
  const me = await GlideClient.createClient({ addresses, requestTimeout: 10_000 });
  const token = await me.customCommand(['LOCK.ACQUIRE', 'report', 'WAIT', '6000']);
  return { call: (...words) => me.customCommand(words), token };
}

await serve('@valkey/valkey-glide', (...words) => shared.customCommand(words), holder);
