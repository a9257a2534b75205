// What the programs of this folder have in common: they read lines, have their client send what these say, and print the
// replies (see tests/clients/check.py).

import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

export const host = process.argv[2];
export const port = Number(process.argv[3]);
export const protocol = Number(process.argv[4]);

function text(reply) {
  return reply === null ? 'nil' : String(reply);
}

async function answer(call, words) {
  try {
    return text(await call(...words));
  } catch (error) {
    return `! ${error}`.replaceAll('\n', ' ');
  }
}

function versionOf(name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
}

// `call` is the client's way to send a command as it comes; `holder()` makes a connection that can hold a lock: its way to
// send a command, and the token.
export async function serve(name, call, holder) {
  console.log(versionOf(name));
  let held;
  for await (const line of createInterface({ input: process.stdin })) {
    const [verb, ...words] = line.split(' ');
    const numbered = (number) => words.map((word) => word.replaceAll('%', number));
    if (verb === 'width') {
      console.log('8');
    } else if (verb === 'call') {
      console.log(await answer(call, words));
    } else if (verb === 'pool') {
      const all = Array.from({ length: 8 }, (_, number) => answer(call, numbered(number)));
      console.log((await Promise.all(all)).join('\n'));
    } else if (verb === 'lines') {
      const made = async () => {
        const { call, token } = await holder();
        held = call;
        return token;
      };
      console.log(await answer(made, []));
    } else if (verb === 'holder') {
      console.log(await answer(held, words));
    }
  }
  process.exit();
}
