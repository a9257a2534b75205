//! Queries about clients, users and the server.

use crate::engine::{ClientId, Db};
use crate::policy::attribution::field;
use crate::shell::sys::raw::api_state::api_state;
use crate::shell::sys::raw::calls::{api, call, have, is_in_uncaused_event};
use crate::shell::sys::raw::context::{Ctx, detached};
use crate::shell::sys::raw::strings::{Str, Text, pointers_of};
use crate::shell::sys::scoped::assert_nothing_borrowed;
use crate::shell::sys::shim;
use redis_module::raw;
use std::ffi::{CStr, c_int, c_longlong, c_void};
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

impl Ctx<'_> {
    /// A client's `CLIENT LIST ID` line; `None` if there is none. Takes some microseconds; O(connections) if the server
    /// scans all clients and the private function may not be called.
    pub fn client_line(self, client: ClientId) -> Option<String> {
        if api_state().describes_directly.get() {
            return shim::describe(client);
        }
        let id = c_longlong::try_from(client.0).ok()?;
        // SAFETY: the table, the context; the arguments are as the format says.
        let reply = unsafe {
            call!(
                self.as_ptr(),
                c"CLIENT".as_ptr(),
                c"ccl".as_ptr(),
                c"LIST".as_ptr(),
                c"ID".as_ptr(),
                id
            )
        };
        CallReply::new(reply)
            .and_then(|answer| answer.text())
            .filter(|line| !line.is_empty())
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
        // SAFETY: the table, the context; the argument is as the format says.
        let reply = unsafe {
            call!(
                self.as_ptr(),
                c"CLIENT".as_ptr(),
                c"c".as_ptr(),
                c"LIST".as_ptr()
            )
        };
        CallReply::new(reply).and_then(|answer| answer.text())
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
        self.answer_of(c"ACL", c"WHOAMI").is_none()
    }

    /// Whether the server refuses commands for this key, e.g. because another node owns its slot. Takes some microseconds.
    pub fn refusal(self, db: Db, key: Str<'_>) -> Refusal {
        // A detached context: the server exempts its master's client from the check.
        let ctx = self.in_db(db).as_ptr();
        // SAFETY: the table, the context; the argument is as the format says.
        let reply = unsafe { call!(ctx, c"EXISTS".as_ptr(), c"s".as_ptr(), key.as_ptr()) };
        let error = std::io::Error::last_os_error().raw_os_error();
        match (CallReply::new(reply), error) {
            (None, Some(libc::EPERM)) => Refusal::Redirected,
            (None, Some(libc::ENETDOWN)) => Refusal::Down,
            _ => Refusal::None,
        }
    }

    /// `CLUSTER NODES`. O(slots).
    pub fn cluster_nodes(self) -> String {
        let answer = self.answer_of(c"CLUSTER", c"NODES");
        answer.and_then(|answer| answer.text()).unwrap_or_default()
    }

    /// `CLUSTER GETSLOTMIGRATIONS` of Valkey 9: alternating names and values for each migration; numeric values are empty.
    /// O(recorded migrations).
    pub fn slot_migrations(self) -> Vec<Vec<String>> {
        let answer = self.answer_of(c"CLUSTER", c"GETSLOTMIGRATIONS");
        answer.map(|answer| answer.rows()).unwrap_or_default()
    }

    /// The names of all modules, including this one.
    pub fn modules(self) -> Vec<String> {
        let answer = self.answer_of(c"MODULE", c"LIST");
        let rows = answer.map(|answer| answer.rows()).unwrap_or_default();
        // Each row begins with "name" and the name.
        let names = rows.into_iter().filter_map(|row| row.into_iter().nth(1));
        names.collect()
    }

    /// The reply to a command of two words.
    fn answer_of(self, command: &CStr, word: &CStr) -> Option<CallReply> {
        // SAFETY: the table, the context; the argument is as the format says.
        CallReply::new(unsafe {
            call!(
                self.as_ptr(),
                command.as_ptr(),
                c"c".as_ptr(),
                word.as_ptr()
            )
        })
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
    pub fn server_setting(self, name: &CStr) -> Option<String> {
        // SAFETY: the table, the context; the arguments are as the format says.
        let reply = unsafe {
            call!(
                self.as_ptr(),
                c"CONFIG".as_ptr(),
                c"cc".as_ptr(),
                c"GET".as_ptr(),
                name.as_ptr()
            )
        };
        CallReply::new(reply).and_then(|answer| answer.element_text(1))
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

/// The reply to a command call.
pub(super) struct CallReply(NonNull<raw::RedisModuleCallReply>);

impl CallReply {
    pub(super) fn new(reply: *mut raw::RedisModuleCallReply) -> Option<Self> {
        NonNull::new(reply).map(CallReply)
    }

    /// The strings of an array of arrays; other elements are empty.
    fn rows(&self) -> Vec<Vec<String>> {
        let reply = self.0.as_ptr();
        // SAFETY: the table; the reply lives as long as we do, and its elements belong to it.
        unsafe {
            let element = |of, place| api!(RedisModule_CallReplyArrayElement(of, place));
            let text = |row, place| text_of(element(row, place)).unwrap_or_default();
            let texts = |row| indices_of(row).map(|place| text(row, place)).collect();
            let rows = indices_of(reply).map(|place| texts(element(reply, place)));
            rows.collect()
        }
    }

    pub(super) fn is_integer(&self) -> bool {
        // SAFETY: the table; the reply lives as long as `self`.
        let kind = unsafe { api!(RedisModule_CallReplyType(self.0.as_ptr())) };
        kind == raw::REDISMODULE_REPLY_INTEGER as c_int
    }

    /// Whether the server sent no reply.
    pub(super) fn is_empty(&self) -> bool {
        // SAFETY: the table; the reply lives as long as `self`.
        let kind = unsafe { api!(RedisModule_CallReplyType(self.0.as_ptr())) };
        kind == raw::REDISMODULE_REPLY_UNKNOWN as c_int
    }

    /// The error text, if it is an error.
    pub(super) fn error(&self) -> Option<String> {
        // SAFETY: the table; the reply lives as long as `self`.
        let kind = unsafe { api!(RedisModule_CallReplyType(self.0.as_ptr())) };
        (kind == raw::REDISMODULE_REPLY_ERROR as c_int).then(|| self.text())?
    }

    /// Calls `each` for each string element of an array.
    pub(super) fn each_string(&self, each: &mut dyn FnMut(&[u8])) {
        let reply = self.0.as_ptr();
        // SAFETY: the table; the reply lives as long as `self`, and its elements belong to it.
        unsafe {
            if api!(RedisModule_CallReplyType(reply)) != raw::REDISMODULE_REPLY_ARRAY as c_int {
                return;
            }
            for place in indices_of(reply) {
                let element = api!(RedisModule_CallReplyArrayElement(reply, place));
                let mut length = 0;
                let bytes = api!(RedisModule_CallReplyStringPtr(element, &mut length));
                if !bytes.is_null() {
                    each(std::slice::from_raw_parts(bytes.cast(), length));
                }
            }
        }
    }

    /// Whether a command has a flag, from the reply to `COMMAND INFO` of one command. `None` if the command does not exist.
    pub(super) fn has_command_flag(&self, flag: &str) -> Option<bool> {
        const FLAGS: usize = 2;
        // SAFETY: the table; the reply lives as long as `self`, and its elements belong to it.
        unsafe {
            let first = api!(RedisModule_CallReplyArrayElement(self.0.as_ptr(), 0));
            if first.is_null() || indices_of(first).is_empty() {
                return None;
            }
            let flags = api!(RedisModule_CallReplyArrayElement(first, FLAGS));
            let text = |place| text_of(api!(RedisModule_CallReplyArrayElement(flags, place)));
            Some(indices_of(flags).any(|place| text(place).is_some_and(|text| text == flag)))
        }
    }

    /// Sends it as the reply to the executing command.
    pub(super) fn pass_on(&self, ctx: Ctx<'_>) {
        // SAFETY: the table, the context; the reply lives as long as `self`, and is copied.
        unsafe {
            api!(RedisModule_ReplyWithCallReply(
                ctx.as_ptr(),
                self.0.as_ptr()
            ))
        };
    }

    fn text(&self) -> Option<String> {
        // SAFETY: the table; the reply lives as long as `self`.
        unsafe { text_of(self.0.as_ptr()) }
    }

    fn element_text(&self, place: usize) -> Option<String> {
        // SAFETY: as in `text`; an element belongs to its reply.
        unsafe {
            text_of(api!(RedisModule_CallReplyArrayElement(
                self.0.as_ptr(),
                place
            )))
        }
    }
}

/// # Safety
/// The reply is null or alive.
unsafe fn indices_of(reply: *mut raw::RedisModuleCallReply) -> Range<usize> {
    if reply.is_null() {
        return 0..0;
    }
    // SAFETY: the table, and the caller.
    0..unsafe { api!(RedisModule_CallReplyLength(reply)) }
}

/// # Safety
/// The reply is null (an element that is not there), or alive.
unsafe fn text_of(reply: *mut raw::RedisModuleCallReply) -> Option<String> {
    if reply.is_null() {
        return None;
    }
    let mut length = 0;
    // SAFETY: the table, and the caller.
    unsafe {
        let bytes: *const u8 = api!(RedisModule_CallReplyStringPtr(reply, &mut length)).cast();
        (!bytes.is_null()).then(|| {
            String::from_utf8_lossy(std::slice::from_raw_parts(bytes, length)).into_owned()
        })
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        // SAFETY: the table; freed once.
        unsafe { api!(RedisModule_FreeCallReply(self.0.as_ptr())) }
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
    let path = ctx.server_setting(c"unixsocket").unwrap_or_default();
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
