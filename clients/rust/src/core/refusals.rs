//! What the server's errors mean, and what is sent again for them.

use super::want::Phase;
use super::words::{Reply, Tag};
use super::{Core, Id};
use crate::backoff;
use crate::clock::BootTime;
use crate::error::Error;
use std::collections::BTreeSet;

/// Whether the server does nothing for anybody at the moment, in an error's text or its code.
pub fn is_for_now(error: &str) -> bool {
    let codes = ["BUSY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"];
    codes.contains(&code(error))
}

/// Whether it writes nothing at the moment: no replica, no disk, no memory.
pub fn is_unwritable(error: &str) -> bool {
    ["NOREPLICAS", "MISCONF", "OOM"].contains(&code(error))
}

/// Whether it is no master any more.
pub fn is_elsewhere(error: &str) -> bool {
    ["READONLY", "UNBLOCKED"].contains(&code(error))
}

pub fn is_not_held(error: &str) -> bool {
    code(error) == "NOTHELD"
}

pub fn refusal(error: String) -> Error {
    match code(&error) {
        "DEADLOCK" => Error::Deadlock(error),
        _ => Error::Refused(error),
    }
}

fn code(error: &str) -> &str {
    error.split(' ').next().unwrap_or_default()
}

/// What is sent again, all at one time.
pub struct Retries {
    tags: Vec<Tag>,
    due: BootTime,
    failed: u32,
}

impl Default for Retries {
    fn default() -> Retries {
        Retries {
            tags: Vec::new(),
            due: BootTime::NEVER,
            failed: 0,
        }
    }
}

impl Retries {
    pub fn due(&self) -> BootTime {
        self.due
    }

    /// The server has done what it refused before.
    pub fn succeeded(&mut self) {
        self.failed = 0;
    }
}

impl Core {
    /// Sends this again after a while.
    pub(super) fn try_again(&mut self, tag: Tag) {
        let retries = &mut self.retries;
        if retries.tags.is_empty() {
            let delay = backoff::delay(retries.failed, self.now.0, backoff::LONGEST);
            retries.due = self.now + delay;
            retries.failed = retries.failed.saturating_add(1);
        }
        retries.tags.push(tag);
    }

    /// What is due of it.
    pub(super) fn send_again(&mut self) {
        if self.now < self.retries.due {
            return;
        }
        self.retries.due = BootTime::NEVER;
        let mut taken_back = BTreeSet::new();
        for tag in std::mem::take(&mut self.retries.tags) {
            match tag {
                Tag::Asked(id) => self.send_if_first(id),
                Tag::Released(id) | Tag::Cancelled(id) if taken_back.insert(id) => {
                    self.take_back_again(id);
                }
                Tag::Looked(id, key, reason) if self.is_in(id, &[Phase::Held]) => {
                    let command = self.wants[&id].about("LOCK.CANCEL", &key);
                    self.send(Tag::Looked(id, key, reason), command);
                }
                Tag::Resumed(id) if self.is_in(id, &[Phase::Asked, Phase::Waiting]) => {
                    let command = self.wants[&id].cancel();
                    self.send(Tag::Resumed(id), command);
                }
                Tag::Watched(key) => self.send_watch(key),
                _ => {}
            }
        }
    }

    /// Whatever of it the server took back already.
    fn take_back_again(&mut self, id: Id) {
        if let Some(want) = self.wants.get_mut(&id) {
            want.is_given_up = true;
            self.send_withdrawal(id);
        }
    }

    fn is_in(&self, id: Id, phases: &[Phase]) -> bool {
        let want = self.wants.get(&id);
        want.is_some_and(|want| !want.is_given_up && phases.contains(&want.phase))
    }

    /// A question or a watch that the server did not answer for the moment is put off; what is on its way to another server is
    /// asked there.
    pub(super) fn unless_put_off(&mut self, tag: Tag, reply: Reply) -> Option<(Tag, Reply)> {
        let is_question = matches!(tag, Tag::Looked(..) | Tag::Resumed(_) | Tag::Watched(_));
        match &reply {
            Reply::Error(error) if is_question && self.goes_on && is_elsewhere(error) => {
                self.is_misplaced = true;
                None
            }
            Reply::Error(error) if is_question && is_for_now(error) => {
                self.try_again(tag);
                None
            }
            _ => Some((tag, reply)),
        }
    }
}
