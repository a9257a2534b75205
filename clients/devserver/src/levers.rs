//! `DEV`: brings about what is hard to bring about on a server.

use crate::machine::{Machine, Refuses};
use crate::resp::Writer;
use std::time::Duration;
use tether::engine::{ClientId, Db, Event, Key, Loss};

const HELP: &[&str] = &[
    "DEV LOSE key [reason]: the key is gone, and its owners lose it: deleted (unless given), expired, evicted",
    "DEV SILENT ms: nothing is read or sent for so long",
    "DEV DROP [id]: all other connections end, or this one",
    "DEV REFUSE code [text]: NOREPLICAS, MISCONF, OOM to whatever writes; another code to every command",
    "DEV ACCEPT: nothing is refused any more",
    "DEV DEMOTE [host port]: this server is a replica, of this master",
    "DEV PROMOTE: it is a master",
    "DEV ADVANCE ms: the clock goes forward: of leases, waits, graces, expiries",
];

impl Machine {
    /// Pulls a lever; `words` follow `DEV`.
    pub fn pull(&mut self, client: ClientId, words: &[&[u8]], writer: &mut Writer) {
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let ms = |word: &[u8]| text(word).parse().ok().map(Duration::from_millis);
        let verb = words
            .first()
            .map_or(Vec::new(), |word| word.to_ascii_uppercase());
        match (verb.as_slice(), words.get(1..).unwrap_or_default()) {
            (b"LOSE", [name, reason @ ..]) if reason.len() < 2 => {
                let reason = reason
                    .first()
                    .map_or("deleted".to_owned(), |word| text(word));
                let why = [Loss::Deleted, Loss::Expired, Loss::Evicted];
                let Some(why) = why.into_iter().find(|why| why.name() == reason) else {
                    return writer.error("ERR a key is lost as deleted, expired or evicted");
                };
                let db = self.connections.get(client).map_or(Db(0), |it| it.db);
                let is_lost = self.lose(Key { db, name }, None, why);
                return writer.integer(is_lost.into());
            }
            (b"SILENT", [time]) if ms(time).is_some() => self.silence = ms(time),
            (b"DROP", []) => {
                let all: Vec<_> = self.connections.iter().map(|(other, _)| other).collect();
                all.into_iter()
                    .filter(|other| *other != client)
                    .for_each(|other| self.drop_connection(other));
            }
            (b"DROP", [id]) => {
                let id = text(id).parse().map_or(ClientId(0), ClientId);
                self.drop_connection(id);
            }
            (b"REFUSE", [code, rest @ ..]) => {
                let code = text(code).to_ascii_uppercase();
                let everything = !["NOREPLICAS", "MISCONF", "OOM"].contains(&&*code);
                let words: Vec<_> = rest.iter().map(|word| text(word)).collect();
                let error = match words.is_empty() {
                    true => format!("{code} tether devserver was told to refuse"),
                    false => format!("{code} {}", words.join(" ")),
                };
                self.refuses = Some(Refuses { error, everything });
            }
            (b"ACCEPT", []) => self.refuses = None,
            (b"DEMOTE", []) => self.demote(Default::default()),
            (b"DEMOTE", [host, port]) => {
                let port = text(port).parse().unwrap_or(0);
                self.demote((text(host), port));
            }
            (b"PROMOTE", []) => self.promote(),
            (b"ADVANCE", [time]) if ms(time).is_some() => {
                self.ahead += ms(time).unwrap_or_default();
                self.tick();
            }
            (b"HELP", []) => {
                writer.array(HELP.len());
                HELP.iter().for_each(|line| writer.simple(line));
                return;
            }
            _ => return writer.error("ERR no such lever: DEV HELP"),
        }
        writer.simple("OK");
    }

    fn drop_connection(&mut self, client: ClientId) {
        if let Some(connection) = self.connections.get(client) {
            connection.wire.close();
        }
        self.disconnect(client);
    }

    /// It is a replica of this master. What connections hold is lost, and their waits end.
    pub fn demote(&mut self, master: (String, u16)) {
        self.master = Some(master);
        let redirect = false;
        self.handle(Event::Demoted { redirect });
    }

    pub fn promote(&mut self) {
        self.master = None;
        self.engine
            .begin_epoch(crate::machine::since_1970() + self.ahead);
        self.handle(Event::Promoted);
    }
}
