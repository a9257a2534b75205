//! `tether run`: a command while a lock is held.
//!
//! - hold.rs: the lock
//! - keeper.rs: the guard, which ends the command when the lock is lost
//! - signals.rs: what others send

mod hold;
mod keeper;
mod signals;

use crate::codes;
use crate::guard::{Order, ToGuard, ToRunner, Why, start_code};
use crate::options;
use crate::timing;
use hold::{Hold, Mode, Refusal, Request};
use keeper::Keeper;
use rustix::process::{Signal, getpgrp, getpid, kill_process};
use signals::Arrived;
use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

/// The exit code of `tether run`.
pub fn run(url: String, options: &options::Run) -> u8 {
    let key = options.key.display();
    if !options.grace.is_zero()
        && let Err(unfit) = tether_client::timing::fence(options.grace, options.kill_after)
    {
        return complain(codes::USAGE, timing::complaint(&unfit));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return complain(codes::FAILED, error),
    };
    let code = runtime.block_on(async {
        let mut signals = match signals::listen() {
            Ok(signals) => signals,
            Err(error) => return complain(codes::FAILED, error),
        };
        let hold = tokio::select! {
            hold = hold::acquire(request(url, options)) => hold,
            code = wait_for_end(&mut signals) => return code,
        };
        match hold {
            Ok(hold) => while_held(options, hold, &mut signals).await,
            Err(Refusal::Taken(why)) => complain(codes::TAKEN, format!("no lock '{key}': {why}")),
            Err(Refusal::Unreachable(why)) => {
                complain(codes::UNREACHABLE, format!("no lock '{key}': {why}"))
            }
            Err(Refusal::Refused(why)) => {
                complain(codes::REFUSED, format!("no lock '{key}': {why}"))
            }
        }
    });
    // Whatever a task still does, the lock is given back or lost.
    runtime.shutdown_background();
    code
}

fn complain(code: u8, why: impl Display) -> u8 {
    eprintln!("tether: {why}");
    code
}

fn request(url: String, options: &options::Run) -> Request {
    let mode = match options.permits {
        Some(permits) => Mode::Permits {
            count: permits.count,
            total: permits.total,
        },
        None if options.shared => Mode::Shared,
        None => Mode::Exclusive,
    };
    Request {
        url,
        quorum: options.quorum.clone(),
        key: options.key.as_bytes().to_vec(),
        mode,
        wait: (!options.nowait).then_some(options.wait.unwrap_or(Duration::ZERO)),
        lease: options.lease,
        grace: options.grace,
        kill_after: options.kill_after,
    }
}

/// Ends with the exit code when a signal says that nobody wants the lock any more.
async fn wait_for_end(signals: &mut UnboundedReceiver<Arrived>) -> u8 {
    loop {
        match signals.recv().await {
            Some(arrived) if arrived.is_end() => {
                return u8::try_from(128 + arrived.signal).unwrap_or(codes::FAILED);
            }
            Some(arrived) if arrived.is_stop() => stop(),
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}

/// Stops this process as the terminal would have done it, so that the shell gets the terminal back.
fn stop() {
    let _ = kill_process(getpid(), Signal::STOP);
}

/// Runs the command to its end, and gives the lock back.
async fn while_held(
    options: &options::Run,
    mut hold: Hold,
    signals: &mut UnboundedReceiver<Arrived>,
) -> u8 {
    let token = hold.token.to_string();
    let order = Order {
        socket: 0,
        alive_until: *hold.alive.borrow_and_update(),
        kill_after: options.kill_after,
        on_loss: Signal::from_named_raw(options.on_loss.0).unwrap_or(Signal::TERM),
        group: getpgrp().as_raw_nonzero().get(),
        command: options.command.clone(),
    };
    let environment = [
        ("TETHER_KEY", options.key.as_os_str()),
        ("TETHER_TOKEN", OsStr::new(&token)),
    ];
    let mut keeper = match Keeper::start(order, &environment) {
        Ok(keeper) => keeper,
        Err(error) => {
            let _ = hold.release().await;
            return complain(codes::FAILED, format!("cannot start a guard: {error}"));
        }
    };
    let (end, loss) = watch_over(&mut keeper, &mut hold, signals).await;
    let released = hold.release().await;
    verdict(options, end, loss.or(released.err()))
}

/// What has become of the command.
enum End {
    Done {
        why: Why,
        code: u8,
    },
    NotStarted(i32),
    Unfit(i32),
    /// The guard was killed, and then everything that it had started.
    Unguarded,
}

/// What became of it, and why the lock was lost meanwhile, if it was.
async fn watch_over(
    keeper: &mut Keeper,
    hold: &mut Hold,
    signals: &mut UnboundedReceiver<Arrived>,
) -> (End, Option<String>) {
    let mut lost = pin!(hold.lost());
    let mut loss = None;
    let end = loop {
        tokio::select! {
            word = keeper.hear() => match word {
                Some(ToRunner::Started) => {}
                Some(ToRunner::Stopped) => stop(),
                Some(ToRunner::NotStarted(errno)) => break End::NotStarted(errno),
                Some(ToRunner::Unfit(errno)) => break End::Unfit(errno),
                Some(ToRunner::Done { why, code }) => break End::Done { why, code },
                None => {
                    keeper::take_over().await;
                    break End::Unguarded;
                }
            },
            Ok(()) = hold.alive.changed() => {
                keeper.say(ToGuard::Alive(*hold.alive.borrow_and_update()));
            }
            reason = lost.as_mut(), if loss.is_none() => {
                loss = Some(reason);
                keeper.say(ToGuard::Lost);
            }
            Some(arrived) = signals.recv() => {
                if !arrived.by_terminal {
                    keeper.say(ToGuard::Signal(arrived.signal));
                }
            }
        }
    };
    (end, loss)
}

fn verdict(options: &options::Run, end: End, loss: Option<String>) -> u8 {
    let key = options.key.display();
    let command = options.command[0].display();
    match end {
        End::NotStarted(errno) => {
            let error = std::io::Error::from_raw_os_error(errno);
            complain(
                start_code(errno),
                format!("cannot start '{command}': {error}"),
            )
        }
        End::Unfit(errno) => {
            let error = std::io::Error::from_raw_os_error(errno);
            complain(
                codes::FAILED,
                format!("cannot guard a command here: {error}"),
            )
        }
        End::Unguarded => complain(codes::FAILED, "the guard was killed; the command was ended"),
        End::Done {
            why: Why::Command | Why::Runner,
            code,
        } if loss.is_none() => code,
        End::Done { why, .. } => {
            let reason = loss.unwrap_or_else(|| match why {
                Why::Deadline => "it could not be vouched for in time".to_owned(),
                _ => "it was no longer held when the command had ended".to_owned(),
            });
            complain(
                codes::LOST,
                format!("lost the lock '{key}': {reason}; '{command}' was ended"),
            )
        }
    }
}
