//! Decides whether the server's private functions, which are not part of the module API, may be called (`shim.c`).
//!
//! They are looked up by symbol name, and nothing describes their arguments or the layout of their structures: on an
//! untested server they might write anywhere. So they are called only if the server's version is known (`policy/server.rs`)
//! or the server has qualified (`tether qualify`, `program.rs`), and a check of the symbols agrees; on other servers only if
//! the administrator says so (`tether.private-functions`).

use crate::policy::server::{Private, Server, Wanted};
use crate::shell::server::program;
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx};
use crate::shell::sys::shim;

/// The argument after `loadmodule` with which `tether qualify` loads the module to try a server: private functions are called
/// whatever the version and the settings are. After it, as a hexadecimal number, what the calls pass in unused registers.
const TRIAL: &[u8] = b"trial";

/// Begins a trial if these arguments ask for one. False if they are wrong.
pub fn begin_trial(arguments: &[&[u8]]) -> bool {
    let unused = match arguments {
        [] => return true,
        [TRIAL, unused] => std::str::from_utf8(unused).ok(),
        _ => None,
    };
    let Some(unused) = unused.and_then(|digits| u64::from_str_radix(digits, 16).ok()) else {
        return false;
    };
    shim::fill_unused(unused);
    shell().is_trial.set(true);
    true
}

/// A setting has changed. While the module is loaded not all of them are known yet.
pub fn decide_again() {
    if shell().server.get().private.is_some() {
        decide();
    }
}

/// Decides, once the settings are known.
pub fn decide() {
    let shell = shell();
    let server = shell.server.get();
    let wanted = shell.settings.get().private_functions;
    let is_trial = shell.is_trial.get();
    if is_trial {
        identify();
    }
    let private = Private::decide(
        server.version,
        wanted,
        is_trial,
        has_qualified,
        shim::symbols_match,
    );
    if server.private == Some(private) {
        return;
    }
    shim::set_allowed(private.are_called());
    let is_verified = private.are_verified();
    raw::describe_directly(is_verified && server.looks_at_all);
    shell.server.set(Server {
        private: Some(private),
        ends_blocks: is_verified && !server.threads_own_clients,
        ..server
    });
    if let Some(ctx) = raw::detached() {
        log_decision(ctx, &server, private, wanted);
    }
}

/// Whether the setting `tether.qualified` names the running program.
fn has_qualified() -> bool {
    let shell = shell();
    if shell.qualified.with(Vec::is_empty) {
        return false;
    }
    identify();
    let identity = shell.program.with(Clone::clone);
    identity.is_some_and(|identity| shell.qualified.with(|ids| ids.contains(&identity)))
}

fn identify() {
    let program = &shell().program;
    if program.with(Option::is_none) {
        let identity = program::identity();
        program.with_mut(|known| *known = identity);
    }
}

/// Why private functions are not called, as a refusal says it. `None` if they are called.
pub fn why_not() -> Option<String> {
    let server = shell().server.get();
    let private = server.private.filter(|private| !private.are_called())?;
    Some(private.why_not(server.version, shell().settings.get().private_functions))
}

fn log_decision(ctx: Ctx<'_>, server: &Server, private: Private, wanted: Wanted) {
    let version = server.version.map(|version| version.to_string());
    let version = version.as_deref().unwrap_or("a server of unknown version");
    let text = match private {
        Private::Known => {
            let Some(verified) = server
                .version
                .and_then(|version| version.verified_patches())
            else {
                return;
            };
            format!(
                "this is {version}, which tether was not tested on: pushes are on, since it looks like {verified}; \
                 `tether qualify` would try it"
            )
        }
        Private::Qualified => {
            format!("this is {version}: pushes are on, since it has qualified (tether.qualified)")
        }
        Private::Tried => format!(
            "this is {version}, which tether was not tested on: its private functions are called all the same \
             (tether.private-functions)"
        ),
        Private::Trial => format!("this is a trial of {version}, for `tether qualify` only"),
        Private::Unknown | Private::Bad | Private::Unfit | Private::Never => {
            let why = private.why_not(server.version, wanted);
            let id = shell().program.with(Clone::clone);
            let id = id.map_or(String::new(), |id| {
                format!(" (tether.qualified does not name its build id, {id})")
            });
            format!(
                "this is {version}: WATCHEX, PUSH and NOTIFY are refused, since pushes are off: {why}{id}; see docs/servers.md"
            )
        }
    };
    let level = match private {
        Private::Qualified => c"notice",
        _ => c"warning",
    };
    ctx.log(level, &text);
}
