import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, ErrorReply, encode, type Frame, Malformed, Parser, Push, text } from "../src/resp.js";
import { generator } from "./random.js";

const random = generator(40);
const below = (number: number): number => Math.floor(random() * number);

/** A frame, and its bytes. */
function some(depth: number): [Frame, string] {
  const kind = below(depth > 0 ? 10 : 7);
  const size = below(5);
  switch (kind) {
    case 0:
      return [null, ["_\r\n", "$-1\r\n", "*-1\r\n"][below(3)] as string];
    case 1: {
      const number = below(2 ** 32) - 2 ** 31;
      return [number, `:${number}\r\n`];
    }
    case 2:
      return ["OK", "+OK\r\n"];
    case 3:
      return [new ErrorReply("ERR no ü"), `-${bytes("ERR no ü")}\r\n`];
    case 4: {
      const value = Array.from({ length: below(200) }, () => String.fromCharCode(below(256))).join("");
      return [value, `$${value.length}\r\n${value}\r\n`];
    }
    case 5:
      return [true, "#t\r\n"];
    case 6:
      return [1.5, ",1.5\r\n"];
    case 7: {
      const items = Array.from({ length: size }, () => some(depth - 1));
      return [items.map(([item]) => item), `*${size}\r\n${items.map(([, item]) => item).join("")}`];
    }
    case 8: {
      const items = Array.from({ length: size }, () => some(depth - 1));
      const map = new Map(items.map(([item], at) => [`k${at}`, item]));
      return [map, `%${size}\r\n${items.map(([, item], at) => `+k${at}\r\n${item}`).join("")}`];
    }
    default: {
      const [, attribute] = some(0);
      const [item, encoded] = some(depth - 1);
      return [item, `|1\r\n+a\r\n${attribute}${encoded}`];
    }
  }
}

test("however the bytes are cut, the frames are the same", () => {
  for (let round = 0; round < 300; round += 1) {
    const frames = Array.from({ length: 1 + below(8) }, () => {
      const [frame, encoded] = some(3);
      return below(4) > 0 ? ([frame, encoded] as const) : ([new Push([frame]), `>1\r\n${encoded}`] as const);
    });
    const stream = Buffer.from(frames.map(([, encoded]) => encoded).join(""), "latin1");
    const parser = new Parser();
    const found: Frame[] = [];
    const longest = [1, 3, 30, 3000][below(4)] as number;
    for (let at = 0; at < stream.length; ) {
      const size = 1 + below(longest);
      found.push(...parser.push(stream.subarray(at, at + size)));
      at += size;
    }
    assert.deepEqual(
      found,
      frames.map(([frame]) => frame),
    );
  }
});

/** How long it takes to read these bytes in chunks of one size, in steps that the machine's load does not change. */
function copies(stream: Buffer, size: number): number {
  const copy = Buffer.prototype.copy;
  let copied = 0;
  Buffer.prototype.copy = function (this: Buffer, ...how: Parameters<typeof copy>) {
    const number = copy.apply(this, how);
    copied += number;
    return number;
  };
  try {
    const parser = new Parser();
    for (let at = 0; at < stream.length; at += size) parser.push(stream.subarray(at, at + size));
    return copied;
  } finally {
    Buffer.prototype.copy = copy;
  }
}

test("reading costs a constant number of copies a byte", () => {
  const value = "x".repeat(1 << 20);
  const line = Buffer.from(`+${value}\r\n$${value.length}\r\n${value}\r\n`);
  assert.ok(copies(line, 7) <= 2 * line.length);
  const many = Buffer.from("*1\r\n$3\r\nabc\r\n".repeat(50_000));
  assert.ok(copies(many, 1) <= 2 * many.length);
});

test("what is malformed, too long or too deep is refused", () => {
  const bad = [
    "what is this\r\n",
    ":1\n",
    "\n",
    ":x\r\n",
    ":\r\n",
    "$x\r\n",
    "$-2\r\n",
    "*99999999999\r\n",
    "*1000000000\r\n",
    `$${(16 << 20) + 1}\r\n`,
    `${"*1\r\n".repeat(17)}:1\r\n`,
    "$3\r\nabcd\r\n",
    "#x\r\n",
    "*1\r\n>1\r\n:1\r\n",
    ",\r\n",
  ];
  for (const each of bad) assert.throws(() => new Parser().push(Buffer.from(each)), Malformed, JSON.stringify(each));
  const endless = new Parser();
  assert.throws(() => {
    for (let mebibyte = 0; mebibyte < 17; mebibyte += 1) endless.push(Buffer.alloc(1 << 20, "+"));
  }, Malformed);
  const inParts = new Parser();
  const mebibyte = `$${1 << 20}\r\n${"x".repeat(1 << 20)}\r\n`;
  assert.throws(() => {
    inParts.push(Buffer.from("*20\r\n"));
    for (let part = 0; part < 17; part += 1) inParts.push(Buffer.from(mebibyte));
  }, Malformed);
  assert.deepEqual(new Parser().push(Buffer.from(`${"*1\r\n".repeat(16)}:1\r\n`)).length, 1);
});

test("commands are arrays of bulk strings, and strings are UTF-8", () => {
  assert.equal(encode(["SET", bytes("ü"), ""]), "*3\r\n$3\r\nSET\r\n$2\r\n\xc3\xbc\r\n$0\r\n\r\n");
  assert.equal(text(bytes("ü")), "ü");
  assert.equal(bytes(new Uint8Array([0, 255])), "\0\xff");
});
