//! Commands within a command of ours: which keys they have, and how they are run and answered.

use crate::shell::sys::raw::ask::Answer;
use crate::shell::sys::raw::calls::{api, call};
use crate::shell::sys::raw::context::Ctx;
use crate::shell::sys::raw::strings::Str;
use redis_module::raw;
use std::ffi::{CStr, CString};

/// As the server words it for a command whose keys are here and elsewhere, while their slot moves.
pub const TRYAGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

/// Whose a command is.
pub enum CommandOrigin {
    Server,
    Module,
    /// There is no such command.
    Nobody,
}

/// The server's pointers to some strings, which are only read.
fn pointers_of(words: &[Str<'_>]) -> *mut *mut raw::RedisModuleString {
    // A `Str` is such a pointer.
    words
        .as_ptr()
        .cast::<*mut raw::RedisModuleString>()
        .cast_mut()
}

impl Ctx<'_> {
    /// The names of a command's keys, as `COMMAND GETKEYS` tells them: false where a server has renamed that.
    pub fn each_key_of(self, command: &[Str<'_>], mut each: impl FnMut(&[u8])) -> bool {
        // SAFETY: the table, the context; the arguments are as the format says, and live for this call.
        let reply = unsafe {
            call!(
                self.as_ptr(),
                c"COMMAND".as_ptr(),
                c"cv".as_ptr(),
                c"GETKEYS".as_ptr(),
                pointers_of(command),
                command.len()
            )
        };
        let answer = Answer::new(reply);
        if let Some(answer) = &answer {
            answer.each_string(&mut each);
        }
        answer.is_some()
    }

    /// Whose command this is. None where the server has renamed `COMMAND`.
    pub fn origin_of_command(self, name: Str<'_>) -> Option<CommandOrigin> {
        // SAFETY: the table, the context; the arguments are as the format says.
        let reply = unsafe {
            api!(RedisModule_Call(
                self.as_ptr(),
                c"COMMAND".as_ptr(),
                c"cs".as_ptr(),
                c"INFO".as_ptr(),
                name.as_ptr()
            ))
        };
        Answer::new(reply).map(|answer| match answer.has_command_flag("module") {
            None => CommandOrigin::Nobody,
            Some(true) => CommandOrigin::Module,
            Some(false) => CommandOrigin::Server,
        })
    }

    /// Whether a server of a cluster takes the running command for all of these keys, which are in one slot.
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
        let error = std::io::Error::last_os_error().raw_os_error();
        Answer::new(reply).is_some() || error != Some(libc::EPERM)
    }

    /// Runs a command as the user of the connection whose command is running, as a script would: with its protocol, without
    /// blocking, not over the memory limit, replicated as itself. Its reply, or why the server did not run it, is the reply.
    pub fn run_as_caller(self, command: &[Str<'_>]) {
        let name = command[0].bytes();
        let Ok(c_name) = CString::new(name) else {
            return self.reply_error("ERR unknown command");
        };
        let call = |c_name: &CStr, arguments: &[Str<'_>]| {
            // SAFETY: the table, the context; the arguments are as the format says, and live for this call.
            Answer::new(unsafe {
                call!(
                    self.as_ptr(),
                    c_name.as_ptr(),
                    c"0CSME!v".as_ptr(),
                    pointers_of(arguments),
                    arguments.len()
                )
            })
        };
        let Some(answer) = call(&c_name, &command[1..]) else {
            return self.reply_error("ERR the server does not run this command");
        };
        // Valkey 9 keeps some errors (`GETDEL` of a list) with the client that it made for the call, and gives them to the next call.
        let answer = match answer.is_empty() {
            true => call(c"PING", &[]).filter(|answer| answer.error().is_some()),
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

/// What is said where the server has words of its own for commands that modules call: the bare command's error begins so, too.
fn unguarded_error(error: &str) -> Option<String> {
    const NOT_ALLOWED: &str = " is not allowed on script mode";
    let text = error.strip_prefix("ERR ").unwrap_or(error);
    if let Some(command) = text.strip_suffix(NOT_ALLOWED) {
        let name = command.strip_prefix("command ").unwrap_or(command);
        return Some(format!("ERR LOCK.GUARD does not run {name}"));
    }
    // It was called for keys of this server's slot, so some of them are still where that comes from, or already where it goes.
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
