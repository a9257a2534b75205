//! The command line of tether.
//!
//! - options.rs: what can be said    codes.rs: the exit codes    timing.rs: times, and how those of `tether run` fit together
//! - run/: the runner, which holds the lock    guard/: the process that ends the command when the lock is lost
//! - inspect/: what looks at a server, and `tether kick`    address.rs: where a server is, and how to speak to it
//! - advice.rs: what to do about a server's error
//! - qualify/: `tether qualify`, which tries a server
//! - output.rs: what is written, so that nothing steers a terminal
//! - signals.rs: the signals that come, and an end by one    ignored.rs: those that this process leaves alone

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod address;
mod advice;
mod codes;
mod guard;
mod ignored;
mod inspect;
mod options;
mod output;
mod qualify;
mod run;
mod signals;
mod timing;

use clap::{CommandFactory, Parser};
use options::{Action, Options};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tether_devserver::Devserver;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments
        .next_if(|first| first == OsStr::new(guard::ROLE))
        .is_some()
    {
        return match guard::Order::parse(arguments) {
            Some(order) => {
                guard::serve(&order);
                ExitCode::SUCCESS
            }
            None => ExitCode::from(codes::USAGE),
        };
    }
    if arguments
        .next_if(|first| first == OsStr::new(qualify::ROLE))
        .is_some()
    {
        return ExitCode::from(qualify::become_server(arguments));
    }
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(answer) => {
            let _ = answer.print();
            let is_error = answer.use_stderr();
            return ExitCode::from(if is_error { codes::USAGE } else { 0 });
        }
    };
    let target = match address::Target::parse(&options.url) {
        Ok(target) => target,
        Err(why) => {
            output::complain(format!("--url: {why}"));
            return ExitCode::from(codes::USAGE);
        }
    };
    let looked = |ended| ExitCode::from(inspect::code(ended));
    match options.action {
        Action::Run(wish) => ExitCode::from(run::run(target, &wish)),
        Action::Elect(wish) => ExitCode::from(run::elect(target, &wish)),
        Action::Ls(wish) => looked(inspect::list(&target, &wish)),
        Action::Who(wish) => looked(inspect::who(&target, &wish)),
        Action::Why(wish) => looked(inspect::why(&target, &wish)),
        Action::Log(wish) => looked(inspect::log(&target, &wish)),
        Action::Sessions(wish) => looked(inspect::sessions(&target, &wish)),
        Action::Top(wish) => looked(inspect::top(&target, &wish)),
        Action::Watch(wish) => looked(inspect::watch(&target, &wish)),
        Action::Presence(wish) => looked(inspect::presence(&target, &wish)),
        Action::Kick(wish) => looked(inspect::kick(&target, &wish)),
        Action::Doctor(wish) => looked(inspect::doctor(&target, &wish)),
        Action::Qualify(wish) => ExitCode::from(qualify::qualify(&wish)),
        Action::Metrics(wish) => looked(inspect::metrics(&target, &wish)),
        Action::Devserver(wish) => ExitCode::from(devserver(wish)),
        Action::Completions { shell } => {
            let mut definition = Options::command();
            clap_complete::generate(shell, &mut definition, "tether", &mut io::stdout());
            ExitCode::SUCCESS
        }
        Action::Man { folder } => match write_man_pages(&folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                output::complain(format!("{}: {error}", folder.display()));
                ExitCode::from(codes::FAILED)
            }
        },
    }
}

fn devserver(wish: options::Devserver) -> u8 {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let options = tether_devserver::Options {
        port: wish.port,
        unix_socket: wish.unix_socket,
        password: wish.password,
        peer_timeout_ms: ms(wish.peer_timeout),
        quarantine_ms: ms(wish.quarantine),
        can_push: !wish.no_pushes,
        has_module: !wish.no_module,
    };
    let serve = || {
        let server = Devserver::bind(options)?;
        output::lines(&format!("ready on port {}\n", server.port()?))?;
        server.serve()
    };
    match serve() {
        Ok(()) => 0,
        Err(error) => {
            output::complain(format!("devserver: {error}"));
            codes::FAILED
        }
    }
}

fn write_man_pages(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Options::command(), folder)
}
