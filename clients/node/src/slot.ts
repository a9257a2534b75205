import type { Bytes } from "./resp.js";

/** The part of a key that decides on its slot: what is between the first `{` and the next `}`, if that is something. */
export function hashTag(key: Bytes): Bytes | undefined {
  const begin = key.indexOf("{");
  const end = begin < 0 ? -1 : key.indexOf("}", begin + 1);
  return end > begin + 1 ? key.slice(begin + 1, end) : undefined;
}

/** The slot of a key in a cluster: CRC16 (XMODEM) of its hash tag, or of all of it (P-CLUSTER-2). */
export function slot(key: Bytes): number {
  const hashed = hashTag(key) ?? key;
  let crc = 0;
  for (let at = 0; at < hashed.length; at += 1) {
    crc ^= hashed.charCodeAt(at) << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? ((crc << 1) ^ 0x1021) & 0xffff : (crc << 1) & 0xffff;
  }
  return crc % 16384;
}
