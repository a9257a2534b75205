//! Whether a command names a key, on servers that tell whose command it is only by its arguments (Redis 7.0).
//!
//! A command that ends many keys has many arguments, and each key that it ends asks. So the arguments of one with many are
//! put into a table once. The table is forgotten when its connection gives another command, or is no more.

use crate::engine::ClientId;
use crate::shell::sys::raw::{Ctx, Str, api, have};
use hashbrown::{DefaultHashBuilder, HashTable};
use redis_module::raw as c;
use std::cell::{Cell, RefCell};
use std::hash::BuildHasher;
use std::ptr::null_mut;

/// Fewer are looked through.
const MANY: usize = 64;

/// The arguments of one connection's command, by what stands there.
struct Table {
    client: ClientId,
    /// Where they stand, and how many: half a command may have come.
    from: *const Str<'static>,
    count: usize,
    places: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Table {
    fn new(client: ClientId, arguments: &[Str<'_>]) -> Self {
        let hasher = DefaultHashBuilder::default();
        let hash = |place: &u32| hasher.hash_one(arguments[*place as usize].bytes());
        let mut places = HashTable::with_capacity(arguments.len());
        for place in 1..arguments.len() as u32 {
            let is_same = |other: &u32| {
                arguments[*other as usize].bytes() == arguments[place as usize].bytes()
            };
            // The same one very often would make the table slow.
            places.entry(hash(&place), is_same, hash).or_insert(place);
        }
        Table {
            client,
            from: arguments.as_ptr().cast(),
            count: arguments.len(),
            places,
            hasher,
        }
    }

    fn is_of(&self, client: ClientId, arguments: &[Str<'_>]) -> bool {
        let is_there = self.from == arguments.as_ptr().cast() && self.count == arguments.len();
        is_there && self.client == client
    }

    fn has(&self, arguments: &[Str<'_>], key: Str<'_>) -> bool {
        let is_it = |place: &u32| arguments[*place as usize].bytes() == key.bytes();
        let hash = self.hasher.hash_one(key.bytes());
        self.places.find(hash, is_it).is_some()
    }
}

struct Known {
    table: RefCell<Option<Table>>,
    /// The first argument of the command in the table.
    first: Cell<*mut c::RedisModuleString>,
    filtering: Cell<bool>,
}

// SAFETY: touched by the server's main thread only, in which filters and events run.
unsafe impl Sync for Known {}

static KNOWN: Known = Known {
    table: RefCell::new(None),
    first: Cell::new(null_mut()),
    filtering: Cell::new(false),
};

/// Whether this key is among the arguments, after its name, of the command that this connection gives. O(1) but for the
/// first time.
pub fn name(ctx: Ctx<'_>, client: ClientId, arguments: &[Str<'_>], key: Str<'_>) -> bool {
    if arguments.len() <= MANY || !begin(ctx) {
        // Mostly the server tells of the very string that the command came with.
        let is_key = |word: &Str<'_>| *word == key || word.bytes() == key.bytes();
        return arguments[1..].iter().any(is_key);
    }
    let mut table = KNOWN.table.borrow_mut();
    let is_first = KNOWN.first.get() == arguments[0].as_ptr();
    drop(table.take_if(|table| !is_first || !table.is_of(client, arguments)));
    let table = table.get_or_insert_with(|| Table::new(client, arguments));
    KNOWN.first.set(arguments[0].as_ptr());
    table.has(arguments, key)
}

/// Begins to hear of commands, if that can be.
fn begin(ctx: Ctx<'_>) -> bool {
    if KNOWN.filtering.get() {
        return true;
    }
    if !have!(RedisModule_CommandFilterArgGet) {
        return false;
    }
    // SAFETY: the table, the context.
    let filter = unsafe {
        api!(RedisModule_RegisterCommandFilter(
            ctx.as_ptr(),
            Some(note),
            0
        ))
    };
    KNOWN.filtering.set(!filter.is_null());
    KNOWN.filtering.get()
}

unsafe extern "C" fn note(filter: *mut c::RedisModuleCommandFilterCtx) {
    // No guard: there is nothing here that can panic, and it runs for every command.
    // SAFETY: the table, as asked for before this was registered; the server's argument.
    let first = unsafe { c::RedisModule_CommandFilterArgGet.map(|get| get(filter, 0)) };
    // The same connection's next command may stand where this one did. Another's cannot have this argument.
    if !KNOWN.first.get().is_null() && first == Some(KNOWN.first.get()) {
        KNOWN.first.set(null_mut());
        let table = KNOWN.table.try_borrow_mut().map(|mut table| table.take());
        drop(table);
    }
}

/// A connection is no more.
pub fn forget(client: ClientId) {
    let mut table = KNOWN.table.borrow_mut();
    if table.take_if(|table| table.client == client).is_some() {
        KNOWN.first.set(null_mut());
    }
}
