//! Loads RDB files of 0.1.0 and earlier: the last token, the number of temporary keys and their packs, the number of
//! session records and their words. Encoding 0 has no sessions; 0 and 1 have the keys one by one.

use crate::engine::{Key, SessionRecord, Token};
use crate::shell::persistence::intake;
use crate::shell::sys::raw::{Ctx, Damaged, RdbReader};

/// The data type's encoding in the latest of these files.
pub const ENCODING: i32 = 2;

/// Loads what follows the token.
pub fn load(ctx: Ctx<'_>, file: RdbReader<'_>, encoding: i32, token: u64) -> Result<(), Damaged> {
    let token = Token::checked(token).ok_or(Damaged)?;
    if !intake::apply_token(ctx, token) {
        return Err(Damaged);
    }
    let mut left = file.number()?;
    intake::reserve_keys(ctx, left);
    while left > 0 {
        let keys = match encoding {
            ENCODING => intake::add_pack(ctx, &file.bytes()?, &[])?,
            _ => load_key(ctx, file)?,
        };
        left = left.checked_sub(keys).ok_or(Damaged)?;
    }
    let records = if encoding > 0 { file.number()? } else { 0 };
    for _ in 0..records {
        load_record(ctx, file)?;
    }
    Ok(())
}

fn load_key(ctx: Ctx<'_>, file: RdbReader<'_>) -> Result<u64, Damaged> {
    let db = intake::check_db(ctx, file.number()?)?;
    let name = file.bytes()?;
    intake::add_foreign_keys(&[Key { db, name: &name }], &[]);
    Ok(1)
}

fn load_record(ctx: Ctx<'_>, file: RdbReader<'_>) -> Result<(), Damaged> {
    /// Words of the longest record.
    const MAX_WORDS: u64 = 11;
    let db = intake::check_db(ctx, file.number()?)?;
    let count = file.number()?;
    if count > MAX_WORDS {
        return Err(Damaged);
    }
    let name = file.bytes()?;
    let words: Result<Vec<_>, _> = (0..count).map(|_| file.bytes()).collect();
    let words = words?;
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_slice()).collect();
    let name = std::str::from_utf8(&name).map_err(|_| Damaged)?;
    intake::apply_saved_record(ctx, SessionRecord::read(name, db, &words).as_ref())
}
