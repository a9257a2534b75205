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
        title: "Against what else one would take",
        about: "Contenders take a lock, give it back at once, and take it again, as fast as they are let. All ways take turns, each with its\n\
            own servers, all of them on this machine. The same threads speak every protocol directly, so no client library\n\
            and no language is measured: what differs is the servers, and what their protocols ask for. PostgreSQL's and Redis's locks touch no\n\
            disk; etcd and ZooKeeper write each step to it before they answer, since they promise more: their locks\n\
            survive the loss of a machine when they run on several. Here each runs alone, which is faster. ZooKeeper works for ten\n\
            seconds before it is measured, since Java is slow at first. etcd's server checks for new waiters ten times a second, so few\n\
            contenders get the lock less often than many. Each contender stands for a process of its own: threads of one Java\n\
            program share Redisson's channel, and only one of them wakes at a time.\n\n\
            *Of BLPOP/RPUSH* is the ratio to the floor in the same round. *Server CPU per 1,000* acquisitions counts all processes of\n\
            a way's servers. *Requests each* are those of the client per acquisition, with the release and all attempts in vain.\n\
            *Least and most served* compare the contender that got the lock least and most often with an even share:\n\
            1.00 .. 1.00 is first come first served. A lock that is asked for again and again looks fast, because one\n\
            contender takes it thousands of times while all others sleep: so look at both.",
        run: peers::run,
        once: true,
    },
    Part {
        name: "crash",
        title: "When a holder is killed",
        about: "The holder's process is killed by SIGKILL while another one waits: how long until that has the lock? A way whose server\n\
            notices hands the lock over at once; the others wait until a time limit ends, here those that their clients\n\
            have by default (measured once each, since they take so long).",
        run: peers::run_crash,
        once: true,
    },
    Part {
        name: "presence",
        title: "Who is there: 100,000 members and 1,000 watchers",
        about: "A thousand connections watch all of a hundred thousand members of one group. How long from the SIGKILL of a member's\n\
            process, or from its own word that it leaves, until the last of them is notified? The time limits of etcd's leases and\n\
            ZooKeeper's sessions are those of their clients by default, 10 s; a connection without a session is noticed at once. The other\n\
            members belong to one connection. etcd's watch is of a prefix; ZooKeeper's is a persistent and recursive one, as Curator's newer\n\
            caches use it: an older watch of children tells only that something has changed, and each watcher reads all names again.\n\n\
            Then all watchers come at once to a server that was a replica until then, and read all pages: what does that take of memory, and\n\
            how long does a bystander's PING wait?",
        run: presence::run,
        once: true,
    },
    Part {
        name: "acks",
        title: "Grants that a replica acknowledges",
        about: "Contenders take a lock, give it back at once, and take it again, on a master with one or two replicas. The other side is\n\
            a SETTP and `WAIT 1 1000` behind it, both sent at once: the grant and one round trip to a replica, without a further one\n\
            of the client. `ACKS 1` is to take 1.1 times as long at most. All ways take turns on the same servers, each connection has a\n\
            session, and the master and its clients have one processor, the replicas the other one. A grant's time runs\n\
            from the request, or from the release of the former holder if that was later, until the client has the answer. A session\n\
            outlives its connection by its grace, here the default of 10 s: so long a killed holder keeps the lock.",
        run: peers::run_acks,
        once: false,
    },
    Part {
        name: "quorum",
        title: "Locks that survive the loss of a server",
        about: "Contenders take a lock, give it back at once, and take it again. The quorum is three independent masters, asked as the\n\
            quorum of the Rust client asks them: in ascending order with `WAIT 0 PUSH`, and the token written back by LOCK.RAISE before the\n\
            lock counts as held; a chain of three round trips, while three servers share the processors. Redlock asks three servers at once, and\n\
            again after 200 to 400 ms. etcd writes each step to the disk, and its server checks for new waiters ten times a second, so few contenders get\n\
            the lock less often than many. All ways take turns, each with its own servers on\n\
            this machine, without a network between them.\n\n\
            *Handed over* counts acquisitions in which the lock went to another contender: one that polls is taken many times in a row by\n\
            one contender. It is compared where there is more than one. *Grant* is the time from the request, or from the release of the former holder if\n\
            that was later, until the client knows that it holds the lock.\n\n\
            When a holder is killed, all wait for a time limit, 10 s by default: a session's grace, Redlock's PX, the TTL of etcd's lease.\n\
            When a server is killed, a lock is held and another contender waits for it; the holder gives it back right after the SIGKILL. The server\n\
            is etcd's leader, and the quorum's first, at which all wait; etcd's clients are connected to the members that live. Each\n\
            sample has new servers.",
        run: peers::run_quorum,
        once: true,
    },
    Part {
        name: "handoff",
        title: "Handing a lock over, against BLPOP and RPUSH",
        about: "A lock goes round this many contenders: the holder gives it back, queues again at once, and the next one learns that\n\
            it has it. The other side is the fastest way in which a plain server can pass anything on: RPUSH of a token for which the others\n\
            wait in BLPOP. That is no lock (the token is lost with its holder), only a floor. The herd is the way of the article that\n\
            this module began with: all watch the key, and all try to make it when it goes.",
        run: handoff::run,
        once: false,
    },
    Part {
        name: "pairs",
        title: "Taking and giving back, without contention",
        about: "One connection takes and gives back key after key. The other side is what a careful user of a plain server would send\n\
            for it (SETNX or SET NX, and DEL), which binds nothing to anybody, on a server without the module.",
        run: pairs::run,
        once: false,
    },
    Part {
        name: "guarded",
        title: "Commands that run while a token is current",
        about: "`LOCK.GUARD` of a SET and of a GET, on a server where a lock is held; the other side is the bare command on a server without the\n\
            module. At the factor 1.5 the speed is 0.667.",
        run: guarded::run,
        once: false,
    },
    Part {
        name: "replicated",
        title: "With a replica and an append-only file",
        about: "One connection takes and gives back key after key on a server with one replica and an append-only file that is synced\n\
            every second; the other side is SET NX and DEL under the same, without the module.",
        run: replicated::run,
        once: false,
    },
    Part {
        name: "foreign",
        title: "What the module costs those who do not use it",
        about: "Eight connections send SET, GET and DEL of keys that nobody holds or watches, 16 at once, to a server with the module\n\
            and to one without. With the module in use elsewhere (100,000 watches of other keys, or one other key held), the server\n\
            with it is to be at most 3 % slower; with a million other keys held 5 %, against a server with as many plain keys.\n\
            Both are started anew several times, since where a process happens to lie in memory makes a difference of some\n\
            hundredths.",
        run: foreign::run,
        once: false,
    },
    Part {
        name: "fanout",
        title: "Telling thousands of watchers",
        about: "One key with ten thousand watchers comes and goes; the other side is PUBLISH to a channel with the same ten thousand\n\
            connections as subscribers. A frame of ours says which key, and whether it came or went.",
        run: fanout::run,
        once: false,
    },
    Part {
        name: "memory",
        title: "Memory",
        about: "What `used_memory` grows by, per watch and per bound key. A watch is held against a subscription of the same name.",
        run: memory::run,
        once: false,
    },
    Part {
        name: "death",
        title: "When owners die",
        about: "A connection that owns a million keys ends, or a process with ten thousand connections that own one key each is\n\
            killed. Meanwhile a bystander sends PING after PING: the longest answer is reported, by the processor time that the\n\
            server used between question and answer (what it would take if it had a processor of its own) and by the clock.",
        run: death::run,
        once: false,
    },
    Part {
        name: "hostile",
        title: "When a client means harm",
        about: "A client builds what could make this module slow, 60,000 of something as a rule, and strikes: with one command, or with as\n\
            many as a server reads of a client at once (16 KB). Meanwhile a bystander sends PING after PING: the longest answer is reported,\n\
            by the processor time that the server used between question and answer and by the clock. No 16 KB of commands may take more\n\
            than 100 ms, and no single one more than 5 ms, on this machine when nobody else uses it. Right before each strike a piece of\n\
            work without the module tells how slow the machine is at the moment, and the bound is a multiple of it. `make hostile`\n\
            runs this table alone.",
        run: hostile::run,
        once: false,
    },
    Part {
        name: "curve",
        title: "From ten to sixty thousand",
        about: "What the reference says to cost the same however many others there are. Each figure is of one command, the server's\n\
            own part in it: what matters is that no row grows. It does so only by the memory that does not fit into the processor.",
        run: hostile::curve::run,
        once: true,
    },
    Part {
        name: "loading",
        title: "Starting again",
        about: "A server loads an RDB file with a million keys whose owners died with the server before, against plain strings\n\
            in a server without the module; and the longest PING from its first answer on, while those keys are removed.",
        run: loading::run,
        once: false,
    },
    Part {
        name: "scale",
        title: "From one to a million",
        about: "With this many watches, bound keys or waiters there, what does the next operation cost, and what does each weigh? Watches are of\n\
            keys that ten connections watch, each of them all; bound keys are spread over ten connections; waiters stand\n\
            in one queue, to be notified by a push: for a blocked client the module's part is the same, but the server takes\n\
            30 to 44 kB for it. Plain keys show what the server itself takes for the same. Fewer than 10,000 weigh less than the\n\
            server's own buffers, so memory is reported from there on.",
        run: scale::run,
        once: true,
    },
    Part {
        name: "waiters",
        title: "Queues, short and long",
        about: "About a hundred thousand waiters stand in short queues or in one long one. That a step costs the same in each shows that\n\
            it depends on nothing's length.",
        run: waiters::run,
        once: false,
    },
    Part {
        name: "bare",
        title: "What the module API leaves room for",
        about: "The work of three tables above, done by a module without a rule (`benches/bare/lib.rs`): it makes the calls of the module\n\
            API that the work cannot do without, and no other. It keeps no books, notices no end of a connection, and is of no use. Where it\n\
            is below a target, too, no module reaches that through the API; between it and the figures above is the price\n\
            of the rules. In handoffs this module can be ahead of it: it ends a wait by a function of the server's own,\n\
            which wakes the waiter without a turn of the event loop (`src/shell/shim.h`).",
        run: bare::run,
        once: false,
    },
    Part {
        name: "instructions",
        title: "Instructions",
        about: "How many instructions the whole server executes for one operation, counted by callgrind. A push is its part of a SET\n\
            or DEL of which a hundred connections get a push. The targets of the first six are the counts kept in `benches/instructions.txt` and 5 %\n\
            more; CI fails when one is above. The last is a foreign SET on a server with the module, of which nobody\n\
            uses anything, against one without.",
        run: instructions::run,
        once: false,
    },
];
