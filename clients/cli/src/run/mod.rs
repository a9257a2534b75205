//! `tether run`: a command while a lock is held. `tether elect`: a command while this one leads.
//!
//! - hold.rs: the lock    patience.rs: how long it is waited for
//! - keeper.rs: the guard, which ends the command when the lock is lost
//!
//! A signal, whenever it comes, reaches the command or ends this process: until the command is asked for it ends the wait, and
//! from then on it is passed on to the guard, which keeps it until the command is there.

mod hold;
mod keeper;
mod patience;

use crate::address::Target;
use crate::codes;
use crate::guard::{Ending, Order, ToGuard, ToRunner, Why, start_code};
use crate::options;
use crate::output;
use crate::signals::{self, ENDS, OTHERS, Signals};
use crate::timing;
use hold::{Hold, Mode, Refusal, Request};
use keeper::Keeper;
use patience::Patience;
use rustix::process::{Signal, getpgrp, getpid, kill_process};
use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::pin;
use std::process;
use std::time::Duration;
use tether_client::Unfit;
use tokio::time::{sleep, timeout};

/// How long servers may take to hear, at the end, that nothing is wanted any more.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How `tether run` ends.
enum Exit {
    Code(u8),
    Signal(i32),
}

/// What is to be done with the lock, and what becomes of a time in which it is held.
struct Task<'a> {
    request: Request,
    work: &'a options::Work,
    taken_exit: u8,
}

/// How one time ended in which the lock was held, or waited for.
enum Outcome {
    Exit(Exit),
    /// Why the lock was lost, and with it the command.
    Lost(String),
}

/// The exit code of `tether run`, if it does not end by a signal.
pub fn run(target: Target, options: &options::Run) -> u8 {
    let grace = options.work.grace(options.at_least);
    if let Some(at_least) = options.at_least.filter(|at_least| grace < *at_least) {
        let (grace, at_least) = (timing::shown(grace), timing::shown(at_least));
        let why = format!("--at-least {at_least} needs a --grace as long, and not {grace}");
        return complain(codes::USAGE, why);
    }
    for url in &options.quorum {
        let why = match Target::parse(url) {
            Ok(Target::Server(_)) => continue,
            Ok(Target::Sentinels { .. }) => "each server has a URL of its own".to_owned(),
            Err(why) => why,
        };
        return complain(codes::USAGE, format!("--quorum: {why}"));
    }
    if !matches!(options.quorum.len(), 0 | 3 | 5) {
        let why = timing::complaint(&Unfit::Servers(options.quorum.len()), true);
        return complain(codes::USAGE, format!("--quorum: {why}"));
    }
    let mode = match options.permits {
        Some(permits) => Mode::Permits {
            count: permits.count,
            total: permits.total,
        },
        None if options.shared => Mode::Shared,
        None => Mode::Exclusive,
    };
    let request = Request {
        quorum: options.quorum.clone(),
        patience: match options.wait {
            _ if options.nowait => Patience::None,
            Some(Duration::ZERO) => Patience::None,
            Some(wait) => Patience::Until(wait),
            None => Patience::ForEver,
        },
        lease: options.lease,
        at_least: options.at_least,
        announce: options.announce.clone(),
        ..request(target, &options.work, mode, grace)
    };
    let task = Task {
        request,
        work: &options.work,
        taken_exit: options.taken_exit,
    };
    perform(&task, true)
}

/// The exit code of `tether elect`, if it does not end by a signal.
pub fn elect(target: Target, options: &options::Elect) -> u8 {
    let mode = Mode::Lead(options.value.as_bytes().to_vec());
    let task = Task {
        request: request(target, &options.work, mode, options.work.grace(None)),
        work: &options.work,
        taken_exit: codes::TAKEN,
    };
    perform(&task, options.once)
}

/// Once, or until it ends otherwise than by a loss.
fn perform(task: &Task, once: bool) -> u8 {
    let Request {
        grace, kill_after, ..
    } = task.request;
    if task.request.has_session()
        && let Err(unfit) = tether_client::timing::fence(grace, kill_after)
    {
        let why = timing::complaint(&unfit, task.request.needs_grace());
        return complain(codes::USAGE, why);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return complain(codes::FAILED, error),
    };
    let exit = runtime.block_on(async {
        let mut signals = match Signals::listen(ENDS.into_iter().chain(OTHERS)) {
            Ok(signals) => signals,
            Err(error) => return Exit::Code(complain(codes::FAILED, error)),
        };
        let exit = loop {
            match hold_and_work(task, &mut signals).await {
                Outcome::Exit(exit) => break exit,
                Outcome::Lost(why) if once => break Exit::Code(complain(codes::LOST, why)),
                Outcome::Lost(why) => match signals.ended() {
                    Some(signal) => {
                        output::complain(why);
                        break Exit::Signal(signal);
                    }
                    None => output::complain(format!("{why}; it stands again")),
                },
            }
        };
        let _ = timeout(LAST_WORDS, all_said()).await;
        exit
    });
    // Whatever a task still does, the lock is given back or lost.
    runtime.shutdown_background();
    match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => signals::end_by(signal),
    }
}

/// Ends when the connections have ended whose owners are gone: then their servers know that nothing is wanted any more, and do
/// not keep it for a grace.
async fn all_said() {
    let metrics = tokio::runtime::Handle::current().metrics();
    while metrics.num_alive_tasks() > 0 {
        sleep(Duration::from_millis(1)).await;
    }
}

async fn hold_and_work(task: &Task<'_>, signals: &mut Signals) -> Outcome {
    let key = task.work.key().display();
    let what = task.what();
    let tell = |why: &str| {
        if !task.work.quiet {
            output::complain(format!("no {what} '{key}' yet: {why}; trying on"));
        }
    };
    let hold = tokio::select! {
        // What came together with the lock ends this as well.
        biased;
        signal = wait_for_end(signals) => return Outcome::Exit(Exit::Signal(signal)),
        hold = hold::acquire(&task.request, tell) => hold,
    };
    let (code, why) = match hold {
        Ok(hold) => return while_held(task, hold, signals).await,
        Err(Refusal::Taken(_)) if task.work.quiet => return Outcome::code(task.taken_exit),
        Err(Refusal::Taken(why)) => (task.taken_exit, why),
        Err(Refusal::Unreachable(why)) => (codes::UNREACHABLE, why),
        Err(Refusal::Refused(why)) => (codes::REFUSED, why),
        Err(Refusal::Lost(why)) => return task.lost_before_start(&task.request.server(), &why),
    };
    Outcome::code(complain(code, format!("no {what} '{key}': {why}")))
}

impl Outcome {
    fn code(code: u8) -> Outcome {
        Outcome::Exit(Exit::Code(code))
    }
}

impl Task<'_> {
    /// What is held, for people.
    fn what(&self) -> &'static str {
        match self.request.mode {
            Mode::Lead(_) => "lead",
            _ => "lock",
        }
    }

    fn lost(&self, server: &str, why: &str, became: &str) -> Outcome {
        let (what, key) = (self.what(), self.work.key().display());
        let why = hold::at(server, why);
        let command = self.work.command[0].display();
        Outcome::Lost(format!(
            "lost the {what} '{key}': {why}; '{command}' was {became}"
        ))
    }

    fn lost_before_start(&self, server: &str, why: &str) -> Outcome {
        self.lost(server, why, "not started")
    }
}

fn complain(code: u8, why: impl Display) -> u8 {
    output::complain(why);
    code
}

/// Without an end to its patience.
fn request(target: Target, work: &options::Work, mode: Mode, grace: Duration) -> Request {
    Request {
        target,
        quorum: Vec::new(),
        key: work.key().as_bytes().to_vec(),
        mode,
        patience: Patience::ForEver,
        lease: None,
        at_least: None,
        announce: None,
        grace,
        kill_after: work.kill_after,
        client_name: client_name(&work.command[0]),
    }
}

/// Host, process and command as `tether who` decodes them, so that `tether who` and the server's list of clients say whose lock it is.
fn client_name(command: &OsStr) -> String {
    let command = Path::new(command).file_name().unwrap_or(command);
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    format!(
        "tether:{host}:{}:{}",
        process::id(),
        command.to_string_lossy()
    )
}

/// Ends with the signal that ends a program which has nothing to do with it.
async fn wait_for_end(signals: &mut Signals) -> i32 {
    loop {
        let arrived = signals.next().await;
        if arrived.is_end() {
            return arrived.signal;
        }
        if arrived.is_stop() {
            stop();
        }
    }
}

/// Stops this process as the terminal would have done it, so that the shell gets the terminal back.
fn stop() {
    let _ = kill_process(getpid(), Signal::STOP);
}

/// Runs the command to its end, and gives the lock back.
async fn while_held(task: &Task<'_>, mut hold: Hold, signals: &mut Signals) -> Outcome {
    if let Err(why) = hold.check() {
        return task.lost_before_start(&hold.server, &why);
    }
    let work = task.work;
    let token = hold.token.to_string();
    let order = Order {
        socket: 0,
        alive_until: *hold.alive.borrow_and_update(),
        kill_after: work.kill_after,
        on_loss: Signal::from_named_raw(work.on_loss.0).unwrap_or(Signal::TERM),
        group: getpgrp().as_raw_nonzero().get(),
        command: work.command.clone(),
    };
    let environment = [
        ("TETHER_KEY", work.key()),
        ("TETHER_TOKEN", OsStr::new(&token)),
    ];
    let mut keeper = match Keeper::start(order, &environment) {
        Ok(keeper) => keeper,
        Err(error) => {
            let _ = hold.release().await;
            let why = format!("cannot start a guard: {error}");
            return Outcome::code(complain(codes::FAILED, why));
        }
    };
    let (end, loss) = watch_over(&mut keeper, &mut hold, signals).await;
    keeper.end();
    let server = hold.server.clone();
    let released = release(hold, signals).await;
    verdict(task, &server, end, loss.or(released.err()))
}

/// Gives the lock back. Who is told to end now does not wait for a server that is silent.
async fn release(hold: Hold, signals: &mut Signals) -> Result<(), String> {
    let impatience = async {
        wait_for_end(signals).await;
        sleep(LAST_WORDS).await;
    };
    tokio::select! {
        released = hold.release() => released,
        () = impatience => Ok(()),
    }
}

/// What has become of the command.
enum End {
    Done {
        why: Why,
        ending: Ending,
    },
    NotStarted(i32),
    Unfit(i32),
    /// The guard was killed, and then everything that it had started.
    Unguarded,
    /// The same by a signal to all, before it had started anything.
    Unbegun(i32),
}

/// What became of it, and why the lock was lost meanwhile, if it was.
async fn watch_over(
    keeper: &mut Keeper,
    hold: &mut Hold,
    signals: &mut Signals,
) -> (End, Option<String>) {
    let mut lost = pin!(hold.lost());
    let mut unannounced = pin!(hold.unannounced());
    let mut is_announced = true;
    let mut loss = None;
    // A signal of the terminal reaches a command that is there by itself; whether it was there is not known until it was told.
    let mut is_started = false;
    let mut ended_by = None;
    let end = loop {
        tokio::select! {
            word = keeper.hear() => match word {
                Some(ToRunner::Started) => {
                    for arrived in signals.come() {
                        keeper.say(ToGuard::Signal(arrived.signal));
                    }
                    is_started = true;
                }
                Some(ToRunner::Stopped) => stop(),
                Some(ToRunner::NotStarted(errno)) => break End::NotStarted(errno),
                Some(ToRunner::Unfit(errno)) => break End::Unfit(errno),
                Some(ToRunner::Done { why, ending }) => break End::Done { why, ending },
                None => {
                    keeper::take_over().await;
                    let mut came = signals.come().filter(|arrived| arrived.is_end());
                    let ended_by = ended_by.or(came.next().map(|arrived| arrived.signal));
                    break match ended_by {
                        Some(signal) if !is_started => End::Unbegun(signal),
                        _ => End::Unguarded,
                    };
                }
            },
            Ok(()) = hold.alive.changed() => {
                keeper.say(ToGuard::Alive(*hold.alive.borrow_and_update()));
            }
            reason = lost.as_mut(), if loss.is_none() => {
                loss = Some(reason);
                keeper.say(ToGuard::Lost);
            }
            () = unannounced.as_mut(), if is_announced => {
                is_announced = false;
                // With the lock goes everything; and the reason is told then.
                if hold.check().is_ok() {
                    output::complain("the key of --announce is gone; the command continues");
                }
            }
            arrived = signals.next() => {
                if !(arrived.by_terminal && is_started) {
                    keeper.say(ToGuard::Signal(arrived.signal));
                }
                if arrived.is_end() {
                    ended_by.get_or_insert(arrived.signal);
                }
            }
        }
    };
    (end, loss)
}

fn verdict(task: &Task, server: &str, end: End, loss: Option<String>) -> Outcome {
    let command = task.work.command[0].display();
    let system = std::io::Error::from_raw_os_error;
    let (code, why) = match end {
        End::NotStarted(errno) => (
            start_code(errno),
            format!("cannot start '{command}': {}", system(errno)),
        ),
        End::Unfit(errno) => (
            codes::FAILED,
            format!("cannot guard a command here: {}", system(errno)),
        ),
        End::Unbegun(signal) => return Outcome::Exit(Exit::Signal(signal)),
        End::Unguarded => (
            codes::FAILED,
            "the guard was killed, so tether killed the command".to_owned(),
        ),
        End::Done {
            why: Why::Command | Why::Runner,
            ending,
        } if loss.is_none() => {
            return Outcome::Exit(match ending {
                Ending::Code(code) => Exit::Code(code),
                Ending::Signal(signal) => Exit::Signal(signal),
            });
        }
        End::Done { why, .. } => {
            let reason = loss.unwrap_or_else(|| match why {
                Why::Deadline => "the server did not confirm the lock in time".to_owned(),
                _ => "it was no longer held when the command had ended".to_owned(),
            });
            return task.lost(server, &reason, "killed");
        }
    };
    Outcome::code(complain(code, why))
}
