//! What to do about a server's error.

/// For a code of an error, of a server or of the client.
pub fn on(code: &str) -> Option<&'static str> {
    Some(match code {
        "NOAUTH" | "WRONGPASS" | "AUTH" => {
            "give user and password in the URL: redis://user:password@host"
        }
        "NOPERM" => "an administrator can allow it with ACL SETUSER",
        "WRONGTYPE" => "take another key for the lock, or see with TYPE what this one is",
        "READONLY" | "REPLICA" => "use the master's address, or redis+sentinel://",
        "NOREPLICAS" => "too few replicas are connected; see min-replicas-to-write",
        "OOM" => "raise maxmemory, or store less",
        "MISCONF" => "see the server's log: it cannot write its files",
        "NOMODULE" => {
            "put `loadmodule /path/to/libtether.so` into the server's configuration, and restart it"
        }
        "NOPUSH" => "run `tether qualify` on the server's machine",
        "CROSSSLOT" => {
            "in a cluster, watch keys of one slot, or each by itself; a prefix needs a hash tag, as in workers:{eu}:"
        }
        "MOVED" | "ASK" => "a slot of the cluster is moving; try again",
        "TRYAGAIN" => "try again in a moment",
        "CLUSTERDOWN" => "see CLUSTER INFO: slots have no master",
        "UNREACHABLE" => "see that a server runs there, or name another with --url or TETHER_URL",
        "ANNOUNCE" => "take another name for --announce, or wait with --wait",
        _ => return None,
    })
}

/// What a server said, and what to do about it.
pub fn with(why: &str, code: &str) -> String {
    on(code).map_or_else(|| why.to_owned(), |advice| format!("{why}; {advice}"))
}
