//! Where the server is, who says so, and how it is greeted.

use crate::core::{code, is_passing, words};
use crate::error::Error;
use crate::resp::Frame;
use crate::socket::{Place, Wire};
use crate::tls::{Certificates, Tls};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult};
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

/// How a connection is opened, and greeted on.
pub trait Open: Send + Sync {
    /// A connection to the server that it is now; in a cluster to the one that has this slot.
    fn open(&self, within: Duration, slot: Option<u16>) -> BoxFuture<'_, Result<Wire, Error>>;
}

/// A server, those of which one is the master, or the master that Sentinels name.
#[derive(Clone)]
pub struct Address {
    /// One at least. With Sentinels its host is the master's name, and the port means nothing.
    servers: Vec<ConnectionInfo>,
    sentinels: Vec<ConnectionInfo>,
    tls: Tls,
    /// What the connection is called in lists of clients.
    name: String,
    /// It is the only one, also as a replica.
    is_fixed: bool,
}

/// Of a client's name (P-CONN-3).
const LONGEST_NAME: usize = 200;

/// So often a replica's word is taken for where its master is (P-CONN-5).
const HOPS: usize = 2;

/// What ROLE says.
enum Role {
    /// Or a server that may not be asked: LOCK.SERVER says it, too.
    Master,
    ReplicaOf(Option<Place>),
}

impl Address {
    pub fn new(
        urls: &[String],
        sentinels: &[String],
        certificates: &Certificates,
        name: Option<&str>,
    ) -> Result<Address, Error> {
        let parsed = |urls: &[String]| -> Result<Vec<_>, Error> {
            let parsed =
                |url: &String| parse(url).map_err(|error| Error::Refused(format!("URL {error}")));
            urls.iter().map(parsed).collect()
        };
        let servers = parsed(urls)?;
        let sentinels = parsed(sentinels)?;
        let mut all = servers.iter().chain(&sentinels);
        let tls = match all.any(|at| matches!(at.addr(), ConnectionAddr::TcpTls { .. })) {
            true => Tls::new(certificates)?,
            false => Tls::default(),
        };
        Ok(Address {
            servers,
            sentinels,
            tls,
            name: name.map_or_else(own_name, fit_name),
            is_fixed: false,
        })
    }

    /// One server, whatever it says of others.
    #[cfg(feature = "quorum")]
    pub fn fixed(mut self) -> Address {
        self.is_fixed = true;
        self
    }

    /// Another server, spoken to in the same way.
    pub fn elsewhere(&self, place: Place) -> Address {
        let server = self.servers[0]
            .clone()
            .set_addr(at(&self.servers[0], place));
        Address {
            servers: vec![server],
            sentinels: Vec::new(),
            ..self.clone()
        }
    }

    /// A connection to the master, greeted on.
    pub async fn connect(&self, within: Duration) -> Result<Wire, Error> {
        if !self.sentinels.is_empty() {
            let place = self.master(within / 2).await?;
            let server = self.servers[0].clone();
            let server = server.set_addr(at(&self.servers[0], place));
            // A Sentinel may not have heard yet (P-CONN-7).
            let greeted = self.greet(&server).await;
            return match greeted.map_err(|why| why.at(server.addr()))? {
                (wire, Role::Master) => Ok(wire),
                (_, Role::ReplicaOf(_)) => Err(Error::replica()),
            };
        }
        let share = within / u32::try_from(self.servers.len()).unwrap_or(u32::MAX);
        let mut why = None;
        for server in &self.servers {
            let connected = timeout(share, self.connect_at(server)).await;
            match connected.unwrap_or_else(|_| Err(Error::late())) {
                Ok(wire) => return Ok(wire),
                Err(error) => why = Some(error.at(server.addr())),
            }
        }
        Err(why.unwrap_or_else(|| Error::Refused("URL there is none".to_owned())))
    }

    /// To this server, or to its master.
    async fn connect_at(&self, server: &ConnectionInfo) -> Result<Wire, Error> {
        let mut server = server.clone();
        for _ in 0..=HOPS {
            match self.greet(&server).await? {
                (wire, Role::Master) => return Ok(wire),
                (wire, _) if self.is_fixed => return Ok(wire),
                (_, Role::ReplicaOf(Some(master))) => {
                    let master = at(&server, master);
                    server = server.set_addr(master);
                }
                (_, Role::ReplicaOf(None)) => break,
            }
        }
        Err(Error::replica())
    }

    /// Each server alone, as the URLs name them.
    pub fn each(&self) -> impl Iterator<Item = Address> {
        let alone = |server: &ConnectionInfo| Address {
            servers: vec![server.clone()],
            sentinels: Vec::new(),
            ..self.clone()
        };
        self.servers.iter().map(alone)
    }

    /// A connection to the first server, whatever its role.
    pub async fn connect_to_any(&self) -> Result<Wire, Error> {
        let (wire, _) = self.greet(&self.servers[0]).await?;
        Ok(wire)
    }

    /// P-CONN-2.
    async fn greet(&self, server: &ConnectionInfo) -> Result<(Wire, Role), Error> {
        let mut wire = Wire::connect(server.addr(), &self.tls).await?;
        let settings = server.redis_settings();
        let mut hello = words!["HELLO", "3"];
        if let Some(password) = settings.password() {
            let user = settings.username().unwrap_or("default");
            hello.extend(words!["AUTH", user, password]);
        }
        let name = words!["CLIENT", "SETNAME", &self.name];
        let database = words!["SELECT", u64::try_from(settings.db()).unwrap_or(0)];
        let select = if settings.db() == 0 {
            None
        } else {
            Some(database)
        };
        // Who may not have a name does without (P-CONN-3).
        let (hello, select, role) = match select {
            None => {
                let [hello, _, role] = wire.ask([hello, name, words!["ROLE"]]).await?;
                (hello, Frame::Null, role)
            }
            Some(select) => {
                let [hello, _, select, role] =
                    wire.ask([hello, name, select, words!["ROLE"]]).await?;
                (hello, select, role)
            }
        };
        for (answer, is_needed) in [(&hello, true), (&select, true), (&role, false)] {
            match answer.error() {
                None => {}
                Some(error) if code(error) == "NOPERM" && !is_needed => {}
                Some(error) if is_passing(error) => {
                    return Err(Error::Unreachable(error.to_owned()));
                }
                Some(error) => return Err(Error::Refused(error.to_owned())),
            }
        }
        wire.is_cluster = hello.named("mode").and_then(Frame::bytes) == Some(b"cluster");
        Ok((wire, role_of(&role)))
    }

    /// What more than half of the Sentinels say; where so many do not answer in time, what most say (P-CONN-7).
    async fn master(&self, within: Duration) -> Result<Place, Error> {
        let name = match self.servers[0].addr() {
            ConnectionAddr::Tcp(name, _) | ConnectionAddr::TcpTls { host: name, .. } => name,
            _ => return Err(Error::Refused("URL it has no name of a master".to_owned())),
        };
        let asked = self.sentinels.iter();
        let mut asked: FuturesUnordered<_> = asked
            .map(|at| self.ask_sentinel(at, name, within))
            .collect();
        let mut named = Vec::new();
        let mut why = None;
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(place) => named.push(place),
                Err(error) => why = Some(error),
            }
            if let Some((place, votes)) = most_named(&named)
                && votes > self.sentinels.len() / 2
            {
                return Ok(place.clone());
            }
        }
        let place = most_named(&named).map(|(place, _)| place.clone());
        place.ok_or_else(|| {
            why.unwrap_or_else(|| Error::Unreachable("there is no sentinel".to_owned()))
        })
    }

    async fn ask_sentinel(
        &self,
        sentinel: &ConnectionInfo,
        name: &str,
        within: Duration,
    ) -> Result<Place, Error> {
        let unreachable =
            |why: String| Error::Unreachable(format!("sentinel {}: {why}", sentinel.addr()));
        let answer = timeout(within, async {
            let mut wire = Wire::connect(sentinel.addr(), &self.tls).await?;
            let settings = sentinel.redis_settings();
            let question = words!["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name];
            let hello = match settings.password() {
                Some(password) => {
                    let user = settings.username().unwrap_or("default");
                    words!["HELLO", "3", "AUTH", user, password]
                }
                None => words!["HELLO", "3"],
            };
            let [_, answer] = wire.ask([hello, question]).await?;
            Ok(answer)
        });
        let answer = answer
            .await
            .map_err(|_| unreachable("no answer in time".to_owned()))?;
        let place = match answer.map_err(|error: Error| unreachable(error.to_string()))? {
            Frame::Array(place) => match &place[..] {
                [Frame::Bytes(host), Frame::Bytes(port)] => {
                    let port = std::str::from_utf8(port)
                        .ok()
                        .and_then(|port| port.parse().ok());
                    String::from_utf8(host.clone()).ok().zip(port)
                }
                _ => None,
            },
            _ => None,
        };
        place.ok_or_else(|| unreachable(format!("it knows no master '{name}'")))
    }
}

fn role_of(role: &Frame) -> Role {
    let Frame::Array(role) = role else {
        return Role::Master;
    };
    match &role[..] {
        [Frame::Bytes(is), ..] if is == b"master" => Role::Master,
        [_, Frame::Bytes(host), Frame::Int(port), ..] => {
            let host = String::from_utf8(host.clone()).ok();
            Role::ReplicaOf(host.zip(u16::try_from(*port).ok()))
        }
        _ => Role::ReplicaOf(None),
    }
}

/// Another server, spoken to in the same way.
fn at(server: &ConnectionInfo, (host, port): Place) -> ConnectionAddr {
    match server.addr() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// The first of those that most name, and how many do.
fn most_named(named: &[Place]) -> Option<(&Place, usize)> {
    let votes = |place: &Place| named.iter().filter(|other| *other == place).count();
    // Of equals `max_by_key` takes the last one.
    let counted = named.iter().rev().map(|place| (place, votes(place)));
    counted.max_by_key(|(_, votes)| *votes)
}

fn parse(url: &str) -> RedisResult<ConnectionInfo> {
    url.into_connection_info()
}

/// `tether:<host>:<pid>:<program>`, which `tether who` decodes, so that a list of clients says who somebody is.
fn own_name() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default();
    let system = rustix::system::uname();
    fit_name(&format!(
        "tether:{}:{}:{}",
        system.nodename().to_string_lossy(),
        std::process::id(),
        program.to_string_lossy()
    ))
}

/// In characters that the server takes.
fn fit_name(name: &str) -> String {
    let fit = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    name.chars().take(LONGEST_NAME).map(fit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> ConnectionInfo {
        parse(url).unwrap()
    }

    #[test]
    fn user_password_and_database_are_those_of_the_url() {
        let address = address("redis://ann:secret@first:1/2");
        let settings = address.redis_settings();
        assert_eq!(settings.username(), Some("ann"));
        assert_eq!(settings.password(), Some("secret"));
        assert_eq!(settings.db(), 2);
    }

    #[test]
    fn a_master_is_spoken_to_as_the_url_says() {
        for (url, tls) in [("redis://tether/2", false), ("rediss://tether/2", true)] {
            let at = at(&address(url), ("10.0.0.7".to_owned(), 7));
            assert_eq!(at.to_string(), "10.0.0.7:7");
            assert_eq!(matches!(at, ConnectionAddr::TcpTls { .. }), tls);
        }
    }

    #[test]
    fn what_is_no_url_or_no_certificate_is_refused() {
        let certificates = Certificates {
            authority: Some(b"-----BEGIN CERTIFICATE-----\n".to_vec()),
            own: None,
        };
        for url in ["server:6379", "http://server", "rediss://server"] {
            let address = Address::new(&[url.to_owned()], &[], &certificates, None);
            assert!(matches!(address.err(), Some(Error::Refused(_))), "{url}");
        }
    }

    #[test]
    fn a_name_has_only_characters_that_the_server_takes() {
        assert_eq!(fit_name("a b\n\u{e9}-\u{202e}c"), "a_b__-_c");
        assert_eq!(fit_name(&"x".repeat(1000)).len(), LONGEST_NAME);
        let parts: Vec<_> = own_name().split(':').map(str::to_owned).collect();
        assert_eq!(parts[0], "tether");
        assert_eq!(parts[2], std::process::id().to_string());
    }

    #[test]
    fn of_sentinels_that_disagree_most_are_believed_and_of_equals_the_first() {
        let place = |host: &str| (host.to_owned(), 1);
        let most = |hosts: &[&str]| {
            let named: Vec<_> = hosts.iter().map(|host| place(host)).collect();
            most_named(&named).map(|(place, votes)| (place.0.clone(), votes))
        };
        assert_eq!(most(&[]), None);
        assert_eq!(most(&["a", "b"]), Some(("a".to_owned(), 1)));
        assert_eq!(most(&["a", "b", "b"]), Some(("b".to_owned(), 2)));
        assert_eq!(most(&["b", "a", "b", "a"]), Some(("b".to_owned(), 2)));
    }
}
