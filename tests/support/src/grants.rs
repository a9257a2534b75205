//! What clients were told of grants while masters were replaced, and the order in which it must stand.

use std::time::Instant;

/// A key was granted: by whom, and between which moments.
#[derive(Debug)]
pub struct Grant {
    pub token: i64,
    pub port: u16,
    pub asked: Instant,
    pub told: Instant,
}

/// Looks at all the grants of some time, in which these servers were masters one after the other (on a busy machine
/// Sentinels may have had another one between them): their tokens are greater than `former`, no two of them are the same,
/// those of one master are in the order of time, and those of the next master are greater, also than what the former one
/// gave when it was replaced already. The greatest.
pub fn assert_rising(mut grants: Vec<Grant>, masters: &[u16], former: i64) -> i64 {
    grants.sort_by_key(|grant| grant.token);
    let first = grants.first().expect("a grant");
    assert!(first.token > former, "{first:?} after the token {former}");
    for pair in grants.windows(2) {
        assert!(pair[0].token < pair[1].token, "twice the same: {pair:?}");
    }
    let mut ports: Vec<_> = grants.iter().map(|grant| grant.port).collect();
    ports.dedup();
    let ends = [ports.first(), ports.last()];
    assert_eq!(ends, [masters.first(), masters.last()], "{ports:?}");
    ports.retain(|port| masters.contains(port));
    assert_eq!(ports, masters, "whose tokens they are, in their order");
    // From the last on, the one of those behind it that was told first.
    let mut next: Option<&Grant> = None;
    for grant in grants.iter().rev() {
        let later = next.filter(|next| next.port == grant.port);
        if let Some(later) = later {
            assert!(grant.asked <= later.told, "{later:?} came before {grant:?}");
        }
        next = match later {
            Some(later) if later.told < grant.told => Some(later),
            _ => Some(grant),
        };
    }
    grants.last().map_or(former, |grant| grant.token)
}
