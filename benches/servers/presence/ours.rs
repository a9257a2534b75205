//! Members and watchers of this module: SETTP and WATCHTP.

use std::io;
use std::os::fd::RawFd;
use tether_peers::{Link, Member, Watcher};
use tether_testing::resp::{Connection, encode, parse};

pub const PREFIX: &str = "m:";

pub struct Owner(Connection);

impl Owner {
    pub fn join(port: u16) -> io::Result<Owner> {
        Connection::open(port).map(Owner)
    }

    /// With a session that outlives its connection.
    pub fn with_session(port: u16) -> io::Result<Owner> {
        let mut owner = Owner::join(port)?;
        owner.0.run("SESSION.START GRACE 600000");
        Ok(owner)
    }
}

impl Member for Owner {
    fn add(&mut self, names: &[String]) -> io::Result<()> {
        const AT_ONCE: usize = 1000;
        for names in names.chunks(AT_ONCE) {
            let settp =
                |name| encode(["SETTP", &format!("{PREFIX}{name}"), "a-value-of-some-bytes"]);
            let commands: Vec<_> = names.iter().flat_map(settp).collect();
            self.0.run_all(&commands, names.len());
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.0.run(&format!("DELTP {PREFIX}{name}"));
        Ok(())
    }
}

pub struct PrefixWatch(Link);

impl PrefixWatch {
    /// With all that there is.
    pub fn begin(port: u16) -> io::Result<PrefixWatch> {
        let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let mut link = Link::open(port);
        link.run("HELLO 3").ok_or_else(broken)?;
        let mut after = String::new();
        loop {
            link.send(&encode(&question(&after)));
            let page = loop {
                if let Some(bytes) = link.buffered_bytes() {
                    break Page::of(bytes);
                }
                link.receive();
                link.descriptor().ok_or_else(broken)?;
            };
            match page {
                Some(Page { next, .. }) if next.is_empty() => return Ok(PrefixWatch(link)),
                Some(page) => after = page.next,
                None => {}
            }
        }
    }
}

/// What WATCHTP returns, without its entries.
pub struct Page {
    pub next: String,
    pub entries: usize,
}

impl Page {
    /// None while the server sorts its keys: then it is asked again.
    pub fn of(reply: &[u8]) -> Option<Page> {
        if reply.starts_with(b"-TRYAGAIN ") {
            return None;
        }
        let rest = reply.strip_prefix(b"*2\r\n").expect("a page");
        let (next, length) = parse(rest).expect("a name");
        let entries = rest[length..].strip_prefix(b"*").expect("its entries");
        let digits = entries.iter().take_while(|byte| byte.is_ascii_digit());
        Some(Page {
            next: next.text(),
            entries: digits.fold(0, |number, digit| 10 * number + usize::from(digit - b'0')),
        })
    }
}

/// What asks for a page.
pub fn question(after: &str) -> String {
    match after {
        "" => format!("WATCHTP {PREFIX} KEYSONLY"),
        after => format!("WATCHTP {PREFIX} AFTER {after} KEYSONLY"),
    }
}

impl Watcher for PrefixWatch {
    fn descriptor(&self) -> RawFd {
        self.0.descriptor().unwrap_or(-1)
    }

    fn gone(&mut self) -> io::Result<Vec<String>> {
        self.0.receive();
        let mut gone = Vec::new();
        while let Some(push) = self.0.buffered() {
            let words = push.items();
            let [_, key, news] = &words[..] else {
                return Err(io::Error::other(format!("{push:?} is no push")));
            };
            let key = key.text();
            if let Some(name) = key.strip_prefix(PREFIX)
                && news.text().starts_with("DEL ")
            {
                gone.push(name.to_owned());
            }
        }
        match self.0.is_up() {
            true => Ok(gone),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
