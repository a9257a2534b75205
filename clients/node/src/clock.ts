import { openSync, readSync } from "node:fs";
import type { Clocks } from "./request.js";

const TEXT = Buffer.alloc(64);

function open(): number | undefined {
  try {
    return openSync("/proc/uptime", "r");
  } catch {
    return undefined;
  }
}

const uptime = open();

/** Whether there is a clock that runs on while the machine is suspended: on Linux /proc/uptime, which is rounded (P-FENCE-3). */
export const bootClock: false | "uptime" = uptime === undefined ? false : "uptime";

/** Both clocks now. They are the same in all threads of the process. */
export function clocks(): Clocks {
  const mono = Number(process.hrtime.bigint()) / 1e6;
  if (uptime === undefined) return { mono, boot: mono };
  const length = readSync(uptime, TEXT, 0, TEXT.length, 0);
  return { mono, boot: 1000 * Number.parseFloat(TEXT.toString("latin1", 0, length)) };
}
