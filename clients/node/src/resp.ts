/**
 * RESP3 as the client speaks it.
 *
 * Bytes are strings with one character for each byte (latin1): so they can be compared, sorted and
 * used as the key of a Map. `bytes` and `text` convert from and to what users have.
 */

/** A string with one character, 0 to 255, for each byte. */
export type Bytes = string;

/** An error that the server replied. */
export class ErrorReply {
  constructor(readonly text: string) {}

  /** The first word of the text. */
  get code(): string {
    return this.text.split(" ", 1)[0] as string;
  }
}

/** A push: no reply, but what the server says by itself. */
export class Push {
  constructor(readonly items: readonly Frame[]) {}
}

/** What the server sends. */
export type Frame = null | boolean | number | Bytes | ErrorReply | Push | Frame[] | Map<Bytes, Frame>;

/** Bytes that are no RESP3, or more than a client takes (P-FRAME-2). */
export class Malformed extends Error {}

const LONGEST_FRAME = 16 << 20;
const DEEPEST = 16;
/** The shortest element is `_` and the end of its line. */
const SHORTEST_ELEMENT = 3;
const SMALLEST_STORE = 16 << 10;

const CR = 13;
const LF = 10;

/** An aggregate whose elements are still to come. */
interface Open {
  readonly kind: string;
  readonly items: Frame[];
  missing: number;
}

/**
 * Cuts a stream of bytes into frames.
 *
 * Each byte is copied and looked at a constant number of times, however the stream is cut
 * (P-FRAME-3): the store doubles, the search for the end of a line goes on where it stopped, and the
 * elements of an aggregate that is not complete stay on a stack.
 */
export class Parser {
  #store = Buffer.allocUnsafe(SMALLEST_STORE);
  #begin = 0;
  #end = 0;
  /** Up to here there is no end of a line. */
  #searched = 0;
  /** How long the bulk string is that the last line began. */
  #bulk: { readonly kind: string; readonly size: number } | undefined;
  #open: Open[] = [];
  /** Bytes of the present frame that were taken. */
  #taken = 0;

  /** The frames that these bytes complete. Throws Malformed; the parser is of no use after that. */
  push(chunk: Uint8Array): Frame[] {
    this.#append(chunk);
    const frames: Frame[] = [];
    for (;;) {
      const element = this.#bulk ? this.#body(this.#bulk) : this.#line();
      if (element === undefined) break;
      const frame = this.#place(element);
      if (frame !== undefined) frames.push(frame);
      if (this.#open.length === 0 && !this.#bulk) this.#taken = 0;
    }
    if (this.#begin === this.#end) this.#clear();
    return frames;
  }

  #append(chunk: Uint8Array): void {
    if (this.#end + chunk.length > this.#store.length) {
      const used = this.#end - this.#begin;
      let size = this.#store.length;
      while (size < 2 * (used + chunk.length)) size *= 2;
      const store = size > this.#store.length ? Buffer.allocUnsafe(size) : this.#store;
      this.#store.copy(store, 0, this.#begin, this.#end);
      this.#store = store;
      this.#searched -= this.#begin;
      this.#begin = 0;
      this.#end = used;
    }
    this.#store.set(chunk, this.#end);
    this.#end += chunk.length;
  }

  #clear(): void {
    this.#begin = this.#end = this.#searched = 0;
    if (this.#store.length > SMALLEST_STORE) this.#store = Buffer.allocUnsafe(SMALLEST_STORE);
  }

  /** Takes these bytes, and `behind` more. */
  #take(size: number, behind: number): Bytes {
    const bytes = this.#store.toString("latin1", this.#begin, this.#begin + size);
    this.#begin += size + behind;
    this.#searched = this.#begin;
    this.#taken += size + behind;
    this.#limit(0);
    return bytes;
  }

  /** The present frame may have so many more bytes. */
  #limit(more: number): void {
    if (this.#taken + more > LONGEST_FRAME) throw new Malformed("a frame is longer than 16 MiB");
  }

  /** The next line as an element; undefined: it is not complete, or began something longer. */
  #line(): Frame | Open | undefined {
    const at = this.#store.subarray(0, this.#end).indexOf(LF, this.#searched);
    if (at < 0) {
      this.#searched = this.#end;
      this.#limit(this.#end - this.#begin);
      return undefined;
    }
    if (at === this.#begin || this.#store[at - 1] !== CR) throw new Malformed("a line does not end with CR LF");
    const line = this.#take(at - 1 - this.#begin, 2);
    const kind = line[0];
    const rest = line.slice(1);
    switch (kind) {
      case "+":
        return rest;
      case "-":
        return new ErrorReply(text(rest));
      case ":":
      case "(":
        return integer(rest);
      case ",":
        return double(rest);
      case "_":
        return null;
      case "#":
        if (rest !== "t" && rest !== "f") throw new Malformed("a boolean is neither t nor f");
        return rest === "t";
      case "$":
      case "=":
      case "!":
        if (rest === "-1") return null;
        this.#bulk = { kind, size: length(rest) };
        this.#limit(this.#bulk.size + 2);
        return this.#body(this.#bulk);
      case "*":
      case "~":
      case ">":
      case "%":
      case "|":
        if (rest === "-1") return null;
        return this.#aggregate(kind, length(rest));
      default:
        throw new Malformed("a frame of an unknown type");
    }
  }

  #aggregate(kind: string, count: number): Open {
    const missing = kind === "%" || kind === "|" ? 2 * count : count;
    this.#limit(missing * SHORTEST_ELEMENT);
    if (this.#open.length === DEEPEST) throw new Malformed(`a frame is nested deeper than ${DEEPEST}`);
    return { kind, items: [], missing };
  }

  #body(bulk: { readonly kind: string; readonly size: number }): Frame | undefined {
    const { kind, size } = bulk;
    if (this.#end - this.#begin < size + 2) return undefined;
    const behind = this.#begin + size;
    if (this.#store[behind] !== CR || this.#store[behind + 1] !== LF)
      throw new Malformed("a bulk string is longer than it says");
    this.#bulk = undefined;
    const bytes = this.#take(size, 2);
    if (kind === "!") return new ErrorReply(text(bytes));
    return kind === "=" ? bytes.slice(4) : bytes;
  }

  /** Puts an element where it belongs; the frame, if it is complete. */
  #place(element: Frame | Open): Frame | undefined {
    let placed: Frame | Open = element;
    for (;;) {
      if (isOpen(placed)) {
        if (placed.missing > 0) {
          this.#open.push(placed);
          return undefined;
        }
        const closed = close(placed);
        if (closed === undefined) return undefined;
        placed = closed;
      }
      const around = this.#open.at(-1);
      if (around === undefined) return placed;
      if (placed instanceof Push) throw new Malformed("a push inside a frame");
      around.items.push(placed);
      around.missing -= 1;
      if (around.missing > 0) return undefined;
      this.#open.pop();
      placed = around;
    }
  }
}

function isOpen(element: Frame | Open): element is Open {
  return typeof element === "object" && element !== null && "missing" in element;
}

/** The frame of an aggregate that is complete; undefined for attributes, which nobody needs. */
function close({ kind, items }: Open): Frame | undefined {
  if (kind === "|") return undefined;
  if (kind === ">") return new Push(items);
  if (kind !== "%") return items;
  const map = new Map<Bytes, Frame>();
  for (let at = 0; at < items.length; at += 2) map.set(String(items[at]), items[at + 1] as Frame);
  return map;
}

function integer(digits: string): number {
  if (!/^[+-]?\d{1,32}$/.test(digits)) throw new Malformed("an integer is none");
  return Number(digits);
}

function double(digits: string): number {
  if (digits === "inf") return Number.POSITIVE_INFINITY;
  if (digits === "-inf") return Number.NEGATIVE_INFINITY;
  if (digits === "nan") return Number.NaN;
  const value = Number(digits);
  if (digits.trim() === "" || Number.isNaN(value)) throw new Malformed("a double is none");
  return value;
}

function length(digits: string): number {
  if (!/^\d{1,10}$/.test(digits)) throw new Malformed("a length is none");
  return Number(digits);
}

/** A command as the server reads it. */
export function encode(words: readonly Bytes[]): Bytes {
  let command = `*${words.length}\r\n`;
  for (const word of words) command += `$${word.length}\r\n${word}\r\n`;
  return command;
}

/** What a user gives: a string is sent as UTF-8. */
export function bytes(from: string | Uint8Array): Bytes {
  const buffer = typeof from === "string" ? Buffer.from(from) : Buffer.from(from.buffer, from.byteOffset, from.length);
  return buffer.toString("latin1");
}

/** What a user reads: bytes that are UTF-8. */
export function text(from: Bytes): string {
  return Buffer.from(from, "latin1").toString();
}
