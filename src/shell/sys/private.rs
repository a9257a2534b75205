//! Whether functions of the server may be called that the module API does not promise (`shim.c`).
//!
//! They are found by their names, and nothing says what they take and where they lay what they keep: on a server on which
//! nobody has tried them they might write anywhere. So they are called where the series of the server is known
//! (`series.rs`) and a look at them agrees; and elsewhere only if the administrator wants to try (`tether.private-functions`).

use crate::shell::state::{Server, shell};
use crate::shell::sys::raw::Ctx;
use crate::shell::sys::shim;

/// What is to be done with them: the setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// They are called on servers that are known.
    #[default]
    Known,
    /// On all that have them.
    Always,
    Never,
}

/// What is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Private {
    /// They are called, on a server that is known.
    Known,
    /// They are called on one that is not known.
    Tried,
    /// They are not called: the server is not known.
    Unknown,
    /// They are not called: some are missing, or are another library's.
    Unfit,
    /// They are not called, because the setting says so.
    Never,
}

impl Private {
    /// As INFO says it.
    pub fn word(self) -> &'static str {
        match self {
            Private::Known => "known",
            Private::Tried => "tried",
            Private::Unknown => "unknown",
            Private::Unfit => "unfit",
            Private::Never => "never",
        }
    }

    fn are_called(self) -> bool {
        matches!(self, Private::Known | Private::Tried)
    }
}

/// Decides it, at load and when the setting is changed.
pub fn decide() {
    let shell = shell();
    let server = shell.server.get();
    let private = what_is_done(&server, shell.settings.get().private_functions);
    if server.private == Some(private) {
        return;
    }
    shim::allow(private.are_called());
    let is_known = private == Private::Known;
    shell.server.set(Server {
        private: Some(private),
        tells_directly: is_known && !server.is_cluster,
        ends_blocks: is_known && !server.threads_own_clients,
        ..server
    });
    if let Some(ctx) = shell.detached() {
        say(ctx, &server, private);
    }
}

fn what_is_done(server: &Server, wanted: Wanted) -> Private {
    let is_known = server.version.is_some_and(|version| version.is_known());
    let two_steps = server
        .version
        .is_some_and(|version| version.ends_blocks_in_two_steps());
    match wanted {
        Wanted::Never => Private::Never,
        Wanted::Known if !is_known => Private::Unknown,
        _ if !shim::fits(two_steps) => Private::Unfit,
        _ if is_known => Private::Known,
        _ => Private::Tried,
    }
}

fn say(ctx: Ctx<'_>, server: &Server, private: Private) {
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
