//! What replicas and the append-only file are told.

use crate::engine::{Db, GrantRecord, SessionRecord, TOKENS, Token, mode_word};
use crate::policy::release;
use crate::shell::sys::raw::calls::{api, assert_own_execution_unit, hot};
use crate::shell::sys::raw::context::Ctx;
use crate::shell::sys::raw::strings::{Str, Text, c_string, pointers_of};
use std::iter;

/// Who is told.
#[derive(Clone, Copy)]
pub enum Target {
    /// The append-only file alone.
    File,
    /// Replicas and the append-only file.
    All,
}

impl Ctx<'_> {
    /// Replicates the current command verbatim to replicas and the append-only file.
    pub fn replicate_verbatim(self) {
        // SAFETY: the table, the context.
        unsafe { hot!(RedisModule_ReplicateVerbatim(self.as_ptr())) };
    }

    /// Replicates a command for this database.
    pub fn replicate(self, to: Target, db: Db, command: &str, words: &[Str<'_>]) {
        assert_own_execution_unit();
        let format = match to {
            Target::File => c"Rv",
            Target::All => c"v",
        };
        let command = c_string(command);
        // SAFETY: the table, the context; the arguments are as the formats say, and the server counts its references to the
        // strings.
        unsafe {
            api!(RedisModule_Replicate(
                self.in_db(db).as_ptr(),
                command.as_ptr(),
                format.as_ptr(),
                pointers_of(words),
                words.len()
            ));
        }
    }

    fn replicate_words(self, to: Target, db: Db, command: &str, words: &[impl AsRef<[u8]>]) {
        let words: Vec<_> = words.iter().map(|word| Text::new(word.as_ref())).collect();
        let words: Vec<_> = words.iter().map(Text::as_str).collect();
        self.replicate(to, db, command, &words);
    }

    /// A grant made a key of this database: a temporary key with this value, or a lock.
    pub fn replicate_grant(self, db: Db, key: Str<'_>, value: Option<Str<'_>>, grant: GrantRecord) {
        let token = Text::new(grant.token.0.to_string().as_bytes());
        let token = token.as_str();
        match value {
            Some(value) => self.replicate(Target::All, db, "TETHER.SETTP", &[key, token, value]),
            None => {
                let mode = Text::new(&mode_word(grant.mode));
                self.replicate(Target::All, db, "TETHER.LOCK", &[key, token, mode.as_str()]);
            }
        }
    }

    /// A session record; one of no database goes to this one.
    pub fn replicate_record(self, to: Target, db: Db, record: &SessionRecord) {
        let (command, words) = record.words();
        self.replicate_words(to, record.db().unwrap_or(db), command, &words);
    }

    /// These keys are temporary keys.
    pub fn log_bound(self, db: Db, keys: &[Text]) {
        let keys: Vec<_> = keys.iter().map(Text::as_str).collect();
        self.replicate(Target::File, db, "TETHER.BOUND", &keys);
    }

    /// Tokens up to this one have been issued, and the version of this module.
    pub fn replicate_token(self, to: Target, token: Token) {
        self.replicate_token_with(to, token, &[]);
    }

    /// The same, with the tokens of the keys of the next [`log_bound`](Self::log_bound).
    pub fn log_tokens(self, token: Token, packed: &[u8]) {
        self.replicate_token_with(Target::File, token, &[TOKENS, packed]);
    }

    fn replicate_token_with(self, to: Target, token: Token, more: &[&[u8]]) {
        let token = token.0.to_string();
        let words = iter::once(&*token).chain(release::WORDS);
        let words = words.map(str::as_bytes).chain(more.iter().copied());
        let words: Vec<_> = words.collect();
        self.replicate_words(to, self.db(), "TETHER.TOKEN", &words);
    }

    /// The end of a key's backstop TTL, or its removal.
    pub fn replicate_ttl(self, db: Db, key: Str<'_>, end_ms: Option<i64>) {
        match end_ms.map(|ms| Text::new(ms.to_string().as_bytes())) {
            Some(ms) => self.replicate(Target::All, db, "TETHER.RENEW", &[key, ms.as_str()]),
            None => self.replicate(Target::All, db, "PERSIST", &[key]),
        }
    }
}
