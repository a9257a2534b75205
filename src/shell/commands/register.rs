//! Registers the commands of the table.

use crate::command::{Access, Argument, ArgumentKind, KeyPlaces, Spec, TABLE};
use crate::shell::commands::entry::entry;
use crate::shell::sys::raw::{Ctx, api, c_string, entries, forever, have};
use redis_module::raw as c;
use std::ffi::{CStr, c_int};
use std::ptr::{null, null_mut};

/// Each command's entry, in the order of the table.
const ENTRIES: [c::RedisModuleCmdFunc; TABLE.len()] = entries!(entry, TABLE.len());

/// Registers all commands. Once, at load.
pub fn commands(ctx: Ctx<'_>) -> bool {
    TABLE
        .iter()
        .zip(ENTRIES)
        .all(|(spec, entry)| command(ctx, spec, entry))
}

fn command(ctx: Ctx<'_>, spec: &Spec, entry: c::RedisModuleCmdFunc) -> bool {
    let name = c_string(spec.name);
    let flags = c_string(spec.flags);
    // Legacy key positions; the key specifications are complete.
    let (first, last, step) = match spec.keys {
        KeyPlaces::First | KeyPlaces::Prefix => (1, 1, 1),
        KeyPlaces::All => (1, -1, 1),
        // A cluster routes by the first key.
        KeyPlaces::Numbered => (2, 2, 1),
        KeyPlaces::Nowhere => (0, 0, 0),
    };
    let knows_categories = have!(RedisModule_SetCommandACLCategories);
    // SAFETY: the table, the context; the server copies what it keeps, but for the function.
    unsafe {
        let (name, flags) = (name.as_ptr(), flags.as_ptr());
        let ok = c::REDISMODULE_OK as c_int;
        let ctx = ctx.as_ptr();
        if api!(RedisModule_CreateCommand(
            ctx, name, entry, flags, first, last, step
        )) != ok
        {
            return false;
        }
        let command = api!(RedisModule_GetCommand(ctx, name));
        if command.is_null() {
            return false;
        }
        if knows_categories {
            let categories = c_string(spec.categories);
            let set = api!(RedisModule_SetCommandACLCategories(
                command,
                categories.as_ptr()
            ));
            if set != ok {
                return false;
            }
        }
        describe(command, spec)
    }
}

/// The version that added all current commands.
const SINCE: &CStr = c"0.1.0";

/// Sets key specifications (for ACL and cluster routing) and documentation.
///
/// # Safety
/// `command` is a command of ours that is being registered.
unsafe fn describe(command: *mut c::RedisModuleCommand, spec: &Spec) -> bool {
    let version = c::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<c::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<c::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<c::RedisModuleCommandArg>(),
    };
    let mut keys = key_specs(spec);
    let mut arguments: Vec<_> = spec.arguments.iter().map(argument).collect();
    arguments.push(zeroed());
    let info = c::RedisModuleCommandInfo {
        version: &raw const version,
        summary: forever(spec.summary),
        complexity: forever(spec.complexity),
        since: SINCE.as_ptr(),
        history: null_mut(),
        tips: null(),
        arity: spec.arity,
        key_specs: keys.as_mut_ptr(),
        args: arguments.as_mut_ptr(),
    };
    // SAFETY: the table, the caller; lists end with a zeroed element, and the server copies all.
    let set = unsafe { api!(RedisModule_SetCommandInfo(command, &raw const info)) };
    set == c::REDISMODULE_OK as c_int
}

/// The list ends with a zeroed element.
fn key_specs(spec: &Spec) -> [c::RedisModuleCommandKeySpec; 3] {
    let flags = u64::from(match spec.access {
        Access::Look => c::REDISMODULE_CMD_KEY_RO | c::REDISMODULE_CMD_KEY_ACCESS,
        Access::Write | Access::Release | Access::Withdraw => {
            c::REDISMODULE_CMD_KEY_OW | c::REDISMODULE_CMD_KEY_INSERT
        }
    });
    let range = |first, last, flags| {
        let mut keys: c::RedisModuleCommandKeySpec = zeroed();
        keys.flags = flags;
        keys.begin_search_type = c::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
        keys.bs.index.pos = first;
        keys.find_keys_type = c::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
        keys.fk.range = c::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
            lastkey: last,
            keystep: 1,
            limit: 0,
        };
        keys
    };
    match spec.keys {
        KeyPlaces::First => [range(1, 0, flags), zeroed(), zeroed()],
        KeyPlaces::Prefix => {
            let routed = u64::from(c::REDISMODULE_CMD_KEY_RO | c::REDISMODULE_CMD_KEY_NOT_KEY);
            [range(1, 0, routed), zeroed(), zeroed()]
        }
        KeyPlaces::All => [range(1, -1, flags), zeroed(), zeroed()],
        KeyPlaces::Numbered => {
            // A cluster routes by ranges only. The second specification, which includes this key, is for ACL checks.
            let routed = u64::from(c::REDISMODULE_CMD_KEY_NOT_KEY);
            let mut all = range(1, 0, flags);
            all.find_keys_type = c::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
            all.fk.keynum = c::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 {
                keynumidx: 0,
                firstkey: 1,
                keystep: 1,
            };
            [range(2, 0, flags | routed), all, zeroed()]
        }
        KeyPlaces::Nowhere => [zeroed(), zeroed(), zeroed()],
    }
}

fn argument(argument: &Argument) -> c::RedisModuleCommandArg {
    let mut arg: c::RedisModuleCommandArg = zeroed();
    arg.name = forever(argument.name);
    (arg.type_, arg.key_spec_index) = match argument.kind {
        ArgumentKind::Key => (c::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, 0),
        ArgumentKind::String => (c::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING, -1),
        ArgumentKind::Integer => (
            c::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            -1,
        ),
        ArgumentKind::Pattern => (
            c::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PATTERN,
            -1,
        ),
        ArgumentKind::Flag => (
            c::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
            -1,
        ),
    };
    if let Some(token) = argument.token {
        arg.token = forever(token);
    }
    if argument.optional {
        arg.flags |= c::REDISMODULE_CMD_ARG_OPTIONAL as c_int;
    }
    if argument.multiple {
        arg.flags |= c::REDISMODULE_CMD_ARG_MULTIPLE as c_int;
    }
    arg
}

/// A zeroed structure of the API.
fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain` says that zero is a value of every field.
    unsafe { std::mem::zeroed() }
}

/// C structures of integers and pointers.
///
/// # Safety
/// All zeroes is a value of the type.
unsafe trait Plain {}
// SAFETY: integers and pointers.
unsafe impl Plain for c::RedisModuleCommandArg {}
// SAFETY: integers and pointers.
unsafe impl Plain for c::RedisModuleCommandKeySpec {}
