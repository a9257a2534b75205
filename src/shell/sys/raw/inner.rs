//! Commands that LOCK.GUARD runs: their keys, their execution, their replies.

use crate::shell::sys::raw::context::Ctx;
use crate::shell::sys::raw::server_commands::{bytes_of, call, elements_of, text_of};
use crate::shell::sys::raw::strings::{Str, pointers_of};
use std::ffi::{CStr, CString};
use std::iter;

/// The server's wording for a command whose keys are split between nodes while their slot migrates.
pub const TRYAGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

/// Who registered a command.
pub enum CommandOrigin {
    Server,
    Module,
    /// There is no such command.
    Nobody,
}

impl Ctx<'_> {
    /// The names of a command's keys, from `COMMAND GETKEYS`; none if the command has none. `None` if `COMMAND` is renamed.
    pub fn keys_of(self, command: &[Str<'_>]) -> Option<Vec<Vec<u8>>> {
        let words = command.iter().map(|word| word.bytes());
        let words: Vec<_> = iter::once(&b"GETKEYS"[..]).chain(words).collect();
        let names = self.call("COMMAND", &words)?;
        let names = names.map(elements_of).unwrap_or_default();
        Some(names.into_iter().filter_map(bytes_of).collect())
    }

    /// Who registered this command. `None` if `COMMAND` is renamed.
    pub fn origin_of_command(self, name: Str<'_>) -> Option<CommandOrigin> {
        const FLAGS: usize = 2;
        let rows = self.call("COMMAND", &[b"INFO", name.bytes()])?;
        let row = rows.map(elements_of).unwrap_or_default().into_iter().next();
        let Some(flags) = row.and_then(|row| elements_of(row).into_iter().nth(FLAGS)) else {
            return Some(CommandOrigin::Nobody);
        };
        let mut flags = elements_of(flags).into_iter().filter_map(text_of);
        Some(match flags.any(|flag| flag == "module") {
            true => CommandOrigin::Module,
            false => CommandOrigin::Server,
        })
    }

    /// Whether this node accepts a command for all of these keys, which are in one slot.
    pub fn serves_all(self, keys: &[Str<'_>]) -> bool {
        // SAFETY: the table, the context; the arguments are as the format says, and live for this call.
        let reply = unsafe {
            call!(
                self.as_ptr(),
                c"EXISTS".as_ptr(),
                c"v".as_ptr(),
                pointers_of(keys),
                keys.len()
            )
        };
        !matches!(reply, Err(Some(libc::EPERM)))
    }

    /// Runs a command as the executing client's user, as a script would: with its protocol, without blocking, subject to
    /// the memory limit, replicated as itself. Replies with its reply, or with the reason why the server did not run it.
    pub fn run_as_caller(self, command: &[Str<'_>]) {
        let name = command[0].bytes();
        let Ok(c_name) = CString::new(name) else {
            return self.reply_error("ERR unknown command");
        };
        let call = |c_name: &CStr, format: &CStr, arguments: &[Str<'_>]| {
            // SAFETY: the table, the context; the arguments are as the format says, and live for this call.
            let reply = unsafe {
                call!(
                    self.as_ptr(),
                    c_name.as_ptr(),
                    format.as_ptr(),
                    pointers_of(arguments),
                    arguments.len()
                )
            };
            reply.ok()
        };
        let Some(answer) = call(&c_name, c"0CSME!v", &command[1..]) else {
            return self.reply_error("ERR the server does not run this command");
        };
        // Valkey since 8.1 keeps some errors (`GETDEL` of a list) in the client it made for the call, and returns them to the
        // next call. That one is the module's own: the caller needs no right to it.
        let answer = match answer.is_empty() {
            true => call(c"PING", c"v", &[]).filter(|answer| answer.error().is_some()),
            false => Some(answer),
        };
        let Some(answer) = answer else {
            return self.reply_error("ERR the server gave no reply to this command");
        };
        match answer.error().as_deref().and_then(unguarded_error) {
            Some(error) => self.reply_error(&error),
            None => answer.pass_on(self),
        }
    }
}

/// Translates errors that the server words differently for module calls to those of the command alone.
fn unguarded_error(error: &str) -> Option<String> {
    const NOT_ALLOWED: &str = " is not allowed on script mode";
    let text = error.strip_prefix("ERR ").unwrap_or(error);
    if let Some(command) = text.strip_suffix(NOT_ALLOWED) {
        let name = command.strip_prefix("command ").unwrap_or(command);
        return Some(format!("ERR LOCK.GUARD does not run {name}"));
    }
    // The keys are in a slot of this node, so some of them are still at the source or already at the target of a migration.
    if text.starts_with("Attempted to access a non local key") {
        return Some(TRYAGAIN.to_owned());
    }
    let code = match text {
        _ if text.starts_with("acl verification failed") => "NOPERM",
        _ if text.starts_with("Can not execute a") && text.contains("cluster is down") => {
            "CLUSTERDOWN"
        }
        _ => return None,
    };
    Some(format!("{code} {text}"))
}

#[cfg(test)]
mod tests {
    use super::unguarded_error;

    #[test]
    fn errors_have_the_codes_of_bare_commands() {
        let text = "acl verification failed, can't run this command or subcommand.";
        assert_eq!(unguarded_error(text), Some(format!("NOPERM {text}")));
        assert_eq!(
            unguarded_error(&format!("ERR {text}")),
            Some(format!("NOPERM {text}"))
        );
        assert_eq!(
            unguarded_error("ERR command 'client|kill' is not allowed on script mode"),
            Some("ERR LOCK.GUARD does not run 'client|kill'".to_owned())
        );
        for own in [
            "OOM command not allowed",
            "WRONGTYPE Operation",
            "ERR syntax error",
        ] {
            assert_eq!(unguarded_error(own), None);
        }
    }
}
