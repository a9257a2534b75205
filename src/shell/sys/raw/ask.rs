//! Queries about clients, users and the server.

use crate::engine::{ClientId, Db};
use crate::policy::attribution::field;
use crate::shell::sys::raw::api_state::api_state;
use crate::shell::sys::raw::calls::{api, have, is_in_uncaused_event};
use crate::shell::sys::raw::context::{Ctx, detached};
use crate::shell::sys::raw::server_commands::{call, elements_of, rows_of, text_of};
use crate::shell::sys::raw::strings::{Str, Text, pointers_of};
use crate::shell::sys::scoped::assert_nothing_borrowed;
use crate::shell::sys::shim;
use redis_module::raw;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{NonNull, null_mut};

impl Ctx<'_> {
    /// A client's `CLIENT LIST ID` line; `None` if there is none. Takes some microseconds; O(connections) if the server
    /// scans all clients and the private function may not be called.
    pub fn client_line(self, client: ClientId) -> Option<String> {
        if api_state().describes_directly.get() {
            return shim::describe(client);
        }
        let line = self.ask("CLIENT", &["LIST", "ID", &client.0.to_string()]);
        line.and_then(text_of).filter(|line| !line.is_empty())
    }

    /// A client's address, name and user; `None` if there is no such client. O(1). Calls no command, unless the peer has
    /// closed: then only `CLIENT LIST` shows its address, and where no command may be called the address is empty.
    pub fn client_origin(self, client: ClientId) -> Option<(String, String, String)> {
        let info = client_info(client)?;
        // Not available before Redis 7.0.3.
        let name = match have!(RedisModule_GetClientNameById) {
            // SAFETY: the table, the context; any id may be given.
            true => unsafe { api!(RedisModule_GetClientNameById(self.as_ptr(), client.0)) },
            false => null_mut(),
        };
        // SAFETY: the same.
        let user = unsafe { api!(RedisModule_GetClientUserNameById(self.as_ptr(), client.0)) };
        // SAFETY: both are our own.
        let (name, user) = unsafe { (own_text(name), own_text(user)) };
        let user = user.unwrap_or_else(|| "(superuser)".to_owned());
        let listed = || {
            let line = (!is_in_uncaused_event()).then(|| self.client_line(client));
            Some(field(&line??, "addr=")?.to_owned())
        };
        let addr = address(&info).or_else(listed).unwrap_or_default();
        Some((addr, name.unwrap_or_default(), user))
    }

    /// The `CLIENT LIST` lines of all clients. O(connections).
    pub fn client_lines(self) -> Option<String> {
        self.ask("CLIENT", &["LIST"]).and_then(text_of)
    }

    /// Whether the caller may read this key. False for a deleted user.
    pub fn may_read(self, key: Str<'_>) -> bool {
        self.user().is_some_and(|user| user.may_read(key))
    }

    /// Whether the caller may write this key. False for a deleted user.
    pub fn may_write(self, key: Str<'_>) -> bool {
        self.user().is_some_and(|user| user.may_write(key))
    }

    /// Whether the caller may run a command in this database. True if the server has no rights per database.
    pub fn may_give_in(self, db: Db, words: &[Str<'_>]) -> bool {
        let may_give = |user: User| user.may_give_in(db, words);
        !has_rights_by_db() || self.user().is_some_and(may_give)
    }

    /// The caller's user, if the user exists.
    pub fn user(self) -> Option<User> {
        // SAFETY: the table, the context; the name is ours.
        unsafe {
            let name = api!(RedisModule_GetCurrentUserName(self.as_ptr()));
            User::of_name(name)
        }
    }

    /// The name of the caller's user.
    pub fn user_name(self) -> String {
        // SAFETY: the table, the context; what is got is our own.
        let name = unsafe { own_text(api!(RedisModule_GetCurrentUserName(self.as_ptr()))) };
        name.unwrap_or_default()
    }

    /// A client's user, if the user exists.
    pub fn user_of(self, client: ClientId) -> Option<User> {
        // SAFETY: the table, the context; the name is ours.
        unsafe {
            let name = api!(RedisModule_GetClientUserNameById(self.as_ptr(), client.0));
            User::of_name(name)
        }
    }

    /// The name of a client's user. None if there is no such client.
    pub fn user_name_of(self, client: ClientId) -> Option<Text> {
        // SAFETY: the table, the context; the name is ours.
        unsafe {
            let name = api!(RedisModule_GetClientUserNameById(self.as_ptr(), client.0));
            Text::own(name)
        }
    }

    /// Closes a client after the current command. False if there is none.
    pub fn close(self, client: ClientId) -> bool {
        // SAFETY: the table, the context; any id may be given.
        let done = unsafe {
            api!(RedisModule_DeauthenticateAndCloseClient(
                self.as_ptr(),
                client.0
            ))
        };
        done == raw::REDISMODULE_OK as c_int
    }

    /// Whether the command ACL was renamed.
    pub fn has_no_acl(self) -> bool {
        self.ask("ACL", &["WHOAMI"]).is_none()
    }

    /// Whether the server refuses commands for this key, e.g. because another node owns its slot. Takes some microseconds.
    pub fn refusal(self, db: Db, key: Str<'_>) -> Refusal {
        // A detached context: the server exempts its master's client from the check.
        let there = self.in_db(db);
        let ctx = there.as_ptr();
        // SAFETY: the table, the context; the argument is as the format says.
        let reply = unsafe { call!(ctx, c"EXISTS".as_ptr(), c"s".as_ptr(), key.as_ptr()) };
        match reply {
            Err(Some(libc::EPERM)) => Refusal::Redirected,
            Err(Some(libc::ENETDOWN)) => Refusal::Down,
            _ => Refusal::None,
        }
    }

    /// `CLUSTER NODES`. O(slots).
    pub fn cluster_nodes(self) -> String {
        let nodes = self.ask("CLUSTER", &["NODES"]);
        nodes.and_then(text_of).unwrap_or_default()
    }

    /// `CLUSTER GETSLOTMIGRATIONS` of Valkey 9: alternating names and values for each migration; numeric values are empty.
    /// O(recorded migrations).
    pub fn slot_migrations(self) -> Vec<Vec<String>> {
        rows_of(self.ask("CLUSTER", &["GETSLOTMIGRATIONS"]))
    }

    /// The names of all modules, including this one.
    pub fn modules(self) -> Vec<String> {
        let rows = rows_of(self.ask("MODULE", &["LIST"]));
        // Each row begins with "name" and the name.
        let names = rows.into_iter().filter_map(|row| row.into_iter().nth(1));
        names.collect()
    }

    /// A field of a section of `INFO`.
    pub fn server_info(self, section: &CStr, field: &CStr) -> Option<String> {
        // SAFETY: the table, the context; what is got is freed, and the text is copied before.
        unsafe {
            let info = api!(RedisModule_GetServerInfo(self.as_ptr(), section.as_ptr()));
            if info.is_null() {
                return None;
            }
            let text = api!(RedisModule_ServerInfoGetFieldC(info, field.as_ptr()));
            let text =
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
            api!(RedisModule_FreeServerInfo(self.as_ptr(), info));
            text
        }
    }

    /// A server setting.
    pub fn server_setting(self, name: &str) -> Option<String> {
        let pair = elements_of(self.ask("CONFIG", &["GET", name])?);
        pair.into_iter().nth(1).and_then(text_of)
    }
}

/// Copies a string's text and frees the string.
///
/// # Safety
/// The string is null, or the caller's own.
unsafe fn own_text(string: *mut raw::RedisModuleString) -> Option<String> {
    if string.is_null() {
        return None;
    }
    // SAFETY: the table, and the caller; the text is copied before the string is freed.
    unsafe {
        let text = String::from_utf8_lossy(Str::new(string).bytes()).into_owned();
        api!(RedisModule_FreeString(null_mut(), string));
        Some(text)
    }
}

/// How a cluster node treats commands for a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    None,
    /// They are redirected to another node, possibly only because the key is missing.
    Redirected,
    /// The cluster is down: the node refuses commands for all keys, also of its own slots.
    Down,
}

/// `ValkeyModule_ACLCheckPermissions`: user, arguments and their number, database, and the reason of a denial (output).
type CheckPermissions = unsafe extern "C" fn(
    *mut raw::RedisModuleUser,
    *mut *mut raw::RedisModuleString,
    c_int,
    c_int,
    *mut c_int,
) -> c_int;

/// Valkey's function since 9.1, which has rights per database. Not in the table that is filled in at load.
fn check_permissions() -> Option<CheckPermissions> {
    let mut check: Option<CheckPermissions> = None;
    let name = c"ValkeyModule_ACLCheckPermissions".as_ptr();
    // SAFETY: the table; the server writes a pointer to its function of this name, which is of this type, or nothing.
    unsafe { api!(RedisModule_GetApi(name, (&raw mut check).cast::<c_void>())) };
    check
}

/// Whether the server grants rights per database.
pub fn has_rights_by_db() -> bool {
    check_permissions().is_some()
}

/// A user, for ACL queries.
pub struct User(NonNull<raw::RedisModuleUser>);

impl User {
    /// # Safety
    /// The name is null, or a string that is the caller's own, and is freed here.
    unsafe fn of_name(name: *mut raw::RedisModuleString) -> Option<Self> {
        if name.is_null() {
            return None;
        }
        // SAFETY: the table, and the caller.
        unsafe {
            let user = api!(RedisModule_GetModuleUserFromUserName(name));
            api!(RedisModule_FreeString(null_mut(), name));
            NonNull::new(user).map(User)
        }
    }

    /// Whether the user may run a command, given with its arguments.
    pub fn may_give(&self, words: &[Str<'_>]) -> bool {
        // SAFETY: the table; so many strings, which live for this call.
        let allowed = unsafe {
            api!(RedisModule_ACLCheckCommandPermissions(
                self.0.as_ptr(),
                pointers_of(words),
                words.len() as c_int
            ))
        };
        allowed == raw::REDISMODULE_OK as c_int
    }

    /// Whether the user may run a command in this database. As [`may_give`](Self::may_give) if the server has no rights per
    /// database.
    pub fn may_give_in(&self, db: Db, words: &[Str<'_>]) -> bool {
        match check_permissions() {
            Some(check) => self.check_in(check, db, words).is_ok(),
            None => self.may_give(words),
        }
    }

    /// Whether the user may not run a command there for want of the right to the database.
    pub fn lacks_db(&self, db: Db, words: &[Str<'_>]) -> bool {
        /// `VALKEYMODULE_ACL_LOG_DB`.
        const DB: c_int = 4;
        check_permissions().is_some_and(|check| self.check_in(check, db, words) == Err(DB))
    }

    /// An error is the server's number of the reason.
    fn check_in(&self, check: CheckPermissions, db: Db, words: &[Str<'_>]) -> Result<(), c_int> {
        assert_nothing_borrowed();
        let mut reason = 0;
        // SAFETY: the server's function of this type; so many strings, which live for this call; it writes a number.
        let allowed = unsafe {
            let (count, db) = (words.len() as c_int, db.0 as c_int);
            check(
                self.0.as_ptr(),
                pointers_of(words),
                count,
                db,
                &raw mut reason,
            )
        };
        match allowed == raw::REDISMODULE_OK as c_int {
            true => Ok(()),
            false => Err(reason),
        }
    }

    /// The user's rules, as `ACL LIST` shows them; empty on servers that do not tell them.
    pub fn rules(&self) -> Vec<u8> {
        if !have!(RedisModule_GetModuleUserACLString) {
            return Vec::new();
        }
        // SAFETY: the table; what is got is our own.
        let rules = unsafe {
            let rules = api!(RedisModule_GetModuleUserACLString(self.0.as_ptr()));
            Text::own(rules)
        };
        rules.map_or_else(Vec::new, |rules| rules.as_str().bytes().to_vec())
    }

    pub fn may_read(&self, key: Str<'_>) -> bool {
        self.may(key, raw::REDISMODULE_CMD_KEY_ACCESS)
    }

    pub fn may_write(&self, key: Str<'_>) -> bool {
        self.may(key, raw::REDISMODULE_CMD_KEY_UPDATE)
    }

    fn may(&self, key: Str<'_>, access: u32) -> bool {
        // SAFETY: the table; the key lives for this call.
        let allowed = unsafe {
            api!(RedisModule_ACLCheckKeyPermissions(
                self.0.as_ptr(),
                key.as_ptr(),
                access as c_int
            ))
        };
        allowed == raw::REDISMODULE_OK as c_int
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: the table; freed once. The server's own user stays.
        unsafe { api!(RedisModule_FreeModuleUser(self.0.as_ptr())) }
    }
}

/// Whether this client has client-side caching (`CLIENT TRACKING`) on.
pub fn is_tracking(client: ClientId) -> bool {
    client_flags(client) & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_TRACKING) != 0
}

/// Whether this client is queuing commands for EXEC.
pub fn is_in_multi(client: ClientId) -> bool {
    client_flags(client) & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_MULTI) != 0
}

/// Whether this client is blocked in a command.
pub fn is_blocked(client: ClientId) -> bool {
    client_flags(client) & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_BLOCKED) != 0
}

/// 0 if there is no such client.
fn client_flags(client: ClientId) -> u64 {
    client_info(client).map_or(0, |info| info.flags)
}

/// Only for ids with a connection: Valkey 9 fails for a script's fake client.
fn client_info(client: ClientId) -> Option<raw::RedisModuleClientInfo> {
    // SAFETY: plain integers and characters; zero is a value of each.
    let mut info: raw::RedisModuleClientInfo = unsafe { std::mem::zeroed() };
    info.version = u64::from(raw::REDISMODULE_CLIENTINFO_VERSION);
    // SAFETY: the table; the structure says its version.
    let found = unsafe {
        api!(RedisModule_GetClientInfoById(
            (&raw mut info).cast::<c_void>(),
            client.0
        ))
    };
    (found == raw::REDISMODULE_OK as c_int).then_some(info)
}

/// The database that a client has selected, if there is such a client. Only for ids with a connection.
pub fn db_of(client: ClientId) -> Option<Db> {
    client_info(client).map(|info| Db(info.db.into()))
}

/// Whether an id is a connection's, not that of a fake client for a script or another module's call. Only a connection has
/// a user. (`RM_GetClientInfoById` finds fake clients, too, on Valkey 9.1.)
pub fn is_connected(client: ClientId) -> bool {
    detached().is_some_and(|ctx| {
        // SAFETY: the table, the context; any id may be given, and what is got is our own.
        let user = unsafe {
            let name = api!(RedisModule_GetClientUserNameById(ctx.as_ptr(), client.0));
            own_text(name)
        };
        user.is_some()
    })
}

/// Stores the path of the server's Unix socket. Once, at load.
pub fn store_unix_socket_path(ctx: Ctx<'_>) {
    let path = ctx.server_setting("unixsocket").unwrap_or_default();
    let _ = api_state().unix_socket.set(path);
}

/// A client's address, as `CLIENT LIST` shows it. `None` if the peer vanished or reset the connection.
fn address(info: &raw::RedisModuleClientInfo) -> Option<String> {
    if info.flags & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_UNIXSOCKET) != 0 {
        let path = api_state().unix_socket.get().map_or("", String::as_str);
        return Some(format!("{path}:0"));
    }
    let ip = info.addr.iter().take_while(|character| **character != 0);
    let ip: Vec<u8> = ip.map(|character| *character as u8).collect();
    let (ip, port) = (String::from_utf8_lossy(&ip), info.port);
    match &*ip {
        "" | "?" => None,
        ip if ip.contains(':') => Some(format!("[{ip}]:{port}")),
        ip => Some(format!("{ip}:{port}")),
    }
}
