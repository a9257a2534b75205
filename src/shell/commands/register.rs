//! Registers the commands of the table.

use crate::command::{Access, Argument, ArgumentKind, KeyPlaces, Spec, TABLE};
use crate::shell::commands::entry::entry;
use crate::shell::persistence::stream::refused_command;
use crate::shell::sys::raw::{Ctx, Docs, NewCommand, api, entries, forever, have};
use redis_module::raw as c;
use std::ffi::{CStr, c_int};

/// Each command's entry, in the order of the table.
const ENTRIES: [c::RedisModuleCmdFunc; TABLE.len()] = entries!(entry, TABLE.len());

/// The ACL category of all commands of the table.
const CATEGORY: &CStr = c"lock";

/// Registers all commands. Once, at load. Or says what the server refuses.
pub fn commands(ctx: Ctx<'_>) -> Result<(), String> {
    let category = add_category(ctx);
    for (spec, entry) in TABLE.iter().zip(ENTRIES) {
        // Without positions of keys: its description has the key specifications.
        let command = ctx.create_command(spec.name, entry, spec.flags, [0; 3]);
        let command = command.ok_or_else(|| refused_command(spec.name))?;
        if !set_categories(command, spec, category) {
            return Err(format!("the ACL categories of {}", spec.name));
        }
        let mut arguments: Vec<_> = spec.arguments().map(argument).collect();
        arguments.push(zeroed());
        let is_described = command.describe(Docs {
            summary: spec.summary,
            complexity: spec.complexity,
            arity: spec.arity(),
            key_specs: &mut key_specs(spec),
            arguments: &mut arguments,
        });
        if !is_described {
            return Err(format!("the description of {}", spec.name));
        }
    }
    Ok(())
}

/// Adds the module's own category, where the server lets modules add some. Whether there is one of that name.
fn add_category(ctx: Ctx<'_>) -> bool {
    if !have!(RedisModule_AddACLCategory) {
        return false;
    }
    // SAFETY: the table, the context; the name is copied.
    let added = unsafe { api!(RedisModule_AddACLCategory(ctx.as_ptr(), CATEGORY.as_ptr())) };
    let error = std::io::Error::last_os_error().raw_os_error();
    // Another module's is everybody's.
    let is_there = added == c::REDISMODULE_OK as c_int || error == Some(libc::EBUSY);
    if !is_there {
        ctx.log(
            c"warning",
            "tether's commands are in no ACL category @lock: the server takes no more categories of modules",
        );
    }
    is_there
}

/// Redis 7.0 has no categories for commands of modules.
fn set_categories(command: NewCommand, spec: &Spec, with_own: bool) -> bool {
    if !have!(RedisModule_SetCommandACLCategories) {
        return true;
    }
    let own = CATEGORY.to_string_lossy();
    let own = with_own.then_some(own.as_ref());
    let categories = [spec.categories].into_iter().chain(own);
    command.set_categories(&categories.collect::<Vec<_>>().join(" "))
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
