//! Auxiliary data of RDB files: the temporary keys, the last token issued, and all sessions.
//!
//! ```text
//!   the lowest version that can read it, as a number; then sections: a kind and bytes; then END
//! ```
//!
//! A reader skips unknown kinds if even, and refuses the file if odd. So a new version uses an odd kind for data that must
//! not be ignored. The first section names the writer's version.
//!
//! Locks of connections are not listed: their data type marks them (see `lock_type.rs`). Without temporary keys and
//! sessions nothing is written, so that a server without the module can load the file; on Redis 7.0 that is not possible.

use crate::command::pack::{self, Pack};
use crate::engine::{Engine, Key, Token, read_number, read_token};
use crate::policy::release::{self, Release};
use crate::shell::bridge::recheck;
use crate::shell::guard::guard;
use crate::shell::persistence::{intake, legacy_rdb};
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{self, Ctx, Damaged, RdbReader, RdbWriter, have};
use redis_module::raw as c;
use std::ffi::c_int;

/// Encoding of this data and of lock values. It never changes: changes use new sections.
pub const ENCODING: c_int = 0;

/// Whether lock values of this encoding can be read: in all encodings they are empty.
pub fn has_readable_values(encoding: c_int) -> bool {
    (ENCODING..=legacy_rdb::ENCODING).contains(&encoding)
}

/// Logs input of a later version that begins with what this one cannot read, so that its version is not known.
pub fn refuse_encoding(what: &str, encoding: c_int) {
    let (this, last) = (Release::this(), legacy_rdb::ENCODING);
    let why = format!("has encoding {encoding}; this {this} reads no encoding after {last}");
    if let Some(ctx) = raw::detached() {
        intake::refused_because(ctx, &format!("{what} of a later tether {why}"));
    }
}

/// The first version that can read what this one writes. For a new section that older versions must not skip, use an odd
/// kind; raise this number only if an existing section changes its meaning.
const MIN_READER_VERSION: u64 = 200;

// The kinds of sections.
const END: u64 = 0;
/// The writer's version, as name and value pairs.
const WRITER: u64 = 2;
/// The last token issued, in decimal.
const TOKEN: u64 = 1;
/// The number of temporary keys that follow, in decimal.
const COUNT: u64 = 4;
/// A pack of temporary keys of connections.
const KEYS: u64 = 3;
/// The tokens of the keys of the next pack.
const TOKENS: u64 = 6;
const RECORD: u64 = 5;

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
        let file = unsafe { RdbWriter::new(io) };
        let now = clock::now();
        // Mostly a forked child saves, with the engine's state as of the fork.
        let (token, (count, packs), mut records) = shell().engine.with(|engine| {
            let records: Vec<_> = engine.session_records(now).collect();
            (engine.last_token_given(), pack_keys(engine), records)
        });
        records.retain(|record| record.db().is_none_or(|db| !shell().is_flushed(db)));
        if count + records.len() == 0 && have!(RedisModule_CommandFilterGetClientId) {
            return;
        }
        let section = |kind: u64, bytes: &[u8]| {
            file.number(kind);
            file.bytes(bytes);
        };
        file.number(MIN_READER_VERSION);
        section(WRITER, release::WORDS.join(" ").as_bytes());
        if let Some(token) = token {
            section(TOKEN, token.0.to_string().as_bytes());
        }
        section(COUNT, count.to_string().as_bytes());
        for (pack, tokens) in packs {
            section(TOKENS, &pack::pack_tokens(&tokens));
            section(KEYS, pack.bytes());
        }
        for record in &records {
            section(RECORD, &pack::pack_record(record));
        }
        file.number(END);
    });
}

/// Packs all temporary keys of connections; returns their number. The names are copied, since the server must not be called
/// while the engine is borrowed.
fn pack_keys(engine: &Engine) -> (usize, Vec<(Pack, Vec<Token>)>) {
    let is_there = |(key, _): &(Key<'_>, Token)| !shell().is_flushed(key.db);
    let (mut count, mut packs) = (0, Vec::<(Pack, Vec<Token>)>::new());
    for (key, token) in engine.temporary_keys().filter(is_there) {
        count += 1;
        match packs.last_mut().filter(|(last, _)| !last.is_full()) {
            Some((last, tokens)) => {
                last.push(key);
                tokens.push(token);
            }
            None => packs.push((Pack::of(key), vec![token])),
        }
    }
    (count, packs)
}

unsafe extern "C" fn load(io: *mut c::RedisModuleIO, encoding: c_int, _when: c_int) -> c_int {
    let err = c::REDISMODULE_ERR as c_int;
    guard(err, || {
        let Some(ctx) = raw::detached() else {
            return err;
        };
        recheck::load_begins_at_last(ctx);
        if !has_readable_values(encoding) {
            refuse_encoding(SAID, encoding);
            return err;
        }
        // SAFETY: the server's argument, for the length of this call.
        let file = unsafe { RdbReader::new(io) };
        shell()
            .sender
            .with_mut(|sender| *sender = Release::default());
        match load_file(ctx, file, encoding) {
            Ok(()) => c::REDISMODULE_OK as c_int,
            Err(Refused(why)) => {
                intake::refused(ctx, &format!("{SAID} ({why})"));
                err
            }
        }
    })
}

const SAID: &str = "what the RDB file says of temporary keys and sessions";

/// Why a file is refused.
struct Refused(String);

impl From<Damaged> for Refused {
    fn from(Damaged: Damaged) -> Self {
        Refused("it is damaged".to_owned())
    }
}

/// The greatest version number. Files without sections begin with a token, which is greater, or with 0.
const LAST_VERSION: u64 = 999_999;

fn load_file(ctx: Ctx<'_>, file: RdbReader<'_>, encoding: c_int) -> Result<(), Refused> {
    let first = file.number()?;
    match (encoding, first) {
        (ENCODING, 1..=LAST_VERSION) => load_sections(ctx, file, first),
        _ => Ok(legacy_rdb::load(ctx, file, encoding, first)?),
    }
}

fn load_sections(ctx: Ctx<'_>, file: RdbReader<'_>, least: u64) -> Result<(), Refused> {
    let mut tokens = Vec::new();
    loop {
        let kind = file.number()?;
        if kind == END {
            return Ok(());
        }
        let bytes = file.bytes()?;
        if kind == WRITER {
            let words: Vec<&[u8]> = bytes.split(|byte| *byte == b' ').collect();
            let writer = Release::read(&words).ok_or(Damaged)?;
            shell().sender.with_mut(|sender| *sender = writer);
        }
        // Checked only now, so that the log can name the writer.
        if least > u64::from(release::NUMBER) {
            let (major, minor, patch) = (least / 10_000, least / 100 % 100, least % 100);
            let needed = format!("it needs tether {major}.{minor}.{patch} or later");
            return Err(Refused(needed));
        }
        load_section(ctx, kind, &bytes, &mut tokens)?;
    }
}

/// `tokens` are those of the keys that come next.
fn load_section(
    ctx: Ctx<'_>,
    kind: u64,
    bytes: &[u8],
    tokens: &mut Vec<Token>,
) -> Result<(), Refused> {
    match kind {
        TOKEN => {
            let token = read_token(bytes).ok_or(Damaged)?;
            intake::apply_token(ctx, token)
                .then_some(())
                .ok_or(Damaged)?;
        }
        COUNT => {
            let count = read_number(bytes, 0..=u64::MAX).ok_or(Damaged)?;
            intake::reserve_keys(ctx, count);
        }
        TOKENS => *tokens = intake::read_tokens(bytes).ok_or(Damaged)?,
        KEYS => {
            intake::add_pack(ctx, bytes, &std::mem::take(tokens))?;
        }
        RECORD => {
            let (db, record) = pack::unpack_record(bytes).ok_or(Damaged)?;
            intake::check_db(ctx, db.0.into())?;
            intake::apply_saved_record(ctx, Some(&record))?;
        }
        kind if kind.is_multiple_of(2) => {}
        kind => return Err(Refused(format!("a section of kind {kind}"))),
    }
    Ok(())
}
