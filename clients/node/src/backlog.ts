const MOST = 1024; // P-WATCH-5

/**
 * What a reader has not taken yet. Beyond 1,024 events, and one for each key, it leaves out changes
 * that cancel each other, but never the last state of a key.
 */
export class Backlog<E> {
  #events: E[] = [];
  #taken = 0;
  #most = MOST;
  readonly #keyOf: (event: E) => string;
  readonly #merge: (read: E | undefined, last: E) => E | undefined;
  readonly #isGone: (event: E) => boolean;
  /** Of each key that is not gone, the last event that the reader took. */
  readonly #read = new Map<string, E>();

  /**
   * `merge` says what leads from the event that was read to the last one; undefined: nothing does, they
   * say the same. After an event that `isGone`, its key counts as never read.
   */
  constructor(
    keyOf: (event: E) => string,
    merge: (read: E | undefined, last: E) => E | undefined,
    isGone: (event: E) => boolean = () => false,
  ) {
    this.#keyOf = keyOf;
    this.#merge = merge;
    this.#isGone = isGone;
  }

  get size(): number {
    return this.#events.length - this.#taken;
  }

  push(event: E): void {
    this.#events.push(event);
    if (this.size > this.#most) this.#compact();
  }

  shift(): E | undefined {
    if (this.size === 0) return undefined;
    const event = this.#events[this.#taken] as E;
    this.#taken += 1;
    if (this.#taken === this.#events.length) {
      this.#events = [];
      this.#taken = 0;
      this.#most = MOST;
    } else if (this.#taken === MOST) {
      this.#events = this.#events.slice(MOST); // A slow reader may never empty it.
      this.#taken = 0;
    }
    if (this.#isGone(event)) this.#read.delete(this.#keyOf(event));
    else this.#read.set(this.#keyOf(event), event);
    return event;
  }

  #compact(): void {
    const last = new Map<string, E>();
    for (const event of this.#events.slice(this.#taken)) last.set(this.#keyOf(event), event);
    this.#events = [...last].flatMap(([key, event]) => this.#merge(this.#read.get(key), event) ?? []);
    this.#taken = 0;
    this.#most = MOST + this.#events.length;
  }
}
