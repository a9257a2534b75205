//! All parts, in the order in which they are told, with what a reader should know of each. Those that are for one server
//! only run last.

use super::table::Table;
use super::{
    Bench, bare, death, fanout, foreign, guarded, handoff, hostile, instructions, loading, memory,
    pairs, peers, presence, replicated, scale, waiters,
};

pub struct Part {
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub run: fn(&Bench, &mut Table),
    /// On the first server only.
    pub once: bool,
}

pub const PARTS: &[Part] = &[
    Part {
        name: "peers",
        title: "Beside other locks",
        about: "Contenders take a lock, release it at once, and take it again, as fast as they can. The locks take turns, each on its own\n\
            servers, all on this machine. The same threads speak every protocol directly, so the figures compare servers and protocols, not\n\
            client libraries or languages. PostgreSQL's and Redis's locks do not touch the disk. etcd and ZooKeeper write each step to disk\n\
            before they answer, since they promise more: on several machines, their locks survive the loss of one. Here each runs as a\n\
            single server, which is faster. ZooKeeper warms up for ten seconds before it is measured, since Java is slow at first. etcd's\n\
            server checks for new waiters ten times a second, so it grants the lock less often with few contenders than with many. Each\n\
            contender stands for a process of its own: threads of one Java program would share Redisson's channel, and only one of them\n\
            would wake at a time.\n\n\
            *Of BLPOP/RPUSH* is the ratio to the floor in the same round. *Server CPU per 1,000* acquisitions counts all server processes.\n\
            *Requests each* are the client's requests per acquisition, with the release and all failed attempts. *Least and most served*\n\
            compare the contenders that got the lock least and most often with an even share: 1.00 .. 1.00 is first come, first served. A\n\
            lock whose waiters poll looks fast, because one contender takes it thousands of times in a row while all others sleep. So look\n\
            at speed and share together.",
        run: peers::run,
        once: true,
    },
    Part {
        name: "crash",
        title: "When a holder is killed",
        about: "SIGKILL ends the holder's process while another one waits: how long until the waiter has the lock? A server that notices the\n\
            death hands the lock over at once. With the other locks the waiter waits for a time limit, here the default of their clients\n\
            (measured once each, since this takes long).",
        run: peers::run_crash,
        once: true,
    },
    Part {
        name: "presence",
        title: "Who is there: 100,000 members and 1,000 watchers",
        about: "A thousand connections watch one group of 100,000 members. SIGKILL ends a member's process, or a member leaves by itself: how\n\
            long until the last watcher is notified? The time limits of etcd's leases and ZooKeeper's sessions are the defaults of their\n\
            clients, 10 s; this module notices at once that a connection without a session has ended. All other members belong to one\n\
            connection. The watch on etcd is on a prefix. The watch on ZooKeeper is persistent and recursive, as in Curator's newer caches;\n\
            an older watch of children says only that something has changed, and each watcher then reads all names again.\n\n\
            Then a replica becomes the master, and all watchers come to it at once and read all pages. How much memory does that take, and\n\
            how long does a bystander's PING wait?",
        run: presence::run,
        once: true,
    },
    Part {
        name: "acks",
        title: "Grants that a replica acknowledges",
        about: "Contenders take a lock, release it at once, and take it again, on a master with one or two replicas. The other side is a SETTP\n\
            with `WAIT 1 1000` behind it, both sent at once: the grant and one round trip to a replica, without another round trip of the\n\
            client. The target of `ACKS 1` is at most 1.1 times as long. All ways take turns on the same servers, and each connection has a\n\
            session. The master and its clients have one processor, the replicas the other one. The time of a grant runs from the request,\n\
            or from the release by the previous holder if that was later, until the client has the reply. A session outlives its connection\n\
            by its grace, here the default of 10 s, so a killed holder keeps the lock for that long.",
        run: peers::run_acks,
        once: false,
    },
    Part {
        name: "quorum",
        title: "Locks that survive the loss of a server",
        about: "Contenders take a lock, release it at once, and take it again. The quorum is three independent masters. Contenders ask them as\n\
            the quorum of the Rust client does: in ascending order with `WAIT 0 PUSH`, and LOCK.RAISE writes the token back before the lock\n\
            counts as held. That is a chain of three round trips, while the three servers share the processors. Redlock asks three servers\n\
            at once, and again after 200 to 400 ms. etcd writes each step to disk, and its server checks for new waiters ten times a second,\n\
            so it grants the lock less often with few contenders than with many. The locks take turns, each on its own servers on this\n\
            machine, without a network between them.\n\n\
            *Handed over* counts the acquisitions in which the lock went to another contender, since a contender that polls takes a lock\n\
            many times in a row. The ratios use it where there is more than one contender. *Grant* is the time from the request, or from the\n\
            release by the previous holder if that was later, until the client knows that it holds the lock.\n\n\
            When a holder is killed, the waiter waits for a time limit, 10 s by default: a session's grace, Redlock's PX, the TTL of etcd's\n\
            lease. When a server is killed, one contender holds the lock and another waits for it; the holder releases it right after the\n\
            SIGKILL. The killed server is etcd's leader, or the first of the quorum, at which all contenders wait. etcd's clients are\n\
            connected to the other members. Each sample has new servers.",
        run: peers::run_quorum,
        once: true,
    },
    Part {
        name: "handoff",
        title: "Handing a lock over, against BLPOP and RPUSH",
        about: "A lock goes round the given number of contenders: the holder releases it and queues again at once, and the next contender learns\n\
            that it has the lock. The other side is the fastest way for a plain server to pass anything on: RPUSH of a token, with the other\n\
            contenders blocked in BLPOP. That is not a lock (if its holder dies, the token is lost), only a floor. The herd is the algorithm\n\
            of the article that this module began with: all contenders watch the key, and all try to create it when it is deleted.",
        run: handoff::run,
        once: false,
    },
    Part {
        name: "pairs",
        title: "Taking and releasing, without contention",
        about: "One connection takes and releases one key after another. The other side is what a careful user would send to a plain server\n\
            without the module, SETNX or SET NX and then DEL, which ties the key to no connection.",
        run: pairs::run,
        once: false,
    },
    Part {
        name: "guarded",
        title: "Commands that run while a token is current",
        about: "`LOCK.GUARD` runs a SET and a GET on a server where a lock is held. The other side is the bare command on a server without the\n\
            module. A speed of 0.667 means that the guarded command takes 1.5 times as long.",
        run: guarded::run,
        once: false,
    },
    Part {
        name: "replicated",
        title: "With a replica and an append-only file",
        about: "One connection takes and releases one key after another, on a server with one replica and an append-only file that is synced\n\
            every second. The other side is SET NX and DEL on the same servers without the module.",
        run: replicated::run,
        once: false,
    },
    Part {
        name: "foreign",
        title: "What the module costs other clients",
        about: "Eight connections send SET, GET and DEL of keys that nobody holds or watches, 16 commands at once, to a server with the module\n\
            and to one without it. While the module is in use elsewhere (100,000 watches of other keys, or one other key held), the target\n\
            is at most 3 % slower. With a million other keys held it is 5 %, against a server with as many plain keys. Both servers are\n\
            restarted several times, since the place of a process in memory changes its speed by some percent.",
        run: foreign::run,
        once: false,
    },
    Part {
        name: "fanout",
        title: "Notifying thousands of watchers",
        about: "One key with ten thousand watchers is created and deleted. The other side is PUBLISH to a channel to which the same ten thousand\n\
            connections subscribe. A push also says which key it was, and whether it was created or deleted.",
        run: fanout::run,
        once: false,
    },
    Part {
        name: "memory",
        title: "Memory",
        about: "How much `used_memory` grows, per watch and per bound key. A watch is compared with a subscription to a channel of the same\n\
            name.",
        run: memory::run,
        once: false,
    },
    Part {
        name: "death",
        title: "When owners die",
        about: "A connection that owns a million keys closes; or a process with ten thousand connections that own one key each is killed.\n\
            Meanwhile a bystander sends one PING after another. The figure is the longest answer: in processor time that the server used\n\
            between question and answer (what it would take if the server had a processor of its own), and by the clock.",
        run: death::run,
        once: false,
    },
    Part {
        name: "hostile",
        title: "When a client means harm",
        about: "A client builds a state that could make this module slow, usually with 60,000 of something, and then strikes: with one command,\n\
            or with as many as a server reads from a client at once (16 KB). Meanwhile a bystander sends one PING after another. The figure\n\
            is the longest answer, in processor time that the server used between question and answer, and by the clock. On this machine, if\n\
            nobody else uses it, one command may take at most 5 ms, and 16 KB of commands at most 100 ms. Right before each strike, a piece\n\
            of work without the module measures how slow the machine is at the moment, and the bound is scaled by that. `make hostile` runs\n\
            this table alone.",
        run: hostile::run,
        once: false,
    },
    Part {
        name: "curve",
        title: "From ten to sixty thousand",
        about: "Operations that cost the same however many other objects there are, as the reference says. Each figure is one command, with the\n\
            server's own part in it. No row should grow, except by memory that does not fit into the processor's caches.",
        run: hostile::curve::run,
        once: true,
    },
    Part {
        name: "loading",
        title: "Starting again",
        about: "A server loads an RDB file with a million keys whose owners died with the previous server. The other side loads plain strings\n\
            without the module. The last row is the longest PING after the first answer, while the module deletes those keys.",
        run: loading::run,
        once: false,
    },
    Part {
        name: "scale",
        title: "From one to a million",
        about: "With this many watches, bound keys or waiters on a server, how long does the next operation take, and how much memory does each\n\
            of them need? Ten connections watch all of the watched keys. Ten connections own the bound keys. The waiters are in one queue\n\
            and are notified by a push: for a blocked client the module does the same work, but the server needs 30 to 44 kB for it. Plain\n\
            keys show what the server itself needs. Fewer than 10,000 need less than the server's own buffers, so memory is reported from\n\
            there on.",
        run: scale::run,
        once: true,
    },
    Part {
        name: "waiters",
        title: "Short and long queues",
        about: "About 100,000 waiters are in many short queues, or in one long queue. A step costs the same in each, so its cost does not depend\n\
            on the length of a queue.",
        run: waiters::run,
        once: false,
    },
    Part {
        name: "bare",
        title: "The cost of the module API",
        about: "A module without rules does the work of three tables above (`benches/bare/lib.rs`): it makes the calls of the module API that\n\
            the work cannot do without, and no others. It keeps no state, notices no disconnect, and is of no use. Where it misses a target\n\
            too, no module can reach that target through the API. The difference from its figures to those above is the price of the rules.\n\
            In handoffs this module can be faster than the bare one: it unblocks a waiter by a function of the server's own, which wakes the\n\
            waiter without a turn of the event loop (`src/shell/sys/shim.h`).",
        run: bare::run,
        once: false,
    },
    Part {
        name: "instructions",
        title: "Instructions",
        about: "The number of instructions that the whole server executes for one operation, counted by callgrind. A push is its part of a SET\n\
            or DEL that is pushed to a hundred connections. The targets of the first six rows are the counts in `benches/instructions.txt`\n\
            plus 5 %; `make instructions` fails if a count is higher. The last row compares a SET by another client, on a server whose\n\
            module nobody uses, with a server without the module.",
        run: instructions::run,
        once: false,
    },
];
