//! Where the server is, and who says so.

use crate::error::Error;
use crate::line::{Line, error_of};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisResult, Value, cmd,
};
use std::time::Duration;
use tokio::time::timeout;

type Place = (String, u16);

/// A server, or the master that Sentinels name.
pub struct Address {
    /// With Sentinels the host is the master's name, and the port means nothing.
    server: ConnectionInfo,
    sentinels: Vec<ConnectionInfo>,
}

/// What TLS needs beside what the system trusts; all in the PEM format.
#[derive(Clone, Default)]
pub struct Certificates {
    #[cfg(feature = "tls")]
    pub authority: Option<Vec<u8>>,
    /// A chain and its key.
    #[cfg(feature = "tls")]
    pub own: Option<(Vec<u8>, Vec<u8>)>,
}

impl Address {
    pub fn new(
        url: &str,
        sentinels: &[String],
        certificates: &Certificates,
    ) -> Result<Address, Error> {
        let parse = |url: &str| parse(url, certificates).map_err(refused);
        Ok(Address {
            server: parse(url)?,
            sentinels: sentinels
                .iter()
                .map(|url| parse(url))
                .collect::<Result<_, _>>()?,
        })
    }

    /// A connection to the server that it is now.
    pub async fn connect(&self, within: Duration) -> Result<Line, Error> {
        if self.sentinels.is_empty() {
            return Line::connect(&self.server, within).await;
        }
        let place = self.master(within / 2).await?;
        let server = self.server.clone().set_addr(self.at(place));
        let mut line = Line::connect(&server, within / 2).await?;
        // A Sentinel may not have heard yet.
        match line.ask(&cmd("ROLE")).await? {
            Value::Array(role) if role.first().is_some_and(|role| is_text(role, "master")) => {
                Ok(line)
            }
            _ => Err(Error::Unreachable("it is a replica".to_owned())),
        }
    }

    /// What more than half of the Sentinels say; where so many do not answer in time, what most say.
    async fn master(&self, within: Duration) -> Result<Place, Error> {
        let name = match self.server.addr() {
            ConnectionAddr::Tcp(name, _) | ConnectionAddr::TcpTls { host: name, .. } => name,
            _ => return Err(Error::Refused("the URL has no name of a master".to_owned())),
        };
        let asked = self.sentinels.iter();
        let mut asked: FuturesUnordered<_> = asked.map(|at| ask(at, name, within)).collect();
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

    /// Another server, spoken to in the same way.
    fn at(&self, (host, port): Place) -> ConnectionAddr {
        match self.server.addr() {
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
}

async fn ask(sentinel: &ConnectionInfo, name: &str, within: Duration) -> Result<Place, Error> {
    let answer = timeout(within, async {
        let mut line = Line::connect(sentinel, within).await?;
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
fn parse(url: &str, certificates: &Certificates) -> RedisResult<ConnectionInfo> {
    let address = url.into_connection_info()?;
    let settings = address.redis_settings().clone();
    let address = address.set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3));
    with_certificates(address, certificates)
}

#[cfg(feature = "tls")]
fn with_certificates(
    address: ConnectionInfo,
    Certificates { authority, own }: &Certificates,
) -> RedisResult<ConnectionInfo> {
    if !matches!(address.addr(), ConnectionAddr::TcpTls { .. }) {
        return Ok(address);
    }
    // An error is that the program has chosen one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client_tls = own
        .clone()
        .map(|(client_cert, client_key)| redis::ClientTlsConfig {
            client_cert,
            client_key,
        });
    let certificates = redis::TlsCertificates {
        client_tls,
        root_cert: authority.clone(),
    };
    let client = redis::Client::build_with_tls(address, certificates)?;
    Ok(client.get_connection_info().clone())
}

#[cfg(not(feature = "tls"))]
fn with_certificates(address: ConnectionInfo, _: &Certificates) -> RedisResult<ConnectionInfo> {
    Ok(address)
}

fn refused(error: redis::RedisError) -> Error {
    match error_of(error) {
        Error::Unreachable(why) => Error::Refused(why),
        other => other,
    }
}

fn is_text(value: &Value, text: &str) -> bool {
    match value {
        Value::BulkString(bytes) => bytes == text.as_bytes(),
        Value::SimpleString(said) => said == text,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> ConnectionInfo {
        Address::new(url, &[], &Certificates::default())
            .unwrap()
            .server
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
            let address = Address::new(url, &[], &Certificates::default()).unwrap();
            let at = address.at(("10.0.0.7".to_owned(), 7));
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
            let address = Address::new(url, &[], &certificates);
            assert!(matches!(address.err(), Some(Error::Refused(_))), "{url}");
        }
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
