//! The module's commands, as the shell tells the engine of them.

use crate::machine::{Machine, Thing};
use crate::model::command::{
    Ask, Command, LABELS, Mode as Way, Name, Raised, Spot, Who, is_notified,
};
use crate::model::replies::{Reply, Tokens};
use crate::model::sequence;
use crate::model::sessions::Number;
use crate::words::{key_of, prefix_of};
use std::num::NonZeroU32;
use tether::engine::{
    Acquire, AskedAcks, Attributes, ClientId, Digest, Event, Form, Key, KeySnapshot, Mode, Raise,
    SequenceName, SessionId, SessionRecord, Start, Terms, Token, Wait, WatchPrefix,
};

impl Machine {
    pub(super) fn command(
        &mut self,
        who: Who,
        db: usize,
        command: &Command,
        tokens: &Tokens,
    ) -> Result<Reply, String> {
        let client = self.id(who).expect("only connections send commands");
        assert!(!self.is_blocked(who), "who stands still says nothing");
        match self.in_exec {
            true => self.gives_back = Some(client),
            false => self.turn = Some(client),
        }
        if command.is_write() && self.engine.deadline().is_some_and(|end| end <= self.now) {
            let keys = command.named().iter().map(|name| key_of(db, *name));
            let keys = &keys.collect::<Vec<_>>();
            self.tell(None, Event::LapseOf { keys });
        }
        match command {
            Command::Settp {
                key,
                token,
                notify,
                task,
                wait,
                acks,
                ..
            } => {
                let form = match token {
                    true => Form::SettpToken,
                    false => Form::Settp,
                };
                let (notify, task, wait, acks) = (*notify, *task, *wait, *acks);
                let ask = Ask {
                    notify,
                    task,
                    wait,
                    acks,
                    ..Ask::default()
                };
                self.acquire(who, db, &[*key], Mode::Temporary, form, ask);
            }
            Command::Sequence {
                key, notify, acks, ..
            } => {
                let (notify, acks) = (*notify, *acks);
                let ask = Ask {
                    notify,
                    acks,
                    ..Ask::default()
                };
                self.make_next(who, db, *key, ask);
            }
            Command::Acquire { key, mode, ask } => {
                self.acquire(who, db, &[*key], mode_of(*mode), Form::Lock, *ask);
            }
            Command::Macquire { keys, ask } => {
                self.acquire(who, db, keys, Mode::Exclusive, Form::Lock, *ask);
            }
            Command::Raise { key, label, to } => {
                let last = tokens.greatest().max(self.engine.last_token().0 as i64);
                self.raise(client, (key_of(db, *key), LABELS[*label]), (*to, last));
            }
            other => self.request(client, db, other),
        }
        let reply = self.reply.take().expect("each command is answered");
        self.see_reply(who, command, &reply);
        self.end_turn(who);
        self.line(client).expect("it is there").blocked = reply == Reply::Blocked;
        match reply {
            Reply::Refused(what) if what.starts_with('!') => Err(what),
            reply => Ok(reply),
        }
    }

    /// A command that asks for no key.
    fn request(&mut self, client: ClientId, db: usize, command: &Command) {
        match command {
            Command::Release { key, label, all } => {
                let (key, label, all) = (key_of(db, *key), LABELS[*label], *all);
                let release = Event::Release {
                    client,
                    key,
                    label,
                    all,
                };
                self.tell(None, release);
            }
            Command::Extend {
                key,
                label,
                lease_ms,
            } => {
                let (key, label, lease_ms) = (key_of(db, *key), LABELS[*label], *lease_ms);
                self.tell(
                    None,
                    Event::Extend {
                        client,
                        key,
                        label,
                        lease_ms,
                    },
                );
            }
            Command::Cancel { key, label } => {
                let (key, label) = (key_of(db, *key), LABELS[*label]);
                self.tell(None, Event::Cancel { client, key, label });
            }
            Command::Deltp { keys } => {
                let keys: Vec<Key<'_>> = keys.iter().map(|name| key_of(db, *name)).collect();
                let keys = &keys;
                self.tell(None, Event::Drop { client, keys });
            }
            Command::Watchex { keys } => {
                self.hears_of_new = true;
                let looks = keys.iter().map(|name| self.look(Spot { db, name: *name }));
                let seen: Vec<KeySnapshot<'_>> = looks.collect();
                let seen = &seen;
                self.tell(None, Event::Watch { client, seen });
            }
            Command::Unwatchex { keys } => {
                let keys: Vec<Key<'_>> = keys.iter().map(|name| key_of(db, *name)).collect();
                self.take_back(client, &keys);
                self.tell(
                    None,
                    match &keys[..] {
                        [] => Event::UnwatchAll { client },
                        keys => Event::Unwatch { client, keys },
                    },
                );
            }
            Command::Watchtp { .. } | Command::Unwatchtp { .. } => {
                self.about_prefixes(client, db, command);
            }
            about_sessions => self.about_sessions(client, about_sessions),
        }
    }

    fn about_prefixes(&mut self, client: ClientId, db: usize, command: &Command) {
        match command {
            Command::Watchtp { .. } if self.in_exec => {
                let refusal = "ERR WATCHTP cannot be used in a transaction";
                self.answer_once(Reply::refused(refusal));
            }
            Command::Watchtp {
                prefix,
                goes_on,
                keys_only,
            } => {
                let (goes_on, keys_only) = (*goes_on, *keys_only);
                let prefix = prefix_of(db, *prefix);
                let sight = 0;
                let watch = WatchPrefix {
                    client,
                    prefix,
                    goes_on,
                    keys_only,
                    sight,
                    at_most: usize::MAX,
                };
                self.tell(None, Event::WatchPrefix(watch));
            }
            Command::Unwatchtp { prefix } => {
                let prefix = prefix.map(|prefix| prefix_of(db, prefix));
                self.tell(None, Event::UnwatchPrefix { client, prefix });
            }
            other => unreachable!("{other:?} is about no prefix"),
        }
    }

    /// The clock is where the last token is.
    fn raise(
        &mut self,
        client: ClientId,
        (key, label): (Key<'_>, &[u8]),
        (to, last): (Raised, i64),
    ) {
        const A_DAY: u64 = 86_400 << 22;
        let last = last as u64;
        let token = match to {
            Raised::Least => 0,
            Raised::Above(more) => last + u64::from(more),
            Raised::TooFar => last + A_DAY + 1,
        };
        let raise = Raise {
            client,
            key,
            label,
            token: Token(token),
            most: Token(last + A_DAY),
        };
        self.tell(None, Event::Raise(raise));
    }

    fn about_sessions(&mut self, client: ClientId, command: &Command) {
        match command {
            Command::Start { grace_ms } => self.start_session(client, *grace_ms),
            Command::Resume { session, notify } => {
                let (digest, notify) = (digest_of(*session), *notify);
                let resume = Event::Resume {
                    client,
                    digest,
                    notify,
                };
                self.tell(None, resume);
            }
            Command::EndSession => {
                let later = false;
                self.tell(None, Event::EndSession { client, later });
            }
            Command::Detach => self.tell(None, Event::Detach { client }),
            Command::KillSession { session } => {
                let (session, later) = (self.session_id(*session), false);
                self.tell(None, Event::KillSession { session, later });
            }
            other => unreachable!("{other:?} is not the module's"),
        }
    }

    /// A session's secret is its number.
    /// The id that the engine gave a session; one that no session has where it is over.
    fn session_id(&self, session: Number) -> SessionId {
        let digest = digest_of(session);
        let mut records = self.engine.session_records(self.now);
        let id = records.find_map(|record| match record {
            SessionRecord::Session {
                id, digest: its, ..
            } if its == digest => Some(id),
            _ => None,
        });
        id.unwrap_or(SessionId(0))
    }

    fn start_session(&mut self, client: ClientId, grace_ms: u64) {
        let secret = self.started.to_string();
        let (secret, digest) = (secret.as_bytes(), digest_of(self.started));
        let start = Start {
            client,
            secret,
            digest,
            grace_ms,
            user: b"",
        };
        self.tell(None, Event::Start(start));
        self.started += u64::from(matches!(self.reply, Some(Reply::Secret(_))));
    }

    /// As the shell does, where nobody has made the next name.
    fn make_next(&mut self, who: Who, db: usize, key: Name, ask: Ask) {
        let token = self.engine.next_token_of_sequence();
        let name = SequenceName::new(sequence::bytes_of(key), token);
        let made = sequence::made(self.sequences, key);
        assert!(sequence::learn(made, name.bytes(), token.0 as i64));
        self.acquire(who, db, &[made], Mode::Temporary, Form::Sequence, ask);
        let is_made = matches!(self.reply, Some(Reply::Array(_) | Reply::Blocked));
        self.sequences += usize::from(is_made);
    }

    fn acquire(&mut self, who: Who, db: usize, keys: &[Name], mode: Mode, form: Form, ask: Ask) {
        // As the shell does.
        if ask.acks.is_some() && self.in_exec {
            let refused = "ERR option ACKS cannot be used in a transaction";
            self.reply = Some(Reply::refused(refused));
            return;
        }
        let client = self.id(who).expect("only connections send commands");
        let looks = keys.iter().map(|name| self.look(Spot { db, name: *name }));
        let seen: Vec<KeySnapshot<'_>> = looks.collect();
        let wait = ask.wait.filter(|_| !self.in_exec).map(|wait| Wait {
            limit_ms: (wait.limit_ms > 0).then_some(wait.limit_ms),
            push: wait.push,
        });
        self.hears_of_new |= wait.is_some();
        // The shell has a single key open, as it does for all but LOCK.MACQUIRE.
        let in_command = keys.len() == 1;
        let ask = Acquire {
            client,
            seen: &seen,
            terms: Terms {
                mode,
                attributes: Attributes {
                    reentrant: ask.reentrant,
                    notify: is_notified(ask.notify, ask.wait),
                },
                label: LABELS[ask.label],
                task: ask.task.map(|task| LABELS[task]),
                lease_ms: ask.lease_ms,
                acks: ask.acks.map(|acks| AskedAcks {
                    replicas: NonZeroU32::new(acks.replicas).expect("at least one"),
                    timeout_ms: acks.timeout_ms as u32,
                }),
            },
            value: b"",
            wait,
            form,
            in_command,
        };
        let spot = Spot { db, name: keys[0] };
        let thing = Thing {
            is_lock: mode.is_lock(),
            expires: false,
        };
        self.tell(in_command.then_some((spot, thing)), Event::Acquire(ask));
    }
}

fn digest_of(session: Number) -> Digest {
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&session.to_le_bytes());
    Digest(digest)
}

fn mode_of(way: Way) -> Mode {
    match way {
        Way::Temporary => Mode::Temporary,
        Way::Exclusive => Mode::Exclusive,
        Way::Shared => Mode::Shared,
        Way::Permits { count, total } => Mode::Permits { count, total },
    }
}
