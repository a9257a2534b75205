//! `tether presence`: the temporary keys with a prefix, live. WATCHTP returns them page by page, and then each change is pushed.

use super::pushed::Pushed;
use super::server::{Failure, PATIENCE, REFERRALS, locate};
use super::top::Screen;
use super::{NOTHING, print, print_json, print_page, text};
use crate::address::Target;
use crate::options::Presence;
use crate::output::{self, Page};
use redis::{ConnectionInfo, RedisResult, Value, cmd};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How long until a server that is still sorting its keys is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

type Bytes = Vec<u8>;

/// The token and the value of each key. A value that is long, or that is no string, is not known.
type Members = BTreeMap<Bytes, (i64, Option<Bytes>)>;

/// A page of WATCHTP: the name to go on after, and keys with token and value.
type Answer = (Bytes, Vec<(Bytes, i64, Option<Bytes>)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// It is there at the beginning.
    Here,
    Add,
    Set,
    Del,
    Flushed,
    /// The watch is over.
    End,
}

impl Event {
    fn word(self) -> &'static str {
        match self {
            Event::Here => "HERE",
            Event::Add => "ADD",
            Event::Set => "SET",
            Event::Del => "DEL",
            Event::Flushed => "FLUSHED",
            Event::End => "END",
        }
    }
}

/// What is said of a key, or of the prefix.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    key: Bytes,
    event: Event,
    token: Option<i64>,
    /// The value, or the reason.
    rest: Option<Bytes>,
}

pub fn presence(target: &Target, options: &Presence) -> Result<u8, Failure> {
    let address = locate(target)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(follow(address, options))
}

/// Ends after the table with `--once`, and else by a failure.
async fn follow(address: ConnectionInfo, options: &Presence) -> Result<u8, Failure> {
    let mut pushed = Pushed::connect(address).await?;
    let mut screen = Screen::of_stdout().filter(|_| !options.once && !options.json);
    let mut members = snapshot(&mut pushed, options).await?;
    show(options, &members, &mut screen)?;
    if options.once {
        return Ok(if members.is_empty() { NOTHING } else { 0 });
    }
    loop {
        let change = pushed.next("watchtp", read).await?;
        if screen.is_none() {
            tell(options, &change)?;
        }
        if change.event == Event::End {
            members = snapshot(&mut pushed, options).await?;
            show(options, &members, &mut screen)?;
            continue;
        }
        apply(&mut members, change);
        // A terminal is drawn once for all that has come by now.
        if screen.is_some() && pushed.is_empty() {
            show(options, &members, &mut screen)?;
        }
    }
}

/// All keys. A watch that ends between two of its pages begins anew, once.
async fn snapshot(pushed: &mut Pushed, options: &Presence) -> Result<Members, Failure> {
    let prefix = options.prefix.as_bytes();
    let until = Instant::now() + PATIENCE;
    match pages(pushed, prefix, until).await {
        Err(Failure::Refused(_)) => pages(pushed, prefix, until).await,
        members => members,
    }
}

/// A server that says TRYAGAIN is asked again until then.
async fn pages(pushed: &mut Pushed, prefix: &[u8], until: Instant) -> Result<Members, Failure> {
    let mut members = Members::new();
    let mut after = Bytes::new();
    let mut referrals = 0;
    loop {
        let mut question = cmd("WATCHTP");
        question.arg(prefix);
        if !after.is_empty() {
            question.arg("AFTER").arg(&after);
        }
        let page: RedisResult<Answer> = pushed.ask(&question).await;
        let (next, keys) = match page {
            Err(error) if error.code() == Some("TRYAGAIN") && Instant::now() < until => {
                sleep(AGAIN_AFTER).await;
                continue;
            }
            Err(error) if referrals < REFERRALS && pushed.follow(&error).await? => {
                referrals += 1;
                members.clear();
                after.clear();
                continue;
            }
            page => page.map_err(|error| Failure::of(&pushed.name, &error))?,
        };
        members.extend(
            keys.into_iter()
                .map(|(key, token, value)| (key, (token, value))),
        );
        if next.is_empty() {
            return Ok(members);
        }
        after = next;
    }
}

fn apply(members: &mut Members, change: Change) {
    match (change.event, change.token) {
        (Event::Add | Event::Set, Some(token)) => {
            members.insert(change.key, (token, change.rest));
        }
        (Event::Del, _) => {
            members.remove(&change.key);
        }
        (Event::Flushed, _) => members.clear(),
        _ => {}
    }
}

fn read(push: &[Value]) -> Option<Change> {
    match push {
        [Value::BulkString(key), Value::BulkString(news)] => parse(key, news),
        _ => None,
    }
}

/// `ADD <token> <value>`, `SET <token> <value>`, `DEL <token> <reason>`, `FLUSHED`, `END <reason>`. None for what a later server says.
fn parse(key: &[u8], news: &[u8]) -> Option<Change> {
    let split = |text: &[u8]| {
        let mut parts = text.splitn(2, |byte| *byte == b' ').map(<[u8]>::to_vec);
        (parts.next().unwrap_or_default(), parts.next())
    };
    let (word, rest) = split(news);
    let event = match word.as_slice() {
        b"ADD" => Event::Add,
        b"SET" => Event::Set,
        b"DEL" => Event::Del,
        b"FLUSHED" => Event::Flushed,
        b"END" => Event::End,
        _ => return None,
    };
    let has_token = matches!(event, Event::Add | Event::Set | Event::Del);
    let (token, rest) = match rest {
        Some(rest) if has_token => {
            let (token, rest) = split(&rest);
            (Some(str::from_utf8(&token).ok()?.parse().ok()?), rest)
        }
        None if has_token => return None,
        rest => (None, rest),
    };
    Some(Change {
        key: key.to_vec(),
        event,
        token,
        rest,
    })
}

/// All keys: drawn anew on a terminal, elsewhere as a table.
fn show(options: &Presence, members: &Members, screen: &mut Option<Screen>) -> Result<(), Failure> {
    match screen {
        Some(screen) => {
            let room = screen.room_for_keys().unwrap_or(u64::MAX);
            let shown = text::shown(options.prefix.as_bytes());
            let mut page = Page::default();
            page.line(format!("{shown}: {} keys", members.len()));
            table(&mut page, members, room as usize);
            output::steering(&screen.draw(&page, ""))?;
        }
        None if options.json => {
            for (key, (token, value)) in members {
                tell(
                    options,
                    &Change {
                        key: key.clone(),
                        event: Event::Here,
                        token: Some(*token),
                        rest: value.clone(),
                    },
                )?;
            }
        }
        None => {
            let mut page = Page::default();
            table(&mut page, members, usize::MAX);
            print_page(&page)?;
        }
    }
    Ok(())
}

/// The first of the keys.
fn table(page: &mut Page, members: &Members, most: usize) {
    let row = |(key, (token, value)): (&Bytes, &(i64, Option<Bytes>))| {
        let value = value.as_deref().map_or(String::new(), text::shown);
        [text::shown(key), token.to_string(), value]
    };
    let rows: Vec<_> = members.iter().take(most).map(row).collect();
    text::table(page, ["KEY", "TOKEN", "VALUE"], &rows, output::width());
}

/// A line for one change.
fn tell(options: &Presence, change: &Change) -> Result<(), Failure> {
    if options.json {
        return print_json(&in_json(change));
    }
    let mut words = vec![change.event.word().to_owned(), text::shown(&change.key)];
    words.extend(change.token.map(|token| token.to_string()));
    words.extend(change.rest.as_deref().map(text::shown));
    print(&format!("{}\n", words.join(" ")))
}

fn in_json(change: &Change) -> Json {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let name = match change.event {
        Event::Del | Event::End => "reason",
        _ => "value",
    };
    let rest = change.rest.as_deref().map(text);
    json!({ "key": text(&change.key), "event": change.event.word(), "token": change.token, name: rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_are_put_on_top_of_the_page() {
        let mut members = Members::new();
        for (key, news) in [
            ("a", "ADD 1 some words"),
            ("b", "ADD 2"),
            ("c", "ADD 3 "),
            ("a", "SET 4 other words"),
            ("c", "DEL 3 released"),
        ] {
            apply(
                &mut members,
                parse(key.as_bytes(), news.as_bytes()).expect(news),
            );
        }
        let value = Some(b"other words".to_vec());
        let expected = [(b"a".to_vec(), (4, value)), (b"b".to_vec(), (2, None))];
        assert_eq!(members, Members::from(expected));
        apply(&mut members, parse(b"", b"FLUSHED").expect("a flush"));
        assert!(members.is_empty());
    }

    #[test]
    fn what_a_later_server_says_is_left_out() {
        let end = parse(b"p", b"END moved").expect("an end");
        assert_eq!((end.event, end.rest), (Event::End, Some(b"moved".to_vec())));
        for news in ["LATER 1", "ADD", "ADD x", "SET  1"] {
            assert_eq!(parse(b"k", news.as_bytes()), None, "{news}");
        }
    }
}
