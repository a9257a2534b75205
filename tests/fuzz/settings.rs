//! What the servers of storms are told at their start and in between.

/// The servers' settings, of which each storm has one of each line.
pub const SETTINGS: [&[&str]; 5] = [
    &["io-threads 4", "io-threads 1", "io-threads 1"],
    &["appendonly no", "appendonly yes"],
    &["aof-use-rdb-preamble yes", "aof-use-rdb-preamble no"],
    &["lazyfree-lazy-user-del no", "lazyfree-lazy-user-del yes"],
    &[
        "tether.max-keys-per-client 65536",
        "tether.max-keys-per-client 3",
    ],
];

/// What may be otherwise for a while, and as it is else.
pub const FOR_A_WHILE: [(&str, &str); 7] = [
    (
        "CONFIG SET tether.resp2-push no",
        "CONFIG SET tether.resp2-push yes",
    ),
    ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    (
        "CONFIG SET min-replicas-to-write 1",
        "CONFIG SET min-replicas-to-write 0",
    ),
    (
        "CONFIG SET tether.max-watches-per-client 2",
        "CONFIG SET tether.max-watches-per-client 65536",
    ),
    (
        "CONFIG SET maxmemory-policy allkeys-random",
        "CONFIG SET maxmemory-policy noeviction",
    ),
    (
        "CONFIG SET notify-keyspace-events KEA",
        "CONFIG SET notify-keyspace-events A",
    ),
    ("DEBUG SET-ACTIVE-EXPIRE 0", "DEBUG SET-ACTIVE-EXPIRE 1"),
];
