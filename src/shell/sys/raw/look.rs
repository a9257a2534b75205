//! Looks at keys.
//!
//! On a replica a key whose time has come is hidden from readers, but it is there until the master says that it has
//! gone; and the master may have given it more time before that, which is still to come. So there such a key is present:
//! what is told of it agrees with the events that will follow.

use crate::engine::{Db, Key, Standing};
use crate::shell::persistence::lock_type;
use crate::shell::state::shell;
use crate::shell::sys::raw::ask::Answer;
use crate::shell::sys::raw::{Ctx, Str, api, have};
use redis_module::raw;
use std::ffi::c_int;

impl Ctx<'_> {
    /// What stands at a key. A master removes one whose time has come, with its event.
    pub fn standing(self, db: Db, key: Str<'_>) -> Standing {
        if !self.exists(db, key) {
            return self.hidden(db, key);
        }
        let mode = raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH;
        self.in_db(db).open_as(key, mode as c_int).standing()
    }

    /// What stands at a key, without a trace of the look: no key is expired by it. (To expire one in
    /// the middle of a SWAPDB would be told to replicas before the swap.)
    pub fn standing_without_trace(self, db: Db, key: Str<'_>) -> Standing {
        if have!(RedisModule_CommandFilterGetClientId) {
            let mode = raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOEFFECTS;
            return match self.in_db(db).open_as(key, mode as c_int).standing() {
                Standing::Absent => self.hidden(db, key),
                standing => standing,
            };
        }
        if shell().server.get().is_cluster {
            // There is no SWAPDB, and a command of ours would not be let to every key.
            return self.standing(db, key);
        }
        // Redis 7.0 has no such flag.
        let name = key.bytes();
        let known = Key { db, name };
        match self.has(db, key) {
            Some(true) => {
                lock_type::suspect(known);
                shell().engine.with(|engine| engine.stands(known))
            }
            Some(false) => Standing::Absent,
            None => self.standing(db, key),
        }
    }

    /// Whether a key is there. One whose time has come is not.
    fn exists(self, db: Db, key: Str<'_>) -> bool {
        let ctx = self.in_db(db).as_ptr();
        // SAFETY: the table, the context.
        unsafe { api!(RedisModule_KeyExists(ctx, key.as_ptr())) != 0 }
    }

    /// What stands at a key that readers do not find. Its type cannot be had: a lock is where we hold one.
    fn hidden(self, db: Db, key: Str<'_>) -> Standing {
        if !shell().is_replica.get() || self.has(db, key) != Some(true) {
            return Standing::Absent;
        }
        let name = key.bytes();
        shell()
            .engine
            .with(|engine| engine.stands(Key { db, name }))
    }

    /// Whether there is a key, be its time over or not; the look leaves no trace. Nothing where the server does not say:
    /// somebody took the command away (`rename-command`), or in a cluster this is not in a command for the key's slot.
    /// About a microsecond.
    fn has(self, db: Db, key: Str<'_>) -> Option<bool> {
        // In a cluster the context of a replica's reader is let to the key, but a detached one is not.
        let there = if self.db() == db {
            self
        } else {
            self.in_db(db)
        };
        // The one command that looks keys up like that on all servers.
        // SAFETY: the table, the context; the arguments are as the format says.
        let reply = unsafe {
            api!(RedisModule_Call(
                there.as_ptr(),
                c"MEMORY".as_ptr(),
                c"cscc".as_ptr(),
                c"USAGE".as_ptr(),
                key.as_ptr(),
                c"SAMPLES".as_ptr(),
                c"1".as_ptr()
            ))
        };
        Answer::new(reply).map(|answer| answer.is_integer())
    }
}
