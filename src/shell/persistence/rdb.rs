//! What RDB files say beside the keys: which of them are temporary keys, the last token given, and all of sessions.
//!
//! Locks of connections need no mention: their type tells (see `lock_type.rs`). Where nothing is bound nothing is
//! written, so that a server without the module can load the file; Redis 7.0 offers no way for that.

use crate::command::pack::{self, Pack};
use crate::command::session_records;
use crate::engine::{Db, Engine, Event, Key, Mode, SessionRecord, Token};
use crate::shell::bridge::tell::subscribe_and_handle;
use crate::shell::guard::guard;
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{self, Ctx, Damaged, Loading, Saving, have};
use redis_module::raw as c;
use std::ffi::c_int;

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
        // SAFETY: the server's argument, for the length of this call.
        let file = unsafe { Saving::new(io) };
        let now = clock::now();
        // Mostly a child process saves, which has the engine as it was when it was born.
        let (token, (count, packs), mut records) = shell().engine.with(|engine| {
            let records: Vec<_> = engine.session_records(now).collect();
            (
                engine.last_token_given().unwrap_or_default(),
                pack_up(engine),
                records,
            )
        });
        records.retain(|record| {
            session_records::db_of(record).is_none_or(|db| !shell().is_flushed(db))
        });
        if count + records.len() == 0 && have!(RedisModule_CommandFilterGetClientId) {
            return;
        }
        file.number(token.0);
        file.number(count as u64);
        for pack in packs {
            file.bytes(pack.bytes());
        }
        file.number(records.len() as u64);
        for record in &records {
            save_record(file, record);
        }
    });
}

fn save_record(file: Saving<'_>, record: &SessionRecord) {
    let (name, words) = session_records::words_of(record);
    file.number(session_records::db_of(record).unwrap_or(Db(0)).0.into());
    file.number(words.len() as u64);
    file.bytes(name.as_bytes());
    for word in &words {
        file.bytes(word);
    }
}

/// The names of all temporary keys of connections, and their number. The server is called only when this is over: so for
/// that time there is a second copy of the names.
fn pack_up(engine: &Engine) -> (usize, Vec<Pack>) {
    let is_there = |key: &Key<'_>| !shell().is_flushed(key.db);
    let (mut count, mut packs) = (0, Vec::<Pack>::new());
    for key in engine.temporary_keys().filter(is_there) {
        count += 1;
        match packs.last_mut().filter(|last| !last.is_full()) {
            Some(last) => last.push(key),
            None => packs.push(Pack::of(key)),
        }
    }
    (count, packs)
}

unsafe extern "C" fn load(io: *mut c::RedisModuleIO, encoding: c_int, _when: c_int) -> c_int {
    let err = c::REDISMODULE_ERR as c_int;
    if encoding > ENCODING {
        return err;
    }
    guard(err, || {
        // SAFETY: the server's argument, for the length of this call.
        let file = unsafe { Loading::new(io) };
        let Some(ctx) = raw::detached() else {
            return err;
        };
        match take_in(ctx, file, encoding) {
            Ok(()) => c::REDISMODULE_OK as c_int,
            Err(Damaged) => {
                let what = "what the RDB file says of temporary keys and sessions makes no sense";
                ctx.log(c"warning", what);
                err
            }
        }
    })
}

/// While it reads the server attends to others, who have us called: so each piece is read first, and then handed to the engine.
fn take_in(ctx: Ctx<'_>, file: Loading<'_>, encoding: c_int) -> Result<(), Damaged> {
    let token = Token::checked(file.number()?);
    let token = token.filter(|token| token.is_credible(clock::since_1970()));
    let token = token.ok_or(Damaged)?;
    let count = file.number()?;
    if token != Token::default() {
        subscriptions::to_server_events(ctx);
    }
    let now = clock::now();
    let mut effects = Vec::new();
    let engine = &shell().engine;
    engine.with_mut(|engine| {
        engine.apply_token(token);
        // Not more than a file can mean; and memory for no more is taken before they are there.
        engine.make_room(count.min(1 << 20) as usize);
    });
    if count > 0 {
        // What becomes of them matters from now on.
        subscriptions::to_keys(ctx);
    }
    load_keys(ctx, file, encoding, count, |keys| {
        engine.with_mut(|engine| engine.inherit(now, keys, &mut effects));
    })?;
    let records = if encoding > 0 { file.number()? } else { 0 };
    for _ in 0..records {
        let record = load_record(ctx, file)?;
        subscriptions::to_keys(ctx);
        engine.with_mut(|engine| engine.handle(now, Event::SessionRecord(&record), &mut effects));
    }
    // What is loaded is told to nobody before all of it is there.
    debug_assert!(effects.is_empty());
    Ok(())
}

fn load_db(ctx: Ctx<'_>, number: u64) -> Result<Db, Damaged> {
    let db = u32::try_from(number).map(Db).map_err(|_| Damaged)?;
    ctx.has_db(db).then_some(db).ok_or(Damaged)
}

fn load_record(ctx: Ctx<'_>, file: Loading<'_>) -> Result<SessionRecord, Damaged> {
    let db = load_db(ctx, file.number()?)?;
    let count = file.number()?;
    if count > session_records::MOST_WORDS as u64 {
        return Err(Damaged);
    }
    let name = file.bytes()?;
    let words: Result<Vec<_>, _> = (0..count).map(|_| file.bytes()).collect();
    let words = words?;
    let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
    let name = std::str::from_utf8(&name).map_err(|_| Damaged)?;
    let record = session_records::read_record(name, db, &words);
    record.filter(is_credible).ok_or(Damaged)
}

fn load_keys(
    ctx: Ctx<'_>,
    file: Loading<'_>,
    encoding: c_int,
    count: u64,
    mut take_in: impl FnMut(&[Key<'_>]),
) -> Result<(), Damaged> {
    let mut left = count;
    while left > 0 && encoding < 2 {
        let db = load_db(ctx, file.number()?)?;
        let name = file.bytes()?;
        take_in(&[Key { db, name: &name }]);
        left -= 1;
    }
    while left > 0 {
        let pack = file.bytes()?;
        let mut bytes = &*pack;
        let keys: Vec<_> = std::iter::from_fn(|| pack::take_first(&mut bytes)).collect();
        let is_whole = bytes.is_empty() && !keys.is_empty() && keys.len() as u64 <= left;
        let mut dbs = keys.chunk_by(|one, other| one.db == other.db);
        if !is_whole || !dbs.all(|keys| ctx.has_db(keys[0].db)) {
            return Err(Damaged);
        }
        take_in(&keys);
        left -= keys.len() as u64;
    }
    Ok(())
}

/// A key in the file belonged to a connection of the server that wrote it.
pub fn inherited(ctx: Ctx<'_>, db: Db, name: &[u8], mode: Mode) {
    let key = Key { db, name };
    subscribe_and_handle(ctx, Event::Inherited { key, mode });
}

/// Whether a server can have told this by now.
pub fn is_credible(record: &SessionRecord) -> bool {
    match record {
        SessionRecord::Held(held) => held.token.is_credible(clock::since_1970()),
        _ => true,
    }
}

/// A session, or what it holds, on the server that wrote the file or the stream.
pub fn apply_record(ctx: Ctx<'_>, record: &SessionRecord) {
    subscribe_and_handle(ctx, Event::SessionRecord(record));
}
