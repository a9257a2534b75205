//! What the session still holds on another server than before, and no want claims.
//!
//! A server that fails may lose a release that it has answered: it was not in its files yet, or not at the replica that is
//! promoted. The session then holds the key for as long as the client lives, and the client does not know of it.
//!
//! - After a resume on a server with another run ID, LOCK.LIST says which keys the session holds, page by page, and LOCK.INFO
//!   the label and token of each hold. What no want claims is released.
//! - A hold is claimed by its token. A grant that the server made before it replied to LOCK.INFO has been handled when that reply
//!   is. A want of the same key and label that is on the wire may be granted before the release arrives: then nothing is
//!   released, and the search begins again after the next ping.
//! - An error ends the search: a user may have no right to look. Until a search has found everything in order, the next resume
//!   begins another.

use super::want::{Command, Phase};
use super::words::{Reply, Search, Tag};
use super::{Core, refusals};

/// So many keys for each LOCK.LIST.
const KEYS_AT_ONCE: &str = "100";

/// So many holders of a key are looked at, the oldest first.
const HOLDERS: &str = "1000";

const TEMPORARY: &[u8] = b"temporary-key";

#[derive(Default)]
pub struct Unclaimed {
    /// The server on which nothing is unclaimed; None where nobody asks for that.
    clean_on: Option<Vec<u8>>,
    progress: Progress,
    /// The last search on this connection left something for another.
    is_due: bool,
}

/// How far a search is.
#[derive(Default)]
struct Progress {
    run_id: Vec<u8>,
    client: u64,
    cursor: Vec<u8>,
    /// Commands about the keys of one page.
    unanswered: usize,
    /// Something cannot be released now.
    is_left: bool,
}

/// Who has a hold that the server knows.
#[derive(PartialEq, Eq)]
enum Claim {
    Nobody,
    /// A want holds it, or releases it already.
    Want,
    /// A want may be granted the lock before a release arrives.
    Unclear,
}

impl Core {
    /// The session began on the server with this run ID: on another one, look for what no want claims.
    pub fn began_on(&mut self, run_id: Vec<u8>) {
        self.unclaimed.clean_on = Some(run_id);
    }

    /// On a new connection of the session.
    pub(super) fn search_anew(&mut self) {
        self.unclaimed.is_due = false;
        self.unclaimed.progress = Progress::default();
        if self.unclaimed.clean_on.is_some() {
            self.send(Tag::Search(Search::Server), Command::new("LOCK.SERVER"));
        }
    }

    /// A ping was answered.
    pub(super) fn search_the_rest(&mut self) {
        if std::mem::take(&mut self.unclaimed.is_due) {
            self.list_next(b"0".to_vec());
        }
    }

    pub(super) fn searched(&mut self, step: Search, reply: Reply) {
        match (step, reply) {
            (Search::Released, reply) => self.disowned(&reply),
            // Whoever may not look has what it had without that.
            (_, Reply::Error(_)) => {}
            (Search::Server, reply) => self.found_server(&reply),
            (Search::Client, Reply::Number(client)) => {
                self.unclaimed.progress.client = client;
                self.list_next(b"0".to_vec());
            }
            (Search::Page, reply) => self.inspect_page(&reply),
            (Search::Holders(key), reply) => self.inspected(&key, &reply),
            (Search::Client, _) => {}
        }
    }

    fn found_server(&mut self, reply: &Reply) {
        let Some(Reply::Text(run_id)) = reply.field("run-id") else {
            return;
        };
        if self.unclaimed.clean_on.as_ref() == Some(run_id) {
            return;
        }
        self.unclaimed.progress.run_id.clone_from(run_id);
        let command = Command::new("CLIENT").with("ID");
        self.send(Tag::Search(Search::Client), command);
    }

    fn list_next(&mut self, cursor: Vec<u8>) {
        let client = self.unclaimed.progress.client.to_string();
        let command = Command::new("LOCK.LIST").with(cursor);
        let command = command.with("CLIENT").with(client);
        let command = command.with("COUNT").with(KEYS_AT_ONCE);
        self.send(Tag::Search(Search::Page), command);
    }

    fn inspect_page(&mut self, reply: &Reply) {
        let [Reply::Text(cursor), Reply::Many(lines)] = reply.items() else {
            return;
        };
        let progress = &mut self.unclaimed.progress;
        progress.cursor.clone_from(cursor);
        progress.unanswered = 1; // This one.
        let own = Reply::Number(progress.client);
        for line in lines {
            let holders = line.field("holders").map_or(&[][..], Reply::items);
            if let Some(Reply::Text(key)) = line.field("key")
                && holders.contains(&own)
            {
                let command = Command::new("LOCK.INFO").with(key);
                let command = command.with("COUNT").with(HOLDERS);
                self.search(Search::Holders(key.clone()), command);
            }
        }
        self.one_answered();
    }

    fn inspected(&mut self, key: &[u8], reply: &Reply) {
        let is_temporary = reply.field("kind") == Some(&Reply::Text(TEMPORARY.into()));
        let holders = reply.field("holders").map_or(&[][..], Reply::items);
        let own = Reply::Number(self.unclaimed.progress.client);
        for holder in holders {
            if let Some(Reply::Text(label)) = holder.field("label")
                && let Some(Reply::Number(token)) = holder.field("token")
                && holder.field("client") == Some(&own)
            {
                match self.claim(key, label, *token, is_temporary) {
                    Claim::Want => {}
                    Claim::Unclear => self.unclaimed.progress.is_left = true,
                    Claim::Nobody if is_temporary => {
                        self.search(Search::Released, Command::new("DELTP").with(key));
                    }
                    Claim::Nobody => {
                        let command = Command::new("LOCK.RELEASE").with(key);
                        let command = command.with("OWNER").with(label).with("ALL");
                        self.search(Search::Released, command);
                    }
                }
            }
        }
        self.one_answered();
    }

    fn claim(&self, key: &[u8], label: &[u8], token: u64, is_temporary: bool) -> Claim {
        let ids = self.places.get(&(key.to_vec(), label.to_vec()));
        let Some(first) = ids.and_then(|ids| ids.front()) else {
            return Claim::Nobody;
        };
        let want = &self.wants[first];
        let has_token = want.token == token || want.raising == Some(token);
        match want.phase {
            Phase::Queued => Claim::Nobody,
            _ if want.request.is_temporary() != is_temporary => Claim::Unclear,
            _ if want.is_leaving() => Claim::Want,
            Phase::Held if has_token => Claim::Want,
            _ => Claim::Unclear,
        }
    }

    fn disowned(&mut self, reply: &Reply) {
        if let Reply::Error(error) = reply
            && !refusals::is_not_held(error)
        {
            // It may be taken later (NOREPLICAS), but not from a user without the right.
            self.unclaimed.progress.is_left |= !error.starts_with("NOPERM");
        }
        self.one_answered();
    }

    /// Sends a command about a key of this page.
    fn search(&mut self, step: Search, command: Command) {
        self.unclaimed.progress.unanswered += 1;
        self.send(Tag::Search(step), command);
    }

    fn one_answered(&mut self) {
        let progress = &mut self.unclaimed.progress;
        progress.unanswered = progress.unanswered.saturating_sub(1);
        if progress.unanswered > 0 {
            return;
        }
        let cursor = std::mem::take(&mut progress.cursor);
        if cursor != b"0" {
            self.list_next(cursor);
        } else if std::mem::take(&mut progress.is_left) {
            self.unclaimed.is_due = true;
        } else {
            self.unclaimed.clean_on = Some(progress.run_id.clone());
        }
    }
}
