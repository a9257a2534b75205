//! Decides whether the server's private functions, which are not part of the module API, may be called (`shim.c`).
//!
//! They are looked up by symbol name, and nothing describes their arguments or the layout of their structures: on an
//! untested server they might write anywhere. So they are called only if the server's version is known (`policy/server.rs`)
//! and a check of the symbols agrees; on other versions only if the administrator says so (`tether.private-functions`).

use crate::policy::server::{Private, Server};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx};
use crate::shell::sys::shim;

/// Decides, at load and when the setting changes.
pub fn decide() {
    let shell = shell();
    let server = shell.server.get();
    let wanted = shell.settings.get().private_functions;
    let private = Private::decide(server.version, wanted, shim::symbols_match);
    if server.private == Some(private) {
        return;
    }
    shim::set_allowed(private.are_called());
    let is_known = private == Private::Known;
    raw::describe_directly(is_known && server.looks_at_all);
    shell.server.set(Server {
        private: Some(private),
        ends_blocks: is_known && !server.threads_own_clients,
        ..server
    });
    if let Some(ctx) = raw::detached() {
        log_decision(ctx, &server, private);
    }
}

fn log_decision(ctx: Ctx<'_>, server: &Server, private: Private) {
    let version = server.version.map(|version| version.to_string());
    let version = version.as_deref().unwrap_or("a server of unknown version");
    let why = match private {
        Private::Known => return,
        Private::Tried => {
            let text = format!(
                "this is {version}, which tether was not tested on: its private functions are called all the same \
                 (tether.private-functions)"
            );
            return ctx.log(c"warning", &text);
        }
        Private::Unknown => {
            "tether was not tested on it (tether.private-functions always to try; see docs/servers.md)"
        }
        Private::Unfit => "its private functions are not what they should be",
        Private::Never => "tether.private-functions says so",
    };
    ctx.log(
        c"warning",
        &format!("this is {version}: WATCHEX, PUSH and NOTIFY are refused, since {why}"),
    );
}
