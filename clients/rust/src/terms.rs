//! What a connection must be like to be relied on, and how one begins.

use crate::core::{is_for_now, is_unwritable};
use crate::error::Error;
use crate::line::Line;
use crate::timing::{self, Unfit};
use std::time::Duration;

/// How long to try for a connection, once.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The peer of a Unix socket cannot vanish. What is left is a server that does not answer, and this is as long to wait for it as
/// with other sockets by default.
const LOCAL_PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// The times that were given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    pub grace: Option<Duration>,
    pub fence: Option<Duration>,
    pub stop_within: Duration,
}

/// What a connection has.
pub struct Begun {
    pub fence: Duration,
    pub secret: Option<String>,
    pub run_id: Vec<u8>,
}

impl Terms {
    /// Checks that server and times fit together, and begins a session where there is a grace.
    pub async fn begin(&self, line: &mut Line) -> Result<Begun, Error> {
        let server = line.server().await?;
        let most = match self.grace {
            Some(grace) => timing::fence(grace, self.stop_within)?,
            None => {
                let local = line.is_local.then_some(LOCAL_PEER_TIMEOUT);
                let peer_timeout = server.peer_timeout.or(local);
                timing::fence_without_session(peer_timeout, self.stop_within)?
            }
        };
        let fence = self.fence.unwrap_or(most);
        if fence > most || fence < timing::SHORTEST_FENCE {
            return Err(Unfit::Fence { fence, most }.into());
        }
        let secret = match self.grace {
            Some(grace) => Some(line.start_session(grace).await?),
            None => None,
        };
        Ok(Begun {
            fence,
            secret,
            run_id: server.run_id,
        })
    }
}

/// For who had a connection before: that the server writes nothing for a moment passes.
pub fn or_passing(error: Error) -> Error {
    match error {
        Error::Refused(text) if is_for_now(&text) || is_unwritable(&text) => {
            Error::Unreachable(text)
        }
        other => other,
    }
}
