//! All parts, in the order of the page. Their prose is in report.md, under their titles.

use super::table::Table;
use super::{
    Bench, bare, death, fanout, foreign, guarded, handoff, hostile, instructions, loading, memory,
    pairs, peers, presence, replicated, scale, waiters,
};

pub struct Part {
    pub name: &'static str,
    pub title: &'static str,
    pub run: fn(&Bench, &mut Table),
    /// On the first server only.
    pub once: bool,
}

pub const PARTS: &[Part] = &[
    Part {
        name: "peers",
        title: "Beside other locks",
        run: peers::run,
        once: true,
    },
    Part {
        name: "crash",
        title: "When a holder is killed",
        run: peers::run_crash,
        once: true,
    },
    Part {
        name: "presence",
        title: "Who is there: 100,000 members and 1,000 watchers",
        run: presence::run,
        once: true,
    },
    Part {
        name: "acks",
        title: "Grants that a replica acknowledges",
        run: peers::run_acks,
        once: false,
    },
    Part {
        name: "quorum",
        title: "Locks that survive the loss of a server",
        run: peers::run_quorum,
        once: true,
    },
    Part {
        name: "handoff",
        title: "Handing a lock over, against BLPOP and RPUSH",
        run: handoff::run,
        once: false,
    },
    Part {
        name: "pairs",
        title: "Taking and releasing, without contention",
        run: pairs::run,
        once: false,
    },
    Part {
        name: "guarded",
        title: "Commands that run while a token is current",
        run: guarded::run,
        once: false,
    },
    Part {
        name: "replicated",
        title: "With a replica and an append-only file",
        run: replicated::run,
        once: false,
    },
    Part {
        name: "foreign",
        title: "What the module costs other clients",
        run: foreign::run,
        once: false,
    },
    Part {
        name: "fanout",
        title: "Notifying thousands of watchers",
        run: fanout::run,
        once: false,
    },
    Part {
        name: "memory",
        title: "Memory",
        run: memory::run,
        once: false,
    },
    Part {
        name: "death",
        title: "When owners die",
        run: death::run,
        once: false,
    },
    Part {
        name: "hostile",
        title: "When a client means harm",
        run: hostile::run,
        once: false,
    },
    Part {
        name: "curve",
        title: "From ten to sixty thousand",
        run: hostile::curve::run,
        once: true,
    },
    Part {
        name: "loading",
        title: "Starting again",
        run: loading::run,
        once: false,
    },
    Part {
        name: "scale",
        title: "From one to a million",
        run: scale::run,
        once: true,
    },
    Part {
        name: "waiters",
        title: "Short and long queues",
        run: waiters::run,
        once: false,
    },
    Part {
        name: "bare",
        title: "The cost of the module API",
        run: bare::run,
        once: false,
    },
    Part {
        name: "instructions",
        title: "Instructions",
        run: instructions::run,
        once: false,
    },
];
