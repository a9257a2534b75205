//! What the programs of this folder have in common: they read lines, have their client send what these say, and print the
//! replies (see tests/clients/check.py).

use std::env;
use std::fmt::Display;
use std::pin::Pin;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

/// The client's way to send a command, and what comes of it, as a line.
pub type Call = Box<dyn Fn(Vec<String>) -> Said + Send + Sync>;
pub type Said = Pin<Box<dyn Future<Output = String> + Send>>;
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How many tasks share a client.
const TASKS: usize = 8;

pub struct Arguments {
    pub host: String,
    pub port: u16,
    /// 2 or 3; 0 is whatever the client speaks as it comes.
    pub protocol: u8,
    /// Which of its pools; empty is none.
    pub pool: String,
}

pub fn arguments() -> Arguments {
    let mut words = env::args().skip(1);
    let mut next = || words.next().unwrap_or_default();
    Arguments {
        host: next(),
        port: next().parse().expect("a port"),
        protocol: next().parse().expect("a protocol"),
        pool: next(),
    }
}

/// `call` is the client as it comes; `holder` makes a connection that can hold a lock, and asks for it.
pub async fn serve<H>(name: &str, call: Call, holder: impl Fn() -> H)
where
    H: Future<Output = Result<(Call, String), Failure>>,
{
    println!("{}", version(name));
    let mut held: Option<Call> = None;
    let mut lines = BufReader::new(stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match verb {
            "width" => println!("{TASKS}"),
            "call" => println!("{}", call(words(rest, 0)).await),
            "pool" => {
                let tasks: Vec<_> = (0..TASKS)
                    .map(|number| tokio::spawn(call(words(rest, number))))
                    .collect();
                for task in tasks {
                    println!("{}", task.await.expect("a task"));
                }
            }
            "lines" => match holder().await {
                Ok((call, token)) => {
                    held = Some(call);
                    println!("{token}");
                }
                Err(failure) => println!("{}", refused(failure)),
            },
            _ => {
                let held = held.as_ref().expect("lines before holder");
                println!("{}", held(words(rest, 0)).await);
            }
        }
    }
}

fn words(rest: &str, number: usize) -> Vec<String> {
    let number = number.to_string();
    rest.split(' ')
        .map(|word| word.replace('%', &number))
        .collect()
}

pub fn refused(error: impl Display) -> String {
    format!("! {error}").replace('\n', " ")
}

pub fn token_or_nil(token: Option<u64>) -> String {
    token.map_or("nil".into(), |token| token.to_string())
}

/// As Cargo.toml has it.
fn version(name: &str) -> &'static str {
    let mut lines = include_str!("../Cargo.toml").lines();
    let line = lines.find(|line| line.starts_with(&format!("{name} = ")));
    let line = line.expect("its line").split_once('=').expect("a value").1;
    let version = line.split_once("\"=").expect("a pinned version").1;
    version.split('"').next().expect("its end")
}
