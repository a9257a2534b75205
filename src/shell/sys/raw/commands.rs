//! Registers commands, with their documentation.

use crate::shell::sys::raw::calls::api;
use crate::shell::sys::raw::context::Ctx;
use crate::shell::sys::raw::strings::{c_string, forever};
use redis_module::raw as c;
use std::ffi::{CStr, c_int};
use std::ptr::{NonNull, null, null_mut};

/// The version that added all current commands.
const SINCE: &CStr = c"0.1.0";

/// A command that is being registered.
#[derive(Clone, Copy)]
pub struct NewCommand(NonNull<c::RedisModuleCommand>);

/// What `COMMAND DOCS` and `COMMAND INFO` tell of a command.
pub struct Docs<'a> {
    pub summary: &'static str,
    pub complexity: &'static str,
    pub arity: c_int,
    /// Ends with a zeroed element. Empty: the positions with which the command was created.
    pub key_specs: &'a mut [c::RedisModuleCommandKeySpec],
    /// Ends with a zeroed element, or is empty.
    pub arguments: &'a mut [c::RedisModuleCommandArg],
}

impl Ctx<'_> {
    /// Creates a command; `None` if the server refuses it. `keys`: the positions of the first and the last key, and the
    /// step between keys. While the module is loaded.
    pub fn create_command(
        self,
        name: &str,
        entry: c::RedisModuleCmdFunc,
        flags: &str,
        keys: [c_int; 3],
    ) -> Option<NewCommand> {
        let (name, flags) = (c_string(name), c_string(flags));
        let [first, last, step] = keys;
        // SAFETY: the table, the context; the server copies what it keeps, but for the function.
        unsafe {
            let created = api!(RedisModule_CreateCommand(
                self.as_ptr(),
                name.as_ptr(),
                entry,
                flags.as_ptr(),
                first,
                last,
                step
            ));
            if created != c::REDISMODULE_OK as c_int {
                return None;
            }
            let command = api!(RedisModule_GetCommand(self.as_ptr(), name.as_ptr()));
            NonNull::new(command).map(NewCommand)
        }
    }
}

impl NewCommand {
    /// Sets its ACL categories, where the server has them. False if it does not know one of them.
    pub fn set_categories(self, categories: &str) -> bool {
        let categories = c_string(categories);
        // SAFETY: the table; a command of ours; the categories are read.
        let set = unsafe {
            api!(RedisModule_SetCommandACLCategories(
                self.0.as_ptr(),
                categories.as_ptr()
            ))
        };
        set == c::REDISMODULE_OK as c_int
    }

    pub fn describe(self, docs: Docs<'_>) -> bool {
        let version = c::RedisModuleCommandInfoVersion {
            version: 1,
            sizeof_historyentry: size_of::<c::RedisModuleCommandHistoryEntry>(),
            sizeof_keyspec: size_of::<c::RedisModuleCommandKeySpec>(),
            sizeof_arg: size_of::<c::RedisModuleCommandArg>(),
        };
        let info = c::RedisModuleCommandInfo {
            version: &raw const version,
            summary: forever(docs.summary),
            complexity: forever(docs.complexity),
            since: SINCE.as_ptr(),
            history: null_mut(),
            tips: null(),
            arity: docs.arity,
            key_specs: first_of(docs.key_specs),
            args: first_of(docs.arguments),
        };
        // SAFETY: the table, a command of ours; lists end with a zeroed element, and the server copies all.
        let set = unsafe { api!(RedisModule_SetCommandInfo(self.0.as_ptr(), &raw const info)) };
        set == c::REDISMODULE_OK as c_int
    }
}

/// A list of the API's; null if it is empty.
fn first_of<T>(list: &mut [T]) -> *mut T {
    list.first_mut().map_or(null_mut(), std::ptr::from_mut)
}
