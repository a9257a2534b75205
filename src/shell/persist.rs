//! What RDB files say beside the keys: which of them are temporary keys, the last token given, and all of sessions.
//!
//! Locks of connections need no mention: their type tells (see `locktype.rs`). Where nothing is bound nothing is
//! written, so that a server without the module can load the file; Redis 7.0 offers no way for that.

use super::dispatch::tell;
use super::guard::guard;
use super::observe;
use super::pack::{self, Pack};
use super::raw::{self, Ctx, api, have};
use super::state::shell;
use crate::command::told;
use crate::engine::{Db, Event, Key, Mode, Token, Told};
use redis_module::raw as c;
use std::ffi::{c_char, c_int};
use std::ops::Deref;

/// Of what is written here and of the values of locks. When you change the form, raise it, and go on reading the former
/// ones: 0 has no sessions, 0 and 1 have the names of keys one by one.
pub const ENCODING: c_int = 2;

/// Adds saving and loading to the methods of the lock type.
pub fn add_to(methods: &mut c::RedisModuleTypeMethods) {
    methods.aux_load = Some(load);
    methods.aux_save_triggers = c::REDISMODULE_AUX_AFTER_RDB as c_int;
    if have!(RedisModule_CommandFilterGetClientId) {
        methods.aux_save2 = Some(save);
    } else {
        methods.aux_save = Some(save);
    }
}

unsafe extern "C" fn save(io: *mut c::RedisModuleIO, _when: c_int) {
    guard((), || {
        // Saved by a child process, which has the engine as it was when it was born.
        let Ok(engine) = shell().engine.try_borrow() else {
            return;
        };
        let count = engine.temporary_keys().count();
        let told: Vec<_> = engine.all_told(raw::now()).collect();
        if count + told.len() == 0 && have!(RedisModule_CommandFilterGetClientId) {
            return;
        }
        // SAFETY: the table, the server's argument; names are copied.
        unsafe {
            api!(RedisModule_SaveUnsigned(io, engine.last_token().0));
            api!(RedisModule_SaveUnsigned(io, count as u64));
            save_keys(io, engine.temporary_keys());
            api!(RedisModule_SaveUnsigned(io, told.len() as u64));
            for said in &told {
                save_told(io, said);
            }
        }
    });
}

/// # Safety
/// The file is the one that the server is saving to.
unsafe fn save_told(io: *mut c::RedisModuleIO, said: &Told) {
    let (name, words) = told::words_of(said);
    let db = told::db_of(said).unwrap_or(Db(0));
    // SAFETY: the table, the caller.
    unsafe {
        api!(RedisModule_SaveUnsigned(io, db.0.into()));
        api!(RedisModule_SaveUnsigned(io, words.len() as u64));
        save_bytes(io, name.as_bytes());
        for word in &words {
            save_bytes(io, word);
        }
    }
}

/// # Safety
/// As in [`save_told`].
unsafe fn save_bytes(io: *mut c::RedisModuleIO, bytes: &[u8]) {
    let start = bytes.as_ptr().cast::<c_char>();
    // SAFETY: the table, the caller; the bytes are copied.
    unsafe { api!(RedisModule_SaveStringBuffer(io, start, bytes.len())) };
}

/// # Safety
/// As in [`save_told`].
unsafe fn save_keys<'a>(io: *mut c::RedisModuleIO, keys: impl Iterator<Item = Key<'a>>) {
    let mut pack = Pack::default();
    for key in keys {
        pack.push(key);
        if pack.is_full() {
            // SAFETY: the caller.
            unsafe { save_bytes(io, pack.bytes()) };
            pack.clear();
        }
    }
    if !pack.is_empty() {
        // SAFETY: the caller.
        unsafe { save_bytes(io, pack.bytes()) };
    }
}

unsafe extern "C" fn load(io: *mut c::RedisModuleIO, encoding: c_int, _when: c_int) -> c_int {
    let err = c::REDISMODULE_ERR as c_int;
    if encoding > ENCODING {
        return err;
    }
    guard(err, || {
        // SAFETY: the table, the server's argument. A file that is cut short ends the load inside.
        let number = || unsafe { api!(RedisModule_LoadUnsigned(io)) };
        let (token, count) = (Token(number()), number());
        let Some(ctx) = shell().detached() else {
            return err;
        };
        let now = raw::now();
        let mut effects = Vec::new();
        // Nothing below calls us back, so one borrowing is enough for a million keys.
        let mut engine = shell().engine.borrow_mut();
        engine.know_token(token);
        // Not more than a file can mean.
        engine.make_room(count.min(1 << 24) as usize);
        // SAFETY: the server's argument.
        let all = unsafe {
            load_keys(io, encoding, count, |keys| {
                engine.inherit(now, keys, &mut effects);
            })
        };
        if !all {
            ctx.log(
                c"warning",
                "the RDB file has names of keys that make no sense",
            );
            return err;
        }
        let told = if encoding > 0 { number() } else { 0 };
        for _ in 0..told {
            let (db, count) = (Db(number() as u32), number());
            // SAFETY: the server's argument.
            let words: Vec<_> = (0..=count).map(|_| unsafe { Loaded::new(io) }).collect();
            let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
            let name = std::str::from_utf8(words[0]).unwrap_or_default();
            let Some(said) = told::told(name, db, &words[1..]) else {
                ctx.log(
                    c"warning",
                    "the RDB file says something of a session that makes no sense",
                );
                return err;
            };
            engine.handle(now, Event::Told(&said), &mut effects);
        }
        if count + told > 0 {
            // What becomes of them matters from now on.
            observe::subscribe(ctx);
        }
        // What is loaded is told to nobody before all of it is there.
        debug_assert!(effects.is_empty());
        c::REDISMODULE_OK as c_int
    })
}

/// Whether the names of all the keys were there.
///
/// # Safety
/// The file is the one that the server is loading.
unsafe fn load_keys(
    io: *mut c::RedisModuleIO,
    encoding: c_int,
    count: u64,
    mut take_in: impl FnMut(&[Key<'_>]),
) -> bool {
    let mut left = count;
    while left > 0 && encoding < 2 {
        // SAFETY: the table, the caller.
        let (db, name) = unsafe { (api!(RedisModule_LoadUnsigned(io)), Loaded::new(io)) };
        let db = Db(db as u32);
        take_in(&[Key { db, name: &name }]);
        left -= 1;
    }
    while left > 0 {
        // SAFETY: the caller.
        let pack = unsafe { Loaded::new(io) };
        let mut bytes = &*pack;
        let keys: Vec<_> = std::iter::from_fn(|| pack::take_first(&mut bytes)).collect();
        take_in(&keys);
        left = left.saturating_sub(keys.len() as u64);
        if pack.is_empty() || !bytes.is_empty() {
            return false;
        }
    }
    true
}

/// Bytes of the file.
struct Loaded(&'static [u8]);

impl Loaded {
    /// # Safety
    /// The file is the one that the server is loading.
    unsafe fn new(io: *mut c::RedisModuleIO) -> Self {
        let mut length = 0;
        // SAFETY: the table, the caller; what is loaded is ours until it is freed, with this.
        unsafe {
            let start = api!(RedisModule_LoadStringBuffer(io, &raw mut length));
            Loaded(std::slice::from_raw_parts(start.cast::<u8>(), length))
        }
    }
}

impl Deref for Loaded {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: the table; made by `new` and freed once.
        unsafe { api!(RedisModule_Free(self.0.as_ptr().cast_mut().cast())) };
    }
}

/// A key in the file belonged to a connection of the server that wrote it.
pub fn inherited(ctx: Ctx<'_>, db: Db, name: &[u8], mode: Mode) {
    let key = Key { db, name };
    // What becomes of it matters from now on.
    observe::subscribe(ctx);
    tell(ctx, Event::Inherited { key, mode });
}

/// A session, or what it holds, on the server that wrote the file or the stream.
pub fn told(ctx: Ctx<'_>, said: &Told) {
    observe::subscribe(ctx);
    tell(ctx, Event::Told(said));
}
