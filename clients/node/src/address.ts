import type { ConnectionOptions } from "node:tls";
import { TetherError } from "./errors.js";

/** Where a server listens. */
export type Endpoint = { readonly host: string; readonly port: number } | { readonly path: string };

/** A server, and how to greet it. */
export interface Address {
  readonly endpoint: Endpoint;
  readonly tls: ConnectionOptions | undefined;
  readonly username: string | undefined;
  readonly password: string | undefined;
  readonly database: number;
}

/** How to greet servers whose URL says nothing else. */
export interface Manner {
  readonly tls?: ConnectionOptions | undefined;
  readonly username?: string | undefined;
  readonly password?: string | undefined;
}

const DEFAULT_PORT = 6379;
export const SENTINEL_PORT = 26379;

/**
 * Understands `redis://user:password@host:port/db`, `rediss://` for TLS, and `unix:///path?db=1`. The
 * error does not show the URL: it may have a password in it (P-ERR-3).
 */
export function parse(url: string, manner: Manner = {}, defaultPort = DEFAULT_PORT): Address {
  const at = URL.canParse(url) ? new URL(url) : undefined;
  const isTls = at?.protocol === "rediss:" || at?.protocol === "valkeys:";
  const isTcp = isTls || at?.protocol === "redis:" || at?.protocol === "valkey:";
  const isUnix = at?.protocol === "unix:";
  const database = Number((isUnix ? at.searchParams.get("db") : at?.pathname.slice(1)) || 0);
  const isCut = isTcp && (at.search + at.hash).includes("@"); // By a mark in a password that is not escaped.
  if (!at || isCut || !(isTcp ? at.hostname : isUnix) || !Number.isInteger(database) || database < 0) {
    const forms = "redis://user:password@host:port/db, rediss://host:port or unix:///path?db=0";
    throw new TetherError("URL", `a URL must be of the form ${forms}`);
  }
  const host = at.hostname.replace(/^\[|\]$/g, ""); // IPv6.
  return {
    endpoint: isUnix ? { path: decodeURIComponent(at.pathname) } : { host, port: Number(at.port || defaultPort) },
    tls: isTls ? (manner.tls ?? {}) : undefined,
    username: decodeURIComponent(at.username) || manner.username,
    password: decodeURIComponent(at.password) || manner.password,
    database,
  };
}

/** The same server elsewhere: a master that another one named. TLS verifies that host (P-CONN-8). */
export function moved(address: Address, host: string, port: number): Address {
  return { ...address, endpoint: { host, port } };
}

/** What an endpoint is called in errors. */
export function nameOf(endpoint: Endpoint): string {
  return "path" in endpoint ? endpoint.path : `${endpoint.host}:${endpoint.port}`;
}
