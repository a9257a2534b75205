//! Where the server is, and who says so.

use crate::error::Error;
use crate::line::{Line, Manner, Role, error_of, late};
use crate::tls::{Certificates, Tls};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisResult, Value, cmd,
};
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

type Place = (String, u16);

/// A server, those of which one is the master, or the master that Sentinels name.
pub struct Address {
    /// One at least. With Sentinels its host is the master's name, and the port means nothing.
    servers: Vec<ConnectionInfo>,
    sentinels: Vec<ConnectionInfo>,
    manner: Manner,
    /// It is the only one, also as a replica.
    is_fixed: bool,
}

/// Of a client's name; the server has no limit that matters.
const LONGEST_NAME: usize = 200;

/// So often a replica's word is taken for where its master is.
const HOPS: usize = 2;

impl Address {
    pub fn new(
        urls: &[String],
        sentinels: &[String],
        certificates: &Certificates,
        name: Option<&str>,
    ) -> Result<Address, Error> {
        let parsed = |urls: &[String]| -> Result<Vec<_>, Error> {
            urls.iter().map(|url| parse(url).map_err(refused)).collect()
        };
        let servers = parsed(urls)?;
        let sentinels = parsed(sentinels)?;
        let mut all = servers.iter().chain(&sentinels);
        let tls = match all.any(|at| matches!(at.addr(), ConnectionAddr::TcpTls { .. })) {
            true => Tls::new(certificates)?,
            false => Tls::default(),
        };
        let name = name.map_or_else(own_name, fit_name);
        Ok(Address {
            servers,
            sentinels,
            manner: Manner { tls, name },
            is_fixed: false,
        })
    }

    /// One server, whatever it says of others.
    pub fn fixed(mut self) -> Address {
        self.is_fixed = true;
        self
    }

    /// A connection to the server that it is now: to a master, unless it is a fixed one.
    pub async fn connect(&self, within: Duration) -> Result<Line, Error> {
        if !self.sentinels.is_empty() {
            let place = self.master(within / 2).await?;
            let server = self.servers[0]
                .clone()
                .set_addr(at(&self.servers[0], place));
            let mut line = Line::connect(&server, &self.manner, within / 2).await?;
            // A Sentinel may not have heard yet.
            return match line.role().await? {
                Role::Master => Ok(line),
                Role::ReplicaOf(_) => Err(replica()),
            };
        }
        let share = within / u32::try_from(self.servers.len()).unwrap_or(u32::MAX);
        let mut why = None;
        for server in &self.servers {
            let connected = timeout(share, self.connect_at(server, share)).await;
            match connected.unwrap_or_else(|_| Err(late())) {
                Ok(line) => return Ok(line),
                Err(error) => why = Some(error),
            }
        }
        Err(why.unwrap_or_else(|| Error::Refused("there is no address".to_owned())))
    }

    /// To this server, or to its master.
    async fn connect_at(&self, server: &ConnectionInfo, within: Duration) -> Result<Line, Error> {
        let mut line = Line::connect(server, &self.manner, within).await?;
        if self.is_fixed {
            return Ok(line);
        }
        for _ in 0..HOPS {
            match line.role().await? {
                Role::Master => return Ok(line),
                Role::ReplicaOf(Some(master)) => {
                    let master = server.clone().set_addr(at(server, master));
                    line = Line::connect(&master, &self.manner, within).await?;
                }
                Role::ReplicaOf(None) => break,
            }
        }
        match line.role().await? {
            Role::Master => Ok(line),
            Role::ReplicaOf(_) => Err(replica()),
        }
    }

    /// What more than half of the Sentinels say; where so many do not answer in time, what most say.
    async fn master(&self, within: Duration) -> Result<Place, Error> {
        let name = match self.servers[0].addr() {
            ConnectionAddr::Tcp(name, _) | ConnectionAddr::TcpTls { host: name, .. } => name,
            _ => return Err(Error::Refused("the URL has no name of a master".to_owned())),
        };
        let asked = self.sentinels.iter();
        let mut asked: FuturesUnordered<_> = asked
            .map(|at| ask(at, &self.manner, name, within))
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

fn replica() -> Error {
    Error::Unreachable("it is a replica".to_owned())
}

async fn ask(
    sentinel: &ConnectionInfo,
    manner: &Manner,
    name: &str,
    within: Duration,
) -> Result<Place, Error> {
    let answer = timeout(within, async {
        let mut line = Line::connect(sentinel, manner, within).await?;
        let mut question = cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
        line.ask(&question).await
    });
    let unreachable =
        |why: String| Error::Unreachable(format!("sentinel {}: {why}", sentinel.addr()));
    let answer = answer
        .await
        .map_err(|_| unreachable("no answer in time".to_owned()))?;
    let place = match answer.map_err(|error| unreachable(error.to_string()))? {
        Value::Array(place) => redis::from_redis_value(Value::Array(place)).ok(),
        _ => None,
    };
    place.ok_or_else(|| unreachable(format!("it knows no master '{name}'")))
}

/// The first of those that most name, and how many do.
fn most_named(named: &[Place]) -> Option<(&Place, usize)> {
    let votes = |place: &Place| named.iter().filter(|other| *other == place).count();
    // Of equals `max_by_key` takes the last one.
    let counted = named.iter().rev().map(|place| (place, votes(place)));
    counted.max_by_key(|(_, votes)| *votes)
}

/// With RESP3, which has pushes.
fn parse(url: &str) -> RedisResult<ConnectionInfo> {
    let address = url.into_connection_info()?;
    let settings = address.redis_settings().clone();
    Ok(address.set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3)))
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

fn refused(error: redis::RedisError) -> Error {
    match error_of(error) {
        Error::Unreachable(why) => Error::Refused(why),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> ConnectionInfo {
        parse(url).unwrap()
    }

    #[test]
    fn user_password_and_database_are_those_of_the_url() {
        let address = address("redis://ann:secret@first:1/2?protocol=resp2");
        let settings = address.redis_settings();
        assert_eq!(settings.username(), Some("ann"));
        assert_eq!(settings.password(), Some("secret"));
        assert_eq!(
            (settings.db(), settings.protocol()),
            (2, ProtocolVersion::RESP3)
        );
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
